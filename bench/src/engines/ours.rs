//! Both of our engines, with default settings except for the memory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use fondaco_engine::{
    CacheBudget, DiskEngine, DiskOptions, Engine, Extent, Hot, LogEngine, LogOptions, Pair, Table, WriteBatch,
};

use super::WritableEngine;

pub struct Ours {
    engine: Box<dyn Engine>,
    table: Arc<dyn Table>,
}

impl Ours {
    /// The disk engine, based on LSM trees.
    pub fn open_trees(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let options = DiskOptions {
            cache: CacheBudget::new(cache_bytes / 2),
            block_cache_bytes: cache_bytes / 2,
            ..DiskOptions::default()
        };
        Self::of(Box::new(DiskEngine::open(dir, options)?))
    }

    /// The log engine.
    pub fn open_log(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let options = LogOptions {
            cache: CacheBudget::new(cache_bytes),
            ..LogOptions::default()
        };
        Self::of(Box::new(LogEngine::open(dir, options)?))
    }

    fn of(engine: Box<dyn Engine>) -> Result<Self> {
        let table = engine.open_table("records")?;
        Ok(Self { engine, table })
    }
}

impl WritableEngine for Ours {
    fn write(&self, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut changes = WriteBatch::new();
        for (key, value) in batch {
            changes.put_pair(&*self.table, Pair::copied(key, value));
        }
        Ok(self.engine.write(changes)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.table.get(key)?.map(|value| value.to_vec()))
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found = Vec::with_capacity(keys.len());
        let mut look = |hot: Hot<&[u8]>, _| {
            found.push(match hot {
                Hot::Found(value) => Some(Some(value.to_vec())),
                Hot::Absent => Some(None),
                Hot::Cold => None,
            });
            true
        };
        self.table.look_at_hot(&wanted, Extent::Whole, &mut look)?;
        let values = found.into_iter().zip(keys);
        values
            .map(|(value, key)| value.map_or_else(|| self.get(key), Ok))
            .collect()
    }

    fn scan(&self) -> Result<(u64, u64)> {
        let (mut keys, mut bytes) = (0, 0);
        for entry in self.table.scan(b"", None)? {
            let (key, value) = entry?;
            keys += 1;
            bytes += (key.len() + value.len()) as u64;
        }
        Ok((keys, bytes))
    }
}
