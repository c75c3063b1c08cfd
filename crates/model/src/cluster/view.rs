//! All entries of the coordination service, as someone saw them at one moment.

use std::collections::BTreeMap;

use super::record::{Announcement, ClusterRecord, NodeRecord, ReportRecord, RouterRecord, StoreRecord};
use crate::name::StoreName;
use crate::node::{Identity, NodeId};
use crate::routing::RoutingTable;

/// An entry with its revision: a conditional write names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revised<T> {
    /// The entry.
    pub record: T,
    /// Its revision when it was read.
    pub revision: u64,
}

/// A cluster as someone sees it. Not all see all: only controllers look at reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// What is true for ever; `None` before the cluster was made.
    pub cluster: Option<ClusterRecord>,
    /// The routing table; `None` before there are enough nodes.
    pub routing: Option<Revised<RoutingTable>>,
    /// All nodes that were ever given a number and not removed.
    pub nodes: BTreeMap<NodeId, Revised<NodeRecord>>,
    /// The nodes that are there.
    pub announcements: BTreeMap<Identity, Announcement>,
    /// The routers that are there.
    pub routers: BTreeMap<Identity, RouterRecord>,
    /// All stores.
    pub stores: BTreeMap<StoreName, Revised<StoreRecord>>,
    /// What nodes say of their replicas.
    pub reports: BTreeMap<NodeId, ReportRecord>,
}

impl ClusterView {
    /// Whether a node is there: one announced itself with the identity that has this number.
    pub fn is_live(&self, node: NodeId) -> bool {
        let record = self.nodes.get(&node);
        record.is_some_and(|node| self.announcements.contains_key(&node.record.identity))
    }

    /// How many replicas a store has: what its operator said, or as the cluster has, and never more
    /// than that.
    pub fn replicas(&self, store: &StoreRecord) -> usize {
        let cluster = self.cluster.as_ref().map_or(1, |cluster| cluster.replicas);
        store.definition.replicas.map_or(cluster, |own| own.min(cluster)) as usize
    }
}
