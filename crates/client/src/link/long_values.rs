//! Requests with long values, in either direction: they go over a connection of their own, so that no other request
//! waits behind their bytes.
//!
//! The length of a value that is written is known; that of one that is read is not. So each link remembers keys whose last
//! value was long, as many as fit. A key that is not remembered delays others once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Values from this length on are long.
pub(crate) const LONG_BYTES: usize = 256 * 1024;

const SLOTS: usize = 1024;

/// The keys of one node whose values are long.
#[derive(Debug)]
pub(crate) struct LongValues {
    /// Most nodes have none: then nothing is hashed.
    any: AtomicBool,
    /// Hashes of keys, each at its place; 0 for none.
    hashes: [AtomicU64; SLOTS],
}

impl Default for LongValues {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            hashes: [const { AtomicU64::new(0) }; SLOTS],
        }
    }
}

impl LongValues {
    /// Whether the last value of this key of a store was long, as far as is known.
    #[inline]
    pub(crate) fn has(&self, store: u16, key: &[u8]) -> bool {
        self.any.load(Relaxed) && {
            let (slot, hash) = self.slot(store, key);
            slot.load(Relaxed) == hash
        }
    }

    /// Notes the length of a value of this key.
    #[inline]
    pub(crate) fn note(&self, store: u16, key: &[u8], bytes: usize) {
        if bytes >= LONG_BYTES {
            self.any.store(true, Relaxed);
            let (slot, hash) = self.slot(store, key);
            slot.store(hash, Relaxed);
        } else if self.has(store, key) {
            self.slot(store, key).0.store(0, Relaxed);
        }
    }

    fn slot(&self, store: u16, key: &[u8]) -> (&AtomicU64, u64) {
        let mut hasher = DefaultHasher::new();
        (store, key).hash(&mut hasher);
        let hash = hasher.finish() | 1;
        (&self.hashes[(hash >> 8) as usize % SLOTS], hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_until_its_value_is_short() {
        let long = LongValues::default();
        assert!(!long.has(1, b"k"));
        long.note(1, b"k", LONG_BYTES);
        assert!(long.has(1, b"k") && !long.has(2, b"k") && !long.has(1, b"l"));
        long.note(1, b"k", LONG_BYTES - 1);
        assert!(!long.has(1, b"k"));
    }
}
