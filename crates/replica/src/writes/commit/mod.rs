//! One group of writes: the new records are computed (`change`) in the order of arrival, and then all written at once.
//!
//! A write sees the earlier writes of its group. Replies wait until the group is written: nothing is promised before it
//! is stored.

mod change;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, Pair, WriteBatch};
use fondaco_model::NodeId;
use fondaco_model::versioned::{Durability, Record, RecordError, Update, VectorClock};
use fondaco_protocol::replica::{PutOver, ReplicaError, ReplicaErrorCode, ReplicaReply};

use crate::changes::LoggedChange;
use crate::metrics::ReplicaCounter;
use crate::partition::{Change, Partition};
use crate::shared::Shared;
use crate::store::{HeldStore, Place, gone, not_here};
use crate::writes::answer::Answer;
use crate::writes::committer::Dots;
use crate::writes::direct::DirectPlace;
pub(crate) use change::check_length;
use change::check_record;

/// The index of the disk engine, which also keeps hints.
const HINTS_ENGINE_AT: usize = 0;

/// A queued write.
pub(crate) struct Job {
    /// Its store; `None` for hints that were delivered.
    pub(crate) store: Option<Arc<HeldStore>>,
    /// It must not begin after this time.
    pub(crate) deadline: Option<Instant>,
    pub(crate) task: Task,
    pub(crate) answer: Answer,
}

/// A write for which this is the first replica.
pub(crate) struct Put {
    pub(crate) place: Place,
    pub(crate) over: PutOver,
    pub(crate) context: VectorClock,
    pub(crate) update: Update,
}

/// The work of a job.
pub(crate) enum Task {
    /// A write for which this is the first replica.
    Put(Box<Put>),
    /// Writes of keys that no other node owns. Their content is in the answer.
    Direct(Vec<DirectPlace>),
    /// Records of other replicas.
    Merge {
        records: Vec<(Place, Bytes)>,
        /// Whether a coordinator counts on them.
        is_counted: bool,
    },
    /// Records without their expired values, to be merged with the stored ones.
    Expire(Vec<(Place, Bytes)>),
    /// Hints for another node.
    Hint(NodeId, Vec<(Place, Bytes)>),
    /// Hints that were delivered, with their values then.
    Delivered(Vec<(Bytes, Bytes)>),
    /// Keys of damaged hints: deleted, unless they were written again since.
    DropDamagedHints(Vec<Bytes>),
    /// Records to be collected, if they are unchanged.
    Collect(Vec<(Place, Bytes)>),
    /// Keys of the table in a partition that is no longer held.
    Clear(Arc<Partition>, Vec<Bytes>),
}

/// A group in preparation.
pub(crate) struct Group<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) dots: &'a mut Dots,
    pub(crate) now_unix_ms: u64,
    /// Whether there is room, once that was checked.
    space: Option<Result<(), String>>,
    /// One for each engine with writes.
    batches: Vec<Batch>,
    pub(crate) changes: Vec<(Arc<Partition>, Change)>,
    /// Changes of partitions that clients follow.
    followed: Vec<(Arc<Partition>, LoggedChange)>,
    outcomes: Vec<Outcome>,
    /// The nodes that got hints, and the times of these.
    hinted: Vec<(NodeId, u64)>,
}

struct Batch {
    engine: Arc<dyn Engine>,
    engine_at: usize,
    changes: WriteBatch,
    failed: Option<ReplicaError>,
}

/// The outcome of a job, if the group is written.
pub(crate) struct Outcome {
    answer: Answer,
    reply: ReplicaReply,
    /// The engine that must have been written.
    engine_at: usize,
    must_sync: bool,
}

impl Job {
    /// The number of writes.
    pub(crate) fn len(&self) -> usize {
        match &self.task {
            Task::Direct(places) => places.len(),
            _ => 1,
        }
    }

    /// Whether its engine only copies the data.
    pub(crate) fn engine_writes_at_once(&self, shared: &Shared) -> bool {
        let is_hint = matches!(
            self.task,
            Task::Hint(..) | Task::Delivered(_) | Task::DropDamagedHints(_)
        );
        let engine_at = match &self.store {
            Some(store) if !is_hint => store.engine_at,
            _ => HINTS_ENGINE_AT,
        };
        shared.engines[engine_at].writes_at_once()
    }
}

impl<'a> Group<'a> {
    pub(crate) fn new(shared: &'a Shared, dots: &'a mut Dots) -> Self {
        Self {
            shared,
            dots,
            now_unix_ms: shared.host.unix_ms(),
            space: None,
            batches: Vec::new(),
            changes: Vec::new(),
            followed: Vec::new(),
            outcomes: Vec::new(),
            hinted: Vec::new(),
        }
    }

    /// Adds a job to the group.
    pub(crate) fn add(&mut self, job: Job) {
        let Job {
            store,
            deadline,
            task,
            mut answer,
        } = job;
        let is_late = deadline.is_some_and(|deadline| deadline <= self.shared.host.now());
        let (done, engine_at, must_sync) = match (store, task) {
            (_, Task::Delivered(hints)) => (self.delivered(hints), HINTS_ENGINE_AT, false),
            (_, Task::DropDamagedHints(keys)) => (self.drop_damaged_hints(keys), HINTS_ENGINE_AT, false),
            (None, _) => (Ok(ReplicaReply::Done), HINTS_ENGINE_AT, false),
            (Some(store), task) => {
                let engine_at = match task {
                    Task::Hint(..) => HINTS_ENGINE_AT,
                    _ => store.engine_at,
                };
                let is_write = matches!(
                    task,
                    Task::Put(_) | Task::Direct(_) | Task::Merge { .. } | Task::Hint(..)
                );
                let may = match is_late {
                    true => Err(late()),
                    false if store.is_gone() => Err(gone(&store.name)),
                    false if is_write => self.check_space(engine_at),
                    false => Ok(()),
                };
                // Even if it changes nothing: an earlier group may have written the same and failed to sync.
                let must_sync = is_write && store.settings.durability == Durability::Fsync;
                (
                    may.and_then(|()| self.carry_out(&store, task, &mut answer)),
                    engine_at,
                    must_sync,
                )
            }
        };
        self.outcomes.push(Outcome {
            answer,
            reply: done.unwrap_or_else(ReplicaReply::Error),
            engine_at,
            must_sync,
        });
    }

    fn check_space(&mut self, engine_at: usize) -> Result<(), ReplicaError> {
        if !self.shared.engines[engine_at].is_durable() {
            return Ok(());
        }
        let shared = self.shared;
        let checked = self.space.get_or_insert_with(|| shared.check_space());
        checked.clone().map_err(|reason| {
            self.shared.engines[engine_at].make_room();
            self.shared.metrics.add(ReplicaCounter::FullDisk, 1);
            ReplicaError::new(ReplicaErrorCode::DiskFull, reason)
        })
    }

    fn carry_out(
        &mut self,
        store: &Arc<HeldStore>,
        task: Task,
        answer: &mut Answer,
    ) -> Result<ReplicaReply, ReplicaError> {
        match task {
            Task::Direct(places) => {
                if let Some(writes) = answer.direct_writes() {
                    self.write_directly(store, places, writes)?;
                }
                Ok(ReplicaReply::Done)
            }
            Task::Put(mut put) => {
                put.place.follow();
                self.put(store, *put).map(ReplicaReply::Written)
            }
            Task::Merge {
                mut records,
                is_counted,
            } => {
                records.iter_mut().for_each(|(place, _)| place.follow());
                for (place, record) in &records {
                    if !place.partition.is_held() {
                        return Err(not_here(&store.name, place.partition.id()));
                    }
                    self.admit_late(store, place)?;
                    check_record(record)?;
                }
                self.merge_all(store, records.into_iter(), is_counted)
            }
            Task::Expire(mut records) => {
                records.iter_mut().for_each(|(place, _)| place.follow());
                // Partitions that are no longer held are deleted anyway.
                let held = records.into_iter().filter(|(place, _)| place.partition.is_held());
                let followed = self.followed.len();
                let merged = self.merge_all(store, held, false);
                // Clients know when values expire.
                self.followed.truncate(followed);
                merged
            }
            Task::Hint(node, records) => {
                for (_, record) in &records {
                    check_record(record)?;
                }
                for (place, record) in records {
                    self.hint(store, node, &place, record)?;
                }
                Ok(ReplicaReply::Done)
            }
            Task::Collect(records) => {
                let mut collected = 0;
                for (place, seen) in records {
                    if self.current(store.engine_at, &*store.table, &place.table_key)?.as_ref() == Some(&seen) {
                        self.batch(store.engine_at)
                            .delete(&*store.table, place.table_key.clone());
                        self.note(&place, Some(Record::stated_digest(&seen)), None);
                        collected += 1;
                    }
                }
                self.shared.metrics.add(ReplicaCounter::Collected, collected);
                Ok(ReplicaReply::Done)
            }
            Task::Clear(partition, keys) => {
                // Otherwise it was taken back or split meanwhile.
                if !partition.is_held() && !partition.is_split() {
                    keys.into_iter()
                        .for_each(|key| self.batch(store.engine_at).delete(&*store.table, key));
                }
                Ok(ReplicaReply::Done)
            }
            Task::Delivered(hints) => self.delivered(hints),
            Task::DropDamagedHints(keys) => self.drop_damaged_hints(keys),
        }
    }

    fn delivered(&mut self, hints: Vec<(Bytes, Bytes)>) -> Result<ReplicaReply, ReplicaError> {
        let table = Arc::clone(&self.shared.hints);
        for (key, delivered) in hints {
            // Otherwise the hint has changed.
            if self.current(HINTS_ENGINE_AT, &*table, &key)?.as_ref() == Some(&delivered) {
                self.batch(HINTS_ENGINE_AT).delete(&*table, key);
            }
        }
        Ok(ReplicaReply::Done)
    }

    fn drop_damaged_hints(&mut self, keys: Vec<Bytes>) -> Result<ReplicaReply, ReplicaError> {
        let table = Arc::clone(&self.shared.hints);
        for key in keys {
            let is_damaged = match self.current(HINTS_ENGINE_AT, &*table, &key) {
                Ok(hint) => hint.is_some_and(|hint| is_damaged(&hint)),
                Err(error) if error.code == ReplicaErrorCode::Corrupt => true,
                Err(error) => return Err(error),
            };
            if is_damaged {
                self.batch(HINTS_ENGINE_AT).delete(&*table, key);
                self.shared.metrics.add(ReplicaCounter::HintsDamaged, 1);
            }
        }
        Ok(ReplicaReply::Done)
    }

    /// Notes the new record of a key for clients that follow its partition.
    pub(crate) fn follow(&mut self, partition: &Arc<Partition>, position: u64, pair: &Pair) {
        // Its halves, after a split, have logs of their own.
        let partition = partition.now(position);
        if partition.followed.is_followed() {
            let change = LoggedChange {
                table_key: Bytes::copy_from_slice(pair.key()),
                record: pair.shared_value(),
            };
            self.followed.push((Arc::clone(partition), change));
        }
    }

    pub(crate) fn batch_of(&mut self, store: &HeldStore) -> &mut WriteBatch {
        self.batch(store.engine_at)
    }

    fn batch(&mut self, engine_at: usize) -> &mut WriteBatch {
        let found = self.batches.iter().position(|batch| batch.engine_at == engine_at);
        let found = found.unwrap_or_else(|| {
            self.batches.push(Batch {
                engine: Arc::clone(&self.shared.engines[engine_at]),
                engine_at,
                changes: WriteBatch::new(),
                failed: None,
            });
            self.batches.len() - 1
        });
        &mut self.batches[found].changes
    }

    /// Writes the whole group, and answers the writers, except those that wait for the disk: they are answered by
    /// [`sync`], together with later ones.
    #[must_use]
    pub(crate) fn commit(mut self) -> Vec<Outcome> {
        for batch in self.batches.iter_mut().filter(|batch| !batch.changes.is_empty()) {
            if let Err(error) = batch.engine.write(std::mem::take(&mut batch.changes)) {
                tracing::warn!(%error, "a group of writes failed");
                batch.failed = Some(engine_error(self.shared, &error));
            }
        }
        self.shared.metrics.add(ReplicaCounter::Commits, 1);
        let is_whole = self.batches.iter().all(|batch| batch.failed.is_none());
        // The trees describe what can be read from now on. The changes of each partition stay in order.
        self.changes.sort_by_key(|(partition, _)| Arc::as_ptr(partition));
        for changes in self.changes.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other)) {
            let partition = &changes[0].0;
            match is_whole {
                true => partition.changed(changes.iter().map(|(_, change)| *change)),
                // It is unknown which of its writes were made.
                false => partition.forget_tree(),
            }
        }
        for changes in self.followed.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other)) {
            let followed = &changes[0].0.followed;
            match is_whole {
                true => followed.add(changes.iter().map(|(_, change)| change.clone()), self.now_unix_ms),
                false => followed.end(),
            }
        }
        // Only now there are hints to deliver.
        for (node, written_unix_ms) in self.hinted.drain(..) {
            self.shared.hinted(node, written_unix_ms);
        }
        let mut waiting = Vec::new();
        for outcome in std::mem::take(&mut self.outcomes) {
            let batch = self.batches.iter().find(|batch| batch.engine_at == outcome.engine_at);
            let is_error = matches!(outcome.reply, ReplicaReply::Error(_));
            match batch.and_then(|batch| batch.failed.clone()) {
                Some(failed) if !is_error => outcome.answer.give(ReplicaReply::Error(failed)),
                None if outcome.must_sync && !is_error => waiting.push(outcome),
                _ => outcome.answer.give(outcome.reply),
            }
        }
        waiting
    }
}

/// Waits until all writes are on the disk, and answers the writers that wait for that.
pub(crate) fn sync(shared: &Shared, waiting: &mut Vec<Outcome>) {
    let mut synced: Vec<(usize, Option<ReplicaError>)> = Vec::new();
    for outcome in waiting.drain(..) {
        let at = outcome.engine_at;
        let known = synced.iter().find(|(engine_at, _)| *engine_at == at).cloned();
        let (_, failure) = known.unwrap_or_else(|| {
            shared.metrics.add(ReplicaCounter::Syncs, 1);
            let failure = shared.engines[at].sync().err();
            let failure = failure.map(|error| engine_error(shared, &error));
            synced.push((at, failure.clone()));
            (at, failure)
        });
        outcome.answer.give(failure.map_or(outcome.reply, ReplicaReply::Error));
    }
}

/// Whether a stored record can never be read. A record of a later format can, by a later program.
pub(crate) fn is_damaged(record: &Bytes) -> bool {
    let decoded = Record::decode(record.clone());
    decoded.is_err_and(|error| !matches!(error, RecordError::UnknownVersion { .. }))
}

fn late() -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::Timeout,
        "the request timed out in the queue: send fewer at a time, or use a longer timeout",
    )
}

/// The reply for an error of the engine.
pub(crate) fn engine_error(shared: &Shared, error: &EngineError) -> ReplicaError {
    let (code, counter) = match error {
        EngineError::DiskFull { .. } => (ReplicaErrorCode::DiskFull, Some(ReplicaCounter::FullDisk)),
        EngineError::KeysFull { .. } => (ReplicaErrorCode::KeysFull, Some(ReplicaCounter::FullKeys)),
        EngineError::Corrupt { .. } => (ReplicaErrorCode::Corrupt, Some(ReplicaCounter::Corruptions)),
        EngineError::NoTable { .. } => (ReplicaErrorCode::NoStore, None),
        _ => (ReplicaErrorCode::Other, None),
    };
    if let Some(counter) = counter {
        shared.metrics.add(counter, 1);
    }
    ReplicaError::new(code, error.to_string())
}
