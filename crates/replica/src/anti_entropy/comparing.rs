//! Runs an exchange: carries out the steps of [`Exchange`] over the network and on the table.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Compared, Record, VectorClock};
use fondaco_protocol::replica::{
    Held, KeyRecord, LeafDigests, RecordPart, ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaOperation,
    ReplicaReply, ReplicaRequest,
};

use crate::anti_entropy::exchange::{Exchange, Hashes, LeafEntry, Own, Step};
use crate::anti_entropy::serving::{Leaf, SYNC_ENTRIES_MAX, hashes, leaf_entries};
use crate::background::Background;
use crate::metrics::ReplicaCounter;
use crate::partition::Partition;
use crate::peers::unexpected;
use crate::shared::Shared;
use crate::store::HeldStore;
use crate::writes::commit::engine_error;

/// How many bytes of records one request contains.
const GIVE_BYTES_MAX: usize = 1 << 20;

/// An exchange in progress.
struct Running<'a> {
    background: &'a mut Background,
    shared: &'a Arc<Shared>,
    store: &'a HeldStore,
    partition: &'a Partition,
    peer: NodeId,
    /// The epoch of the routing table that the peer must know, if this node is to receive all that the peer has under
    /// it.
    epoch: Option<NonZeroU64>,
    /// Whether this node received everything that the peer ever acknowledged, as far as is known.
    is_whole: bool,
    /// The bytes sent and received since the last pause.
    bytes: u64,
}

/// Compares a partition with that of another node, until both have the same records.
pub(crate) async fn exchange(
    background: &mut Background,
    store: &HeldStore,
    partition: &Partition,
    peer: NodeId,
) -> Result<(), ReplicaError> {
    let shared = &Arc::clone(&background.shared);
    let began = partition.begin_exchange(shared.now_ms());
    // Only a next owner has to receive everything: not an owner, and not a node that no longer holds the partition.
    let is_to_own = partition.is_held() && !shared.holding.load().is_owner(store, partition.id());
    let mut running = Running {
        background,
        shared,
        store,
        partition,
        peer,
        epoch: NonZeroU64::new(began.epoch).filter(|_| is_to_own),
        is_whole: true,
        bytes: 0,
    };
    let outcome = running.run().await;
    match &outcome {
        Ok(()) => {
            let compared = match running.is_whole {
                true => Compared::Whole,
                false => Compared::InPart,
            };
            partition.exchanged(peer, began, compared);
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
    async fn run(&mut self) -> Result<(), ReplicaError> {
        let mut exchange = Exchange::new();
        loop {
            match exchange.step() {
                Step::Compare { depth, nodes } => {
                    let theirs = self.ask_hashes(depth, &nodes).await?;
                    let answered = &nodes[..theirs.nodes.len()];
                    let own = hashes(self.shared, self.store, self.partition, depth, answered)?;
                    exchange.compared(depth, &nodes, &own, &theirs);
                }
                Step::Sync { depth, leaves } => self.sync(&mut exchange, depth, &leaves).await?,
                Step::Get { keys } => self.get(keys).await?,
                Step::Give { keys } => self.give(keys).await?,
                Step::Done => return Ok(()),
            }
            self.shared.metrics.add(ReplicaCounter::ExchangeBytes, self.bytes);
            if !self.background.spend(std::mem::take(&mut self.bytes)).await {
                return Err(ReplicaError::new(
                    ReplicaErrorCode::Other,
                    "this process is shutting down",
                ));
            }
        }
    }

    async fn ask(&self, operation: ReplicaOperation) -> Result<ReplicaReply, ReplicaError> {
        let request = self.shared.background(self.store, operation);
        let epoch = match request.operation.command() {
            ReplicaCommand::Tree | ReplicaCommand::Sync => self.epoch,
            _ => None,
        };
        self.background
            .ask(self.peer, ReplicaRequest { epoch, ..request })
            .await
    }

    async fn ask_hashes(&mut self, depth: u8, nodes: &[u32]) -> Result<Hashes, ReplicaError> {
        let operation = ReplicaOperation::Tree {
            partitions: self.partition.count(),
            partition: self.partition.id(),
            depth,
            nodes: nodes.to_vec(),
        };
        match self.ask(operation).await? {
            ReplicaReply::Hashes {
                leaf_depth,
                nodes: hashes,
                is_whole,
            } if (1..=nodes.len()).contains(&hashes.len()) => {
                self.is_whole &= is_whole;
                self.bytes += (4 * nodes.len() + 128 * hashes.len()) as u64;
                Ok(Hashes {
                    leaf_depth,
                    nodes: hashes,
                })
            }
            _ => Err(unexpected(self.peer)),
        }
    }

    async fn sync(&mut self, exchange: &mut Exchange, depth: u8, leaves: &[u64]) -> Result<(), ReplicaError> {
        match self.sync_at_once(exchange, depth, leaves).await {
            Err(error) if error.code == ReplicaErrorCode::More && exchange.too_many(depth, leaves) => Ok(()),
            done => done,
        }
    }

    async fn sync_at_once(&mut self, exchange: &mut Exchange, depth: u8, leaves: &[u64]) -> Result<(), ReplicaError> {
        let mut own: Vec<LeafEntry> = Vec::new();
        let mut digests = Vec::with_capacity(leaves.len());
        for &leaf in leaves {
            let room = SYNC_ENTRIES_MAX - own.len();
            let Leaf { entries, .. } = leaf_entries(self.shared, self.store, self.partition, depth, leaf, room)?;
            digests.push(LeafDigests {
                leaf,
                digests: entries.iter().map(|entry| entry.digest).collect(),
            });
            own.extend(entries);
        }
        self.bytes += (4 * leaves.len() + 8 * own.len()) as u64;
        let operation = ReplicaOperation::Sync {
            partitions: self.partition.count(),
            partition: self.partition.id(),
            depth,
            leaves: digests,
        };
        let ReplicaReply::Differences {
            records,
            contexts,
            lacking,
            is_whole,
        } = self.ask(operation).await?
        else {
            return Err(unexpected(self.peer));
        };
        self.is_whole &= is_whole;
        self.bytes += pairs_bytes(&records) + pairs_bytes(&contexts) + 8 * lacking.len() as u64;
        self.merge(records).await?;
        let differing: Vec<(Bytes, Own)> = contexts.into_iter().map(|pair| self.compared(pair)).collect();
        exchange.synced(&own, differing, &lacking);
        Ok(())
    }

    /// Compares this node's context of a key with that of the peer.
    fn compared(&self, KeyRecord { key, record }: KeyRecord) -> (Bytes, Own) {
        let own = self.record(&key).ok().flatten();
        let own = own.and_then(|own| Record::decode_context(&own).ok());
        let verdict = match (own, VectorClock::decode(&record)) {
            (Some(own), Ok(theirs)) => Own::Context(own.compare(&theirs)),
            _ => Own::Missing,
        };
        (key, verdict)
    }

    async fn get(&mut self, mut keys: Vec<Bytes>) -> Result<(), ReplicaError> {
        while !keys.is_empty() {
            let operation = ReplicaOperation::Get {
                part: RecordPart::Full,
                keys: keys.clone(),
            };
            let ReplicaReply::Records(records) = self.ask(operation).await? else {
                return Err(unexpected(self.peer));
            };
            let (mut pairs, mut left) = (Vec::new(), Vec::new());
            let asked = keys.len();
            if records.len() != asked {
                return Err(unexpected(self.peer));
            }
            for (key, record) in keys.into_iter().zip(records) {
                match record {
                    Ok(Held::Record(record)) => pairs.push(KeyRecord { key, record }),
                    // Deleted meanwhile, maybe together with other writes of the peer.
                    Ok(Held::Nothing) => self.is_whole = false,
                    Ok(Held::Same) => return Err(unexpected(self.peer)),
                    // No replica can use it.
                    Err(error) if error.code == ReplicaErrorCode::Corrupt => self.is_whole = false,
                    Err(error) if error.code == ReplicaErrorCode::More => left.push(key),
                    // The peer's record was not received, and not compared.
                    Err(error) => return Err(error),
                }
            }
            if left.len() == asked {
                return Err(unexpected(self.peer));
            }
            self.bytes += pairs_bytes(&pairs);
            self.merge(pairs).await?;
            keys = left;
        }
        Ok(())
    }

    /// Merges records of the peer into this partition.
    async fn merge(&self, records: Vec<KeyRecord>) -> Result<(), ReplicaError> {
        // A partition that is no longer held only gives records away.
        if records.is_empty() || !self.partition.is_held() {
            return Ok(());
        }
        let Some(own) = self.shared.holding.load().cluster.as_ref().map(|cluster| cluster.node) else {
            return Ok(());
        };
        self.shared.metrics.add(ReplicaCounter::RepairsIn, records.len() as u64);
        let request = self.shared.background(self.store, ReplicaOperation::Merge { records });
        self.background.ask(own, request).await.map(drop)
    }

    async fn give(&mut self, keys: Vec<Bytes>) -> Result<(), ReplicaError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        for key in keys {
            let record = match self.record(&key) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                // Damaged records are not spread.
                Err(error) if error.code == ReplicaErrorCode::Corrupt => continue,
                Err(error) => return Err(error),
            };
            bytes += record.len();
            records.push(KeyRecord { key, record });
            if bytes >= GIVE_BYTES_MAX {
                self.send(std::mem::take(&mut records)).await?;
                bytes = 0;
            }
        }
        self.send(records).await
    }

    async fn send(&mut self, records: Vec<KeyRecord>) -> Result<(), ReplicaError> {
        if records.is_empty() {
            return Ok(());
        }
        self.bytes += pairs_bytes(&records);
        self.shared
            .metrics
            .add(ReplicaCounter::RepairsOut, records.len() as u64);
        match self.ask(ReplicaOperation::Merge { records }).await? {
            ReplicaReply::Done => Ok(()),
            _ => Err(unexpected(self.peer)),
        }
    }

    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, ReplicaError> {
        let table_key = self.store.record_key(key);
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
