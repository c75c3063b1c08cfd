//! The memory of cached values, and their eviction by the clock algorithm. The hand goes through all keys in order,
//! again and again, and evicts values that were not used since it last passed.
//!
//! The keys of stores begin with their hashes, so their order is independent of their use.

use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::Shared;
use super::table::LogTable;
use super::tree::{LeafAt, Tree};
use crate::budget::{CacheBudget, CacheShare};

/// The maximum number of leaves that the hand passes in one run.
const LEAVES_MAX: usize = 4096;

/// The memory of the cached values.
#[derive(Debug)]
pub(super) struct ResidentBytes {
    share: CacheShare,
    hand: Mutex<ClockHand>,
}

/// The position of the hand: before a leaf of a table.
#[derive(Debug)]
struct ClockHand {
    table: u32,
    leaf: LeafAt,
}

impl ResidentBytes {
    pub(super) fn new(budget: &CacheBudget) -> Self {
        Self {
            share: budget.share(),
            hand: Mutex::new(ClockHand {
                table: 0,
                leaf: Tree::first_leaf(),
            }),
        }
    }

    /// Adds the bytes of cached values.
    pub(super) fn add(&self, bytes: usize) {
        self.share.bytes().fetch_add(bytes as u64, Relaxed);
    }

    /// Subtracts the bytes of evicted or replaced values.
    pub(super) fn remove(&self, bytes: usize) {
        self.share.bytes().fetch_sub(bytes as u64, Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.share.bytes().load(Relaxed)
    }

    fn is_too_much(&self) -> bool {
        self.bytes() > self.share.bytes_max()
    }
}

impl Shared {
    /// Evicts values until the rest is within the limit.
    pub(super) fn cool(&self) {
        if !self.resident_bytes.is_too_much() {
            return;
        }
        // If another thread is already evicting, there is nothing to do.
        let Some(mut hand) = self.resident_bytes.hand.try_lock() else {
            return;
        };
        for _ in 0..LEAVES_MAX {
            if !self.resident_bytes.is_too_much() {
                return;
            }
            let tables = self.tables.read();
            let next = tables.by_number.range(hand.table..).next();
            let Some((&number, table)) = next.or_else(|| tables.by_number.first_key_value()) else {
                return;
            };
            if number != hand.table {
                (hand.table, hand.leaf) = (number, Tree::first_leaf());
            }
            let table = std::sync::Arc::clone(table);
            drop(tables);
            match self.cool_leaf(&table, hand.leaf) {
                Some(next) => hand.leaf = next,
                None => (hand.table, hand.leaf) = (number.wrapping_add(1), Tree::first_leaf()),
            }
        }
    }

    /// Evicts values of a leaf. Returns the next leaf, if there may be one.
    fn cool_leaf(&self, table: &LogTable, leaf: LeafAt) -> Option<LeafAt> {
        let mut contents = table.write();
        // Dropping a table subtracts all its bytes, exactly once.
        table.open.check().ok()?;
        let (entries, next) = contents.tree.leaf_entries_mut(leaf)?;
        let kept_bytes = table.kept_bytes.load(Relaxed);
        let evicted = entries.iter_mut().map(|entry| entry.cool(kept_bytes));
        self.resident_bytes.remove(evicted.sum());
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogEngine, LogOptions};
    use super::*;
    use crate::batch::WriteBatch;
    use crate::engine::Engine;

    #[test]
    fn the_bytes_of_a_dropped_table_are_subtracted_once() {
        let dir = tempfile::tempdir().unwrap();
        let engine = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
        let table = engine.open_table("t").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&*table, "key".into(), vec![1; 100].into());
        engine.write(batch).unwrap();
        let found = engine.shared.tables.read().by_name["t"].clone();
        // The first pass of the clock finds the table just before it is dropped.
        assert!(engine.shared.cool_leaf(&found, Tree::first_leaf()).is_some());
        engine.drop_table("t").unwrap();
        assert_eq!(engine.cached_bytes(), 0);
        assert_eq!(engine.shared.cool_leaf(&found, Tree::first_leaf()), None);
        assert_eq!(engine.cached_bytes(), 0);
    }
}
