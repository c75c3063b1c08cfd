//! The effects of records on an overlay, before they are written.

use bytes::Bytes;
use fondaco_engine::WriteBatch;
use fondaco_model::{PartitionCount, PartitionSet};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

use super::located::{Before, LocatedKey};
use super::merge::{NewUpdate, Pending};
use super::record::{NewWhole, Place, Record, RecordHead, rank};
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

/// How a whole value compares with what the overlay has for its key.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    /// The overlay has no record of the key.
    First,
    /// The value replaces the record.
    Later,
    /// The record counts.
    Superseded,
    /// The value comes before updates that are not kept any more.
    Late,
    /// The value and the updates that are kept have to be merged.
    Merged(Record),
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

    /// Adds a record of a topic partition, whose key was located.
    pub(super) fn add(
        &mut self,
        partition: u32,
        record: &Logged,
        key: LocatedKey<'_>,
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
        let slot = key.location.slot;
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
        if !held.contains(key.location.partition) {
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
        let whole = |value| NewWhole {
            time_ms,
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
                if let Some(pending) = self.pending.get_mut(key.table_key) {
                    pending.updates.push(new);
                    return Ok(());
                }
                let known = self.known(key)?;
                self.merge_later(key, known)?.updates.push(new);
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
                Ok(self.put(key, whole(Some(value)))?)
            }
            (Change::Delete | Change::Update(_), _) => Ok(self.put(key, whole(None))?),
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
    fn known(&self, key: LocatedKey<'_>) -> Result<Option<Record>, StreamError> {
        let (overlay, location) = (self.overlay, key.location);
        let known = match (self.batch.change_of(&*overlay.table, key.table_key), location.before) {
            (Some(known), _) => known,
            (None, Before::Absent) => None,
            (None, Before::Unknown) if !overlay.filter.load().may_have(location.hash) => None,
            (None, Before::Unknown | Before::Record(_)) => overlay.table.get(key.table_key)?,
        };
        let decode = |record| Record::decode(record).ok_or_else(|| overlay.damaged(key.table_key));
        known.map(decode).transpose()
    }

    /// Writes the record of a key.
    pub(super) fn write(&mut self, table_key: &[u8], record: &Record) {
        self.batch.put_pair(&*self.overlay.table, record.pair(table_key));
    }

    /// Collects the events of a key, so that they are merged once for all records: its value may be long, even if the
    /// events are not.
    fn merge_later(&mut self, key: LocatedKey<'_>, known: Option<Record>) -> Result<&mut Pending, StreamError> {
        let below = match &known {
            Some(_) => None,
            None => self.overlay.below(key.table_key)?,
        };
        let below_value = below.as_ref().map(|below| &below.value);
        let value = known.as_ref().map_or(below_value, |known| known.value.as_ref());
        // As the value, and as the whole value beside the updates.
        self.bytes += 2 * value.map_or(0, Bytes::len);
        let pending = self.pending.entry(Bytes::copy_from_slice(key.table_key));
        Ok(pending.or_insert_with(|| Pending::new(key.location.hash, known, below)))
    }

    fn put(&mut self, key: LocatedKey<'_>, new: NewWhole<'_>) -> Result<(), StreamError> {
        if let Some(pending) = self.pending.get_mut(key.table_key) {
            pending.wholes.push(new.into());
            return Ok(());
        }
        match self.order(key, &new)? {
            Order::First => self.new_keys.push(key.location.hash),
            Order::Later => {}
            Order::Superseded => {
                self.counted.superseded += 1;
                return Ok(());
            }
            Order::Late => {
                self.counted.late += 1;
                return Ok(());
            }
            Order::Merged(known) => {
                self.merge_later(key, Some(known))?.wholes.push(new.into());
                return Ok(());
            }
        }
        self.counted.applied += 1;
        let (pair, spot) = (new.pair(key.table_key), key.location.spot);
        self.batch.put_pair_at(&*self.overlay.table, pair, spot);
        Ok(())
    }

    /// Compares a whole value with the overlay's record of its key, with the changes so far.
    fn order(&self, key: LocatedKey<'_>, new: &NewWhole<'_>) -> Result<Order, StreamError> {
        // A change of this batch is newer than the record that was looked up.
        if !self.batch.changes_key(&*self.overlay.table, key.table_key) {
            match key.location.before {
                Before::Absent => return Ok(Order::First),
                Before::Record(head) => {
                    if let Some(order) = order_by_head(head, new) {
                        return Ok(order);
                    }
                }
                Before::Unknown => {}
            }
        }
        Ok(self.known(key)?.map_or(Order::First, |known| order_of(known, new)))
    }
}

/// Compares a whole value with the record of its key.
fn order_of(known: Record, new: &NewWhole<'_>) -> Order {
    if known.merged.is_some() {
        return Order::Merged(known);
    }
    if known.is_folded && new.time_ms <= known.time_ms {
        return Order::Late;
    }
    match rank(known.time_ms, known.center, known.value.as_ref()) >= new.rank() {
        true => Order::Superseded,
        false => Order::Later,
    }
}

/// The same with the beginning of the record; `None` if the rest of it is needed.
fn order_by_head(head: RecordHead, new: &NewWhole<'_>) -> Option<Order> {
    if head.is_merged() {
        return None;
    }
    if head.is_folded() && new.time_ms <= head.time_ms {
        return Some(Order::Late);
    }
    // The order of ranks.
    let known = (head.time_ms, head.center(), head.is_deletion());
    match (new.time_ms, new.center, new.value.is_none()).cmp(&known) {
        Ordering::Greater => Some(Order::Later),
        Ordering::Less => Some(Order::Superseded),
        // Deletions are equal. Of two values the greater one counts.
        Ordering::Equal => head.is_deletion().then_some(Order::Superseded),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::overlay::record::Merged;

    #[test]
    fn the_beginning_of_a_record_decides_as_all_of_it_does() {
        let values = [None, Some(Bytes::from_static(b"a")), Some(Bytes::from_static(b"b"))];
        let ranks = || (1..4).flat_map(|time_ms| (0..3).map(move |center| (time_ms, center)));
        let mut undecided = 0;
        for (time_ms, center) in ranks() {
            for (value, is_folded) in values.iter().flat_map(|value| [(value, false), (value, true)]) {
                let known = Record {
                    time_ms,
                    merged: None,
                    is_folded,
                    center,
                    value: value.clone(),
                };
                let pair = known.pair(b"key");
                assert_eq!(Record::decode(pair.shared_value()), Some(known.clone()));
                let head = RecordHead::decode(pair.value()).unwrap();
                for (time_ms, center) in ranks() {
                    for value in &values {
                        let new = NewWhole {
                            time_ms,
                            center,
                            value: value.as_ref().map(Cow::Borrowed),
                        };
                        let Some(order) = order_by_head(head, &new) else {
                            assert_eq!((time_ms, center), (known.time_ms, known.center));
                            assert!(known.value.is_some() && value.is_some());
                            undecided += 1;
                            continue;
                        };
                        assert_eq!(order, order_of(known.clone(), &new), "{known:?} {new:?}");
                    }
                }
            }
        }
        // Of each rank two values, with two others, each not folded.
        assert_eq!(undecided, 9 * 4);
        let merged = Record {
            time_ms: 1,
            merged: Some(Merged::default()),
            is_folded: false,
            center: 0,
            value: None,
        };
        let new = NewWhole {
            time_ms: 2,
            center: 0,
            value: None,
        };
        let head = RecordHead::decode(merged.pair(b"key").value()).unwrap();
        assert_eq!(order_by_head(head, &new), None);
        assert_eq!(order_of(merged.clone(), &new), Order::Merged(merged));
    }
}
