//! A handle to a table in memory.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::Shared;
use super::contents::{Entries, TableId};
use crate::engine::{Hot, Scan, Table};
use crate::error::EngineError;

pub(super) struct MemoryTable {
    shared: Arc<Shared>,
    id: TableId,
    name: String,
}

impl MemoryTable {
    pub(super) fn new(shared: Arc<Shared>, id: TableId, name: &str) -> Self {
        let name = name.to_owned();
        Self { shared, id, name }
    }

    fn with<T>(&self, read: impl FnOnce(&Entries) -> T) -> Result<T, EngineError> {
        let contents = self.shared.current.load();
        let entries = contents.entries_of(self.id);
        entries.map(read).ok_or_else(|| EngineError::NoTable {
            table: self.name.clone(),
        })
    }
}

impl Table for MemoryTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.with(|entries| {
            let entry = entries.get(key)?;
            entry.touch();
            Some(entry.value.clone())
        })
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        Ok(self.get(key)?.map_or(Hot::Absent, Hot::Found))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        let entries = self.with(Entries::clone)?;
        let to = to.map(Bytes::copy_from_slice);
        Ok(Box::new(EntriesScan {
            entries,
            from: Bound::Included(Bytes::copy_from_slice(from)),
            to,
            ahead: Vec::new(),
        }))
    }

    fn approximate_len(&self) -> u64 {
        self.with(|entries| entries.len() as u64).unwrap_or(0)
    }
}

/// How many entries a scan copies out of its map at once.
const AHEAD: usize = 256;

/// A scan that owns its snapshot of the map.
struct EntriesScan {
    entries: Entries,
    from: Bound<Bytes>,
    to: Option<Bytes>,
    /// The next entries, in reverse order.
    ahead: Vec<(Bytes, Bytes)>,
}

impl Iterator for EntriesScan {
    type Item = Result<(Bytes, Bytes), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_empty() {
            let rest = self.entries.range((self.from.clone(), Bound::Unbounded));
            let within = rest.take_while(|(key, _)| self.to.as_ref().is_none_or(|to| *key < to));
            let ahead = within
                .take(AHEAD)
                .map(|(key, entry)| (key.clone(), entry.value.clone()));
            self.ahead = ahead.collect();
            let (last, _) = self.ahead.last()?;
            self.from = Bound::Excluded(last.clone());
            self.ahead.reverse();
        }
        self.ahead.pop().map(Ok)
    }
}
