//! How many keys are in memory, about how much of it they take, and how much they may. Beyond that, new keys are refused:
//! all else goes on, also after a start that found more.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::engine::KeyMemory;
use crate::error::EngineError;

/// What a key takes besides its own bytes: its place in a leaf that is two thirds full, 93 bytes, its part of the tree
/// above, and the allocator's share.
const KEY_BYTES: u64 = 110;

/// A batch is refused only when there is more than is allowed by this part of it: callers that ask before they put a batch
/// together, as replicas do, can finish those that are under way.
const SPARE_PART: u64 = 16;

/// The keys of all tables.
#[derive(Debug)]
pub(super) struct KeyCount {
    bytes_max: u64,
    keys: AtomicU64,
    bytes: AtomicU64,
}

impl KeyCount {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// A key of so many bytes came into memory.
    pub(super) fn add(&self, bytes: usize) {
        self.keys.fetch_add(1, Relaxed);
        self.bytes.fetch_add(KEY_BYTES + bytes as u64, Relaxed);
    }

    /// One went.
    pub(super) fn remove(&self, bytes: usize) {
        self.keys.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(KEY_BYTES + bytes as u64, Relaxed);
    }

    pub(super) fn memory(&self) -> KeyMemory {
        KeyMemory {
            keys: self.keys.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_max: self.bytes_max,
        }
    }

    /// The error for a batch with new keys, if it is too much for that.
    pub(super) fn refusal(&self) -> Option<EngineError> {
        let spare_bytes = self.bytes_max / SPARE_PART;
        let is_over = self.bytes.load(Relaxed) >= self.bytes_max.saturating_add(spare_bytes);
        is_over.then(|| self.memory().refusal())
    }
}
