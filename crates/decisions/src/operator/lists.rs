//! The length of the routing table's lists: how many replicas a store can have, and longer lists for one that needs them.
//!
//! A store uses the first nodes of each list, as many as it has replicas. So nodes are added at the end of lists without a move: no
//! store uses them yet.

use std::collections::BTreeSet;

use fondaco_model::cluster::{ClusterView, NodeMark, StoreRecord};
use fondaco_model::{NodeId, RoutingTable, Shares, StoreKind, replan};

use super::OperatorError;
use super::node::members;
use super::plan::check_no_moves;

/// How to raise the number of replicas that a store can have.
const REMEDY: &str = "start others, and give them their share: fondaco rebalance run --add ID";

/// The highest number of replicas that a store can have.
pub(super) struct ReplicasMax {
    pub(super) number: u32,
    /// Where the number comes from, and how to raise it, as text for an error.
    pub(super) reason: String,
}

impl ReplicasMax {
    /// The bound in a cluster.
    ///
    /// # Errors
    /// No cluster; or the nodes determine the number of replicas, and there are none yet.
    pub(super) fn of(view: &ClusterView) -> Result<Self, OperatorError> {
        let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
        let nodes_initial = cluster.nodes_initial;
        let table = view.routing.as_ref().map(|table| &table.record);
        if cluster.placement.is_whole() {
            let table = table.ok_or(OperatorError::NoRoutingTable { nodes_initial })?;
            return Ok(Self {
                number: shortest(table) as u32,
                reason: format!("its placement has one on each node, or in each group: {REMEDY}"),
            });
        }
        let nodes = table.map_or(nodes_initial, |table| staying(view, table).len() as u32);
        // A small cluster may get the nodes for its own number later.
        let (number, reason) = match nodes >= cluster.replicas {
            true => (nodes, "as many as there are nodes with partitions".to_owned()),
            false => (
                cluster.replicas,
                format!("the cluster's own number, although only {nodes} nodes have partitions"),
            ),
        };
        let reason = format!("{reason}: {REMEDY}");
        Ok(Self { number, reason })
    }
}

/// The routing table with lists that are long enough for a store with this number of replicas; `None` if they are already.
///
/// # Errors
/// Partitions are moving, the nodes cannot be placed, or versioned stores would get owners without their data.
pub(super) fn lengthened(view: &ClusterView, replicas: u32) -> Result<Option<RoutingTable>, OperatorError> {
    let (Some(cluster), Some(table)) = (&view.cluster, view.routing.as_ref().map(|table| &table.record)) else {
        return Ok(None);
    };
    let nodes = staying(view, table);
    let length = (replicas as usize).min(nodes.len());
    if cluster.placement.is_whole() || length <= shortest(table) {
        return Ok(None);
    }
    check_no_moves(view)?;
    let dropped = view.dropped.values().map(|dropped| &dropped.record.record);
    let mut stores = view.stores.values().map(|store| &store.record).chain(dropped);
    let would_grow =
        |store: &&StoreRecord| store.definition.kind == StoreKind::Versioned && view.replicas(store) > shortest(table);
    if let Some(store) = stores.find(would_grow) {
        let store = store.definition.name.clone();
        return Err(OperatorError::ShortLists { store });
    }
    let members = members(view, nodes)?;
    let plan = replan(cluster.placement, table, length as u32, &members, Shares::Kept)?;
    let longer = table.all_owners().iter().zip(plan.owners).map(|(owners, next)| {
        let more = next.into_iter().filter(|node| !owners.contains(node));
        let all = owners.iter().copied().chain(more);
        all.take(length.max(owners.len())).collect()
    });
    // Lists of distinct nodes, one for each partition, are a routing table.
    let next = table.with_plan(longer.collect()).ok();
    Ok(next.map(|next| next.finished()))
}

/// The nodes with partitions, but those that leave.
fn staying(view: &ClusterView, table: &RoutingTable) -> BTreeSet<NodeId> {
    let stays = |node: &NodeId| {
        let node = view.nodes.get(node);
        node.is_none_or(|node| node.record.mark != Some(NodeMark::Leaving))
    };
    table.all_owners().iter().flatten().copied().filter(stays).collect()
}

fn shortest(table: &RoutingTable) -> usize {
    table.all_owners().iter().map(Vec::len).min().unwrap_or(0)
}
