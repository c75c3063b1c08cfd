//! The authors of writes: replicas, and the dots that permanently identify their writes.

use std::fmt;

use crate::node::NodeId;

/// The author of writes: a node, and the incarnation of its data. A node that lost its disk, or may have lost its last
/// writes, gets another incarnation with new counters, so that no dot is given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId {
    /// The node.
    pub node: NodeId,
    /// Its incarnation. Numbers are random: they do not show which of two was earlier.
    pub incarnation: u32,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.incarnation)
    }
}

/// One write of one replica to one key. No two writes to a key ever have the same dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dot {
    /// The author.
    pub replica: ReplicaId,
    /// The number of the write, from 1. It grows with every write of the replica to a key, in steps of any size.
    pub counter: u64,
}

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.replica, self.counter)
    }
}

/// The highest counter that a dot can have: 2⁶².
pub const COUNTER_MAX: u64 = 1 << 62;

/// Gives out the dots of one replica.
///
/// It counts over all keys, and at least as fast as the clock: a record may be gone from this replica, evicted, moved
/// away or collected, while others still remember it. If counting began again with the record, they would take its next
/// write for one that they have seen. So a source that continues another one, under the same incarnation, begins with
/// its [`last`](Self::last).
#[derive(Debug, Clone)]
pub struct DotSource {
    replica: ReplicaId,
    last: u64,
}

impl DotSource {
    /// The next dots of a replica, after the given one.
    pub fn new(replica: ReplicaId, last: u64) -> Self {
        Self { replica, last }
    }

    /// The replica.
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// The highest counter given out, except for keys for which a higher one had been seen.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// A dot for a key whose known counters of this replica go up to `seen`; `None` when they are used up.
    ///
    /// `seen` does not raise [`last`](Self::last): a context that a client forged affects only its own key.
    pub(super) fn next(&mut self, seen: u64, now_unix_ms: u64) -> Option<Dot> {
        let next = self.last.max(now_unix_ms.min(COUNTER_MAX).saturating_sub(1)) + 1;
        let counter = next.max(seen.saturating_add(1));
        if counter > COUNTER_MAX {
            return None;
        }
        self.last = next;
        Some(Dot {
            replica: self.replica,
            counter,
        })
    }
}
