//! Eviction of a full cache: the clock algorithm. Its hand goes through all keys in order, again and again, and evicts
//! entries that were not read since it last passed.
//!
//! The keys of stores begin with their hashes, so their order is independent of their use.

use std::ops::Bound;

use bytes::Bytes;

use super::contents::{Contents, TableId};

/// After this number of spared entries in one run, the clock evicts the next ones even if they were read: this bounds
/// how long a write waits.
const SPARED_MAX: usize = 1024;

/// The number of entries per step. The contents may change after each step.
const STEP: usize = 128;

pub(super) struct Clock {
    bytes_max: u64,
    /// The position of the hand: after this key of this table.
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

    /// Deletes entries until the rest is within the limit.
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
