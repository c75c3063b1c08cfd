//! Direct writes: of keys that no other node owns. They need no coordinator: the [batcher](crate::WriteBatcher) of an
//! event loop passes those of a turn on together, and each new value is computed by the commit thread.
//!
//! It is checked that no other node owns the key, now or under the plan in progress, when its place is looked up and
//! again when it is written. If that has changed, the write is refused with `NOTHERE` before anything is written: then
//! a coordinator has to make it.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Extent, Hot, Pair, Spot};
use fondaco_model::versioned::{Over, Record, Resolution, Update};
use fondaco_model::{PartitionId, Slot};
use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode};

use crate::metrics::ReplicaCounter;
use crate::partition::{Change, Partition, UNREADABLE};
use crate::reads::scanning::is_damage;
use crate::replicas::Replicas;
use crate::store::{HeldStore, Holding};
use crate::table_key::{JoinedKeys, REPLICA_KEY_BYTES_MAX, record_key_before, with_record_key};
use crate::writes::commit::{Group, check_length, engine_error};

/// Longer records are read one by one: copying them during a joint look-up would delay other writers.
const FOUND_RECORD_BYTES_MAX: usize = 16 << 10;

/// A write of a key that no other node owns.
pub trait DirectWrite: Send + 'static {
    /// Whether the new value depends on the present record. If not, [`decide`](Self::decide) gets only the context of
    /// that record, and the record is replaced.
    fn looks(&self) -> bool;

    /// The update of the key, given its record and the time in milliseconds since 1970; `None` leaves the key
    /// unchanged. Called once, on the commit thread.
    fn decide(&mut self, current: &Record, now_unix_ms: u64) -> Option<Update>;

    /// The update of a key whose record is damaged; `None` if it depends on that record.
    fn decide_damaged(&mut self, now_unix_ms: u64) -> Option<Update>;
}

/// The direct writes of a batch, in the order of their places.
pub(crate) trait DirectWrites: Send {
    fn at(&mut self, at: usize) -> &mut dyn DirectWrite;

    /// Reports the outcome of each write, in order. Completed writes are as durable as the store requires. Called once,
    /// on any thread; it must not block.
    fn end(self: Box<Self>, ends: Vec<DirectEnd>);
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectEnd {
    /// The write is completed.
    Done,
    /// Nothing was written, for this reason.
    Refused(ReplicaError),
    /// The write may have been made or not.
    Unknown(ReplicaError),
}

/// The place of a key that no other node owns.
#[derive(Debug)]
pub struct DirectPlace {
    pub(crate) store: Arc<HeldStore>,
    partition: Arc<Partition>,
    pub(crate) shard: usize,
    position: u64,
    key: Bytes,
}

/// The record of a key before it is written.
pub(crate) enum Before {
    /// Nothing.
    Absent,
    /// A record with this digest, its position, and the part of it that is needed.
    Seen(Record, u64, Spot),
    /// The record.
    Record(Bytes),
}

impl Before {
    fn of(bytes: &[u8], spot: Spot, needs_all: bool) -> Self {
        match Record::decode_seen(bytes) {
            Ok(seen) if !needs_all => Self::Seen(seen, Record::stated_digest(bytes), spot),
            // Damage is detected when the record is used.
            _ => Self::Record(Bytes::copy_from_slice(bytes)),
        }
    }
}

impl DirectPlace {
    fn with_table_key<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        with_record_key(self.position, &self.key, look)
    }
}

impl Replicas {
    /// The place of a key with this slot, if no other node owns it, now or under the plan in progress, and its store needs no more
    /// than one replica.
    pub fn direct_place(&self, store: u16, slot: Slot, key: Bytes) -> Option<DirectPlace> {
        let holding = self.holding();
        let store = holding.served(store)?;
        let position = store.position_in(slot, &key);
        let partition = holding.partition_at(position);
        let is_key = (1..=REPLICA_KEY_BYTES_MAX).contains(&key.len());
        if !is_key || !store.is_for_one() || !holding.is_alone(store, partition) {
            return None;
        }
        // A coordinator reports why the record cannot be read.
        let partition = store
            .partition(partition)
            .ok()
            .filter(|partition| !partition.is_behind())?;
        Some(DirectPlace {
            shard: self.shared.shard_of(partition),
            partition: Arc::clone(partition),
            store: Arc::clone(store),
            position,
            key,
        })
    }
}

/// Writes, and their outcomes so far.
pub(crate) struct DirectAnswer {
    count: usize,
    /// Empty before they are begun; then one per write.
    ends: Vec<DirectEnd>,
    writes: Box<dyn DirectWrites>,
}

impl DirectAnswer {
    pub(crate) fn new(count: usize, writes: Box<dyn DirectWrites>) -> Self {
        Self {
            count,
            ends: Vec::with_capacity(count),
            writes,
        }
    }

    /// The next write succeeded, provided that its group is written, or was refused.
    fn note(&mut self, result: Result<(), ReplicaError>) {
        self.ends.push(match result {
            Ok(()) => DirectEnd::Done,
            Err(error) => DirectEnd::Refused(error),
        });
    }

    /// The group is written, or failed with an error, maybe before it was begun.
    pub(crate) fn give(mut self, error: Option<ReplicaError>) {
        if let Some(error) = error {
            match self.ends.is_empty() {
                true => self.ends = vec![DirectEnd::Refused(error); self.count],
                false => {
                    let done = self.ends.iter_mut().filter(|end| **end == DirectEnd::Done);
                    done.for_each(|end| *end = DirectEnd::Unknown(error.clone()));
                    self.ends.resize(self.count, DirectEnd::Unknown(error));
                }
            }
        }
        debug_assert_eq!(self.ends.len(), self.count);
        self.writes.end(self.ends);
    }
}

impl Group<'_> {
    /// Makes direct writes.
    ///
    /// # Errors
    /// `NOTHERE`, before any is made.
    pub(crate) fn write_directly(
        &mut self,
        store: &HeldStore,
        places: Vec<DirectPlace>,
        writes: &mut DirectAnswer,
    ) -> Result<(), ReplicaError> {
        if !self.shared.holding.load().is_unchanged(store) {
            return Err(has_changed(store));
        }
        self.shared.metrics.add(ReplicaCounter::Puts, places.len() as u64);
        let mut found = find(store, &places, &mut *writes.writes).into_iter();
        for (at, place) in places.into_iter().enumerate() {
            let written = self.write_one_directly(store, place, found.next().flatten(), writes.writes.at(at));
            writes.note(written);
        }
        Ok(())
    }

    fn write_one_directly(
        &mut self,
        store: &HeldStore,
        place: DirectPlace,
        found: Option<Before>,
        write: &mut dyn DirectWrite,
    ) -> Result<(), ReplicaError> {
        let before = place.with_table_key(|key| match self.changed(store.engine_at, &*store.table, key) {
            Some(changed) => Ok(changed.map_or(Before::Absent, Before::Record)),
            None => match found {
                Some(found) => Ok(found),
                None => {
                    let read = store.table.get(key);
                    read.map(|read| read.map_or(Before::Absent, Before::Record))
                }
            },
        });
        let before = match before {
            Ok(Before::Absent) => Ok((Record::default(), None, Spot::default())),
            Ok(Before::Seen(seen, digest, spot)) => Ok((seen, Some(digest), spot)),
            Ok(Before::Record(bytes)) => {
                let record = match write.looks() {
                    true => Record::decode(bytes.clone()),
                    false => Record::decode_seen(&bytes),
                };
                match record {
                    Ok(record) => Ok((record, Some(Record::stated_digest(&bytes)), Spot::default())),
                    Err(error) => {
                        let error = self.damaged(&place.partition, (place.position, &place.key), &bytes, &error);
                        Err((error, Some(Record::digest(&bytes))))
                    }
                }
            }
            Err(error) => {
                if is_damage(&error) {
                    place.partition.found_damaged(place.position, UNREADABLE);
                }
                Err((engine_error(self.shared, &error), None))
            }
        };
        let (local, digest, spot, update) = match before {
            Ok((local, digest, spot)) => match write.decide(&local, self.now_unix_ms) {
                Some(update) => (local, digest, spot, update),
                None => return Ok(()),
            },
            Err((error, digest)) if error.code == ReplicaErrorCode::Corrupt => {
                let update = write.decide_damaged(self.now_unix_ms).ok_or(error)?;
                store.check_quota(&update)?;
                self.replace_damaged(store, &store.place_in(&place.partition, &place.key))?;
                (Record::default(), digest, Spot::default(), update)
            }
            Err((error, _)) => return Err(error),
        };
        store.check_quota(&update)?;
        let dots = self.dots.of(store.lasting(), place.position);
        // The record here is complete.
        let record = Record::write(Some(&local), dots, Over::Context(local.context()), update);
        let record = record.map_err(|error| ReplicaError::new(ReplicaErrorCode::Other, error.to_string()))?;
        // Key and record in one buffer: a look-up of the key finds the record next to it in memory.
        let mut bytes = record_key_before(place.position, &place.key, record.encoded_bytes());
        let key_bytes = bytes.len();
        record.encode(&mut bytes);
        let pair = Pair::new(bytes, key_bytes);
        check_length(pair.value())?;
        if digest.is_none() {
            self.check_key(store, pair.key())?;
        }
        let change = Change {
            position: place.position,
            before: digest,
            after: Some(Record::stated_digest(pair.value())),
        };
        self.follow(&place.partition, place.position, &pair);
        self.changes.push((place.partition, change));
        self.batch_of(store).put_pair_at(&*store.table, pair, spot);
        Ok(())
    }
}

/// The records of the keys of writes, in order; `None` if memory does not have the record, or it is long.
fn find(store: &HeldStore, places: &[DirectPlace], writes: &mut dyn DirectWrites) -> Vec<Option<Before>> {
    let mut joined = JoinedKeys::default();
    for place in places {
        joined.push(place.position, &place.key);
    }
    let keys = joined.keys();
    let mut found = Vec::with_capacity(keys.len());
    // If this fails, the single reads report why.
    let _ = store.table.look_at_hot(&keys, Extent::Beginning, &mut |hot, spot| {
        let before = match hot {
            Hot::Found(record) if record.len() <= FOUND_RECORD_BYTES_MAX => {
                Some(Before::of(record, spot, writes.at(found.len()).looks()))
            }
            Hot::Absent => Some(Before::Absent),
            Hot::Found(_) | Hot::Cold => None,
        };
        found.push(before);
        true
    });
    found
}

impl Holding {
    /// Whether no other node owns a partition of a store, now or under a plan, as far as this node knows for certain.
    fn is_alone(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let is_certain = self.cluster.as_ref().is_some_and(|cluster| !cluster.is_remembered);
        is_certain && !self.owners(store, partition).is_empty() && !self.has_others(store, partition)
    }

    /// Whether the store is still as it was when `store` was loaded: no partition has moved or is about to move.
    pub(crate) fn is_unchanged(&self, store: &HeldStore) -> bool {
        let now = self.stores.get(&store.id);
        now.is_some_and(|now| now.name == store.name && now.epoch == store.epoch && now.copies == store.copies)
    }
}

impl HeldStore {
    /// Whether one replica is enough to read and to write. Counters are left to coordinators, because their updates are
    /// increments.
    fn is_for_one(&self) -> bool {
        let settings = &self.settings;
        settings.reads <= 1
            && settings.writes <= 1
            && settings.zone_reads == 0
            && settings.zone_writes == 0
            && settings.resolution != Resolution::Counter
    }
}

/// The error of a write whose store has changed since its place was looked up.
fn has_changed(store: &HeldStore) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::NotHere,
        format!(
            "partitions of store {:?} have moved: fetch a newer topology",
            store.name
        ),
    )
}
