//! Plans for the routing table: they are made, run, paused and cancelled.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::cluster::{
    ClusterView, MOVES_PER_NODE, NodeMark, PlanCost, PlanMaker, PlanRecord, PlanState, Revised,
};
use fondaco_model::{Move, NodeId, PartitionId, Plan, RoutingTable, Shares, replan};

use super::OperatorError;
use super::node::{marks, members, unmarked};
use crate::change::{Change, RecordPath, Write};

/// How many plans that have ended are kept at least.
pub const PLANS_KEPT: usize = 32;

/// How many plans are kept at most that ended within `PLANS_KEPT_MS`: they tell where partitions came from.
const PLANS_KEPT_MAX: usize = 500;

/// See `PLANS_KEPT_MAX`; in milliseconds.
const PLANS_KEPT_MS: u64 = 25 * 3_600_000;

/// How many replaced proposals are kept: they moved nothing.
const REPLACED_KEPT: usize = 8;

/// The rate at which a node is expected to fetch if no limit is set, in bytes per second.
const EXPECTED_RATE: u64 = 64 << 20;

/// An operator's request for a plan.
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
    /// The operator's name, if that is known.
    pub user: Option<String>,
}

/// The known costs of moves.
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
    let table = &table.record;
    let plan = plan(view, table, request)?;
    let record = record_of(view, table, request, PlanMaker::Operator, &plan, costs, now_unix_ms);
    Ok((record.clone(), saved(view, record)))
}

/// The moves that the analyzer wants.
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
    // An operator's drain of an absent node continues when the node returns.
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
    if view.plan_under_way().is_some() || !record.fits(&table.record) {
        return None;
    }
    record.state = PlanState::Running;
    let marks: Vec<Write> = marks(view, &record).collect();
    let mut change = saved(view, record);
    change.writes.extend(marks);
    Some(change.while_same_routing(view))
}

/// The lists that a request leads to.
fn plan(view: &ClusterView, table: &RoutingTable, request: &PlanRequest) -> Result<Plan, OperatorError> {
    let cluster = view.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    let named = request.moves.iter().flat_map(|one| [one.from, one.to]).flatten();
    let named: BTreeSet<NodeId> = named.chain(request.remove.iter().copied()).collect();
    if let Some(&node) = named.iter().find(|&node| !view.nodes.contains_key(node)) {
        return Err(OperatorError::NodeNotFound { node });
    }
    let owners: BTreeSet<NodeId> = table.all_owners().iter().flatten().copied().collect();
    let receivers = request.moves.iter().filter_map(|one| one.to);
    let new = request.add.iter().copied().chain(receivers);
    let mut new = new.filter(|node| !owners.contains(node));
    if let Some(node) = new.find(|&node| view.nodes.contains_key(&node) && !view.is_live(node)) {
        return Err(OperatorError::NodeAbsent { node });
    }
    let named = owners.into_iter().chain(request.add.iter().copied());
    let named: BTreeSet<NodeId> = named.filter(|node| !request.remove.contains(node)).collect();
    let members = members(view, named)?;
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
    let lists = table.partitions().partitions().zip(&plan.owners);
    let changed = lists.filter(|(partition, next)| table.owners(*partition) != *next);
    let lists = changed.map(|(partition, next)| {
        let before = table.owners(partition).to_vec();
        ((partition, before), (partition, next.clone()))
    });
    let (before, next) = lists.unzip();
    PlanRecord {
        leaving: request.remove.clone(),
        user: request.user.clone(),
        reason: request.reason.clone(),
        moves_per_node: request.moves_per_node.unwrap_or(MOVES_PER_NODE).max(1),
        cost: cost(view, table, plan, costs),
        made_unix_ms: now_unix_ms,
        ..PlanRecord::new(next_number(view), by, before, next)
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
    let is_superseded = |other: &&Revised<PlanRecord>| {
        let other = &other.record;
        other.state == PlanState::Proposed && other.by == plan.by
    };
    let superseded = view.plans.values().filter(is_superseded).map(|other| {
        let record = PlanRecord {
            state: PlanState::Replaced,
            ended_unix_ms: Some(plan.made_unix_ms),
            ..other.record.clone()
        };
        Write::over(other, record)
    });
    let mut writes: Vec<Write> = superseded.collect();
    let forgotten = forgotten(view, writes.len(), plan.made_unix_ms)
        .into_iter()
        .map(deleted);
    writes.extend(forgotten);
    writes.push(Write::of(None, plan));
    Change::of(writes)
}

/// The plans to delete when a proposal replaces `newly_replaced` others: the oldest replaced ones, and those that ended long ago.
fn forgotten(view: &ClusterView, newly_replaced: usize, now_unix_ms: u64) -> Vec<&Revised<PlanRecord>> {
    let ended = view.plans.values().filter(|plan| plan.record.state.is_end());
    let (replaced, ended): (Vec<_>, Vec<_>) = ended.partition(|plan| plan.record.state == PlanState::Replaced);
    let unused = (replaced.len() + newly_replaced).saturating_sub(REPLACED_KEPT);
    let since = now_unix_ms.saturating_sub(PLANS_KEPT_MS);
    let is_new = |plan: &Revised<PlanRecord>| plan.record.ended_unix_ms.is_some_and(|at| at > since);
    let ended = ended.into_iter().filter(|plan| !misses_data(view, &plan.record));
    let count = ended.clone().count();
    let old = ended.enumerate().filter(|(at, plan)| {
        let kept = if is_new(plan) { PLANS_KEPT_MAX } else { PLANS_KEPT };
        at + kept < count
    });
    let old = old.map(|(_, plan)| plan);
    replaced.into_iter().take(unused).chain(old).collect()
}

fn deleted(plan: &Revised<PlanRecord>) -> Write {
    Write::delete(RecordPath::Plan(plan.record.number), plan.revision)
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
    check_no_plan(view)?;
    if !plan.record.fits(&table.record) {
        return Err(OperatorError::OutdatedPlan { number });
    }
    let mut change = changed(plan, |plan| plan.state = PlanState::Running);
    change.writes.extend(marks(view, &plan.record));
    Ok(change.while_same_routing(view))
}

/// Splits each partition in two. Both halves stay on the nodes that have them. Proposed plans are dropped: they name partitions by
/// numbers that mean others from then on.
///
/// # Errors
/// No table, partitions that move or a plan under way, or as many partitions as slots.
pub fn split_partitions(view: &ClusterView) -> Result<Change, OperatorError> {
    let table = table(view)?;
    check_no_moves(view)?;
    let partitions = table.record.partitions();
    let split = table.record.split();
    let split = split.ok_or(OperatorError::TooManyPartitions { partitions })?;
    let plans = view.plans.values();
    let proposed = plans.filter(|plan| plan.record.state == PlanState::Proposed);
    let writes = proposed.map(deleted).chain([Write::over(table, split)]);
    Ok(Change::of(writes))
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
        None => view.plan_under_way().ok_or(OperatorError::NoPlan)?,
    };
    if plan.record.state.is_end() {
        return Err(wrong_state(&plan.record));
    }
    let mut change = changed(plan, |plan| {
        plan.state = PlanState::Cancelled;
        plan.ended_unix_ms = Some(now_unix_ms);
    });
    if plan.record.state.is_under_way() {
        let leaving = plan.record.leaving.iter().copied();
        change.writes.extend(unmarked(view, leaving));
        change.writes.push(Write::over(table, table.record.cancelled()));
    }
    Ok(change)
}

fn changed(plan: &Revised<PlanRecord>, change: impl FnOnce(&mut PlanRecord)) -> Change {
    let mut record = plan.record.clone();
    change(&mut record);
    Change::of([Write::over(plan, record)])
}

/// The number of the next plan.
pub(super) fn next_number(view: &ClusterView) -> u64 {
    view.plans.keys().last().map_or(1, |last| last + 1)
}

/// Checks that no plan is under way.
pub(super) fn check_no_plan(view: &ClusterView) -> Result<(), OperatorError> {
    match view.plan_under_way() {
        Some(plan) => Err(OperatorError::PlanInProgress {
            number: plan.record.number,
        }),
        None => Ok(()),
    }
}

/// Checks that no plan is under way, and that no move of an earlier one has yet to end.
pub(super) fn check_no_moves(view: &ClusterView) -> Result<(), OperatorError> {
    check_no_plan(view)?;
    match view.routing.as_ref().is_some_and(|table| table.record.is_moving()) {
        true => Err(OperatorError::PlanInProgress {
            number: next_number(view) - 1,
        }),
        false => Ok(()),
    }
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
