//! The thread that gives up deletions and expired records, once no replica can bring back what they stand for.
//!
//! A record is given up when it has been quiet for the grace period, was found as it is by a sweep before, and
//! since then the partition was compared with all of its other replicas: so all have it. And only while all
//! nodes are there and none keeps a hint that is as old: so nothing older is on its way.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaOperation, ReplicaReply};
use fondaco_model::versioned::{Record, VersionedSettings};

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
    record.is_deleted(now_unix_ms)
        && record.quiet_since_unix_ms().saturating_add(settings.tombstone_grace_ms) <= now_unix_ms
}

/// What a sweep found in a partition.
#[derive(Default)]
struct Found {
    /// When it began, in milliseconds since the process did.
    began_ms: u64,
    /// Digests of records by the hashes of their keys.
    candidates: HashMap<u64, u64>,
}

/// Sweeps until it is told to end.
pub(crate) fn run(shared: &Arc<Shared>, signal: &Signal) {
    let mut pace = Pace::new(shared.options.scan_bytes_per_second);
    let mut found: HashMap<(u16, u32), Found> = HashMap::new();
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
                if let Err(error) = sweep(shared, &holding, store, partition, found, hints, &mut pace, signal) {
                    tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be swept");
                }
            }
            let grace = Duration::from_millis(store.settings.tombstone_grace_ms / SWEEPS_PER_GRACE);
            let period = grace.clamp(shared.options.sweep_period, PERIOD_MAX.max(shared.options.sweep_period));
            next.insert(store.id, Instant::now() + period);
        }
    }
}

/// How old hints may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hints {
    /// A node is not there, or does not say.
    Unknown,
    /// The oldest is of this time, in milliseconds since 1970; `u64::MAX` if there are none.
    Since(u64),
}

/// How old the hints of all nodes are. Asked before the sweep: what is given up was known to all by then.
fn oldest_hint(shared: &Arc<Shared>, holding: &Holding, store: &HeldStore) -> Hints {
    let Some(cluster) = holding.cluster.as_ref().filter(|cluster| !cluster.is_remembered) else {
        return Hints::Unknown;
    };
    let mut oldest = u64::MAX;
    // A node alone has nobody to wait for.
    for (&node, &is_live) in &cluster.nodes {
        if !is_live && node != cluster.node {
            return Hints::Unknown;
        }
        match shared.ask(node, shared.background(store, ReplicaOperation::OldestHint)) {
            Ok(ReplicaReply::OldestHint(unix_ms)) => oldest = oldest.min(unix_ms.unwrap_or(u64::MAX)),
            _ => return Hints::Unknown,
        }
    }
    Hints::Since(oldest)
}

/// Looks through a partition: what was found before and is still so is given up, if it may be.
#[expect(clippy::too_many_arguments, reason = "all of them are parts of one sweep")]
fn sweep(
    shared: &Arc<Shared>,
    holding: &Holding,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    found: &mut Found,
    hints: Hints,
    pace: &mut Pace,
    signal: &Signal,
) -> Result<(), fondaco_client::quorum::ReplicaError> {
    let failed = |error| engine_error(shared, &error);
    let began_ms = shared.now_ms();
    let now_unix_ms = unix_ms();
    let others = holding.others(store, partition.id());
    let exchanged_ms = partition.exchanged_with_all(&others);
    let is_known_to_all = exchanged_ms.is_some_and(|exchanged_ms| exchanged_ms > found.began_ms);
    let mut candidates = HashMap::new();
    let mut given_up: Vec<(Place, Bytes)> = Vec::new();
    let (from, to) = range(partition.id(), 0, 0);
    let mut bytes = 0;
    for entry in store.table.scan(&from, to.as_deref()).map_err(failed)? {
        let (table_key, record) = entry.map_err(failed)?;
        bytes += (table_key.len() + record.len()) as u64;
        if bytes >= STEP_BYTES && !pace.spend(std::mem::take(&mut bytes), signal) {
            return Ok(());
        }
        let (Some((_, hash, key)), Ok(decoded)) = (parse_record_key(&table_key), Record::decode(record.clone())) else {
            continue;
        };
        if !is_past(&decoded, &store.settings, now_unix_ms) {
            continue;
        }
        let digest = Record::digest(&record);
        let was_found = found.candidates.get(&hash) == Some(&digest);
        let is_newer_than_hints = matches!(hints, Hints::Since(oldest) if oldest > decoded.quiet_since_unix_ms());
        match was_found && is_known_to_all && is_newer_than_hints {
            true => given_up.push((place_in(partition, &key), record)),
            false if candidates.len() < CANDIDATES_MAX => drop(candidates.insert(hash, digest)),
            false => {}
        }
        if given_up.len() >= BATCH_RECORDS_MAX {
            collect(shared, store, partition, std::mem::take(&mut given_up))?;
        }
    }
    collect(shared, store, partition, given_up)?;
    shared.metrics.add(ReplicaCounter::Sweeps, 1);
    // Those that wait for an exchange wait since they were found first.
    let still_waits = !is_known_to_all && !found.candidates.is_empty();
    if still_waits {
        found
            .candidates
            .retain(|hash, digest| candidates.get(hash) == Some(digest));
    } else {
        *found = Found { began_ms, candidates };
    }
    Ok(())
}

fn collect(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Partition,
    records: Vec<(Place, Bytes)>,
) -> Result<(), fondaco_client::quorum::ReplicaError> {
    if records.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let answer = Answer::To(Box::new(move |reply| drop(sender.try_send(reply))));
    let shard = shared.shard_of(partition.id());
    shared.enqueue(shard, 0, Some(store), None, Task::Collect(records), answer);
    match receiver.recv() {
        Ok(ReplicaReply::Error(error)) => Err(error),
        _ => Ok(()),
    }
}
