//! A simulated replica: what a node does with requests. Records, dots and hash trees are real; what is not is
//! the disk under them, and that one thing happens after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::versioned::{
    DotSource, HashTree, Horizon, Record, ReplicaId, Update, VectorClock, VersionedSettings, record_hash,
};
use fondaco_model::{NodeId, PartitionCount, PartitionId, RoutingTable, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{
    Held, KeyRecord, Known, KnownKey, LeafDigests, PutOver, RecordPart, ReplicaError, ReplicaErrorCode,
    ReplicaOperation, ReplicaReply, ReplicaRequest,
};
use fondaco_replica::exchange::{Hashes, LeafEntry, STEP_BITS, differences, leaf_digest};
use fondaco_replica::written;
use xxhash_rust::xxh3::xxh3_64;

use super::disk::{Disk, RecordKey};
use super::scenario::Flaw;
use super::upkeep::Chore;

/// What all replicas know of the store.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) name: StoreName,
    pub(super) partitions: PartitionCount,
    pub(super) settings: VersionedSettings,
    /// How many nodes hold each partition.
    pub(super) replicas: usize,
    pub(super) flaw: Option<Flaw>,
}

impl Store {
    /// Where the record of a key stands.
    pub(super) fn place(&self, key: &Bytes) -> RecordKey {
        let partition = WireKey::new(&self.name, key).map_or(0, |key| self.partitions.partition_of(key.slot()).get());
        (partition, xxh3_64(key), key.clone())
    }
}

/// A partition of a replica.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tree: HashTree,
    /// When the last exchange with each other replica began that came to its end, in milliseconds.
    pub(super) exchanged: BTreeMap<NodeId, u64>,
    /// Those of them that had all that they ever acknowledged.
    pub(super) whole: BTreeSet<NodeId>,
    /// What sweeps found: digests of records, and when, in milliseconds.
    pub(super) found: BTreeMap<RecordKey, (u64, u64)>,
    pub(super) exchange_at_us: u64,
    /// Whether requests may ask for it; else it is deleted once its owners have all that is in it.
    pub(super) is_held: bool,
    /// How often the routing table has changed what it is to the node: exchanges that this fell into do not count.
    pub(super) turn: u64,
    /// Whether what was acknowledged here may be on other nodes alone.
    pub(super) is_behind: bool,
}

/// A replica.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) node: NodeId,
    pub(super) disk: Disk,
    /// A copy of the disk, as it was at an earlier end of the process.
    pub(super) copy: Option<Disk>,
    pub(super) is_full: bool,
    /// Whether what was on its disk may be lost, and has not been had from others yet, as it knows.
    pub(super) is_behind: bool,
    /// Whether its disk was lost, and something of what it holds, or is to own, has not been had from others yet.
    pub(super) has_lost: bool,
    pub(super) partitions: BTreeMap<u32, Partition>,
    pub(super) chores: BTreeMap<u64, Chore>,
    pub(super) sweep_at_us: u64,
    /// The routing table that it goes by. It remembers it for its next life.
    pub(super) table: Arc<RoutingTable>,
    incarnation: u32,
    dots: DotSource,
    /// For how many keys its hash trees are made.
    pub(super) tree_keys: u64,
}

impl Replica {
    pub(super) fn new(node: NodeId, table: &Arc<RoutingTable>, replicas: usize, tree_keys: u64) -> Self {
        let partition = |id: PartitionId| (id.get(), Partition::new(tree_keys));
        Self {
            node,
            disk: Disk::default(),
            copy: None,
            is_full: false,
            is_behind: false,
            has_lost: false,
            partitions: table.partitions_of(node, replicas).map(partition).collect(),
            table: Arc::clone(table),
            chores: BTreeMap::new(),
            sweep_at_us: 0,
            incarnation: 1,
            dots: dots(node, 1),
            tree_keys,
        }
    }

    /// The process starts again, with what is on the disk.
    pub(super) fn restart(&mut self, store: &Store) {
        if store.flaw != Some(Flaw::KeepsIncarnation) {
            self.incarnation += 1;
        }
        self.dots = dots(self.node, self.incarnation);
        self.chores.clear();
        self.sweep_at_us = 0;
        let held = self.table.partitions_of(self.node, store.replicas);
        let is_behind = self.is_behind && store.flaw != Some(Flaw::AnswersForWhatItLost);
        let partition = |id: PartitionId| Partition {
            is_behind: is_behind && self.table.owners(id).contains(&self.node),
            ..Partition::new(self.tree_keys)
        };
        self.partitions = held.map(|id| (id.get(), partition(id))).collect();
        for ((number, hash, _), record) in self.disk.records() {
            let partition = self.partitions.entry(*number).or_insert_with(|| Partition {
                is_held: false,
                ..Partition::new(self.tree_keys)
            });
            partition.tree.replace(*hash, None, Some(Record::digest(record)));
        }
    }

    /// Does what it is asked. These are the nodes that it takes to be there.
    pub(super) fn serve(
        &mut self,
        store: &Store,
        request: ReplicaRequest,
        live: &BTreeSet<NodeId>,
        now_unix_ms: u64,
    ) -> ReplicaReply {
        let is_counted = request.epoch.is_some();
        if let Err(error) = self.admit(store, &request, live) {
            return ReplicaReply::Error(error);
        }
        let done = match request.operation {
            ReplicaOperation::Get { part, keys } => {
                let records = keys.iter().map(|key| Ok(self.get(store, key, part).into())).collect();
                Ok(ReplicaReply::Records(records))
            }
            ReplicaOperation::GetOther { keys } => {
                let records = keys.iter().map(|known| Ok(self.get_other(store, known))).collect();
                Ok(ReplicaReply::Records(records))
            }
            ReplicaOperation::Put {
                over,
                key,
                context,
                update,
                ..
            } => self.put(store, &key, over, &context, update),
            ReplicaOperation::Merge { records } => self.merge_all(store, records, now_unix_ms, is_counted),
            ReplicaOperation::Hint { target, records } => self.hint(target, records),
            ReplicaOperation::Tree {
                partition,
                depth,
                nodes,
            } => {
                let Hashes { leaf_depth, nodes } = self.hashes(partition.get(), depth, &nodes);
                Ok(ReplicaReply::Hashes {
                    leaf_depth,
                    nodes,
                    is_whole: self.is_whole(partition.get()),
                })
            }
            ReplicaOperation::Sync {
                partition,
                depth,
                leaves,
            } => Ok(self.compare(store, partition.get(), depth, &leaves, now_unix_ms)),
            ReplicaOperation::OldestHint => {
                let records = self.disk.hints().values().filter_map(|record| decode(record).ok());
                Ok(ReplicaReply::OldestHint {
                    now_unix_ms,
                    oldest_unix_ms: records.map(|record| record.oldest_unix_ms()).min(),
                })
            }
        };
        done.unwrap_or_else(ReplicaReply::Error)
    }

    fn get(&self, store: &Store, key: &Bytes, part: RecordPart) -> Option<Bytes> {
        let record = self.disk.records().get(&store.place(key))?;
        match part {
            RecordPart::Full => Some(record.clone()),
            RecordPart::Context if store.flaw == Some(Flaw::TellsNoContext) => None,
            RecordPart::Context => Some(decode(record).ok()?.context().to_bytes().into()),
        }
    }

    fn get_other(&self, store: &Store, KnownKey { key, known }: &KnownKey) -> Held {
        let record = self.get(store, key, RecordPart::Full);
        let digest = record.as_deref().map(Record::stated_digest);
        match known {
            Known::Digest(_) if store.flaw == Some(Flaw::AlwaysHasTheSame) => Held::Same,
            Known::Digest(known) if digest == Some(*known) => Held::Same,
            Known::Awaited => digest.map(|digest| digest.to_be_bytes().to_vec().into()).into(),
            Known::Digest(_) | Known::Nothing => record.into(),
        }
    }

    fn put(
        &mut self,
        store: &Store,
        key: &Bytes,
        over: PutOver,
        context: &VectorClock,
        update: Update,
    ) -> Result<ReplicaReply, ReplicaError> {
        self.check_room()?;
        let place = store.place(key);
        let local = self.disk.records().get(&place).map(decode).transpose()?;
        let nothing = VectorClock::new();
        let context = match over {
            PutOver::Context if store.flaw == Some(Flaw::IgnoresClientContext) => &nothing,
            _ => context,
        };
        let record = written(local, store.settings.resolution, &mut self.dots, over, context, update)?;
        let record = Bytes::from(record.to_bytes());
        self.set(place, Some(record.clone()));
        Ok(ReplicaReply::Written(record))
    }

    /// Joins records with what is there. Whether a coordinator counts on them to be there then.
    pub(super) fn merge_all(
        &mut self,
        store: &Store,
        records: Vec<KeyRecord>,
        now_unix_ms: u64,
        is_counted: bool,
    ) -> Result<ReplicaReply, ReplicaError> {
        self.check_room()?;
        for KeyRecord { key, record } in records {
            self.merge(store, &key, record, now_unix_ms, is_counted)?;
        }
        Ok(ReplicaReply::Done)
    }

    fn merge(
        &mut self,
        store: &Store,
        key: &Bytes,
        record: Bytes,
        now_unix_ms: u64,
        is_counted: bool,
    ) -> Result<(), ReplicaError> {
        let place = store.place(key);
        let theirs = decode(&record)?;
        let after = match self.disk.records().get(&place) {
            Some(local) if *local == record => return Ok(()),
            None if !is_counted && horizon(store, now_unix_ms).is_past(&theirs) => return Ok(()),
            None => theirs,
            Some(local) => {
                let local = decode(local)?;
                match store.flaw {
                    Some(Flaw::MergesByTime) if local.quiet_since_unix_ms() >= theirs.quiet_since_unix_ms() => local,
                    Some(Flaw::MergesByTime) => theirs,
                    _ => local.merge(&theirs),
                }
            }
        };
        self.set(place, Some(after.to_bytes().into()));
        Ok(())
    }

    fn hint(&mut self, target: NodeId, records: Vec<KeyRecord>) -> Result<ReplicaReply, ReplicaError> {
        self.check_room()?;
        for KeyRecord { key, record } in records {
            let place = (target, key);
            let record = match self.disk.hints().get(&place) {
                Some(before) => decode(before)?.merge(&decode(&record)?).to_bytes().into(),
                None => record,
            };
            self.disk.set_hint(place, Some(record));
        }
        Ok(ReplicaReply::Done)
    }

    /// Replaces a record, in the disk and in the hash tree.
    pub(super) fn set(&mut self, place: RecordKey, record: Option<Bytes>) {
        let digest = |record: &Bytes| Record::digest(record);
        let before = self.disk.records().get(&place);
        if before == record.as_ref() {
            return;
        }
        let (before, after) = (before.map(digest), record.as_ref().map(digest));
        if let Some(partition) = self.partitions.get_mut(&place.0) {
            partition.tree.replace(place.1, before, after);
        }
        self.disk.set_record(place, record);
    }

    fn check_room(&self) -> Result<(), ReplicaError> {
        match self.is_full {
            true => Err(ReplicaError::new(ReplicaErrorCode::DiskFull, "the disk is full")),
            false => Ok(()),
        }
    }

    /// The hashes below nodes of a partition's tree.
    pub(super) fn hashes(&self, partition: u32, depth: u8, nodes: &[u32]) -> Hashes {
        let tree = self.partitions.get(&partition).map(|partition| &partition.tree);
        let children = |&node: &u32| {
            let known = tree.and_then(|tree| tree.children(depth, node));
            known.unwrap_or_else(|| {
                let mut children = [0; 16];
                for ((_, hash, _), record) in self.range(partition, depth, node) {
                    children[(hash >> (64 - depth - STEP_BITS) & 15) as usize] ^=
                        record_hash(*hash, Record::digest(record));
                }
                children
            })
        };
        Hashes {
            leaf_depth: tree.map_or(STEP_BITS, HashTree::leaf_bits),
            nodes: nodes.iter().map(children).collect(),
        }
    }

    fn range(&self, partition: u32, depth: u8, node: u32) -> impl Iterator<Item = (&RecordKey, &Bytes)> {
        let bits = u32::from(64 - depth);
        let first = u64::from(node).checked_shl(bits).unwrap_or(0);
        let last = first | u64::MAX.checked_shr(depth.into()).unwrap_or(0);
        let records = self.disk.records().range((partition, first, Bytes::new())..);
        records.take_while(move |((at, hash, _), _)| *at == partition && *hash <= last)
    }

    /// What is held in a leaf.
    pub(super) fn leaf(&self, store: &Store, partition: u32, depth: u8, leaf: u32, now_unix_ms: u64) -> Vec<LeafEntry> {
        let entry = |((_, hash, key), record): (&RecordKey, &Bytes)| LeafEntry {
            key: key.clone(),
            digest: leaf_digest(*hash, Record::digest(record)),
            is_past: decode(record).is_ok_and(|record| horizon(store, now_unix_ms).is_past(&record)),
        };
        self.range(partition, depth, leaf).map(entry).collect()
    }

    fn compare(
        &self,
        store: &Store,
        partition: u32,
        depth: u8,
        leaves: &[LeafDigests],
        now_unix_ms: u64,
    ) -> ReplicaReply {
        let (mut records, mut contexts, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
        for LeafDigests { leaf, digests } in leaves {
            let own = self.leaf(store, partition, depth, *leaf, now_unix_ms);
            let found = differences(&own, digests);
            let held = |key: Bytes| {
                let record = self.disk.records().get(&store.place(&key))?.clone();
                Some(KeyRecord { key, record })
            };
            records.extend(found.lacked_there.into_iter().filter_map(held));
            let differing = found.differing.into_iter().filter_map(held);
            contexts.extend(differing.filter_map(|pair| {
                let record = decode(&pair.record).ok()?.context().to_bytes().into();
                Some(KeyRecord { record, ..pair })
            }));
            lacking.extend(found.lacked_here);
        }
        ReplicaReply::Differences {
            records,
            contexts,
            lacking,
            is_whole: self.is_whole(partition),
        }
    }

    /// The record under a key.
    pub(super) fn record(&self, store: &Store, key: &Bytes) -> Option<&Bytes> {
        self.disk.records().get(&store.place(key))
    }
}

impl Partition {
    pub(super) fn new(tree_keys: u64) -> Self {
        Self {
            tree: HashTree::for_keys(tree_keys),
            exchanged: BTreeMap::new(),
            whole: BTreeSet::new(),
            found: BTreeMap::new(),
            exchange_at_us: 0,
            is_held: true,
            turn: 0,
            is_behind: false,
        }
    }
}

fn dots(node: NodeId, incarnation: u32) -> DotSource {
    DotSource::new(ReplicaId { node, incarnation }, 0)
}

/// What a replica knows that has compared nothing, and of no hints.
pub(super) fn horizon(store: &Store, now_unix_ms: u64) -> Horizon {
    Horizon {
        now_unix_ms,
        grace_ms: store.settings.tombstone_grace_ms,
        compared_ms: None,
        oldest_hint_unix_ms: None,
    }
}

pub(super) fn decode(record: &Bytes) -> Result<Record, ReplicaError> {
    Record::decode(record.clone()).map_err(|error| ReplicaError::new(ReplicaErrorCode::Corrupt, error.to_string()))
}
