//! Storage for the records of versioned stores: sorted tables of byte strings behind one trait, [`Engine`].
//!
//! An engine does not know clocks, partitions or replicas: it stores keys and values, sorted by key, and changes them
//! by atomic batches.
//!
//! - [`LogEngine`], the default of stores: a log on disk, with all keys and the values that fit in memory;
//! - [`DiskEngine`]: trees on disk, for stores whose keys do not fit into memory;
//! - [`MemoryEngine`] and [`CacheEngine`]: in memory only; the cache evicts values to stay within its budget;
//! - `MySqlEngine`: tables of a MySQL server.
//!
//! ```
//! use fondaco_engine::{Engine, MemoryEngine, WriteBatch};
//!
//! let engine = MemoryEngine::new();
//! let table = engine.open_table("store-1")?;
//! let mut batch = WriteBatch::new();
//! batch.put(&*table, "key".into(), "value".into());
//! engine.write(batch)?;
//! assert_eq!(table.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # Ok::<(), fondaco_engine::EngineError>(())
//! ```

mod batch;
mod budget;
mod directory;
mod disk;
mod engine;
mod error;
mod failure;
mod high_water;
mod limits;
mod log;
mod loss;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
mod name;
mod open_table;
mod prefetch;
mod readable;
mod record_cache;
mod space;
mod synced;

pub use batch::{Pair, WriteBatch};
pub use budget::CacheBudget;
pub use disk::{DiskEngine, DiskOptions};
pub use engine::{Engine, Extent, Hot, KeyMemory, Scan, Spot, Table};
pub use error::EngineError;
pub use limits::{KEY_BYTES_MAX, TABLE_NAME_BYTES_MAX, VALUE_BYTES_MAX};
pub use log::{LogEngine, LogOptions};
pub use loss::{LossNotes, OnLoss};
pub use memory::{CacheEngine, MemoryEngine};
#[cfg(feature = "mysql")]
pub use mysql::{MySqlEngine, MySqlOptions};
