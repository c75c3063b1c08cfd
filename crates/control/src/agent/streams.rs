//! The streams of hybrid stores on a node: an overlay for each version on the disk, fed by threads of the node's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fondaco_engine::Engine;
use fondaco_model::cluster::{ClusterView, LocalVersion, ReplicaKey, StoreRecord, VersionDetail};
use fondaco_model::versioned::EngineKind;
use fondaco_model::{StoreName, StreamSettings, StreamSource, VersionNumber};
use fondaco_replica::Engines;
use fondaco_stream::{
    Applied, Bound, EventLog, Feed, FeedStatus, Ingest, KafkaCluster, OVERLAY_PREFIX, Overlay, OverlayOptions, Source,
    StreamError,
};
use parking_lot::Mutex;

use crate::change_signal::ChangeSignal;
use crate::config::KafkaConfig;
use crate::error::ControlError;

/// How many threads feed all overlays of a node.
const THREADS: usize = 2;

/// The streams of a node.
pub(crate) struct Streams {
    engines: Engines,
    /// The log of the process, if it is a whole cluster.
    log: Option<Arc<EventLog>>,
    kafka: KafkaConfig,
    /// Each Kafka, by its brokers.
    clusters: Mutex<BTreeMap<String, Arc<KafkaCluster>>>,
    ingest: Ingest,
    /// Wakes the agent.
    change_signal: Arc<ChangeSignal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    feeds: BTreeMap<ReplicaKey, Arc<Feed>>,
    /// Why versions have no overlay.
    failures: BTreeMap<ReplicaKey, String>,
    /// Whether overlays of versions that are not on the disk were deleted.
    is_clean: bool,
}

/// An overlay of a node.
#[derive(Debug, Clone)]
pub(crate) struct OverlayStatus {
    pub(crate) version: VersionNumber,
    pub(crate) feed: FeedStatus,
    pub(crate) applied: Applied,
    pub(crate) keys: u64,
    pub(crate) filter_bytes: u64,
    /// How many of the partitions on the disk answer.
    pub(crate) partitions_ready: u64,
}

impl Streams {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(
        engines: Engines,
        log: Option<Arc<EventLog>>,
        kafka: KafkaConfig,
        change_signal: Arc<ChangeSignal>,
    ) -> Result<Self, ControlError> {
        Ok(Self {
            engines,
            log,
            kafka,
            clusters: Mutex::default(),
            change_signal,
            ingest: Ingest::start(THREADS).map_err(ControlError::io("start", "threads of streams"))?,
            state: Mutex::default(),
        })
    }

    /// Gives each version of a hybrid store its overlay, and takes note of which partitions have yet to read their stream.
    /// Returns whether requests should see other overlays.
    pub(super) fn look(&self, view: &ClusterView, versions: &mut BTreeMap<ReplicaKey, LocalVersion>) -> bool {
        let mut state = self.state.lock();
        let mut feeds = BTreeMap::new();
        state.failures.clear();
        for (key, local) in versions.iter_mut() {
            let Some((store, settings, detail)) = hybrid(view, key, local) else {
                continue;
            };
            let known = state.feeds.get(key).cloned();
            let fed = known.map_or_else(|| self.feed(store, settings, key.1, detail), Ok);
            let held = fed.and_then(|feed| feed.set_held(&local.open).map(|()| feed));
            match held {
                Ok(feed) => {
                    local.behind = local.open.without(&feed.overlay().ready());
                    feeds.insert(key.clone(), feed);
                }
                Err(error) => {
                    tracing::warn!(store = %key.0, version = %key.1, %error, "the stream of a version cannot be read: trying again");
                    local.behind = local.open.clone();
                    state.failures.insert(key.clone(), error.to_string());
                }
            }
        }
        let is_same = feeds.len() == state.feeds.len() && feeds.keys().all(|key| state.feeds.contains_key(key));
        if !is_same {
            state.feeds = feeds;
            self.ingest.set_feeds(state.feeds.values().cloned().collect());
            state.is_clean = false;
        }
        let may_delete = !view.remembered && !view.is_partial && state.failures.is_empty();
        if may_delete && !state.is_clean {
            match self.delete_others(&state.feeds) {
                Ok(()) => state.is_clean = true,
                Err(error) => tracing::warn!(%error, "cannot delete events of versions that are gone: trying again"),
            }
        }
        !is_same
    }

    fn feed(
        &self,
        store: &StoreRecord,
        settings: &StreamSettings,
        version: VersionNumber,
        detail: &VersionDetail,
    ) -> Result<Arc<Feed>, StreamError> {
        let events = detail.events.unwrap_or_default();
        let options = OverlayOptions {
            store: store.definition.name.clone(),
            store_id: store.id,
            created_unix_ms: store.created_unix_ms,
            version,
            partitions: detail.partitions,
            as_of_ms: events.as_of_unix_ms,
            grace_ms: settings.grace_ms,
        };
        let source = self.source(store, settings)?;
        let overlay = Overlay::open(Arc::clone(self.engine(settings.engine)), options)?;
        let bound = Bound {
            lag_ms: settings.lag_ms,
        };
        let change_signal = Arc::clone(&self.change_signal);
        let on_ready = Box::new(move || change_signal.raise());
        let overlay = Arc::new(overlay);
        Ok(Arc::new(Feed::new(
            overlay,
            source,
            events.from_unix_ms,
            bound,
            on_ready,
        )))
    }

    fn engine(&self, kind: EngineKind) -> &Arc<dyn Engine> {
        let mut engines = self.engines.by_kind();
        engines
            .find(|(known, _)| *known == kind)
            .map_or(self.engines.disk(), |(_, engine)| engine)
    }

    fn source(&self, store: &StoreRecord, settings: &StreamSettings) -> Result<Arc<dyn Source>, StreamError> {
        match &settings.source {
            StreamSource::Log(partitions) => {
                let log = self.log.as_ref().ok_or_else(|| StreamError::NoTopic {
                    topic: settings.source.to_string(),
                })?;
                Ok(log.topic(&topic_of(store), *partitions)?)
            }
            StreamSource::Kafka { brokers, topic } => {
                let mut clusters = self.clusters.lock();
                let cluster = clusters.entry(brokers.clone());
                let cluster = cluster.or_insert_with(|| Arc::new(KafkaCluster::new(brokers, &self.kafka.0)));
                Ok(Arc::new(cluster.topic(topic)))
            }
        }
    }

    /// Deletes overlays of versions that are not on the disk any more.
    fn delete_others(&self, feeds: &BTreeMap<ReplicaKey, Arc<Feed>>) -> Result<(), StreamError> {
        let wanted: BTreeSet<String> = feeds
            .values()
            .flat_map(|feed| feed.overlay().options().tables())
            .collect();
        for (_, engine) in self.engines.by_kind() {
            for table in engine.tables()? {
                if table.starts_with(OVERLAY_PREFIX) && !wanted.contains(&table) {
                    engine.drop_table(&table)?;
                }
            }
        }
        Ok(())
    }

    /// The overlay of a version.
    pub(super) fn overlay(&self, store: &StoreName, version: VersionNumber) -> Option<Arc<Overlay>> {
        let state = self.state.lock();
        let feed = state.feeds.get(&(store.clone(), version))?;
        Some(Arc::clone(feed.overlay()))
    }

    /// The overlays of a store.
    pub(crate) fn status(&self, store: &StoreName) -> Vec<OverlayStatus> {
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
                partitions_ready: overlay.ready().len() as u64,
            }
        };
        own.map(status).collect()
    }

    /// Why a version has no overlay.
    pub(super) fn problem(&self, store: &StoreName, version: VersionNumber) -> Option<String> {
        self.state.lock().failures.get(&(store.clone(), version)).cloned()
    }

    /// Ends the threads.
    pub(crate) fn close(&self) {
        self.ingest.close();
    }
}

/// The topic of a store in the log of the process.
pub(crate) fn topic_of(store: &StoreRecord) -> String {
    format!("{}-{}", store.id, store.created_unix_ms)
}

/// The store of a version on the disk, if it is hybrid, and this is the version that its record names.
fn hybrid<'a>(
    view: &'a ClusterView,
    (name, version): &ReplicaKey,
    local: &LocalVersion,
) -> Option<(&'a StoreRecord, &'a StreamSettings, &'a VersionDetail)> {
    let store = &view.stores.get(name)?.record;
    let settings = store.definition.stream.as_ref()?;
    let detail = store.details.get(version)?;
    let is_it = local.manifest_checksum.as_ref() == Some(&detail.manifest_checksum);
    (is_it && !local.open.is_empty()).then_some((store, settings, detail))
}
