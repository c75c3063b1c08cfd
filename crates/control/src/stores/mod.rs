//! The stores of a node and their life: created, pushed to, swapped, rolled back, dropped.
//!
//! Decisions are pure and made in the model; this carries them out in an order in which a crash at any
//! moment leaves the old state or the new one: first metadata, by one durable write, then the catalog
//! that requests see, then, in the background, the files that neither names any more. Calls wait for
//! the disk, so they are made from threads that may.

mod push;
mod reaper;
mod record;
mod recovery;
mod status;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fondaco_format::Version;
use fondaco_model::{PartitionCount, StoreDefinition, StoreName, VersionNumber};
use fondaco_node::{Clock, FetchSource, NodeMetrics, Serving, ServingStore, Settings, SharedCatalog, StoreId};
use fondaco_storage::Location;

pub use push::{DryRun, PushStatus};
pub use record::PushRecord;
pub use status::{StoreStatus, VersionFacts, VersionStatus};

use crate::coordination::{Coordination, Revision};
use crate::data_dir::DataDir;
use crate::error::ControlError;
use push::RunningPush;
use reaper::{Reaper, Remains};
use record::StoreRecord;

/// How many stores a node can have: scan cursors have no room for more.
pub const STORES_MAX: usize = StoreId::MAX as usize;

/// How many stores can be pushed to at a time: they share one disk and one rate.
pub const PUSHES_MAX: usize = 8;

/// What stores are made of.
pub struct StoresParts {
    /// Where metadata is.
    pub coordination: Arc<dyn Coordination>,
    /// What requests see.
    pub catalog: Arc<SharedCatalog>,
    /// Where files are.
    pub data_dir: DataDir,
    /// How many partitions the cluster has.
    pub partitions: PartitionCount,
    /// Where the rate of fetches is set.
    pub settings: Arc<Settings>,
    /// Where the latency of reads is seen.
    pub metrics: Arc<NodeMetrics>,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// How much memory there is for the page cache to use, in bytes.
    pub memory_bytes: u64,
    /// What time it is, in milliseconds since 1970.
    pub now_unix_ms: fn() -> u64,
    /// The time by which fetches keep their rate.
    pub clock: Arc<dyn Clock>,
    /// How the files of a location are read.
    pub sources: fn(Location) -> Box<dyn FetchSource>,
}

/// The stores of a node.
#[derive(Clone)]
pub struct Stores(Arc<Inner>);

struct Inner {
    parts: StoresParts,
    state: Mutex<State>,
    stopping: AtomicBool,
    swaps: AtomicU64,
    reaper: Reaper,
}

#[derive(Default)]
struct State {
    stores: BTreeMap<StoreName, Store>,
    /// The number last given to a store.
    last_id: u16,
}

struct Store {
    record: StoreRecord,
    revision: Revision,
    open: BTreeMap<VersionNumber, Opened>,
    push: Option<RunningPush>,
}

/// A version that is kept, open if that was possible.
#[derive(Clone)]
enum Opened {
    Open(Arc<Version>),
    Failed(String),
}

impl Stores {
    /// Opens what the metadata names, deletes what it does not, and resumes pushes under way.
    ///
    /// A version that cannot be opened does not keep the others from being served.
    ///
    /// # Errors
    /// Metadata that cannot be read.
    pub fn open(parts: StoresParts) -> Result<Self, ControlError> {
        let reaper = Reaper::start(Arc::clone(&parts.catalog)).map_err(ControlError::io("start", "reaper thread"))?;
        let state = recovery::recover(&parts)?;
        let stores = Self(Arc::new(Inner {
            parts,
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
            swaps: AtomicU64::new(0),
            reaper,
        }));
        stores.0.resume_pushes();
        stores.0.warm();
        Ok(stores)
    }

    /// All stores, in the order of their names.
    pub fn list(&self) -> Vec<StoreStatus> {
        let state = self.0.state();
        state.stores.values().map(|store| self.0.status(store)).collect()
    }

    /// One store.
    ///
    /// # Errors
    /// [`ControlError::StoreNotFound`].
    pub fn show(&self, name: &StoreName) -> Result<StoreStatus, ControlError> {
        let state = self.0.state();
        Ok(self.0.status(state.store(name)?))
    }

    /// Creates a store.
    ///
    /// # Errors
    /// One of this name exists, or there are too many, or the definition is not possible.
    pub fn create(&self, definition: StoreDefinition) -> Result<StoreStatus, ControlError> {
        check_backups(&definition.name, definition.backups)?;
        let mut state = self.0.running_state()?;
        let name = definition.name.clone();
        if state.stores.contains_key(&name) {
            return Err(ControlError::StoreExists { store: name });
        }
        let id = state.free_id().ok_or(ControlError::TooManyStores { max: STORES_MAX })?;
        let record = StoreRecord {
            definition,
            id: id.get(),
            created_unix_ms: (self.0.parts.now_unix_ms)(),
            versions: Default::default(),
            push: None,
        };
        // What is in its directory is nobody's: a store of this name was dropped a moment ago.
        self.0.discard_dir(&name)?;
        let revision = record.write(&*self.0.parts.coordination, None)?;
        state.last_id = id.get();
        let store = Store {
            record,
            revision,
            open: BTreeMap::new(),
            push: None,
        };
        self.0.publish(&store);
        let status = self.0.status(&store);
        state.stores.insert(name.clone(), store);
        tracing::info!(store = %name, "created");
        Ok(status)
    }

    /// Changes how many backups a store keeps; those that are too many are deleted.
    ///
    /// # Errors
    /// No such store, or a number that is not possible.
    pub fn alter(&self, name: &StoreName, backups: u32) -> Result<StoreStatus, ControlError> {
        check_backups(name, backups)?;
        let mut state = self.0.running_state()?;
        let store = state.store_mut(name)?;
        let mut expired = Vec::new();
        self.0.commit(store, |record| {
            record.definition.backups = backups;
            expired = record.versions.expire(backups);
        })?;
        self.0.discard(store, &expired);
        Ok(self.0.status(store))
    }

    /// Drops a store with all its versions.
    ///
    /// # Errors
    /// No such store, or a push of it is in progress.
    pub fn drop_store(&self, name: &StoreName) -> Result<(), ControlError> {
        let mut state = self.0.running_state()?;
        let store = state.store_mut(name)?;
        store.check_no_push()?;
        store.record.delete(&*self.0.parts.coordination, store.revision)?;
        let mut store = state
            .stores
            .remove(name)
            .ok_or(ControlError::StoreNotFound { store: name.clone() })?;
        let catalog = self.0.parts.catalog.load().without(name);
        self.0.parts.catalog.publish(catalog);
        for (_, opened) in std::mem::take(&mut store.open) {
            self.0.reaper.take(Remains {
                version: opened.version().cloned(),
                dir: None,
            });
        }
        tracing::info!(store = %name, "dropped");
        // The store is gone whether or not this succeeds: the next start deletes what is left.
        if let Err(error) = self.0.discard_dir(name) {
            tracing::warn!(store = %name, %error, "could not delete its files, the next start will try again");
        }
        Ok(())
    }

    /// Makes a version current that the store keeps.
    ///
    /// # Errors
    /// No such store or version, or one that cannot be opened.
    pub fn swap(&self, name: &StoreName, version: VersionNumber) -> Result<StoreStatus, ControlError> {
        let mut state = self.0.running_state()?;
        let store = state.store_mut(name)?;
        self.0.swap_kept(store, version)?;
        Ok(self.0.status(store))
    }

    /// Goes back to a version: the one named, or the one before the current one.
    ///
    /// # Errors
    /// As [`Stores::swap`], and [`ControlError::NoRollback`] if there is none before.
    pub fn roll_back(&self, name: &StoreName, to: Option<VersionNumber>) -> Result<StoreStatus, ControlError> {
        let mut state = self.0.running_state()?;
        let store = state.store_mut(name)?;
        let version = match to.or_else(|| store.record.versions.rollback_target()) {
            Some(version) => version,
            None => return Err(ControlError::NoRollback { store: name.clone() }),
        };
        self.0.swap_kept(store, version)?;
        Ok(self.0.status(store))
    }

    /// How often a store's current version changed since the node started.
    pub fn swaps(&self) -> u64 {
        self.0.swaps.load(Relaxed)
    }

    /// Why the node is not ready to serve all that it should; empty if it is.
    pub fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.0.stopping.load(Relaxed) {
            reasons.push("the node is stopping".to_owned());
        }
        for (name, store) in &self.0.state().stores {
            if let Some(current) = store.record.versions.current()
                && let Some(Opened::Failed(reason)) = store.open.get(&current)
            {
                reasons.push(format!(
                    "version {current} of store {name:?} cannot be served: {reason}"
                ));
            }
        }
        reasons
    }

    /// Where the files are.
    pub fn data_dir(&self) -> &DataDir {
        &self.0.parts.data_dir
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is first made durable and then in memory by plain moves: a panic in between
        // leaves what the metadata said before, and the revision makes the next write fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, to be changed.
    fn running_state(&self) -> Result<MutexGuard<'_, State>, ControlError> {
        if self.stopping.load(Relaxed) {
            return Err(ControlError::Stopping);
        }
        Ok(self.state())
    }

    /// Reads the indexes of what is served into memory, in the background: until then look-ups read
    /// them as they need them.
    fn warm(&self) {
        let catalog = Arc::clone(&self.parts.catalog.load());
        let warming = std::thread::Builder::new().name("warm".into()).spawn(move || {
            for store in catalog.stores() {
                if let Some(Err(error)) = store.version().map(|version| version.warm()) {
                    tracing::error!(store = %store.name, %error, "an index cannot be read");
                }
            }
        });
        if let Err(error) = warming {
            tracing::warn!(%error, "cannot start the thread that warms indexes");
        }
    }

    /// Changes what is remembered of a store, by one durable write.
    fn commit(&self, store: &mut Store, change: impl FnOnce(&mut StoreRecord)) -> Result<(), ControlError> {
        let mut record = store.record.clone();
        change(&mut record);
        let coordination = &*self.parts.coordination;
        store.revision = match record.write(coordination, Some(store.revision)) {
            Ok(revision) => revision,
            // A write that fails at its very end may have happened all the same: what is remembered
            // decides, or else files would be deleted that it names.
            Err(error) => match StoreRecord::read(coordination, record.definition.name.as_str()) {
                Ok(Some((found, revision))) if found == record && revision != store.revision => revision,
                _ => return Err(error),
            },
        };
        store.record = record;
        Ok(())
    }

    /// Lets requests see a store as it is now.
    fn publish(&self, store: &Store) {
        let catalog = self.parts.catalog.load().with(serving(&store.record, &store.open));
        self.parts.catalog.publish(catalog);
        self.reaper.take(Remains::FORMER_CATALOG);
    }

    fn swap_kept(&self, store: &mut Store, version: VersionNumber) -> Result<(), ControlError> {
        let name = store.record.definition.name.clone();
        if !store.record.versions.contains(version) {
            let kept: Vec<_> = store.record.versions.kept().map(|kept| kept.to_string()).collect();
            return Err(ControlError::VersionNotFound {
                store: name,
                version,
                kept: match kept.is_empty() {
                    true => "none".to_owned(),
                    false => kept.join(", "),
                },
            });
        }
        if let Some(Opened::Failed(reason)) = store.open.get(&version) {
            return Err(ControlError::VersionFailed {
                store: name,
                version,
                reason: reason.clone(),
            });
        }
        if store.record.versions.current() == Some(version) {
            return Ok(());
        }
        self.commit(store, |record| record.versions.make_current(version))?;
        self.publish(store);
        self.swaps.fetch_add(1, Relaxed);
        tracing::info!(store = %name, %version, "swapped");
        Ok(())
    }

    /// Hands versions that are no longer kept to the reaper.
    fn discard(&self, store: &mut Store, versions: &[VersionNumber]) {
        for version in versions {
            let opened = store.open.remove(version);
            self.reaper.take(Remains {
                version: opened.and_then(|opened| opened.version().cloned()),
                dir: Some(self.parts.data_dir.version(&store.record.definition.name, *version)),
            });
        }
    }

    /// Moves the directory of a store that is no more out of the way, and has it deleted.
    fn discard_dir(&self, name: &StoreName) -> Result<(), ControlError> {
        let dir = self.parts.data_dir.move_to_trash(&self.parts.data_dir.store(name))?;
        if dir.is_some() {
            self.reaper.take(Remains { version: None, dir });
        }
        Ok(())
    }
}

impl State {
    fn store(&self, name: &StoreName) -> Result<&Store, ControlError> {
        self.stores
            .get(name)
            .ok_or_else(|| ControlError::StoreNotFound { store: name.clone() })
    }

    fn store_mut(&mut self, name: &StoreName) -> Result<&mut Store, ControlError> {
        self.stores
            .get_mut(name)
            .ok_or_else(|| ControlError::StoreNotFound { store: name.clone() })
    }

    /// A number for a new store: the next that was not given out, or once those are used up, one
    /// whose store was dropped.
    fn free_id(&self) -> Option<StoreId> {
        let taken = |id: &u16| self.stores.values().any(|store| store.record.id == *id);
        let mut after = self.last_id + 1..=StoreId::MAX;
        let mut before = 1..=self.last_id;
        let free = after.find(|id| !taken(id)).or_else(|| before.find(|id| !taken(id)));
        free.and_then(StoreId::new)
    }
}

impl Opened {
    fn version(&self) -> Option<&Arc<Version>> {
        match self {
            Self::Open(version) => Some(version),
            Self::Failed(_) => None,
        }
    }
}

/// What requests see of a store.
fn serving(record: &StoreRecord, open: &BTreeMap<VersionNumber, Opened>) -> ServingStore {
    let serving = match record.versions.current() {
        None => Serving::Nothing,
        Some(current) => match open.get(&current) {
            Some(Opened::Open(version)) => Serving::Version(current, Arc::clone(version)),
            Some(Opened::Failed(reason)) => Serving::Failed(current, reason.clone()),
            None => Serving::Failed(current, "it is not open".to_owned()),
        },
    };
    ServingStore {
        name: record.definition.name.clone(),
        // Recovery refuses numbers that are none, and `free_id` gives out only such that are.
        id: StoreId::new(record.id).expect("the number of a store was checked"),
        kind: record.definition.kind,
        serving,
    }
}

fn check_backups(name: &StoreName, backups: u32) -> Result<(), ControlError> {
    if backups > StoreDefinition::BACKUPS_MAX {
        return Err(ControlError::InvalidDefinition {
            store: name.clone(),
            reason: format!("{backups} backups: keep 0 to {}", StoreDefinition::BACKUPS_MAX),
        });
    }
    Ok(())
}
