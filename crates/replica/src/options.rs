//! How the replicas of a node are set up, and what they are told of the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::Engine;
use fondaco_model::versioned::{EngineKind, VersionedSettings};
use fondaco_model::{NodeId, RoutingTable, StoreName};

/// How the replicas of a node are set up.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// How many threads commit writes.
    pub shards: usize,
    /// How many threads read what is not in memory.
    pub readers: usize,
    /// How many requests may wait for each of them.
    pub queue_items_max: usize,
    /// How many bytes of requests may wait for each committing thread.
    pub queue_bytes_max: usize,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// How often each partition is compared with one of its other replicas.
    pub exchange_period: Duration,
    /// How often hints are looked through for nodes that are there.
    pub handoff_period: Duration,
    /// How often tombstones and expired records are looked for.
    pub sweep_period: Duration,
    /// How many of them are remembered from one look to the next, of all partitions: some 40 bytes each. The others
    /// wait for their turn.
    pub sweep_records_max: usize,
    /// How fast hints are delivered, in bytes a second; no limit unless said.
    pub handoff_bytes_per_second: Option<u64>,
    /// How fast exchanges go, in bytes a second; no limit unless said.
    pub exchange_bytes_per_second: Option<u64>,
    /// How fast tables are read in the background, in bytes a second: hash trees are made at the start, and
    /// tombstones looked for. No limit unless said.
    pub scan_bytes_per_second: Option<u64>,
    /// How long another node may take for a request in the background.
    pub peer_timeout: Duration,
    /// Which boot of the machine this is. Where it is not known, a loss of power is not noticed by it.
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
            handoff_bytes_per_second: Some(32 << 20),
            exchange_bytes_per_second: Some(32 << 20),
            scan_bytes_per_second: Some(256 << 20),
            peer_timeout: Duration::from_secs(5),
            boot_id: None,
        }
    }
}

/// The engines of a node. The one on disk keeps hints too.
#[derive(Clone)]
pub struct Engines {
    disk: Arc<dyn Engine>,
    others: Vec<(EngineKind, Arc<dyn Engine>)>,
}

impl Engines {
    /// This engine for what is to be on disk, and no other.
    pub fn new(disk: Arc<dyn Engine>) -> Self {
        Self {
            disk,
            others: Vec::new(),
        }
    }

    /// These engines, and this one for stores of its kind.
    pub fn with(mut self, kind: EngineKind, engine: Arc<dyn Engine>) -> Self {
        self.others.push((kind, engine));
        self
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Engine> {
        &self.disk
    }

    /// All of them, the one on disk first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        std::iter::once(&self.disk).chain(self.others.iter().map(|(_, engine)| engine))
    }

    /// The same, each with its kind.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = (EngineKind, &Arc<dyn Engine>)> {
        let others = self.others.iter().map(|(kind, engine)| (*kind, engine));
        std::iter::once((EngineKind::Disk, &self.disk)).chain(others)
    }

    /// Their kinds, in that order.
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

/// What the replicas are told of the cluster, whenever it changes.
#[derive(Debug, Clone)]
pub struct ReplicaView {
    /// The node that they are of.
    pub node: NodeId,
    /// The holders of each partition, and the next ones.
    pub table: Arc<RoutingTable>,
    /// All nodes, and whether each is there.
    pub nodes: BTreeMap<NodeId, bool>,
    /// All versioned stores.
    pub stores: Vec<ReplicatedStore>,
    /// Versioned stores that were dropped. What is held of a store that is named nowhere is kept.
    pub dropped: Vec<DroppedReplica>,
    /// Whether it may lack what there is, as what the process remembers of an earlier life, or understood in part: then
    /// nothing is given up by it.
    pub is_remembered: bool,
}

/// A versioned store that was dropped, as its replicas are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedReplica {
    /// Its number.
    pub id: u16,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Whether its data is to be kept for now: the store may be restored. What is only in memory is not.
    pub is_kept: bool,
}

/// A versioned store, as its replicas are told of it.
#[derive(Debug, Clone)]
pub struct ReplicatedStore {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: StoreName,
    /// When it was created, in milliseconds since 1970: another store of its number was at another time.
    pub created_unix_ms: u64,
    /// How many nodes hold each of its partitions.
    pub replicas: usize,
    /// What its operator said.
    pub settings: VersionedSettings,
}
