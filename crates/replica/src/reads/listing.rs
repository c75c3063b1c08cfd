//! Local queries of the server without a request: the keys of a partition in the order of their hashes, for `SCAN`; and
//! for backups, page by page, the records of a partition in the same order, and the hints kept for other nodes.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{EngineError, Table};
use fondaco_model::versioned::Record;
use fondaco_model::{PartitionCount, PartitionId};
use fondaco_protocol::replica::{KeyRecord, ReplicaCommand};

use crate::reads::scanning::{Found, HINT_WIDTH, RECORD_WIDTH, ReadableScan};
use crate::replicas::Replicas;
use crate::table_key::{HintKey, hints_of, hints_of_store, parse_hint_key, parse_record_key, range, within};
use crate::writes::commit::is_damaged;

/// Keys whose positions share this many first bits are listed together: a scan continues after them.
const PLACE_BITS: u32 = 34;

/// How many bytes of keys one result contains, except when the keys of one position alone are longer.
const LISTED_BYTES_MAX: usize = 4 << 20;

/// How many records are examined for one result, including deleted ones: beyond it, the result has fewer keys.
const EXAMINED_MAX: usize = 100_000;

/// Keys, and the hash to continue from; `None` at the end of the partition.
pub type KeysListed = (Vec<Bytes>, Option<u64>);

/// A page of a table.
#[derive(Debug, Default)]
pub struct RecordsPage {
    /// Keys with their records as stored; they may be damaged.
    pub records: Vec<KeyRecord>,
    /// The key after which there may be more; `None` at the end.
    pub next: Option<Bytes>,
    bytes: usize,
}

impl Replicas {
    /// Keys of a partition of this many that have a value, from a hash on: about this many, or fewer at the end. It reads the disk.
    /// `None` if this node does not own the partition or has lost data of it; a partition that it is about to own may
    /// be incomplete, too.
    ///
    /// # Errors
    /// The error of the engine; `OLDTABLE` if this node has yet to hear of a split, or has heard of it earlier.
    pub fn keys_from(
        &self,
        store: u16,
        (partitions, partition): (PartitionCount, PartitionId),
        hash: u64,
        count: usize,
    ) -> Result<Option<KeysListed>, String> {
        let holding = self.holding();
        let held = holding.served(store);
        let Some(held) = held.filter(|held| holding.may_tell(held, partition)) else {
            return Ok(None);
        };
        let count_of_all = holding.count();
        holding.admit_count(partitions).map_err(|error| error.to_string())?;
        let first = range(count_of_all, partition, 64, hash).0;
        let end = range(count_of_all, partition, 0, 0).1;
        let now_unix_ms = self.shared.host.unix_ms();
        let mut keys = Vec::new();
        let (mut examined, mut bytes, mut last) = (0, 0, None);
        for entry in held.table.scan(&first, end.as_deref()).map_err(failed)? {
            let (table_key, record) = or_damaged(entry)?;
            let Some((position, key)) = parse_record_key(&table_key) else {
                continue;
            };
            let place = within(count_of_all, position) >> (64 - PLACE_BITS);
            let is_enough = keys.len() >= count || examined >= EXAMINED_MAX || bytes >= LISTED_BYTES_MAX;
            if is_enough && last.is_some_and(|last| last != place) {
                return Ok(Some((keys, Some(place << (64 - PLACE_BITS)))));
            }
            last = Some(place);
            examined += 1;
            // A damaged record is listed: reading it reports the damage.
            if !Record::decode(record).is_ok_and(|record| record.is_deleted(now_unix_ms)) {
                bytes += key.len();
                keys.push(key);
            }
        }
        Ok(Some((keys, None)))
    }

    /// The records of a partition with their keys, as stored, including those of deleted keys, in the order of hashes
    /// and keys: from the beginning, or after the position that an earlier page returned. It reads the disk. `None` if
    /// this node does not own the partition, has lost data of it, knows of another number of `partitions`, or if the owners
    /// have changed since the routing table of `epoch`.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn records_page(
        &self,
        store: u16,
        (partitions, partition): (PartitionCount, PartitionId),
        epoch: Option<NonZeroU64>,
        after: Option<&[u8]>,
        bytes: usize,
    ) -> Result<Option<RecordsPage>, String> {
        let holding = self.holding();
        let held = holding.served(store);
        let is_admitted =
            holding.admit_count(partitions).is_ok() && holding.admit(partition, ReplicaCommand::Get, epoch).is_ok();
        let Some(held) = held.filter(|held| is_admitted && holding.may_tell(held, partition)) else {
            return Ok(None);
        };
        let (first, end) = range(holding.count(), partition, 0, 0);
        let mut page = RecordsPage::default();
        page.fill(
            &held.table,
            &behind(after).max(first),
            end.as_deref(),
            bytes,
            Kind::Records,
        )?;
        Ok(Some(page))
    }

    /// The hints of a store that this node keeps for other nodes, in arbitrary order: from the beginning, or after the
    /// position that an earlier page returned. It reads the disk.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn hints_page(&self, store: u16, after: Option<&[u8]>, bytes: usize) -> Result<RecordsPage, String> {
        let hints = &self.shared.hints;
        let mut from = behind(after);
        let mut page = RecordsPage::default();
        let holding = self.holding();
        let Some(store) = holding.served(store).map(|store| store.identity()) else {
            return Ok(page);
        };
        while page.next.is_none() {
            // The next node that has hints, of any store.
            let mut scan = ReadableScan::begin(hints, &from, None, HINT_WIDTH).map_err(failed)?;
            let first = scan.find(|found| !matches!(found, Ok(Found::Gap(_))));
            let Some(Found::Record(table_key, _) | Found::Damaged(table_key, _)) = first.transpose().map_err(failed)?
            else {
                break;
            };
            let Some(HintKey { node, .. }) = parse_hint_key(&table_key) else {
                from = behind(Some(&table_key));
                continue;
            };
            let (first, end) = hints_of_store(node, store);
            page.fill(hints, &from.max(first), end.as_deref(), bytes, Kind::Hints)?;
            from = match hints_of(node).1 {
                Some(next) => next,
                None => break,
            };
        }
        Ok(page)
    }
}

/// The contents of a table.
#[derive(Clone, Copy)]
enum Kind {
    Records,
    Hints,
}

impl RecordsPage {
    /// Adds the records of a range of a table, up to this many bytes, but at least one record.
    fn fill(
        &mut self,
        table: &Arc<dyn Table>,
        from: &[u8],
        to: Option<&[u8]>,
        bytes: usize,
        kind: Kind,
    ) -> Result<(), String> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let width = match kind {
            Kind::Records => RECORD_WIDTH,
            Kind::Hints => HINT_WIDTH,
        };
        for found in ReadableScan::begin(table, from, to, width).map_err(failed)? {
            let (table_key, record) = match (found.map_err(failed)?, kind) {
                (Found::Record(_, record), Kind::Hints) if is_damaged(&record) => continue,
                (Found::Record(table_key, record), _) => (table_key, record),
                (Found::Damaged(table_key, _), Kind::Records) => (table_key, Bytes::new()),
                (Found::Gap(gap), Kind::Records) => return Err(failed(gap.error)),
                // It is lost; other nodes have its record.
                (Found::Damaged(..) | Found::Gap(_), Kind::Hints) => continue,
            };
            let key = match kind {
                Kind::Records => parse_record_key(&table_key).map(|(_, key)| key),
                Kind::Hints => parse_hint_key(&table_key).map(|hint| hint.key),
            };
            let Some(key) = key else { continue };
            self.bytes += key.len() + record.len();
            self.records.push(KeyRecord { key, record });
            if self.bytes >= bytes {
                self.next = Some(table_key);
                break;
            }
        }
        Ok(())
    }
}

/// A scanned record; an empty one instead of a damaged one.
fn or_damaged(entry: Result<(Bytes, Bytes), EngineError>) -> Result<(Bytes, Bytes), String> {
    entry.or_else(|error| match error.damaged_key() {
        Some(key) => Ok((Bytes::copy_from_slice(key), Bytes::new())),
        None => Err(failed(error)),
    })
}

/// The smallest possible key after a key of a table; the beginning of the table without a key.
fn behind(table_key: Option<&[u8]>) -> Bytes {
    table_key.map_or_else(Bytes::new, |key| [key, &[0]].concat().into())
}

fn failed(error: EngineError) -> String {
    format!("IOERR {error}")
}
