//! Plans for the routing table: they are made, run, paused and cancelled; and nodes get and lose their marks.

use std::collections::{BTreeMap, BTreeSet};

use super::OperatorError;
use crate::cluster::change::{Change, Record, RecordPath, Write};
use crate::cluster::plan::{
    MOVES_PER_NODE, PLANS_KEPT, PLANS_KEPT_MAX, PLANS_KEPT_MS, PlanCost, PlanMaker, PlanRecord, PlanState,
    REPLACED_KEPT,
};
use crate::cluster::record::{NodeMark, NodeRecord};
use crate::cluster::view::{ClusterView, Revised};
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::placement::{Member, Move, Plan, Shares, replan};
use crate::routing::RoutingTable;

/// The rate at which a node is expected to fetch if no limit is set, in bytes per second.
const EXPECTED_RATE: u64 = 64 << 20;

/// What a plan is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// Nodes to be given their share.
    pub add: BTreeSet<NodeId>,
    /// Nodes to lose all their partitions, for good.
    pub remove: BTreeSet<NodeId>,
    /// Replicas to be moved, by hand.
    pub moves: Vec<Move>,
    /// Whether all nodes get their share by weight again, whatever was moved before.
    pub even: bool,
    /// How many moves a node takes part in at a time; [`MOVES_PER_NODE`] unless said.
    pub moves_per_node: Option<u32>,
    /// Why, for people.
    pub reason: String,
    /// Who asks for it, if that is known.
    pub user: Option<String>,
}

/// What is known of the cost of moves.
pub struct MoveCosts<'a> {
    /// The bytes of a partition on one node.
    pub bytes: &'a dyn Fn(PartitionId) -> u64,
    /// How many bytes a second a node may fetch, and how many of them for moves; 0 is no limit.
    pub rates: [u64; 2],
}

/// Makes a plan, and saves it as a proposal.
///
/// # Errors
/// No table, nodes that do not exist or cannot be placed, moves that are impossible, nothing to move.
pub fn propose_plan(
    view: &ClusterView,
    request: &PlanRequest,
    costs: &MoveCosts<'_>,
    now_unix_ms: u64,
) -> Result<(PlanRecord, Change), OperatorError> {
    let table = table(view)?;
    let plan = plan(view, &table.record, request)?;
    let record = record_of(
        view,
        &table.record,
        request,
        PlanMaker::Operator,
        &plan,
        costs,
        now_unix_ms,
    );
    Ok((record.clone(), saved(view, record)))
}

/// What the analyzer wants to be moved.
pub struct AnalyzerPlan<'a> {
    /// The partitions with their next owners.
    pub next: &'a BTreeMap<PartitionId, Vec<NodeId>>,
    /// The nodes that lose all their partitions for good.
    pub leaving: &'a BTreeSet<NodeId>,
    /// Why, for people.
    pub reason: String,
    /// Whether it is run at once.
    pub runs: bool,
}

/// The plan of the analyzer, as a change; `None` if it is proposed already, or cannot be run now.
pub fn analyzer_plan(
    view: &ClusterView,
    wanted: &AnalyzerPlan<'_>,
    costs: &MoveCosts<'_>,
    now_unix_ms: u64,
) -> Option<Change> {
    let table = view.routing.as_ref()?;
    let mut owners = table.record.all_owners().to_vec();
    for (partition, next) in wanted.next {
        owners.get_mut(partition.get() as usize)?.clone_from(next);
    }
    let plan = Plan::between(table.record.all_owners(), owners);
    let request = PlanRequest {
        remove: wanted.leaving.clone(),
        reason: wanted.reason.clone(),
        ..PlanRequest::default()
    };
    let mut record = record_of(
        view,
        &table.record,
        &request,
        PlanMaker::Analyzer,
        &plan,
        costs,
        now_unix_ms,
    );
    // An operator's drain of an absent node goes on when it returns.
    let is_replaced = |node: &NodeId| {
        let record = view.nodes.get(node);
        !view.is_live(*node) && record.is_some_and(|node| node.record.mark != Some(NodeMark::Leaving))
    };
    record.replaced = wanted.leaving.iter().copied().filter(is_replaced).collect();
    let is_proposed = |other: &Revised<PlanRecord>| {
        let other = &other.record;
        other.state == PlanState::Proposed && other.by == PlanMaker::Analyzer && other.next == record.next
    };
    if record.next.is_empty() || !wanted.runs && view.plans.values().any(is_proposed) {
        return None;
    }
    if !wanted.runs {
        return Some(saved(view, record));
    }
    if under_way(view).is_some() || !record.fits(&table.record) {
        return None;
    }
    record.state = PlanState::Running;
    let marks: Vec<Write> = marks(view, &record).collect();
    let mut change = saved(view, record);
    change.writes.extend(marks);
    change.unchanged.push((RecordPath::Routing, table.revision));
    Some(change)
}

/// The lists that a request leads to.
fn plan(view: &ClusterView, table: &RoutingTable, request: &PlanRequest) -> Result<Plan, OperatorError> {
    let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    let named = request.moves.iter().flat_map(|one| [one.from, one.to]).flatten();
    let named: BTreeSet<NodeId> = named.chain(request.remove.iter().copied()).collect();
    if let Some(&node) = named.iter().find(|&node| !view.nodes.contains_key(node)) {
        return Err(OperatorError::NodeNotFound { node });
    }
    let mut members: BTreeSet<NodeId> = table.all_owners().iter().flatten().copied().collect();
    let receivers = request.moves.iter().filter_map(|one| one.to);
    for node in request
        .add
        .iter()
        .copied()
        .chain(receivers)
        .filter(|node| !members.contains(node))
    {
        if view.nodes.contains_key(&node) && !view.is_live(node) {
            return Err(OperatorError::NodeAbsent { node });
        }
    }
    members.extend(&request.add);
    members.retain(|node| !request.remove.contains(node));
    let member = |node: NodeId| match view.nodes.get(&node) {
        Some(node) => Ok(node.record.member()),
        None => Err(OperatorError::NodeNotFound { node }),
    };
    let members: Vec<Member> = members.into_iter().map(member).collect::<Result<_, _>>()?;
    let shares = if request.even { Shares::ByWeight } else { Shares::Kept };
    let is_by_hand = request.add.is_empty() && request.remove.is_empty() && !request.even;
    let mut plan = match is_by_hand {
        true => Plan::between(table.all_owners(), table.all_owners().to_vec()),
        false => replan(cluster.placement, table, view.list_length(), &members, shares)?,
    };
    for one in &request.moves {
        let list = plan.owners.get_mut(one.partition.get() as usize);
        let list = list.ok_or(OperatorError::NoPartition {
            partition: one.partition,
            partitions: table.partitions(),
        })?;
        moved(list, one).ok_or(OperatorError::ImpossibleMove { one: *one })?;
    }
    let plan = Plan::between(table.all_owners(), plan.owners);
    if !plan.changes {
        return Err(OperatorError::NothingToMove);
    }
    Ok(plan)
}

/// Replaces a node of a list by another; `None` if the first is not in it, or the second is.
fn moved(list: &mut [NodeId], one: &Move) -> Option<()> {
    let (from, to) = (one.from?, one.to?);
    let place = list.iter().position(|&node| node == from)?;
    if list.contains(&to) {
        return None;
    }
    list[place] = to;
    Some(())
}

/// A proposal of these lists.
fn record_of(
    view: &ClusterView,
    table: &RoutingTable,
    request: &PlanRequest,
    by: PlanMaker,
    plan: &Plan,
    costs: &MoveCosts<'_>,
    now_unix_ms: u64,
) -> PlanRecord {
    let lists: Vec<_> = table.partitions().partitions().zip(&plan.owners).collect();
    let changed = lists
        .into_iter()
        .filter(|(partition, next)| table.owners(*partition) != *next);
    PlanRecord {
        number: view.plans.keys().last().map_or(1, |last| last + 1),
        state: PlanState::Proposed,
        before: changed
            .clone()
            .map(|(partition, _)| (partition, table.owners(partition).to_vec()))
            .collect(),
        next: changed.map(|(partition, next)| (partition, next.clone())).collect(),
        given_up: BTreeMap::new(),
        stuck: BTreeMap::new(),
        leaving: request.remove.clone(),
        replaced: BTreeSet::new(),
        count: None,
        by,
        user: request.user.clone(),
        reason: request.reason.clone(),
        moves_per_node: request.moves_per_node.unwrap_or(MOVES_PER_NODE).max(1),
        cost: cost(view, table, plan, costs),
        made_unix_ms: now_unix_ms,
        ended_unix_ms: None,
    }
}

fn cost(view: &ClusterView, table: &RoutingTable, plan: &Plan, costs: &MoveCosts<'_>) -> PlanCost {
    let zone = |node: &NodeId| view.nodes.get(node).map(|node| node.record.zone.as_str());
    let mut fetched = BTreeMap::<NodeId, u64>::new();
    let mut cost = PlanCost::default();
    for one in &plan.moves {
        let Some(to) = one.to else { continue };
        let bytes = (costs.bytes)(one.partition);
        cost.bytes += bytes;
        *fetched.entry(to).or_default() += bytes;
        let owners = table.owners(one.partition);
        if !owners.iter().any(|owner| zone(owner) == zone(&to)) {
            cost.bytes_between_zones += bytes;
        }
    }
    let limit = costs.rates.into_iter().filter(|&rate| rate > 0).min();
    let rate = limit.unwrap_or(EXPECTED_RATE);
    cost.seconds = fetched.into_values().max().unwrap_or(0).div_ceil(rate);
    cost
}

/// Whether partitions have moved without data that stores still want: the plan tells their former owners to keep it.
fn misses_data(view: &ClusterView, plan: &PlanRecord) -> bool {
    plan.stuck.iter().any(|(name, stuck)| {
        let store = view.stores.get(name);
        store.is_some_and(|store| stuck.is_missed(&store.record))
    })
}

/// Saves a plan, which replaces former proposals of the same maker; plans that ended long ago are deleted.
pub(super) fn saved(view: &ClusterView, plan: PlanRecord) -> Change {
    let others = || view.plans.values();
    let proposed = others().filter(|other| other.record.state == PlanState::Proposed && other.record.by == plan.by);
    let replaced = proposed.flat_map(|other| {
        changed(other, |other| {
            other.state = PlanState::Replaced;
            other.ended_unix_ms = Some(plan.made_unix_ms);
        })
        .writes
    });
    let replaced: Vec<Write> = replaced.collect();
    let unused: Vec<_> = others()
        .filter(|other| other.record.state == PlanState::Replaced)
        .collect();
    let unused = &unused[..(unused.len() + replaced.len())
        .saturating_sub(REPLACED_KEPT)
        .min(unused.len())];
    let ended: Vec<_> = others()
        .filter(|other| other.record.state.is_end() && other.record.state != PlanState::Replaced)
        .filter(|other| !misses_data(view, &other.record))
        .collect();
    let since = plan.made_unix_ms.saturating_sub(PLANS_KEPT_MS);
    let is_new = |other: &Revised<PlanRecord>| other.record.ended_unix_ms.is_some_and(|at| at > since);
    let count = ended.len();
    let ended = ended.into_iter().enumerate().filter(|(at, other)| {
        let kept = if is_new(other) { PLANS_KEPT_MAX } else { PLANS_KEPT };
        at + kept < count
    });
    let ended = ended.map(|(_, other)| other);
    let deleted = unused.iter().copied().chain(ended).map(|other| Write {
        path: RecordPath::Plan(other.record.number),
        expected: Some(other.revision),
        record: None,
    });
    let mut writes = replaced;
    writes.extend(deleted);
    writes.push(Write {
        path: RecordPath::Plan(plan.number),
        expected: None,
        record: Some(Record::Plan(Box::new(plan))),
    });
    let unchanged = Vec::new();
    Change { writes, unchanged }
}

/// Runs a plan: the leading controller then carries it out.
///
/// # Errors
/// No such plan, it is no proposal, another one is under way, or partitions have moved since it was made.
pub fn run_plan(view: &ClusterView, number: u64) -> Result<Change, OperatorError> {
    let table = table(view)?;
    let plan = plan_numbered(view, number)?;
    if plan.record.state != PlanState::Proposed {
        return Err(wrong_state(&plan.record));
    }
    if let Some(other) = under_way(view) {
        let number = other.record.number;
        return Err(OperatorError::PlanInProgress { number });
    }
    if !plan.record.fits(&table.record) {
        return Err(OperatorError::OutdatedPlan { number });
    }
    let mut change = changed(plan, |plan| plan.state = PlanState::Running);
    change.writes.extend(marks(view, &plan.record));
    change.unchanged.push((RecordPath::Routing, table.revision));
    Ok(change)
}

/// Splits each partition in two. Both halves stay on the nodes that have them. Proposed plans are dropped: they name partitions by
/// numbers that mean others from then on.
///
/// # Errors
/// No table, partitions that move or a plan under way, or as many partitions as slots.
pub fn split_partitions(view: &ClusterView) -> Result<Change, OperatorError> {
    let table = table(view)?;
    let last = view.plans.keys().last().copied().unwrap_or(0);
    let number = under_way(view).map(|plan| plan.record.number);
    if let Some(number) = number.or(table.record.is_moving().then_some(last)) {
        return Err(OperatorError::PlanInProgress { number });
    }
    let partitions = table.record.partitions();
    let split = table
        .record
        .split()
        .ok_or(OperatorError::TooManyPartitions { partitions })?;
    let proposed = view
        .plans
        .values()
        .filter(|plan| plan.record.state == PlanState::Proposed);
    let deleted = proposed.map(|plan| Write {
        path: RecordPath::Plan(plan.record.number),
        expected: Some(plan.revision),
        record: None,
    });
    let mut writes: Vec<Write> = deleted.collect();
    writes.push(Write {
        path: RecordPath::Routing,
        expected: Some(table.revision),
        record: Some(Record::Routing(split)),
    });
    let unchanged = Vec::new();
    Ok(Change { writes, unchanged })
}

/// Pauses a plan that is under way, or resumes it.
///
/// # Errors
/// No such plan, or it is not under way.
pub fn pause_plan(view: &ClusterView, number: u64, is_paused: bool) -> Result<Change, OperatorError> {
    let plan = plan_numbered(view, number)?;
    if !plan.record.state.is_under_way() {
        return Err(wrong_state(&plan.record));
    }
    let state = if is_paused {
        PlanState::Paused
    } else {
        PlanState::Running
    };
    Ok(changed(plan, |plan| plan.state = state))
}

/// Cancels a plan, or the one under way: moves that have begun end where they began, those that have switched are
/// finished, and nodes that were to leave stay.
///
/// # Errors
/// No such plan, no plan under way, or it has ended.
pub fn cancel_plan(view: &ClusterView, number: Option<u64>, now_unix_ms: u64) -> Result<Change, OperatorError> {
    let table = table(view)?;
    let plan = match number {
        Some(number) => plan_numbered(view, number)?,
        None => under_way(view).ok_or(OperatorError::NoPlan)?,
    };
    if plan.record.state.is_end() {
        return Err(wrong_state(&plan.record));
    }
    let mut change = changed(plan, |plan| {
        plan.state = PlanState::Cancelled;
        plan.ended_unix_ms = Some(now_unix_ms);
    });
    if plan.record.state.is_under_way() {
        change
            .writes
            .extend(unmarked(view, plan.record.leaving.iter().copied()));
        change.writes.push(Write {
            path: RecordPath::Routing,
            expected: Some(table.revision),
            record: Some(Record::Routing(table.record.cancelled())),
        });
    }
    Ok(change)
}

/// Marks a node, or takes its mark away. With the mark of a node that leaves, the plan ends that takes its partitions: it keeps
/// those that have not moved.
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
    let draining = under_way(view).filter(|plan| mark.is_none() && plan.record.leaving.contains(&node));
    let mut change = match draining {
        Some(plan) => cancel_plan(view, Some(plan.record.number), now_unix_ms)?,
        None => Change {
            writes: Vec::new(),
            unchanged: Vec::new(),
        },
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
    let planned = under_way(view).into_iter().flat_map(|plan| plan.record.next.values());
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
    let change = Change::of(RecordPath::Node(node), Some(known.revision), Record::Node(record));
    Ok(match &view.routing {
        Some(table) => change.while_unchanged(RecordPath::Routing, table.revision),
        None => change,
    })
}

/// The marks that change when a plan begins: of nodes that leave, and of nodes that left before and get partitions, so that they stay.
fn marks(view: &ClusterView, plan: &PlanRecord) -> impl Iterator<Item = Write> {
    let leaving = plan.leaving.iter().filter_map(|node| view.nodes.get(node));
    let leaving = leaving.map(|node| marked(node, Some(NodeMark::Leaving)));
    let kept = plan.receivers();
    let kept: Vec<NodeId> = kept.difference(&plan.leaving).copied().collect();
    leaving.chain(unmarked(view, kept))
}

/// Takes the mark away from nodes that leave.
pub(in crate::cluster) fn unmarked(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = NodeId>,
) -> impl Iterator<Item = Write> {
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
    Write {
        path: RecordPath::Node(record.id),
        expected: Some(node.revision),
        record: Some(Record::Node(record)),
    }
}

fn changed(plan: &Revised<PlanRecord>, change: impl FnOnce(&mut PlanRecord)) -> Change {
    let mut record = plan.record.clone();
    change(&mut record);
    let path = RecordPath::Plan(record.number);
    Change::of(path, Some(plan.revision), Record::Plan(Box::new(record)))
}

pub(super) fn under_way(view: &ClusterView) -> Option<&Revised<PlanRecord>> {
    view.plans.values().find(|plan| plan.record.state.is_under_way())
}

fn plan_numbered(view: &ClusterView, number: u64) -> Result<&Revised<PlanRecord>, OperatorError> {
    view.plans.get(&number).ok_or(OperatorError::PlanNotFound { number })
}

fn wrong_state(plan: &PlanRecord) -> OperatorError {
    let state = match plan.state {
        PlanState::Proposed => "proposed",
        PlanState::Running => "running",
        PlanState::Paused => "paused",
        PlanState::Done => "done",
        PlanState::Cancelled => "cancelled",
        PlanState::Replaced => "replaced",
    };
    OperatorError::PlanState {
        number: plan.number,
        state,
    }
}

fn table(view: &ClusterView) -> Result<&Revised<RoutingTable>, OperatorError> {
    let nodes_initial = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?.nodes_initial;
    let table = view.routing.as_ref();
    table.ok_or(OperatorError::NoRoutingTable { nodes_initial })
}
