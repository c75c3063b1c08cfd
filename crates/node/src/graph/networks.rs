//! The networks of vertices that were asked for lately: a cache, bounded in bytes, that all event loops share. One
//! computation stands for all queries that miss the same network at the same time.
//!
//! An entry of a batch graph is named by the graph's version, and never wrong. An entry of a versioned graph has an age: beyond
//! the first bound it is served and computed again in the background, beyond the second it counts as absent. A change through
//! this process removes the networks that it is in, also those that are being computed.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use fondaco_catalog::StoreId;
use fondaco_graph::Network;
use fondaco_graph::keys::Direction;
use fondaco_metrics::NodeMetrics;
use fondaco_model::VersionNumber;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// The cost of an entry besides its sets, in bytes: itself, its name, and its place in the table.
const ENTRY_BYTES: u64 = 256;
/// How many entries it has, as a guess for the size of the table.
const ITEMS_GUESS: usize = 8192;

/// Over how many counts the names of forgotten networks are spread. Two names with one count do no harm but that a network is not
/// kept.
const FORGOTTEN: usize = 4096;

/// The key of a network in the cache.
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
    /// How often networks were forgotten, by a hash of their names.
    forgotten: Box<[AtomicU64]>,
    /// How many networks are being computed.
    computing: AtomicUsize,
    metrics: Arc<NodeMetrics>,
}

/// A network that is being computed. It is not kept if it was forgotten meanwhile.
pub(super) struct Computing<'a> {
    networks: &'a Networks,
    name: Name,
    forgotten: u64,
}

/// The state of a network in the cache.
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
            forgotten: (0..FORGOTTEN).map(|_| AtomicU64::new(0)).collect(),
            computing: AtomicUsize::new(0),
            metrics,
        }
    }

    /// Makes it as large as the setting says now.
    pub(super) fn resize(&self, bytes_max: u64) {
        if self.cache.capacity() != bytes_max {
            self.cache.set_capacity(bytes_max);
        }
    }

    /// The network, if it is kept and not too old. A network older than `fresh` is renewed by the first caller that gets it.
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

    /// Whether nothing is kept, and nothing is being computed.
    pub(super) fn is_idle(&self) -> bool {
        self.computing.load(SeqCst) == 0 && self.cache.is_empty()
    }

    /// Forgets networks of a versioned graph, also those that are being computed.
    pub(super) fn forget(&self, store: StoreId, edge_type: &str, direction: Direction, ids: impl Iterator<Item = u64>) {
        let edge_type: Arc<str> = edge_type.into();
        for id in ids {
            let name = Name {
                store,
                version: None,
                edge_type: Arc::clone(&edge_type),
                direction,
                id,
            };
            self.forgotten(&name).fetch_add(1, SeqCst);
            self.cache.remove(&name);
        }
        self.note_bytes();
    }

    fn forgotten(&self, name: &Name) -> &AtomicU64 {
        let hash = FixedState::default().hash_one(name);
        &self.forgotten[hash as usize % FORGOTTEN]
    }

    /// A network is going to be computed: call this before anything is read for it.
    pub(super) fn compute(&self, name: Name) -> Computing<'_> {
        self.computing.fetch_add(1, SeqCst);
        Computing {
            forgotten: self.forgotten(&name).load(SeqCst),
            networks: self,
            name,
        }
    }

    fn note_bytes(&self) {
        self.metrics.graphs.network_bytes.store(self.cache.weight(), Relaxed);
    }

    /// The network, computed by one of those that miss it at the same time.
    ///
    /// # Errors
    /// The outcome of the computation.
    pub(super) async fn get_or_compute(
        &self,
        name: Name,
        compute: impl Future<Output = Result<Network, String>>,
    ) -> Result<Arc<Network>, String> {
        self.metrics.graphs.network_misses.fetch_add(1, Relaxed);
        let computing = self.compute(name);
        let entry = self
            .cache
            .get_or_insert_async(&computing.name, async {
                Ok::<_, String>(Entry {
                    network: Arc::new(compute.await?),
                    computed: Instant::now(),
                    is_renewed: Arc::default(),
                })
            })
            .await?;
        computing.keep(None);
        Ok(entry.network)
    }
}

impl Computing<'_> {
    /// Keeps the network, or the one in its place already, unless it was forgotten meanwhile.
    pub(super) fn keep(self, network: Option<Network>) {
        let cache = &self.networks.cache;
        if let Some(network) = network {
            let entry = Entry {
                network: Arc::new(network),
                computed: Instant::now(),
                is_renewed: Arc::default(),
            };
            cache.insert(self.name.clone(), entry);
        }
        // It is looked at when the network is there, so that one who forgets it later finds it.
        if self.networks.forgotten(&self.name).load(SeqCst) != self.forgotten {
            cache.remove(&self.name);
        }
        self.networks.note_bytes();
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.networks.computing.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn networks() -> Networks {
        let networks = Networks::new(Arc::new(NodeMetrics::new(1)));
        networks.resize(1 << 20);
        networks
    }

    fn name(version: Option<u64>, id: u64) -> Name {
        Name {
            store: StoreId::new(1).unwrap(),
            version: version.and_then(VersionNumber::new),
            edge_type: "KNOWS".into(),
            direction: Direction::Out,
            id,
        }
    }

    fn network() -> Network {
        Network::new(&[1, 2], &[3]).unwrap()
    }

    #[tokio::test]
    async fn one_computation_stands_for_all_that_miss() {
        let networks = Arc::new(networks());
        let computed = Arc::new(AtomicUsize::new(0));
        let (go, wait) = tokio::sync::watch::channel(false);
        let queries: Vec<_> = (0..8)
            .map(|_| {
                let (networks, computed, mut wait) = (Arc::clone(&networks), Arc::clone(&computed), wait.clone());
                tokio::spawn(async move {
                    let compute = async {
                        computed.fetch_add(1, Relaxed);
                        let _ = wait.wait_for(|&go| go).await;
                        Ok(network())
                    };
                    networks.get_or_compute(name(Some(1), 7), compute).await
                })
            })
            .collect();
        while computed.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        go.send(true).unwrap();
        for query in queries {
            assert_eq!(*query.await.unwrap().unwrap(), network());
        }
        assert_eq!(computed.load(Relaxed), 1);
        assert!(networks.metrics.network_bytes() > 0);
    }

    #[tokio::test]
    async fn a_computation_that_fails_keeps_nothing() {
        let networks = networks();
        let failed = networks
            .get_or_compute(name(None, 7), async { Err("TIMEOUT".into()) })
            .await;
        assert_eq!(failed.unwrap_err(), "TIMEOUT");
        let done = networks.get_or_compute(name(None, 7), async { Ok(network()) }).await;
        assert_eq!(*done.unwrap(), network());
    }

    #[test]
    fn networks_of_versioned_graphs_have_an_age() {
        let networks = networks();
        let (day, none) = (Duration::from_secs(86_400), Duration::ZERO);
        let kept = |name: &Name, fresh, oldest| match networks.get(name, fresh, oldest) {
            Kept::Network { renew, .. } => Some(renew),
            Kept::Nothing => None,
        };
        let (batch, versioned) = (name(Some(1), 7), name(None, 7));
        networks.compute(batch.clone()).keep(Some(network()));
        networks.compute(versioned.clone()).keep(Some(network()));
        assert_eq!(kept(&batch, none, none), Some(false), "a version never changes");
        assert_eq!(kept(&versioned, day, day), Some(false));
        // The first that finds it stale renews it.
        assert_eq!(kept(&versioned, none, day), Some(true));
        assert_eq!(kept(&versioned, none, day), Some(false));
        assert_eq!(kept(&versioned, none, none), None);
        assert_eq!(kept(&name(Some(2), 7), day, day), None, "another version");
    }

    #[tokio::test]
    async fn a_change_forgets_networks_and_those_being_computed() {
        let networks = networks();
        let day = Duration::from_secs(86_400);
        let is_kept = |name: &Name| matches!(networks.get(name, day, day), Kept::Network { .. });
        let forget = || networks.forget(name(None, 7).store, "KNOWS", Direction::Out, [7].into_iter());
        assert!(networks.is_idle());
        let (one, other, batch) = (name(None, 7), name(None, 8), name(Some(1), 7));
        for name in [&one, &other, &batch] {
            networks.compute(name.clone()).keep(Some(network()));
        }
        forget();
        assert!(!is_kept(&one) && is_kept(&other) && is_kept(&batch));
        let (computing, untouched) = (networks.compute(one.clone()), networks.compute(other.clone()));
        forget();
        computing.keep(Some(network()));
        untouched.keep(Some(network()));
        assert!(!is_kept(&one), "a change came while it was computed");
        assert!(is_kept(&other), "a change of other networks does not concern this one");
        let compute = async {
            forget();
            Ok(network())
        };
        assert_eq!(*networks.get_or_compute(one.clone(), compute).await.unwrap(), network());
        assert!(!is_kept(&one), "a change came while it was computed");
        assert_eq!(networks.computing.load(SeqCst), 0);
    }

    #[test]
    fn the_cache_is_bounded_in_bytes() {
        let networks = networks();
        networks.resize(16 << 10);
        let large = Network::new(&(0..1000).map(|id| id * id).collect::<Vec<_>>(), &[]).unwrap();
        (0..1000).for_each(|id| networks.compute(name(None, id)).keep(Some(large.clone())));
        assert!(
            networks.metrics.network_bytes() <= 16 << 10,
            "{}",
            networks.metrics.network_bytes()
        );
    }
}
