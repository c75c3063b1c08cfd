//! The end of a run: whether replicas have become equal, and whether what they hold can be.

use bytes::Bytes;
use fondaco_model::versioned::{HashTree, Record, Resolution, resolve};

use super::coordinator::{count, values};
use super::replica::{Replica, decode};
use super::world::World;

impl World {
    /// Why the end is not there yet; nothing if it is.
    pub(super) fn unsettled(&self) -> Option<String> {
        for (process, at) in self.processes.iter().enumerate() {
            if !at.coordinator.is_idle() {
                return Some(format!("{process} has operations under way"));
            }
            let hints = at.replica.as_ref().map_or(0, |replica| replica.disk.hints().len());
            if hints > 0 {
                return Some(format!("{process} keeps {hints} hints"));
            }
        }
        let moving = self.moving();
        if moving.is_some() {
            return moving;
        }
        for partition in 0..self.scenario.partitions {
            let owners: Vec<&Replica> = self.replicas_of(partition).collect();
            let Some((first, others)) = owners.split_first() else {
                continue;
            };
            for other in others {
                let (here, there) = (records(first, partition), records(other, partition));
                if here != there {
                    let of = |records: &[(&Bytes, &Bytes)]| -> Vec<String> {
                        let words = |(key, record): &(&Bytes, &Bytes)| format!("{key:?}: {:?}", decode(record));
                        records.iter().map(words).collect()
                    };
                    return Some(format!(
                        "nodes {} and {} differ in partition {partition}:\n{:#?}\n{:#?}",
                        first.node,
                        other.node,
                        of(&here),
                        of(&there)
                    ));
                }
            }
        }
        None
    }

    /// Holds what there is in the end to what was promised.
    pub(super) fn judge(&mut self) {
        let mut checked = self.check_trees();
        let keys: Vec<Bytes> = match self.scenario.counts() {
            true => self.sums.keys().cloned().collect(),
            false => self.history.keys().cloned().collect(),
        };
        for key in keys {
            let (partition, ..) = self.store.place(&key);
            let record = self
                .replicas_of(partition)
                .next()
                .and_then(|replica| replica.record(&self.store, &key));
            let record = record.and_then(|record| decode(record).ok()).unwrap_or_default();
            let outcome = match self.scenario.settings.resolution {
                Resolution::Counter => self.sums.settled(&key, count(&record, self.now_us / 1000)),
                Resolution::Latest => {
                    let latest = resolve(&record, Resolution::Latest, self.now_us / 1000);
                    let resolved = self.history.resolved(&key, latest.value(), u64::MAX);
                    resolved.and(self.history.settled(&key, &values(&record)))
                }
                _ => self.history.settled(&key, &values(&record)),
            };
            checked = checked.and(outcome.map_err(|broken| format!("in the end: {broken}")));
        }
        if let Err(what) = checked {
            self.violated(what);
        }
    }

    /// Whether hash trees are those of what is there.
    fn check_trees(&self) -> Result<(), String> {
        for replica in self.processes.iter().filter_map(|process| process.replica.as_ref()) {
            for (&number, partition) in &replica.partitions {
                let mut tree = HashTree::default();
                let held = replica.disk.records().iter().filter(|((at, ..), _)| *at == number);
                held.for_each(|((_, hash, _), record)| tree.replace(*hash, None, Some(Record::digest(record))));
                if tree.root() != partition.tree.root() {
                    return Err(format!(
                        "node {}: the hash tree of {number} is not that of its records",
                        replica.node
                    ));
                }
            }
        }
        Ok(())
    }

    fn replicas_of(&self, partition: u32) -> impl Iterator<Item = &Replica> {
        let owners = self.owners(partition);
        let replicas = self.processes.iter().filter_map(|process| process.replica.as_ref());
        replicas.filter(move |replica| owners.contains(&replica.node))
    }
}

fn records(replica: &Replica, partition: u32) -> Vec<(&Bytes, &Bytes)> {
    let held = replica.disk.records().iter().filter(|((at, ..), _)| *at == partition);
    held.map(|((_, _, key), record)| (key, record)).collect()
}
