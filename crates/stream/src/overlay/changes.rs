//! The effects of records on an overlay, before they are written.

use std::sync::atomic::Ordering::Relaxed;

use bytes::{BufMut, Bytes};
use fondaco_engine::WriteBatch;
use fondaco_model::PartitionSet;
use xxhash_rust::xxh3::xxh3_64;

use super::{Applied, DELETED, HEADER_BYTES, Overlay, POISON_MAX};
use crate::error::StreamError;
use crate::event::Event;
use crate::progress::poison_key;
use crate::source::Logged;

/// The effects of records, before they are written.
pub(super) struct Changes<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) batch: WriteBatch,
    /// The hashes of keys without a record before.
    pub(super) new_keys: Vec<u64>,
    pub(super) counted: Applied,
}

impl Changes<'_> {
    pub(super) fn add(&mut self, partition: u32, record: &Logged, held: &PartitionSet) -> Result<(), StreamError> {
        let event = record.event.as_ref().map_err(ToString::to_string);
        let checked = event.and_then(|event| match event.check(record.logged_ms) {
            Ok(()) => Ok(event),
            Err(poison) => Err(poison.to_string()),
        });
        let event = match checked {
            Ok(event) => event,
            Err(reason) => {
                let known = self.overlay.counts.poison.load(Relaxed) + self.counted.poison;
                if known < POISON_MAX {
                    let key = poison_key(partition, record.offset);
                    self.batch.put(&*self.overlay.notes, key, reason.into());
                }
                self.counted.poison += 1;
                return Ok(());
            }
        };
        let count = self.overlay.options.partitions;
        if !held.contains(count.partition_of(self.overlay.slots.slot(&event.key))) {
            self.counted.elsewhere += 1;
            return Ok(());
        }
        let options = &self.overlay.options;
        let time_ms = event.time_ms.unwrap_or(record.logged_ms);
        if options.as_of_ms.is_some_and(|as_of_ms| time_ms <= as_of_ms) {
            self.counted.cut += 1;
            return Ok(());
        }
        if time_ms.saturating_add(options.grace_ms) < record.logged_ms {
            self.counted.late += 1;
            return Ok(());
        }
        self.put(event, time_ms)
    }

    fn put(&mut self, event: &Event, time_ms: u64) -> Result<(), StreamError> {
        let overlay = self.overlay;
        let hash = xxh3_64(&event.key);
        let key = overlay.table_key(&event.key, hash);
        let known = match self.batch.change_of(&*overlay.table, &key) {
            Some(known) => known,
            None if overlay.filter.load().may_have(hash) => overlay.table.get(&key)?,
            None => None,
        };
        let mut record = Vec::with_capacity(HEADER_BYTES + event.value.as_ref().map_or(0, Bytes::len));
        record.put_u8(if event.value.is_some() { 0 } else { DELETED });
        record.put_u64(time_ms);
        record.put_slice(event.value.as_deref().unwrap_or_default());
        match &known {
            None => self.new_keys.push(hash),
            Some(known)
                if rank(known).ok_or_else(|| overlay.damaged(&event.key))? >= rank(&record).unwrap_or_default() =>
            {
                self.counted.superseded += 1;
                return Ok(());
            }
            Some(_) => {}
        }
        self.counted.applied += 1;
        self.batch.put(&*overlay.table, key, record.into());
        Ok(())
    }
}

/// What decides between two records of a key: the greater one counts.
fn rank(record: &[u8]) -> Option<(u64, u8, &[u8])> {
    let (&flags, rest) = record.split_first()?;
    let (time, value) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*time), flags, value))
}
