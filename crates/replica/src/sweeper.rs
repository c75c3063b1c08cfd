//! The thread that gives up deletions and expired records, once no replica can bring back what they stand for.
//!
//! A record is given up when it has been quiet for the grace period, was found as it is by a sweep before, and
//! since then the partition was compared with all of its other replicas: so all have it. And only while all
//! nodes are there and none keeps a hint that is as old: so nothing older is on its way.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaError, ReplicaOperation, ReplicaReply};
use fondaco_model::versioned::{Horizon, Record, VersionedSettings};

use crate::answer::Answer;
use crate::commit::{Task, engine_error, unix_ms};
use crate::metrics::ReplicaCounter;
use crate::pace::Pace;
use crate::partition::Partition;
use crate::shared::Shared;
use crate::store::{HeldStore, Holding, Place, place_in};
use crate::table_key::{parse_record_key, range};
use crate::worker::Signal;

/// How many records are remembered from one sweep to the next, of one partition.
const CANDIDATES_MAX: usize = 100_000;

/// How many records are given up at a time.
const BATCH_RECORDS_MAX: usize = 1024;

/// How often a store is swept, as a part of its grace period, but for the limits of the options.
const SWEEPS_PER_GRACE: u64 = 10;

/// The longest time between two sweeps.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// The bytes that are scanned between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// Whether a record has no value any more, and for so long that all replicas may have given it up.
pub(crate) fn is_past(record: &Record, settings: &VersionedSettings, now_unix_ms: u64) -> bool {
    horizon(settings, now_unix_ms).is_past(record)
}

/// What a replica knows that has compared nothing, and of no hints.
fn horizon(settings: &VersionedSettings, now_unix_ms: u64) -> Horizon {
    Horizon {
        now_unix_ms,
        grace_ms: settings.tombstone_grace_ms,
        compared_ms: None,
        oldest_hint_unix_ms: None,
    }
}

/// What sweeps have found in a partition: by the hashes of keys, the digests of records, and when they were found
/// so first, in milliseconds since the process began.
type Candidates = HashMap<u64, (u64, u64)>;

/// Sweeps until it is told to end.
pub(crate) fn run(shared: &Arc<Shared>, signal: &Signal) {
    let mut pace = Pace::new(shared.options.scan_bytes_per_second);
    let mut found: HashMap<(u16, u32), Candidates> = HashMap::new();
    let mut next: HashMap<u16, Instant> = HashMap::new();
    while signal.sleep(shared.options.sweep_period) {
        let holding = shared.holding.load_full();
        found.retain(|(store, partition), _| {
            let store = holding.stores.get(store);
            store.is_some_and(|store| store.partitions.contains_key(partition))
        });
        next.retain(|store, _| holding.stores.contains_key(store));
        for store in holding.stores.values() {
            if next.get(&store.id).is_some_and(|next| *next > Instant::now()) {
                continue;
            }
            let hints = oldest_hint(shared, &holding, store);
            for partition in store.partitions.values() {
                if signal.has_ended() {
                    return;
                }
                let found = found.entry((store.id, partition.id().get())).or_default();
                let horizon = Horizon {
                    compared_ms: partition.exchanged_with_all(&holding.others(store, partition.id())),
                    oldest_hint_unix_ms: hints,
                    ..horizon(&store.settings, unix_ms())
                };
                let pause = |bytes| pace.spend(bytes, signal);
                if let Err(error) = sweep(shared, store, partition, &horizon, found, pause) {
                    tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be swept");
                }
            }
            let grace = Duration::from_millis(store.settings.tombstone_grace_ms / SWEEPS_PER_GRACE);
            let period = grace.clamp(shared.options.sweep_period, PERIOD_MAX.max(shared.options.sweep_period));
            next.insert(store.id, Instant::now() + period);
        }
    }
}

/// The time of the oldest hint that any node keeps; `u64::MAX` if none does, `None` if a node is not there or does
/// not say. Asked before the sweep: what is given up was known to all by then.
fn oldest_hint(shared: &Arc<Shared>, holding: &Holding, store: &HeldStore) -> Option<u64> {
    let cluster = holding.cluster.as_ref().filter(|cluster| !cluster.is_remembered)?;
    let mut oldest = u64::MAX;
    // A node alone has nobody to wait for.
    for (&node, &is_live) in &cluster.nodes {
        if !is_live && node != cluster.node {
            return None;
        }
        match shared.ask(node, shared.background(store, ReplicaOperation::OldestHint)) {
            Ok(ReplicaReply::OldestHint(unix_ms)) => oldest = oldest.min(unix_ms.unwrap_or(u64::MAX)),
            _ => return None,
        }
    }
    Some(oldest)
}

/// Looks through a partition: what was found before and is still so is given up, if it may be.
fn sweep(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    horizon: &Horizon,
    found: &mut Candidates,
    mut pause: impl FnMut(u64) -> bool,
) -> Result<(), ReplicaError> {
    let failed = |error| engine_error(shared, &error);
    let mut candidates = Candidates::new();
    let mut given_up: Vec<(Place, Bytes)> = Vec::new();
    let (from, to) = range(partition.id(), 0, 0);
    let mut bytes = 0;
    let entries = store.table.scan(&from, to.as_deref()).map_err(failed)?;
    // What is found was there by now: a comparison that begins later is of that.
    let now_ms = shared.now_ms();
    for entry in entries {
        let (table_key, record) = entry.map_err(failed)?;
        bytes += (table_key.len() + record.len()) as u64;
        if bytes >= STEP_BYTES && !pause(std::mem::take(&mut bytes)) {
            return Ok(());
        }
        let (Some((_, hash, key)), Ok(decoded)) = (parse_record_key(&table_key), Record::decode(record.clone())) else {
            continue;
        };
        if !horizon.is_past(&decoded) {
            continue;
        }
        let digest = Record::digest(&record);
        let found = found.get(&hash).filter(|(known, _)| *known == digest);
        let found_ms = found.map(|&(_, found_ms)| found_ms);
        match horizon.remembers(&decoded, found_ms) {
            None => given_up.push((place_in(partition, &key), record)),
            Some(_) if candidates.len() < CANDIDATES_MAX => {
                candidates.insert(hash, (digest, found_ms.unwrap_or(now_ms)));
            }
            Some(_) => {}
        }
        if given_up.len() >= BATCH_RECORDS_MAX {
            collect(shared, store, partition, std::mem::take(&mut given_up))?;
        }
    }
    collect(shared, store, partition, given_up)?;
    shared.metrics.add(ReplicaCounter::Sweeps, 1);
    *found = candidates;
    Ok(())
}

fn collect(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Partition,
    records: Vec<(Place, Bytes)>,
) -> Result<(), ReplicaError> {
    if records.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let answer = Answer::to(Box::new(move |reply| drop(sender.try_send(reply))));
    let shard = shared.shard_of(partition.id());
    shared.enqueue(shard, 0, Some(store), None, Task::Collect(records), answer);
    match receiver.recv() {
        Ok(ReplicaReply::Error(error)) => Err(error),
        _ => Ok(()),
    }
}
