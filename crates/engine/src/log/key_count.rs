//! The number of keys in memory, their approximate memory, and its limit. Beyond the limit only new keys are refused,
//! even if the engine already found more keys when it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::engine::KeyMemory;
use crate::error::EngineError;

/// The memory of a key besides its own bytes: its place in a leaf that is two thirds full, 93 bytes, its part of the
/// tree above, and the overhead of the allocator.
const KEY_BYTES: u64 = 110;

/// A batch is refused only when the limit is exceeded by this fraction (one sixteenth). So callers that check before
/// they build a batch, as replicas do, can complete the batches in progress.
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

    /// Adds a key of `bytes` bytes.
    pub(super) fn add(&self, bytes: usize) {
        self.keys.fetch_add(1, Relaxed);
        self.bytes.fetch_add(KEY_BYTES + bytes as u64, Relaxed);
    }

    /// Removes a key of `bytes` bytes.
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

    /// The error for a batch with new keys, if the limit is exceeded too far.
    pub(super) fn refusal(&self) -> Option<EngineError> {
        let spare_bytes = self.bytes_max / SPARE_PART;
        let is_over = self.bytes.load(Relaxed) >= self.bytes_max.saturating_add(spare_bytes);
        is_over.then(|| self.memory().refusal())
    }
}
