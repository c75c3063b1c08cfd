//! The thread that compares partitions with their other replicas, and deletes those that are no longer held.
//!
//! Each partition has its turn once a period, with the replica that it was compared with longest ago; with one
//! that came back, at once. A partition that the node no longer holds is compared with all of its owners, and
//! then deleted: nothing that only this node had is lost with it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::quorum::{
    KeyRecord, LeafDigests, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply,
};
use fondaco_model::NodeId;
use fondaco_model::versioned::{Record, VectorClock};

use crate::answer::Answer;
use crate::commit::{Task, engine_error};
use crate::exchange::{Exchange, Hashes, LeafEntry, Own, Step};
use crate::metrics::ReplicaCounter;
use crate::pace::Pace;
use crate::partition::Partition;
use crate::peers::unexpected;
use crate::serving::{hashes, leaf_entries};
use crate::shared::Shared;
use crate::store::{HeldStore, Holding, record_key_of};
use crate::table_key::range;
use crate::worker::Signal;

/// The longest that it sleeps before it looks again whose turn it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How soon an exchange that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// How many bytes of records one request brings.
const GIVE_BYTES_MAX: usize = 1 << 20;

/// How many keys of a partition that is no longer held are deleted at a time.
const CLEAR_KEYS: usize = 1024;

/// When partitions have their turns.
#[derive(Default)]
struct Turns {
    /// The next turn of each partition of each store.
    next: HashMap<(u16, u32), Instant>,
    /// Comparisons that are due besides: with nodes that came back, and those that failed.
    owed: HashMap<(u16, u32, NodeId), Instant>,
}

/// Compares partitions until it is told to end.
pub(crate) fn run(shared: &Arc<Shared>, signal: &Signal) {
    let mut pace = Pace::new(shared.options.exchange_bytes_per_second);
    let mut turns = Turns::default();
    loop {
        let holding = shared.holding.load_full();
        turns.forget_others(&holding);
        turns.owe(&holding, &shared.take_returned());
        for store in holding.stores.values() {
            for partition in store.partitions.values() {
                if signal.has_ended() {
                    return;
                }
                for peer in turns.whose(shared, &holding, store, partition) {
                    let outcome = exchange(shared, store, partition, peer, &mut pace, signal);
                    turns.had(&holding, store, partition, peer, outcome.is_ok());
                }
            }
            for partition in store.surplus.iter() {
                give_away(shared, &holding, store, partition, &mut pace, signal);
            }
        }
        drop(holding);
        if !signal.sleep(LOOK_EVERY) {
            return;
        }
    }
}

impl Turns {
    /// Nodes came back: all partitions are to be compared with them. Both sides see the other return, and one of
    /// them is enough.
    fn owe(&mut self, holding: &Holding, returned: &BTreeSet<NodeId>) {
        let own = holding.cluster.as_ref().map(|cluster| cluster.node);
        if returned.is_empty() {
            return;
        }
        for store in holding.stores.values() {
            for partition in store.partitions.values() {
                let others = holding.others(store, partition.id());
                for node in others
                    .into_iter()
                    .filter(|node| returned.contains(node) && own < Some(*node))
                {
                    self.owed.insert((store.id, partition.id().get(), node), Instant::now());
                }
            }
        }
    }

    /// With whom a partition is to be compared now.
    fn whose(
        &mut self,
        shared: &Shared,
        holding: &Holding,
        store: &HeldStore,
        partition: &Partition,
    ) -> BTreeSet<NodeId> {
        let now = Instant::now();
        let id = partition.id();
        let others = holding.others(store, id);
        let live: Vec<NodeId> = others.into_iter().filter(|&node| holding.is_live(node)).collect();
        let is_due = |node: &NodeId| {
            let owed = self.owed.get(&(store.id, id.get(), *node));
            owed.is_some_and(|owed| *owed <= now)
        };
        let mut due: BTreeSet<NodeId> = live.iter().copied().filter(is_due).collect();
        let first = || match holding.is_synchronised(store, partition) {
            // Not all at the same time.
            true => now + shared.options.exchange_period.mul_f64(fastrand::f64()),
            false => now,
        };
        let turn = self.next.entry((store.id, id.get())).or_insert_with(first);
        if *turn <= now {
            *turn = now + shared.options.exchange_period.mul_f64(fastrand::f64() / 2.0 + 0.75);
            // One that it was never compared with comes first.
            let began_ms = |&node: &NodeId| partition.exchanged_with(node).map_or(0, |began_ms| began_ms + 1);
            due.extend(live.into_iter().min_by_key(began_ms));
        }
        due
    }

    /// A partition was compared with that of a node, or could not be.
    fn had(&mut self, holding: &Holding, store: &HeldStore, partition: &Partition, peer: NodeId, is_done: bool) {
        let id = partition.id().get();
        let owed = (store.id, id, peer);
        match is_done {
            true => drop(self.owed.remove(&owed)),
            false => drop(self.owed.insert(owed, Instant::now() + RETRY)),
        }
        // A plan waits for it: the next one of the owners.
        if is_done && !holding.is_synchronised(store, partition) {
            self.next.insert((store.id, id), Instant::now());
        }
    }

    fn forget_others(&mut self, holding: &Holding) {
        let is_held = |store: &u16, partition: &u32| {
            let store = holding.stores.get(store);
            store.is_some_and(|store| store.partitions.contains_key(partition))
        };
        self.next.retain(|(store, partition), _| is_held(store, partition));
        self.owed.retain(|(store, partition, _), _| is_held(store, partition));
    }
}

/// An exchange under way.
struct Running<'a> {
    shared: &'a Arc<Shared>,
    store: &'a HeldStore,
    partition: &'a Partition,
    peer: NodeId,
    /// What was sent and received since the last pause.
    bytes: u64,
}

/// Compares a partition with that of another node, until both have the same.
fn exchange(
    shared: &Arc<Shared>,
    store: &HeldStore,
    partition: &Partition,
    peer: NodeId,
    pace: &mut Pace,
    signal: &Signal,
) -> Result<(), ReplicaError> {
    let began_ms = shared.now_ms();
    let mut running = Running {
        shared,
        store,
        partition,
        peer,
        bytes: 0,
    };
    let outcome = running.run(pace, signal);
    match &outcome {
        Ok(()) => {
            partition.exchanged(peer, began_ms);
            shared.metrics.add(ReplicaCounter::Exchanges, 1);
        }
        Err(error) => {
            tracing::debug!(store = %store.name, partition = %partition.id(), %peer, %error, "an exchange failed");
            shared.metrics.add(ReplicaCounter::ExchangeFailures, 1);
        }
    }
    outcome
}

impl Running<'_> {
    fn run(&mut self, pace: &mut Pace, signal: &Signal) -> Result<(), ReplicaError> {
        let mut exchange = Exchange::new();
        loop {
            match exchange.step() {
                Step::Compare { depth, nodes } => {
                    let theirs = self.ask_hashes(depth, &nodes)?;
                    let own = hashes(self.shared, self.store, self.partition, depth, &nodes)?;
                    exchange.compared(depth, &nodes, &own, &theirs);
                }
                Step::Sync { depth, leaves } => self.sync(&mut exchange, depth, &leaves)?,
                Step::Get { keys } => self.get(keys)?,
                Step::Give { keys } => self.give(keys)?,
                Step::Done => return Ok(()),
            }
            self.shared.metrics.add(ReplicaCounter::ExchangeBytes, self.bytes);
            if !pace.spend(std::mem::take(&mut self.bytes), signal) {
                return Err(ReplicaError::new(ReplicaErrorCode::Other, "this process ends"));
            }
        }
    }

    fn ask(&self, operation: ReplicaOperation) -> Result<ReplicaReply, ReplicaError> {
        self.shared
            .ask(self.peer, self.shared.background(self.store, operation))
    }

    fn ask_hashes(&mut self, depth: u8, nodes: &[u32]) -> Result<Hashes, ReplicaError> {
        let operation = ReplicaOperation::Tree {
            partition: self.partition.id(),
            depth,
            nodes: nodes.to_vec(),
        };
        match self.ask(operation)? {
            ReplicaReply::Hashes {
                leaf_depth,
                nodes: hashes,
            } => {
                self.bytes += (4 * nodes.len() + 128 * hashes.len()) as u64;
                Ok(Hashes {
                    leaf_depth,
                    nodes: hashes,
                })
            }
            _ => Err(unexpected(self.peer)),
        }
    }

    fn sync(&mut self, exchange: &mut Exchange, depth: u8, leaves: &[u32]) -> Result<(), ReplicaError> {
        let mut own: Vec<LeafEntry> = Vec::new();
        let mut digests = Vec::with_capacity(leaves.len());
        for &leaf in leaves {
            let entries = leaf_entries(self.shared, self.store, self.partition.id(), depth, leaf)?;
            digests.push(LeafDigests {
                leaf,
                digests: entries.iter().map(|entry| entry.digest).collect(),
            });
            own.extend(entries);
        }
        self.bytes += (4 * leaves.len() + 8 * own.len()) as u64;
        let operation = ReplicaOperation::Sync {
            partition: self.partition.id(),
            depth,
            leaves: digests,
        };
        let ReplicaReply::Differences {
            records,
            contexts,
            lacking,
        } = self.ask(operation)?
        else {
            return Err(unexpected(self.peer));
        };
        self.bytes += pairs_bytes(&records) + pairs_bytes(&contexts) + 8 * lacking.len() as u64;
        self.merge(records)?;
        let differing: Vec<(Bytes, Own)> = contexts.into_iter().map(|pair| self.compared(pair)).collect();
        exchange.synced(&own, differing, &lacking);
        Ok(())
    }

    /// How one's own context of a key stands to the other's.
    fn compared(&self, KeyRecord { key, record }: KeyRecord) -> (Bytes, Own) {
        let own = self.record(&key).ok().flatten();
        let own = own.and_then(|own| Record::decode_context(&own).ok());
        let verdict = match (own, VectorClock::decode(&record)) {
            (Some(own), Ok(theirs)) => Own::Context(own.compare(&theirs)),
            _ => Own::Missing,
        };
        (key, verdict)
    }

    fn get(&mut self, keys: Vec<Bytes>) -> Result<(), ReplicaError> {
        let operation = ReplicaOperation::Get {
            part: RecordPart::Full,
            keys: keys.clone(),
        };
        let ReplicaReply::Records(records) = self.ask(operation)? else {
            return Err(unexpected(self.peer));
        };
        let pairs = keys.into_iter().zip(records).filter_map(|(key, record)| {
            let record = record.ok().flatten()?;
            Some(KeyRecord { key, record })
        });
        let pairs: Vec<KeyRecord> = pairs.collect();
        self.bytes += pairs_bytes(&pairs);
        self.merge(pairs)
    }

    /// Merges what the other has into one's own.
    fn merge(&self, records: Vec<KeyRecord>) -> Result<(), ReplicaError> {
        // What is not held any more is only given away.
        if records.is_empty() || !self.partition.is_held() {
            return Ok(());
        }
        let Some(own) = self.shared.holding.load().cluster.as_ref().map(|cluster| cluster.node) else {
            return Ok(());
        };
        self.shared.metrics.add(ReplicaCounter::RepairsIn, records.len() as u64);
        let request = self.shared.background(self.store, ReplicaOperation::Merge { records });
        self.shared.ask(own, request).map(drop)
    }

    fn give(&mut self, keys: Vec<Bytes>) -> Result<(), ReplicaError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        for key in keys {
            // A damaged one is not spread.
            let Ok(Some(record)) = self.record(&key) else { continue };
            bytes += record.len();
            records.push(KeyRecord { key, record });
            if bytes >= GIVE_BYTES_MAX {
                self.send(std::mem::take(&mut records))?;
                bytes = 0;
            }
        }
        self.send(records)
    }

    fn send(&mut self, records: Vec<KeyRecord>) -> Result<(), ReplicaError> {
        if records.is_empty() {
            return Ok(());
        }
        self.bytes += pairs_bytes(&records);
        self.shared
            .metrics
            .add(ReplicaCounter::RepairsOut, records.len() as u64);
        match self.ask(ReplicaOperation::Merge { records })? {
            ReplicaReply::Done => Ok(()),
            _ => Err(unexpected(self.peer)),
        }
    }

    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, ReplicaError> {
        let table_key = record_key_of(self.partition.id(), key);
        let record = self
            .store
            .table
            .get(&table_key)
            .map_err(|error| engine_error(self.shared, &error))?;
        match record {
            Some(record) if Record::decode_context(&record).is_err() => Err(ReplicaError::new(
                ReplicaErrorCode::Corrupt,
                "a stored record is damaged",
            )),
            record => Ok(record),
        }
    }
}

fn pairs_bytes(pairs: &[KeyRecord]) -> u64 {
    pairs
        .iter()
        .map(|pair| (pair.key.len() + pair.record.len()) as u64)
        .sum()
}

/// Sees to it that the owners of a partition that is no longer held have all of it, and deletes it.
fn give_away(
    shared: &Arc<Shared>,
    holding: &Holding,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    pace: &mut Pace,
    signal: &Signal,
) {
    // As long as a plan is under way, it may be cancelled; what is only remembered may be old.
    let is_certain = holding
        .cluster
        .as_ref()
        .is_some_and(|cluster| cluster.table.next().is_none() && !cluster.is_remembered);
    if !is_certain || partition.is_cleared() || partition.is_held() {
        return;
    }
    // What was let in before is in the table from here on.
    let (sender, receiver) = mpsc::sync_channel(1);
    shared.between(shared.shard_of(partition.id()), move || {
        // It is waited for below.
        let _ = sender.send(());
    });
    if receiver.recv().is_err() {
        return;
    }
    for &owner in holding.owners(store, partition.id()) {
        if partition.exchanged_with(owner).is_some() {
            continue;
        }
        if !holding.is_live(owner) || exchange(shared, store, partition, owner, pace, signal).is_err() {
            return;
        }
    }
    match clear(shared, store, partition, pace, signal) {
        Ok(()) => {
            partition.cleared();
            tracing::info!(store = %store.name, partition = %partition.id(), "deleted: other nodes own it");
        }
        Err(error) => {
            tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be deleted yet");
        }
    }
}

fn clear(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    pace: &mut Pace,
    signal: &Signal,
) -> Result<(), ReplicaError> {
    let failed = |error| engine_error(shared, &error);
    let (from, to) = range(partition.id(), 0, 0);
    loop {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for entry in store.table.scan(&from, to.as_deref()).map_err(failed)?.take(CLEAR_KEYS) {
            let (key, record) = entry.map_err(failed)?;
            bytes += (key.len() + record.len()) as u64;
            keys.push(key);
        }
        if keys.is_empty() {
            return Ok(());
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let answer = Answer::To(Box::new(move |reply| drop(sender.try_send(reply))));
        let task = Task::Clear(Arc::clone(partition), keys);
        shared.enqueue(shared.shard_of(partition.id()), 0, Some(store), None, task, answer);
        match receiver.recv() {
            Ok(ReplicaReply::Error(error)) => return Err(error),
            Ok(_) if pace.spend(bytes, signal) => {}
            Ok(_) | Err(_) => return Err(ReplicaError::new(ReplicaErrorCode::Other, "this process ends")),
        }
    }
}
