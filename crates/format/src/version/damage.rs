//! The known damage of an open version, as found by look-ups and scans so far.
//!
//! A damaged record or an unreadable sector is an error for the requests that need it, and for no others. It is also
//! recorded here, by partition, so that a server can report it and fetch the partition again.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fondaco_model::PartitionId;
use parking_lot::Mutex;

use super::{ColdRead, Version};
use crate::error::FormatError;
use crate::fault::unreadable_pages;

/// The damage found, by chunk.
#[derive(Default)]
pub(super) struct Damage {
    is_any: AtomicBool,
    first: Mutex<BTreeMap<u32, String>>,
}

impl Version {
    /// The partitions with damaged or unreadable files, as far as look-ups and scans have found them, each with its
    /// first error.
    pub fn damaged(&self) -> BTreeMap<PartitionId, String> {
        let mut damaged = BTreeMap::new();
        if !self.damage.is_any.load(Relaxed) && unreadable_pages() == 0 {
            return damaged;
        }
        for (number, reason) in &*self.damage.first.lock() {
            let partition = self.chunks[*number as usize].partition();
            damaged.entry(partition).or_insert_with(|| reason.clone());
        }
        for chunk in &self.chunks {
            let mut mappings = std::iter::once(chunk.data()).chain(chunk.index());
            let faulty = mappings.find(|mapping| mapping.is_damaged());
            if let Some(mapping) = faulty {
                let reason = || format!("{:?} has a page that cannot be read", mapping.path());
                damaged.entry(chunk.partition()).or_insert_with(reason);
            }
        }
        damaged
    }

    /// The error for a failed cold read; `source` is the error of the operating system.
    #[cold]
    pub fn read_failed(&self, read: &ColdRead, source: io::Error) -> FormatError {
        let error = FormatError::io("read", self.cold_path(read))(source);
        self.note(read.chunk(), &error);
        error
    }

    /// Records an error of a chunk.
    #[cold]
    pub(super) fn note(&self, chunk: u32, error: &FormatError) {
        let is_damage = match error {
            error if error.is_missing() => false,
            FormatError::Io { source, .. } => !matches!(
                source.kind(),
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::OutOfMemory
            ),
            error => error.is_corruption(),
        };
        if is_damage {
            let mut first = self.damage.first.lock();
            first.entry(chunk).or_insert_with(|| error.to_string());
            self.damage.is_any.store(true, Relaxed);
        }
    }
}
