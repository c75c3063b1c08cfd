//! Counters of a client, and its view of the nodes: for metrics and status output.

use std::sync::Arc;

use fondaco_model::NodeId;

use crate::link::Link;
use crate::quorum::QuorumCounts;
use crate::read::{Member, ReadCounts};

/// The counts of a client, and its view of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStats {
    /// Counts since the client was made.
    pub reads: ReadCounts,
    /// The same, for operations on versioned stores.
    pub quorums: QuorumCounts,
    /// The epoch of the routing table in use; `None` before there is a topology.
    pub topology_epoch: Option<u64>,
    /// After how long a second node is asked for a single key, in microseconds; `None` before enough samples.
    pub hedge_after_us: Option<u64>,
    /// All nodes of the topology, in the order of their numbers.
    pub nodes: Vec<NodeStats>,
}

/// A node, from one client's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStats {
    /// Its number.
    pub id: NodeId,
    /// Its RESP address: host and port.
    pub address: Arc<str>,
    /// Whether other nodes are preferred to this one.
    pub suspended: bool,
    /// The requests a second that it gets from all clients, as it last reported; 0 before it has.
    pub reported_rate: u32,
    /// The number of open connections to it.
    pub connections: usize,
    /// The number of sub-requests that are queued for it, or sent and not answered.
    pub in_flight: usize,
}

impl NodeStats {
    pub(crate) fn of(member: &Member, link: &Link) -> Self {
        Self {
            id: member.id,
            address: Arc::clone(&member.address),
            suspended: member.health.is_suspended(),
            reported_rate: member.health.reported_rate(),
            connections: link.connected(),
            in_flight: link.in_flight(),
        }
    }
}
