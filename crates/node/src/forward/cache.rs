//! The values of hot keys, kept by a router. One cache an event loop, so that none needs a lock.
//!
//! An entry is named by the store's number, version and key. Versions never change, so that no entry is ever wrong: a
//! swap needs no invalidation, what belonged to the version before is simply not asked for any more, and
//! makes room. That a key is absent is kept as well.

use bytes::Bytes;
use quick_cache::unsync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::StoreVersion;

/// The cost of an entry besides key and value, in bytes: itself, its place in the table, and what the
/// allocator rounds up.
const ENTRY_BYTES: u64 = 160;
/// The bytes of a key with its value, as a guess for the size of the table.
const ITEM_BYTES_GUESS: u64 = 512;
/// An entry that would take more than this share of a cache is not kept.
const SHARE_MAX: u64 = 64;

/// The name of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EntryKey {
    source: StoreVersion,
    key: Box<[u8]>,
}

/// The name of an entry, for looking it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EntryRef<'a> {
    pub(super) source: StoreVersion,
    pub(super) key: &'a [u8],
}

impl EntryRef<'_> {
    pub(super) fn to_owned(self) -> EntryKey {
        EntryKey {
            source: self.source,
            key: self.key.into(),
        }
    }
}

// Hashes alike: a boxed slice hashes as the slice that it holds.
impl Equivalent<EntryKey> for EntryRef<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        self.source == key.source && *self.key == *key.key
    }
}

#[derive(Debug, Clone)]
struct Bytewise;

impl Weighter<EntryKey, Option<Bytes>> for Bytewise {
    fn weight(&self, key: &EntryKey, value: &Option<Bytes>) -> u64 {
        ENTRY_BYTES + key.key.len() as u64 + value.as_ref().map_or(0, |value| value.len() as u64)
    }
}

/// The cache of one event loop.
pub(super) struct HotKeys {
    entries: Cache<EntryKey, Option<Bytes>, Bytewise>,
    bytes_max: u64,
}

impl HotKeys {
    /// A cache of this many bytes, entries' own cost included.
    pub(super) fn new(bytes_max: u64) -> Self {
        let items_guess = (bytes_max / ITEM_BYTES_GUESS).clamp(16, 1 << 20) as usize;
        Self {
            entries: Cache::with_weighter(items_guess, bytes_max, Bytewise),
            bytes_max,
        }
    }

    /// The capacity of the cache, in bytes.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The size of the cache, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The entry of a key: `None` if there is none, `Some(None)` if it is absent.
    pub(super) fn get(&self, key: EntryRef<'_>) -> Option<Option<Bytes>> {
        self.entries.get(&key).cloned()
    }

    /// Keeps a value that was read, unless it is too large.
    pub(super) fn insert(&mut self, key: EntryRef<'_>, value: Option<&Bytes>) {
        let length = key.key.len() + value.map_or(0, Bytes::len);
        if length as u64 > self.bytes_max / SHARE_MAX {
            return;
        }
        // Copied: it may be a small part of a large buffer, which would be kept whole.
        let value = value.map(|value| Bytes::copy_from_slice(value));
        self.entries.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::VersionNumber;

    use super::*;
    use fondaco_catalog::StoreId;

    fn name(version: u64, key: &[u8]) -> EntryRef<'_> {
        EntryRef {
            source: StoreVersion {
                store: StoreId::new(1).unwrap(),
                version: VersionNumber::new(version).unwrap(),
            },
            key,
        }
    }

    #[test]
    fn a_value_is_known_for_its_own_version_only() {
        let mut cache = HotKeys::new(1 << 20);
        cache.insert(name(1, b"k"), Some(&Bytes::from_static(b"old")));
        cache.insert(name(2, b"gone"), None);
        assert_eq!(cache.get(name(1, b"k")), Some(Some(Bytes::from_static(b"old"))));
        assert_eq!(cache.get(name(2, b"k")), None);
        assert_eq!(cache.get(name(2, b"gone")), Some(None));
    }

    #[test]
    fn it_stays_within_its_bytes_whatever_is_put_in() {
        let mut cache = HotKeys::new(1 << 20);
        for number in 0..10_000u32 {
            let value = Bytes::from(vec![0; (number % 5000) as usize]);
            cache.insert(name(1, &number.to_le_bytes()), Some(&value));
            assert!(cache.bytes() <= 1 << 20);
        }
        assert!(cache.bytes() > 1 << 19, "it is used: {}", cache.bytes());
        let huge = Bytes::from(vec![0; 1 << 19]);
        cache.insert(name(1, b"huge"), Some(&huge));
        assert_eq!(cache.get(name(1, b"huge")), None);
    }

    #[test]
    fn keys_that_are_asked_for_often_outlast_a_scan_of_others() {
        let mut cache = HotKeys::new(1 << 20);
        let value = Bytes::from(vec![7; 100]);
        for _ in 0..3 {
            for hot in 0..100u32 {
                if cache.get(name(1, &hot.to_le_bytes())).is_none() {
                    cache.insert(name(1, &hot.to_le_bytes()), Some(&value));
                }
            }
        }
        for cold in 1000..20_000u32 {
            cache.insert(name(1, &cold.to_le_bytes()), Some(&value));
        }
        let kept = (0..100u32)
            .filter(|hot| cache.get(name(1, &hot.to_le_bytes())).is_some())
            .count();
        assert!(kept > 90, "{kept} of 100");
    }
}
