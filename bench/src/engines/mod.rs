//! Engines for records that change, side by side: ours on disk, and the libraries it could have been built on. Engines
//! for versions that are built once and then only read are in [`peers`](crate::peers).
//!
//! Each is set up for the same promises: a batch is in the log of the operating system when `write` returns, and on the
//! disk when `sync` does.

mod fjall;
mod lmdb;
pub mod mixed;
mod ours;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod trial;
pub mod worker;

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The engines that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Candidate {
    /// Ours, on fjall, with what it adds.
    Disk,
    /// Ours, a log with its keys in memory.
    Log,
    /// What `disk` is built on, alone.
    Fjall,
    /// RocksDB, if the benchmark was built with it.
    Rocksdb,
    /// LMDB: a tree of pages, not one of runs.
    Lmdb,
}

/// An engine that is written to: one table of keys and values.
///
/// Not one trait with [`ReadOnlyEngine`](crate::peers::ReadOnlyEngine): a look-up there takes some 100 ns, so it is
/// generic and shows the value in place. Here a look-up starts a transaction where the engine needs one, and takes
/// microseconds, so that a virtual call and a copy do not show.
pub trait WritableEngine: Send + Sync {
    /// Writes a batch, whole.
    fn write(&self, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;
    /// Waits until all that was written is on the disk.
    fn sync(&self) -> Result<()>;
    /// Reads a value.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Reads the values of some keys, with one request if the engine has such a one.
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// Reads everything in order: how many keys, and the length of all keys and values.
    fn scan(&self) -> Result<(u64, u64)>;
}

impl Candidate {
    /// All that this program was built with.
    pub fn all() -> Vec<Self> {
        let rocksdb = cfg!(feature = "rocksdb").then_some(Self::Rocksdb);
        [
            Some(Self::Log),
            Some(Self::Disk),
            Some(Self::Fjall),
            rocksdb,
            Some(Self::Lmdb),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The name in settings of stores, and in names of files.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Log => "log",
            Self::Fjall => "fjall",
            Self::Rocksdb => "rocksdb",
            Self::Lmdb => "lmdb",
        }
    }

    /// The one with this name in settings.
    pub fn named(argument: &str) -> Option<Self> {
        Self::all()
            .into_iter()
            .find(|candidate| candidate.argument() == argument)
    }

    /// Opens one in a directory, with so much memory for what was read.
    pub fn open(self, dir: &Path, cache_bytes: u64) -> Result<Box<dyn WritableEngine>> {
        std::fs::create_dir_all(dir)?;
        Ok(match self {
            Self::Disk => Box::new(ours::Ours::open_trees(dir, cache_bytes)?),
            Self::Log => Box::new(ours::Ours::open_log(dir, cache_bytes)?),
            Self::Fjall => Box::new(fjall::Trees::open(dir, cache_bytes)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(rocksdb::Rocks::open(dir, cache_bytes)?),
            #[cfg(not(feature = "rocksdb"))]
            Self::Rocksdb => anyhow::bail!("built without RocksDB: use --features rocksdb"),
            Self::Lmdb => Box::new(lmdb::Lmdb::open(dir)?),
        })
    }
}
