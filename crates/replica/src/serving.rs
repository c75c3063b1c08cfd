//! What other replicas are told of a partition: hashes of its tree, and what is in leaves that differ. The same
//! is asked of one's own partitions by who compares them.
//!
//! Where the other side's tree is deeper than one's own, the nodes below one's own leaves are computed by a
//! scan of their range: few keys.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::quorum::{KeyRecord, LeafDigests, OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply};
use fondaco_model::PartitionId;
use fondaco_model::versioned::{LEAF_BITS_MIN, Record, record_hash};

use crate::commit::{engine_error, unix_ms};
use crate::exchange::{DEPTH_MAX, Hashes, LEAVES_MAX, LeafEntry, NODES_MAX, STEP_BITS, differences, leaf_digest};
use crate::partition::Partition;
use crate::reads::give;
use crate::shared::{Shared, overloaded};
use crate::store::HeldStore;
use crate::sweeper::is_past;
use crate::table_key::{parse_record_key, range};

/// How many bytes of records one answer brings; of what is beyond it, contexts alone.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Answers `FONDACO.RTREE`, on a thread that may wait.
pub(crate) fn tree(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: PartitionId,
    depth: u8,
    nodes: Vec<u32>,
    answer: OnReply,
) {
    if depth > DEPTH_MAX - STEP_BITS || nodes.len() > NODES_MAX {
        return answer(ReplicaReply::Error(ReplicaError::new(
            ReplicaErrorCode::Other,
            format!(
                "{} nodes at depth {depth}: ask for at most {NODES_MAX}, no deeper than 28",
                nodes.len()
            ),
        )));
    }
    on_reader(shared, store, partition, answer, move |shared, store, partition| {
        let Hashes { leaf_depth, nodes } = hashes(shared, store, partition, depth, &nodes)?;
        Ok(ReplicaReply::Hashes { leaf_depth, nodes })
    });
}

/// Answers `FONDACO.RSYNC`, on a thread that may wait.
pub(crate) fn sync(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: PartitionId,
    depth: u8,
    leaves: Vec<LeafDigests>,
    answer: OnReply,
) {
    if !(LEAF_BITS_MIN..=DEPTH_MAX).contains(&depth) || leaves.len() > LEAVES_MAX {
        return answer(ReplicaReply::Error(ReplicaError::new(
            ReplicaErrorCode::Other,
            format!(
                "{} leaves at depth {depth}: ask for at most {LEAVES_MAX}, at depths 4 to 32",
                leaves.len()
            ),
        )));
    }
    on_reader(shared, store, partition, answer, move |shared, store, partition| {
        compare(shared, store, partition, depth, &leaves)
    });
}

fn on_reader(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: PartitionId,
    answer: OnReply,
    work: impl FnOnce(&Shared, &HeldStore, &Partition) -> Result<ReplicaReply, ReplicaError> + Send + 'static,
) {
    let partition = match store.partition(partition) {
        Ok(partition) => Arc::clone(partition),
        Err(error) => return answer(ReplicaReply::Error(error)),
    };
    let (task_shared, store) = (Arc::clone(shared), Arc::clone(store));
    let answer = Arc::new(std::sync::Mutex::new(Some(answer)));
    let theirs = Arc::clone(&answer);
    let reading = move || {
        let reply = work(&task_shared, &store, &partition);
        give(&theirs, reply.unwrap_or_else(ReplicaReply::Error));
    };
    if shared.readers.run(Box::new(reading)).is_err() {
        let message = "too many reads wait for the disk: compare replicas later";
        give(&answer, ReplicaReply::Error(overloaded(message.to_owned())));
    }
}

/// The hashes below nodes of a partition's tree.
///
/// # Errors
/// `OVERLOADED` while the tree is made, or what the engine says.
pub(crate) fn hashes(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    nodes: &[u32],
) -> Result<Hashes, ReplicaError> {
    let known = partition.with_tree(|tree| {
        let children = nodes.iter().map(|&node| tree.children(depth, node));
        (tree.leaf_bits(), children.collect::<Vec<_>>())
    });
    let (leaf_depth, children) = known.ok_or_else(|| {
        overloaded(format!(
            "the hash tree of partition {} of store {:?} is being made: ask again in a moment",
            partition.id(),
            store.name
        ))
    })?;
    let scanned = |(&node, children): (&u32, Option<[u64; 16]>)| match children {
        Some(children) => Ok(children),
        None => scan_children(shared, store, partition.id(), depth, node),
    };
    let nodes: Result<Vec<_>, _> = nodes.iter().zip(children).map(scanned).collect();
    Ok(Hashes {
        leaf_depth,
        nodes: nodes?,
    })
}

fn scan_children(
    shared: &Shared,
    store: &HeldStore,
    partition: PartitionId,
    depth: u8,
    node: u32,
) -> Result<[u64; 16], ReplicaError> {
    let mut children = [0; 16];
    scan(shared, store, partition, depth, node, |hash, _, record| {
        let child = hash >> (64 - depth - STEP_BITS) & 15;
        children[child as usize] ^= record_hash(hash, Record::digest(record));
    })?;
    Ok(children)
}

/// What is held in a leaf.
pub(crate) fn leaf_entries(
    shared: &Shared,
    store: &HeldStore,
    partition: PartitionId,
    depth: u8,
    leaf: u32,
) -> Result<Vec<LeafEntry>, ReplicaError> {
    let now_unix_ms = unix_ms();
    let mut entries = Vec::new();
    scan(shared, store, partition, depth, leaf, |hash, key, record| {
        let decoded = Record::decode(record.clone());
        entries.push(LeafEntry {
            key,
            digest: leaf_digest(hash, Record::digest(record)),
            is_past: decoded.is_ok_and(|record| is_past(&record, &store.settings, now_unix_ms)),
        });
    })?;
    Ok(entries)
}

fn scan(
    shared: &Shared,
    store: &HeldStore,
    partition: PartitionId,
    depth: u8,
    node: u32,
    mut each: impl FnMut(u64, Bytes, &Bytes),
) -> Result<(), ReplicaError> {
    let (from, to) = range(partition, u32::from(depth), node.into());
    let failed = |error| engine_error(shared, &error);
    for entry in store.table.scan(&from, to.as_deref()).map_err(failed)? {
        let (table_key, record) = entry.map_err(failed)?;
        if let Some((_, hash, key)) = parse_record_key(&table_key) {
            each(hash, key, &record);
        }
    }
    Ok(())
}

/// Compares leaves with what the other side holds of them.
fn compare(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    leaves: &[LeafDigests],
) -> Result<ReplicaReply, ReplicaError> {
    let (mut records, mut contexts, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for LeafDigests { leaf, digests } in leaves {
        let own = leaf_entries(shared, store, partition.id(), depth, *leaf)?;
        let found = differences(&own, digests);
        lacking.extend(found.lacked_here);
        let lacked = found.lacked_there.into_iter().map(|key| (key, false));
        let differing = found.differing.into_iter().map(|key| (key, true));
        for (key, is_differing) in lacked.chain(differing) {
            let table_key = crate::store::record_key_of(partition.id(), &key);
            let record = store
                .table
                .get(&table_key)
                .map_err(|error| engine_error(shared, &error))?;
            // Gone meanwhile.
            let Some(record) = record else { continue };
            let Ok(context) = Record::decode_context(&record) else {
                // The next read will say so; the other side's record will take its place.
                continue;
            };
            match is_differing || bytes >= ANSWER_BYTES_MAX {
                true => contexts.push(KeyRecord {
                    key,
                    record: context.to_bytes().into(),
                }),
                false => {
                    bytes += record.len();
                    records.push(KeyRecord { key, record });
                }
            }
        }
    }
    Ok(ReplicaReply::Differences {
        records,
        contexts,
        lacking,
    })
}
