//! What goes when a cache is full: a clock, whose hand goes through all keys in their order, round and round. It
//! takes what was not read since it last came by.
//!
//! The keys of stores begin with their hashes, so that their order says nothing about their use.

use std::ops::Bound;

use bytes::Bytes;

use super::contents::{Contents, TableId};

/// After so many entries in one go it takes what comes next, read or not: a bound on what a write waits for.
const SPARED_MAX: usize = 1024;

/// Entries that are looked at between two changes of the contents.
const STEP: usize = 128;

pub(super) struct Clock {
    bytes_max: u64,
    /// Where it stands: after this key of this table.
    table: TableId,
    key: Option<Bytes>,
}

impl Clock {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            table: 0,
            key: None,
        }
    }

    /// Deletes entries until the rest keeps within the limit.
    pub(super) fn evict(&mut self, contents: &mut Contents) {
        let mut spared = 0;
        while contents.bytes() > self.bytes_max {
            let Some(table) = contents.table_from(self.table).or_else(|| contents.table_from(0)) else {
                return;
            };
            if table != self.table {
                (self.table, self.key) = (table, None);
            }
            let Some(entries) = contents.entries_of(table) else {
                return;
            };
            let from = match self.key.take() {
                Some(key) => Bound::Excluded(key),
                None => Bound::Unbounded,
            };
            let mut excess_bytes = contents.bytes() - self.bytes_max;
            let mut evicted = Vec::new();
            for (key, entry) in entries.range((from, Bound::Unbounded)).take(STEP) {
                self.key = Some(key.clone());
                if spared < SPARED_MAX && entry.take_used() {
                    spared += 1;
                    continue;
                }
                evicted.push(key.clone());
                excess_bytes = excess_bytes.saturating_sub((key.len() + entry.value.len()) as u64);
                if excess_bytes == 0 {
                    break;
                }
            }
            contents.remove(table, &evicted);
            if self.key.is_none() {
                // Past the last key of this table.
                self.table = table + 1;
            }
        }
    }
}
