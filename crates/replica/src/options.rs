//! The options of a node's replicas, and the cluster state that they receive.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::Engine;
use fondaco_model::versioned::{EngineKind, VersionedSettings};
use fondaco_model::{NodeId, RoutingTable, StoreName, ValueType};

/// The options of a node's replicas.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// How many threads commit writes.
    pub shards: usize,
    /// How many threads read from the disk.
    pub readers: usize,
    /// How many requests may wait for each thread.
    pub queue_items_max: usize,
    /// How many bytes of requests may wait for each committing thread.
    pub queue_bytes_max: usize,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// How often each partition is compared with one of its other replicas.
    pub exchange_period: Duration,
    /// How often hints are checked for live nodes.
    pub handoff_period: Duration,
    /// How often partitions are swept for tombstones and expired records.
    pub sweep_period: Duration,
    /// How many of them are remembered from one sweep to the next, in all partitions together: some 40 bytes each. The
    /// others wait for a later sweep.
    pub sweep_records_max: usize,
    /// How many records one read of changes examines. A scan continues with the next read.
    pub changes_examined_max: usize,
    /// The rate limit of hinted handoff, in bytes a second; `None` for no limit.
    pub handoff_bytes_per_second: Option<u64>,
    /// The rate limit of exchanges, in bytes a second; `None` for no limit.
    pub exchange_bytes_per_second: Option<u64>,
    /// The rate limit of background reads of tables, in bytes a second: building hash trees at the start, and sweeping
    /// for tombstones. `None` for no limit.
    pub scan_bytes_per_second: Option<u64>,
    /// Timeout of a background request to another node while no bytes of it move.
    pub peer_timeout: Duration,
    /// The longest time of a background request, however many bytes move.
    pub peer_timeout_max: Duration,
    /// The boot id of the machine. If it is unknown, a loss of power cannot be detected by it.
    pub boot_id: Option<String>,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            shards: cores.min(4),
            readers: (2 * cores).min(16),
            queue_items_max: 16 * 1024,
            queue_bytes_max: 64 << 20,
            reserve_bytes: 0,
            exchange_period: Duration::from_secs(60),
            handoff_period: Duration::from_secs(1),
            sweep_period: Duration::from_secs(600),
            sweep_records_max: 1 << 20,
            changes_examined_max: 20_000,
            handoff_bytes_per_second: Some(32 << 20),
            exchange_bytes_per_second: Some(32 << 20),
            scan_bytes_per_second: Some(256 << 20),
            peer_timeout: Duration::from_secs(5),
            peer_timeout_max: Duration::from_secs(60),
            boot_id: None,
        }
    }
}

/// The engines of a node. The disk engine also keeps hints.
#[derive(Clone)]
pub struct Engines {
    disk: Arc<dyn Engine>,
    others: Vec<(EngineKind, Arc<dyn Engine>)>,
}

impl Engines {
    /// The disk engine only.
    pub fn new(disk: Arc<dyn Engine>) -> Self {
        Self {
            disk,
            others: Vec::new(),
        }
    }

    /// Adds an engine for stores of its kind.
    pub fn with(mut self, kind: EngineKind, engine: Arc<dyn Engine>) -> Self {
        self.others.push((kind, engine));
        self
    }

    /// The disk engine.
    pub fn disk(&self) -> &Arc<dyn Engine> {
        &self.disk
    }

    /// All engines, the disk engine first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        std::iter::once(&self.disk).chain(self.others.iter().map(|(_, engine)| engine))
    }

    /// All engines with their kinds.
    pub fn by_kind(&self) -> impl Iterator<Item = (EngineKind, &Arc<dyn Engine>)> {
        let others = self.others.iter().map(|(kind, engine)| (*kind, engine));
        std::iter::once((EngineKind::Disk, &self.disk)).chain(others)
    }

    /// The kinds, in the same order.
    pub(crate) fn kinds(&self) -> Vec<EngineKind> {
        let others = self.others.iter().map(|(kind, _)| *kind);
        std::iter::once(EngineKind::Disk).chain(others).collect()
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entry(&EngineKind::Disk)
            .entries(self.others.iter().map(|(kind, _)| kind))
            .finish()
    }
}

/// The cluster state that replicas receive whenever it changes.
#[derive(Debug, Clone)]
pub struct ReplicaView {
    /// This node.
    pub node: NodeId,
    /// The current and the next owners of each partition.
    pub table: Arc<RoutingTable>,
    /// All nodes, and whether each is live.
    pub nodes: BTreeMap<NodeId, bool>,
    /// The nodes in the zone of this one: partitions that move to it are compared with them first.
    pub near: BTreeSet<NodeId>,
    /// Nodes that leave for good: if they are absent, what only they have is given up.
    pub leaving: BTreeSet<NodeId>,
    /// All versioned stores, and the dropped ones that can be restored.
    pub stores: Vec<ReplicatedStore>,
    /// Versioned stores that were dropped. Data of a store that is not named at all is kept.
    pub dropped: Vec<DroppedReplica>,
    /// Whether it may be incomplete, because the process remembers it from an earlier run or understood it only in
    /// part: then no data is deleted because of it.
    pub is_remembered: bool,
}

/// A versioned store that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedReplica {
    /// Its number.
    pub id: u16,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Whether its data is kept for now, because the store may be restored. Data that is only in memory is not kept.
    pub is_kept: bool,
}

/// A versioned store.
#[derive(Debug, Clone)]
pub struct ReplicatedStore {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: StoreName,
    /// When it was created, in milliseconds since 1970: it distinguishes stores that had the same number.
    pub created_unix_ms: u64,
    /// How many nodes hold each of its partitions, unless the routing table says otherwise.
    pub replicas: usize,
    /// The type of its values. It never changes.
    pub value_type: ValueType,
    /// The settings of its operator. The routing table may have other quorums.
    pub settings: VersionedSettings,
    /// Whether it was dropped and can be restored: its partitions are compared and moved as those of any store, but no
    /// client reads or writes it.
    pub is_dropped: bool,
    /// The space quota that it exceeds, in bytes: it takes no writes of clients but deletions.
    pub exceeded_quota_bytes: Option<u64>,
}
