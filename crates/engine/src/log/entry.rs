//! The in-memory entry of a key: the place of its record, and the record itself while memory has room for it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;

use super::frame::frame_bytes;
use crate::batch::Pair;

/// Longer values are shared with readers, shorter ones are copied. Sharing needs a reference count: an allocation, and
/// cache misses to update the count twice per read and once when the value is overwritten.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// The place of a frame in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

/// The in-memory entry of a key.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key, followed by the value if that is in memory, or else by its beginning as far as that is kept.
    bytes: Bytes,
    at: At,
    value_bytes: u32,
    key_bytes: u16,
    is_hot: bool,
    /// Whether it was read or written since the clock hand last passed.
    is_used: AtomicBool,
}

impl Entry {
    /// An entry whose value is in memory. The lengths are within the limits of all engines.
    pub(super) fn hot(pair: Pair, at: At) -> Self {
        Self {
            at,
            value_bytes: pair.value().len() as u32,
            key_bytes: pair.key().len() as u16,
            bytes: pair.into_bytes(),
            is_hot: true,
            is_used: AtomicBool::new(true),
        }
    }

    /// An entry whose value is only on the disk.
    pub(super) fn cold(key: &[u8], value_bytes: u32, at: At) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(key),
            at,
            value_bytes,
            key_bytes: key.len() as u16,
            is_hot: false,
            is_used: AtomicBool::new(false),
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_bytes)]
    }

    /// The key, followed by what is in memory of the value.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn at(&self) -> At {
        self.at
    }

    pub(super) fn value_bytes(&self) -> u32 {
        self.value_bytes
    }

    /// The value, if it is in memory.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.is_hot.then(|| &self.bytes[usize::from(self.key_bytes)..])
    }

    /// The first `bytes` bytes of the value, or all of a shorter one, and perhaps more; `None` if they are not in memory.
    pub(super) fn beginning(&self, bytes: usize) -> Option<&[u8]> {
        let known = &self.bytes[usize::from(self.key_bytes)..];
        (self.is_hot || known.len() >= bytes.min(self.value_bytes as usize)).then_some(known)
    }

    /// A value that the caller can keep, if the value is in memory.
    pub(super) fn kept_value(&self) -> Option<Bytes> {
        let value = self.value()?;
        Some(match value.len() <= COPIED_BYTES_MAX {
            true => Bytes::copy_from_slice(value),
            false => self.bytes.slice(usize::from(self.key_bytes)..),
        })
    }

    /// A pair that the caller can keep, if the value is in memory.
    pub(super) fn pair(&self) -> Option<Pair> {
        let value = self.value()?;
        Some(match value.len() <= COPIED_BYTES_MAX {
            true => Pair::copied(self.key(), value),
            false => Pair::of_shared(self.bytes.clone(), usize::from(self.key_bytes)),
        })
    }

    /// Whether its value is in memory.
    pub(super) fn is_hot(&self) -> bool {
        self.is_hot
    }

    /// Marks the entry as read. Writes only if that changes something: readers share the cache line.
    pub(super) fn touch(&self) {
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    /// Sets the new place of the record.
    pub(super) fn move_to(&mut self, at: At) {
        self.at = at;
    }

    /// Puts the value into memory.
    pub(super) fn warm(&mut self, pair: &Pair) {
        debug_assert_eq!(
            (self.key(), self.value_bytes as usize),
            (pair.key(), pair.value().len())
        );
        self.bytes = pair.clone().into_bytes();
        self.is_hot = true;
        self.is_used.store(true, Relaxed);
    }

    /// Evicts the value, unless the entry was used since the last call, and keeps its first `kept_bytes` bytes. Returns the
    /// length of the value if it is evicted: the few kept bytes are not counted.
    pub(super) fn cool(&mut self, kept_bytes: usize) -> usize {
        if !self.is_hot || std::mem::take(self.is_used.get_mut()) {
            return 0;
        }
        let kept_bytes = kept_bytes.min(self.value_bytes as usize);
        self.bytes = Bytes::copy_from_slice(&self.bytes[..usize::from(self.key_bytes) + kept_bytes]);
        self.is_hot = false;
        self.value_bytes as usize
    }

    /// The bytes of the value in memory.
    pub(super) fn hot_bytes(&self) -> usize {
        if self.is_hot { self.value_bytes as usize } else { 0 }
    }

    /// The length of the frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.key_bytes.into(), self.value_bytes)
    }
}
