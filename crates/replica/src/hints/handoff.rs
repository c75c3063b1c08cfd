//! The chore of hinted handoff: delivers hints to their nodes, once these are live.
//!
//! A hint is deleted when its node has the record, with the durability of the store, and the hint was not changed
//! meanwhile. A hint for a node that no longer owns the partition goes to the owners instead: it may be the only copy
//! of an acknowledged write. A hint is dropped undelivered only with its store.
//!
//! No hint waits for another. A batch that a node refuses is halved until the refused hints are known; they are kept,
//! and those behind them go on. Damaged hints are dropped: other replicas have their records, and this node compares
//! its partitions with the node that they were for. If a node accepts nothing at all, the next try begins behind the
//! refused hints.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::EngineError;
use fondaco_model::versioned::Record;
use fondaco_model::{NodeId, SLOT_BITS};
use fondaco_protocol::replica::{KeyRecord, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply};

use crate::background::Background;
use crate::hints::retries::{Known, Troubles, Undelivered};
use crate::metrics::ReplicaCounter;
use crate::peers::unexpected;
use crate::reads::scanning::{Found, Gap, HINT_WIDTH, ReadableScan};
use crate::shared::Shared;
use crate::store::{HeldStore, Holding};
use crate::table_key::{HintKey, StoreIdentity, hints_of, parse_hint_key};
use crate::writes::commit::{Task, is_damaged};

/// How many hints are read at a time.
const BATCH_HINTS_MAX: usize = 256;

/// How many bytes of records are read at a time, unless a single one is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A hint as it was read.
struct Hint {
    table_key: Bytes,
    key: HintKey,
    record: Bytes,
}

/// The outcome of delivering some hints.
#[derive(Default)]
struct Handed {
    /// How many need not be delivered any more.
    done: usize,
    /// Why some were refused, and are kept.
    refused: Option<ReplicaError>,
    /// Whether some wait for an absent node.
    is_away: bool,
}

/// Delivers hints until it is ended.
pub(crate) async fn run(mut background: Background) {
    let background = &mut background;
    let shared = &Arc::clone(&background.shared);
    let mut troubles = Troubles::default();
    let mut is_known = false;
    loop {
        if !is_known {
            match look_through(background).await {
                Ok(()) => is_known = true,
                Err(error) => tracing::warn!(%error, "hints cannot be scanned"),
            }
        }
        for (node, added) in shared.hint_book.nodes() {
            if background.has_ended() {
                return;
            }
            let known = Known::of(&shared.holding.load());
            if !troubles.is_due(node, &known, shared.host.now()) {
                continue;
            }
            let mut from = troubles.from(node);
            match deliver(background, node, added, &mut from).await {
                Ok(()) => troubles.is_over(node),
                Err(why) => {
                    if let Undelivered::Failed(error) = &why {
                        tracing::debug!(%node, %error, "hints cannot be delivered yet");
                    }
                    troubles.add(node, &why, known, from, shared.host.now());
                }
            }
        }
        if !background.sleep(shared.options.handoff_period).await {
            return;
        }
    }
}

/// Rebuilds the book of hints from the hints of an earlier run.
async fn look_through(background: &mut Background) -> Result<(), EngineError> {
    let shared = &Arc::clone(&background.shared);
    for found in ReadableScan::begin(&shared.hints, &[], None, HINT_WIDTH)? {
        let (table_key, record) = match found? {
            Found::Record(table_key, record) => (table_key, record),
            // It is dropped when the hints of its node are delivered.
            Found::Damaged(table_key, _) => (table_key, Bytes::new()),
            Found::Gap(gap) => {
                unreadable(shared, &gap);
                continue;
            }
        };
        let bytes = table_key.len() + record.len();
        if let Some(key) = parse_hint_key(&table_key) {
            let oldest_unix_ms = match Record::decode(record.clone()) {
                Ok(record) => record.oldest_unix_ms(),
                Err(_) if is_damaged(&record) => u64::MAX,
                Err(_) => 0,
            };
            shared.hint_book.add(key.node, oldest_unix_ms);
        }
        if !background.spend(bytes as u64).await {
            return Ok(());
        }
    }
    shared.hint_book.known();
    Ok(())
}

/// Delivers all hints for a node, if it is live; hints whose owner has changed go elsewhere in any case. It begins at
/// `from`, wraps around to it, and returns where to begin next time.
async fn deliver(
    background: &mut Background,
    node: NodeId,
    added: u64,
    from: &mut Option<Bytes>,
) -> Result<(), Undelivered> {
    let shared = &Arc::clone(&background.shared);
    let (first, end) = hints_of(node);
    let begun = from.take().filter(|from| *from > first).unwrap_or(first.clone());
    let (mut is_empty, mut outcome) = (true, Ok(()));
    for (mut at, to) in [(begun.clone(), end), (first, Some(begun))] {
        while !background.has_ended() && to.as_ref().is_none_or(|to| at < *to) {
            let Batch {
                hints: batch,
                damaged,
                next,
            } = read(shared, &at, to.as_deref())?;
            let bytes: usize = batch.iter().map(|hint| hint.record.len()).sum();
            drop_damaged(background, node, damaged).await?;
            is_empty &= batch.is_empty();
            *from = next.clone();
            let handed = hand_over(background, node, batch).await?;
            match handed.refused {
                Some(error) if handed.done == 0 => return Err(Undelivered::Failed(error)),
                Some(error) => outcome = Err(Undelivered::Failed(error)),
                None if handed.is_away && outcome.is_ok() => outcome = Err(Undelivered::Away),
                None => {}
            }
            if !background.spend(bytes as u64).await {
                return Ok(());
            }
            let Some(next) = next else { break };
            at = next;
        }
    }
    *from = None;
    if is_empty {
        shared.hint_book.none_for(node, added);
    }
    outcome
}

/// Whether an error concerns some records only, and others can still be delivered.
fn is_of_some(error: &ReplicaError) -> bool {
    use ReplicaErrorCode as Code;
    matches!(
        error.code,
        Code::NoStore | Code::NotHere | Code::BadKey | Code::Corrupt | Code::Other
    )
}

/// Some of the hints in a range of the table.
#[derive(Default)]
struct Batch {
    hints: Vec<Hint>,
    /// The keys of damaged hints.
    damaged: Vec<Bytes>,
    /// Where the next ones begin; `None` if there are none.
    next: Option<Bytes>,
}

fn read(shared: &Shared, from: &[u8], to: Option<&[u8]>) -> Result<Batch, ReplicaError> {
    let failed = |error| crate::writes::commit::engine_error(shared, &error);
    let (mut batch, mut bytes) = (Batch::default(), 0);
    for found in ReadableScan::begin(&shared.hints, from, to, HINT_WIDTH).map_err(failed)? {
        let (table_key, record) = match found.map_err(failed)? {
            Found::Record(table_key, record) => (table_key, record),
            Found::Damaged(table_key, error) => {
                tracing::error!(%error, "a hint cannot be read");
                (table_key, Bytes::new())
            }
            Found::Gap(gap) => {
                unreadable(shared, &gap);
                batch.next = gap.to;
                continue;
            }
        };
        bytes += record.len();
        // The smallest key after it.
        batch.next = Some([&table_key[..], &[0]].concat().into());
        match parse_hint_key(&table_key) {
            Some(_) if is_damaged(&record) => batch.damaged.push(table_key),
            Some(key) => batch.hints.push(Hint { table_key, key, record }),
            None => {}
        }
        if batch.hints.len() + batch.damaged.len() >= BATCH_HINTS_MAX || bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    Ok(batch)
}

/// Logs hints whose keys cannot be read.
fn unreadable(shared: &Shared, gap: &Gap) {
    shared.metrics.add(ReplicaCounter::Corruptions, 1);
    tracing::error!(from = ?gap.from, to = ?gap.to, error = %gap.error, "hints cannot be read: their records have to come from the other replicas");
}

/// Drops damaged hints for a node, and makes anti-entropy compare partitions with that node instead.
async fn drop_damaged(background: &Background, node: NodeId, damaged: Vec<Bytes>) -> Result<(), ReplicaError> {
    let shared = &background.shared;
    let mut by_shard: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
    for table_key in damaged {
        let Some(key) = parse_hint_key(&table_key) else {
            continue;
        };
        tracing::error!(
            %node, store = key.store.id, slot = key.position >> (64 - SLOT_BITS), key = ?key.key,
            "a damaged hint is dropped: anti-entropy restores its record from the other replicas"
        );
        by_shard
            .entry(shared.shard_at(key.position))
            .or_default()
            .push(table_key);
    }
    if by_shard.is_empty() {
        return Ok(());
    }
    for (shard, keys) in by_shard {
        background.commit(shard, None, Task::DropDamagedHints(keys)).await?;
    }
    shared.compare_with(node);
    Ok(())
}

/// Delivers a batch, store by store, to the node that it is for or to the present owners of the partitions.
///
/// # Errors
/// Why a node accepts no hints at all.
async fn hand_over(background: &Background, node: NodeId, batch: Vec<Hint>) -> Result<Handed, ReplicaError> {
    let holding = background.shared.holding.load_full();
    let mut to_send: BTreeMap<(StoreIdentity, NodeId), Vec<Hint>> = BTreeMap::new();
    let mut to_drop = Vec::new();
    let mut handed = Handed::default();
    for hint in batch {
        match destination(&holding, node, &hint.key) {
            Destination::Node(node) => to_send.entry((hint.key.store, node)).or_default().push(hint),
            Destination::Nowhere => to_drop.push(hint),
            Destination::Away => handed.is_away = true,
            Destination::Unopened => {
                let reason = format!("store {} cannot be opened here", hint.key.store.id);
                handed.refused = Some(ReplicaError::new(ReplicaErrorCode::NoStore, reason));
            }
        }
    }
    if !to_drop.is_empty() {
        tracing::info!(count = to_drop.len(), %node, "hints of stores that were dropped are dropped");
        handed.done += to_drop.len();
        delivered(background, to_drop).await?;
    }
    for ((store, node), hints) in to_send {
        if let Some(store) = holding.store_of(store) {
            send(background, store, node, hints, &mut handed).await?;
        }
    }
    Ok(handed)
}

/// Sends hints of a store to a node. If it refuses them, sends each half separately.
async fn send(
    background: &Background,
    store: &HeldStore,
    node: NodeId,
    hints: Vec<Hint>,
    handed: &mut Handed,
) -> Result<(), ReplicaError> {
    let shared = &background.shared;
    let pair = |hint: &Hint| KeyRecord {
        key: hint.key.key.clone(),
        record: hint.record.clone(),
    };
    let mut to_send = vec![hints];
    while let Some(mut hints) = to_send.pop() {
        let records: Vec<KeyRecord> = hints.iter().map(pair).collect();
        let bytes: usize = records.iter().map(|pair| pair.record.len()).sum();
        let request = shared.background(store, ReplicaOperation::Merge { records });
        let error = match background.ask(node, request).await {
            Ok(ReplicaReply::Done) => {
                shared.metrics.add(ReplicaCounter::HintsDelivered, hints.len() as u64);
                shared.metrics.add(ReplicaCounter::HintBytes, bytes as u64);
                handed.done += hints.len();
                delivered(background, hints).await?;
                continue;
            }
            Ok(_) => unexpected(node),
            Err(error) if !is_of_some(&error) => return Err(error),
            Err(error) => error,
        };
        // The node knows the store for all hints or for none.
        if hints.len() == 1 || error.code == ReplicaErrorCode::NoStore {
            tracing::warn!(store = %store.name, %node, count = hints.len(), %error, "hints were refused, and are kept");
            handed.refused = Some(error);
            continue;
        }
        to_send.push(hints.split_off(hints.len() / 2));
        to_send.push(hints);
    }
    Ok(())
}

/// Where a hint should go.
enum Destination {
    Node(NodeId),
    /// To an absent node.
    Away,
    /// Its store exists, but cannot be opened here.
    Unopened,
    /// Its store was dropped.
    Nowhere,
}

fn destination(holding: &Holding, node: NodeId, hint: &HintKey) -> Destination {
    let Some(cluster) = &holding.cluster else {
        return Destination::Away;
    };
    let Some(store) = holding.store_of(hint.store) else {
        return match () {
            () if cluster.stores.contains(&hint.store) || cluster.kept.contains(&hint.store) => Destination::Unopened,
            () if cluster.is_remembered => Destination::Away,
            () => Destination::Nowhere,
        };
    };
    let partition = holding.partition_at(hint.position);
    if cluster.table.holds(node, partition, store.copies) {
        return match holding.is_live(node) {
            true => Destination::Node(node),
            false => Destination::Away,
        };
    }
    let owners = holding.owners(store, partition);
    let live = owners
        .iter()
        .find(|&&owner| owner == cluster.node || holding.is_live(owner));
    live.map_or(Destination::Away, |&owner| Destination::Node(owner))
}

/// Deletes hints that need not be delivered any more, if they are unchanged.
async fn delivered(background: &Background, hints: Vec<Hint>) -> Result<(), ReplicaError> {
    let mut by_shard: BTreeMap<usize, Vec<(Bytes, Bytes)>> = BTreeMap::new();
    for hint in hints {
        let shard = background.shared.shard_at(hint.key.position);
        by_shard.entry(shard).or_default().push((hint.table_key, hint.record));
    }
    for (shard, hints) in by_shard {
        background.commit(shard, None, Task::Delivered(hints)).await?;
    }
    Ok(())
}
