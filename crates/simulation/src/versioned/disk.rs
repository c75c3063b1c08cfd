//! A simulated disk: tables, and a journal of what power would undo. The end of the process loses nothing; the
//! loss of power loses the end of what was not synced: never something with what came after it kept.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use fondaco_model::NodeId;

/// Where a record stands: by partition, by the hash of its key, by its key.
pub(super) type RecordKey = (u32, u64, Bytes);

/// Where a hint stands: by the node that it is for, by its key.
pub(super) type HintKey = (NodeId, Bytes);

/// What a node keeps.
#[derive(Debug, Default)]
pub(super) struct Disk {
    records: BTreeMap<RecordKey, Bytes>,
    hints: BTreeMap<HintKey, Bytes>,
    journal: VecDeque<Undo>,
    /// How many changes were synced.
    synced: u64,
}

#[derive(Debug)]
enum Undo {
    Record(RecordKey, Option<Bytes>),
    Hint(HintKey, Option<Bytes>),
}

impl Disk {
    pub(super) fn records(&self) -> &BTreeMap<RecordKey, Bytes> {
        &self.records
    }

    pub(super) fn hints(&self) -> &BTreeMap<HintKey, Bytes> {
        &self.hints
    }

    /// Replaces a record, or deletes it.
    pub(super) fn set_record(&mut self, key: RecordKey, record: Option<Bytes>) {
        let before = set(&mut self.records, key.clone(), record);
        self.journal.push_back(Undo::Record(key, before));
    }

    /// Replaces a hint, or deletes it.
    pub(super) fn set_hint(&mut self, key: HintKey, record: Option<Bytes>) {
        let before = set(&mut self.hints, key.clone(), record);
        self.journal.push_back(Undo::Hint(key, before));
    }

    /// What has been written so far, to be synced.
    pub(super) fn mark(&self) -> u64 {
        self.synced + self.journal.len() as u64
    }

    /// A copy of it, as an operator keeps one.
    pub(super) fn copy(&self) -> Self {
        Self {
            records: self.records.clone(),
            hints: self.hints.clone(),
            ..Self::default()
        }
    }

    /// How much power would undo.
    pub(super) fn unsynced(&self) -> usize {
        self.journal.len()
    }

    /// What was written before the mark was taken survives all from now on.
    pub(super) fn sync(&mut self, mark: u64) {
        while self.synced < mark && self.journal.pop_front().is_some() {
            self.synced += 1;
        }
    }

    /// Power is lost: of what was not synced, the first `kept` changes are there.
    pub(super) fn lose_power(&mut self, kept: usize) {
        while self.journal.len() > kept {
            match self.journal.pop_back() {
                Some(Undo::Record(key, before)) => drop(set(&mut self.records, key, before)),
                Some(Undo::Hint(key, before)) => drop(set(&mut self.hints, key, before)),
                None => return,
            }
        }
        self.sync(self.mark());
    }
}

fn set<K: Ord>(table: &mut BTreeMap<K, Bytes>, key: K, value: Option<Bytes>) -> Option<Bytes> {
    match value {
        Some(value) => table.insert(key, value),
        None => table.remove(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_undoes_the_end_of_what_was_not_synced() {
        let mut disk = Disk::default();
        let key = |hash| (0, hash, Bytes::new());
        disk.set_record(key(1), Some("a".into()));
        disk.sync(disk.mark());
        disk.set_record(key(1), None);
        disk.set_record(key(2), Some("b".into()));
        disk.set_record(key(2), Some("c".into()));
        disk.lose_power(2);
        assert_eq!(
            disk.records().iter().collect::<Vec<_>>(),
            [(&key(2), &Bytes::from("b"))]
        );
        assert_eq!(disk.unsynced(), 0);
    }
}
