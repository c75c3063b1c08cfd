//! The stores that this node serves: the current version of each, other open versions for requests that are pinned to
//! them, and the cluster that the node is in.
//!
//! A [`Catalog`] is immutable. A swap puts a new one in place of the old by one pointer store
//! ([`SharedCatalog::publish`]); a thread that has loaded the old one finishes on it. Readers take no lock
//! and never wait.
//!
//! A version that the catalog no longer names is not freed by its last reader, which may be an event loop, but by
//! [`SharedCatalog::reap`]: unmapping many gigabytes takes a while.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fondaco_format::Version;
use fondaco_model::cluster::{Topology, TopologyStore};
use fondaco_model::versioned::VersionedSettings;
use fondaco_model::{KeyType, Slot, SlotPrefix, StoreKind, StoreName, ValueType, VersionNumber};
use fondaco_schema::{Schemas, ValueRules};
use fondaco_stream::Overlay;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::canary::{Canary, CanaryMeter};
use crate::membership::Membership;
use crate::streams::StoreStream;

/// All stores that a node knows, at one moment, and the cluster that it is in.
#[derive(Default)]
pub struct Catalog {
    /// Ordered by number.
    stores: Vec<Arc<ServingStore>>,
    /// The index of each store in `stores`.
    places: HashMap<StoreName, u16, foldhash::fast::RandomState>,
    /// All open versions of all stores; look-ups hold indexes into it.
    open: Vec<OpenVersion>,
    /// For each store its current version.
    current: Vec<Current>,
    /// For each store how it is written to; `None` for batch stores.
    written: Vec<Option<WrittenStore>>,
    membership: Option<Arc<Membership>>,
    /// Whether any store has a read quota.
    has_read_quotas: bool,
    /// Whether the list of stores is not known yet.
    is_loading: bool,
}

/// An open version of one of the stores.
struct OpenVersion {
    /// The index of its store.
    store: u16,
    number: VersionNumber,
    version: Arc<Version>,
    /// The later events, of a hybrid store.
    overlay: Option<Arc<Overlay>>,
}

/// The current version of a store.
struct Current {
    /// Its index among the open versions, or [`NOT_OPEN`].
    place: u16,
    /// Its number, wherever it is open; `None` before the first version was swapped in.
    number: Option<VersionNumber>,
    /// The version that some reads get in its place.
    canary: Option<Box<Canary>>,
}

/// As the index of a version: no version is open here.
pub const NOT_OPEN: u16 = u16::MAX;
/// More open versions than this are not looked into: with 4095 stores, every store may have 16.
const OPEN_MAX: usize = NOT_OPEN as usize;

/// One store, at one moment.
pub struct ServingStore {
    /// Its name.
    pub name: StoreName,
    /// Its number, which is never given to another store; scan cursors contain it.
    pub id: StoreId,
    /// Its kind.
    pub kind: StoreKind,
    /// The version that it serves, if any.
    pub serving: Serving,
    /// Other open versions: kept for rollback, or ready to be swapped in. Requests that name their version are answered
    /// from them.
    pub others: Vec<(VersionNumber, Arc<Version>)>,
    /// The later events of each open version, of a hybrid store.
    pub overlays: BTreeMap<VersionNumber, Arc<Overlay>>,
}

/// A versioned store: the settings needed to read and write it.
#[derive(Debug)]
pub struct VersionedStore {
    /// Its keys and values.
    pub types: StoreTypes,
    /// Its quorums, conflict resolution, and other settings.
    pub settings: VersionedSettings,
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// Whether the store has a read quota.
    pub has_read_quota: bool,
}

/// A hybrid store: what is needed to write events to its topic.
#[derive(Debug)]
pub struct EventStore {
    /// Its keys and values.
    pub types: StoreTypes,
    /// Its stream.
    pub stream: Arc<StoreStream>,
}

/// A store that clients write to.
#[derive(Debug, Clone)]
pub enum WrittenStore {
    /// Its replicas.
    Versioned(Arc<VersionedStore>),
    /// The topic of its events.
    Hybrid(Arc<EventStore>),
}

/// The keys and values of a store that is written to.
#[derive(Debug)]
pub struct StoreTypes {
    /// Its name.
    pub name: StoreName,
    /// Its number.
    pub id: StoreId,
    /// Computes the slots of its keys.
    pub slots: SlotPrefix,
    /// The type of its values.
    pub value_type: ValueType,
    /// The type of its keys.
    pub key_type: KeyType,
    /// The schemas of its values; `None` if it has none.
    pub schemas: Option<Arc<Schemas>>,
}

impl Deref for VersionedStore {
    type Target = StoreTypes;

    fn deref(&self) -> &StoreTypes {
        &self.types
    }
}

impl Deref for EventStore {
    type Target = StoreTypes;

    fn deref(&self) -> &StoreTypes {
        &self.types
    }
}

impl StoreTypes {
    /// The slot of a key on the wire.
    pub fn slot(&self, wire_key: &[u8]) -> Slot {
        self.slots.slot(&wire_key[self.name.as_str().len() + 1..])
    }

    /// The rules for its values.
    pub fn rules(&self) -> ValueRules {
        ValueRules::new(self.value_type, self.schemas.clone().unwrap_or_default())
    }
}

/// The number of a store, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(u16);

impl StoreId {
    /// The largest number of a store: scan cursors have no room for more.
    pub const MAX: u16 = 4095;

    /// The store with this number; `None` for 0 and beyond [`StoreId::MAX`].
    pub fn new(number: u16) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// The number itself.
    pub fn get(self) -> u16 {
        self.0
    }
}

/// The current version of a store on this node.
pub enum Serving {
    /// This version.
    Version(VersionNumber, Arc<Version>),
    /// Nothing: no version was swapped in yet, or this node holds none of it.
    Nothing,
    /// Nothing, because the current version could not be opened; with the reason.
    Failed(VersionNumber, String),
}

impl Catalog {
    /// A catalog of these stores, in no cluster.
    pub fn new(stores: impl IntoIterator<Item = ServingStore>) -> Self {
        Self::of(stores.into_iter().map(Arc::new).collect(), None)
    }

    /// This catalog as a part of a cluster: it also contains the stores that this node does not hold, and the cluster
    /// says which versions are current.
    pub fn in_cluster(&self, membership: Arc<Membership>) -> Self {
        let mut stores = self.stores.clone();
        for (name, store) in &membership.topology().stores {
            if let Some(id) = StoreId::new(store.id)
                && !self.places.contains_key(name)
            {
                stores.push(Arc::new(ServingStore {
                    name: name.clone(),
                    id,
                    kind: store.kind,
                    serving: Serving::Nothing,
                    others: Vec::new(),
                    overlays: BTreeMap::new(),
                }));
            }
        }
        Self::of(stores, Some(membership))
    }

    fn of(mut stores: Vec<Arc<ServingStore>>, membership: Option<Arc<Membership>>) -> Self {
        stores.sort_by_key(|store| store.id);
        let place = |(place, store): (usize, &Arc<ServingStore>)| (store.name.clone(), place as u16);
        let places = stores.iter().enumerate().map(place).collect();
        let mut open = Vec::new();
        let mut current = Vec::with_capacity(stores.len());
        for (place, store) in stores.iter().enumerate() {
            let first = open.len();
            for (number, version) in store.open().take(OPEN_MAX - first) {
                open.push(OpenVersion {
                    store: place as u16,
                    number,
                    version: Arc::clone(version),
                    overlay: store.overlays.get(&number).cloned(),
                });
            }
            let wanted = match &membership {
                Some(membership) => membership.topology().stores.get(&store.name).and_then(|s| s.current),
                None => store.serving.number(),
            };
            let place_of = |wanted: Option<VersionNumber>| {
                let found = open[first..].iter().position(|open| Some(open.number) == wanted);
                found.map_or(NOT_OPEN, |at| (first + at) as u16)
            };
            let canary = membership.as_ref().and_then(|membership| {
                let canary = membership.topology().stores.get(&store.name)?.canary.as_ref()?;
                Some(Box::new(Canary {
                    place: place_of(Some(canary.version)),
                    number: canary.version,
                    share: canary.reads.share_of(membership.node(), membership.zone()),
                    meter: Arc::default(),
                }))
            });
            current.push(Current {
                place: place_of(wanted),
                number: wanted,
                canary,
            });
        }
        let written = |store: &Arc<ServingStore>| {
            let membership = membership.as_ref()?;
            let known = membership.topology().stores.get(&store.name)?;
            let types = StoreTypes {
                name: store.name.clone(),
                id: store.id,
                slots: SlotPrefix::of(&store.name),
                value_type: known.value_type,
                key_type: known.key_type.clone(),
                schemas: membership.schemas().of_store(store.id.get()).cloned(),
            };
            Some(match known.versioned {
                Some(settings) => WrittenStore::Versioned(Arc::new(VersionedStore {
                    types,
                    settings,
                    replicas: known.replicas,
                    has_read_quota: known.read_keys_per_second.is_some(),
                })),
                None => WrittenStore::Hybrid(Arc::new(EventStore {
                    types,
                    stream: Arc::clone(membership.streams().of_store(store.id.get())?),
                })),
            })
        };
        let written = stores.iter().map(written).collect();
        Self {
            stores,
            places,
            open,
            current,
            written,
            has_read_quotas: membership.as_ref().is_some_and(|membership| {
                let mut stores = membership.topology().stores.values();
                stores.any(|store| store.read_keys_per_second.is_some())
            }),
            membership,
            is_loading: false,
        }
    }

    /// The store with this name.
    pub fn store(&self, name: &StoreName) -> Option<&Arc<ServingStore>> {
        self.places.get(name).map(|&place| &self.stores[place as usize])
    }

    /// The index in [`Catalog::stores`] of the store named in a wire key.
    #[inline]
    pub fn store_on_wire(&self, name: &[u8]) -> Option<u16> {
        let name = std::str::from_utf8(name).ok()?;
        self.places.get(name).copied()
    }

    /// The index in [`Catalog::stores`] of the store of a key on the wire; `None` if it names no store.
    #[inline]
    pub fn place_on_wire(&self, wire_key: &[u8]) -> Option<u16> {
        self.store_on_wire(&wire_key[..memchr::memchr(b':', wire_key)?])
    }

    /// The versioned store of a key on the wire, and the key in it; `None` if it names no such store.
    #[inline]
    pub fn versioned_on_wire<'a>(&'a self, wire_key: &'a [u8]) -> Option<(&'a Arc<VersionedStore>, &'a [u8])> {
        let store = self.versioned(self.place_on_wire(wire_key)?)?;
        Some((store, &wire_key[store.name.as_str().len() + 1..]))
    }

    /// All stores, in the order of their numbers.
    #[inline]
    pub fn stores(&self) -> &[Arc<ServingStore>] {
        &self.stores
    }

    /// Whether the list of stores is not known yet.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Whether any store has a read quota.
    #[inline]
    pub fn has_read_quotas(&self) -> bool {
        self.has_read_quotas
    }

    /// The store's read quota in keys per second, if it has one.
    pub fn read_quota(&self, store: &ServingStore) -> Option<(u64, &Membership)> {
        let membership = self.membership.as_deref().filter(|_| self.has_read_quotas)?;
        let known = membership.topology().stores.get(&store.name)?;
        Some((known.read_keys_per_second?, membership))
    }

    /// The cluster that the node is in, once there is one.
    #[inline]
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// The index of the current version of the store at this index; [`NOT_OPEN`] if it is not open.
    #[inline]
    pub fn current(&self, store: u16) -> u16 {
        self.current[store as usize].place
    }

    /// The number of the current version of the store at this index, wherever it is open.
    #[inline]
    pub fn current_number(&self, store: u16) -> Option<VersionNumber> {
        self.current[store as usize].number
    }

    /// The canary of the store at this index, if one is under way.
    #[inline]
    pub fn canary(&self, store: u16) -> Option<&Canary> {
        self.current[store as usize].canary.as_deref()
    }

    /// The number of the open version at an index.
    pub fn number(&self, place: u16) -> VersionNumber {
        self.open[place as usize].number
    }

    /// All stores with a canary under way.
    pub fn canaries(&self) -> impl Iterator<Item = (&Arc<ServingStore>, &Canary)> {
        let stores = self.stores.iter().zip(&self.current);
        stores.filter_map(|(store, current)| Some((store, current.canary.as_deref()?)))
    }

    /// Continues the counts of the former catalog.
    fn continue_counts(&mut self, former: &Self) {
        for (store, current) in self.stores.iter().zip(&mut self.current) {
            let known = |canary: &Canary| -> Option<Arc<CanaryMeter>> {
                let (_, before) = former
                    .canaries()
                    .find(|(before, counted)| before.id == store.id && counted.number == canary.number)?;
                Some(Arc::clone(&before.meter))
            };
            if let Some(canary) = &mut current.canary
                && let Some(meter) = known(canary)
            {
                canary.meter = meter;
            }
        }
    }

    /// The settings of the store at this index, if it is versioned.
    #[inline]
    pub fn versioned(&self, store: u16) -> Option<&Arc<VersionedStore>> {
        match self.written(store) {
            Some(WrittenStore::Versioned(store)) => Some(store),
            Some(WrittenStore::Hybrid(_)) | None => None,
        }
    }

    /// How the store at this index is written to; `None` if it is a batch store.
    #[inline]
    pub fn written(&self, store: u16) -> Option<&WrittenStore> {
        self.written[store as usize].as_ref()
    }

    /// The index of an open version of the store at this index.
    pub fn place_of(&self, store: u16, number: VersionNumber) -> Option<u16> {
        let first = self.open.partition_point(|open| open.store < store);
        let own = self.open[first..].iter().take_while(|open| open.store == store);
        let found = own.enumerate().find(|(_, open)| open.number == number);
        found.map(|(at, _)| (first + at) as u16)
    }

    /// The open version at an index.
    #[inline]
    pub fn version(&self, place: u16) -> &Arc<Version> {
        &self.open[place as usize].version
    }

    /// The later events of the open version at an index, if its store is hybrid.
    #[inline]
    pub fn overlay(&self, place: u16) -> Option<&Arc<Overlay>> {
        self.open[place as usize].overlay.as_ref()
    }

    /// The type of a store's values.
    pub fn value_type(&self, store: &ServingStore) -> ValueType {
        let known = match &self.membership {
            Some(membership) => {
                let known = membership.topology().stores.get(&store.name);
                let is_same = |known: &&TopologyStore| known.id == store.id.get();
                known.filter(is_same).map(|known| known.value_type)
            }
            None => store.version().map(|version| version.manifest().value_type),
        };
        known.unwrap_or_default()
    }

    /// The schemas of a store's values, if it has any.
    pub fn schemas(&self, store: &ServingStore) -> Option<&Arc<Schemas>> {
        self.membership.as_ref()?.schemas().of_store(store.id.get())
    }

    /// How many keys a store has in the whole cluster.
    pub fn records(&self, store: &ServingStore) -> u64 {
        match &self.membership {
            Some(membership) => membership.topology().stores.get(&store.name).map_or(0, |s| s.records),
            None => store.version().map_or(0, |version| version.manifest().records),
        }
    }

    /// This catalog with one store added or replaced.
    pub fn with(&self, store: ServingStore) -> Self {
        let mut stores = self.without(&store.name).stores;
        stores.push(Arc::new(store));
        Self::of(stores, self.membership.clone())
    }

    /// This catalog without one store.
    pub fn without(&self, name: &StoreName) -> Self {
        let others = self.stores.iter().filter(|store| store.name != *name);
        Self::of(others.cloned().collect(), self.membership.clone())
    }
}

impl ServingStore {
    /// The version that it serves, if any.
    pub fn version(&self) -> Option<&Arc<Version>> {
        match &self.serving {
            Serving::Version(_, version) => Some(version),
            Serving::Nothing | Serving::Failed(..) => None,
        }
    }

    /// All its open versions.
    fn open(&self) -> impl Iterator<Item = (VersionNumber, &Arc<Version>)> {
        let serving = match &self.serving {
            Serving::Version(number, version) => Some((*number, version)),
            Serving::Nothing | Serving::Failed(..) => None,
        };
        let others = self.others.iter().map(|(number, version)| (*number, version));
        serving.into_iter().chain(others)
    }
}

impl Serving {
    /// The number of the current version, open or not.
    fn number(&self) -> Option<VersionNumber> {
        match self {
            Self::Version(number, _) | Self::Failed(number, _) => Some(*number),
            Self::Nothing => None,
        }
    }
}

/// The catalog of a node: one pointer, read by all event loops, replaced whole.
pub struct SharedCatalog {
    current: ArcSwap<Catalog>,
    /// The cluster in the current catalog, to be watched.
    topology: watch::Sender<Option<Arc<Topology>>>,
    topology_wanted: Arc<Notify>,
    /// Former catalogs that readers may still hold.
    former: Mutex<Vec<Arc<Catalog>>>,
}

impl Default for SharedCatalog {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedCatalog {
    /// A catalog without stores.
    pub fn new() -> Self {
        Self {
            current: ArcSwap::default(),
            topology: watch::Sender::new(None),
            topology_wanted: Arc::default(),
            former: Mutex::default(),
        }
    }

    /// The catalog of a node that does not know the list of stores yet: until another catalog is published, requests
    /// are answered with `LOADING`, except those that Redis answers while it loads.
    pub fn loading() -> Self {
        let catalog = Catalog {
            is_loading: true,
            ..Catalog::default()
        };
        Self {
            current: ArcSwap::from_pointee(catalog),
            ..Self::new()
        }
    }

    /// The cluster in the current catalog, as a watch channel that reports each change; `None` before there is one.
    pub fn topology(&self) -> watch::Receiver<Option<Arc<Topology>>> {
        self.topology.subscribe()
    }

    /// Notified when a request finds that the topology is out of date.
    pub fn topology_wanted(&self) -> &Arc<Notify> {
        &self.topology_wanted
    }

    /// The current catalog. Takes no lock.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Catalog>> {
        self.current.load()
    }

    /// Replaces the catalog, for every request that begins from now on.
    pub fn publish(&self, mut catalog: Catalog) {
        catalog.continue_counts(&self.current.load());
        let topology = catalog.membership().map(|membership| Arc::clone(membership.topology()));
        // First: a request that finds a store in the catalog finds it in the topology, too.
        self.topology.send_if_modified(|known| {
            let is_same = match (&*known, &topology) {
                (Some(known), Some(topology)) => Arc::ptr_eq(known, topology),
                (known, topology) => known.is_none() && topology.is_none(),
            };
            *known = topology;
            !is_same
        });
        let former = self.current.swap(Arc::new(catalog));
        self.former.lock().push(former);
    }

    /// Drops former catalogs, and the versions that only they named, once no reader holds them. Returns how many are
    /// left. Call it from a thread that may block.
    pub fn reap(&self) -> usize {
        let mut former = self.former.lock();
        // A count of one cannot rise again: only `former` still refers to the catalog.
        let (unheld, held) = former.drain(..).partition(|catalog| Arc::strong_count(catalog) == 1);
        *former = held;
        let left = former.len();
        drop(former);
        let unheld: Vec<Arc<Catalog>> = unheld;
        drop(unheld);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str, id: u16) -> ServingStore {
        ServingStore {
            name: name.parse().unwrap(),
            id: StoreId::new(id).unwrap(),
            kind: StoreKind::Batch,
            serving: Serving::Nothing,
            others: Vec::new(),
            overlays: BTreeMap::new(),
        }
    }

    #[test]
    fn a_reader_keeps_the_catalog_that_it_loaded() {
        let shared = SharedCatalog::new();
        shared.publish(Catalog::new([store("a", 1)]));
        let held = Arc::clone(&shared.load());
        shared.publish(held.without(&"a".parse().unwrap()));
        assert!(held.store_on_wire(b"a").is_some());
        assert!(shared.load().store_on_wire(b"a").is_none());
        assert_eq!(shared.reap(), 1, "the reader still holds it");
        drop(held);
        assert_eq!(shared.reap(), 0);
    }
}
