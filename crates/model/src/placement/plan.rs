//! A change of owners before it is made.

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::partition::PartitionId;

/// One replica of a partition that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The partition.
    pub partition: PartitionId,
    /// The node that gives it up once the plan is done; `None` if a replica is added.
    pub from: Option<NodeId>,
    /// The node that fetches it; `None` if a replica is removed.
    pub to: Option<NodeId>,
}

/// A change of a routing table. [`RoutingTable::with_plan`](crate::RoutingTable::with_plan) begins all of
/// it, with `owners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The next lists: for each partition its nodes, in the order of preference.
    pub owners: Vec<Vec<NodeId>>,
    /// The moves that it requires, in the order of partitions.
    pub moves: Vec<Move>,
    /// Whether the lists differ at all: without moves, their order may.
    pub changes: bool,
}

impl Plan {
    /// The plan that leads from `before` to `after`.
    pub fn between(before: &[Vec<NodeId>], after: Vec<Vec<NodeId>>) -> Self {
        let mut moves = Vec::new();
        for (partition, (before, after)) in (0..).map(PartitionId::new).zip(before.iter().zip(&after)) {
            moves.extend(moves_of(partition, before, after));
        }
        Self {
            changes: before != after,
            owners: after,
            moves,
        }
    }
}

/// The replicas of a partition that move when one list of its nodes becomes another.
pub(crate) fn moves_of(partition: PartitionId, before: &[NodeId], after: &[NodeId]) -> Vec<Move> {
    let mut gone = before.iter().filter(|node| !after.contains(node)).copied();
    let mut come = after.iter().filter(|node| !before.contains(node)).copied();
    let moves = std::iter::from_fn(|| match (gone.next(), come.next()) {
        (None, None) => None,
        (from, to) => Some(Move { partition, from, to }),
    });
    moves.collect()
}
