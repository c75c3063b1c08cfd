//! The networks of vertices that were asked for lately: a cache, bounded in bytes, that all event loops share. One
//! computation stands for all queries that miss the same network at the same time.
//!
//! An entry of a batch graph is named by the graph's version, and never wrong. An entry of a versioned graph has an age: beyond
//! the first bound it is served and computed again in the background, beyond the second it counts as absent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_graph::Network;
use fondaco_graph::keys::Direction;
use fondaco_model::VersionNumber;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::catalog::StoreId;
use crate::metrics::NodeMetrics;

/// What an entry costs besides its sets, in bytes: itself, its name, and its place in the table.
const ENTRY_BYTES: u64 = 256;
/// How many entries it has, as a guess for the size of the table.
const ITEMS_GUESS: usize = 8192;

/// Whose network it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) store: StoreId,
    /// The version that it is computed from; `None` in a versioned graph.
    pub(super) version: Option<VersionNumber>,
    pub(super) edge_type: Arc<str>,
    pub(super) direction: Direction,
    pub(super) id: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    network: Arc<Network>,
    computed: Instant,
    /// Whether it is being computed again.
    is_renewed: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Weighter<Name, Entry> for Bytes {
    fn weight(&self, _: &Name, entry: &Entry) -> u64 {
        entry.network.bytes() as u64 + ENTRY_BYTES
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Networks {
    cache: Cache<Name, Entry, Bytes>,
    metrics: Arc<NodeMetrics>,
}

/// What the cache has of a network.
pub(super) enum Kept {
    /// This; if so said, it is to be computed again in the background.
    Network { network: Arc<Network>, renew: bool },
    /// Nothing.
    Nothing,
}

impl Networks {
    pub(crate) fn new(metrics: Arc<NodeMetrics>) -> Self {
        Self {
            // It gets its size with the first network.
            cache: Cache::with_weighter(ITEMS_GUESS, 0, Bytes),
            metrics,
        }
    }

    /// Makes it as large as the setting says now.
    pub(super) fn resize(&self, bytes_max: u64) {
        if self.cache.capacity() != bytes_max {
            self.cache.set_capacity(bytes_max);
        }
    }

    /// The network, if it is kept and not too old. A network older than `fresh` is to be renewed by the first that is told so.
    pub(super) fn get(&self, name: &Name, fresh: Duration, oldest: Duration) -> Kept {
        let Some(entry) = self.cache.get(name) else {
            return Kept::Nothing;
        };
        let age = entry.computed.elapsed();
        match name.version {
            None if age > oldest => {
                self.cache.remove(name);
                return Kept::Nothing;
            }
            None if age > fresh => {
                self.metrics.graphs.network_stale.fetch_add(1, Relaxed);
                return Kept::Network {
                    network: entry.network,
                    renew: !entry.is_renewed.swap(true, Relaxed),
                };
            }
            _ => {}
        }
        self.metrics.graphs.network_hits.fetch_add(1, Relaxed);
        Kept::Network {
            network: entry.network,
            renew: false,
        }
    }

    pub(super) fn insert(&self, name: Name, network: Arc<Network>) {
        let entry = Entry {
            network,
            computed: Instant::now(),
            is_renewed: Arc::default(),
        };
        self.cache.insert(name, entry);
        self.note_bytes();
    }

    fn note_bytes(&self) {
        self.metrics.graphs.network_bytes.store(self.cache.weight(), Relaxed);
    }

    /// The network, computed by one of those that miss it at the same time.
    ///
    /// # Errors
    /// What the computation says.
    pub(super) async fn get_or_compute(
        &self,
        name: Name,
        compute: impl Future<Output = Result<Network, String>>,
    ) -> Result<Arc<Network>, String> {
        self.metrics.graphs.network_misses.fetch_add(1, Relaxed);
        let entry = self
            .cache
            .get_or_insert_async(&name, async {
                Ok::<_, String>(Entry {
                    network: Arc::new(compute.await?),
                    computed: Instant::now(),
                    is_renewed: Arc::default(),
                })
            })
            .await?;
        self.note_bytes();
        Ok(entry.network)
    }
}
