//! The versioned stores of a node: opens them with the data directory, passes the cluster view to them, and reads their
//! progress.
//!
//! The replicas do the work. This module only passes the view to them, and their progress to the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::{PeerAccess, Setting, Settings, SharedCatalog};
use fondaco_client::Client;
use fondaco_decisions::LocalVersioned;
use fondaco_engine::{
    CacheBudget, CacheEngine, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions, MemoryEngine, MySqlEngine,
    MySqlOptions,
};
use fondaco_model::cluster::{ClusterView, NodeMark};
use fondaco_model::versioned::EngineKind;
use fondaco_model::{NodeId, StoreName};
use fondaco_os::MemoryPlan;
use fondaco_protocol::now_unix_ms;
use fondaco_replica::{
    DroppedReplica, Engines, Loss, ReplicaOptions, ReplicaView, Replicas, ReplicasError, ReplicatedStore,
    note_losses_of,
};

use crate::config::VersionedConfig;
use crate::error::AgentError;
use crate::peers::ClientPeers;

/// How often the lengths of records are sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The weight of a new sample in the mean.
const SAMPLE_WEIGHT: f64 = 0.2;

/// The parts that the replicas of a node are opened with.
pub(crate) struct ReplicasParts<'a> {
    /// Their directory.
    pub(crate) dir: &'a Path,
    pub(crate) config: VersionedConfig,
    /// The boot ID of the machine, where it is known.
    pub(crate) boot_id: Option<String>,
    pub(crate) catalog: &'a SharedCatalog,
    pub(crate) peers: PeerAccess,
    /// How much of the disk must stay free, in bytes.
    pub(crate) reserve_bytes: u64,
    pub(crate) memory: MemoryPlan,
}

/// Opens the versioned stores on this node, and the engines that they are in. They are served once the cluster is known.
///
/// # Errors
/// The files on the disk cannot be opened, or threads cannot be started.
pub(crate) fn open(parts: ReplicasParts<'_>) -> Result<(Arc<Replicas>, Engines), AgentError> {
    let cache_bytes = parts.config.cache_bytes.unwrap_or(parts.memory.cache_bytes);
    let cache = CacheBudget::new(cache_bytes / 2);
    // Below the reserve, replicas refuse writes that make records longer. Below half of it, engines also refuse writes
    // that make them shorter, which need space before they free some.
    let engine_reserve_bytes = parts.reserve_bytes / 2;
    let disk = DiskOptions {
        cache: cache.clone(),
        block_cache_bytes: cache_bytes / 2,
        log_bytes_max: parts.memory.unflushed_bytes,
        table_buffer_bytes: parts.memory.table_buffer_bytes(),
        disk_reserve_bytes: engine_reserve_bytes,
        // Other replicas have the writes that a power loss took, and the node begins a new incarnation.
        on_loss: note_losses_of(EngineKind::Disk, parts.dir),
        ..DiskOptions::default()
    };
    let engine = DiskEngine::open(&parts.dir.join("tables"), disk).map_err(ReplicasError::from)?;
    let log = LogOptions {
        cache: cache.clone(),
        key_bytes_max: parts.memory.key_bytes(cache_bytes),
        segment_bytes: parts.memory.log_segment_bytes(),
        disk_reserve_bytes: engine_reserve_bytes,
        on_loss: note_losses_of(EngineKind::Log, parts.dir),
        ..LogOptions::default()
    };
    let log = LogEngine::open(&parts.dir.join("log"), log).map_err(ReplicasError::from)?;
    if let Err(full) = log.check_new_keys() {
        tracing::warn!(%full, "all keys are served");
    }
    let mut engines = Engines::new(Arc::new(engine))
        .with(EngineKind::Log, Arc::new(log))
        .with(EngineKind::Memory, Arc::new(MemoryEngine::new()))
        .with(EngineKind::Cache, Arc::new(CacheEngine::new(cache_bytes)));
    if let Some(url) = parts.config.mysql {
        let options = MySqlOptions {
            url,
            dir: parts.dir.join("mysql"),
            on_loss: note_losses_of(EngineKind::Mysql, parts.dir),
            cache,
        };
        let mysql = MySqlEngine::open(&options).map_err(ReplicasError::from)?;
        engines = engines.with(EngineKind::Mysql, Arc::new(mysql));
    }
    let PeerAccess {
        user,
        password,
        tls,
        zone,
    } = parts.peers;
    let mut builder = Client::builder()
        .topology(parts.catalog.topology())
        .topology_wanted(Arc::clone(parts.catalog.topology_wanted()));
    if let Some(password) = password {
        builder = builder.credentials(user, password);
    }
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    if let Some(zone) = zone {
        builder = builder.zone(zone);
    }
    let defaults = ReplicaOptions::default();
    let rate = |said: Option<u64>, default| said.map_or(default, |bytes| (bytes > 0).then_some(bytes));
    let options = ReplicaOptions {
        queue_bytes_max: parts.memory.queue_bytes as usize,
        reserve_bytes: parts.reserve_bytes,
        exchange_period: parts.config.exchange_period.unwrap_or(defaults.exchange_period),
        exchange_bytes_per_second: rate(
            parts.config.exchange_bytes_per_second,
            defaults.exchange_bytes_per_second,
        ),
        handoff_bytes_per_second: rate(parts.config.handoff_bytes_per_second, defaults.handoff_bytes_per_second),
        boot_id: parts.boot_id,
        ..defaults
    };
    let peers = ClientPeers::start(builder).map_err(|source| ReplicasError::Io {
        action: "start the connections to",
        path: "other nodes".into(),
        source,
    })?;
    let peers = Arc::new(peers);
    let replicas = Replicas::open(parts.dir, &engines, peers, options)?;
    Ok((Arc::new(replicas), engines))
}

/// Why replicas cannot answer for all their partitions, in words.
pub(crate) fn problems(replicas: &Replicas) -> Vec<String> {
    let lost = |loss: Loss| {
        let remedy = match loss.partitions_alone {
            0 => "they are being compared with other nodes".to_owned(),
            alone => format!(
                "no other node has {alone} of them: restore their stores, or give up the lost writes: fondaco repair accept-loss {}",
                loss.id
            ),
        };
        let (engine, behind, lost) = (loss.engine, loss.partitions_behind, loss.lost);
        (behind > 0)
            .then(|| format!("engine {engine} may lack acknowledged writes of {behind} partitions ({lost}): {remedy}"))
    };
    replicas.losses().into_iter().filter_map(lost).collect()
}

/// Damage of stored records, in words. Other replicas answer for these records, and replace them.
pub(crate) fn damage(replicas: &Replicas) -> Vec<String> {
    let warning = |damage| format!("{damage}: check the disk; records are replaced from other replicas");
    replicas.unreadable().into_iter().map(warning).collect()
}

/// The state that the agent keeps for the replicas.
pub(crate) struct VersionedStores {
    replicas: Arc<Replicas>,
    settings: Arc<Settings>,
    /// The last view, if the replicas applied all of it.
    applied: Option<Arc<ClusterView>>,
    /// The mean lengths of records of stores that have a space quota, and when each was sampled last.
    lengths: BTreeMap<u16, (f64, Instant)>,
    /// When the next dropped store expires, in milliseconds since 1970.
    next_deletion_unix_ms: Option<u64>,
}

impl VersionedStores {
    pub(crate) fn new(replicas: Arc<Replicas>, settings: Arc<Settings>) -> Self {
        Self {
            replicas,
            settings,
            applied: None,
            lengths: BTreeMap::new(),
            next_deletion_unix_ms: None,
        }
    }

    /// Passes the view to the replicas, unless they have it.
    pub(crate) fn apply(&mut self, view: &Arc<ClusterView>, node: NodeId) {
        let move_rate = self.settings.get(Setting::MoveRateBytesPerSecond);
        self.replicas.set_move_rate(move_rate);
        let now_unix_ms = now_unix_ms();
        let is_applied = self.applied.as_ref().is_some_and(|applied| Arc::ptr_eq(applied, view));
        if is_applied && self.next_deletion_unix_ms.is_none_or(|at| at > now_unix_ms) {
            return;
        }
        let Some(routing) = &view.routing else { return };
        let live = view.stores.values().map(|store| (&store.record, false));
        let restorable = view.restorable(now_unix_ms).map(|record| (record, true));
        let stores = live.chain(restorable).filter_map(|(record, is_dropped)| {
            Some(ReplicatedStore {
                id: record.id,
                name: record.definition.name.clone(),
                created_unix_ms: record.created_unix_ms,
                replicas: view.replicas(record),
                value_type: record.definition.value_type,
                settings: record.definition.versioned?,
                is_dropped,
                exceeded_quota_bytes: record.definition.space_quota_bytes.filter(|_| record.over_quota),
            })
        });
        let dropped = view.dropped.values().map(|dropped| &dropped.record);
        let dropped = dropped.filter(|dropped| dropped.record.definition.versioned.is_some());
        let ends = dropped.clone().map(|dropped| dropped.kept_until_unix_ms);
        self.next_deletion_unix_ms = ends.filter(|&at| at > now_unix_ms).min();
        let dropped = dropped.map(|dropped| DroppedReplica {
            id: dropped.record.id,
            created_unix_ms: dropped.record.created_unix_ms,
            is_kept: dropped.kept_until_unix_ms > now_unix_ms,
        });
        let zone = |id| view.nodes.get(&id).map(|node| node.record.zone.as_str());
        let near = view.nodes.keys().copied().filter(|&id| zone(id) == zone(node));
        let nodes = view.nodes.values();
        let leaving = nodes.filter(|node| node.record.mark == Some(NodeMark::Leaving));
        let outcome = self.replicas.set_view(&ReplicaView {
            node,
            table: Arc::new(routing.record.clone()),
            nodes: view.nodes.keys().map(|&id| (id, view.is_live(id))).collect(),
            near: near.collect(),
            leaving: leaving.map(|node| node.record.id).collect(),
            stores: stores.collect(),
            dropped: dropped.collect(),
            is_remembered: view.remembered || view.is_partial,
        });
        self.applied = match outcome {
            Ok(()) => Some(Arc::clone(view)),
            Err(error) => {
                tracing::warn!(%error, "not all versioned stores are as they should be: trying again");
                None
            }
        };
    }

    /// The progress of the replicas.
    pub(crate) fn local(&mut self, view: &ClusterView) -> BTreeMap<StoreName, LocalVersioned> {
        self.sample_lengths(view);
        let stores = view.stores.values().map(|store| &store.record);
        let held = stores.filter(|record| record.definition.versioned.is_some());
        let local = held.chain(view.restorable(now_unix_ms())).filter_map(|record| {
            let status = self.replicas.status(record.id)?;
            let local = LocalVersioned {
                id: record.id,
                partitions: status.partitions,
                held: status.counted as u64,
                keys: status.keys,
                bytes: self
                    .lengths
                    .get(&record.id)
                    .map_or(0, |(mean, _)| (status.keys as f64 * mean) as u64),
                synchronised: status.synchronised,
            };
            Some((record.definition.name.clone(), local))
        });
        local.collect()
    }

    /// Samples the lengths of records of stores that have a space quota, each of them once a second at most.
    fn sample_lengths(&mut self, view: &ClusterView) {
        let stores = view.stores.values().map(|store| &store.record);
        let limited =
            stores.filter(|store| store.definition.versioned.is_some() && store.definition.space_quota_bytes.is_some());
        let limited: BTreeSet<u16> = limited.map(|store| store.id).collect();
        self.lengths.retain(|id, _| limited.contains(id));
        let now = Instant::now();
        for id in limited {
            let known = self.lengths.get(&id).copied();
            if known.is_some_and(|(_, at)| now - at < SAMPLE_EVERY) {
                continue;
            }
            if let Some(sampled) = self.replicas.sample_length(id) {
                let mean = known.map_or(sampled, |(mean, _)| mean + (sampled - mean) * SAMPLE_WEIGHT);
                self.lengths.insert(id, (mean, now));
            }
        }
    }
}
