//! A handle to a table on disk.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use fjall::{AbstractTree, Keyspace, Readable};

use super::Shared;
use super::opened::Opened;
use crate::engine::{Hot, Scan, Table};
use crate::error::EngineError;
use crate::limits::KEY_BYTES_MAX;
use crate::open_table::OpenTable;

pub(super) struct DiskTable {
    shared: Arc<Shared>,
    state: Arc<OpenTable>,
}

impl DiskTable {
    pub(super) fn new(shared: Arc<Shared>, state: Arc<OpenTable>) -> Self {
        Self { shared, state }
    }

    fn read(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let opened = self.shared.slot.current(&self.shared.dir)?;
        let value = opened.keyspace(&self.state)?.get(key);
        // Assume that the record of this key is damaged: once it is overwritten, reads return the new record.
        let value = value.map_err(|error| self.shared.read_error("read", error).of_record(key))?;
        Ok(value.map(Bytes::from))
    }
}

impl Table for DiskTable {
    fn name(&self) -> &str {
        self.state.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.state.check()?;
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Ok(None);
        }
        self.shared
            .cache
            .get_or_read(self.state.number(), key, || self.read(key))
    }

    fn get_hot(&self, key: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        self.state.check()?;
        Ok(self.shared.cache.get(self.state.number(), key))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        let opened = self.shared.slot.current(&self.shared.dir)?;
        let keyspace = opened.keyspace(&self.state)?;
        let snapshot = opened.database().snapshot();
        if to.is_some_and(|to| to <= from) {
            // fjall would panic on such a range.
            return Ok(Box::new(std::iter::empty()));
        }
        let entries =
            snapshot.range::<&[u8], _>(&keyspace, (lower_bound(from), to.map_or(Bound::Unbounded, upper_bound)));
        Ok(Box::new(DiskScan {
            entries,
            shared: self.shared.clone(),
            failed: false,
            _keyspace: keyspace,
            _opened: opened,
        }))
    }

    fn approximate_len(&self) -> u64 {
        let opened = self.shared.slot.current(&self.shared.dir);
        let keyspace = opened.and_then(|opened| opened.keyspace(&self.state));
        keyspace.map_or(0, |keyspace| keyspace.tree.approximate_len() as u64)
    }
}

/// The lower bound for keys from `from` on: no key in a tree is longer than `KEY_BYTES_MAX`.
fn lower_bound(from: &[u8]) -> Bound<&[u8]> {
    match from.get(..KEY_BYTES_MAX) {
        Some(start) if start != from => Bound::Excluded(start),
        _ => Bound::Included(from),
    }
}

/// The upper bound for keys before `to`.
fn upper_bound(to: &[u8]) -> Bound<&[u8]> {
    match to.get(..KEY_BYTES_MAX) {
        Some(start) if start != to => Bound::Included(start),
        _ => Bound::Excluded(to),
    }
}

/// A scan that keeps the database open: until it ends, no other database can replace it.
struct DiskScan {
    /// Dropped before the database.
    entries: fjall::Iter,
    shared: Arc<Shared>,
    failed: bool,
    /// A dropped table keeps its files until then.
    _keyspace: Keyspace,
    _opened: Arc<Opened>,
}

impl Iterator for DiskScan {
    type Item = Result<(Bytes, Bytes), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let entry = self.entries.next()?.into_inner();
        self.failed = entry.is_err();
        let entry = entry.map(|(key, value)| (Bytes::from(key), Bytes::from(value)));
        Some(entry.map_err(|error| self.shared.read_error("scan", error)))
    }
}
