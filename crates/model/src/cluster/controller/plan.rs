//! The leading controller carries out moves of partitions: it begins those of the plan under way, as many at a time as
//! the plan allows; it switches each once its next owners have the data, or cannot get the rest of it; and finishes it once no
//! former owner uses an earlier table. Where a plan changes the number of replicas of a store, all its moves take each step together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Look, Patience};
use crate::cluster::change::{Change, Record, RecordPath, Write};
use crate::cluster::layout::Layouts;
use crate::cluster::operator::cancel_plan;
use crate::cluster::plan::{PlanCount, PlanRecord, PlanState, StuckStore};
use crate::cluster::readiness;
use crate::cluster::record::{NodeMark, ReplicaReport, StoreRecord};
use crate::cluster::view::Revised;
use crate::definition::StoreKind;
use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;
use crate::routing::{RoutingTable, Stage, Steps};
use crate::versioned::{Compared, Other, has_enough};

/// The next steps of all moves under way, and of the plan. `is_away` says whether a node has been away for so many milliseconds.
pub(super) fn go_on(
    layouts: &mut Layouts,
    look: &Look<'_>,
    patience: Patience,
    is_away: impl Fn(NodeId, u64) -> bool,
) -> Option<Change> {
    let is_gone = |node| is_away(node, patience.stall_after_ms);
    let table = &look.table.record;
    let mut plans = look.view.plans.values();
    let plan = plans.find(|plan| plan.record.state.is_under_way());
    if let Some(back) = plan.and_then(|plan| returned(look, &plan.record)) {
        return Some(back);
    }
    // A node that was absent when the plan was made is not waited for; another one may be restarting.
    let age_ms = plan.map_or(0, |plan| look.now.unix_ms.saturating_sub(plan.record.made_unix_ms));
    let since_plan_ms = age_ms
        .saturating_sub(patience.absent_after_ms)
        .max(patience.absent_after_ms);
    let is_lost = |node| is_away(node, since_plan_ms.min(patience.stall_after_ms));
    let mut after = plan.map(|plan| plan.record.clone());
    let mut steps = Steps::default();
    for (&partition, stage) in table.moves() {
        match stage {
            Stage::Switched { at, former } if is_known(look, *at, former) => steps.finish.insert(partition),
            Stage::Switched { .. } => {}
            Stage::Begun { next, .. } => {
                let planned = plan.filter(|plan| plan.record.is_of(partition, next, table));
                let failure = planned.and_then(|_| failure(layouts, look, partition, next, is_gone, is_lost));
                if let (Some(after), Some(failure)) = (&mut after, &failure) {
                    after.given_up.insert(partition, failure.clone());
                }
                if planned.is_none() || failure.is_some() {
                    steps.cancel.insert(partition);
                    continue;
                }
                let lacking: Vec<_> = lacking(layouts, look, partition, next, &is_gone).collect();
                let is_stuck = |one: &Lacking<'_>| is_stuck(look, one.store, one.replica, partition, next, is_lost);
                if !lacking.iter().all(is_stuck) {
                    continue;
                }
                steps.switch.insert(partition);
                if let Some(plan) = &mut after {
                    lacking
                        .iter()
                        .for_each(|one| one.note(plan, partition, table.partitions()));
                }
            }
        }
    }
    if table.is_counting() {
        together(table, after.as_mut(), &mut steps);
    }
    if let Some(plan) = &mut after {
        if plan.state == PlanState::Running {
            match plan.count.clone() {
                None if table.is_counting() => {}
                None => begin(look, plan, &mut steps, is_gone),
                Some(count) => begin_count(look, plan, &count, &mut steps),
            }
        }
        if plan.remaining(table).next().is_none() && steps == Steps::default() && !table.is_moving() {
            plan.state = PlanState::Done;
            plan.ended_unix_ms = Some(look.now.unix_ms);
        }
    }
    change(look, plan, after, &steps)
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
fn begin_count(look: &Look<'_>, plan: &mut PlanRecord, count: &PlanCount, steps: &mut Steps) {
    let table = &look.table.record;
    if plan.remaining(table).next().is_none() {
        return;
    }
    let store = look.view.stores.get(&count.store);
    if store.is_none_or(|store| store.record.id != count.id) {
        steps.cancel = table.begun().map(|(partition, ..)| partition).collect();
        steps.switch = PartitionSet::EMPTY;
        give_up(plan, Some("the store was dropped".to_owned()));
    } else if !table.is_moving() {
        steps.count = Some((count.id, count.now, count.next));
    }
}

/// The end of a plan that replaces a node, which has come back before anything has moved: it stays.
fn returned(look: &Look<'_>, plan: &PlanRecord) -> Option<Change> {
    let table = &look.table.record;
    let is_back = plan.replaced.iter().any(|&node| look.view.is_live(node));
    let has_moved = plan
        .before
        .iter()
        .any(|(&partition, owners)| plan.owners(table, partition) != owners);
    if !is_back || has_moved {
        return None;
    }
    cancel_plan(look.view, Some(plan.number), look.now.unix_ms).ok()
}

/// Whether all live former owners have proved that they use the table of the switch. After that, a reader with an
/// earlier table cannot reach a quorum that misses writes to the new owners only.
fn is_known(look: &Look<'_>, switched_at: u64, former: &[NodeId]) -> bool {
    let knows = |node| {
        let report = look.view.reports.get(&node);
        report.is_some_and(|report| report.epoch >= switched_at)
    };
    former.iter().all(|&node| !look.view.is_live(node) || knows(node))
}

/// Data that a next owner has not proved to have.
struct Lacking<'a> {
    store: &'a StoreRecord,
    node: NodeId,
    /// Its report of a version, if it has sent one.
    replica: Option<&'a ReplicaReport>,
}

impl Lacking<'_> {
    /// Notes in a plan that a partition moves without it.
    fn note(&self, plan: &mut PlanRecord, partition: PartitionId, count: PartitionCount) {
        let new = StuckStore {
            id: self.store.id,
            newest: self.store.versions.kept().max(),
            partitions: PartitionSet::EMPTY,
            count,
            error: could_not_fetch(self.node, self.replica),
        };
        let name = self.store.definition.name.clone();
        let known = plan.stuck.remove(&name).filter(|known| known.id == new.id);
        let partitions = known.map_or(PartitionSet::EMPTY, |known| known.partitions);
        let stuck = plan.stuck.entry(name).or_insert(StuckStore { partitions, ..new });
        stuck.partitions.insert(partition);
    }
}

fn could_not_fetch(node: NodeId, replica: Option<&ReplicaReport>) -> String {
    let error = replica.and_then(|replica| replica.error.as_deref());
    format!(
        "node {node} could not fetch it: {}",
        error.unwrap_or("it gives no reason")
    )
}

/// Whether a partition moves without a store, which is fetched later if that becomes possible: the nodes that give up replicas of it
/// are absent, and the next owner fails to fetch it. As long as another owner has it, all attempts must fail.
fn is_stuck(
    look: &Look<'_>,
    store: &StoreRecord,
    replica: Option<&ReplicaReport>,
    partition: PartitionId,
    next: &[NodeId],
    is_lost: impl Fn(NodeId) -> bool,
) -> bool {
    let copies = look.view.copies(store);
    let owners = first(look.table.record.owners(partition), copies.owners);
    let next = first(next, copies.joint);
    let mut giving = owners.iter().filter(|node| !next.contains(node)).peekable();
    let has_lost = giving.peek().is_some() && giving.all(|&node| is_lost(node));
    has_lost
        && replica.is_some_and(|replica| match owners.iter().all(|&node| is_lost(node)) {
            true => replica.error.is_some(),
            false => replica.gave_up,
        })
}

/// The data that next owners of a partition have not proved to have, of all kept versions and all versioned stores. An owner that
/// stays one and is gone is not waited for: the move changes nothing for it. At least one of the next owners is there ([`failure`]).
fn lacking<'a>(
    layouts: &'a mut Layouts,
    look: &'a Look<'_>,
    partition: PartitionId,
    next: &'a [NodeId],
    is_gone: &'a impl Fn(NodeId) -> bool,
) -> impl Iterator<Item = Lacking<'a>> + 'a {
    let table = &look.table.record;
    let owners = table.owners(partition);
    look.carried.iter().flat_map(move |&record| {
        let copies = look.view.copies(record);
        let layout = layouts.of(table, copies);
        let (owners, next) = (first(owners, copies.owners), first(next, copies.joint));
        // Nothing changes for this store.
        let next = if owners == next { &[][..] } else { next };
        let next = next.iter().copied();
        let next = next.filter(move |node| !(owners.contains(node) && is_gone(*node)));
        next.flat_map(move |node| {
            let lacking = |replica| Lacking {
                store: record,
                node,
                replica,
            };
            let versioned = record.definition.kind == StoreKind::Versioned
                && !readiness::is_synchronised(look.view, &layout, node, record, partition);
            let owns_any = !layout.owned_by(node).is_empty();
            let replicas = record
                .versions
                .kept()
                .map(|version| readiness::replica(look.view, &layout, node, record, version));
            let lacks = |replica: &Option<&ReplicaReport>| {
                replica.is_none_or(|replica| lacks(record, owns_any, &replica.lacking, partition))
            };
            let versions = replicas.filter(lacks).map(lacking);
            versioned
                .then(|| lacking(None))
                .into_iter()
                .chain(versions)
                .collect::<Vec<_>>()
        })
    })
}

/// Whether a node that lacks these partitions cannot take over this one yet. Of a store that is everywhere a node without
/// partitions needs all, as it is asked for all of them from then on; the others are asked for them already.
fn lacks(store: &StoreRecord, owns_any: bool, lacking: &PartitionSet, partition: PartitionId) -> bool {
    match store.definition.everywhere && !owns_any {
        true => !lacking.is_empty(),
        false => lacking.contains(partition),
    }
}

/// Why a begun move is given up; `None` as long as it may succeed.
fn failure(
    layouts: &mut Layouts,
    look: &Look<'_>,
    partition: PartitionId,
    next: &[NodeId],
    is_gone: impl Fn(NodeId) -> bool,
    is_lost: impl Fn(NodeId) -> bool,
) -> Option<String> {
    let owners = look.table.record.owners(partition);
    if let Some(absent) = absent(owners, next, &is_gone) {
        return Some(absent);
    }
    look.carried.iter().find_map(|&store| {
        let copies = look.view.copies(store);
        let layout = layouts.of(&look.table.record, copies);
        // Of a store with fewer replicas, a new order of the owners moves a replica, too.
        let (owners, firsts) = (first(owners, copies.owners), first(next, copies.joint));
        if copies.owners != copies.joint
            && let Some(&node) = firsts.iter().find(|node| is_gone(**node))
        {
            return Some(format!("node {node}, one of its next replicas, is absent"));
        }
        let mut receivers = firsts.iter().copied().filter(|node| !owners.contains(node));
        receivers.find_map(|node| {
            if is_gone(node) {
                return Some(absent_receiver(node));
            }
            if let Some(few) = too_few(look, store, owners, node, &is_gone) {
                return Some(few);
            }
            let failed = store.versions.kept().find_map(|version| {
                let replica = readiness::replica(look.view, &layout, node, store, version)?;
                let owns_any = !layout.owned_by(node).is_empty();
                let lacks = lacks(store, owns_any, &replica.lacking, partition);
                let failed = replica.gave_up && lacks;
                (failed && !is_stuck(look, store, Some(replica), partition, next, &is_lost)).then_some(replica)
            })?;
            let name = &store.definition.name;
            Some(format!("store \"{name}\": {}", could_not_fetch(node, Some(failed))))
        })
    })
}

/// Why a node can never have all records of a partition: too many of its owners are gone to compare it with. Those that an
/// operator has given up do not count.
fn too_few(
    look: &Look<'_>,
    store: &StoreRecord,
    owners: &[NodeId],
    receiver: NodeId,
    is_gone: impl Fn(NodeId) -> bool,
) -> Option<String> {
    let settings = store.definition.versioned?;
    let is_leaving = |node| {
        let record = look.view.nodes.get(&node);
        record.is_some_and(|node| node.record.mark == Some(NodeMark::Leaving))
    };
    let enough = has_enough(&settings, owners, receiver, |node| Other {
        is_live: false,
        is_given_up: is_gone(node) && is_leaving(node),
        compared: (!is_gone(node)).then_some(Compared::Whole),
    });
    let gone = owners.iter().filter(|&&node| is_gone(node)).map(NodeId::to_string);
    let (gone, name): (Vec<String>, _) = (gone.collect(), &store.definition.name);
    let gone = gone.join(", ");
    (!enough).then(|| format!("node {receiver} cannot have all records of store {name}: its owners {gone} are absent"))
}

/// The owners in a list of a store with so many replicas.
pub(in crate::cluster) fn first(list: &[NodeId], replicas: usize) -> &[NodeId] {
    &list[..list.len().min(replicas)]
}

fn absent_receiver(node: NodeId) -> String {
    format!("node {node}, which was to get it, is absent")
}

/// Why a partition cannot move to its next owners, if that is because nodes are gone.
fn absent(owners: &[NodeId], next: &[NodeId], is_gone: impl Fn(NodeId) -> bool) -> Option<String> {
    let mut receivers = next.iter().filter(|node| !owners.contains(node));
    if let Some(&node) = receivers.find(|&&node| is_gone(node)) {
        return Some(absent_receiver(node));
    }
    let nobody = next.iter().all(|&node| is_gone(node));
    nobody.then(|| "the nodes that were to keep it are absent".to_owned())
}

/// Begins moves of a plan, in the order of partitions, as many as nodes may take part in. Those whose nodes are gone are given up.
fn begin(look: &Look<'_>, plan: &mut PlanRecord, steps: &mut Steps, is_gone: impl Fn(NodeId) -> bool) {
    let table = &look.table.record;
    let hopeless = plan
        .remaining(table)
        .filter(|(partition, _)| table.joint(*partition).is_none());
    let hopeless =
        hopeless.filter_map(|(partition, next)| Some((partition, absent(table.owners(partition), next, &is_gone)?)));
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
fn counted(look: &Look<'_>, plan: &PlanRecord, steps: &Steps) -> Option<Write> {
    let count = plan.count.as_ref().filter(|_| !steps.switch.is_empty())?;
    let store = look
        .view
        .stores
        .get(&count.store)
        .filter(|store| store.record.id == count.id)?;
    let mut record = store.record.clone();
    record.definition.replicas = Some(count.next.replicas);
    record.definition.versioned = record
        .definition
        .versioned
        .map(|settings| settings.with_quorums(&count.next));
    Some(Write {
        path: RecordPath::Store(count.store.clone()),
        expected: Some(store.revision),
        record: Some(Record::Store(Box::new(record))),
    })
}

/// The entries after these steps. A switch depends on all stores, so that a swap a moment ago does not keep a version
/// that the next owners do not hold; and steps depend on the plan, which an operator may have cancelled.
fn change(
    look: &Look<'_>,
    plan: Option<&Revised<PlanRecord>>,
    after: Option<PlanRecord>,
    steps: &Steps,
) -> Option<Change> {
    let table = look.table.record.after(steps).ok()?;
    let routing = (table != look.table.record).then_some(Write {
        path: RecordPath::Routing,
        expected: Some(look.table.revision),
        record: Some(Record::Routing(table)),
    });
    let (unchanged, written) = match (plan, after) {
        (Some(before), Some(after)) if before.record == after => {
            (Some((RecordPath::Plan(after.number), before.revision)), None)
        }
        (Some(before), Some(after)) => {
            let write = Write {
                path: RecordPath::Plan(after.number),
                expected: Some(before.revision),
                record: Some(Record::Plan(Box::new(after))),
            };
            (None, Some(write))
        }
        _ => (None, None),
    };
    let counted = plan.and_then(|plan| counted(look, &plan.record, steps));
    let named = counted.as_ref().map(|write| write.path.clone());
    let writes: Vec<Write> = routing.into_iter().chain(written).chain(counted).collect();
    if writes.is_empty() {
        return None;
    }
    let mut unchanged: Vec<_> = unchanged.into_iter().collect();
    if !steps.switch.is_empty() {
        let stores = look.view.stores.iter();
        let stores = stores.filter(|(name, _)| named != Some(RecordPath::Store((*name).clone())));
        unchanged.extend(stores.map(|(name, store)| (RecordPath::Store(name.clone()), store.revision)));
    }
    Some(Change { writes, unchanged })
}
