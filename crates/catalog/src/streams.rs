//! The streams of all hybrid stores, to write to.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::cluster::ClusterView;
use fondaco_model::{Acknowledge, StreamSource};
use fondaco_stream::StoreTopic;

/// The stream of a hybrid store, as writes need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStream {
    /// Its topic.
    pub topic: StoreTopic,
    /// When a write is answered.
    pub acknowledge: Acknowledge,
    /// Whether values begin with numbers of a registry of schemas outside of the cluster.
    pub has_registry: bool,
    /// The quota of writes, in keys a second, if there is one.
    pub write_keys_per_second: Option<u64>,
}

/// The streams of all hybrid stores, by the number of the store. Copies share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStreams(BTreeMap<u16, Arc<StoreStream>>);

impl StoreStreams {
    /// The streams in a view.
    pub fn of(view: &ClusterView) -> Self {
        let stores = view.stores.values().map(|store| &store.record);
        let streams = stores.filter_map(|store| {
            let settings = store.definition.stream.as_ref()?;
            let stream = StoreStream {
                topic: StoreTopic {
                    source: settings.source.clone(),
                    log_topic: match settings.source {
                        StreamSource::Log(_) => store.log_topic(),
                        StreamSource::Kafka { .. } => String::new(),
                    },
                    partitioner: settings.partitioner,
                    clock_ahead_ms: settings.clock_ahead_ms,
                },
                acknowledge: settings.acknowledge,
                has_registry: settings.registry.is_some(),
                write_keys_per_second: settings.write_keys_per_second,
            };
            Some((store.id, Arc::new(stream)))
        });
        Self(streams.collect())
    }

    /// The stream of the store with this number.
    pub fn of_store(&self, store: u16) -> Option<&Arc<StoreStream>> {
        self.0.get(&store)
    }
}
