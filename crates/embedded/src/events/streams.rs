//! The overlays of a reader: one for each version that is open, in one engine, read from the topic by one thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use fondaco_engine::Engine;
use fondaco_format::{ValueSchema, Version};
use fondaco_model::versioned::EngineKind;
use fondaco_model::{StoreName, StreamSource, VersionNumber};
use fondaco_schema::{Schemas, ValueRules};
use fondaco_stream::{
    Below, Feed, FeedOptions, Ingest, KafkaCluster, LiveRules, Overlay, OverlayOptions, RegistryClient, Source,
    StreamError, live_rules,
};
use parking_lot::Mutex;

use super::begun::begun_on_nodes;
use super::engine;
use super::layer::{Layer, ReadStream};
use super::schemas::ClusterSchemas;
use crate::error::EmbeddedError;
use crate::follow::Cluster;

/// How many threads read topics.
const THREADS: usize = 1;
/// How often it is checked whether a step of an overlay that was given up has ended.
const STEP_PAUSE: Duration = Duration::from_millis(5);

/// How streams are read.
pub(crate) struct StreamsOptions {
    pub(crate) store: StoreName,
    /// The directory of the reader: engines have directories of their own in it.
    pub(crate) root: PathBuf,
    /// Properties of librdkafka.
    pub(crate) kafka: BTreeMap<String, String>,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
    /// Called when more partitions answer.
    pub(crate) on_ready: Arc<dyn Fn() + Send + Sync>,
    /// Schemas of values that were known before, and when their store was created.
    pub(crate) schemas: (u64, Vec<ValueSchema>),
}

/// The streams of a reader. It has no thread and no engine before the first version of a hybrid store.
pub(crate) struct Streams {
    options: StreamsOptions,
    cluster: Arc<Cluster>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    engines: Vec<(EngineKind, Arc<dyn Engine>)>,
    /// Each Kafka, by its brokers.
    clusters: BTreeMap<String, Arc<KafkaCluster>>,
    /// Of the values of the store that was created at this time.
    rules: Option<(u64, Arc<LiveRules>)>,
    layers: Vec<Known>,
    feeds: Vec<Arc<Feed>>,
    ingest: Option<Ingest>,
    /// The newest schema that was remembered.
    remembered: Option<u16>,
}

/// A layer that was made, and may be in use.
struct Known {
    /// When its store was created, and the version.
    of: (u64, VersionNumber),
    layer: Weak<Layer>,
    overlay: Weak<Overlay>,
}

impl Streams {
    pub(crate) fn new(options: StreamsOptions, cluster: Arc<Cluster>) -> Self {
        Self {
            options,
            cluster,
            state: Mutex::default(),
        }
    }

    /// The events on top of a version, which are read from the topic once the layer is among those [that are fed](Self::feed). Opening
    /// one reads all its keys. One thread at a time opens layers.
    pub(crate) fn layer(&self, read: &ReadStream<'_>) -> Result<Arc<Layer>, EmbeddedError> {
        let partitions = read.version.manifest().partitions;
        let store = &self.options.store;
        let of = (read.store_created_unix_ms, read.number);
        if let Some(layer) = self.open_layer(of) {
            layer.put_below(read.version)?;
            return Ok(layer);
        }
        let engine = self.engine(read.stream.settings.engine)?;
        let below = Arc::new(ArcSwap::new(Arc::clone(read.version)));
        let rules = self.rules(read)?;
        let options = read
            .stream
            .options(store, read.store_created_unix_ms, read.number, partitions);
        let overlay = Arc::new(Overlay::open(engine, options, base(&below), rules)?);
        let layer = Layer::new(Arc::new(self.feed_of(&overlay, read)?), below);
        layer.set(&read.stream.settings);
        layer.put_below(read.version)?;
        let layer = Arc::new(layer);
        self.state.lock().layers.push(Known {
            of,
            layer: Arc::downgrade(&layer),
            overlay: Arc::downgrade(&overlay),
        });
        Ok(layer)
    }

    /// The layer of a version, if it is in use. Waits for the end of the last step of one that is not: two overlays would apply the
    /// same events.
    fn open_layer(&self, of: (u64, VersionNumber)) -> Option<Arc<Layer>> {
        loop {
            let mut state = self.state.lock();
            state.layers.retain(|known| known.overlay.strong_count() > 0);
            let known = state.layers.iter().find(|known| known.of == of)?;
            if let Some(layer) = known.layer.upgrade() {
                return Some(layer);
            }
            drop(state);
            std::thread::sleep(STEP_PAUSE);
        }
    }

    fn engine(&self, kind: EngineKind) -> Result<Arc<dyn Engine>, EmbeddedError> {
        let mut state = self.state.lock();
        if let Some((_, engine)) = state.engines.iter().find(|(known, _)| *known == kind) {
            return Ok(Arc::clone(engine));
        }
        let StreamsOptions {
            root,
            memory_bytes,
            disk_reserve_bytes,
            ..
        } = &self.options;
        let dir = root.join(format!("events-{kind}"));
        let engine = engine::open(&dir, kind, *memory_bytes, *disk_reserve_bytes)?;
        state.engines.push((kind, Arc::clone(&engine)));
        Ok(engine)
    }

    fn rules(&self, read: &ReadStream<'_>) -> Result<Arc<LiveRules>, EmbeddedError> {
        let (created_unix_ms, value_type) = (read.store_created_unix_ms, read.stream.value_type);
        let of_version = read.version.manifest().value_schemas.iter();
        let mut state = self.state.lock();
        if let Some((of, rules)) = &state.rules
            && *of == created_unix_ms
        {
            let of_version = Schemas::of_texts(value_type, of_version.map(ValueSchema::parts))?;
            let mut schemas = Schemas::clone(rules.load().schemas());
            of_version
                .iter()
                .for_each(|(id, schema)| schemas.insert(id, schema.clone()));
            rules.set(ValueRules::new(value_type, Arc::new(schemas)));
            return Ok(Arc::clone(rules));
        }
        let (of, known) = &self.options.schemas;
        let known = known.iter().filter(|_| *of == created_unix_ms).chain(of_version);
        let schemas = Schemas::of_texts(value_type, known.map(ValueSchema::parts))?;
        let finder = ClusterSchemas {
            cluster: Arc::clone(&self.cluster),
            created_unix_ms,
        };
        let registry = read.stream.settings.registry.clone();
        let registry = registry.map(|registry| (RegistryClient::new(), registry));
        let rules = Arc::new(live_rules(Arc::new(schemas), value_type, finder, registry));
        state.rules = Some((created_unix_ms, Arc::clone(&rules)));
        Ok(rules)
    }

    fn feed_of(&self, overlay: &Arc<Overlay>, read: &ReadStream<'_>) -> Result<Feed, EmbeddedError> {
        let settings = &read.stream.settings;
        let StreamSource::Kafka {
            brokers,
            topic,
            mirrored,
        } = &settings.source
        else {
            return Err(EmbeddedError::LogStream {
                store: self.options.store.to_string(),
            });
        };
        let mut state = self.state.lock();
        let cluster = state.clusters.entry(brokers.clone());
        let cluster = cluster.or_insert_with(|| Arc::new(KafkaCluster::new(brokers, &self.options.kafka)));
        let on_ready = Arc::clone(&self.options.on_ready);
        let options = FeedOptions {
            start_ms: read.stream.events.from_unix_ms,
            center_ranks: settings.center_ranks(),
            ahead_ms_max: settings.clock_ahead_ms,
            lag_ms_max: settings.lag_ms,
            is_paused: settings.paused,
            on_ready: Box::new(move || on_ready()),
            begun_elsewhere: begun_on_nodes(Arc::clone(&self.cluster), read.number, topic.clone()),
        };
        let topics = [topic].into_iter().chain(mirrored);
        let topics = topics.map(|topic| Arc::new(cluster.topic(topic)) as Arc<dyn Source>);
        Ok(Feed::of_topics(Arc::clone(overlay), topics.collect(), options))
    }

    /// Reads the streams of these layers, and of no others.
    pub(crate) fn feed<'a>(&self, layers: impl Iterator<Item = &'a Arc<Layer>>) -> Result<(), EmbeddedError> {
        let feeds: Vec<Arc<Feed>> = layers.map(|layer| Arc::clone(layer.feed())).collect();
        let mut state = self.state.lock();
        let is_same = |(new, old): (&Arc<Feed>, &Arc<Feed>)| Arc::ptr_eq(new, old);
        if feeds.len() == state.feeds.len() && feeds.iter().zip(&state.feeds).all(is_same) {
            return Ok(());
        }
        if state.ingest.is_none() {
            let ingest = Ingest::start(THREADS).map_err(EmbeddedError::io("start a thread for", &self.options.root))?;
            state.ingest = Some(ingest);
        }
        if let Some(ingest) = &state.ingest {
            ingest.set_feeds(feeds.clone());
        }
        state.feeds = feeds;
        Ok(())
    }

    /// Deletes the events of all versions but these, each with the time when its store was created.
    pub(crate) fn keep_only(&self, needed: &[(u64, VersionNumber)]) -> Result<(), StreamError> {
        let engines = self.state.lock().engines.clone();
        let is_given_up = |table: &str| {
            let of = OverlayOptions::of_table(table);
            of.is_some_and(|(_, created_unix_ms, version)| !needed.contains(&(created_unix_ms, version)))
        };
        for (_, engine) in engines {
            engine::drop_tables(&*engine, is_given_up)?;
        }
        Ok(())
    }

    /// All schemas of values that are known, to be remembered, and when their store was created.
    pub(crate) fn schemas(&self) -> (u64, Vec<ValueSchema>) {
        let state = self.state.lock();
        let Some((created_unix_ms, rules)) = &state.rules else {
            return self.options.schemas.clone();
        };
        let rules = rules.load();
        let schema = |(id, schema): (u16, &fondaco_schema::Schema)| ValueSchema {
            id,
            text: schema.to_text(),
            message: schema.message().map(str::to_owned),
        };
        (*created_unix_ms, rules.schemas().iter().map(schema).collect())
    }

    /// Whether there are schemas that were not remembered.
    pub(crate) fn has_new_schemas(&self) -> bool {
        let state = self.state.lock();
        state.newest_schema() > state.remembered
    }

    /// Notes that all present schemas were remembered.
    pub(crate) fn note_remembered(&self) {
        let mut state = self.state.lock();
        state.remembered = state.newest_schema();
    }

    /// Ends the thread that reads topics.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        let (feeds, ingest) = (std::mem::take(&mut state.feeds), state.ingest.take());
        drop(state);
        drop((ingest, feeds));
    }
}

impl State {
    fn newest_schema(&self) -> Option<u16> {
        let (_, rules) = self.rules.as_ref()?;
        rules.load().schemas().newest().map(|(id, _)| id)
    }
}

/// The values of the version below, as it is open at the time.
fn base(below: &Arc<ArcSwap<Version>>) -> Below {
    let below = Arc::clone(below);
    Arc::new(move |key| {
        let value = below.load().get_dated(key).map_err(|error| error.to_string())?;
        Ok(value.map(|(value, time_ms)| (value.into(), time_ms)))
    })
}

/// Whether a directory of a reader has events.
pub(crate) fn has_events(root: &Path) -> bool {
    [EngineKind::Log, EngineKind::Disk]
        .iter()
        .any(|kind| root.join(format!("events-{kind}")).exists())
}
