//! The streams of hybrid stores on a node: an overlay for each version on the disk, fed by threads of the node's own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fondaco_api::{LostRange, TopicPartition, VersionStream};
use fondaco_catalog::StoreSchemas;
use fondaco_cluster::{ChangeSignal, Operator};
use fondaco_decisions::{LocalVersion, ReplicaKey};
use fondaco_engine::Engine;
use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::versioned::EngineKind;
use fondaco_model::{
    PartitionCount, PartitionId, PartitionSet, StoreName, StreamSettings, StreamSource, VersionNumber,
};
use fondaco_protocol::now_unix_ms;
use fondaco_replica::{Engines, Replicas};
use fondaco_schema::ValueRules;
use fondaco_stream::{
    Applied, Below, EventLog, Feed, FeedOptions, FeedStatus, Ingest, KafkaCluster, LiveRules, Overlay, OverlayOptions,
    RegistryClient, Source, StreamError, drop_after_loss, drop_after_losses, topic_partition,
};
use parking_lot::{Condvar, Mutex};

use crate::config::KafkaConfig;
use crate::disk::Disk;
use crate::error::AgentError;
use crate::event_schemas::rules_of;
use crate::ingest_pace::IngestPace;
use crate::log_retention::LogRetention;
use crate::start_offsets::StartOffsets;

/// How many threads feed all overlays of a node.
const THREADS: usize = 2;

/// How long the agent waits for an overlay that is being opened.
const OPEN_AT_ONCE: Duration = Duration::from_millis(200);

/// How long to wait before an overlay is opened again that could not be opened.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is logged that a version has no overlay.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The streams of a node.
pub struct Streams {
    engines: Engines,
    /// They know what engines have lost.
    replicas: Arc<Replicas>,
    /// Overlays may be in use for longer than the data directory.
    disk: Weak<Disk>,
    /// The log of the process, if it is a whole cluster.
    log: Option<Arc<EventLog>>,
    retention: Option<LogRetention>,
    kafka: KafkaConfig,
    /// Each Kafka, by its brokers.
    clusters: Mutex<BTreeMap<String, Arc<KafkaCluster>>>,
    start_offsets: Arc<StartOffsets>,
    /// Reads the registry of schemas. Overlays may be in use for longer than the session with the coordination service.
    operator: Weak<Operator>,
    /// Asks registries outside.
    registries: RegistryClient,
    /// Of the values of each hybrid store, by its number and when it was created.
    rules: Mutex<BTreeMap<(u16, u64), Arc<LiveRules>>>,
    pace: IngestPace,
    ingest: Ingest,
    /// Overlays that are being opened, or were.
    opening: Mutex<BTreeMap<ReplicaKey, Opening>>,
    /// Rung when one was opened.
    opened: Condvar,
    /// The latest overlay of each version.
    latest: Mutex<BTreeMap<ReplicaKey, Weak<Overlay>>>,
    /// Wakes the agent.
    change_signal: Arc<ChangeSignal>,
    state: Mutex<State>,
}

/// The feed of an overlay that is being opened, once it is open, or why it cannot be.
type Opening = Option<Result<Arc<Feed>, String>>;

#[derive(Default)]
struct State {
    feeds: BTreeMap<ReplicaKey, Arc<Feed>>,
    /// Why versions have no overlay, or not one for all their partitions.
    failures: BTreeMap<ReplicaKey, Failure>,
    /// When each failure was logged last.
    logged: BTreeMap<ReplicaKey, Instant>,
    /// Whether overlays that are given up were deleted.
    is_clean: bool,
}

/// Why a version has no overlay, and since when.
#[derive(Clone)]
struct Failure {
    error: String,
    at: Instant,
}

impl Failure {
    fn now(error: String) -> Self {
        let at = Instant::now();
        Self { error, at }
    }
}

/// An overlay of a node.
#[derive(Debug, Clone)]
pub struct OverlayStatus {
    /// The version that the overlay is on top of.
    pub version: VersionNumber,
    /// The state of its feed.
    pub feed: FeedStatus,
    /// The counters of its events.
    pub applied: Applied,
    /// How many keys have events.
    pub keys: u64,
    pub(crate) filter_bytes: u64,
    /// How many partitions the version was built for.
    pub partitions: PartitionCount,
    /// The partitions on the disk that answer, of as many as the version was built for.
    pub ready: PartitionSet,
}

impl From<OverlayStatus> for VersionStream {
    fn from(status: OverlayStatus) -> Self {
        let applied = status.applied;
        let lost = status.feed.lost.iter().map(|lost| {
            let (topic, partition) = topic_partition(lost.partition);
            LostRange {
                topic,
                partition,
                from: lost.from,
                to: lost.to,
            }
        });
        let partitions = status.feed.partitions.into_iter().map(|partition| TopicPartition {
            topic: partition.topic,
            partition: partition.partition,
            next_offset: partition.next,
            lag_records: partition.lag_records,
            lag_ms: partition.lag_ms,
        });
        Self {
            node: None,
            version: status.version.get(),
            partitions_total: status.partitions.get(),
            partitions_ready: status.ready.len() as u64,
            ready: status.ready,
            settled_unix_ms: status.feed.settled_ms,
            keys: status.keys,
            filter_bytes: status.filter_bytes,
            applied: applied.applied,
            superseded: applied.superseded,
            cut: applied.cut,
            late: applied.late,
            poison: applied.poison,
            elsewhere: applied.elsewhere,
            repeated: applied.repeated,
            unfit: applied.unfit,
            partitions: partitions.collect(),
            begun_offsets: status.feed.begun,
            lost: lost.collect(),
            held_back: status.feed.is_held_back,
            error: status.feed.error,
        }
    }
}

impl Streams {
    /// Starts the threads. Overlays from before a loss of an engine begin anew.
    ///
    /// # Errors
    /// A thread cannot be started, or an error of an engine that has lost writes.
    pub(super) fn start(
        (engines, replicas): (Engines, Arc<Replicas>),
        disk: &Arc<Disk>,
        (log, kafka): (Option<Arc<EventLog>>, KafkaConfig),
        start_offsets: StartOffsets,
        operator: Weak<Operator>,
        pace: IngestPace,
        change_signal: Arc<ChangeSignal>,
    ) -> Result<Self, AgentError> {
        for (kind, engine) in engines.by_kind() {
            if let Some(lost) = replicas.lost_writes(kind) {
                drop_after_losses(&**engine, &lost)?;
            }
        }
        let ingest = Ingest::start_paced(THREADS, Box::new(pace.passes()));
        Ok(Self {
            engines,
            replicas,
            disk: Arc::downgrade(disk),
            retention: log.clone().map(LogRetention::new),
            log,
            kafka,
            clusters: Mutex::default(),
            start_offsets: Arc::new(start_offsets),
            operator,
            registries: RegistryClient::new(),
            rules: Mutex::default(),
            change_signal,
            opening: Mutex::default(),
            latest: Mutex::default(),
            opened: Condvar::new(),
            ingest: ingest.map_err(AgentError::io("start", "threads of streams"))?,
            pace,
            state: Mutex::default(),
        })
    }

    /// Gives each version of a hybrid store its overlay, and notes the partitions that have yet to read their stream.
    /// Returns whether requests should see other overlays.
    pub(super) fn reconcile(
        self: &Arc<Self>,
        view: &ClusterView,
        schemas: &StoreSchemas,
        versions: &mut BTreeMap<ReplicaKey, LocalVersion>,
    ) -> bool {
        self.set_rules(view, schemas);
        if let Some(retention) = &self.retention {
            retention.delete_unneeded(view);
        }
        let (known, failed) = {
            let state = self.state.lock();
            (state.feeds.clone(), state.failures.clone())
        };
        let (mut feeds, mut failures) = (BTreeMap::new(), BTreeMap::new());
        for (key, local) in versions.iter_mut() {
            let Some(store) = view.stores.get(&key.0).map(|store| &store.record) else {
                continue;
            };
            let Some(settings) = &store.definition.stream else {
                continue;
            };
            local.behind = local.open.clone();
            local.stream_error = None;
            let mut feed = known.get(key).filter(|feed| is_of(feed, store)).cloned();
            // A version that is not kept any more has no detail; requests may still name it for a moment.
            if let Some(wanted) = wanted(store, settings, key.1, local) {
                feed = feed.filter(|feed| feed.is_for(&wanted.options, wanted.start_ms));
                if feed.is_none() {
                    let former = failed.get(key).cloned();
                    let waits = former.as_ref().is_some_and(|former| former.at.elapsed() < TRY_AGAIN);
                    match if waits { Ok(None) } else { self.opened(key, wanted) } {
                        Ok(Some(opened)) => feed = Some(opened),
                        // Until it was tried again, the failure still holds.
                        Ok(None) => failures.extend(former.map(|former| (key.clone(), former))),
                        Err(error) => _ = failures.insert(key.clone(), Failure::now(error)),
                    }
                }
            }
            let Some(feed) = feed else {
                local.stream_error = failures.get(key).map(|failure| failure.error.clone());
                continue;
            };
            feed.set(settings.lag_ms, settings.paused);
            feed.set_quota(settings.write_keys_per_second);
            if let Err(error) = feed.set_held(&local.open) {
                failures.insert(key.clone(), Failure::now(error.to_string()));
            }
            local.behind = local.open.without(&feed.overlay().ready());
            let error = || match local.behind.is_empty() {
                true => feed.lasting_error(),
                false => feed.status().error,
            };
            local.stream_error = failures.get(key).map(|failure| failure.error.clone()).or_else(error);
            feeds.insert(key.clone(), feed);
        }
        self.close_unwanted(versions);
        let is_same = feeds.len() == known.len()
            && feeds
                .iter()
                .all(|(key, feed)| known.get(key).is_some_and(|known| Arc::ptr_eq(known, feed)));
        let is_clean = {
            let mut state = self.state.lock();
            state.note_failures(failures);
            if !is_same {
                state.feeds = feeds;
                self.ingest.set_feeds(state.feeds.values().cloned().collect());
                state.is_clean = false;
            }
            state.is_clean
        };
        self.latest.lock().retain(|_, overlay| overlay.strong_count() > 0);
        // Once requests see no overlay that is to be deleted: they do after this pass.
        if is_same && !is_clean && !view.remembered && !view.is_partial {
            match self.delete_given_up(view, versions) {
                Ok(is_clean) => self.state.lock().is_clean = is_clean,
                Err(error) => tracing::warn!(%error, "cannot delete events of versions that are gone: trying again"),
            }
        }
        !is_same
    }

    /// Gives the values of each hybrid store the schemas that are registered now.
    fn set_rules(&self, view: &ClusterView, schemas: &StoreSchemas) {
        let mut rules = self.rules.lock();
        let stores = view.stores.values().map(|store| &store.record);
        let hybrid = stores.filter(|store| store.definition.stream.is_some());
        let mut known = std::mem::take(&mut *rules);
        for store in hybrid {
            let key = (store.id, store.created_unix_ms);
            let value_type = store.definition.value_type;
            let new = || Arc::new(rules_of(&self.operator, &self.registries, store));
            let live = known.remove(&key).unwrap_or_else(new);
            let before = live.load();
            let schemas = schemas.of_store(store.id).unwrap_or(before.schemas()).clone();
            if before.value_type() != value_type || !Arc::ptr_eq(before.schemas(), &schemas) {
                live.set(ValueRules::new(value_type, schemas));
            }
            drop(before);
            rules.insert(key, live);
        }
    }

    /// The feed of a version, once its overlay was opened, on a thread of its own: that reads all its keys.
    fn opened(self: &Arc<Self>, key: &ReplicaKey, wanted: Wanted) -> Result<Option<Arc<Feed>>, String> {
        let (options, start_ms) = (wanted.options.clone(), wanted.start_ms);
        let mut opening = self.opening.lock();
        if !opening.contains_key(key) {
            // One that was given up lives until its last step ends: two would apply the same events.
            let latest = self.latest.lock();
            if latest.get(key).is_some_and(|overlay| overlay.strong_count() > 0) {
                return Ok(None);
            }
            drop(latest);
            opening.insert(key.clone(), None);
            let (streams, own_key) = (Arc::clone(self), key.clone());
            let thread = std::thread::Builder::new().name("open overlay".to_owned());
            let spawned = thread.spawn(move || {
                let feed = catch_unwind(AssertUnwindSafe(|| streams.feed(wanted)));
                let feed = feed
                    .unwrap_or(Err(StreamError::Panicked))
                    .map_err(|error| error.to_string());
                streams.opening.lock().insert(own_key, Some(feed));
                streams.opened.notify_all();
                streams.change_signal.raise();
            });
            if let Err(error) = spawned {
                opening.remove(key);
                return Err(format!("cannot start a thread: {error}"));
            }
        }
        // Most have few keys.
        let is_open = |opening: &mut BTreeMap<ReplicaKey, Opening>| opening.get(key).is_some_and(Option::is_some);
        if !is_open(&mut opening) {
            self.opened.wait_for(&mut opening, OPEN_AT_ONCE);
        }
        match is_open(&mut opening).then(|| opening.remove(key)).flatten().flatten() {
            // Something else may have been wanted when it was begun.
            Some(feed) => feed.map(|feed| Some(feed).filter(|feed| feed.is_for(&options, start_ms))),
            None => Ok(None),
        }
    }

    /// Closes overlays whose versions have gone while they were opened.
    fn close_unwanted(&self, versions: &BTreeMap<ReplicaKey, LocalVersion>) {
        let mut opening = self.opening.lock();
        let before = opening.len();
        opening.retain(|key, opened| opened.is_none() || versions.contains_key(key));
        if opening.len() < before {
            self.state.lock().is_clean = false;
        }
    }

    fn feed(self: &Arc<Self>, wanted: Wanted) -> Result<Arc<Feed>, StreamError> {
        let sources = self.sources(&wanted)?;
        let below = self.below(&wanted);
        let key = (wanted.options.store.clone(), wanted.options.version);
        let (kind, engine) = self.engine(wanted.engine);
        if let Some(lost) = self.replicas.lost_writes(kind) {
            drop_after_loss(&**engine, &wanted.options, &lost)?;
        }
        let of_store = (wanted.options.store_id, wanted.options.created_unix_ms);
        let rules = self.rules.lock().get(&of_store).cloned().unwrap_or_default();
        let overlay = Overlay::open(Arc::clone(engine), wanted.options, below, rules)?;
        let overlay = Arc::new(overlay);
        self.latest.lock().insert(key, Arc::downgrade(&overlay));
        let change_signal = Arc::clone(&self.change_signal);
        let begun_elsewhere = self
            .start_offsets
            .of_other_nodes(overlay.options(), wanted.source.to_string());
        let options = FeedOptions {
            start_ms: wanted.start_ms,
            center_ranks: wanted.center_ranks,
            ahead_ms_max: wanted.clock_ahead_ms,
            lag_ms_max: wanted.lag_ms_max,
            is_paused: wanted.is_paused,
            on_ready: Box::new(move || change_signal.raise()),
            begun_elsewhere,
        };
        Ok(Arc::new(Feed::of_topics(overlay, sources, options)))
    }

    /// The version below an overlay, as it is open at the time.
    fn below(&self, wanted: &Wanted) -> Below {
        let (disk, checksum) = (Weak::clone(&self.disk), wanted.manifest_checksum.clone());
        let (store, version) = (wanted.options.store.clone(), wanted.options.version);
        Arc::new(move |key| {
            let disk = disk.upgrade();
            let open = disk.and_then(|disk| disk.version_with(&store, version, &checksum));
            let open = open.ok_or_else(|| format!("version {version} is not open"))?;
            let value = open.get_dated(key).map_err(|error| error.to_string())?;
            Ok(value.map(|(value, time_ms)| (value.into(), time_ms)))
        })
    }

    /// The engine of this kind, or the disk engine if the node has none, with its kind.
    fn engine(&self, kind: EngineKind) -> (EngineKind, &Arc<dyn Engine>) {
        let mut engines = self.engines.by_kind();
        let found = engines.find(|(known, _)| *known == kind);
        found.unwrap_or((EngineKind::Disk, self.engines.disk()))
    }

    fn sources(&self, wanted: &Wanted) -> Result<Vec<Arc<dyn Source>>, StreamError> {
        match &wanted.source {
            StreamSource::Log(partitions) => {
                let log = self.log.as_ref().ok_or_else(|| StreamError::NoTopic {
                    topic: wanted.source.to_string(),
                })?;
                Ok(vec![log.topic(&wanted.topic, *partitions)?])
            }
            StreamSource::Kafka {
                brokers,
                topic,
                mirrored,
            } => {
                let mut clusters = self.clusters.lock();
                let cluster = clusters.entry(brokers.clone());
                let cluster = cluster.or_insert_with(|| Arc::new(KafkaCluster::new(brokers, &self.kafka.0)));
                let topics = [topic].into_iter().chain(mirrored);
                Ok(topics.map(|topic| Arc::new(cluster.topic(topic)) as _).collect())
            }
        }
    }

    /// Deletes overlays of versions that records say are not needed any more, and that are not on the disk. Returns whether no overlay
    /// of a dropped store is left to be deleted later.
    fn delete_given_up(
        &self,
        view: &ClusterView,
        versions: &BTreeMap<ReplicaKey, LocalVersion>,
    ) -> Result<bool, StreamError> {
        let now_unix_ms = now_unix_ms();
        let mut is_clean = true;
        for (_, engine) in self.engines.by_kind() {
            // The offsets of an overlay first: one with offsets and without records would take these for read.
            for table in engine.tables()?.into_iter().rev() {
                let Some((id, created_unix_ms, version)) = OverlayOptions::of_table(&table) else {
                    continue;
                };
                let is_it = |store: &&StoreRecord| store.id == id && store.created_unix_ms == created_unix_ms;
                let live = view.stores.values().map(|store| &store.record).find(is_it);
                let dropped = view.dropped.values().map(|dropped| &dropped.record);
                let dropped = dropped.into_iter().find(|dropped| is_it(&&dropped.record));
                let is_needed = match (live, dropped) {
                    (Some(store), _) => {
                        let key = (store.definition.name.clone(), version);
                        store.details.contains_key(&version) || versions.contains_key(&key)
                    }
                    (None, Some(dropped)) => {
                        is_clean &= dropped.kept_until_unix_ms <= now_unix_ms;
                        dropped.kept_until_unix_ms > now_unix_ms
                    }
                    // Its record may have been lost.
                    (None, None) => true,
                };
                if !is_needed {
                    engine.drop_table(&table)?;
                }
            }
        }
        Ok(is_clean)
    }

    /// The overlay of a version.
    pub(super) fn overlay(&self, store: &StoreName, version: VersionNumber) -> Option<Arc<Overlay>> {
        let state = self.state.lock();
        let feed = state.feeds.get(&(store.clone(), version))?;
        Some(Arc::clone(feed.overlay()))
    }

    /// The rules for the values of a hybrid store.
    pub fn rules(&self, store: &StoreRecord) -> Option<Arc<LiveRules>> {
        self.rules.lock().get(&(store.id, store.created_unix_ms)).cloned()
    }

    /// The feed of the overlay of a version.
    pub fn of_version(&self, store: &StoreName, version: VersionNumber) -> Option<Arc<Feed>> {
        self.state.lock().feeds.get(&(store.clone(), version)).cloned()
    }

    /// The overlays of a store.
    pub fn overlays(&self, store: &StoreName) -> Vec<(VersionNumber, Arc<Overlay>)> {
        let state = self.state.lock();
        let own = state.feeds.iter().filter(|((name, _), _)| name == store);
        own.map(|((_, version), feed)| (*version, Arc::clone(feed.overlay())))
            .collect()
    }

    /// The partitions that overlays hold, once for each of them, by the present number of partitions.
    pub fn held(&self, count: PartitionCount) -> Vec<PartitionId> {
        let state = self.state.lock();
        let overlays = state.feeds.values().map(|feed| feed.overlay());
        let held = overlays.map(|overlay| overlay.ready().among(overlay.options().partitions, count));
        held.flat_map(|held| held.iter().collect::<Vec<_>>()).collect()
    }

    /// Why not all of these partitions of a version answer: their stream has yet to be read, and what keeps the node from
    /// that. `None` if all do.
    pub(super) fn unread(&self, store: &StoreName, version: VersionNumber, own: &PartitionSet) -> Option<String> {
        let state = self.state.lock();
        let key = (store.clone(), version);
        let feed = state.feeds.get(&key);
        if feed.is_some_and(|feed| feed.overlay().ready().covers(own)) {
            return None;
        }
        let failed = state.failures.get(&key).map(|failure| failure.error.clone());
        let reason = failed.or_else(|| feed?.status().error);
        Some(reason.unwrap_or_else(|| "it is being read".to_owned()))
    }

    /// The reasons that keep the node from reading streams, a sentence for each version.
    pub fn problems(&self) -> Vec<String> {
        let state = self.state.lock();
        let failures = state.failures.iter().map(|(key, failure)| (key, failure.error.clone()));
        let others = state.feeds.iter().filter(|(key, _)| !state.failures.contains_key(*key));
        let lasting = others.filter_map(|(key, feed)| Some((key, feed.lasting_error()?)));
        let all: BTreeMap<_, _> = failures.chain(lasting).collect();
        let sentence = |((store, version), error): (&ReplicaKey, String)| {
            format!("the stream of version {version} of store {store:?} cannot be read: {error}")
        };
        all.into_iter().map(sentence).collect()
    }

    /// Why versions of a store have no overlay.
    pub fn failures(&self, store: &StoreName) -> Vec<(VersionNumber, String)> {
        let state = self.state.lock();
        let own = state.failures.iter().filter(|((name, _), _)| name == store);
        own.map(|((_, version), failure)| (*version, failure.error.clone()))
            .collect()
    }

    /// How far the overlays of a store have come.
    pub fn status(&self, store: &StoreName) -> Vec<OverlayStatus> {
        let state = self.state.lock();
        let own = state.feeds.iter().filter(|((name, _), _)| name == store);
        let status = |((_, version), feed): (&ReplicaKey, &Arc<Feed>)| {
            let overlay = feed.overlay();
            let (keys, filter_bytes) = overlay.size();
            OverlayStatus {
                version: *version,
                feed: feed.status(),
                applied: overlay.applied(),
                keys,
                filter_bytes: filter_bytes as u64,
                partitions: overlay.options().partitions,
                ready: PartitionSet::clone(&overlay.ready()),
            }
        };
        own.map(status).collect()
    }

    /// Why a version has no overlay.
    pub(super) fn problem(&self, store: &StoreName, version: VersionNumber) -> Option<String> {
        let state = self.state.lock();
        let failure = state.failures.get(&(store.clone(), version));
        failure.map(|failure| failure.error.clone())
    }

    /// The rate that streams are slowed down to for the sake of reads, in bytes a second; 0 if they are not.
    pub fn rate_limit_bytes_per_second(&self) -> u64 {
        self.pace.limit_bytes_per_second()
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.pace.close();
        self.ingest.close();
    }
}

impl State {
    /// Takes note of failures, and logs them, but not again and again.
    fn note_failures(&mut self, failures: BTreeMap<ReplicaKey, Failure>) {
        let now = Instant::now();
        self.logged.retain(|_, logged| now - *logged < LOG_EVERY);
        for (key, failure) in &failures {
            self.logged.entry(key.clone()).or_insert_with(|| {
                let error = &failure.error;
                tracing::warn!(store = %key.0, version = %key.1, error, "the stream of a version cannot be read: trying again");
                now
            });
        }
        self.failures = failures;
    }
}

/// The inputs of a feed.
struct Wanted {
    options: OverlayOptions,
    engine: EngineKind,
    source: StreamSource,
    /// The topic of the store in the log of the process.
    topic: String,
    start_ms: u64,
    /// See [`StreamSettings::center_ranks`].
    center_ranks: Vec<u8>,
    clock_ahead_ms: u64,
    lag_ms_max: u64,
    is_paused: bool,
    /// Of the version below.
    manifest_checksum: String,
}

/// The feed that a version on the disk should have, if it is the one that the store's record names.
fn wanted(
    store: &StoreRecord,
    settings: &StreamSettings,
    version: VersionNumber,
    local: &LocalVersion,
) -> Option<Wanted> {
    let detail = store.details.get(&version)?;
    let is_it = local.manifest_checksum.as_ref() == Some(&detail.manifest_checksum);
    let events = detail.events.unwrap_or_default();
    (is_it && !local.open.is_empty()).then(|| Wanted {
        options: OverlayOptions {
            store_id: store.id,
            created_unix_ms: store.created_unix_ms,
            ..OverlayOptions::of_version(
                &store.definition.name,
                (version, detail.partitions, detail.built_unix_ms),
                &events,
                settings,
            )
        },
        engine: settings.engine,
        source: settings.source.clone(),
        topic: store.log_topic(),
        start_ms: events.from_unix_ms,
        center_ranks: settings.center_ranks(),
        clock_ahead_ms: settings.clock_ahead_ms,
        lag_ms_max: settings.lag_ms,
        is_paused: settings.paused,
        manifest_checksum: detail.manifest_checksum.clone(),
    })
}

/// Whether a feed belongs to this store, and not to another one that had its name.
fn is_of(feed: &Feed, store: &StoreRecord) -> bool {
    let options = feed.overlay().options();
    options.store_id == store.id && options.created_unix_ms == store.created_unix_ms
}
