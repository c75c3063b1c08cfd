//! The engines under test, configured small, so that all their background work happens within a test.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, EngineError, LogEngine, LogOptions, OnLoss};

/// An engine on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Trees, flushed and compacted.
    Tree,
    /// A log, with cleaning.
    Log,
}

/// The options of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    pub part_bytes: u64,
    pub cache_bytes: u64,
    pub reserve_bytes: u64,
    pub on_loss: OnLoss,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            part_bytes: 256 << 10,
            cache_bytes: 4 << 20,
            reserve_bytes: 0,
            on_loss: OnLoss::Refuse,
        }
    }
}

/// As an argument of the process that a test starts.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tree => "tree",
            Self::Log => "log",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let kinds = [Self::Tree, Self::Log];
        let found = kinds.into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| format!("{name:?} is no engine"))
    }
}

impl Kind {
    pub fn open(self, dir: &Path, options: Options) -> Result<Box<dyn Engine>, EngineError> {
        let Options {
            part_bytes,
            cache_bytes,
            reserve_bytes,
            on_loss,
        } = options;
        Ok(match self {
            Self::Tree => {
                let options = DiskOptions {
                    table_buffer_bytes: part_bytes,
                    log_bytes_max: 64 << 20,
                    disk_reserve_bytes: reserve_bytes,
                    cache: CacheBudget::new(cache_bytes / 2),
                    block_cache_bytes: cache_bytes / 2,
                    on_loss,
                    ..DiskOptions::default()
                };
                Box::new(DiskEngine::open(dir, options)?)
            }
            Self::Log => {
                let options = LogOptions {
                    segment_bytes: part_bytes,
                    disk_reserve_bytes: reserve_bytes,
                    cache: CacheBudget::new(cache_bytes),
                    on_loss,
                    ..LogOptions::default()
                };
                Box::new(LogEngine::open(dir, options)?)
            }
        })
    }
}
