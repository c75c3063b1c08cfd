//! The engines under test, configured small, so that all their background work happens within a test.

use std::path::Path;

use fondaco_engine::{CacheBudget, DamagedLog, DiskEngine, DiskOptions, Engine, EngineError, LogEngine, LogOptions};

/// An engine on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Trees, flushed and compacted.
    Tree,
    /// A log, with cleaning.
    Log,
}

/// The options of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub part_bytes: u64,
    pub cache_bytes: u64,
    pub reserve_bytes: u64,
    pub damaged_log: DamagedLog,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            part_bytes: 256 << 10,
            cache_bytes: 4 << 20,
            reserve_bytes: 0,
            damaged_log: DamagedLog::Refuse,
        }
    }
}

/// An open engine.
pub struct Opened {
    pub engine: Box<dyn Engine>,
    pub lost_writes: Option<String>,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Tree, Self::Log];

    /// The name by which a test tells a child process the engine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Log => "log",
        }
    }

    /// The engine that a child process was told by this variable.
    pub fn of_environment(variable: &str) -> Self {
        let name = std::env::var(variable).unwrap();
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap()
    }

    pub fn open(self, dir: &Path, options: Options) -> Result<Opened, EngineError> {
        let Options {
            part_bytes,
            cache_bytes,
            reserve_bytes,
            damaged_log,
        } = options;
        Ok(match self {
            Self::Tree => {
                let options = DiskOptions {
                    table_buffer_bytes: part_bytes,
                    log_bytes_max: 64 << 20,
                    disk_reserve_bytes: reserve_bytes,
                    cache: CacheBudget::new(cache_bytes / 2),
                    block_cache_bytes: cache_bytes / 2,
                    damaged_log,
                    ..DiskOptions::default()
                };
                let engine = DiskEngine::open(dir, options)?;
                Opened {
                    lost_writes: engine.lost_writes(),
                    engine: Box::new(engine),
                }
            }
            Self::Log => {
                let options = LogOptions {
                    segment_bytes: part_bytes,
                    disk_reserve_bytes: reserve_bytes,
                    cache: CacheBudget::new(cache_bytes),
                    damaged_log,
                    ..LogOptions::default()
                };
                let engine = LogEngine::open(dir, options)?;
                Opened {
                    lost_writes: engine.lost_writes(),
                    engine: Box::new(engine),
                }
            }
        })
    }
}
