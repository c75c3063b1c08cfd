//! The effects of records on an overlay, before they are written.

use bytes::Bytes;
use fondaco_engine::WriteBatch;
use fondaco_model::{PartitionCount, PartitionSet};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::merge::{NewUpdate, Pending};
use super::record::{Place, Record, Whole, rank};
use super::{Applied, Overlay, POISON_MAX};
use crate::error::StreamError;
use crate::event::Change;
use crate::progress::poison_key;
use crate::rules::{Missing, NotAdmitted};
use crate::source::Logged;
use crate::topics::{Terms, topic_partition};

/// The most bytes of a reason that are kept: it may quote the record.
const REASON_BYTES_MAX: usize = 1024;

/// The effects of records, before they are written.
pub(super) struct Changes<'a> {
    pub(super) overlay: &'a Overlay,
    /// See [`Progress::counts`](crate::progress::Progress::counts).
    counts: BTreeMap<u32, PartitionCount>,
    pub(super) batch: WriteBatch,
    /// The hashes of keys without a record before.
    pub(super) new_keys: Vec<u64>,
    pub(super) counted: Applied,
    /// About how many bytes will be written.
    pub(super) bytes: usize,
    /// The number of updates that will be deleted since a value replaces them, at most as many as one batch may delete.
    pub(super) replaced: usize,
    /// Events of keys with updates, by the key in the table: they are merged once for all records.
    pub(super) pending: BTreeMap<Bytes, Pending>,
}

/// Why a record is not added; nothing has changed then.
pub(super) enum NotAdded {
    /// It may be added or refused once this is known.
    Unknown(Missing),
    Failed(StreamError),
}

impl From<StreamError> for NotAdded {
    fn from(error: StreamError) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Changes<'a> {
    pub(super) fn new(overlay: &'a Overlay, counts: BTreeMap<u32, PartitionCount>) -> Self {
        Self {
            overlay,
            counts,
            batch: WriteBatch::new(),
            new_keys: Vec::new(),
            counted: Applied::default(),
            bytes: 0,
            replaced: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Adds a record of a topic partition.
    pub(super) fn add(
        &mut self,
        partition: u32,
        record: &Logged,
        terms: Terms,
        held: &PartitionSet,
    ) -> Result<(), NotAdded> {
        let event = record.event.as_ref().map_err(ToString::to_string);
        let checked = event.and_then(|event| match event.checked(record.logged_ms, terms.ahead_ms_max) {
            Ok(update) => Ok((event, update)),
            Err(poison) => Err(poison.to_string()),
        });
        let (event, update) = match checked {
            Ok(event) => event,
            Err(reason) => {
                self.note_poison(partition, record.offset, reason);
                return Ok(());
            }
        };
        let slot = self.overlay.slots.slot(&event.key);
        let (topic, own_partition) = topic_partition(partition);
        if let Some(topic) = self.counts.get(&topic)
            && topic.partition_of(slot).get() != own_partition
        {
            let (right, topic) = (topic.partition_of(slot), topic.get());
            let reason = format!(
                "its key belongs in partition {right} of the topic's {topic}, and it is in partition {own_partition}: correct \
                 the partitioner of its producer, or create the store with --partitioner any"
            );
            self.note_poison(partition, record.offset, reason);
            return Ok(());
        }
        if !held.contains(self.overlay.options.partitions.partition_of(slot)) {
            self.counted.elsewhere += 1;
            return Ok(());
        }
        let options = &self.overlay.options;
        let time_ms = event.time_ms.unwrap_or(record.logged_ms);
        if options.as_of_ms.is_some_and(|as_of_ms| time_ms <= as_of_ms) || record.logged_ms < terms.since_ms {
            self.counted.cut += 1;
            return Ok(());
        }
        if time_ms.saturating_add(options.grace_ms) < record.logged_ms {
            self.counted.late += 1;
            return Ok(());
        }
        self.bytes += event.key.len() + event.change.bytes().len();
        let hash = xxh3_64(&event.key);
        let key = self.overlay.table_key(&event.key, hash);
        let whole = |value| Whole {
            time_ms,
            is_folded: false,
            center: terms.center,
            value,
        };
        match (&event.change, update) {
            (Change::Update(text), Some(update)) => {
                let admitted = self.overlay.rules.admit_update(&update, terms.read_at);
                admitted.map_err(NotAdded::Unknown)?;
                let source = Place::source(partition, record.offset);
                let place = Place {
                    time_ms,
                    text_hash: Place::text_hash(terms.center, text),
                    source: event.id.as_deref().map_or(source, xxh3_128),
                };
                let new = NewUpdate {
                    place,
                    has_id: event.id.is_some(),
                    text: text.clone(),
                    update,
                };
                if let Some(pending) = self.pending.get_mut(&key) {
                    pending.updates.push(new);
                    return Ok(());
                }
                let known = self.known(&key, hash)?;
                self.merge_later(key, hash, known)?.updates.push(new);
                Ok(())
            }
            (Change::Put(value), _) => {
                let value = match self.overlay.rules.admit(value, terms.read_at) {
                    Ok(value) => value,
                    Err(NotAdmitted::Poison(reason)) => {
                        self.note_poison(partition, record.offset, reason.to_string());
                        return Ok(());
                    }
                    Err(NotAdmitted::Unknown(missing)) => return Err(NotAdded::Unknown(missing)),
                };
                Ok(self.put(key, hash, whole(Some(value)))?)
            }
            (Change::Delete | Change::Update(_), _) => Ok(self.put(key, hash, whole(None))?),
        }
    }

    /// Counts a record that is no event, and keeps the reason unless there are too many.
    fn note_poison(&mut self, partition: u32, offset: u64, mut reason: String) {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        let known = self.overlay.counts.lock().poison + self.counted.poison;
        if known < POISON_MAX {
            let key = poison_key(partition, offset);
            self.batch.put(&*self.overlay.notes, key, reason.into());
        }
        self.counted.poison += 1;
    }

    /// The overlay's record of a key, with the changes so far.
    pub(super) fn known(&self, key: &Bytes, hash: u64) -> Result<Option<Record>, StreamError> {
        let overlay = self.overlay;
        let known = match self.batch.change_of(&*overlay.table, key) {
            Some(known) => known,
            None if overlay.filter.load().may_have(hash) => overlay.table.get(key)?,
            None => None,
        };
        let decode = |record| Record::decode(record).ok_or_else(|| overlay.damaged(key));
        known.map(decode).transpose()
    }

    /// Writes the record of a key.
    pub(super) fn write(&mut self, key: Bytes, record: &Record) {
        self.batch.put(&*self.overlay.table, key, record.encode());
    }

    /// Collects the events of a key, so that they are merged once for all records: its value may be long, even if the
    /// events are not.
    fn merge_later(&mut self, key: Bytes, hash: u64, known: Option<Record>) -> Result<&mut Pending, StreamError> {
        let below = match &known {
            Some(_) => None,
            None => self.overlay.below(&key)?,
        };
        let below_value = below.as_ref().map(|below| &below.value);
        let value = known.as_ref().map_or(below_value, |known| known.value.as_ref());
        // As the value, and as the whole value beside the updates.
        self.bytes += 2 * value.map_or(0, Bytes::len);
        let pending = self.pending.entry(key);
        Ok(pending.or_insert_with(|| Pending::new(hash, known, below)))
    }

    fn put(&mut self, key: Bytes, hash: u64, new: Whole) -> Result<(), StreamError> {
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.wholes.push(new);
            return Ok(());
        }
        match self.known(&key, hash)? {
            None => self.new_keys.push(hash),
            Some(known) if known.merged.is_some() => {
                self.merge_later(key, hash, Some(known))?.wholes.push(new);
                return Ok(());
            }
            Some(known) if known.is_folded && new.time_ms <= known.time_ms => {
                self.counted.late += 1;
                return Ok(());
            }
            Some(known) if rank(known.time_ms, known.center, known.value.as_ref()) >= new.rank() => {
                self.counted.superseded += 1;
                return Ok(());
            }
            Some(_) => {}
        }
        self.counted.applied += 1;
        let record = Record {
            time_ms: new.time_ms,
            merged: None,
            is_folded: false,
            center: new.center,
            value: new.value,
        };
        self.write(key, &record);
        Ok(())
    }
}
