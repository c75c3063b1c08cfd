//! fjall without the layers of our engine, with the same settings; all memory is for its block cache.

use std::path::Path;

use anyhow::Result;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use fondaco_engine::DiskOptions;

use super::WritableEngine;

pub struct Trees {
    records: Keyspace,
    database: Database,
}

impl Trees {
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let ours = DiskOptions::default();
        let database = Database::builder(dir)
            .cache_size(cache_bytes)
            .max_journaling_size(ours.log_bytes_max)
            .journal_compression(CompressionType::None)
            .worker_threads(ours.threads)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(ours.table_buffer_bytes);
        Ok(Self {
            records: database.keyspace("records", options)?,
            database,
        })
    }
}

impl WritableEngine for Trees {
    fn write(&self, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut changes = self.database.batch().durability(Some(PersistMode::Buffer));
        for (key, value) in batch {
            changes.insert(&self.records, key.as_slice(), value.as_slice());
        }
        Ok(changes.commit()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.records.get(key)?.map(|value| value.to_vec()))
    }

    fn scan(&self) -> Result<(u64, u64)> {
        let (mut keys, mut bytes) = (0, 0);
        for entry in self.records.iter() {
            let (key, value) = entry.into_inner()?;
            keys += 1;
            bytes += (key.len() + value.len()) as u64;
        }
        Ok((keys, bytes))
    }
}
