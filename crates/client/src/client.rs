//! The client: what applications and servers hold.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::{BufMut, Bytes, BytesMut};
use fondaco_model::cluster::Topology;
use fondaco_model::{NodeId, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::LocalReplica;
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

/// A client of one cluster. Cheap to clone; all clones share connections and what was learnt.
///
/// It may be used from any task. What it spawned runs on the runtime that it was made in, and ends when
/// the last clone is dropped.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// What the clones of a client share.
pub(crate) struct Inner {
    /// What requests begin with; nothing before the first topology.
    pub(crate) current: ArcSwapOption<Snapshot>,
    /// The same, for those who wait for the next.
    pub(crate) changed: watch::Sender<Option<Arc<Snapshot>>>,
    pub(crate) steering: Steering,
    pub(crate) clock: Clock,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) options: ReadOptions,
    pub(crate) topology_wanted: Arc<Notify>,
    pub(crate) trouble: watch::Receiver<Arc<str>>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) zone: Option<String>,
    pub(crate) health: HealthPolicy,
    /// What the node that the client is in holds itself.
    pub(crate) replica: Option<Arc<dyn LocalReplica>>,
    /// Whether quotas were charged with what it writes.
    pub(crate) charges_quotas: bool,
    pub(crate) counters: Arc<QuorumCounters>,
    /// How many operations on versioned stores go on though they were answered.
    pub(crate) background: AtomicUsize,
    /// Ended with the client.
    pub(crate) tasks: OnceLock<Vec<JoinHandle<()>>>,
}

/// A topology, and the ways to its nodes.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) directory: Arc<Directory>,
    /// Where the client stands in it.
    pub(crate) home: Arc<Home>,
    /// Whether there are versioned stores.
    pub(crate) has_versioned: bool,
    /// One for each member, in their order.
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
    /// A client to be made.
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

    /// The value of one key, with the client's own options. Of several values of a key of a versioned store, the
    /// one that the store's settings resolve them to, or the latest.
    ///
    /// # Errors
    /// Whatever keeps it from being read: see [`ClientError`].
    pub async fn get(&self, store: &StoreName, key: &[u8]) -> Result<Option<Bytes>, ClientError> {
        let keys = vec![WireKey::new(store, key)?];
        let mut reply = self.read(keys, &self.inner.options).await?;
        // One key has one value: there is no request that yields fewer than it has keys.
        reply.values.pop().unwrap_or(Ok(None))
    }

    /// The values of many keys, of one store or of several. All values of a store are from one version.
    ///
    /// # Errors
    /// An invalid key. Otherwise, unless [`Partial::PerKey`](crate::Partial::PerKey) is asked for,
    /// whatever keeps one of them from being read.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[(StoreName, K)],
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        let length = |(store, key): &(StoreName, K)| store.as_str().len() + 1 + key.as_ref().len();
        let mut all = BytesMut::with_capacity(keys.iter().map(length).sum());
        let mut wire_keys = Vec::with_capacity(keys.len());
        for (store, key) in keys {
            all.put_slice(store.as_str().as_bytes());
            all.put_u8(b':');
            all.put_slice(key.as_ref());
            wire_keys.push(WireKey::parse(all.split().freeze())?);
        }
        self.read(wire_keys, options).await
    }

    /// The values of keys that are ready for the wire: what [`Client::get`] and [`Client::get_many`] rest
    /// on, for servers that forward.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn read(&self, keys: Vec<WireKey>, options: &ReadOptions) -> Result<BatchReply, ClientError> {
        match self.inner.any_versioned(&keys) {
            false => self.inner.read(keys, options).await,
            true => self.inner.read_mixed(keys, options).await,
        }
    }

    /// Waits until the cluster is known.
    ///
    /// # Errors
    /// [`ClientError::NoTopology`], when it is not known in time.
    pub async fn ready(&self, timeout: Duration) -> Result<(), ClientError> {
        let mut changed = self.inner.changed.subscribe();
        let known = changed.wait_for(Option::is_some);
        match tokio::time::timeout(timeout, known).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.inner.no_topology(timeout.as_millis() as u64)),
        }
    }

    /// The topology that requests go by now; `None` before there was one.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        let current = self.inner.current.load();
        current.as_ref().map(|current| Arc::clone(current.directory.topology()))
    }

    /// What was done so far, and how the nodes fare.
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

impl Inner {
    /// Takes a newer topology, for all requests that begin from now on, and those that wait for it.
    pub(crate) fn adopt(&self, topology: Arc<Topology>) {
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
            reason: Arc::clone(&self.trouble.borrow()),
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
