//! Changes of the routing table: plans are begun and cancelled.

use std::collections::BTreeSet;

use super::OperatorError;
use crate::cluster::change::{Change, Record, RecordPath};
use crate::cluster::view::{ClusterView, Revised};
use crate::node::NodeId;
use crate::placement::{Member, Plan, replan};
use crate::routing::RoutingTable;

/// Which nodes should begin, and which should cease to hold partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutingRequest {
    /// Nodes to be given their share.
    pub add: BTreeSet<NodeId>,
    /// Nodes to lose all their partitions.
    pub remove: BTreeSet<NodeId>,
}

/// Begins a plan. The nodes then fetch their new partitions, and the leading controller finishes the plan.
///
/// # Errors
/// No table, another plan under way, nodes that do not exist or cannot be placed, nothing to move.
pub fn plan_routing(view: &ClusterView, request: &RoutingRequest) -> Result<(Plan, Change), OperatorError> {
    let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    let table = table(view)?;
    if table.record.is_in_plan() {
        return Err(OperatorError::PlanInProgress);
    }
    let mut members: BTreeSet<NodeId> = table.record.all_owners().iter().flatten().copied().collect();
    for &node in request.add.iter().filter(|&node| !members.contains(node)) {
        if view.nodes.contains_key(&node) && !view.is_live(node) {
            return Err(OperatorError::NodeAbsent { node });
        }
    }
    members.extend(&request.add);
    if let Some(&node) = request.remove.iter().find(|&node| !view.nodes.contains_key(node)) {
        return Err(OperatorError::NodeNotFound { node });
    }
    members.retain(|node| !request.remove.contains(node));
    let member = |node: NodeId| match view.nodes.get(&node) {
        Some(node) => Ok(node.record.member()),
        None => Err(OperatorError::NodeNotFound { node }),
    };
    let members: Vec<Member> = members.into_iter().map(member).collect::<Result<_, _>>()?;
    let plan = replan(cluster.placement, &table.record, cluster.replicas, &members)?;
    if !plan.changes {
        return Err(OperatorError::NothingToMove);
    }
    // A plan has one list for each partition, none of them empty, and names no node twice.
    let planned = table.record.with_plan(plan.owners.clone());
    let planned = planned.map_err(|_| OperatorError::NothingToMove)?;
    let change = Change::of(RecordPath::Routing, Some(table.revision), Record::Routing(planned));
    Ok((plan, change))
}

/// Cancels the plan under way: the current owners stay.
///
/// # Errors
/// No table, no plan under way, or its switch was already made.
pub fn cancel_plan(view: &ClusterView) -> Result<Change, OperatorError> {
    let table = table(view)?;
    if table.record.next().is_none() {
        return Err(OperatorError::NoPlan);
    }
    let cancelled = Record::Routing(table.record.cancelled());
    Ok(Change::of(RecordPath::Routing, Some(table.revision), cancelled))
}

fn table(view: &ClusterView) -> Result<&Revised<RoutingTable>, OperatorError> {
    let nodes_initial = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?.nodes_initial;
    let table = view.routing.as_ref();
    table.ok_or(OperatorError::NoRoutingTable { nodes_initial })
}
