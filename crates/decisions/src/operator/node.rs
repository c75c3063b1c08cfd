//! Marks of nodes: nodes that leave, rest or are forgotten, by an operator's request or with a plan.

use fondaco_model::cluster::{ClusterView, NodeMark, NodeRecord, PlanRecord, Revised};
use fondaco_model::{Member, NodeId};

use super::OperatorError;
use super::plan::cancel_plan;
use crate::change::{Change, RecordPath, Write};

/// Marks a node, or takes its mark away. If the node was to leave, this also cancels the plan that takes its partitions:
/// the node keeps those that have not moved.
///
/// # Errors
/// No such node.
pub fn mark_node(
    view: &ClusterView,
    node: NodeId,
    mark: Option<NodeMark>,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let known = view.nodes.get(&node).ok_or(OperatorError::NodeNotFound { node })?;
    let draining = view.plan_under_way();
    let draining = draining.filter(|plan| mark.is_none() && plan.record.leaving.contains(&node));
    let mut change = match draining {
        Some(plan) => cancel_plan(view, Some(plan.record.number), now_unix_ms)?,
        None => Change::default(),
    };
    let path = RecordPath::Node(node);
    if change.writes.iter().all(|write| write.path != path) {
        change.writes.push(marked(known, mark));
    }
    Ok(change)
}

/// Forgets a node that is gone for good: it is listed no more. Its record stays, so that its number is never given to another node.
///
/// # Errors
/// No such node; or it is live, or has partitions.
pub fn forget_node(view: &ClusterView, node: NodeId) -> Result<Change, OperatorError> {
    let known = view.nodes.get(&node).ok_or(OperatorError::NodeNotFound { node })?;
    let table = view.routing.as_ref().map(|table| &table.record);
    let lists = table.into_iter().flat_map(|table| {
        let owners = table.all_owners().iter().map(Vec::as_slice);
        owners.chain(table.changes().map(|(_, joint)| joint))
    });
    let planned = view
        .plan_under_way()
        .into_iter()
        .flat_map(|plan| plan.record.next.values());
    let has_any = lists.chain(planned.map(Vec::as_slice)).any(|list| list.contains(&node));
    let in_use = match view.is_live(node) {
        true => Some("is live; stop it first"),
        false => has_any.then_some("has partitions, or is to get some; drain it first"),
    };
    if let Some(why) = in_use {
        return Err(OperatorError::NodeInUse { node, why });
    }
    let record = NodeRecord {
        mark: Some(NodeMark::Leaving),
        forgotten: true,
        ..known.record.clone()
    };
    Ok(Change::of([Write::over(known, record)]).while_same_routing(view))
}

/// The marks that change when a plan begins: of nodes that leave, and of nodes that left before and get partitions, so that they stay.
pub(super) fn marks(view: &ClusterView, plan: &PlanRecord) -> impl Iterator<Item = Write> {
    let leaving = plan.leaving.iter().filter_map(|node| view.nodes.get(node));
    let leaving = leaving.map(|node| marked(node, Some(NodeMark::Leaving)));
    let kept = plan.receivers();
    let kept: Vec<NodeId> = kept.difference(&plan.leaving).copied().collect();
    leaving.chain(unmarked(view, kept))
}

/// Takes the mark away from nodes that leave.
pub(super) fn unmarked(view: &ClusterView, nodes: impl IntoIterator<Item = NodeId>) -> impl Iterator<Item = Write> {
    let nodes = nodes.into_iter().filter_map(|node| view.nodes.get(&node));
    let leaving = nodes.filter(|node| node.record.mark == Some(NodeMark::Leaving));
    leaving.map(|node| marked(node, None))
}

fn marked(node: &Revised<NodeRecord>, mark: Option<NodeMark>) -> Write {
    let record = NodeRecord {
        mark,
        forgotten: false,
        ..node.record.clone()
    };
    Write::over(node, record)
}

/// Nodes as members of placements.
///
/// # Errors
/// A node has no record.
pub(super) fn members(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Result<Vec<Member>, OperatorError> {
    let member = |node: NodeId| {
        let known = view.nodes.get(&node).ok_or(OperatorError::NodeNotFound { node })?;
        Ok(known.record.member())
    };
    nodes.into_iter().map(member).collect()
}
