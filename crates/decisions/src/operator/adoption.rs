//! After the coordination service lost entries, or went back to older ones, an operator decides which are true: those
//! that a node remembers, or those that are present.
//!
//! The decision is the cluster's record with a higher number of adoptions. All processes that see it accept the present
//! entries, whatever they saw before. So it is written last.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterRecord, ClusterView};

use super::OperatorError;
use crate::change::{Change, Record, RecordPath, Write};

/// How many entries are written at once: a ZooKeeper transaction has at most 1 MiB.
const ADOPTED_AT_ONCE_MAX: usize = 100;

/// The present entries: each with its revision, whether or not it can be parsed, and the cluster's record, if it can be
/// parsed.
#[derive(Debug, Clone, Default)]
pub struct Present {
    /// All of them, except for ephemeral ones.
    pub revisions: BTreeMap<RecordPath, u64>,
    /// The cluster's record.
    pub cluster: Option<ClusterRecord>,
}

/// Replaces the present entries by the known ones, in this order. Unknown entries are deleted.
///
/// # Errors
/// No cluster is known.
pub fn adopt(known: &ClusterView, present: &Present) -> Result<Vec<Change>, OperatorError> {
    let cluster = known.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    let nodes = known.nodes.values().map(|node| node.record.clone().into());
    let stores = known.stores.values().map(|store| store.record.clone().into());
    let dropped = known.dropped.values().map(|dropped| dropped.record.clone().into());
    let schemas = known.schemas.values().map(|schema| schema.record.clone().into());
    let plans = known.plans.values().map(|plan| plan.record.clone().into());
    let users = known.users.values().map(|user| user.record.clone().into());
    let numbers = known.numbers.iter().map(|numbers| numbers.record.into());
    let routing = known.routing.iter().map(|table| table.record.clone().into());
    let all = nodes
        .chain(stores)
        .chain(dropped)
        .chain(schemas)
        .chain(plans)
        .chain(users);
    let records: BTreeMap<RecordPath, Record> = all
        .chain(numbers)
        .chain(routing)
        .map(|record: Record| (record.path(), record))
        .collect();
    let unknown = present.revisions.iter();
    let unknown = unknown.filter(|(path, _)| **path != RecordPath::Cluster && !records.contains_key(*path));
    let deleted: Vec<Write> = unknown
        .map(|(path, &revision)| Write::delete(path.clone(), revision))
        .collect();
    let written = records
        .into_iter()
        .map(|(path, record)| Write::of(present.revisions.get(&path).copied(), record));
    // A plan may be nearly as long as a transaction, and some schemas are longer.
    let (long, others): (Vec<_>, Vec<_>) = written
        .chain(deleted)
        .partition(|write| matches!(write.record, Some(Record::Plan(_) | Record::Schema(_))));
    let parts = others.chunks(ADOPTED_AT_ONCE_MAX).chain(long.chunks(1));
    let mut changes: Vec<Change> = parts.map(|writes| Change::of(writes.to_vec())).collect();
    changes.push(adopted(cluster, known, present));
    Ok(changes)
}

/// Declares the present entries to be true.
///
/// # Errors
/// No cluster is present, or it differs from the known one.
pub fn accept(known: &ClusterView, present: &Present) -> Result<Change, OperatorError> {
    let cluster = present.cluster.as_ref().ok_or(OperatorError::NoCluster)?;
    let other = known
        .cluster
        .as_ref()
        .filter(|known| known.identity != cluster.identity);
    match other {
        Some(_) => Err(OperatorError::OtherCluster),
        None => Ok(adopted(cluster, known, present)),
    }
}

/// Writes the cluster's record, with one more adoption than in the known and the present record.
fn adopted(cluster: &ClusterRecord, known: &ClusterView, present: &Present) -> Change {
    let adoptions = [&known.cluster, &present.cluster].into_iter().flatten();
    let adoptions = adoptions.map(|cluster| cluster.adoptions).max();
    let record = ClusterRecord {
        adoptions: adoptions.unwrap_or(0).saturating_add(1),
        ..cluster.clone()
    };
    let revision = present.revisions.get(&RecordPath::Cluster).copied();
    Change::of([Write::of(revision, record)])
}
