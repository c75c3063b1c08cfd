//! What memory has of one key: where its record stands, and the record itself while there is room for it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;

use super::frame::frame_bytes;
use crate::batch::Pair;

/// Longer values are shared with readers, others copied. To share one means to make a counter for it, and to change
/// that counter, which memory has to be waited for, twice at each read and once more when it is overwritten.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Where a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

/// What memory has of a key.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key, and behind it the value if that is in memory.
    bytes: Bytes,
    at: At,
    value_bytes: u32,
    key_bytes: u16,
    is_hot: bool,
    /// Whether it was read or written since the clock last came by.
    is_used: AtomicBool,
}

impl Entry {
    /// Of a record that is in memory. Lengths are within the limits of all engines.
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

    /// Of a record that is on the disk only.
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

    /// The key, and the value if that is in memory.
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

    /// The value, if it is in memory, to be kept.
    pub(super) fn kept_value(&self) -> Option<Bytes> {
        let value = self.value()?;
        Some(match value.len() <= COPIED_BYTES_MAX {
            true => Bytes::copy_from_slice(value),
            false => self.bytes.slice(usize::from(self.key_bytes)..),
        })
    }

    /// Key and value, if that is in memory, to be kept.
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

    /// Notes that it was read. Written only where that changes something: readers share its cache line.
    pub(super) fn touch(&self) {
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    /// The record stands elsewhere now.
    pub(super) fn move_to(&mut self, at: At) {
        self.at = at;
    }

    /// The record is in memory now.
    pub(super) fn warm(&mut self, pair: &Pair) {
        debug_assert_eq!(
            (self.key(), self.value_bytes as usize),
            (pair.key(), pair.value().len())
        );
        self.bytes = pair.clone().into_bytes();
        self.is_hot = true;
        self.is_used.store(true, Relaxed);
    }

    /// Gives up what it has in memory, unless it was used since this was last asked: how many bytes it gave up.
    pub(super) fn cool(&mut self) -> usize {
        if !self.is_hot || std::mem::take(self.is_used.get_mut()) {
            return 0;
        }
        self.bytes = Bytes::copy_from_slice(self.key());
        self.is_hot = false;
        self.value_bytes as usize
    }

    /// How much of memory its value takes.
    pub(super) fn hot_bytes(&self) -> usize {
        if self.is_hot { self.value_bytes as usize } else { 0 }
    }

    /// How long its frame is.
    pub(super) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.key_bytes.into(), self.value_bytes)
    }
}
