//! Engines in memory alone: all is gone with the process. One keeps everything, the other what it has room for.
//!
//! The contents are persistent maps behind one pointer. A reader takes the pointer and never waits; a
//! writer makes the maps that are to come, sharing what does not change, and puts the pointer to them in its
//! place: so a batch is seen whole or not at all, and a scan is a pointer that is kept.

mod contents;
mod eviction;
mod table;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::contents::Contents;
use self::eviction::Clock;
use self::table::MemoryTable;
use crate::batch::WriteBatch;
use crate::engine::{Engine, Table};
use crate::error::EngineError;
use crate::name;

/// So many values fit into a cache, at least: a larger one would drive out too much, and is not kept.
const CACHED_VALUES_MIN: u64 = 8;

/// Tables in memory, without a bound: the memory of the machine is their limit.
pub struct MemoryEngine {
    shared: Arc<Shared>,
}

/// Tables in memory that keep within so many bytes together: what was not read for longest goes, about.
pub struct CacheEngine {
    shared: Arc<Shared>,
}

struct Shared {
    current: ArcSwap<Contents>,
    /// Longer values are not kept.
    value_bytes_max: u64,
    writer: Mutex<Writer>,
}

/// What only the writer needs.
struct Writer {
    /// `None` keeps everything.
    clock: Option<Clock>,
}

impl MemoryEngine {
    /// An engine without tables.
    pub fn new() -> Self {
        let shared = Shared::new(None, u64::MAX);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Another engine with what is in this one now. It takes no time, whatever that is.
    pub fn copy(&self) -> Self {
        let shared = Shared::new(None, u64::MAX);
        shared.current.store(self.shared.current.load_full());
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl CacheEngine {
    /// An engine without tables, that keeps within so many bytes: keys, values, and about what it takes to
    /// find them again.
    pub fn new(bytes_max: u64) -> Self {
        let shared = Shared::new(Some(Clock::new(bytes_max)), bytes_max / CACHED_VALUES_MIN);
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    fn new(clock: Option<Clock>, value_bytes_max: u64) -> Self {
        Self {
            current: ArcSwap::default(),
            value_bytes_max,
            writer: Mutex::new(Writer { clock }),
        }
    }

    /// Replaces the contents by what a change makes of them, unless it fails.
    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut writer = self.writer.lock();
        let mut contents = Contents::clone(&self.current.load());
        let result = change(&mut contents)?;
        if let Some(clock) = &mut writer.clock {
            clock.evict(&mut contents);
        }
        self.current.store(Arc::new(contents));
        Ok(result)
    }

    fn open_table(self: &Arc<Self>, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        name::check(name)?;
        let id = self.change(|contents| Ok(contents.open_table(name)))?;
        Ok(Arc::new(MemoryTable::new(self.clone(), id, name)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.change(|contents| {
            contents.drop_table(name);
            Ok(())
        })
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), EngineError> {
        batch.check()?;
        self.change(|contents| contents.apply(batch, self.value_bytes_max))
    }
}

/// Both are the same but for what they keep.
macro_rules! engine_over_shared {
    ($engine:ty) => {
        impl Engine for $engine {
            fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
                self.shared.open_table(name)
            }

            fn drop_table(&self, name: &str) -> Result<(), EngineError> {
                self.shared.drop_table(name)
            }

            fn tables(&self) -> Result<Vec<String>, EngineError> {
                Ok(self.shared.current.load().table_names())
            }

            fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
                self.shared.write(&batch)
            }

            fn sync(&self) -> Result<(), EngineError> {
                Ok(())
            }

            fn disk_bytes(&self) -> u64 {
                self.shared.current.load().bytes()
            }

            fn writes_at_once(&self) -> bool {
                true
            }

            fn is_durable(&self) -> bool {
                false
            }
        }
    };
}

engine_over_shared!(MemoryEngine);
engine_over_shared!(CacheEngine);
