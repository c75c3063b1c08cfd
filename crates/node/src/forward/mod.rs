//! Keys that other nodes have: asked for through the client library, one instance an event loop, without
//! a lock.
//!
//! A router also keeps the values of hot keys ([`cache`]), has one read of a key stand for all clients
//! that want it at the time ([`single_flight`]), and holds stores to their quotas ([`quota`]). How much may be
//! under way is bounded ([`admission`]).

mod admission;
mod applied;
mod cache;
mod expiry;
mod quota;
mod scan;
mod single_flight;
mod steered;
mod streamed;
mod versioned;

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cache::{EntryRef, HotKeys};
use fondaco_catalog::{Catalog, Setting, StoreId};
use fondaco_client::read::{HeldBudget, PinnedStore, ValueBudget};
use fondaco_client::{BatchReply, Client, ClientBuilder, ClientError, Partial, ReadOptions};
use fondaco_ids::Computation;
use fondaco_metrics::{Counter, LoopMetrics};
use fondaco_model::{NodeId, SlotPrefix, StoreKind, StoreName, VersionNumber};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::LocalReplica;
use single_flight::{FlightPlace, SingleFlights};
use tokio::sync::oneshot;

use crate::server::ServerState;

pub(crate) use admission::UnderWay;
pub(crate) use expiry::Expiry;
pub(crate) use quota::Quotas;
pub(crate) use steered::Steered;
pub(crate) use streamed::{Begun, Streamed};

/// A key to be asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The place of its store in the catalog.
    pub(crate) store: u16,
    pub(crate) key: &'a [u8],
}

/// The value of a key, or why it is not known, as an error that begins with its code.
pub(crate) type ValueAnswer = Result<Option<Bytes>, Arc<str>>;

/// The answer of a replica or of another node for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) value: ValueAnswer,
    /// The version that it was looked up in; `None` for a versioned store, and for an error.
    pub(crate) source: Option<StoreVersion>,
}

/// A version of a store, whichever has the store's name by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoreVersion {
    pub(crate) store: StoreId,
    pub(crate) version: VersionNumber,
}

impl StoreVersion {
    /// The version that a read gets: that of the store's canary, if it takes part in one, or the current one.
    pub(crate) fn of_read(catalog: &Catalog, store: u16, is_canary: bool) -> Option<Self> {
        match catalog.canary(store).filter(|_| is_canary) {
            None => Self::current(catalog, store),
            Some(canary) => Some(Self {
                store: catalog.stores()[store as usize].id,
                version: canary.number,
            }),
        }
    }

    /// The current version of the store at a place in the catalog; none before a first was swapped in.
    pub(crate) fn current(catalog: &Catalog, store: u16) -> Option<Self> {
        Some(Self {
            store: catalog.stores()[store as usize].id,
            version: catalog.current_number(store)?,
        })
    }
}

/// The answers for several keys.
#[derive(Default)]
pub(crate) struct Answers {
    /// One for each key, in order.
    pub(crate) each: Vec<Answered>,
    /// The room that the values take until they are sent.
    pub(crate) room: HeldBudget,
}

impl Answers {
    /// The same error for each of this many keys.
    fn failed(keys: usize, error: &ClientError) -> Self {
        let error = error_reply(error);
        let answer = || Answered::failed(Arc::clone(&error));
        Self {
            each: std::iter::repeat_with(answer).take(keys).collect(),
            room: HeldBudget::default(),
        }
    }
}

impl Answered {
    pub(crate) fn failed(error: Arc<str>) -> Self {
        Self {
            value: Err(error),
            source: None,
        }
    }
}

/// The connection of one event loop to other nodes.
pub(crate) struct Forwarder {
    shared: Arc<ServerState>,
    metrics: Arc<LoopMetrics>,
    /// This node's replica, for this loop.
    replica: Option<Arc<dyn LocalReplica>>,
    client: OnceCell<Client>,
    options: ReadOptions,
    cache: RefCell<Option<HotKeys>>,
    single_flights: SingleFlights,
    /// How many keys are under way.
    under_way: Arc<AtomicUsize>,
    /// The room for values until they are sent to clients.
    room: Arc<ValueBudget>,
}

impl Forwarder {
    /// To be called on the loop's own thread, within its runtime.
    pub(crate) fn new(
        shared: &Arc<ServerState>,
        metrics: Arc<LoopMetrics>,
        replica: Option<Arc<dyn LocalReplica>>,
    ) -> Self {
        let room = Arc::new(ValueBudget::new(0));
        Self {
            shared: Arc::clone(shared),
            metrics,
            replica,
            client: OnceCell::new(),
            options: ReadOptions {
                partial: Partial::PerKey,
                room: Some(Arc::clone(&room)),
                ..ReadOptions::default()
            },
            room,
            cache: RefCell::new(None),
            single_flights: SingleFlights::default(),
            under_way: Arc::default(),
        }
    }

    /// The nodes that this loop does not ask for now: they did not answer, whatever the topology says.
    pub(crate) fn suspended(&self) -> Vec<NodeId> {
        let nodes = self.client.get().map(|client| client.stats().nodes);
        let suspended = nodes.into_iter().flatten().filter(|node| node.suspended);
        suspended.map(|node| node.id).collect()
    }

    /// Reads keys from the nodes that have them, or, on a router, from its cache. One answer for each
    /// key, in order.
    pub(crate) async fn read(&self, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers {
        match self.may_cache(catalog, keys) {
            true => self.read_cached(catalog, keys, steered).await,
            false => self.read_anew(catalog, keys, steered).await,
        }
    }

    /// Whether the values of these keys may be in this process's cache.
    fn may_cache(&self, catalog: &Catalog, keys: &[Wanted<'_>]) -> bool {
        let is_router = catalog.membership().is_some_and(|membership| membership.is_router());
        // The answers of hybrid stores change within a version.
        let changes = keys
            .iter()
            .any(|key| catalog.stores()[key.store as usize].kind == StoreKind::Hybrid);
        is_router && !changes && self.has_cache()
    }

    async fn read_cached(&self, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers {
        let mut room = HeldBudget::default();
        let mut answers: Vec<Option<Answered>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        let mut single_flights = Vec::new();
        let mut waiting: Vec<(usize, oneshot::Receiver<Answered>)> = Vec::new();
        for (at, wanted) in keys.iter().enumerate() {
            let Some(source) = StoreVersion::of_read(catalog, wanted.store, steered.is_canary) else {
                answers.push(None);
                missing.push(*wanted);
                single_flights.push((at, None));
                continue;
            };
            let entry = EntryRef {
                source,
                key: wanted.key,
            };
            if let Some(value) = self.cached(entry) {
                answers.push(Some(Answered {
                    value: Ok(value),
                    source: Some(source),
                }));
                continue;
            }
            answers.push(None);
            match self.single_flights.board(entry) {
                FlightPlace::First(flight) => {
                    missing.push(*wanted);
                    single_flights.push((at, Some(flight)));
                }
                FlightPlace::Waiting(answer) => waiting.push((at, answer)),
            }
        }
        self.metrics
            .add(Counter::CacheHits, (keys.len() - missing.len() - waiting.len()) as u64);
        self.metrics.add(Counter::CacheMisses, missing.len() as u64);
        self.metrics.add(Counter::SharedLookups, waiting.len() as u64);
        if !missing.is_empty() {
            let read = self.read_anew(catalog, &missing, steered).await;
            room.join(read.room);
            for (((at, flight), wanted), answer) in single_flights.into_iter().zip(missing).zip(read.each) {
                self.keep(wanted.key, &answer);
                if let Some(flight) = flight {
                    flight.land(&answer);
                }
                answers[at] = Some(answer);
            }
            self.note_cache_bytes();
        }
        let mut abandoned = Vec::new();
        for (at, answer) in waiting {
            let answer = match steered.until {
                Some(until) => tokio::time::timeout_at(until.into(), answer).await,
                None => Ok(answer.await),
            };
            match answer {
                Ok(Ok(answer)) => answers[at] = Some(answer),
                // The request that read it was given up.
                Ok(Err(_)) => abandoned.push(at),
                Err(_) => answers[at] = Some(Answered::failed(error_reply(&ClientError::Timeout { deadline_ms: 0 }))),
            }
        }
        if !abandoned.is_empty() {
            let again: Vec<Wanted<'_>> = abandoned.iter().map(|&at| keys[at]).collect();
            let read = self.read_anew(catalog, &again, steered).await;
            room.join(read.room);
            for (at, answer) in abandoned.into_iter().zip(read.each) {
                answers[at] = Some(answer);
            }
        }
        Answers {
            // Each key was found, read, waited for or read again.
            each: answers.into_iter().flatten().collect(),
            room,
        }
    }

    /// Reads keys from the nodes that have them. One answer for each key, in order; all those of one
    /// store are of one version, save for errors.
    pub(crate) async fn read_anew(&self, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers {
        self.ask(catalog, keys, None, steered).await
    }

    /// Has other nodes compute over keys of batch and hybrid stores: the same, with the elements in the place of values.
    pub(crate) async fn compute(
        &self,
        catalog: &Catalog,
        keys: &[Wanted<'_>],
        computation: Computation,
        steered: Steered,
    ) -> Answers {
        self.ask(catalog, keys, Some(computation), steered).await
    }

    async fn ask(
        &self,
        catalog: &Catalog,
        keys: &[Wanted<'_>],
        computation: Option<Computation>,
        steered: Steered,
    ) -> Answers {
        let count = keys.len();
        let failed = |error: &ClientError| {
            self.metrics.add(Counter::ForwardFailures, count as u64);
            Answers::failed(count, error)
        };
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return failed(&error),
        };
        let wire_keys = match wire_keys(catalog, keys) {
            Ok(wire_keys) => wire_keys,
            Err(error) => return failed(&error),
        };
        let _under_way = UnderWay::of(self, count);
        self.metrics.add(Counter::ForwardedLookups, count as u64);
        let mut options = steered.apply(self.read_options());
        if computation.is_some() {
            // It costs a node about as much as a look-up: another one is asked as soon.
            options.attempt = Some(options.deadline / 2);
        }
        let reply = match computation {
            None => client.read(wire_keys, &options).await,
            Some(computation) => client.compute(wire_keys, computation, &options).await,
        };
        match reply {
            Ok(reply) => self.answers(catalog, keys, reply),
            Err(error) => failed(&error),
        }
    }

    /// The answers for keys out of the client library's reply for them.
    fn answers(&self, catalog: &Catalog, keys: &[Wanted<'_>], reply: BatchReply) -> Answers {
        self.count_requests(&reply);
        let mut answers = Vec::with_capacity(keys.len());
        let mut failures = 0;
        // As a rule the same store as that of the key before.
        let (mut store, mut source) = (None, None);
        for (wanted, value) in keys.iter().zip(reply.values) {
            if store != Some(wanted.store) {
                (store, source) = (Some(wanted.store), source_of(catalog, wanted.store, &reply.stores));
            }
            answers.push(match (value, source) {
                (Ok(value), Some(source)) => Answered {
                    value: Ok(value),
                    source: Some(source),
                },
                (Ok(_), None) => Answered::failed("ERR the version that a value is of is not known".into()),
                (Err(error), _) => {
                    failures += 1;
                    Answered::failed(error_reply(&error))
                }
            });
        }
        self.metrics.add(Counter::ForwardFailures, failures);
        Answers {
            each: answers,
            room: reply.room,
        }
    }

    fn count_requests(&self, reply: &BatchReply) {
        self.metrics
            .add(Counter::ForwardRequests, u64::from(reply.sub_requests));
        self.metrics.add(Counter::ForwardRetries, u64::from(reply.retried));
        self.metrics.add(Counter::ForwardHedges, u64::from(reply.hedged));
    }

    /// How long a request may take.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(self.shared.settings.get(Setting::ForwardTimeoutMs))
    }

    /// The client library's instance of this loop, made when it is first needed.
    pub(crate) fn client(&self) -> Result<&Client, ClientError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = peers(&self.shared, self.replica.clone())
            .local()
            .quorum_counters(Arc::clone(&self.metrics.quorums))
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Whether there is a cache, made as large as the setting says now.
    fn has_cache(&self) -> bool {
        let loops = self.shared.config.loops.max(1) as u64;
        let bytes_max = self.shared.settings.get(Setting::RouterCacheBytes) / loops;
        let mut cache = self.cache.borrow_mut();
        match &*cache {
            None if bytes_max == 0 => false,
            Some(cache) if cache.bytes_max() == bytes_max => true,
            _ => {
                *cache = (bytes_max > 0).then(|| HotKeys::new(bytes_max));
                self.metrics.cache_bytes.store(0, Relaxed);
                bytes_max > 0
            }
        }
    }

    fn cached(&self, key: EntryRef<'_>) -> Option<Option<Bytes>> {
        self.cache.borrow().as_ref()?.get(key)
    }

    fn keep(&self, key: &[u8], answer: &Answered) {
        if let (Ok(value), Some(source)) = (&answer.value, answer.source)
            && let Some(cache) = &mut *self.cache.borrow_mut()
        {
            cache.insert(EntryRef { source, key }, value.as_ref());
        }
    }

    fn note_cache_bytes(&self) {
        if let Some(cache) = &*self.cache.borrow() {
            self.metrics.cache_bytes.store(cache.bytes(), Relaxed);
        }
    }
}

/// The version that values of the store at a place in the catalog are from. The client library knew it by this name: it may have
/// heard of another one than the catalog.
fn source_of(catalog: &Catalog, store: u16, stores: &[PinnedStore]) -> Option<StoreVersion> {
    let name = &catalog.stores()[store as usize].name;
    let pinned = stores.iter().find(|pinned| pinned.name == *name)?;
    Some(StoreVersion {
        store: StoreId::new(pinned.id)?,
        version: pinned.version,
    })
}

/// The client library for the cluster that this process is in.
pub(crate) fn peers(shared: &ServerState, replica: Option<Arc<dyn LocalReplica>>) -> ClientBuilder {
    let (peers, catalog) = (&shared.config.peers, &shared.catalog);
    let mut builder = Client::builder()
        .charges_quotas()
        .topology(catalog.topology())
        .topology_wanted(Arc::clone(catalog.topology_wanted()));
    if let Some(replica) = replica {
        builder = builder.replica(replica);
    }
    if let Some(password) = &peers.password {
        builder = builder.credentials(peers.user.clone(), password.clone());
    }
    if let Some(tls) = &peers.tls {
        builder = builder.tls(Arc::clone(tls));
    }
    if let Some(zone) = &peers.zone {
        builder = builder.zone(zone);
    }
    builder
}

/// The keys as the client library takes them, their bytes in one allocation.
fn wire_keys(catalog: &Catalog, keys: &[Wanted<'_>]) -> Result<Vec<WireKey>, ClientError> {
    let name = |store: u16| &catalog.stores()[store as usize].name;
    let length = |wanted: &Wanted<'_>| name(wanted.store).as_str().len() + 1 + wanted.key.len();
    let mut bytes = BytesMut::with_capacity(keys.iter().map(length).sum());
    let mut wire_keys = Vec::with_capacity(keys.len());
    // As a rule the same store as that of the key before.
    let mut last: Option<(u16, &StoreName, SlotPrefix)> = None;
    for &Wanted { store, key } in keys {
        let (_, name, slots) = match last.filter(|&(known, ..)| known == store) {
            Some(known) => known,
            None => *last.insert((store, name(store), SlotPrefix::of(name(store)))),
        };
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b":");
        bytes.extend_from_slice(key);
        // The last one, which mostly is the only one, needs no count of those that share the allocation.
        let own = match wire_keys.len() + 1 == keys.len() {
            true => std::mem::take(&mut bytes),
            false => bytes.split(),
        };
        wire_keys.push(WireKey::of_store(name, slots, own.freeze())?);
    }
    Ok(wire_keys)
}

/// An error of the client library as it is answered.
pub(crate) fn error_reply(error: &ClientError) -> Arc<str> {
    if let ClientError::Graph(error) = error {
        // It has its code already.
        return error.as_str().into();
    }
    let code = match error {
        // An error that clients of Redis Cluster know, and try again after.
        ClientError::NoReplica { .. } | ClientError::NoTopology { .. } => "CLUSTERDOWN",
        error => error.code(),
    };
    format!("{code} {error}").into()
}

/// The same of an error that is passed on.
pub(crate) fn refusal(error: ClientError) -> String {
    error_reply(&error).to_string()
}
