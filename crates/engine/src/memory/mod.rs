//! Engines in memory only: the data is gone when the process ends. One engine keeps everything, the other is a cache.
//!
//! The contents are persistent maps behind one pointer. A reader clones the pointer and never waits. A writer creates
//! new maps, which share everything unchanged with the old ones, and then swaps the pointer. So readers see a batch
//! completely or not at all, and a scan just keeps an old pointer.

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

/// The minimum number of the largest values that fit into a cache: a larger value would evict too many entries, and is
/// not kept.
const CACHED_VALUES_MIN: u64 = 8;

/// Tables in memory without a bound, except for the memory of the machine.
pub struct MemoryEngine {
    shared: Arc<Shared>,
}

/// Tables in memory that share a budget: approximately the least recently read entries are evicted.
pub struct CacheEngine {
    shared: Arc<Shared>,
}

struct Shared {
    current: ArcSwap<Contents>,
    /// Longer values are not kept.
    value_bytes_max: u64,
    writer: Mutex<Writer>,
}

/// State that only the writer uses.
struct Writer {
    /// `None`: nothing is evicted.
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

    /// A copy of this engine with its current content. Takes constant time.
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
    /// An engine without tables, with a budget of `bytes_max` bytes for keys, values, and their approximate overhead.
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

    /// Replaces the contents by changed ones, unless the change fails.
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

/// The two engines differ only in what they keep.
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
