//! Writes of keys that no other node has. They need no coordinator: an event loop hands those of a turn to this
//! node's replica together, and is told of them together.
//!
//! That no other node has a key, nor is to have it by the plan under way, is seen when its place is asked for, and
//! again when it is written. What is not so any more is refused as not held here, before anything is written: then it
//! is a coordinator's business.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaError, ReplicaErrorCode};
use fondaco_model::PartitionId;
use fondaco_model::versioned::{Over, Record, Resolution, Update};

use crate::answer::Answer;
use crate::commit::{Group, Stored, Task};
use crate::metrics::ReplicaCounter;
use crate::replicas::Replicas;
use crate::store::{HeldStore, Holding, Place, place_in};
use crate::table_key::REPLICA_KEY_BYTES_MAX;

/// Writes that are made one after the other, each of the key at its place in the list.
pub trait DirectWrites: Send {
    /// What becomes of a key, given what is there and the time in milliseconds since 1970; nothing if it stays as it
    /// is. It is asked once.
    fn decide(&mut self, at: usize, current: &Record, now_unix_ms: u64) -> Option<Update>;

    /// What came of each, in order; all that was decided is kept, as the store wants it, where it says so. Called once,
    /// on whichever thread knows; it must not block.
    fn end(self: Box<Self>, ends: Vec<DirectEnd>);
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectEnd {
    /// What was decided is done.
    Done,
    /// Nothing was written, for this reason.
    Refused(ReplicaError),
    /// It is not known whether it was written.
    Unknown(ReplicaError),
}

/// Where a key is that no other node has.
#[derive(Debug)]
pub struct DirectPlace {
    pub(crate) store: Arc<HeldStore>,
    pub(crate) place: Place,
    shard: usize,
}

impl DirectPlace {
    /// What writes must have in common to be handed over together: the shard, and the store.
    pub fn batch(&self) -> (usize, u16) {
        (self.shard, self.store.id)
    }
}

impl Replicas {
    /// The place of a key, if no other node has it, nor is to have it, and its store asks for no more than one
    /// replica.
    pub fn direct_place(&self, store: u16, partition: PartitionId, key: &Bytes) -> Option<DirectPlace> {
        let holding = self.holding();
        let store = holding.stores.get(&store)?;
        let is_key = (1..=REPLICA_KEY_BYTES_MAX).contains(&key.len());
        if !is_key || !store.is_for_one() || !holding.is_alone(store, partition) {
            return None;
        }
        Some(DirectPlace {
            place: place_in(store.partition(partition).ok()?, key),
            shard: self.shared.shard_of(partition),
            store: Arc::clone(store),
        })
    }

    /// Makes writes of keys whose [batch](DirectPlace::batch) is the same; together they bring so many bytes. What is
    /// not begun within the time is refused.
    pub fn write_directly(
        &self,
        places: Vec<DirectPlace>,
        bytes: usize,
        timeout: Duration,
        writes: Box<dyn DirectWrites>,
    ) {
        debug_assert!(places.windows(2).all(|two| two[0].batch() == two[1].batch()));
        let Some(first) = places.first() else {
            return writes.end(Vec::new());
        };
        let (shard, store) = (first.shard, Arc::clone(&first.store));
        let places: Vec<Place> = places.into_iter().map(|place| place.place).collect();
        let answer = Answer::direct(DirectAnswer {
            count: places.len(),
            ends: Vec::new(),
            writes,
        });
        let deadline = Instant::now().checked_add(timeout);
        self.shared
            .enqueue(shard, bytes, Some(&store), deadline, Task::Direct(places), answer);
    }
}

/// Writes, and what is known of them.
pub(crate) struct DirectAnswer {
    count: usize,
    /// None before they are begun; then one of each.
    ends: Vec<DirectEnd>,
    writes: Box<dyn DirectWrites>,
}

impl DirectAnswer {
    /// What is to become of a key.
    pub(crate) fn decide(&mut self, at: usize, current: &Record, now_unix_ms: u64) -> Option<Update> {
        self.writes.decide(at, current, now_unix_ms)
    }

    /// The next write is done as far as its group is written, or was refused.
    pub(crate) fn note(&mut self, result: Result<(), ReplicaError>) {
        self.ends.push(match result {
            Ok(()) => DirectEnd::Done,
            Err(error) => DirectEnd::Refused(error),
        });
    }

    /// The group is written, or an error kept it from that, or from being begun.
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
    /// Makes writes that need no coordinator.
    ///
    /// # Errors
    /// `NOTHERE`, before any is made.
    pub(crate) fn write_directly(
        &mut self,
        store: &HeldStore,
        places: &[Place],
        writes: &mut DirectAnswer,
    ) -> Result<(), ReplicaError> {
        if !self.shared.holding.load().is_unchanged(store) {
            return Err(has_changed(store));
        }
        for (at, place) in places.iter().enumerate() {
            let written = self.write_one_directly(store, place, |record, now_unix_ms| {
                writes.decide(at, record, now_unix_ms)
            });
            writes.note(written);
        }
        self.shared.metrics.add(ReplicaCounter::Puts, places.len() as u64);
        Ok(())
    }

    fn write_one_directly(
        &mut self,
        store: &HeldStore,
        place: &Place,
        decide: impl FnOnce(&Record, u64) -> Option<Update>,
    ) -> Result<(), ReplicaError> {
        let before = self.current(store.engine_at, &*store.table, &place.table_key)?;
        let local = match &before {
            Some(bytes) => self.decode(place, bytes)?,
            None => Record::default(),
        };
        let Some(update) = decide(&local, self.now_unix_ms) else {
            return Ok(());
        };
        let dots = self.dots.of(store.lasting());
        // All that was ever written is here.
        let record = Record::write(Some(&local), dots, Over::Context(local.context()), update);
        let record = record.map_err(|error| ReplicaError::new(ReplicaErrorCode::Other, error.to_string()))?;
        self.change(store, place, before.as_ref(), Stored::Record(&record))
            .map(drop)
    }
}

impl Holding {
    /// Whether no other node has a partition of a store, nor is to have it, as this node knows for certain.
    fn is_alone(&self, store: &HeldStore, partition: PartitionId) -> bool {
        let is_certain = self.cluster.as_ref().is_some_and(|cluster| !cluster.is_remembered);
        is_certain && !self.owners(store, partition).is_empty() && self.others(store, partition).is_empty()
    }

    /// Whether what was seen of a store is still so: no partition has moved, nor is to.
    pub(crate) fn is_unchanged(&self, store: &HeldStore) -> bool {
        let now = self.stores.get(&store.id);
        now.is_some_and(|now| now.name == store.name && now.epoch == store.epoch && now.replicas == store.replicas)
    }
}

impl HeldStore {
    /// Whether one replica is enough to read and to write. Counters are left to coordinators, as what they add is.
    fn is_for_one(&self) -> bool {
        let settings = &self.settings;
        settings.reads <= 1
            && settings.writes <= 1
            && settings.zone_reads == 0
            && settings.zone_writes == 0
            && settings.resolution != Resolution::Counter
    }
}

/// The error of a write whose store has changed since its place was asked for.
fn has_changed(store: &HeldStore) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::NotHere,
        format!("partitions of store {:?} move: ask for a newer topology", store.name),
    )
}
