//! A cache of the records of all tables, so that an event loop can answer without waiting for a disk. It also caches
//! the absence of keys.
//!
//! The cache never holds a value older than the last write that returned. Writers insert their records in the order of
//! the log; a reader inserts what it read from the disk only if the key was not written since its read began.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{Equivalent, Weighter};

use crate::batch::Pair;
use crate::budget::{CacheBudget, CacheShare};
use crate::engine::Hot;

/// The approximate memory of an entry besides its key and value: the struct, its place in an index, and an allocation
/// with a reference count.
const ENTRY_OVERHEAD_BYTES: u64 = 144;

/// The assumed size of a record, in bytes: determines how many evicted keys are remembered.
const RECORD_BYTES: u64 = 512;

/// The number of changes between two looks at the budget.
const CHANGES_BETWEEN: u64 = 256;

pub(crate) struct RecordCache {
    cache: Cache<Place, Known, Weight>,
    share: CacheShare,
    changes: AtomicU64,
}

/// A key of a table, and its cached state.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) table: u64,
    /// The key, and its value if it has one.
    pub(crate) pair: Pair,
    /// Whether the key has a value.
    pub(crate) is_there: bool,
}

/// The key of a cache entry: shares the memory of the pair.
#[derive(Debug, Clone)]
struct Place {
    table: u64,
    key: Bytes,
}

/// A key to look up.
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

    /// Looks up a key, as [`Table::get_hot`](crate::Table::get_hot) does.
    pub(crate) fn get(&self, table: u64, key: &[u8]) -> Hot<Bytes> {
        match self.cache.get(&Sought { table, key }) {
            Some(known) if known.is_there => Hot::Found(known.pair.shared_value()),
            Some(_) => Hot::Absent,
            None => Hot::Cold,
        }
    }

    /// Looks up a key; if it is not cached, reads it. Concurrent callers for one key share a single read.
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
            // Not reached: the wait has no timeout.
            GuardResult::Timeout => return read(),
        };
        let value = read()?;
        // Copied: the value is a slice of a block, and would keep the whole block in memory.
        let pair = Pair::copied(key, value.as_deref().unwrap_or_default());
        // Not inserted if the key was written or forgotten since this read began.
        let _ = guard.insert(Known {
            table,
            pair,
            is_there: value.is_some(),
        });
        self.changed();
        Ok(value)
    }

    /// Inserts written records, in their order.
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

    /// The memory that the cache uses, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// From time to time, reports the used memory to the budget and adapts the capacity to it.
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
