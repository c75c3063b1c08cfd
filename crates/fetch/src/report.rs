//! The report of a finished fetch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_model::{StoreName, VersionNumber};
use parking_lot::Mutex;

use crate::sources::Sources;

/// How many corrupt files are remembered by name.
const CORRUPT_MAX: usize = 100;

/// The result of a fetch that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchReport {
    /// How many bytes each source gave, in the order in which they are asked. Links count none.
    pub bytes_from: Vec<(String, u64)>,
    /// How many files were linked from other versions of the store on this disk.
    pub linked_files: u64,
    /// The size of the linked files in bytes; they were not fetched.
    pub linked_bytes: u64,
    /// How many chunks were made from those of other versions of the store on this disk and patches.
    pub rebuilt_chunks: u64,
    /// The size of the data of these chunks in bytes; it was not fetched.
    pub rebuilt_bytes: u64,
    /// The size of the patches in bytes.
    pub patch_bytes: u64,
    /// Files of a source that do not match the manifest. They came from another source instead. At most the first
    /// hundred.
    pub corrupt: Vec<CorruptFile>,
}

impl FetchReport {
    /// Logs where the files came from.
    pub fn log(&self, store: &StoreName, version: VersionNumber) {
        for (location, bytes) in self.bytes_from.iter().filter(|(_, bytes)| *bytes > 0) {
            tracing::info!(%store, %version, %location, bytes, "fetched from");
        }
        if self.linked_files > 0 {
            let (files, bytes) = (self.linked_files, self.linked_bytes);
            tracing::info!(%store, %version, files, bytes, "linked from other versions");
        }
        if self.rebuilt_chunks > 0 {
            let (chunks, bytes, patch_bytes) = (self.rebuilt_chunks, self.rebuilt_bytes, self.patch_bytes);
            tracing::info!(%store, %version, chunks, bytes, patch_bytes, "made from other versions and patches");
        }
    }
}

/// A file that does not match its manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorruptFile {
    /// The source that gave it.
    pub location: String,
    /// Its name there.
    pub file: String,
}

/// Findings about files, collected while they are fetched.
#[derive(Default)]
pub(crate) struct Findings {
    corrupt: Mutex<Vec<CorruptFile>>,
    linked_files: AtomicU64,
    linked_bytes: AtomicU64,
    rebuilt_chunks: AtomicU64,
    rebuilt_bytes: AtomicU64,
    patch_bytes: AtomicU64,
}

impl Findings {
    pub(crate) fn corrupt(&self, location: String, file: &str) {
        tracing::error!(%location, file, "a source has a corrupt file");
        let mut found = self.corrupt.lock();
        if found.len() < CORRUPT_MAX {
            found.push(CorruptFile {
                location,
                file: file.to_owned(),
            });
        }
    }

    /// Records that a file of another version was linked.
    pub(crate) fn linked(&self, bytes: u64) {
        self.linked_files.fetch_add(1, Relaxed);
        self.linked_bytes.fetch_add(bytes, Relaxed);
    }

    /// Records that a chunk was made from that of another version and a patch.
    pub(crate) fn rebuilt(&self, bytes: u64, patch_bytes: u64) {
        self.rebuilt_chunks.fetch_add(1, Relaxed);
        self.rebuilt_bytes.fetch_add(bytes, Relaxed);
        self.patch_bytes.fetch_add(patch_bytes, Relaxed);
    }

    pub(crate) fn report(&self, sources: &Sources) -> FetchReport {
        let mut corrupt = std::mem::take(&mut *self.corrupt.lock());
        corrupt.sort();
        FetchReport {
            bytes_from: sources.bytes(),
            linked_files: self.linked_files.load(Relaxed),
            linked_bytes: self.linked_bytes.load(Relaxed),
            rebuilt_chunks: self.rebuilt_chunks.load(Relaxed),
            rebuilt_bytes: self.rebuilt_bytes.load(Relaxed),
            patch_bytes: self.patch_bytes.load(Relaxed),
            corrupt,
        }
    }
}
