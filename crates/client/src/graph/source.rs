//! A graph's store as queries read it: each kind of request with the fan-out that fits it, all in one version.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use fondaco_graph::{Ask, Selection, Source, keys};
use fondaco_ids::{Computation, SetAnswer, SetQuery};

use crate::options::ReadOptions;
use crate::read::{
    AsynchronousUnion, ClusterAware, EarlyTerminable, FanOut, FanOutController, NonUnion, PinnedStore, Strategy,
    SynchronousUnion,
};
use crate::sets::{Computed, What};

/// How many keys go into one look-up.
const KEYS_AT_ONCE: usize = 1 << 15;

/// The error of a query in whose course the graph changed its version. It is to be begun again.
const VERSION_CHANGED: &str = "VERSIONGONE the graph changed its version while it was read";

/// How often a query begins again because its graph has changed its version.
const ATTEMPTS: usize = 4;

/// Carries a query out, and again from its beginning if the graph changes its version meanwhile.
///
/// # Errors
/// The error of the query.
pub async fn in_one_version<T, F: Future<Output = Result<T, String>>>(attempt: impl Fn() -> F) -> Result<T, String> {
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error == VERSION_CHANGED => {}
            done => return done,
        }
    }
    attempt().await
}

/// Finds keys of one store, here or elsewhere. It knows the deadline.
pub trait Keys: Send + Sync {
    /// The values, sets or computed result of keys, all in one version of a batch store.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn find(
        &self,
        keys: &[Bytes],
        what: &What,
        asking: &ReadOptions,
    ) -> impl Future<Output = Result<Computed, String>> + Send;

    /// Merges what parts have answered.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn merge(&self, query: &SetQuery, elements: &[Option<Bytes>]) -> Result<SetAnswer, String>;
}

/// A graph in one version, for one query.
#[derive(Debug)]
pub struct GraphSource<K> {
    keys: K,
    pinned: Mutex<Option<PinnedStore>>,
    requests: AtomicU64,
}

impl<K: Keys> GraphSource<K> {
    /// A source that is pinned to this version, or to the one that its first answer is of.
    pub fn new(keys: K, pinned: Option<PinnedStore>) -> Self {
        Self {
            keys,
            pinned: Mutex::new(pinned),
            requests: AtomicU64::new(0),
        }
    }

    /// The version that its answers are of; `None` before the first one, and of a versioned store.
    pub fn pinned(&self) -> Option<PinnedStore> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn find(&self, keys: &[Bytes], what: &What, ask: Ask) -> Result<Vec<Option<Bytes>>, String> {
        let asking = asking(ask);
        let mut elements = Vec::with_capacity(keys.len());
        for (number, some) in keys.chunks(KEYS_AT_ONCE).enumerate() {
            let computed = self.keys.find(some, &what.of_part(number == 0), asking).await?;
            self.requests.fetch_add(computed.requests.into(), Relaxed);
            self.pin(computed.pinned)?;
            elements.extend(computed.elements);
        }
        Ok(elements)
    }

    fn pin(&self, found: Option<PinnedStore>) -> Result<(), String> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*pinned, found) {
            (Some(pinned), Some(found)) if *pinned != found => Err(VERSION_CHANGED.into()),
            (None, found) => {
                *pinned = found;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl<K: Keys> Source for GraphSource<K> {
    async fn values(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, String> {
        self.find(&keys, &What::Values, Ask::NonUnion).await
    }

    async fn sets(&self, keys: Vec<Bytes>, ask: Ask) -> Result<Vec<Option<Bytes>>, String> {
        self.find(&keys, &What::Sets, ask).await
    }

    async fn query(&self, keys: Vec<Bytes>, query: SetQuery, ask: Ask) -> Result<SetAnswer, String> {
        let elements = self.find(&keys, &What::Computation(query.computation()), ask).await?;
        self.keys.merge(&query, &elements)
    }

    async fn select(&self, ids: &[u64], selection: &Selection) -> Result<Vec<Option<Bytes>>, String> {
        let keys: Vec<Bytes> = ids.iter().map(|&id| keys::vertex(id).into()).collect();
        let what = What::Computation(Computation::Select(selection.to_bytes().into()));
        self.find(&keys, &what, Ask::NonUnion).await
    }

    fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// The options of a kind of request: the cluster-aware strategy, with the controller that Moolle assigns.
fn asking(ask: Ask) -> &'static ReadOptions {
    struct All {
        non_union: ReadOptions,
        synchronous_union: ReadOptions,
        asynchronous_union: ReadOptions,
        early_terminable: ReadOptions,
    }
    static ALL: LazyLock<All> = LazyLock::new(|| {
        let strategy: Arc<dyn Strategy> = Arc::new(ClusterAware::default());
        let controlled = |controller: Arc<dyn FanOutController>| ReadOptions {
            strategy: Some(Arc::clone(&strategy)),
            fan_out: FanOut::Controlled(controller),
            ..ReadOptions::default()
        };
        All {
            non_union: controlled(Arc::new(NonUnion)),
            synchronous_union: controlled(Arc::new(SynchronousUnion)),
            asynchronous_union: controlled(Arc::new(AsynchronousUnion::default())),
            early_terminable: controlled(Arc::new(EarlyTerminable { probability: 1.0 })),
        }
    });
    match ask {
        Ask::NonUnion => &ALL.non_union,
        Ask::SynchronousUnion => &ALL.synchronous_union,
        Ask::AsynchronousUnion => &ALL.asynchronous_union,
        Ask::EarlyTerminable => &ALL.early_terminable,
    }
}
