//! Reads of records: at once from memory, otherwise on threads of their own, so that a read of the disk delays no other
//! caller.

pub(crate) mod in_memory;
mod lengths;
pub(crate) mod listing;
mod members;
pub(crate) mod scanning;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use fondaco_engine::{EngineError, Hot, Table};
use fondaco_model::versioned::Record;
use fondaco_protocol::replica::{Held, OnReply, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaReply};
use parking_lot::Mutex;

use crate::error::ReplicasError;
use crate::metrics::ReplicaCounter;
use crate::partition::UNREADABLE;
use crate::reads::scanning::is_damage;
use crate::shared::{Shared, overloaded};
use crate::store::{HeldStore, Place};
use crate::writes::commit::engine_error;

/// The result of reading a key, or why it failed.
type Read = Result<Held, ReplicaError>;

/// The part of a record to return.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// The whole record, or its context.
    Part(RecordPart),
    /// The whole record, if its digest differs from this one.
    OtherThan(u64),
    /// Its digest.
    Digest,
}

/// The work of a thread.
type Reading = Box<dyn FnOnce() + Send>;

/// The threads that read from the disk.
pub(crate) struct Readers {
    /// `None` once they have ended.
    sender: Mutex<Option<Sender<Reading>>>,
    receiver: Receiver<Reading>,
    /// Whether there are no threads: reads are done at once, on the caller's thread.
    reads_at_once: bool,
}

impl Readers {
    /// A queue for this many requests; or no threads and no queue.
    pub(crate) fn new(waiting_max: usize, reads_at_once: bool) -> Self {
        let (sender, receiver) = crossbeam_channel::bounded(waiting_max);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver,
            reads_at_once,
        }
    }

    /// Starts the threads. They end after [`close`](Self::close).
    pub(crate) fn start(&self, count: usize) -> Result<Vec<JoinHandle<()>>, ReplicasError> {
        let thread = |number| {
            let receiver = self.receiver.clone();
            let run = move || {
                for reading in receiver.iter() {
                    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(reading)).is_err() {
                        tracing::error!("a read panicked");
                    }
                }
            };
            std::thread::Builder::new()
                .name(format!("read-{number}"))
                .spawn(run)
                .map_err(ReplicasError::io("start the thread", "read".as_ref()))
        };
        (0..count).map(thread).collect()
    }

    /// Runs a job on one of the threads.
    ///
    /// # Errors
    /// The job, if too many are queued already.
    pub(crate) fn run(&self, reading: Reading) -> Result<(), Reading> {
        if self.reads_at_once {
            reading();
            return Ok(());
        }
        let sender = self.sender.lock();
        match &*sender {
            Some(sender) => sender.try_send(reading).map_err(TrySendError::into_inner),
            None => Err(reading),
        }
    }

    /// Accepts no more jobs. The threads end when the queue is empty.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({} waiting)", self.receiver.len())
    }
}

/// How many bytes of records one reply contains, plus one record.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The room that is left in a reply.
struct AnswerRoom(usize);

impl AnswerRoom {
    fn is_used_up(&self) -> bool {
        self.0 == 0
    }

    fn take(&mut self, read: &Read) {
        let bytes = read.as_ref().map_or(0, Held::told_bytes);
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// The error for a key that does not fit into a reply.
fn more() -> ReplicaError {
    ReplicaError::new(ReplicaErrorCode::More, "the reply is full: request this key again")
}

/// Reads keys of a store, from memory or disk: as many as fit into one reply.
pub(crate) fn get<'a>(
    shared: &Arc<Shared>,
    place_of: impl Fn(&Bytes) -> Result<Place, ReplicaError>,
    store: &Arc<HeldStore>,
    keys: impl ExactSizeIterator<Item = (&'a Bytes, Wanted)>,
    deadline: Option<Instant>,
    answer: OnReply,
) {
    shared.metrics.add(ReplicaCounter::Reads, keys.len() as u64);
    let mut found: Vec<Read> = Vec::with_capacity(keys.len());
    let mut cold: Vec<(usize, Place, Wanted, bool)> = Vec::new();
    let mut room = AnswerRoom(ANSWER_BYTES_MAX);
    for (key, wanted) in keys {
        if room.is_used_up() {
            found.push(Err(more()));
            continue;
        }
        let read = match place_of(key) {
            Err(error) => Err(error),
            Ok(place) if matches!(wanted, Wanted::Part(RecordPart::Members)) => {
                let was_behind = place.partition.is_behind();
                cold.push((found.len(), place, wanted, was_behind));
                Ok(Held::Nothing)
            }
            Ok(place) => match store.table.get_hot(&place.table_key) {
                Ok(Hot::Found(record)) => taken(shared, store, &place, wanted, record),
                Ok(Hot::Absent) => Ok(Held::Nothing),
                Ok(Hot::Cold) => {
                    let was_behind = place.partition.is_behind();
                    cold.push((found.len(), place, wanted, was_behind));
                    Ok(Held::Nothing)
                }
                Err(error) => Err(read_error(shared, store, &place, &error)),
            },
        };
        room.take(&read);
        found.push(read);
    }
    if cold.is_empty() {
        return answer(ReplicaReply::Records(found));
    }
    shared.metrics.add(ReplicaCounter::ColdReads, cold.len() as u64);
    let (task_shared, store) = (Arc::clone(shared), Arc::clone(store));
    // The callback, in case the request is refused after all.
    let answer = Arc::new(Mutex::new(Some(answer)));
    let theirs = Arc::clone(&answer);
    let reading = move || {
        let is_late = deadline.is_some_and(|deadline| deadline <= task_shared.host.now());
        let reply = match is_late {
            true => ReplicaReply::Error(ReplicaError::new(
                ReplicaErrorCode::Timeout,
                "the request timed out before the disk was read: request fewer keys at a time",
            )),
            false => {
                for (at, place, wanted, was_behind) in cold {
                    if room.is_used_up() {
                        found[at] = Err(more());
                        continue;
                    }
                    found[at] = match wanted {
                        Wanted::Part(RecordPart::Members) => members::read(&task_shared, &store, &place, deadline),
                        _ => match store.table.get(&place.table_key) {
                            Ok(Some(record)) => taken(&task_shared, &store, &place, wanted, record),
                            Ok(None) => Ok(Held::Nothing),
                            Err(error) => Err(read_error(&task_shared, &store, &place, &error)),
                        },
                    };
                    if place.partition.is_behind() && !was_behind {
                        // It was admitted before a loss was found, and may have been read after it.
                        found[at] = Err(task_shared.holding.load().behind(&store, place.partition.id()));
                    }
                    room.take(&found[at]);
                }
                ReplicaReply::Records(found)
            }
        };
        give(&theirs, reply);
    };
    if shared.readers.run(Box::new(reading)).is_err() {
        shared.metrics.add(ReplicaCounter::Overloads, 1);
        let message = "too many reads wait for the disk: send fewer at a time, or add memory or nodes";
        give(&answer, ReplicaReply::Error(overloaded(message.to_owned())));
    }
}

/// Calls a callback that two threads share, once.
pub(crate) fn give(answer: &Mutex<Option<OnReply>>, reply: ReplicaReply) {
    let taken = answer.lock().take();
    if let Some(answer) = taken {
        answer(reply);
    }
}

/// The requested part of a record; an error if it is damaged.
fn taken(shared: &Shared, store: &HeldStore, place: &Place, wanted: Wanted, record: Bytes) -> Read {
    let context = Record::decode_context(&record).map_err(|error| {
        shared.metrics.add(ReplicaCounter::Corruptions, 1);
        tracing::error!(?place, %error, "a stored record is damaged");
        note_damage(store, place, Record::digest(&record));
        ReplicaError::new(ReplicaErrorCode::Corrupt, error.to_string())
    })?;
    let digest = Record::stated_digest(&record);
    Ok(match wanted {
        Wanted::Part(RecordPart::Context) => Held::Record(context.to_bytes().into()),
        Wanted::Digest => Held::Record(Bytes::copy_from_slice(&digest.to_be_bytes())),
        Wanted::OtherThan(known) if known == digest => Held::Same,
        Wanted::Part(RecordPart::Full | RecordPart::Members) | Wanted::OtherThan(_) => Held::Record(record),
    })
}

/// Notes that a record is damaged, unless a write has replaced it since it was read.
fn note_damage(store: &HeldStore, place: &Place, digest: u64) {
    if place.partition.found_damaged(place.position, digest) && is_sound(&*store.table, &place.table_key) {
        place.partition.not_damaged(place.position);
    }
}

/// Whether the record of a key can be read, or there is none.
pub(crate) fn is_sound(table: &dyn Table, table_key: &[u8]) -> bool {
    match table.get(table_key) {
        Ok(record) => record.is_none_or(|record| Record::decode_context(&record).is_ok()),
        Err(_) => false,
    }
}

fn read_error(shared: &Shared, store: &HeldStore, place: &Place, error: &EngineError) -> ReplicaError {
    tracing::warn!(?place, %error, "a record cannot be read");
    if is_damage(error) {
        // The tree has counted the old record; the next tree does not.
        note_damage(store, place, UNREADABLE);
    }
    engine_error(shared, error)
}
