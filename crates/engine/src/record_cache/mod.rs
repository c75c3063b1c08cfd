//! Records in memory, of all tables together, so that an event loop can answer without waiting for a disk. It
//! also knows of keys that they have no record.
//!
//! It never has what is older than the last write that returned. Writers put what they wrote, in the order of
//! the log; a reader puts what it read from the disk only if nothing wrote the key since it began to read.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{Equivalent, Weighter};

use crate::batch::Pair;
use crate::budget::{CacheBudget, CacheShare};
use crate::engine::Hot;

/// What an entry takes beside its key and value, about: itself, its place in an index, and an allocation with its counter.
const ENTRY_OVERHEAD_BYTES: u64 = 144;

/// How large records are thought to be, in bytes: says how many keys that went are remembered.
const RECORD_BYTES: u64 = 512;

/// After so many changes it asks how much it may take.
const CHANGES_BETWEEN: u64 = 256;

pub(crate) struct RecordCache {
    cache: Cache<Place, Known, Weight>,
    share: CacheShare,
    changes: AtomicU64,
}

/// A key of a table, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) table: u64,
    /// The key and its value, if it has one.
    pub(crate) pair: Pair,
    /// Whether it has.
    pub(crate) is_there: bool,
}

/// A key in the cache: that of a pair, whose memory it shares.
#[derive(Debug, Clone)]
struct Place {
    table: u64,
    key: Bytes,
}

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
struct Sought<'a> {
    table: u64,
    key: &'a [u8],
}

#[derive(Debug, Clone)]
struct Weight;

impl RecordCache {
    pub(crate) fn new(budget: &CacheBudget) -> Self {
        let share = budget.share();
        let bytes_max = share.bytes_max();
        Self {
            cache: Cache::with_weighter((bytes_max / RECORD_BYTES) as usize, bytes_max, Weight),
            share,
            changes: AtomicU64::new(0),
        }
    }

    /// What is known of a key, as [`Table::get_hot`](crate::Table::get_hot) answers.
    pub(crate) fn get(&self, table: u64, key: &[u8]) -> Hot<Bytes> {
        match self.cache.get(&Sought { table, key }) {
            Some(known) if known.is_there => Hot::Found(known.pair.shared_value()),
            Some(_) => Hot::Absent,
            None => Hot::Cold,
        }
    }

    /// What is known of a key, or what reading it says, of which many that ask at once share one.
    pub(crate) fn get_or_read<E>(
        &self,
        table: u64,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<Bytes>, E>,
    ) -> Result<Option<Bytes>, E> {
        match self.get(table, key) {
            Hot::Found(value) => return Ok(Some(value)),
            Hot::Absent => return Ok(None),
            Hot::Cold => {}
        }
        let place = Place {
            table,
            key: Bytes::copy_from_slice(key),
        };
        let guard = match self.cache.get_value_or_guard(&place, None) {
            GuardResult::Value(known) => return Ok(known.is_there.then(|| known.pair.shared_value())),
            GuardResult::Guard(guard) => guard,
            // It waits for as long as it takes.
            GuardResult::Timeout => return read(),
        };
        let value = read()?;
        // Copied: what was read is a part of a block, which it would keep in memory whole.
        let pair = Pair::copied(key, value.as_deref().unwrap_or_default());
        // It is not taken if the key was written or forgotten since this began to read.
        let _ = guard.insert(Known {
            table,
            pair,
            is_there: value.is_some(),
        });
        self.changed();
        Ok(value)
    }

    /// Notes what was written, in its order.
    pub(crate) fn put(&self, written: impl IntoIterator<Item = Known>) {
        for known in written {
            self.cache.insert(known.place(), known);
            self.changed();
        }
    }

    /// Forgets a key.
    #[cfg(feature = "mysql")]
    pub(crate) fn forget(&self, table: u64, key: &[u8]) {
        self.cache.remove(&Sought { table, key });
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.cache.clear();
        self.share.bytes().store(0, Relaxed);
    }

    /// How much it holds, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Says now and then what it takes, and takes no more than it may.
    fn changed(&self) {
        if self.changes.fetch_add(1, Relaxed).is_multiple_of(CHANGES_BETWEEN) {
            self.share.bytes().store(self.bytes(), Relaxed);
            let bytes_max = self.share.bytes_max();
            if bytes_max.abs_diff(self.cache.capacity()) > bytes_max / 64 {
                self.cache.set_capacity(bytes_max);
            }
        }
    }
}

impl Known {
    fn place(&self) -> Place {
        Place {
            table: self.table,
            key: self.pair.shared_key(),
        }
    }
}

impl Weighter<Place, Known> for Weight {
    fn weight(&self, _: &Place, known: &Known) -> u64 {
        known.pair.bytes().len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { table, key } = self;
        Sought { table: *table, key }.hash(state);
    }
}

impl Hash for Sought<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table);
        state.write(self.key);
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table && self.key == other.key
    }
}

impl Eq for Place {}

impl Equivalent<Place> for Sought<'_> {
    fn equivalent(&self, place: &Place) -> bool {
        self.table == place.table && self.key == place.key
    }
}

#[cfg(test)]
mod tests;
