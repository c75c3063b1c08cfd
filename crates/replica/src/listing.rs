//! What the server asks of this node's replica without a request: a record that memory has, the keys of a
//! partition in the order of their hashes, for `SCAN`, and its records in the same order, for backups.

use bytes::Bytes;
use fondaco_client::quorum::KeyRecord;
use fondaco_engine::Hot;
use fondaco_model::PartitionId;
use fondaco_model::versioned::Record;

use crate::commit::unix_ms;
use crate::replicas::Replicas;
use crate::store::record_key_of;
use crate::table_key::{parse_record_key, range};

/// Keys whose hashes have the same first bits as this many are listed together: a scan goes on behind them.
const PLACE_BITS: u32 = 38;

/// How many records are looked at for one answer, deleted ones included: beyond it, it has fewer keys.
const EXAMINED_MAX: usize = 100_000;

/// Keys, and the hash to go on from; `None` at the end of the partition.
pub type KeysListed = (Vec<Bytes>, Option<u64>);

impl Replicas {
    /// The record under a key, if memory tells what there is: `None` if it does not, or the partition is not
    /// held.
    pub fn recall(&self, store: u16, partition: PartitionId, key: &[u8]) -> Option<Option<Record>> {
        let holding = self.holding();
        let store = holding.stores.get(&store)?;
        store.partition(partition).ok()?;
        match store.table.get_hot(&record_key_of(partition, key)).ok()? {
            Hot::Found(record) => Record::decode(record).ok().map(Some),
            Hot::Absent => Some(None),
            Hot::Cold => None,
        }
    }

    /// Keys of a partition that have a value, from a hash on: about so many, or fewer at the end. It reads the
    /// disk. `None` if the partition is not held.
    ///
    /// # Errors
    /// What the engine says.
    pub fn keys_from(
        &self,
        store: u16,
        partition: PartitionId,
        hash: u64,
        count: usize,
    ) -> Result<Option<KeysListed>, String> {
        let holding = self.holding();
        let held = holding.stores.get(&store);
        let Some(held) = held.filter(|held| held.partition(partition).is_ok()) else {
            return Ok(None);
        };
        let first = range(partition, 64, hash).0;
        let end = range(partition, 0, 0).1;
        let failed = |error| format!("IOERR {error}");
        let now_unix_ms = unix_ms();
        let mut keys = Vec::new();
        let (mut examined, mut last) = (0, None);
        for entry in held.table.scan(&first, end.as_deref()).map_err(failed)? {
            let (table_key, record) = entry.map_err(failed)?;
            let Some((_, hash, key)) = parse_record_key(&table_key) else {
                continue;
            };
            let place = hash >> (64 - PLACE_BITS);
            let is_enough = keys.len() >= count || examined >= EXAMINED_MAX;
            if is_enough && last.is_some_and(|last| last != place) {
                return Ok(Some((keys, Some(place << (64 - PLACE_BITS)))));
            }
            last = Some(place);
            examined += 1;
            // One that is damaged is listed: who reads it is told.
            if !Record::decode(record).is_ok_and(|record| record.is_deleted(now_unix_ms)) {
                keys.push(key);
            }
        }
        Ok(Some((keys, None)))
    }

    /// Keys of a partition with their records as they are stored, those of deleted keys included, behind the key
    /// `after` in the order of hashes and keys: about so many bytes, and one at least; none at the end. It reads
    /// the disk. `None` if the partition is not held.
    ///
    /// # Errors
    /// What the engine says.
    pub fn records_after(
        &self,
        store: u16,
        partition: PartitionId,
        after: Option<&[u8]>,
        bytes: usize,
    ) -> Result<Option<Vec<KeyRecord>>, String> {
        let holding = self.holding();
        let held = holding.stores.get(&store);
        let Some(held) = held.filter(|held| held.partition(partition).is_ok()) else {
            return Ok(None);
        };
        let (first, end) = range(partition, 0, 0);
        let from = match after {
            // The next that there can be.
            Some(key) => [&record_key_of(partition, key)[..], &[0]].concat().into(),
            None => first,
        };
        let failed = |error| format!("IOERR {error}");
        let (mut records, mut taken) = (Vec::new(), 0);
        for entry in held.table.scan(&from, end.as_deref()).map_err(failed)? {
            let (table_key, record) = entry.map_err(failed)?;
            let Some((_, _, key)) = parse_record_key(&table_key) else {
                continue;
            };
            taken += key.len() + record.len();
            if taken > bytes && !records.is_empty() {
                break;
            }
            records.push(KeyRecord { key, record });
        }
        Ok(Some(records))
    }
}
