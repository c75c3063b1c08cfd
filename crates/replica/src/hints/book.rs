//! The nodes for which hints wait: what is known of the table of hints without looking into it.
//!
//! A node is in the book before or as soon as there is a hint for it in the table, and leaves it when a thread
//! looked through the table and found none. The table survives the process, the book does not: it is written
//! anew from the table at the start, and until then hints may be as old as can be.

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
    /// Whether the table has been looked through since the start.
    is_known: bool,
}

/// What waits for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    /// The time of the oldest record, in milliseconds since 1970, or an earlier one.
    oldest_unix_ms: u64,
    /// How often something was added.
    added: u64,
}

impl HintBook {
    /// There is a hint for a node, with a record of this time; `u64::MAX` if it is damaged, and never delivered. Whether it
    /// is the only one.
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

    /// The whole table has been looked through, and all that is in it was added.
    pub(crate) fn known(&self) {
        self.lock().is_known = true;
    }

    /// The nodes for which hints wait, each with how often something was added.
    pub(crate) fn nodes(&self) -> Vec<(NodeId, u64)> {
        let book = self.lock();
        book.nodes
            .iter()
            .map(|(&node, waiting)| (node, waiting.added))
            .collect()
    }

    /// None were found for a node, in a look that began when so many had been added.
    pub(crate) fn none_for(&self, node: NodeId, added: u64) {
        let mut book = self.lock();
        if book.nodes.get(&node).is_some_and(|waiting| waiting.added == added) {
            book.nodes.remove(&node);
        }
    }

    /// The time of the oldest record that waits for any node, or an earlier one, in milliseconds since 1970;
    /// `None` if nothing waits.
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
    fn a_node_stays_in_the_book_if_something_was_added_while_it_was_looked_for() {
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
    fn before_the_table_was_looked_through_hints_may_be_as_old_as_can_be() {
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
