//! A data node's work: it announces the node, asks the model what to do, and does it.
//!
//! It is level-triggered: on every change of the view, of the disk or of a fetch, and every second, a pass of the
//! thread compares the whole state with its goal and does what is due. Failed actions are retried in the next pass. A node that must not take part
//! reports why and serves nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_catalog::{PeerAccess, Serving, Settings, SharedCatalog};
use fondaco_cluster::{
    Bootstrap, ChangeSignal, ChangeWatcher, Mirror, Operator, Origin, PeerTopology, Sighting, Worker,
};
use fondaco_coordination::Coordination;
use fondaco_decisions::ReplicaKey;
use fondaco_fetch::{FetchProgress, OnDemandCounts, PeerClient};
use fondaco_format::Version;
use fondaco_metrics::NodeMetrics;
use fondaco_model::cluster::Announcement;
use fondaco_model::{CanaryCounts, NodeId, PartitionSet, StoreName, VersionNumber};
use fondaco_os::MemoryPlan;
use fondaco_replica::Replicas;
use fondaco_stream::EventLog;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{KafkaConfig, VersionedConfig};
use crate::counting::Counting;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::error::AgentError;
use crate::fetches::{Fetches, FetchesParts};
use crate::ingest_pace::IngestPace;
use crate::node_file::NodeFile;
use crate::presence::Presence;
use crate::publishing::Publishing;
use crate::shared::Shared;
use crate::start_offsets::StartOffsets;
use crate::streams::Streams;
use crate::uploads::Uploads;
use crate::versioned::{self, ReplicasParts, VersionedStores};
use crate::work::{Work, WorkParts};

/// How often a fetch that was asked to stop is polled.
const STOP_TICK: Duration = Duration::from_millis(20);

/// The parts that a node's agent is made of.
pub struct AgentParts {
    /// The session with the coordination service.
    pub coordination: Arc<dyn Coordination>,
    /// The cluster.
    pub mirror: Mirror,
    /// The catalog that the agent publishes to.
    pub catalog: Arc<SharedCatalog>,
    /// The data directory.
    pub data_dir: DataDir,
    /// The identity of the node.
    pub node_file: NodeFile,
    /// The entry by which the node announces itself.
    pub announcement: Announcement,
    /// How to make the cluster, if this process has to.
    pub bootstrap: Option<Bootstrap>,
    /// The number that the node is configured to have.
    pub node_id: Option<NodeId>,
    /// The live settings.
    pub settings: Arc<Settings>,
    /// The counters of the node.
    pub metrics: Arc<NodeMetrics>,
    /// How other nodes are asked for files.
    pub peers: PeerClient,
    /// How versioned stores are kept.
    pub versioned: VersionedConfig,
    /// How Kafka is reached.
    pub kafka: KafkaConfig,
    /// The boot ID of the machine, where it is known.
    pub boot_id: Option<String>,
    /// How other nodes are asked for the topology.
    pub peer_access: PeerAccess,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// How the process divides its memory.
    pub memory: MemoryPlan,
    /// How long data that is given up is kept.
    pub keep_deleted: Duration,
    /// How long a session outlives its process.
    pub session_timeout: Duration,
    /// The log of events, if the process is a whole cluster.
    pub events: Option<Arc<EventLog>>,
}

/// The agent of a node. Dropping it stops it: fetches are interrupted, and continue at the next start.
pub struct AgentWork {
    shared: Arc<Shared>,
    catalog: Arc<SharedCatalog>,
    replicas: Arc<Replicas>,
    streams: Arc<Streams>,
    worker: Worker,
    /// For the streams, as long as the agent works.
    _operator: Arc<Operator>,
}

impl AgentWork {
    /// Opens the versions on the disk, and starts the thread.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn start(parts: AgentParts) -> Result<Self, AgentError> {
        let change_signal = Arc::new(ChangeSignal::default());
        parts.mirror.raise_on_change(&change_signal);
        let count_period = parts.versioned.count_period;
        let (replicas, engines) = versioned::open(ReplicasParts {
            dir: &parts.data_dir.versioned(),
            catalog: &parts.catalog,
            config: parts.versioned,
            boot_id: parts.boot_id,
            peers: parts.peer_access.clone(),
            reserve_bytes: parts.reserve_bytes,
            memory: parts.memory,
        })?;
        let uploads = Uploads::open(&parts.data_dir.uploads(), parts.reserve_bytes, parts.keep_deleted)?;
        let uploads = Arc::new(uploads);
        let disk = Disk::open(parts.data_dir, &parts.catalog, parts.keep_deleted, parts.reserve_bytes);
        let disk = Arc::new(disk?);
        // Schemas need no reports.
        let operator = Arc::new(Operator::new(
            Arc::clone(&parts.coordination),
            parts.mirror.clone(),
            false,
            parts.keep_deleted,
        ));
        let streams = Arc::new(Streams::start(
            (engines, Arc::clone(&replicas)),
            &disk,
            (parts.events, parts.kafka.clone()),
            StartOffsets {
                peers: parts.peers.clone(),
                mirror: parts.mirror.clone(),
                own: parts.announcement.identity.clone(),
            },
            Arc::downgrade(&operator),
            IngestPace::start(Arc::clone(&parts.settings), Arc::clone(&parts.metrics))?,
            Arc::clone(&change_signal),
        )?);
        let fetches = Fetches::new(FetchesParts {
            disk: Arc::clone(&disk),
            uploads: Arc::clone(&uploads),
            settings: Arc::clone(&parts.settings),
            metrics: parts.metrics,
            peers: parts.peers,
            kafka: parts.kafka,
            reserve_bytes: parts.reserve_bytes,
            memory_bytes: parts.memory.memory_bytes,
            change_signal: Arc::clone(&change_signal),
        });
        let shared = Arc::new(Shared {
            change_signal: Arc::clone(&change_signal),
            mirror: parts.mirror,
            disk: Arc::clone(&disk),
            uploads,
            fetches,
            status: Mutex::default(),
            noted: ChangeSignal::default(),
            fatal: watch::Sender::new(None),
            passes: ChangeWatcher::default(),
            swaps: AtomicU64::new(0),
            reopened: AtomicBool::new(false),
        });
        let presence = Presence::new(
            Arc::clone(&parts.coordination),
            parts.announcement,
            parts.session_timeout,
        );
        let catalog = Arc::clone(&parts.catalog);
        let wanted = Arc::clone(catalog.topology_wanted());
        let counting = Counting::new(Arc::clone(&parts.coordination), Arc::clone(&replicas), count_period);
        let mut work = Work::new(WorkParts {
            shared: Arc::clone(&shared),
            coordination: parts.coordination,
            bootstrap: parts.bootstrap,
            node_id: parts.node_id,
            node_file: parts.node_file,
            presence,
            peer_topology: PeerTopology::new(parts.peer_access, wanted, Arc::clone(&change_signal)),
            publishing: Publishing::new(parts.catalog, disk, Arc::clone(&streams)),
            streams: Arc::clone(&streams),
            versioned: VersionedStores::new(Arc::clone(&replicas), parts.settings),
            counting,
        });
        let worker = Worker::start("agent", change_signal, move |ending| work.run(ending))?;
        let agent = Self {
            shared,
            catalog,
            replicas,
            streams,
            worker,
            _operator: operator,
        };
        agent.warm();
        Ok(agent)
    }

    /// The number of the node, once assigned.
    pub fn node(&self) -> Option<NodeId> {
        self.shared.status.lock().node
    }

    /// Waits until all current versions on the disk are served, or the node must not take part, at most for `timeout`.
    /// Returns whether they are served. After `memory_after`, the remembered view is good enough; until then, the node
    /// waits for the coordination service.
    ///
    /// # Errors
    /// Why the node must not take part.
    pub fn wait_settled(
        &self,
        begun: Instant,
        memory_after: Duration,
        patience: Duration,
    ) -> Result<bool, Arc<AgentError>> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.shared.noted.count();
            if let Some(error) = self.shared.fatal.borrow().clone() {
                return Err(error);
            }
            let enough_at = match self.shared.status.lock().settled {
                Origin::Service => return Ok(true),
                Origin::Memory => Some(begun + memory_after),
                Origin::Nothing => None,
            };
            let now = Instant::now();
            if enough_at.is_some_and(|at| at <= now) {
                return Ok(true);
            }
            let until = enough_at.map_or(deadline, |at| at.min(deadline));
            if deadline <= now {
                return Ok(false);
            }
            self.shared.noted.wait(seen, until - now);
        }
    }

    /// Why the node must not take part, once that is known.
    pub fn fatal(&self) -> watch::Receiver<Option<Arc<AgentError>>> {
        self.shared.fatal.subscribe()
    }

    /// The streams of hybrid stores on this node.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// The replicas of versioned stores on this node.
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// The uploads to this node, whose files are to be pushed.
    pub fn uploads(&self) -> &Arc<Uploads> {
        &self.shared.uploads
    }

    /// Frees this number of bytes by deleting data that was given up. Waits for the disk.
    pub fn free_space(&self, bytes: u64) -> Result<(), AgentError> {
        self.shared.disk.free_space(bytes)
    }

    /// Deletes a directory in the background.
    pub fn delete(&self, dir: &Path) -> Result<(), AgentError> {
        self.shared.disk.delete(dir)
    }

    /// The data directory.
    pub fn data_dir(&self) -> &DataDir {
        self.shared.disk.dir()
    }

    /// All open versions.
    pub(crate) fn open_versions(&self) -> Vec<Arc<Version>> {
        self.shared.disk.open_versions()
    }

    /// The directories that files of a version may be in.
    pub fn dirs_of(&self, store: &StoreName, version: VersionNumber) -> [PathBuf; 2] {
        self.shared.disk.dirs_of(store, version)
    }

    /// A version, if it is open here, even if only in part.
    pub fn open_version(&self, store: &StoreName, version: VersionNumber) -> Option<Arc<Version>> {
        self.shared.disk.version(store, version)
    }

    /// Whether a version is open here, even if only in part.
    pub fn has_open(&self, store: &StoreName, version: VersionNumber) -> bool {
        self.shared.disk.version(store, version).is_some()
    }

    /// How far the fetch of a version is, if one runs.
    pub fn progress(&self, store: &StoreName, version: VersionNumber) -> Option<FetchProgress> {
        self.shared.fetches.progress(&(store.clone(), version))
    }

    /// How many versions of a store cannot be served here, or not yet.
    pub fn failed_versions(&self, store: &StoreName) -> u64 {
        let status = self.shared.status.lock();
        status.failures.keys().filter(|(name, _)| name == store).count() as u64
    }

    /// The counts of the canary of a store on this node, if one is under way.
    pub fn canary_counts(&self, store: &StoreName) -> Option<CanaryCounts> {
        let catalog = self.catalog.load();
        let (_, canary) = catalog.canaries().find(|(known, _)| known.name == *store)?;
        Some(canary.meter().counts())
    }

    /// How many versions in the trash are kept for now.
    pub fn trashed(&self) -> u64 {
        self.shared.disk.trashed() as u64
    }

    /// The number of fetches that run.
    pub fn fetches(&self) -> usize {
        self.shared.fetches.count()
    }

    /// The number of passes so far.
    pub fn passes(&self) -> u64 {
        self.shared.passes.count()
    }

    /// Waits until a pass of the thread has seen the present state and acted on it.
    pub fn wait_looked(&self, timeout: Duration) {
        self.shared.passes.wait(&self.shared.change_signal, timeout);
    }

    /// Waits until all files of a version are deleted.
    pub fn wait_dropped(&self, store: &StoreName, version: VersionNumber, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let key = (store.clone(), version);
        let is_here = || self.shared.fetches.progress(&key).is_some() || self.shared.disk.has(&key);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.wait_looked(left);
            if !is_here() || left.is_zero() {
                return;
            }
            // A fetch raises the signal when it ends.
            let seen = self.shared.change_signal.count();
            self.shared.change_signal.wait(seen, left.min(STOP_TICK));
        }
    }

    /// The counts of reads on demand: by look-ups, from sources, ahead of fetches.
    pub fn on_demand(&self) -> &OnDemandCounts {
        self.shared.fetches.on_demand()
    }

    /// The bytes that were read ahead before versions served, and the milliseconds that it took.
    pub fn warmed(&self) -> [u64; 2] {
        self.shared.fetches.warmed()
    }

    /// How often a store's current version changed here.
    pub fn swaps(&self) -> u64 {
        self.shared.swaps.load(Relaxed)
    }

    /// Why the node does not serve everything that it should; empty if it does.
    pub fn not_ready(&self) -> Vec<String> {
        if let Some(error) = &*self.shared.fatal.borrow() {
            return vec![error.to_string()];
        }
        let Sighting { view, origin, .. } = self.shared.mirror.sighting();
        if origin == Origin::Nothing {
            return vec!["the coordination service has not answered yet".to_owned()];
        }
        let Some(node) = self.node() else {
            return vec!["the leading controller has not given this node its number yet".to_owned()];
        };
        let Some(routing) = &view.routing else {
            return vec!["there is no routing table yet: too few nodes are live".to_owned()];
        };
        if self.shared.status.lock().settled == Origin::Nothing {
            return vec!["the versions on the disk are not served yet".to_owned()];
        }
        let mut owned: BTreeMap<usize, PartitionSet> = BTreeMap::new();
        let local = self.shared.disk.local();
        let mut reasons = versioned::problems(&self.replicas);
        let behind = self.replicas.partitions_behind();
        if reasons.is_empty() && behind > 0 {
            reasons.push(format!(
                "{behind} partitions of versioned stores may lack acknowledged writes (BEHIND): they are being compared with \
                 other nodes; start those that are absent"
            ));
        }
        reasons.extend(self.unexplained());
        for (name, store) in &view.stores {
            let Some(current) = store.record.versions.current() else {
                continue;
            };
            let replicas = view.replicas(&store.record);
            let owned = owned.entry(replicas).or_insert_with(|| {
                let mut owned = routing.record.owned(replicas);
                owned.remove(&node).unwrap_or_default()
            });
            let key = (name.clone(), current);
            let found = local.get(&key);
            if let Some(damage) = found.and_then(|version| version.damage.as_ref()) {
                let failure = self.shared.status.lock().failures.get(&key).cloned();
                let again = failure.map_or_else(
                    || "it is being fetched again".to_owned(),
                    |failure| format!("fetching it again failed: {failure}"),
                );
                reasons.push(format!(
                    "version {current} of store {name:?} cannot be served completely: {damage}; {again}"
                ));
            }
            if self.is_repair_unseen(&key) {
                reasons.push(format!(
                    "version {current} of store {name:?} was repaired, and is being opened"
                ));
            }
            let count = routing.record.partitions();
            let built_for = store
                .record
                .details
                .get(&current)
                .map_or(count, |detail| detail.partitions);
            let own = owned.among(count, built_for);
            // A late node lacks what others have: they answer for it.
            let is_open = found.is_some_and(|version| match store.record.late.contains(&node) {
                true => version.open.covers(&own),
                false => version.answered().covers(&own),
            });
            let reads_stream = store.record.definition.stream.is_some() && !own.is_empty();
            if is_open
                && reads_stream
                && let Some(reason) = self.streams.unread(name, current, &own)
            {
                reasons.push(format!(
                    "the stream of version {current} of store {name:?} has yet to be read: {reason}"
                ));
            }
            if !owned.is_empty() && !is_open {
                let reason = self.shared.why_not(name, current);
                let reason = reason.unwrap_or_else(|| "it is being fetched".to_owned());
                reasons.push(format!(
                    "version {current} of store {name:?} cannot be served: {reason}"
                ));
            }
        }
        if view
            .stores
            .values()
            .any(|store| store.record.definition.versioned.is_some())
            && let Some(refused) = self.replicas.writes_refused()
        {
            reasons.push(format!("writes to versioned stores are refused: {refused}"));
        }
        reasons
    }

    /// Whether requests still see a version as it was before it was repaired.
    fn is_repair_unseen(&self, key: &ReplicaKey) -> bool {
        match self.catalog.load().store(&key.0).map(|store| &store.serving) {
            Some(Serving::Version(number, seen)) if *number == key.1 => self.shared.disk.is_repaired_since(key, seen),
            _ => false,
        }
    }

    /// Descriptions of stored data, and of streams, that cannot be read.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = versioned::damage(&self.replicas);
        problems.extend(self.streams.problems());
        problems
    }

    /// Data on this node, though no record names it or says that it was dropped.
    fn unexplained(&self) -> Vec<String> {
        let versions: Vec<String> = {
            let status = self.shared.status.lock();
            let version = |(store, version): &ReplicaKey| format!("version {version} of store {store:?}");
            status.unexplained.iter().map(version).collect()
        };
        let tables = self.replicas.unexplained_tables().into_iter();
        let tables = tables.map(|table| format!("table {table:?} of a versioned store"));
        versions
            .into_iter()
            .chain(tables)
            .map(|what| {
                format!(
                    "{what} is on this node's disk, and no record of the cluster names it or says that it was dropped: it \
                     is kept; if the record was lost, write it back: fondaco cluster adopt --http ADDRESS of a node that \
                     remembers it; if the data is not needed, stop the node and delete it"
                )
            })
            .collect()
    }

    /// Reads the indexes of the versions on the disk into memory, in the background: until then lookups read them as
    /// they need them.
    fn warm(&self) {
        let shared = Arc::clone(&self.shared);
        let warming = std::thread::Builder::new().name("warm".into()).spawn(move || {
            for (store, version) in shared.disk.local().into_keys() {
                match shared.disk.warm(&store, version) {
                    Ok(()) => {
                        shared.reopened.store(true, Relaxed);
                        shared.change_signal.raise();
                    }
                    Err(error) => tracing::error!(%store, %version, %error, "an index cannot be read"),
                }
            }
        });
        if let Err(error) = warming {
            tracing::warn!(%error, "cannot start the thread that warms indexes");
        }
    }
}

impl Drop for AgentWork {
    fn drop(&mut self) {
        // This thread begins fetches.
        self.worker.end();
        self.shared.fetches.end();
    }
}
