//! LMDB, through heed: records appended in key order; one read transaction per reader, no thread-local slots, no
//! readahead.

use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};

use super::{OpenSettings, ReadOnlyEngine, Reader};
use crate::dataset::sorted::SortedRecords;

const MAP_BYTES: usize = 1 << 40;
const READERS_MAX: u32 = 256;
/// Larger transactions keep more dirty pages in memory, smaller ones commit more often.
const RECORDS_PER_TRANSACTION: usize = 200_000;

/// An open environment with one database.
pub struct Lmdb {
    env: Env<WithoutTls>,
    records: Database<Bytes, Bytes>,
}

/// One read transaction.
pub struct LmdbReader<'a> {
    transaction: RoTxn<'a, WithoutTls>,
    records: Database<Bytes, Bytes>,
}

fn open_env(dir: &Path, flags: EnvFlags) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX);
    // SAFETY: the directory is private to this benchmark and opened once per process. The flags reduce durability, but
    // a sync at the end of the load makes up for it.
    Ok(unsafe { options.flags(flags).open(dir)? })
}

impl ReadOnlyEngine for Lmdb {
    type Reader<'a> = LmdbReader<'a>;

    fn load(parquet: &Path, dir: &Path) -> Result<()> {
        let sorted = SortedRecords::read(parquet)?;
        std::fs::create_dir_all(dir)?;
        let env = open_env(dir, EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC)?;
        let mut transaction = env.write_txn()?;
        let records: Database<Bytes, Bytes> = env.create_database(&mut transaction, None)?;
        let mut count = 0;
        let mut open = Some(transaction);
        sorted.for_each(|key, value| {
            let mut transaction = match open.take() {
                Some(transaction) => transaction,
                None => env.write_txn()?,
            };
            records.put_with_flags(&mut transaction, PutFlags::APPEND, key, value)?;
            count += 1;
            if count % RECORDS_PER_TRANSACTION == 0 {
                transaction.commit()?;
            } else {
                open = Some(transaction);
            }
            Ok(())
        })?;
        if let Some(transaction) = open {
            transaction.commit()?;
        }
        env.force_sync()?;
        Ok(())
    }

    fn open(dir: &Path, _: OpenSettings) -> Result<Self> {
        let env = open_env(dir, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD)?;
        let transaction = env.read_txn()?;
        let records = env
            .open_database(&transaction, None)?
            .ok_or_else(|| anyhow::anyhow!("there is no database in {dir:?}"))?;
        transaction.commit()?;
        Ok(Self { env, records })
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader {
            transaction: self.env.read_txn()?,
            records: self.records,
        })
    }

    fn index_bytes(&self) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        let stat = self.records.stat(&transaction)?;
        Ok(stat.branch_pages as u64 * u64::from(stat.page_size))
    }
}

impl Reader for LmdbReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.records.get(&self.transaction, key)?.map(read))
    }
}
