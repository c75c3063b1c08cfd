//! Controllers that answer the same to all queries of a kind.

use super::{FanOutController, Query};

/// This many groups for any query.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub usize);

/// One group: for requests whose values are not merged, and whose caller waits (Moolle, IV.C.1). The fewer nodes, the
/// shorter the tail.
#[derive(Debug, Clone, Copy, Default)]
pub struct NonUnion;

/// One group: for requests whose values are merged while the caller waits (Moolle, IV.C.2). The tail of the latency
/// outweighs the merging.
#[derive(Debug, Clone, Copy, Default)]
pub struct SynchronousUnion;

/// For queries that end as soon as one node has found something (Moolle, IV.C.4). The likelier it is that they end
/// early, the more groups are asked, since each node then has less to search. One group if they never do, all if they
/// always do.
#[derive(Debug, Clone, Copy)]
pub struct EarlyTerminable {
    /// The probability that a query ends early, 0 to 1.
    pub probability: f64,
}

impl FanOutController for Fixed {
    fn fan_out(&self, _query: &Query) -> usize {
        self.0
    }
}

impl FanOutController for NonUnion {
    fn fan_out(&self, _query: &Query) -> usize {
        1
    }
}

impl FanOutController for SynchronousUnion {
    fn fan_out(&self, _query: &Query) -> usize {
        1
    }
}

impl FanOutController for EarlyTerminable {
    fn fan_out(&self, query: &Query) -> usize {
        let others = (query.groups - 1) as f64;
        1 + (self.probability.clamp(0.0, 1.0) * others).round() as usize
    }
}
