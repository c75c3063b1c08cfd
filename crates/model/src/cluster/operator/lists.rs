//! The length of the routing table's lists: how many replicas a store can have, and longer lists for one that needs them.
//!
//! A store uses the first nodes of each list, as many as it has replicas. So nodes are added at the end of lists without a move: no
//! store uses them yet.

use std::collections::BTreeSet;

use super::OperatorError;
use super::routing::under_way;
use crate::cluster::record::{NodeMark, StoreRecord};
use crate::cluster::view::ClusterView;
use crate::definition::StoreKind;
use crate::node::NodeId;
use crate::placement::{Member, Shares, replan};
use crate::routing::RoutingTable;

/// The lists that there are, or will be.
pub(super) struct Lists {
    /// How many replicas a store can have.
    pub(super) replicas_max: u32,
    /// The way to a higher number, as text for an error.
    pub(super) remedy: &'static str,
}

impl Lists {
    /// The lists of a cluster.
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
                replicas_max: shortest(table) as u32,
                remedy: "its placement has one on each node, or in each group: start others, and give them their share: \
                         fondaco rebalance run --add ID",
            });
        }
        let nodes = table.map_or(nodes_initial, |table| members(view, table).len() as u32);
        Ok(Self {
            // A small cluster may get the nodes for its own number later.
            replicas_max: nodes.max(cluster.replicas),
            remedy: "as many as there are nodes with partitions: start others, and give them their share: \
                     fondaco rebalance run --add ID",
        })
    }
}

/// The routing table with lists that are long enough for a store with so many replicas; `None` if they are.
///
/// # Errors
/// Partitions are moving, the nodes cannot be placed, or versioned stores would get owners without their data.
pub(super) fn lengthened(view: &ClusterView, replicas: u32) -> Result<Option<RoutingTable>, OperatorError> {
    let (Some(cluster), Some(table)) = (&view.cluster, view.routing.as_ref().map(|table| &table.record)) else {
        return Ok(None);
    };
    let members = members(view, table);
    let length = (replicas as usize).min(members.len());
    if cluster.placement.is_whole() || length <= shortest(table) {
        return Ok(None);
    }
    let last = view.plans.keys().last().copied().unwrap_or(0);
    let number = under_way(view).map(|plan| plan.record.number);
    if let Some(number) = number.or(table.is_moving().then_some(last)) {
        return Err(OperatorError::PlanInProgress { number });
    }
    let dropped = view.dropped.values().map(|dropped| &dropped.record.record);
    let mut stores = view.stores.values().map(|store| &store.record).chain(dropped);
    let would_grow =
        |store: &&StoreRecord| store.definition.kind == StoreKind::Versioned && view.replicas(store) > shortest(table);
    if let Some(store) = stores.find(would_grow) {
        let store = store.definition.name.clone();
        return Err(OperatorError::ShortLists { store });
    }
    let member = |node: NodeId| match view.nodes.get(&node) {
        Some(node) => Ok(node.record.member()),
        None => Err(OperatorError::NodeNotFound { node }),
    };
    let members: Vec<Member> = members.into_iter().map(member).collect::<Result<_, _>>()?;
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
fn members(view: &ClusterView, table: &RoutingTable) -> BTreeSet<NodeId> {
    let stays = |node: &NodeId| {
        let node = view.nodes.get(node);
        node.is_none_or(|node| node.record.mark != Some(NodeMark::Leaving))
    };
    table.all_owners().iter().flatten().copied().filter(stays).collect()
}

fn shortest(table: &RoutingTable) -> usize {
    table.all_owners().iter().map(Vec::len).min().unwrap_or(0)
}
