//! The client, as applications and servers use it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::{BufMut, Bytes, BytesMut};
use fondaco_ids::Computation;
use fondaco_model::cluster::Topology;
use fondaco_model::{NodeId, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::LocalReplica;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::alarm::Alarm;
use crate::builder::ClientBuilder;
use crate::clock::Clock;
use crate::error::ClientError;
use crate::link::{Link, Transport};
use crate::options::ReadOptions;
use crate::quorum::{Home, QuorumCounters};
use crate::read::{BatchReply, Directory, HealthPolicy, Steering};
use crate::stats::ClientStats;
use crate::streamed::Streamed;
use crate::topology::Trouble;

/// A client of one cluster. Cheap to clone; all clones share connections and learned state.
///
/// It may be used from any task. Its background tasks run on the runtime in which it was made, and end when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// State shared by the clones of a client.
pub(crate) struct Inner {
    /// The snapshot with which requests begin; `None` before the first topology.
    pub(crate) current: ArcSwapOption<Snapshot>,
    /// Where topologies come from.
    pub(crate) source: Mutex<watch::Receiver<Option<Arc<Topology>>>>,
    /// The present snapshot, for tasks that wait for the next one.
    pub(crate) changed: watch::Sender<Option<Arc<Snapshot>>>,
    pub(crate) steering: Steering,
    pub(crate) clock: Clock,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) options: ReadOptions,
    pub(crate) topology_wanted: Arc<Notify>,
    pub(crate) trouble: watch::Receiver<Trouble>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) zone: Option<String>,
    pub(crate) health: HealthPolicy,
    /// The replica of the node that contains the client.
    pub(crate) replica: Option<Arc<dyn LocalReplica>>,
    /// Whether quotas were charged for its writes before.
    pub(crate) charges_quotas: bool,
    pub(crate) counters: Arc<QuorumCounters>,
    /// The number of operations on versioned stores that continue after they were answered.
    pub(crate) background: AtomicUsize,
    /// Aborted with the client.
    pub(crate) tasks: OnceLock<Vec<JoinHandle<()>>>,
}

/// A topology, and the links to its nodes.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) directory: Arc<Directory>,
    /// The client's place in it.
    pub(crate) home: Arc<Home>,
    /// Whether there are versioned stores.
    pub(crate) has_versioned: bool,
    /// One for each member, in the order of members.
    links: Vec<Arc<Link>>,
}

impl Snapshot {
    pub(crate) fn link(&self, node: NodeId) -> Option<&Arc<Link>> {
        let members = self.directory.members();
        let place = members.binary_search_by_key(&node, |member| member.id).ok()?;
        self.links.get(place)
    }
}

impl Client {
    /// A builder for a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.inner.transport
    }

    /// The value of one key, with the client's own options. If a key of a versioned store has several values, returns
    /// the one that the store's settings resolve them to, or the latest.
    ///
    /// # Errors
    /// Any reason why it cannot be read: see [`ClientError`].
    pub async fn get(&self, store: &StoreName, key: &[u8]) -> Result<Option<Bytes>, ClientError> {
        let keys = vec![WireKey::new(store, key)?];
        let mut reply = self.read(keys, &self.inner.options).await?;
        // One key has one value: a request yields as many values as it has keys.
        reply.values.pop().unwrap_or(Ok(None))
    }

    /// The values of many keys, of one or several stores. All values of a store are from one version.
    ///
    /// # Errors
    /// An invalid key. Unless [`Partial::PerKey`](crate::Partial::PerKey) is set, also any reason why one of them
    /// cannot be read.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[(StoreName, K)],
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        self.read(wire_keys(keys)?, options).await
    }

    /// The values of many keys as they come, in any order, for callers that need not wait for all of them. All values of a store
    /// are from one version; keys of versioned stores, and all others of their request, come together.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn stream<K: AsRef<[u8]>>(
        &self,
        keys: &[(StoreName, K)],
        options: &ReadOptions,
    ) -> Result<Streamed, ClientError> {
        self.read_streamed(wire_keys(keys)?, options).await
    }

    /// The same of keys that are encoded for the wire.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn read_streamed(&self, keys: Vec<WireKey>, options: &ReadOptions) -> Result<Streamed, ClientError> {
        match self.inner.any_versioned(&keys) {
            false => Streamed::begin(&self.inner, keys, options),
            true => Ok(Streamed::of(self.inner.read_mixed(keys, options).await?)),
        }
    }

    /// The values of keys that are encoded for the wire, for servers that forward. [`Client::get`] and
    /// [`Client::get_many`] are built on it.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn read(&self, keys: Vec<WireKey>, options: &ReadOptions) -> Result<BatchReply, ClientError> {
        match self.inner.any_versioned(&keys) {
            false => self.inner.read(keys, options).await,
            true => self.inner.read_mixed(keys, options).await,
        }
    }

    /// Has the nodes carry out a computation over the values of keys of batch and hybrid stores, one element for each key. For
    /// servers that forward.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn compute(
        &self,
        keys: Vec<WireKey>,
        computation: Computation,
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        self.inner.compute(keys, computation, options).await
    }

    /// Waits until the topology is known.
    ///
    /// # Errors
    /// [`ClientError::NoTopology`], if it is not known in time; at once if all servers that answer refuse the client.
    pub async fn ready(&self, timeout: Duration) -> Result<(), ClientError> {
        let mut changed = self.inner.changed.subscribe();
        let mut trouble = self.inner.trouble.clone();
        let refused = async { trouble.wait_for(|trouble| trouble.refused).await.is_ok() };
        let began = tokio::time::Instant::now();
        tokio::select! {
            biased;
            _ = changed.wait_for(Option::is_some) => return Ok(()),
            true = refused => {}
            () = tokio::time::sleep(timeout) => {}
        }
        Err(self.inner.no_topology(began.elapsed().as_millis() as u64))
    }

    /// The topology that requests use now; `None` before the first one.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        let current = self.inner.current.load();
        current.as_ref().map(|current| Arc::clone(current.directory.topology()))
    }

    /// Counters, and the state of the nodes.
    pub fn stats(&self) -> ClientStats {
        let current = self.inner.current.load();
        let snapshot = current.as_deref();
        ClientStats {
            reads: self.inner.steering.counts(),
            quorums: self.inner.counters.read(),
            topology_epoch: snapshot.map(|snapshot| snapshot.directory.topology().epoch),
            hedge_after_us: self.inner.steering.hedge_threshold_us(1),
            nodes: snapshot.map_or_else(Vec::new, |snapshot| {
                let members = snapshot.directory.members().iter().zip(&snapshot.links);
                members
                    .map(|(member, link)| crate::stats::NodeStats::of(member, link))
                    .collect()
            }),
        }
    }
}

/// Keys as they are on the wire, all in one allocation.
fn wire_keys<K: AsRef<[u8]>>(keys: &[(StoreName, K)]) -> Result<Vec<WireKey>, ClientError> {
    let length = |(store, key): &(StoreName, K)| store.as_str().len() + 1 + key.as_ref().len();
    let mut all = BytesMut::with_capacity(keys.iter().map(length).sum());
    let wire_key = |(store, key): &(StoreName, K)| {
        all.put_slice(store.as_str().as_bytes());
        all.put_u8(b':');
        all.put_slice(key.as_ref());
        Ok(WireKey::parse(all.split().freeze())?)
    };
    keys.iter().map(wire_key).collect()
}

impl Inner {
    /// The snapshot to begin an operation with: the caller may have been told of a store that only the newest topology
    /// has.
    pub(crate) fn newest(&self) -> Result<Arc<Snapshot>, ClientError> {
        // Another request that holds the lock catches up for both.
        if let Some(mut source) = self.source.try_lock() {
            self.catch_up(&mut source);
        }
        self.current.load_full().ok_or_else(|| self.no_topology(0))
    }

    /// Takes the latest topology of the source, if it has not been taken yet.
    pub(crate) fn catch_up(&self, source: &mut watch::Receiver<Option<Arc<Topology>>>) {
        if source.has_changed().unwrap_or(false)
            && let Some(newer) = source.borrow_and_update().clone()
        {
            self.adopt(newer);
        }
    }

    /// Takes a newer topology, for all requests that begin from now on or wait for it.
    pub(crate) fn adopt(&self, topology: Arc<Topology>) {
        let protocol = topology.protocol.min(fondaco_model::protocol());
        self.transport.protocol.store(protocol, Relaxed);
        let former = self.current.load_full();
        let former = former.as_deref();
        let known = former.map(|former| &*former.directory);
        let node = self.replica.as_ref().and_then(|replica| replica.node());
        let home = Home::of(&topology, node, self.zone.as_deref());
        let has_versioned = topology.stores.values().any(|store| store.versioned.is_some());
        let directory = Directory::new(topology, home.zone.as_deref(), self.health, known);
        let link = |member: &crate::read::Member| {
            let known = former.and_then(|former| Some((former.directory.member(member.id)?, former.link(member.id)?)));
            match known.filter(|(known, _)| Arc::ptr_eq(&known.address, &member.address)) {
                Some((_, link)) => Arc::clone(link),
                None => Arc::new(Link::new(member, &self.transport, self.clock)),
            }
        };
        let links = directory.members().iter().map(link).collect();
        let snapshot = Arc::new(Snapshot {
            directory: Arc::new(directory),
            home: Arc::new(home),
            has_versioned,
            links,
        });
        self.current.store(Some(Arc::clone(&snapshot)));
        self.changed.send_replace(Some(snapshot));
    }

    /// Why there is no topology.
    pub(crate) fn no_topology(&self, waited_ms: u64) -> ClientError {
        ClientError::NoTopology {
            waited_ms,
            reason: Arc::clone(&self.trouble.borrow().reason),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in self.tasks.get().into_iter().flatten() {
            task.abort();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
