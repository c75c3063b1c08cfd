//! The chore of tombstone garbage collection: deletes tombstones and expired records, once no replica can bring the old
//! values back.
//!
//! A record is collected when it is older than the grace period, an earlier sweep found it in the same state, and since
//! then the partition was compared with all of its other replicas: so all have it. Besides, all nodes must be live and
//! none may keep a hint that is as old: so no older write is still in flight.
//!
//! Expired values are dropped long before: only the record that there was a value stays for the grace period. Dropping
//! a value cannot be undone, so it uses the slowest clock of all nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_model::versioned::{Horizon, Record, VersionedSettings};
use fondaco_protocol::replica::{ReplicaError, ReplicaOperation, ReplicaReply};

use crate::background::Background;
use crate::metrics::ReplicaCounter;
use crate::partition::Partition;
use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::shared::Shared;
use crate::store::{HeldStore, Holding, Place};
use crate::table_key::{parse_record_key, range};
use crate::writes::commit::{Task, engine_error};

/// How long expired values are kept.
const EXPIRED_KEPT_MS: u64 = 3_600_000;

/// How many records are collected, or lose a value, at a time.
const BATCH_RECORDS_MAX: usize = 1024;

/// How many bytes of records are written at a time, unless a single one is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How often a store is swept per grace period, within the limits of the options.
const SWEEPS_PER_GRACE: u64 = 10;

/// The longest time between two sweeps.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// The bytes that are scanned between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// Whether a record has had no value for so long that all replicas may have collected it.
pub(crate) fn is_past(record: &Record, settings: &VersionedSettings, now_unix_ms: u64) -> bool {
    horizon(settings, now_unix_ms).is_past(record)
}

/// The horizon of a replica that has compared nothing, and knows of no hints.
fn horizon(settings: &VersionedSettings, now_unix_ms: u64) -> Horizon {
    Horizon {
        now_unix_ms,
        grace_ms: settings.tombstone_grace_ms,
        compared_ms: None,
        oldest_hint_unix_ms: None,
    }
}

/// The findings of sweeps in a partition: by the hash of the key, the digest of the record, and when it was first found
/// with that digest, in milliseconds since the process began.
type Candidates = HashMap<u64, (u64, u64)>;

/// Sweeps until it is ended.
pub(crate) async fn run(mut background: Background) {
    let background = &mut background;
    let shared = &Arc::clone(&background.shared);
    let mut found: HashMap<(u16, u32), Candidates> = HashMap::new();
    // When each store was last swept, and whether all candidates could be remembered.
    let mut swept: HashMap<u16, (Instant, bool)> = HashMap::new();
    while background.sleep(shared.options.sweep_period).await {
        let holding = shared.holding.load_full();
        found.retain(|(store, partition), _| {
            let store = holding.stores.get(store);
            store.is_some_and(|store| store.partitions.contains_key(partition))
        });
        swept.retain(|store, _| holding.stores.contains_key(store));
        let partitions: usize = holding.stores.values().map(|store| store.partitions.len()).sum();
        let candidates_max = (shared.options.sweep_records_max / partitions.max(1)).max(1);
        for store in holding.stores.values() {
            // By the present settings: an operator may have shortened the grace period since.
            let is_due = |(swept, is_all): &(Instant, bool)| {
                let least = shared.options.sweep_period;
                shared.host.now() - *swept >= if *is_all { period(&store.settings, least) } else { least }
            };
            if !swept.get(&store.id).is_none_or(is_due) {
                continue;
            }
            let heard = ask_all(background, &holding, store).await;
            let mut is_all = true;
            for partition in store.partitions.values() {
                if background.has_ended() {
                    return;
                }
                let found = found.entry((store.id, partition.id().get())).or_default();
                let horizon = Horizon {
                    compared_ms: partition.exchanged_with_all(&holding.others(store, partition.id())),
                    oldest_hint_unix_ms: heard.oldest_hint_unix_ms,
                    ..horizon(&store.settings, heard.now_unix_ms.unwrap_or(0))
                };
                let mut sweep = Sweep {
                    background: &mut *background,
                    shared,
                    store,
                    partition,
                    horizon,
                    candidates_max,
                    candidates: Candidates::new(),
                    is_all: true,
                };
                match sweep.run(found).await {
                    Ok(()) => is_all &= sweep.is_all,
                    Err(error) => {
                        tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be swept");
                    }
                }
            }
            // Candidates that could not be remembered are found again.
            swept.insert(store.id, (shared.host.now(), is_all));
        }
    }
}

/// The time from a sweep of a store to the next one.
fn period(settings: &VersionedSettings, least: Duration) -> Duration {
    let grace_ms = settings.tombstone_grace_ms / SWEEPS_PER_GRACE;
    let period = Duration::from_millis(grace_ms.min(settings.ttl_ms.unwrap_or(u64::MAX)));
    period.clamp(least, PERIOD_MAX.max(least))
}

/// The hints and clocks of all nodes, requested before the sweep: a record is collected only if all knew of it by then.
struct Heard {
    /// The time of the oldest hint that any node keeps; `u64::MAX` without hints, `None` if a node is absent or does
    /// not answer.
    oldest_hint_unix_ms: Option<u64>,
    /// The earliest time of all nodes; `None` if there are other nodes and none answers.
    now_unix_ms: Option<u64>,
}

async fn ask_all(background: &Background, holding: &Holding, store: &HeldStore) -> Heard {
    let shared = &background.shared;
    let nothing = Heard {
        oldest_hint_unix_ms: None,
        now_unix_ms: None,
    };
    let Some(cluster) = holding.cluster.as_ref().filter(|cluster| !cluster.is_remembered) else {
        return nothing;
    };
    let (mut oldest, mut now, mut is_alone) = (Some(u64::MAX), None, true);
    for (&node, &is_live) in &cluster.nodes {
        is_alone &= node == cluster.node;
        if !is_live && node != cluster.node {
            oldest = None;
            continue;
        }
        let request = shared.background(store, ReplicaOperation::OldestHint);
        match background.ask(node, request).await {
            Ok(ReplicaReply::OldestHint {
                now_unix_ms,
                oldest_unix_ms,
            }) => {
                oldest = oldest.map(|oldest: u64| oldest.min(oldest_unix_ms.unwrap_or(u64::MAX)));
                if node != cluster.node {
                    now = Some(now.map_or(now_unix_ms, |now: u64| now.min(now_unix_ms)));
                }
            }
            _ => oldest = None,
        }
    }
    let own_unix_ms = shared.host.unix_ms();
    Heard {
        oldest_hint_unix_ms: oldest,
        // A single node has no other to wait for.
        now_unix_ms: now.map(|now| now.min(own_unix_ms)).or(is_alone.then_some(own_unix_ms)),
    }
}

/// A sweep through a partition.
struct Sweep<'a> {
    background: &'a mut Background,
    shared: &'a Arc<Shared>,
    store: &'a Arc<HeldStore>,
    partition: &'a Arc<Partition>,
    horizon: Horizon,
    /// How many candidates may be remembered.
    candidates_max: usize,
    /// The candidates of this sweep.
    candidates: Candidates,
    /// Whether all candidates were remembered.
    is_all: bool,
}

impl Sweep<'_> {
    /// Collects the candidates of earlier sweeps that are unchanged, if that is allowed.
    async fn run(&mut self, found: &mut Candidates) -> Result<(), ReplicaError> {
        let failed = |error| engine_error(self.shared, &error);
        let (mut given_up, mut expired) = (Vec::new(), Vec::new());
        let (from, to) = range(self.partition.count(), self.partition.id(), 0, 0);
        let (mut bytes, mut waiting_bytes) = (0, 0);
        let entries = ReadableScan::begin(&self.store.table, &from, to.as_deref(), RECORD_WIDTH).map_err(failed)?;
        // Findings are in the table by now: a comparison that begins later covers them.
        let now_ms = self.shared.now_ms();
        let expired_unix_ms = self.horizon.now_unix_ms.saturating_sub(EXPIRED_KEPT_MS);
        let (mut expiring, now_unix_ms) = (0, self.shared.host.unix_ms());
        for entry in entries {
            let Found::Record(table_key, record) = entry.map_err(failed)? else {
                continue;
            };
            bytes += (table_key.len() + record.len()) as u64;
            if bytes >= STEP_BYTES && !self.background.spend(std::mem::take(&mut bytes)).await {
                return Ok(());
            }
            let (Some((position, key)), Ok(decoded)) = (parse_record_key(&table_key), Record::decode(record.clone()))
            else {
                continue;
            };
            expiring += u64::from(decoded.next_expiry_unix_ms().is_some_and(|end| end > now_unix_ms));
            match self.horizon.is_past(&decoded) {
                true => {
                    let found = found.get(&position).copied();
                    if self.is_to_go(position, &decoded, Record::digest(&record), found, now_ms) {
                        waiting_bytes += record.len();
                        given_up.push((self.store.place_in(self.partition, &key), record));
                    }
                }
                false => {
                    if let Some(dropped) = decoded.without_expired(expired_unix_ms) {
                        let dropped = Bytes::from(dropped.to_bytes());
                        waiting_bytes += dropped.len();
                        expired.push((self.store.place_in(self.partition, &key), dropped));
                    }
                }
            }
            if given_up.len() + expired.len() >= BATCH_RECORDS_MAX || waiting_bytes >= BATCH_BYTES_MAX {
                waiting_bytes = 0;
                self.give_up(std::mem::take(&mut given_up)).await?;
                self.drop_values(std::mem::take(&mut expired)).await?;
            }
        }
        self.partition.swept(expiring);
        self.give_up(given_up).await?;
        self.drop_values(expired).await?;
        self.shared.metrics.add(ReplicaCounter::Sweeps, 1);
        *found = std::mem::take(&mut self.candidates);
        Ok(())
    }

    /// Whether a record is to be collected; if not, it is remembered.
    fn is_to_go(
        &mut self,
        position: u64,
        record: &Record,
        digest: u64,
        found: Option<(u64, u64)>,
        now_ms: u64,
    ) -> bool {
        let found_ms = found
            .filter(|(known, _)| *known == digest)
            .map(|(_, found_ms)| found_ms);
        if self.horizon.remembers(record, found_ms).is_none() {
            return true;
        }
        match self.candidates.len() < self.candidates_max {
            true => drop(self.candidates.insert(position, (digest, found_ms.unwrap_or(now_ms)))),
            false => self.is_all = false,
        }
        false
    }

    /// Deletes records, if they are unchanged.
    async fn give_up(&self, records: Vec<(Place, Bytes)>) -> Result<(), ReplicaError> {
        match records.is_empty() {
            true => Ok(()),
            false => self.write(Task::Collect(records)).await,
        }
    }

    /// Drops expired values: the records without them are merged into the table, like those of other replicas.
    async fn drop_values(&self, records: Vec<(Place, Bytes)>) -> Result<(), ReplicaError> {
        self.shared.metrics.add(ReplicaCounter::Expired, records.len() as u64);
        match records.is_empty() {
            true => Ok(()),
            false => self.write(Task::Expire(records)).await,
        }
    }

    async fn write(&self, task: Task) -> Result<(), ReplicaError> {
        let shard = self.shared.shard_of(self.partition);
        self.background.commit(shard, Some(self.store), task).await
    }
}
