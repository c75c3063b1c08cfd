//! Counters of a client, and its view of the nodes: for metrics and for people.

use std::sync::Arc;

use fondaco_model::NodeId;

use crate::link::Link;
use crate::quorum::QuorumCounts;
use crate::read::{Member, ReadCounts};

/// What a client has done, and how it sees its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStats {
    /// Counts since the client was made.
    pub reads: ReadCounts,
    /// The same, of operations on versioned stores.
    pub quorums: QuorumCounts,
    /// The epoch of the routing table in use; `None` before there is a topology.
    pub topology_epoch: Option<u64>,
    /// After what time a second node is asked for a single key, in microseconds; `None` before that is learnt.
    pub hedge_after_us: Option<u64>,
    /// All nodes of the topology, in the order of their numbers.
    pub nodes: Vec<NodeStats>,
}

/// A node, as one client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStats {
    /// Its number.
    pub id: NodeId,
    /// Where it serves RESP: host and port.
    pub address: Arc<str>,
    /// Whether other nodes are preferred to this one.
    pub suspended: bool,
    /// How many connections to it are there.
    pub connections: usize,
    /// How many sub-requests are queued for it, or sent and not answered.
    pub in_flight: usize,
}

impl NodeStats {
    pub(crate) fn of(member: &Member, link: &Link) -> Self {
        Self {
            id: member.id,
            address: Arc::clone(&member.address),
            suspended: member.health.is_suspended(),
            connections: link.connected(),
            in_flight: link.in_flight(),
        }
    }
}
