//! Answers the comparisons of other replicas: hashes of a partition's tree, and the records of leaves that differ. The
//! node's own comparisons use the same functions.
//!
//! If the other side's tree is deeper than this one, the nodes below this tree's leaves are computed by a scan of their
//! range, which has few keys. The cost of a request is bounded all the same: writers may choose keys by their hashes,
//! and the requesting node may be broken.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::PartitionId;
use fondaco_model::versioned::{HashTree, LEAF_BITS_MIN, Record, record_hash};
use fondaco_protocol::replica::{KeyRecord, LeafDigests, OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply};
use parking_lot::Mutex;

use crate::anti_entropy::exchange::{
    DEPTH_MAX, Hashes, LEAVES_MAX, LeafEntry, NODES_MAX, STEP_BITS, SYNC_DEPTH_MAX, differences, leaf_digest,
};
use crate::anti_entropy::tombstone_collection::is_past;
use crate::partition::Partition;
use crate::reads::give;
use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::shared::{Shared, overloaded};
use crate::store::HeldStore;
use crate::table_key::{parse_record_key, range, within};
use crate::writes::commit::engine_error;

/// How many bytes of records one reply contains; beyond it, only contexts.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How many bytes of contexts a reply contains.
const CONTEXT_BYTES_MAX: usize = 16 << 20;

/// How many records are scanned for nodes below the tree's leaves: once there are more, no further node is answered.
const SCAN_RECORDS_MAX: usize = 1 << 14;

/// How many records may be in the leaves that are compared at a time, on either side: a hundred times as many as is
/// usual.
pub(crate) const SYNC_ENTRIES_MAX: usize = 1 << 17;

/// Answers `FONDACO.RTREE`, on a thread that may block.
pub(crate) fn tree(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: PartitionId,
    depth: u8,
    nodes: Vec<u32>,
    answer: OnReply,
) {
    // Each node once: so together they have no more leaves than the tree.
    if depth > DEPTH_MAX - STEP_BITS || nodes.len() > NODES_MAX || !nodes.is_sorted_by(|a, b| a < b) {
        let message = format!(
            "{} nodes at depth {depth}: request at most {NODES_MAX}, in order, no deeper than {}",
            nodes.len(),
            DEPTH_MAX - STEP_BITS
        );
        return answer(ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::Other, message)));
    }
    on_reader(shared, store, partition, answer, move |shared, store, partition| {
        let Hashes { leaf_depth, nodes } = hashes(shared, store, partition, depth, &nodes)?;
        Ok(ReplicaReply::Hashes {
            leaf_depth,
            nodes,
            is_whole: is_whole(shared, store, partition),
        })
    });
}

/// Answers `FONDACO.RSYNC`, on a thread that may block.
pub(crate) fn sync(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: PartitionId,
    depth: u8,
    leaves: Vec<LeafDigests>,
    answer: OnReply,
) {
    let digests: usize = leaves.iter().map(|leaf| leaf.digests.len()).sum();
    let is_once = leaves.iter().map(|leaf| leaf.leaf).is_sorted_by(|a, b| a < b);
    if !(LEAF_BITS_MIN..=SYNC_DEPTH_MAX).contains(&depth)
        || leaves.len() > LEAVES_MAX
        || digests > SYNC_ENTRIES_MAX
        || !is_once
    {
        let message = format!(
            "{} leaves at depth {depth} with {digests} digests: request at most {LEAVES_MAX}, in order, at depths \
             {LEAF_BITS_MIN} to {SYNC_DEPTH_MAX}, with {SYNC_ENTRIES_MAX} digests",
            leaves.len()
        );
        return answer(ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::Other, message)));
    }
    on_reader(shared, store, partition, answer, move |shared, store, partition| {
        compare(shared, store, partition, depth, &leaves)
    });
}

/// Whether the requesting node receives everything that an owner of the partition has acknowledged. Call it after the
/// records were read: a loss may be found meanwhile.
fn is_whole(shared: &Shared, store: &HeldStore, partition: &Partition) -> bool {
    shared.holding.load().may_tell(store, partition.id())
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
    let answer = Arc::new(Mutex::new(Some(answer)));
    let theirs = Arc::clone(&answer);
    let reading = move || {
        let reply = work(&task_shared, &store, &partition);
        // A node that got an error compares nothing: the partition keeps its turn.
        if reply.is_ok() {
            partition.is_asked(task_shared.host.now());
        }
        give(&theirs, reply.unwrap_or_else(ReplicaReply::Error));
    };
    if shared.readers.run(Box::new(reading)).is_err() {
        let message = "too many reads wait for the disk: compare replicas later";
        give(&answer, ReplicaReply::Error(overloaded(message.to_owned())));
    }
}

/// The hashes below nodes of a partition's tree: of all of them, or, if that would take long, of the first, one at
/// least.
///
/// # Errors
/// `OVERLOADED` while the tree is built, or the error of the engine.
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
    let (leaf_depth, children) = known.ok_or_else(|| tree_is_made(store, partition))?;
    let (mut hashes, mut scanned) = (Vec::with_capacity(nodes.len()), 0);
    for (&node, children) in nodes.iter().zip(children) {
        if scanned > SCAN_RECORDS_MAX {
            break;
        }
        hashes.push(match children {
            Some(children) => children,
            None => scan_children(shared, store, partition, depth, node, &mut scanned)?,
        });
    }
    Ok(Hashes {
        leaf_depth,
        nodes: hashes,
    })
}

fn tree_is_made(store: &HeldStore, partition: &Partition) -> ReplicaError {
    overloaded(format!(
        "the hash tree of partition {} of store {:?} is being built: ask again in a moment",
        partition.id(),
        store.name
    ))
}

fn scan_children(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    node: u32,
    scanned: &mut usize,
) -> Result<[u64; 16], ReplicaError> {
    let mut children = [0; 16];
    scan(shared, store, partition, depth, node.into(), |position, _, record| {
        let child = position >> (64 - depth - STEP_BITS) & 15;
        children[child as usize] ^= record_hash(position, Record::digest(record));
        *scanned += 1;
        Ok(())
    })?;
    Ok(children)
}

/// The records of a leaf.
pub(crate) struct Leaf {
    pub(crate) entries: Vec<LeafEntry>,
    /// Whether all of them can be read.
    pub(crate) is_readable: bool,
}

/// The records of a leaf, if there are not more than `room`.
///
/// # Errors
/// `MORE` if there are more, or the error of the engine.
pub(crate) fn leaf_entries(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    leaf: u64,
    room: usize,
) -> Result<Leaf, ReplicaError> {
    let now_unix_ms = shared.host.unix_ms();
    let (mut entries, mut is_readable) = (Vec::new(), true);
    let damaged = scan(shared, store, partition, depth, leaf, |_, key, record| {
        if entries.len() == room {
            let message = format!(
                "leaf {leaf} of depth {depth} of partition {} of store {:?}, and those compared with it, have \
                 more than {SYNC_ENTRIES_MAX} keys: compare smaller parts",
                partition.id(),
                store.name
            );
            return Err(ReplicaError::new(ReplicaErrorCode::More, message));
        }
        let decoded = Record::decode(record.clone());
        is_readable &= decoded.is_ok();
        entries.push(LeafEntry {
            digest: leaf_digest(&key, Record::digest(record)),
            key,
            is_past: decoded.is_ok_and(|record| is_past(&record, &store.settings, now_unix_ms)),
        });
        Ok(())
    })?;
    Ok(Leaf {
        entries,
        is_readable: is_readable && damaged == 0,
    })
}

/// Calls `each` for the records below a node, with their positions within the partition. Returns how many records, or parts of the table, cannot be read.
fn scan(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    node: u64,
    mut each: impl FnMut(u64, Bytes, &Bytes) -> Result<(), ReplicaError>,
) -> Result<usize, ReplicaError> {
    let (from, to) = range(partition.count(), partition.id(), u32::from(depth), node);
    let mut damaged = 0;
    let failed = |error| engine_error(shared, &error);
    for found in ReadableScan::begin(&store.table, &from, to.as_deref(), RECORD_WIDTH).map_err(failed)? {
        let (table_key, record) = match found.map_err(failed)? {
            Found::Record(table_key, record) => (table_key, record),
            // Not counted, as in the tree.
            Found::Damaged(..) | Found::Gap(_) => {
                damaged += 1;
                continue;
            }
        };
        if let Some((position, key)) = parse_record_key(&table_key) {
            each(within(partition.count(), position), key, &record)?;
        }
    }
    Ok(damaged)
}

/// Compares leaves with the digests of the other side.
fn compare(
    shared: &Shared,
    store: &HeldStore,
    partition: &Partition,
    depth: u8,
    leaves: &[LeafDigests],
) -> Result<ReplicaReply, ReplicaError> {
    // Above the leaves, a node covers many leaves.
    let leaf_depth = partition.with_tree(HashTree::leaf_bits);
    if depth < leaf_depth.ok_or_else(|| tree_is_made(store, partition))? {
        let message = format!(
            "the leaves of partition {} are deeper than {depth}: start the exchange again",
            partition.id()
        );
        return Err(ReplicaError::new(ReplicaErrorCode::Other, message));
    }
    let (mut records, mut contexts, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_readable = true;
    let (mut bytes, mut context_bytes, mut entries) = (0, 0, 0);
    for LeafDigests { leaf, digests } in leaves {
        let own = leaf_entries(shared, store, partition, depth, *leaf, SYNC_ENTRIES_MAX - entries)?;
        entries += own.entries.len();
        is_readable &= own.is_readable;
        let found = differences(&own.entries, digests);
        lacking.extend(found.lacked_here);
        let lacked = found.lacked_there.into_iter().map(|key| (key, false));
        let differing = found.differing.into_iter().map(|key| (key, true));
        for (key, is_differing) in lacked.chain(differing) {
            let table_key = store.record_key(&key);
            let record = store
                .table
                .get(&table_key)
                .map_err(|error| engine_error(shared, &error))?;
            // Deleted meanwhile.
            let Some(record) = record else { continue };
            let Ok(context) = Record::decode_context(&record) else {
                // The next read reports it; the other side's record will replace it.
                is_readable = false;
                continue;
            };
            match is_differing || bytes >= ANSWER_BYTES_MAX {
                true => {
                    let record = Bytes::from(context.to_bytes());
                    context_bytes += key.len() + record.len();
                    if context_bytes > CONTEXT_BYTES_MAX {
                        let message = "the contexts of differing keys are too long for one reply: request fewer leaves";
                        return Err(overloaded(message.to_owned()));
                    }
                    contexts.push(KeyRecord { key, record });
                }
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
        is_whole: is_readable && is_whole(shared, store, partition),
    })
}
