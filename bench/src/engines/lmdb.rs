//! LMDB with explicit syncs only: written data is in the page cache, and survives the process.

use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};

use super::WritableEngine;

const MAP_BYTES: usize = 1 << 40;

pub struct Lmdb {
    env: Env<WithoutTls>,
    records: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(dir: &Path) -> Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES);
        let flags = EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
        // SAFETY: the directory is private to this benchmark and opened once per process. Without the flags, each batch
        // would wait for the disk.
        let env = unsafe { options.flags(flags).open(dir)? };
        let mut transaction = env.write_txn()?;
        let records = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, records })
    }
}

impl WritableEngine for Lmdb {
    fn write(&self, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in batch {
            self.records.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let transaction = self.env.read_txn()?;
        Ok(self.records.get(&transaction, key)?.map(<[u8]>::to_vec))
    }

    fn scan(&self) -> Result<(u64, u64)> {
        let transaction = self.env.read_txn()?;
        let (mut keys, mut bytes) = (0, 0);
        for entry in self.records.iter(&transaction)? {
            let (key, value) = entry?;
            keys += 1;
            bytes += (key.len() + value.len()) as u64;
        }
        Ok((keys, bytes))
    }
}
