//! How much of memory records take, and which go when that is too much: a clock, whose hand goes through all keys in
//! their order, round and round, and takes what was not used since it last came by.
//!
//! The keys of stores begin with their hashes, so that their order says nothing about their use.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use super::Shared;
use super::tree::{LeafAt, Tree};
use crate::budget::{CacheBudget, CacheShare};

/// How many leaves the hand passes in one go at most.
const LEAVES_MAX: usize = 4096;

/// How much is in memory.
#[derive(Debug)]
pub(super) struct Heat {
    share: CacheShare,
    hand: Mutex<Hand>,
}

/// Where the hand stands: before a leaf of a table.
#[derive(Debug)]
struct Hand {
    table: u32,
    leaf: LeafAt,
}

impl Heat {
    pub(super) fn new(budget: &CacheBudget) -> Self {
        Self {
            share: budget.share(),
            hand: Mutex::new(Hand {
                table: 0,
                leaf: Tree::first_leaf(),
            }),
        }
    }

    /// So many bytes came into memory.
    pub(super) fn add(&self, bytes: usize) {
        self.share.bytes().fetch_add(bytes as u64, Relaxed);
    }

    /// So many went.
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
    /// Gives up values in memory until there are no more than there may be.
    pub(super) fn cool(&self) {
        if !self.heat.is_too_much() {
            return;
        }
        // Who finds another at it need do nothing.
        let Ok(mut hand) = self.heat.hand.try_lock() else {
            return;
        };
        for _ in 0..LEAVES_MAX {
            if !self.heat.is_too_much() {
                return;
            }
            let tables = self.tables();
            let next = tables.by_number.range(hand.table..).next();
            let Some((&number, table)) = next.or_else(|| tables.by_number.first_key_value()) else {
                return;
            };
            if number != hand.table {
                (hand.table, hand.leaf) = (number, Tree::first_leaf());
            }
            let table = std::sync::Arc::clone(table);
            drop(tables);
            let mut contents = table.write();
            match contents.tree.leaf_entries_mut(hand.leaf) {
                Some((entries, next)) => {
                    let given_up = entries.iter_mut().map(|entry| entry.cool()).sum();
                    self.heat.remove(given_up);
                    hand.leaf = next;
                }
                None => (hand.table, hand.leaf) = (number.wrapping_add(1), Tree::first_leaf()),
            }
        }
    }
}
