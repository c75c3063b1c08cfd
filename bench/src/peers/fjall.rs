//! fjall, an LSM tree in Rust: bulk ingestion of sorted records, no compression (like all others), index and filter
//! blocks pinned in memory, point reads configured to expect hits, a cache as large as the measurement allows.

use std::path::Path;

use anyhow::Result;
use fjall::config::{CompressionPolicy, PinningPolicy};
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{OpenSettings, ReadOnlyEngine, Reader};
use crate::dataset::sorted::SortedRecords;

const KEYSPACE: &str = "records";

/// An open database with one keyspace.
pub struct Fjall {
    records: Keyspace,
    _database: Database,
}

/// A stateless reader.
pub struct FjallReader<'a>(&'a Keyspace);

fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .expect_point_read_hits(true)
}

impl ReadOnlyEngine for Fjall {
    type Reader<'a> = FjallReader<'a>;

    fn load(parquet: &Path, dir: &Path) -> Result<()> {
        let sorted = SortedRecords::read(parquet)?;
        let database = Database::builder(dir).open()?;
        let records = database.keyspace(KEYSPACE, options)?;
        let mut ingestion = records.start_ingestion()?;
        sorted.for_each(|key, value| Ok(ingestion.write(key, value)?))?;
        ingestion.finish()?;
        database.persist(PersistMode::SyncAll)?;
        Ok(())
    }

    fn open(dir: &Path, settings: OpenSettings) -> Result<Self> {
        let database = Database::builder(dir).cache_size(settings.cache_bytes).open()?;
        let records = database.keyspace(KEYSPACE, options)?;
        Ok(Self {
            records,
            _database: database,
        })
    }

    fn reader(&self) -> Result<FjallReader<'_>> {
        Ok(FjallReader(&self.records))
    }

    fn index_bytes(&self) -> Result<u64> {
        let tree = &self.records.tree;
        Ok(tree.pinned_block_index_size() as u64 + tree.filter_size())
    }
}

impl Reader for FjallReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.0.get(key)?.map(|value| read(&value)))
    }
}
