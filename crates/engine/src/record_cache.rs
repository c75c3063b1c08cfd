//! Records in memory, of all tables together, so that an event loop can answer without waiting for a disk. It
//! also knows of keys that they have no record.
//!
//! It never has what is older than the last write that returned. Writers put what they wrote, in the order of
//! the log; a reader puts what it read from the disk only if nobody wrote the key since it began to read.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{Equivalent, Weighter};

use crate::budget::{CacheBudget, CacheShare};
use crate::engine::Hot;

/// What an entry takes beside its key and value, about: places in two tables, two allocations.
const ENTRY_OVERHEAD_BYTES: u64 = 144;

/// For how many entries there is room before the cache grows: about one for so many bytes.
const BYTES_PER_ENTRY: u64 = 1024;

/// After so many changes it asks how much it may take.
const CHANGES_BETWEEN: u64 = 256;

pub(crate) struct RecordCache {
    records: Cache<Key, Option<Bytes>, Weight>,
    share: CacheShare,
    changes: AtomicU64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    table: u64,
    key: Bytes,
}

/// A key that is only looked for.
struct KeyRef<'a> {
    table: u64,
    key: &'a [u8],
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the derived one of `Key` does: bytes hash as their slice.
        self.table.hash(state);
        self.key.hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, other: &Key) -> bool {
        self.table == other.table && self.key == &other.key[..]
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Option<Bytes>> for Weight {
    fn weight(&self, key: &Key, value: &Option<Bytes>) -> u64 {
        (key.key.len() + value.as_ref().map_or(0, Bytes::len)) as u64 + ENTRY_OVERHEAD_BYTES
    }
}

impl RecordCache {
    pub(crate) fn new(budget: &CacheBudget) -> Self {
        let share = budget.share();
        let entries = (budget.bytes_max() / BYTES_PER_ENTRY) as usize;
        Self {
            records: Cache::with_weighter(entries, share.bytes_max(), Weight),
            share,
            changes: AtomicU64::new(0),
        }
    }

    /// Something was put in.
    fn changed(&self) {
        if !self.changes.fetch_add(1, Relaxed).is_multiple_of(CHANGES_BETWEEN) {
            return;
        }
        self.share.bytes().store(self.records.weight(), Relaxed);
        let bytes_max = self.share.bytes_max();
        // Not for little: all of it is locked.
        if bytes_max.abs_diff(self.records.capacity()) > self.records.capacity() / 16 {
            self.records.set_capacity(bytes_max);
        }
    }

    /// What is known of a key: its value, that it has none, or nothing.
    pub(crate) fn get(&self, table: u64, key: &[u8]) -> Option<Option<Bytes>> {
        self.records.get(&KeyRef { table, key })
    }

    /// What [`Table::get_hot`](crate::Table::get_hot) answers.
    pub(crate) fn get_hot(&self, table: u64, key: &[u8]) -> Hot<Bytes> {
        match self.get(table, key) {
            Some(Some(value)) => Hot::Found(value),
            Some(None) => Hot::Absent,
            None => Hot::Cold,
        }
    }

    /// What is known of a key, or what reading it says, of which many who ask at once share one.
    pub(crate) fn get_or_read<E>(
        &self,
        table: u64,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<Bytes>, E>,
    ) -> Result<Option<Bytes>, E> {
        if let Some(known) = self.get(table, key) {
            return Ok(known);
        }
        let owned = Key {
            table,
            key: Bytes::copy_from_slice(key),
        };
        match self.records.get_value_or_guard(&owned, None) {
            GuardResult::Value(known) => Ok(known),
            GuardResult::Guard(guard) => {
                let value = read()?;
                // Copied: what was read is a part of a block, which it would keep in memory whole. If the key
                // was written meanwhile, the guard is void, and this says what was true when it was asked.
                let _ = guard.insert(value.as_deref().map(Bytes::copy_from_slice));
                self.changed();
                Ok(value)
            }
            // Only with a limit on the time.
            GuardResult::Timeout => read(),
        }
    }

    /// Notes what was written, in memory of its own: it is kept as it is.
    pub(crate) fn put(&self, table: u64, key: Bytes, value: Option<Bytes>) {
        self.records.insert(Key { table, key }, value);
        self.changed();
    }

    /// Forgets a key.
    #[cfg(feature = "mysql")]
    pub(crate) fn forget(&self, table: u64, key: &[u8]) {
        self.records.remove(&KeyRef { table, key });
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.records.clear();
    }

    /// How much it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.records.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &'static str) -> Result<Option<Bytes>, ()> {
        Ok(Some(value.into()))
    }

    #[test]
    fn a_read_that_a_write_overtook_is_not_kept() {
        let cache = RecordCache::new(&CacheBudget::new(1 << 20));
        let answer = cache.get_or_read(1, b"key", || {
            cache.put(1, "key".into(), Some("new".into()));
            read("old")
        });
        assert_eq!(answer, read("old"));
        assert_eq!(cache.get(1, b"key"), Some(Some("new".into())));
    }

    #[test]
    fn what_is_too_large_takes_the_place_of_nothing_older() {
        let cache = RecordCache::new(&CacheBudget::new(1 << 16));
        cache.put(1, "key".into(), Some("old".into()));
        cache.put(1, "key".into(), Some(vec![0; 1 << 17].into()));
        assert_eq!(cache.get(1, b"key"), None);
    }

    #[test]
    fn tables_are_apart_and_absence_is_known() {
        let cache = RecordCache::new(&CacheBudget::new(1 << 20));
        cache.put(1, "key".into(), None);
        assert_eq!(cache.get(1, b"key"), Some(None));
        assert_eq!(cache.get(2, b"key"), None);
        cache.clear();
        assert_eq!(cache.get(1, b"key"), None);
    }

    #[test]
    fn it_keeps_within_its_limit() {
        let cache = RecordCache::new(&CacheBudget::new(1 << 16));
        for number in 0..10_000_u32 {
            cache.put(1, number.to_be_bytes().to_vec().into(), Some(vec![1; 100].into()));
        }
        assert!(cache.bytes() <= 1 << 16, "{} bytes", cache.bytes());
        assert!(cache.bytes() > 1 << 15, "{} bytes", cache.bytes());
    }
}
