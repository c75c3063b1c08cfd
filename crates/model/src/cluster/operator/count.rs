//! Changes of the number of replicas of a versioned store: a plan, since its next owners need what the present ones have.
//!
//! The store's definition changes when they have it. A batch or hybrid store needs no plan: a node that does not have its
//! partitions yet is not asked for them.

use super::lists::{Lists, lengthened};
use super::routing::{saved, under_way};
use super::store::StoreChange;
use super::{OperatorError, rewrite};
use crate::cluster::change::{Change, Record, RecordPath, Write};
use crate::cluster::controller::first;
use crate::cluster::plan::{MOVES_PER_NODE, PlanCost, PlanCount, PlanMaker, PlanRecord, PlanState};
use crate::cluster::record::StoreRecord;
use crate::cluster::view::{ClusterView, Revised};
use crate::routing::RoutingTable;
use crate::versioned::{Quorums, VersionedSettings};

/// The settings that a versioned store is to have with so many replicas: majorities stay majorities, unless the change says otherwise.
pub(super) fn next_settings(
    view: &ClusterView,
    store: &StoreRecord,
    replicas: u32,
    change: &StoreChange,
) -> Option<VersionedSettings> {
    let settings = view.settings(store)?;
    let followed = match replicas == view.replicas(store) as u32 {
        true => settings,
        false => settings.with(&settings.follow_replicas(view.replicas(store) as u32, replicas)),
    };
    Some(
        change
            .versioned
            .as_ref()
            .map_or(followed, |change| followed.with(change)),
    )
}

/// A store's change of quorums: at once, or by a plan if its number of replicas changes. `record` is the store after all other
/// changes, with the quorums that it is to have.
///
/// # Errors
/// A plan is under way, nodes are missing, or reads would miss acknowledged writes.
pub(super) fn change_quorums(
    view: &ClusterView,
    before: &Revised<StoreRecord>,
    mut record: StoreRecord,
    (now, next): (Quorums, Quorums),
    change: &StoreChange,
    now_unix_ms: u64,
) -> Result<Change, OperatorError> {
    let table = view.routing.as_ref().filter(|_| now != next);
    let Some(table) = table else {
        return Ok(rewrite(before.revision, record));
    };
    let last = view.plans.keys().last().copied().unwrap_or(0);
    let number = under_way(view).map(|plan| plan.record.number);
    let routing = |table_after: RoutingTable| Write {
        path: RecordPath::Routing,
        expected: Some(table.revision),
        record: Some(Record::Routing(table_after)),
    };
    // Its quorums were checked against those that the store had then.
    let is_changing =
        |plan: &&Revised<PlanRecord>| plan.record.count.as_ref().is_some_and(|count| count.id == record.id);
    if let Some(plan) = under_way(view).filter(is_changing) {
        let number = plan.record.number;
        return Err(OperatorError::PlanInProgress { number });
    }
    if now.replicas == next.replicas {
        let is_counted = table.record.counts().contains_key(&record.id);
        let after = table.record.with_quorums(record.id, next);
        if is_counted && after.is_none() {
            return Err(OperatorError::PlanInProgress {
                number: number.unwrap_or(last),
            });
        }
        let mut change = rewrite(before.revision, record);
        change.writes.extend(after.map(routing));
        return Ok(change);
    }
    if let Some(number) = number {
        return Err(OperatorError::PlanInProgress { number });
    }
    check(view, &record, (now, next), change)?;
    let longer = lengthened(view, next.replicas)?;
    let lists = longer.as_ref().unwrap_or(&table.record).all_owners();
    let invalid = |reason: String| OperatorError::InvalidDefinition {
        store: record.definition.name.clone(),
        reason,
    };
    if lists.iter().any(|list| list.len() < next.replicas as usize) {
        let Lists { remedy, .. } = Lists::of(view)?;
        return Err(invalid(format!(
            "not all partitions can have {} replicas, {remedy}",
            next.replicas
        )));
    }
    let of_store = |quorums: Quorums| {
        let lists = lists.iter().map(|list| first(list, quorums.replicas as usize).to_vec());
        table.record.partitions().partitions().zip(lists).collect()
    };
    let plan = PlanRecord {
        number: last + 1,
        state: PlanState::Running,
        before: of_store(now),
        next: of_store(next),
        given_up: Default::default(),
        stuck: Default::default(),
        leaving: Default::default(),
        replaced: Default::default(),
        count: Some(PlanCount {
            store: record.definition.name.clone(),
            id: record.id,
            now,
            next,
        }),
        by: PlanMaker::Operator,
        user: None,
        reason: format!(
            "store {} is to have {} replicas instead of {}",
            record.definition.name, next.replicas, now.replicas
        ),
        moves_per_node: MOVES_PER_NODE,
        cost: PlanCost::default(),
        made_unix_ms: now_unix_ms,
        ended_unix_ms: None,
    };
    let absent = plan.next.values().flatten().find(|node| !view.is_live(**node));
    if let Some(&node) = absent {
        return Err(OperatorError::NodeAbsent { node });
    }
    // Until the plan has switched.
    record.definition.replicas = before.record.definition.replicas;
    record.definition.versioned = record.definition.versioned.map(|settings| settings.with_quorums(&now));
    let mut change = saved(view, plan);
    change.writes.extend(rewrite(before.revision, record).writes);
    match longer {
        Some(longer) => change.writes.push(routing(longer)),
        None => change.unchanged.push((RecordPath::Routing, table.revision)),
    }
    Ok(change)
}

/// Refuses numbers with which reads would miss acknowledged writes, of a store whose reads see all of them.
fn check(
    view: &ClusterView,
    record: &StoreRecord,
    (now, next): (Quorums, Quorums),
    change: &StoreChange,
) -> Result<(), OperatorError> {
    let store = &record.definition.name;
    let is_strict = |store: &StoreRecord| view.settings(store).is_some_and(|settings| !settings.sloppy);
    if !now.overlap() || !is_strict(record) {
        return Ok(());
    }
    let is_said = change
        .versioned
        .is_some_and(|change| change.reads.is_some() || change.writes.is_some());
    let Quorums {
        replicas,
        reads,
        writes,
        ..
    } = next;
    let reason = match (next.overlap(), next.follow(&now)) {
        (true, true) => return Ok(()),
        (false, _) if is_said => return Ok(()),
        (false, _) => format!(
            "with {reads} reads and {writes} writes of {replicas} replicas a read could miss acknowledged writes; choose R + W > \
             {replicas}: fondaco store alter {store} --replicas {replicas} --reads R --writes W"
        ),
        (true, false) if now.replicas - now.writes < replicas => format!(
            "{reads} reads of {replicas} replicas could miss writes that {} of {} replicas have acknowledged; read more: fondaco store \
             alter {store} --replicas {replicas} --reads {} --writes {writes}",
            now.writes,
            now.replicas,
            now.replicas - now.writes + 1
        ),
        (true, false) => format!(
            "{replicas} replicas instead of {}, with {reads} reads: a read could miss writes that {} of {} replicas have \
             acknowledged; lower the number one by one, first: fondaco store alter {store} --replicas {}",
            now.replicas,
            now.writes,
            now.replicas,
            now.replicas.saturating_sub(1).max(1)
        ),
    };
    Err(OperatorError::InvalidDefinition {
        store: store.clone(),
        reason,
    })
}
