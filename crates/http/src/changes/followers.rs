//! The followers of a process: how many there are, how far they are behind, and which reader of a topic continues for them.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_model::StoreName;
use parking_lot::Mutex;

use crate::error::ApiError;

/// How many followers a process serves at a time.
const FOLLOWERS_MAX: usize = 64;

/// How many readers of topics are known that no request uses.
const READERS_UNUSED_MAX: usize = 16;

/// The followers of a process. Copies share them.
#[derive(Clone, Default)]
pub struct Followers(Arc<Shared>);

struct Shared {
    /// Of each follower its store, and how many events it is behind.
    followers: Mutex<BTreeMap<u64, (StoreName, u64)>>,
    next: AtomicU64,
    /// How many changes were sent.
    sent: AtomicU64,
    /// The numbers of readers of topics that no request uses, each with the place at which it continues, the last used last.
    readers: Mutex<VecDeque<(u64, String)>>,
    /// Distinguishes the readers of this process from those of others.
    first_reader: u64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            followers: Mutex::default(),
            next: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            readers: Mutex::default(),
            // Below 2⁵³, so that JSON keeps it.
            first_reader: RandomState::new().hash_one(std::process::id()) >> 12,
        }
    }
}

/// A follower that is being served, until this is dropped.
pub(super) struct Follower {
    all: Followers,
    number: u64,
}

impl Followers {
    /// Admits a follower of a store.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn enter(&self, store: &StoreName) -> Result<Follower, ApiError> {
        let mut followers = self.0.followers.lock();
        if followers.len() >= FOLLOWERS_MAX {
            let message = format!(
                "{FOLLOWERS_MAX} followers of changes are being served by this process: ask another process, or end some of them"
            );
            return Err(ApiError::new("overloaded", message));
        }
        let number = self.0.next.fetch_add(1, Relaxed);
        followers.insert(number, (store.clone(), 0));
        Ok(Follower {
            all: self.clone(),
            number,
        })
    }

    /// Of each store that is followed: how many followers it has, and how many events the last of them is behind.
    pub(crate) fn by_store(&self) -> BTreeMap<StoreName, (u64, u64)> {
        let mut stores = BTreeMap::<StoreName, (u64, u64)>::new();
        for (store, lag) in self.0.followers.lock().values() {
            let (count, lag_max) = stores.entry(store.clone()).or_default();
            (*count, *lag_max) = (*count + 1, (*lag_max).max(*lag));
        }
        stores
    }

    /// How many changes were sent to followers.
    pub(crate) fn sent(&self) -> u64 {
        self.0.sent.load(Relaxed)
    }

    pub(super) fn count_sent(&self, changes: usize) {
        self.0.sent.fetch_add(changes as u64, Relaxed);
    }

    /// A reader of topics, until it is [done](Reader::done): the one that has ended at a place, or else another one. A request of which
    /// the outcome is not known keeps its reader: the node may still read with it.
    pub(super) fn reader_at(&self, place: &str) -> Reader<'_> {
        let mut readers = self.0.readers.lock();
        let known = readers.iter().position(|(_, known)| known == place);
        let unused = || (readers.len() >= READERS_UNUSED_MAX).then_some(0);
        let found = known.or_else(unused).and_then(|at| readers.remove(at));
        let new = || self.0.first_reader + self.0.next.fetch_add(1, Relaxed);
        Reader {
            all: self,
            number: found.map_or_else(new, |(number, _)| number),
        }
    }
}

/// A reader of topics that no other request uses.
pub(super) struct Reader<'a> {
    all: &'a Followers,
    pub(super) number: u64,
}

impl Reader<'_> {
    /// Notes where it has ended.
    pub(super) fn done(self, place: String) {
        self.all.0.readers.lock().push_back((self.number, place));
    }
}

impl Follower {
    /// Notes how many events it is behind.
    pub(super) fn note_lag(&self, events: u64) {
        if let Some((_, lag)) = self.all.0.followers.lock().get_mut(&self.number) {
            *lag = events;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.all.0.followers.lock().remove(&self.number);
    }
}
