//! Engines for versions that are built once and then only read, in process: load a Parquet file, open, get. Engines for
//! records that change are in [`engines`](crate::engines).
//!
//! RocksDB is not among them: its bindings need libclang and its C++ compiles for longer than the
//! whole benchmark runs. fjall is the same kind of engine, in Rust.

pub mod fjall;
pub mod fondaco;
pub mod lmdb;
pub mod sorted_index;

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// How an engine is to be opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenSettings {
    /// How many bytes a cache of the engine's own may take; engines on mappings have none.
    pub cache_bytes: u64,
}

/// A way to keep records on disk and find them; they do not change.
pub trait ReadOnlyEngine: Sized + Sync {
    /// A handle for the reads of one thread.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Loads all records of a Parquet file, durably, in the fastest way that the engine offers.
    fn load(parquet: &Path, dir: &Path) -> Result<()>;

    /// Opens the files of [`ReadOnlyEngine::load`].
    fn open(dir: &Path, settings: OpenSettings) -> Result<Self>;

    /// A reader for one thread.
    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// The bytes that have to be in memory, or read, to find records: indexes, filters, branch pages.
    fn index_bytes(&self) -> Result<u64>;
}

/// A handle for the reads of one thread.
pub trait Reader {
    /// Looks a key up and shows its value to `read`.
    fn get<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>;

    /// Looks many keys up, and shows each key with its value, if it has one. One by one, if an
    /// engine has no batch look-up.
    fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K], mut read: impl FnMut(&[u8], Option<&[u8]>)) -> Result<()> {
        for key in keys {
            let key = key.as_ref();
            if self.get(key, |value| read(key, Some(value)))?.is_none() {
                read(key, None);
            }
        }
        Ok(())
    }
}

/// The engines by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineKind {
    /// fondaco's format.
    Fondaco,
    /// LMDB, through heed.
    Lmdb,
    /// fjall.
    Fjall,
    /// A sorted index of hashes, searched in halves.
    SortedBinary,
    /// A sorted index of hashes, searched by interpolation.
    SortedInterpolation,
}

impl EngineKind {
    /// All of them, fondaco first.
    pub const ALL: [Self; 5] = [
        Self::Fondaco,
        Self::Lmdb,
        Self::Fjall,
        Self::SortedBinary,
        Self::SortedInterpolation,
    ];

    /// The name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fondaco => "fondaco",
            Self::Lmdb => "LMDB",
            Self::Fjall => "fjall",
            Self::SortedBinary => "sorted index, binary search",
            Self::SortedInterpolation => "sorted index, interpolation search",
        }
    }

    /// The name in names of files.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Fondaco => "fondaco",
            Self::Lmdb => "lmdb",
            Self::Fjall => "fjall",
            Self::SortedBinary => "sorted-binary",
            Self::SortedInterpolation => "sorted-interpolation",
        }
    }

    /// The name of its files: the two searches share theirs.
    pub fn files(self) -> &'static str {
        match self {
            Self::SortedBinary | Self::SortedInterpolation => "sorted",
            other => other.argument(),
        }
    }

    /// Whether it is a database that one could use instead, rather than a baseline.
    pub fn is_peer_database(self) -> bool {
        matches!(self, Self::Lmdb | Self::Fjall)
    }
}

/// Calls a generic function with the engine of a kind.
macro_rules! with_engine {
    ($kind:expr, $function:ident ( $($argument:expr),* )) => {
        match $kind {
            $crate::peers::EngineKind::Fondaco => $function::<$crate::peers::fondaco::Fondaco>($($argument),*),
            $crate::peers::EngineKind::Lmdb => $function::<$crate::peers::lmdb::Lmdb>($($argument),*),
            $crate::peers::EngineKind::Fjall => $function::<$crate::peers::fjall::Fjall>($($argument),*),
            $crate::peers::EngineKind::SortedBinary =>
                $function::<$crate::peers::sorted_index::SortedIndex<false>>($($argument),*),
            $crate::peers::EngineKind::SortedInterpolation =>
                $function::<$crate::peers::sorted_index::SortedIndex<true>>($($argument),*),
        }
    };
}
pub(crate) use with_engine;
