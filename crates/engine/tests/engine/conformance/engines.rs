//! The engines under test, and how each is reopened.

use std::sync::atomic::{AtomicUsize, Ordering};

use fondaco_engine::{
    CacheBudget, CacheEngine, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions, MemoryEngine, MySqlEngine,
    MySqlOptions, OnLoss, Table, WriteBatch,
};
use mysql::prelude::Queryable;
use tempfile::TempDir;

use crate::mysql::shared_server;

/// The data of an engine, for the duration of a test.
pub trait UnderTest {
    /// Opens an engine on the data; the previous one must be closed.
    fn open(&self) -> Box<dyn Engine>;

    /// The number of tables in the test of many tables.
    fn many_tables(&self) -> usize {
        200
    }

    /// The maximum number of random operations that are compared with a model.
    fn operations_max(&self) -> usize {
        400
    }
}

#[derive(Default)]
pub struct Memory;

impl UnderTest for Memory {
    fn open(&self) -> Box<dyn Engine> {
        Box::new(MemoryEngine::new())
    }
}

/// A cache with room for everything: another test covers eviction.
#[derive(Default)]
pub struct Cache;

impl UnderTest for Cache {
    fn open(&self) -> Box<dyn Engine> {
        Box::new(CacheEngine::new(1 << 30))
    }
}

pub struct Disk(TempDir);

impl Default for Disk {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl UnderTest for Disk {
    fn open(&self) -> Box<dyn Engine> {
        let options = DiskOptions {
            // Small, so that flushes and compaction happen within a test.
            table_buffer_bytes: 64 << 10,
            cache: CacheBudget::new(4 << 20),
            disk_reserve_bytes: 0,
            ..DiskOptions::default()
        };
        Box::new(DiskEngine::open(self.0.path(), options).unwrap())
    }

    fn many_tables(&self) -> usize {
        64
    }
}

pub struct Log(TempDir);

impl Default for Log {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl UnderTest for Log {
    fn open(&self) -> Box<dyn Engine> {
        let options = LogOptions {
            // Small, so that cleaning and disk reads happen within a test.
            segment_bytes: 16 << 10,
            cache: CacheBudget::new(64 << 10),
            disk_reserve_bytes: 0,
            ..LogOptions::default()
        };
        Box::new(LogEngine::open(self.0.path(), options).unwrap())
    }

    fn many_tables(&self) -> usize {
        64
    }
}

/// A separate database in the shared server.
pub struct MySql {
    url: String,
    dir: TempDir,
}

impl Default for MySql {
    fn default() -> Self {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = shared_server();
        let name = format!("conformance_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let mut connection = mysql::Conn::new(mysql::Opts::from_url(&server.url("mysql")).unwrap()).unwrap();
        connection.query_drop(format!("CREATE DATABASE {name}")).unwrap();
        Self {
            url: server.url(&name),
            dir: TempDir::new().unwrap(),
        }
    }
}

impl UnderTest for MySql {
    fn open(&self) -> Box<dyn Engine> {
        let options = MySqlOptions {
            url: self.url.clone(),
            dir: self.dir.path().to_owned(),
            on_loss: OnLoss::Refuse,
            cache: CacheBudget::new(1 << 20),
        };
        Box::new(MySqlEngine::open(&options).unwrap())
    }

    fn many_tables(&self) -> usize {
        32
    }

    fn operations_max(&self) -> usize {
        60
    }
}

/// Writes one value.
pub fn put(engine: &dyn Engine, table: &dyn Table, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(table, key.to_vec().into(), value.to_vec().into());
    engine.write(batch).unwrap();
}

/// Deletes one key.
pub fn delete(engine: &dyn Engine, table: &dyn Table, key: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.delete(table, key.to_vec().into());
    engine.write(batch).unwrap();
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// All entries of a scan.
pub fn scanned(table: &dyn Table, from: &[u8], to: Option<&[u8]>) -> Vec<Entry> {
    let entries = table.scan(from, to).unwrap();
    entries
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}
