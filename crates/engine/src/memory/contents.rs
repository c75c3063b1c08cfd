//! A snapshot of all tables of an engine in memory. Cloning takes constant time, whatever the size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use imbl::OrdMap;

use crate::batch::WriteBatch;
use crate::error::EngineError;

/// The approximate memory of an entry besides its key and value: two handles, its place in a map, and two allocations.
const ENTRY_OVERHEAD_BYTES: u64 = 160;

/// Never reused, so that a handle to a dropped table does not find a new table of the same name.
pub(super) type TableId = u64;

pub(super) type Entries = OrdMap<Bytes, Arc<Entry>>;

#[derive(Clone, Default)]
pub(super) struct Contents {
    names: OrdMap<String, TableId>,
    entries: OrdMap<TableId, Entries>,
    next_id: TableId,
    bytes: u64,
}

pub(super) struct Entry {
    pub(super) value: Bytes,
    /// Read since the clock hand last passed.
    used: AtomicBool,
}

impl Entry {
    /// Marks the entry as read. Writes only if that changes something: readers share the cache line.
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was read since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

impl Contents {
    pub(super) fn table_names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn entries_of(&self, table: TableId) -> Option<&Entries> {
        self.entries.get(&table)
    }

    /// The first table with an id of at least `from`.
    pub(super) fn table_from(&self, from: TableId) -> Option<TableId> {
        self.entries.range(from..).next().map(|(id, _)| *id)
    }

    /// The memory that all entries use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn open_table(&mut self, name: &str) -> TableId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.names.insert(name.to_owned(), id);
        self.entries.insert(id, Entries::new());
        id
    }

    pub(super) fn drop_table(&mut self, name: &str) {
        let Some(id) = self.names.remove(name) else { return };
        let entries = self.entries.remove(&id).unwrap_or_default();
        self.bytes -= entries
            .iter()
            .map(|(key, entry)| weight(key, &entry.value))
            .sum::<u64>();
    }

    /// Applies all changes, but stores no value longer than `value_bytes_max`. Fails if a table does not exist; then
    /// the caller must discard these contents.
    pub(super) fn apply(&mut self, batch: &WriteBatch, value_bytes_max: u64) -> Result<(), EngineError> {
        for (name, changes) in batch.tables() {
            let entries = self.names.get(name).and_then(|id| self.entries.get_mut(id));
            let entries = entries.ok_or_else(|| EngineError::NoTable { table: name.to_owned() })?;
            for change in changes.iter() {
                let key = change.key();
                let value = change.shared_value();
                let old = match value.filter(|value| value.len() as u64 <= value_bytes_max) {
                    Some(value) => {
                        self.bytes += weight(key, &value);
                        let entry = Entry {
                            value,
                            used: AtomicBool::new(false),
                        };
                        entries.insert(change.shared_key(), Arc::new(entry))
                    }
                    None => entries.remove(key),
                };
                self.bytes -= old.map_or(0, |old| weight(key, &old.value));
            }
        }
        Ok(())
    }

    /// Deletes some keys.
    pub(super) fn remove(&mut self, table: TableId, keys: &[Bytes]) {
        let Some(entries) = self.entries.get_mut(&table) else {
            return;
        };
        for key in keys {
            self.bytes -= entries.remove(key).map_or(0, |old| weight(key, &old.value));
        }
    }
}

fn weight(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + ENTRY_OVERHEAD_BYTES
}
