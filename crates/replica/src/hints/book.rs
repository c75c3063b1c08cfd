//! The nodes for which hints wait: a summary of the table of hints, kept in memory.
//!
//! A node is in the book before or as soon as the table has a hint for it, and leaves it when a thread scanned the
//! table and found none. The table survives the process, the book does not: it is rebuilt from the table at the start,
//! and until then hints may be of any age.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

use fondaco_model::NodeId;

/// The book.
#[derive(Debug, Default)]
pub(crate) struct HintBook {
    state: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    nodes: BTreeMap<NodeId, Waiting>,
    /// Whether the table has been scanned since the start.
    is_known: bool,
}

/// The hints for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    /// The time of the oldest record, in milliseconds since 1970, or an earlier time.
    oldest_unix_ms: u64,
    /// How many hints were added.
    added: u64,
}

impl HintBook {
    /// There is a hint for a node, with a record of this time; `u64::MAX` if it is damaged, and never delivered.
    /// Returns whether it is the only one.
    pub(crate) fn add(&self, node: NodeId, written_unix_ms: u64) -> bool {
        let mut book = self.lock();
        let is_first = !book.nodes.contains_key(&node);
        let waiting = book.nodes.entry(node).or_insert(Waiting {
            oldest_unix_ms: written_unix_ms,
            added: 0,
        });
        waiting.oldest_unix_ms = waiting.oldest_unix_ms.min(written_unix_ms);
        waiting.added += 1;
        is_first
    }

    /// The whole table has been scanned, and all its hints were added.
    pub(crate) fn known(&self) {
        self.lock().is_known = true;
    }

    /// The nodes for which hints wait, each with how many were added.
    pub(crate) fn nodes(&self) -> Vec<(NodeId, u64)> {
        let book = self.lock();
        book.nodes
            .iter()
            .map(|(&node, waiting)| (node, waiting.added))
            .collect()
    }

    /// A scan that began when this many hints had been added found none for a node.
    pub(crate) fn none_for(&self, node: NodeId, added: u64) {
        let mut book = self.lock();
        if book.nodes.get(&node).is_some_and(|waiting| waiting.added == added) {
            book.nodes.remove(&node);
        }
    }

    /// The time of the oldest record that waits for any node, or an earlier time, in milliseconds since 1970; `None` if
    /// there are no hints.
    pub(crate) fn oldest_unix_ms(&self) -> Option<u64> {
        let book = self.lock();
        match book.is_known {
            true => {
                let oldest = book.nodes.values().map(|waiting| waiting.oldest_unix_ms);
                oldest.min().filter(|&oldest| oldest < u64::MAX)
            }
            false => Some(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_in_the_book_if_hints_arrive_meanwhile() {
        let book = HintBook::default();
        let node = NodeId::FIRST;
        assert!(book.add(node, 70));
        let [(_, seen)] = book.nodes()[..] else { panic!() };
        assert!(!book.add(node, 50));
        book.none_for(node, seen);
        let [(_, seen)] = book.nodes()[..] else { panic!() };
        book.none_for(node, seen);
        assert_eq!(book.nodes(), []);
    }

    #[test]
    fn before_the_first_scan_hints_may_be_of_any_age() {
        let book = HintBook::default();
        assert_eq!(book.oldest_unix_ms(), Some(0));
        book.known();
        assert_eq!(book.oldest_unix_ms(), None);
        book.add(NodeId::FIRST, 70);
        book.add(NodeId::FIRST, 50);
        book.add(NodeId::FIRST.next(), 60);
        assert_eq!(book.oldest_unix_ms(), Some(50));
    }
}
