//! After the coordination service lost entries, or went back to older ones, an operator decides which are true: those
//! that a node remembers, or those that are present.
//!
//! The decision is the cluster's record with a higher number of adoptions. All processes that see it accept the present
//! entries, whatever they saw before. So it is written last.

use std::collections::BTreeMap;

use super::OperatorError;
use crate::cluster::change::{Change, Record, RecordPath, Write};
use crate::cluster::record::ClusterRecord;
use crate::cluster::view::ClusterView;

/// How many entries are written at once: a ZooKeeper transaction has at most 1 MiB.
pub const ADOPTED_AT_ONCE_MAX: usize = 100;

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
    let mut records: BTreeMap<RecordPath, Record> = BTreeMap::new();
    for (&id, node) in &known.nodes {
        records.insert(RecordPath::Node(id), Record::Node(node.record.clone()));
    }
    for (name, store) in &known.stores {
        let record = Record::Store(Box::new(store.record.clone()));
        records.insert(RecordPath::Store(name.clone()), record);
    }
    for (&id, dropped) in &known.dropped {
        let record = Record::Dropped(Box::new(dropped.record.clone()));
        records.insert(RecordPath::Dropped(id), record);
    }
    for (&number, plan) in &known.plans {
        let record = Record::Plan(Box::new(plan.record.clone()));
        records.insert(RecordPath::Plan(number), record);
    }
    for (name, user) in &known.users {
        let record = Record::User(Box::new(user.record.clone()));
        records.insert(RecordPath::User(name.clone()), record);
    }
    if let Some(numbers) = &known.numbers {
        records.insert(RecordPath::Numbers, Record::Numbers(numbers.record));
    }
    if let Some(table) = &known.routing {
        records.insert(RecordPath::Routing, Record::Routing(table.record.clone()));
    }
    let unknown = present.revisions.keys().filter(|path| !records.contains_key(path));
    let unknown: Vec<RecordPath> = unknown.filter(|path| **path != RecordPath::Cluster).cloned().collect();
    let deleted = unknown.into_iter().map(|path| (path, None));
    let written = records.into_iter().map(|(path, record)| (path, Some(record)));
    let writes: Vec<Write> = written
        .chain(deleted)
        .map(|(path, record)| Write {
            expected: present.revisions.get(&path).copied(),
            path,
            record,
        })
        .collect();
    let together = |writes: &[Write]| Change {
        writes: writes.to_vec(),
        unchanged: Vec::new(),
    };
    // A plan may be nearly as long as a transaction.
    let (plans, others): (Vec<_>, Vec<_>) = writes
        .into_iter()
        .partition(|write| matches!(write.record, Some(Record::Plan(_))));
    let one_by_one = plans.chunks(1).map(together);
    let mut changes: Vec<Change> = others.chunks(ADOPTED_AT_ONCE_MAX).map(together).collect();
    changes.extend(one_by_one);
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
    Change::of(RecordPath::Cluster, revision, Record::Cluster(record))
}
