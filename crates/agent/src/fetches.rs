//! The fetches that run on a node, each by a thread of its own.
//!
//! A fetch ends when all its partitions are on the disk and open, with their indexes in memory, or with an error. The
//! caller decides what follows: ended fetches are collected here until the caller takes them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fondaco_catalog::{Setting, Settings};
use fondaco_cluster::{ChangeSignal, ClusterError};
use fondaco_decisions::{FailedFetch, LocalFetch, ReplicaKey};
use fondaco_fetch::{
    FetchControl, FetchError, FetchPlan, FetchProgress, FetchSource, FetchTarget, OnDemand, OnDemandCounts, PageCache,
    PeerClient, Sources, SystemClock, discard_leftovers,
};
use fondaco_format::Version;
use fondaco_metrics::NodeMetrics;
use fondaco_model::cluster::VersionDetail;
use fondaco_model::{NodeId, PartitionCount, PartitionId, PartitionSet};
use parking_lot::Mutex;

use crate::config::KafkaConfig;
use crate::data_dir::delete_tree;
use crate::disk::Disk;
use crate::error::AgentError;
use crate::sources::built_at;
use crate::tuning::Tuning;
use crate::uploads;
use crate::uploads::{UploadFiles, UploadSource, Uploads};
use crate::warming::{Limits, warm};

/// The pause before a version is tried again that could not be opened while it is fetched.
const OPEN_AGAIN: Duration = Duration::from_millis(500);

/// The parts of the node that fetches need.
pub(crate) struct FetchesParts {
    pub(crate) disk: Arc<Disk>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<NodeMetrics>,
    /// How other nodes are asked for files.
    pub(crate) peers: PeerClient,
    /// How Kafka is reached.
    pub(crate) kafka: KafkaConfig,
    /// How much of the disk must stay free, in bytes.
    pub(crate) reserve_bytes: u64,
    /// How much memory the page cache may use, in bytes.
    pub(crate) memory_bytes: u64,
    /// Rung when a fetch ends.
    pub(crate) change_signal: Arc<ChangeSignal>,
}

/// The partitions of one fetch, and their sources.
pub(crate) struct Job {
    /// The node itself.
    pub(crate) node: NodeId,
    /// The HTTP address, `host:port`, of the node that the version was uploaded to, if it was uploaded and the node is
    /// known.
    pub(crate) uploaded_at: Option<String>,
    pub(crate) key: ReplicaKey,
    pub(crate) partitions: PartitionSet,
    /// How many partitions the cluster has.
    pub(crate) partition_count: PartitionCount,
    pub(crate) detail: VersionDetail,
    /// The HTTP addresses of peers, `host:port`, in the order in which they are to be asked.
    pub(crate) peers: Vec<String>,
    /// Those of them that fetch some of the partitions from the source now.
    pub(crate) relays: BTreeMap<PartitionId, String>,
    /// Whether moves of a plan give the partitions to the node.
    pub(crate) is_move: bool,
    /// Whether to open the partitions at once, and to read on demand what look-ups need.
    pub(crate) on_demand: bool,
}

impl Job {
    /// The fetch, which has failed.
    fn failed(&self, error: String, for_good: bool) -> FailedFetch {
        FailedFetch {
            source: self.detail.source.clone(),
            manifest_checksum: self.detail.manifest_checksum.clone(),
            partitions: self.partitions.clone(),
            error,
            for_good,
        }
    }
}

/// The end of a fetch.
pub(crate) struct Ended {
    pub(crate) key: ReplicaKey,
    /// `None` if it succeeded or was stopped.
    pub(crate) failed: Option<FailedFetch>,
}

/// The fetches of a node.
pub(crate) struct Fetches(Arc<Inner>);

struct Inner {
    parts: FetchesParts,
    running: Mutex<BTreeMap<ReplicaKey, Running>>,
    /// The bytes of the last fetch of each version.
    fetched_bytes: Mutex<BTreeMap<ReplicaKey, u64>>,
    ended: Mutex<Vec<Ended>>,
    /// The bytes that were read ahead before versions served, and the time that it took.
    warmed_bytes: AtomicU64,
    warmed_ms: AtomicU64,
    on_demand: Arc<OnDemandCounts>,
}

struct Running {
    control: Arc<FetchControl>,
    manifest_checksum: String,
    partitions: PartitionSet,
    is_move: bool,
    /// The partitions that are not wanted any more.
    unwanted: PartitionSet,
    thread: Option<JoinHandle<()>>,
}

impl Fetches {
    pub(crate) fn new(parts: FetchesParts) -> Self {
        Self(Arc::new(Inner {
            parts,
            running: Mutex::default(),
            fetched_bytes: Mutex::default(),
            ended: Mutex::default(),
            warmed_bytes: AtomicU64::new(0),
            warmed_ms: AtomicU64::new(0),
            on_demand: Arc::default(),
        }))
    }

    /// Begins a fetch. No other fetch of this version is running.
    pub(crate) fn begin(&self, job: Job) {
        let control = Arc::new(FetchControl::new(SystemClock));
        let key = job.key.clone();
        let (store, version) = &key;
        let partitions = job.partitions.len();
        tracing::info!(%store, %version, partitions, source = %job.detail.source, "fetch begins");
        // Held until the thread is in the map, so that the thread cannot end before.
        let mut running = self.0.running.lock();
        let entry = Running {
            control: Arc::clone(&control),
            manifest_checksum: job.detail.manifest_checksum.clone(),
            partitions: job.partitions.clone(),
            is_move: job.is_move,
            unwanted: PartitionSet::EMPTY,
            thread: None,
        };
        let job = Arc::new(job);
        let (inner, its_job) = (Arc::clone(&self.0), Arc::clone(&job));
        let thread = std::thread::Builder::new()
            .name("fetch".into())
            .spawn(move || inner.run(&its_job, &control));
        match thread {
            Ok(thread) => {
                let thread = Some(thread);
                running.insert(key, Running { thread, ..entry });
            }
            Err(error) => {
                let reason = AgentError::io("start", "fetch thread")(error).to_string();
                let failed = Some(job.failed(reason, false));
                self.0.ended.lock().push(Ended { key, failed });
            }
        }
    }

    /// Asks a fetch to stop, since these partitions are not wanted any more. It counts as running until it has stopped.
    pub(crate) fn stop(&self, key: &ReplicaKey, unwanted: PartitionSet) {
        if let Some(running) = self.0.running.lock().get_mut(key) {
            running.unwanted = unwanted;
            running.control.cancel();
        }
    }

    /// The fetches that run, as the model sees them.
    pub(crate) fn local(&self) -> BTreeMap<ReplicaKey, LocalFetch> {
        let fetch = |running: &Running| {
            let progress = running.control.progress();
            LocalFetch {
                manifest_checksum: running.manifest_checksum.clone(),
                partitions: running.partitions.clone(),
                bytes_done: progress.bytes_done,
                bytes_total: progress.bytes_total,
                seconds_left: progress.seconds_left,
            }
        };
        let running = self.0.running.lock();
        running
            .iter()
            .map(|(key, running)| (key.clone(), fetch(running)))
            .collect()
    }

    /// The bytes of the last fetch of each version for which this holds; the others are forgotten.
    pub(crate) fn fetched_bytes(&self, is_known: impl Fn(&ReplicaKey) -> bool) -> BTreeMap<ReplicaKey, u64> {
        let mut fetched = self.0.fetched_bytes.lock();
        fetched.retain(|key, _| is_known(key));
        fetched.clone()
    }

    /// The progress of a fetch, if it runs.
    pub(crate) fn progress(&self, key: &ReplicaKey) -> Option<FetchProgress> {
        Some(self.0.running.lock().get(key)?.control.progress())
    }

    /// The bytes that were read ahead before versions served, and the milliseconds that it took.
    pub(crate) fn warmed(&self) -> [u64; 2] {
        [&self.0.warmed_bytes, &self.0.warmed_ms].map(|count| count.load(Relaxed))
    }

    /// The counts of reads on demand: by look-ups, from sources, ahead of fetches.
    pub(crate) fn on_demand(&self) -> &OnDemandCounts {
        &self.0.on_demand
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.0.running.lock().len()
    }

    /// The fetches that ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<Ended> {
        std::mem::take(&mut *self.0.ended.lock())
    }

    /// Interrupts all fetches, and waits until they have stopped. The fetched files stay.
    pub(crate) fn end(&self) {
        let threads: Vec<_> = {
            let mut running = self.0.running.lock();
            running.values().for_each(|running| running.control.interrupt());
            running
                .values_mut()
                .filter_map(|running| running.thread.take())
                .collect()
        };
        for thread in threads {
            // A panic of the thread was caught, and is among the ended fetches.
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// The thread of a fetch.
    fn run(self: &Arc<Self>, job: &Arc<Job>, control: &FetchControl) {
        let (store, version) = &job.key;
        // Without an end, the version could never be fetched again.
        let work = AssertUnwindSafe(|| self.fetch(job, control));
        let outcome = catch_unwind(work).unwrap_or(Err(AgentError::FetchPanicked));
        if outcome.is_ok() {
            let bytes = control.progress().bytes_total;
            self.fetched_bytes.lock().insert(job.key.clone(), bytes);
        }
        let outcome = match outcome {
            Ok(()) => {
                let prepare = |opened: &Arc<Version>| self.warm(job, opened, control);
                self.parts.disk.reopen(store, *version, &job.partitions, prepare)
            }
            Err(error) => {
                // The fetched files stay for the next attempt, unless they fill the disk.
                if matches!(error, AgentError::Fetch(FetchError::DiskFull { .. })) {
                    self.discard_files(job);
                }
                // A version that look-ups read on demand stays open for the next attempt, which goes on with the same files.
                let stays = !matches!(
                    error,
                    AgentError::Fetch(FetchError::DiskFull { .. } | FetchError::Cancelled)
                );
                let opened = self.parts.disk.version(store, *version).filter(|_| stays);
                let reopened = match opened.is_some_and(|opened| opened.is_partial()) {
                    true => Ok(()),
                    false => self.parts.disk.reopen(store, *version, &PartitionSet::EMPTY, |_| {}),
                };
                match self.parts.disk.version(store, *version) {
                    // Damage of a served version is known already: report why it could not be repaired.
                    Some(_) => Err(error),
                    None => reopened.and(Err(error)),
                }
            }
        };
        let failed = match outcome {
            Ok(()) => {
                tracing::info!(%store, %version, "fetched and open");
                None
            }
            Err(AgentError::Fetch(FetchError::Cancelled)) => {
                let unwanted = self
                    .running
                    .lock()
                    .get(&job.key)
                    .map(|running| running.unwanted.clone());
                let unwanted = unwanted.unwrap_or_default();
                if let Err(error) = self.parts.disk.discard_unopened(store, *version, &unwanted) {
                    tracing::warn!(%store, %version, %error, "cannot delete the leftovers of a fetch");
                }
                None
            }
            Err(AgentError::Fetch(FetchError::Interrupted)) => None,
            Err(error) => {
                tracing::warn!(%store, %version, %error, "a fetch failed");
                let remedy = uploads::remedy(store, &job.detail.source, &error).unwrap_or_default();
                Some(job.failed(format!("{error}{remedy}"), is_for_good(&error)))
            }
        };
        // First the ended fetch is added, then the running one is removed: a thread that asks in between finds it
        // running, and asks again.
        self.ended.lock().push(Ended {
            key: job.key.clone(),
            failed,
        });
        self.running.lock().remove(&job.key);
        self.parts.change_signal.raise();
    }

    /// Fetches the missing files to the disk.
    fn fetch(self: &Arc<Self>, job: &Arc<Job>, control: &FetchControl) -> Result<(), AgentError> {
        let (store, version) = &job.key;
        let [version_dir, fetching_dir] = self.parts.disk.dirs_of(store, *version);
        let was_there = version_dir.exists();
        let was_open = self
            .parts
            .disk
            .version(store, *version)
            .is_some_and(|opened| !opened.is_partial());
        let checksum = &job.detail.manifest_checksum;
        let taken = self.parts.disk.take_back(store, *version, checksum, &job.partitions)?;
        if taken && !was_there {
            // The missing partitions are fetched by the next fetch.
            return Ok(());
        }
        let source = self.source(job)?;
        let peer = |address: &String| {
            let peer = self.parts.peers.source(address, store, *version);
            Box::new(peer) as Box<dyn FetchSource>
        };
        // All nodes read the files of a file system, or of the node that has the upload. Other storage may be in
        // another data center: the link carries each file once.
        let is_remote = source.local_dir().is_none() && UploadSource::of(&job.detail.source).is_none();
        let relays = job.relays.iter().filter(|_| is_remote);
        let number = |relay: &String| Some(1 + job.peers.iter().position(|peer| peer == relay)?);
        let relays = relays.filter_map(|(&partition, relay)| Some((partition, number(relay)?)));
        let sources = Sources::new(std::iter::once(source).chain(job.peers.iter().map(peer)));
        let sources = Arc::new(sources.with_relays(relays.collect()));
        let target = FetchTarget {
            store,
            partitions: job.partition_count,
            wanted: Some(&job.partitions),
            manifest_checksum: Some(checksum.parse().map_err(|_| ClusterError::InvalidMetadata {
                entry: format!("stores/{store}"),
                reason: format!("{checksum:?} is not the checksum of a manifest"),
            })?),
            fetching_dir: &fetching_dir,
            version_dir: &version_dir,
            siblings: &self.parts.disk.siblings(store, *version),
            reserve_bytes: self.parts.reserve_bytes,
        };
        let mut plan = FetchPlan::new(&sources, &target)?;
        self.parts.disk.free_space(plan.files_bytes())?;
        let ended = Arc::new(Mutex::new(false));
        // Files that are linked or cloned take no time, and no space.
        if job.on_demand && !plan.links() && !self.parts.disk.complete(store, *version).covers(&job.partitions) {
            let on_demand = plan.on_demand(&sources, &target, &job.partitions, &self.on_demand)?;
            self.open_on_demand(job, on_demand, &ended);
        }
        let cache = self.page_cache(plan.files_bytes());
        let running = || self.running.lock().len();
        let moving = || self.running.lock().values().filter(|running| running.is_move).count();
        let tuning = Tuning {
            settings: &self.parts.settings,
            metrics: &self.parts.metrics,
            running: &running,
            moving: job.is_move.then_some(&moving),
        };
        let report = plan.run(&sources, &target, cache, control, &tuning);
        *ended.lock() = true;
        let report = report?;
        if version_dir.is_dir() && !was_open {
            // Nothing of it was open, so all wanted partitions were fetched or verified; other files may be the reason
            // why it could not be opened.
            self.parts.disk.keep_only(store, *version, &job.partitions)?;
        }
        report.log(store, *version);
        Ok(())
    }

    /// Opens a version while it is fetched, on a thread of its own: its sources may be slow, and the fetch needs no look-ups. Tries
    /// until the fetch has ended.
    fn open_on_demand(self: &Arc<Self>, job: &Arc<Job>, on_demand: OnDemand, ended: &Arc<Mutex<bool>>) {
        // The node may end before the sources have answered.
        let (inner, job, ended) = (Arc::downgrade(self), Arc::clone(job), Arc::clone(ended));
        let work = move || {
            let (store, version) = &job.key;
            while !*ended.lock() {
                match on_demand.open() {
                    Ok(opened) => {
                        let ended = ended.lock();
                        if let (false, Some(inner)) = (*ended, inner.upgrade()) {
                            inner
                                .parts
                                .disk
                                .serve_on_demand(store, *version, opened, &job.partitions);
                            tracing::info!(%store, %version, "open while it is fetched");
                            inner.parts.change_signal.raise();
                        }
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(%store, %version, %error, "cannot be opened while it is fetched: trying again");
                        std::thread::sleep(OPEN_AGAIN);
                    }
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("open".into()).spawn(work) {
            tracing::warn!(%error, "cannot open a version while it is fetched");
        }
    }

    /// Reads into memory what readers of the store's other versions have read lately, before this one serves.
    fn warm(self: &Arc<Self>, job: &Job, opened: &Arc<Version>, fetch: &FetchControl) {
        let (store, version) = &job.key;
        let others = self.parts.disk.others(store, *version);
        let limits = Limits {
            time: Duration::from_millis(self.parts.settings.get(Setting::WarmTimeMs)),
            bytes: self.parts.memory_bytes / 100 * self.parts.settings.get(Setting::WarmMemoryPercent),
        };
        if job.is_move || others.is_empty() || limits.time.is_zero() || limits.bytes == 0 {
            return;
        }
        let running = || self.running.lock().len();
        let tuning = Tuning {
            settings: &self.parts.settings,
            metrics: &self.parts.metrics,
            running: &running,
            moving: None,
        };
        let began = Instant::now();
        let opened = Arc::clone(opened);
        let read = move |may_go_on: &mut dyn FnMut(u64) -> bool| {
            let read = opened.read_as(&others, limits.bytes, may_go_on);
            read.map_err(|error| error.to_string())
        };
        let warmed = warm(limits.time, &tuning, fetch, read);
        self.warmed_bytes.fetch_add(warmed.bytes, Relaxed);
        self.warmed_ms.fetch_add(began.elapsed().as_millis() as u64, Relaxed);
        let (bytes, end, time) = (warmed.bytes, warmed.end, began.elapsed());
        tracing::info!(%store, %version, bytes, ?time, %end, "read what readers of the version before had read");
    }

    /// The location that the version was pushed from.
    fn source(&self, job: &Job) -> Result<Box<dyn FetchSource>, AgentError> {
        let store = &job.key.0;
        let Some(upload) = UploadSource::of(&job.detail.source) else {
            return Ok(Box::new(built_at(&job.detail.source, &self.parts.kafka)?));
        };
        if upload.node == job.node {
            return Ok(Box::new(self.parts.uploads.files(upload)));
        }
        let address = job.uploaded_at.as_ref();
        let peer = address.map(|address| self.parts.peers.upload(address, store, &upload.id.to_string()));
        let peer = peer.map(|peer| Box::new(peer) as Box<dyn FetchSource>);
        Ok(Box::new(UploadFiles::new(upload, peer)))
    }

    /// Deletes the files of a fetch that filled the disk: others need space on it, if only to record that the push
    /// failed.
    fn discard_files(&self, job: &Job) {
        let [version_dir, fetching_dir] = self.parts.disk.dirs_of(&job.key.0, job.key.1);
        let discarded = discard_leftovers(&version_dir).map_err(AgentError::from);
        if let Err(error) = discarded.and(delete_tree(&fetching_dir)) {
            tracing::warn!(?fetching_dir, %error, "cannot free space on the disk");
        }
    }

    /// Pages of a new version may stay in the page cache if all versions here then fit into half of the memory.
    fn page_cache(&self, bytes: u64) -> PageCache {
        let here: u64 = self
            .parts
            .disk
            .open_versions()
            .iter()
            .map(|version| version.files_bytes())
            .sum();
        match here.saturating_add(bytes) <= self.parts.memory_bytes / 2 {
            true => PageCache::Keep,
            false => PageCache::DropBehind,
        }
    }
}

/// Whether an early retry would end the same way.
fn is_for_good(error: &AgentError) -> bool {
    let AgentError::Fetch(error) = error else {
        return false;
    };
    error.is_for_good()
}
