//! The context returned to the caller of a write, which determines what its next write replaces.
//!
//! Siblings may exist that the caller never saw. A clock only says up to which write each replica was seen. A clock
//! that covers the new write may thus cover unseen siblings too, and a write with it would replace values that were
//! never read. In that case the caller gets its old context back: its next write becomes a sibling of this one, until a
//! client reads both.

use fondaco_model::NodeId;
use fondaco_model::versioned::{Change, Record, Update, VectorClock};

/// The context returned to the caller of an update, given the context that the update replaced, the resulting record,
/// and the node that took it first.
pub(super) fn known(update: &Update, before: &VectorClock, record: &Record, writer: NodeId) -> VectorClock {
    let value = match &update.change {
        Change::Put(value) | Change::PutFields { value, .. } => Some(value),
        Change::Delete => None,
        // The parts of a counter are not values that can be read.
        Change::Add(_) | Change::SetCounter { .. } => return record.context().clone(),
    };
    let siblings = record.siblings();
    if siblings.len() == 1 {
        return record.context().clone();
    }
    let by_writer = siblings.iter().filter(|sibling| sibling.dot.replica.node == writer);
    let newest = by_writer
        .filter(|sibling| !before.covers(sibling.dot))
        .max_by_key(|sibling| sibling.dot.counter);
    let Some(own) = newest.filter(|sibling| sibling.value.as_ref() == value) else {
        return before.clone();
    };
    let mut known = before.clone();
    known.increment(own.dot, own.written_unix_ms);
    let covers_unseen = siblings
        .iter()
        .any(|sibling| sibling.dot != own.dot && known.covers(sibling.dot));
    match covers_unseen {
        true => before.clone(),
        false => known,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fondaco_model::versioned::{DotSource, Over, ReplicaId};

    use super::*;

    /// A replica with a record.
    struct Replica {
        node: NodeId,
        dots: DotSource,
        record: Record,
    }

    impl Replica {
        fn new(number: u32) -> Self {
            let node = NodeId::new(number).unwrap();
            Self {
                node,
                dots: DotSource::new(ReplicaId { node, incarnation: 1 }, 0),
                record: Record::default(),
            }
        }

        /// Takes a write by a client with this context. Returns the client's new context.
        fn put(&mut self, value: &'static str, before: &VectorClock) -> VectorClock {
            let update = Update::put(Bytes::from_static(value.as_bytes()), 1000, None);
            let over = Over::Context(before);
            self.record = Record::write(Some(&self.record), &mut self.dots, over, update.clone()).unwrap();
            known(&update, before, &self.record, self.node)
        }

        fn values(&self) -> Vec<&[u8]> {
            let mut values: Vec<&[u8]> = self
                .record
                .siblings()
                .iter()
                .filter_map(|s| s.value.as_deref())
                .collect();
            values.sort_unstable();
            values
        }
    }

    #[test]
    fn repeated_writes_replace_the_writers_own() {
        let mut replica = Replica::new(1);
        let mut known = VectorClock::new();
        for value in ["a", "b", "c"] {
            known = replica.put(value, &known);
            assert_eq!(replica.values(), [value.as_bytes()]);
        }
    }

    #[test]
    fn repeated_writes_keep_concurrent_writes_of_others() {
        let mut replica = Replica::new(1);
        let first = replica.put("a", &VectorClock::new());
        replica.put("other", &first);
        let mine = replica.put("b", &first);
        assert_eq!(replica.values(), [b"b" as &[u8], b"other"]);
        replica.put("c", &mine);
        assert!(
            replica.values().contains(&(b"other" as &[u8])),
            "{:?}",
            replica.values()
        );
    }

    #[test]
    fn writes_at_different_replicas_are_distinguished() {
        let (mut here, mut there) = (Replica::new(1), Replica::new(2));
        there.put("other", &VectorClock::new());
        here.record = there.record.clone();
        let mine = here.put("a", &VectorClock::new());
        assert_eq!(here.values(), [b"a" as &[u8], b"other"]);
        here.put("b", &mine);
        assert_eq!(here.values(), [b"b" as &[u8], b"other"]);
    }
}
