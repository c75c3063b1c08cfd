//! What this node serves: for each store its current version.
//!
//! A [`Catalog`] is immutable. A swap puts a new one in place of the old by one pointer store
//! ([`SharedCatalog::publish`]); whoever has loaded the old one finishes on it. Readers take no lock
//! and wait for nobody.
//!
//! What a catalog no longer names is not freed by the last reader, which may be an event loop, but
//! when [`SharedCatalog::reap`] is called: unmapping many gigabytes takes a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use fondaco_format::Version;
use fondaco_model::{StoreKind, StoreName, VersionNumber};

/// All stores that a node knows, at one moment.
#[derive(Default)]
pub struct Catalog {
    /// In the order of their numbers.
    stores: Vec<Arc<ServingStore>>,
    /// Where each stands among them.
    places: HashMap<StoreName, u16>,
}

/// One store, at one moment.
pub struct ServingStore {
    /// Its name.
    pub name: StoreName,
    /// Its number, given when it was created and never to another: what scan cursors hold of it.
    pub id: StoreId,
    /// Its kind.
    pub kind: StoreKind,
    /// What it serves.
    pub serving: Serving,
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

/// What a store serves.
pub enum Serving {
    /// This version.
    Version(VersionNumber, Arc<Version>),
    /// Nothing yet: no version was swapped in.
    Nothing,
    /// Nothing, for this reason: its current version could not be opened.
    Failed(VersionNumber, String),
}

impl Catalog {
    /// A catalog of these stores.
    pub fn new(stores: impl IntoIterator<Item = ServingStore>) -> Self {
        Self::of(stores.into_iter().map(Arc::new).collect())
    }

    fn of(mut stores: Vec<Arc<ServingStore>>) -> Self {
        stores.sort_by_key(|store| store.id);
        let place = |(place, store): (usize, &Arc<ServingStore>)| (store.name.clone(), place as u16);
        let places = stores.iter().enumerate().map(place).collect();
        Self { stores, places }
    }

    /// The store with this name.
    pub fn store(&self, name: &StoreName) -> Option<&Arc<ServingStore>> {
        self.places.get(name).map(|&place| &self.stores[place as usize])
    }

    /// The place in [`Catalog::stores`] of the store whose name stands in a wire key.
    pub(crate) fn store_on_wire(&self, name: &[u8]) -> Option<u16> {
        let name = std::str::from_utf8(name).ok()?;
        self.places.get(name).copied()
    }

    /// All stores, in the order of their numbers.
    #[inline]
    pub fn stores(&self) -> &[Arc<ServingStore>] {
        &self.stores
    }

    /// This catalog with one store put in, or in the place of its former self.
    pub fn with(&self, store: ServingStore) -> Self {
        let mut stores = self.without(&store.name).stores;
        stores.push(Arc::new(store));
        Self::of(stores)
    }

    /// This catalog without one store.
    pub fn without(&self, name: &StoreName) -> Self {
        Self::of(
            self.stores
                .iter()
                .filter(|store| store.name != *name)
                .cloned()
                .collect(),
        )
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
}

/// The catalog of a node: one pointer, read by all event loops, replaced whole.
#[derive(Default)]
pub struct SharedCatalog {
    current: ArcSwap<Catalog>,
    /// Former catalogs that readers may still hold.
    former: Mutex<Vec<Arc<Catalog>>>,
}

impl SharedCatalog {
    /// A catalog without stores.
    pub fn new() -> Self {
        Self::default()
    }

    /// The catalog of this moment. Takes no lock.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Catalog>> {
        self.current.load()
    }

    /// Replaces the catalog, for every request that begins from now on.
    pub fn publish(&self, catalog: Catalog) {
        let former = self.current.swap(Arc::new(catalog));
        self.former.lock().unwrap_or_else(PoisonError::into_inner).push(former);
    }

    /// Drops former catalogs, and the versions that only they named, once no reader holds them.
    /// Returns how many are left. To be called from a thread that may take its time.
    pub fn reap(&self) -> usize {
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        // A count of one cannot rise again: only `former` itself knows the catalog.
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
        }
    }

    #[test]
    fn who_loaded_a_catalog_keeps_it() {
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
