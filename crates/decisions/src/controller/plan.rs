//! The leading controller carries out moves of partitions: it begins those of the plan under way, as many at a time as
//! the plan allows; it switches each once its next owners have the data, or cannot get the rest of it; and finishes it once no
//! former owner uses an earlier table. Where a plan changes the number of replicas of a store, all its moves take each step together.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::cluster::{PlanCount, PlanRecord, PlanState, Revised};
use fondaco_model::{NodeId, PartitionId, PartitionSet, RoutingTable, Stage, Steps};

use super::moves::{Moves, absent};
use super::{Input, Patience};
use crate::change::{Change, RecordPath, Write};
use crate::layout::Layouts;
use crate::operator::cancel_plan;

/// The next steps of all moves under way, and of the plan. `is_away` says whether a node has been away for this many
/// milliseconds.
pub(super) fn next_steps(
    layouts: &mut Layouts,
    input: &Input<'_>,
    patience: Patience,
    is_away: impl Fn(NodeId, u64) -> bool,
) -> Option<Change> {
    let table = &input.table.record;
    let plan = input.view.plan_under_way();
    if let Some(back) = plan.and_then(|plan| returned(input, &plan.record)) {
        return Some(back);
    }
    // A node that was absent when the plan was made is not waited for; another one may be restarting.
    let age_ms = plan.map_or(0, |plan| input.now.unix_ms.saturating_sub(plan.record.made_unix_ms));
    let since_plan_ms = age_ms
        .saturating_sub(patience.absent_after_ms)
        .max(patience.absent_after_ms);
    let is_lost = |node| is_away(node, since_plan_ms.min(patience.stall_after_ms));
    let is_gone = |node| is_away(node, patience.stall_after_ms);
    let moves = Moves::new(layouts, input, &is_gone, &is_lost);
    let mut after = plan.map(|plan| plan.record.clone());
    let mut steps = Steps::default();
    for (&partition, stage) in table.moves() {
        match stage {
            Stage::Switched { at, former } if is_known(input, *at, former) => steps.finish.insert(partition),
            Stage::Switched { .. } => {}
            Stage::Begun { next, .. } => {
                let planned = after.as_mut().filter(|plan| plan.is_of(partition, next, table));
                step_of_begun(&moves, table, planned, (partition, next), &mut steps);
            }
        }
    }
    if table.is_counting() {
        together(table, after.as_mut(), &mut steps);
    }
    if let Some(plan) = &mut after {
        begin(input, plan, &mut steps, &is_gone);
        end(input, plan, &steps);
    }
    change(input, plan, after, &steps)
}

/// The next step of a move that has begun: it is given up if no plan wants it, or if it has failed; it switches once it has
/// its data, but for the data that the plan leaves behind.
fn step_of_begun(
    moves: &Moves<'_>,
    table: &RoutingTable,
    plan: Option<&mut PlanRecord>,
    (partition, next): (PartitionId, &[NodeId]),
    steps: &mut Steps,
) {
    let Some(plan) = plan else {
        steps.cancel.insert(partition);
        return;
    };
    if let Some(failure) = moves.failure(partition, next) {
        plan.given_up.insert(partition, failure);
        steps.cancel.insert(partition);
    } else if let Some(left_behind) = moves.left_behind(partition, next) {
        steps.switch.insert(partition);
        let count = table.partitions();
        left_behind.iter().for_each(|one| one.note(plan, partition, count));
    }
}

/// Makes the moves of a plan that changes the number of replicas of a store take their steps together: if one is given up, all are; they
/// switch once all can.
fn together(table: &RoutingTable, plan: Option<&mut PlanRecord>, steps: &mut Steps) {
    let begun: PartitionSet = table.begun().map(|(partition, ..)| partition).collect();
    if !steps.cancel.is_empty() {
        (steps.cancel, steps.switch) = (begun, PartitionSet::EMPTY);
        if let Some(plan) = plan {
            give_up(plan, None);
        }
    } else if !steps.switch.covers(&begun) {
        steps.switch = PartitionSet::EMPTY;
    }
}

/// Gives up all partitions of a plan, for this reason, or for the one that another partition was given up for.
fn give_up(plan: &mut PlanRecord, reason: Option<String>) {
    let reason = reason.or_else(|| plan.given_up.values().next().cloned());
    let reason = reason.unwrap_or_else(|| "it was cancelled".to_owned());
    for &partition in plan.next.keys() {
        plan.given_up.entry(partition).or_insert_with(|| reason.clone());
    }
}

/// Begins a change of the number of replicas of a store, when no other partition moves.
fn begin_count(input: &Input<'_>, plan: &mut PlanRecord, count: &PlanCount, steps: &mut Steps) {
    let table = &input.table.record;
    if plan.remaining(table).next().is_none() {
        return;
    }
    let store = input.view.stores.get(&count.store);
    if store.is_none_or(|store| store.record.id != count.id) {
        steps.cancel = table.begun().map(|(partition, ..)| partition).collect();
        steps.switch = PartitionSet::EMPTY;
        give_up(plan, Some("the store was dropped".to_owned()));
    } else if !table.is_moving() {
        steps.count = Some((count.id, count.now, count.next));
    }
}

/// The end of a plan that replaces a node, which has come back before anything has moved: it stays.
fn returned(input: &Input<'_>, plan: &PlanRecord) -> Option<Change> {
    let table = &input.table.record;
    let is_back = plan.replaced.iter().any(|&node| input.view.is_live(node));
    let has_moved = plan
        .before
        .iter()
        .any(|(&partition, owners)| plan.owners(table, partition) != owners);
    if !is_back || has_moved {
        return None;
    }
    cancel_plan(input.view, Some(plan.number), input.now.unix_ms).ok()
}

/// Whether all live former owners have proved that they use the table of the switch. After that, a reader with an
/// earlier table cannot reach a quorum that misses writes to the new owners only.
fn is_known(input: &Input<'_>, switched_at: u64, former: &[NodeId]) -> bool {
    let knows = |node| {
        let report = input.view.reports.get(&node);
        report.is_some_and(|report| report.epoch >= switched_at)
    };
    former.iter().all(|&node| !input.view.is_live(node) || knows(node))
}

/// Begins what a running plan may begin now.
fn begin(input: &Input<'_>, plan: &mut PlanRecord, steps: &mut Steps, is_gone: &dyn Fn(NodeId) -> bool) {
    match plan.count.clone() {
        _ if plan.state != PlanState::Running => {}
        Some(count) => begin_count(input, plan, &count, steps),
        None if input.table.record.is_counting() => {}
        None => begin_moves(&input.table.record, plan, steps, is_gone),
    }
}

/// Ends a plan whose moves are all done, or given up.
fn end(input: &Input<'_>, plan: &mut PlanRecord, steps: &Steps) {
    let table = &input.table.record;
    if plan.remaining(table).next().is_none() && *steps == Steps::default() && !table.is_moving() {
        plan.state = PlanState::Done;
        plan.ended_unix_ms = Some(input.now.unix_ms);
    }
}

/// Begins moves of a plan, in the order of partitions, as many as nodes may take part in. Those whose nodes are gone are given up.
fn begin_moves(table: &RoutingTable, plan: &mut PlanRecord, steps: &mut Steps, is_gone: &dyn Fn(NodeId) -> bool) {
    let waiting = plan.remaining(table);
    let waiting = waiting.filter(|(partition, _)| table.joint(*partition).is_none());
    let hopeless = waiting.filter_map(|(partition, next)| {
        let absent = absent(table.owners(partition), next, is_gone)?;
        Some((partition, absent))
    });
    let hopeless: Vec<_> = hopeless.collect();
    plan.given_up.extend(hopeless);
    let mut busy = BTreeMap::<NodeId, u32>::new();
    for (partition, next, _) in table.begun() {
        for node in partners(table.owners(partition), next) {
            *busy.entry(node).or_default() += 1;
        }
    }
    for (partition, next) in plan.remaining(table) {
        if table.joint(partition).is_some() {
            continue;
        }
        let partners = partners(table.owners(partition), next);
        let has_room = |node| busy.get(node).copied().unwrap_or(0) < plan.moves_per_node;
        if partners.iter().all(has_room) {
            partners
                .into_iter()
                .for_each(|node| *busy.entry(node).or_default() += 1);
            steps.begin.insert(partition, next.to_vec());
        }
    }
}

/// The nodes that give or get a replica. A move that only changes the order of owners has none.
fn partners(owners: &[NodeId], next: &[NodeId]) -> BTreeSet<NodeId> {
    let gives = owners.iter().filter(|node| !next.contains(node));
    let gets = next.iter().filter(|node| !owners.contains(node));
    gives.chain(gets).copied().collect()
}

/// The record of a store whose number of replicas changes with these steps, with the new one.
fn counted(input: &Input<'_>, plan: &PlanRecord, steps: &Steps) -> Option<Write> {
    let count = plan.count.as_ref().filter(|_| !steps.switch.is_empty())?;
    let store = input.view.stores.get(&count.store);
    let store = store.filter(|store| store.record.id == count.id)?;
    let mut record = store.record.clone();
    let definition = &mut record.definition;
    definition.replicas = Some(count.next.replicas);
    definition.versioned = definition.versioned.map(|settings| settings.with_quorums(&count.next));
    Some(Write::over(store, record))
}

/// The entries after these steps. A switch depends on all stores, so that a swap a moment ago does not keep a version
/// that the next owners do not hold; and steps depend on the plan, which an operator may have cancelled.
fn change(
    input: &Input<'_>,
    plan: Option<&Revised<PlanRecord>>,
    after: Option<PlanRecord>,
    steps: &Steps,
) -> Option<Change> {
    let table = input.table.record.after(steps).ok()?;
    let routing = (table != input.table.record).then(|| Write::over(input.table, table));
    let counted = plan.and_then(|plan| counted(input, &plan.record, steps));
    let named = counted.as_ref().map(|write| write.path.clone());
    let mut change = Change::of(routing);
    if let (Some(before), Some(after)) = (plan, after) {
        match before.record == after {
            true => change.unchanged.push((RecordPath::Plan(after.number), before.revision)),
            false => change.writes.push(Write::over(before, after)),
        }
    }
    change.writes.extend(counted);
    if change.writes.is_empty() {
        return None;
    }
    if !steps.switch.is_empty() {
        let stores = input.view.stores.iter();
        let stores = stores.map(|(name, store)| (RecordPath::Store(name.clone()), store.revision));
        change
            .unchanged
            .extend(stores.filter(|(path, _)| Some(path) != named.as_ref()));
    }
    Some(change)
}
