//! The queue of the requests of one connection on versioned stores, and of its writes to hybrid stores: the requests that are to be begun, that are under way,
//! and that are to be answered next. Each has one *source* of its answer:
//!
//! | source | file | requests |
//! |---|---|---|
//! | memory | [`memory`] | look-ups that this node's replica may answer alone, from memory |
//! | engine | [`engine`] | writes of keys that this node alone has |
//! | topic | [`events`] | writes to hybrid stores |
//! | replicas | [`replicas`] | all others, through the coordinator |
//! | own replica | `replicas::begin` | requests that other nodes make of this node's replica |
//!
//! Requests on different keys are under way together, those on one key one after the other, in the order in
//! which they came; replies are in the order of requests, whichever is done first. How much is under way is
//! bounded: the connection reads no more requests than [`RequestQueue::has_room`] lets in. No I/O is done here.

mod admission;
mod completion;
mod engine;
mod events;
pub(in crate::server) mod memory;
mod replicas;
mod replies;
mod work;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fondaco_catalog::StoreId;
use fondaco_client::trace::Tracing;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Protocol, Reply};
use smallvec::{SmallVec, smallvec};
use tokio::task::AbortHandle;
use xxhash_rust::xxh3::xxh3_64;

use crate::server::buffers::Charge;
use crate::server::commands::operation::{Answer, Combined};
use crate::server::session::Admission;
use crate::server::traced::RequestTrace;
use crate::server::window::{OUTPUT_BYTES_MAX, Tally};
use completion::{Completed, Completer, Done, Finding, Place};
use memory::{MGet, MemoryReads};
use replies::WaitingReplies;
use work::Waiting;

pub(in crate::server) use admission::{is_replica, replica_command};
pub(in crate::server) use engine::{Batcher, tell};
pub(in crate::server) use events::applied;
pub(crate) use events::log_event;
pub(in crate::server) use replicas::{begin, begin_reads};
pub(in crate::server) use work::{Part, Task, Work};

/// A queue that had room for more keys is not used again.
const KEYS_KEPT: usize = 4096;
/// How many requests wait for their answers before no more are read.
const REQUESTS_MAX: usize = 1024;
/// How many bytes of requests wait before no more are read.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many bytes of answers wait to be sent, beyond which work is begun one at a time.
const ANSWERS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The reply to most writes.
const OK: &[u8] = b"+OK\r\n";
/// How many keys are worked on at a time.
const RUNNING_MAX: usize = 256;

/// The requests of a connection that are not answered yet.
#[derive(Default)]
pub(in crate::server) struct RequestQueue {
    slots: VecDeque<Slot>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
    answers_bytes: usize,
    /// How many of these are charged to the budget by themselves.
    charged_bytes: usize,
    /// Replies that are written already, in the order of requests.
    written: WaitingReplies,
    /// The first request whose reply is not written yet, although it is expected or in memory: look-ups wait to be
    /// [answered from memory](Self::answer_reads).
    unwritten: Option<u64>,
    /// Keys that are worked on, by their hashes, each with the work that waits for it. Keys of one hash wait for one
    /// another.
    busy: Busy,
    /// Work that may be begun.
    startable: VecDeque<Work>,
    running: usize,
    /// How many of the requests are traced.
    traced: usize,
    is_short_of_memory: bool,
    /// Look-ups under way, which are aborted with the connection.
    reads: SmallVec<[AbortHandle; 1]>,
    completed: Arc<Completed>,
    /// Completed work, while it is taken note of.
    taken: Vec<Done>,
}

/// The work that waits for each key that is worked on.
type Busy = HashMap<u64, VecDeque<Waiting>, BuildHasherDefault<AsItIs>>;

/// The hash of a number that is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A request, and the known parts of its reply.
struct Slot {
    command: CommandId,
    /// Its store, or that of its first key; `None` if it was refused, and for requests of other nodes.
    store: Option<StoreId>,
    began: Instant,
    bytes: usize,
    /// The bytes of the parts of its reply that are known.
    answers_bytes: usize,
    /// How many of these are charged to the budget, and by what.
    charged_bytes: usize,
    charges: Vec<Charge>,
    /// How much of the [`WaitingReplies`] is its own: its reply, or that which is expected.
    written_bytes: usize,
    /// Whether it is a write that is expected to be answered with `OK`.
    expects_ok: bool,
    is_muted: bool,
    left: usize,
    outcome: Outcome,
    /// The spans of a request that is traced.
    trace: Option<Box<RequestTrace>>,
}

impl Slot {
    fn new(accepted: Accepted, left: usize, outcome: Outcome) -> Self {
        Self {
            command: accepted.command,
            store: None,
            began: accepted.began,
            bytes: accepted.bytes,
            answers_bytes: 0,
            charged_bytes: 0,
            charges: Vec::new(),
            written_bytes: 0,
            expects_ok: false,
            is_muted: accepted.is_muted,
            left,
            outcome,
            trace: None,
        }
    }

    /// Writes the reply that most writes get. The replies behind it then need not be moved.
    fn expect_ok(&mut self, written: &mut WaitingReplies) {
        if self.expects_ok {
            self.expects_ok = false;
            written.push(OK);
            self.written_bytes = OK.len();
        }
    }

    /// Whether the bytes that are written for it are its reply.
    fn is_as_written(&self) -> bool {
        match &self.outcome {
            Outcome::Written => true,
            Outcome::Keys(answers, _) => {
                self.written_bytes > 0 && answers.iter().all(|answer| *answer == Some(Answer::Ok))
            }
            _ => false,
        }
    }
}

enum Outcome {
    /// Answers for keys.
    Keys(SmallVec<[Option<Answer>; 1]>, Combined),
    /// The answer of this node's own replica.
    Replica(Option<ReplicaReply>),
    /// It was answered from memory, and the reply is written.
    Written,
    /// It was refused.
    Refused(String),
}

impl RequestQueue {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether nothing is in it, and its memory is no more than most connections need.
    pub(in crate::server) fn is_worth_keeping(&self) -> bool {
        self.is_empty() && self.startable.capacity().max(self.busy.capacity()) <= KEYS_KEPT
    }

    /// Whether more requests may be let in.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.slots.len() < REQUESTS_MAX && self.bytes < BYTES_MAX
    }

    /// The bytes of requests and answers that the connection is to be charged with.
    pub(in crate::server) fn held_bytes(&self) -> usize {
        self.bytes + self.answers_bytes - self.charged_bytes
    }

    /// Lets only one at a time be under way from now on, or many again.
    pub(in crate::server) fn set_short_of_memory(&mut self, is_short_of_memory: bool) {
        self.is_short_of_memory = is_short_of_memory;
    }

    /// Whether there is work that may be begun.
    pub(in crate::server) fn has_work(&self) -> bool {
        // The first of all is under way, or may be begun: so there is always an end to the waiting.
        let running_max = match self.answers_bytes < ANSWERS_BYTES_MAX && !self.is_short_of_memory {
            true => RUNNING_MAX,
            false => 1,
        };
        self.running < running_max && !self.startable.is_empty()
    }

    /// Has replies that wait follow those that may be sent, if none waits yet. [`give`](Self::give) gives them back.
    pub(in crate::server) fn follow(&mut self, replies: &mut Vec<u8>) {
        self.written.follow(replies);
    }

    /// Lets in a request on keys.
    pub(in crate::server) fn push_keys(
        &mut self,
        request: Accepted,
        combined: Combined,
        keys: impl ExactSizeIterator<Item = (Bytes, Task)>,
    ) {
        let outcome = Outcome::Keys(smallvec![None; keys.len()], combined);
        let mut slot = Slot::new(request, keys.len(), outcome);
        let mut keys = keys.peekable();
        let first = keys.peek();
        slot.store = first.map(|(_, task)| task.store().id);
        slot.expects_ok = !slot.is_muted && first.is_some_and(|(_, task)| task.expects_ok());
        if self.unwritten.is_none() {
            slot.expect_ok(&mut self.written);
        }
        let slot = self.push(slot);
        self.push_parts(slot, keys);
    }

    fn push_parts(&mut self, slot: u64, keys: impl Iterator<Item = (Bytes, Task)>) {
        for (key, (wire_key, task)) in keys.enumerate() {
            let part = Waiting {
                place: Place { slot, key },
                key_hash: xxh3_64(&wire_key),
                wire_key,
                task,
            };
            match self.busy.entry(part.key_hash) {
                Entry::Occupied(mut waiting) => waiting.get_mut().push_back(part),
                Entry::Vacant(free) => {
                    free.insert(VecDeque::new());
                    self.make_startable(part);
                }
            }
        }
    }

    /// Lets in a request for this node's own replica.
    pub(in crate::server) fn push_replica(&mut self, accepted: Accepted, request: ReplicaRequest) {
        let slot = self.push(Slot::new(accepted, 1, Outcome::Replica(None)));
        let completer = Completer::new(&self.completed, Place { slot, key: 0 }, None);
        self.startable.push_back(Work::Replica(request, completer));
    }

    /// Whether no request on a key is under way.
    #[inline]
    pub(in crate::server) fn is_free(&self, wire_key: &[u8]) -> bool {
        is_free(&self.busy, wire_key)
    }

    /// Lets in an `MGET` that `answer` answers from memory, if it does.
    pub(in crate::server) fn push_mget(
        &mut self,
        accepted: Accepted,
        answer: impl FnOnce(&dyn Fn(&[u8]) -> bool, &mut Vec<u8>) -> Option<MGet>,
    ) -> Option<MGet> {
        debug_assert!(self.unwritten.is_none());
        let is_free = |wire_key: &[u8]| is_free(&self.busy, wire_key);
        let has_room = self.answers_bytes < ANSWERS_BYTES_MAX;
        let answer = |written: &mut Vec<u8>| answer(&is_free, written).filter(|_| has_room);
        let (mget, written_bytes) = self.written.push_by(answer)?;
        self.push(Slot {
            store: Some(mget.store),
            answers_bytes: written_bytes,
            written_bytes,
            ..Slot::new(accepted, 0, Outcome::Written)
        });
        Some(mget)
    }

    /// Lets in look-ups that memory may answer, those from an index on. They must be [answered](Self::answer_reads) before
    /// replies are taken.
    pub(in crate::server) fn push_reads(
        &mut self,
        reads: &mut MemoryReads,
        from: usize,
        store: StoreId,
        began: Instant,
    ) {
        for read in reads.all_mut().skip(from) {
            let accepted = Accepted {
                command: read.command,
                began,
                bytes: read.bytes,
                is_muted: false,
            };
            read.slot = self.push(Slot {
                store: Some(store),
                ..Slot::new(accepted, 0, Outcome::Written)
            });
            self.unwritten.get_or_insert(read.slot);
        }
    }

    /// Answers the look-ups that wait. Those that need more than memory are handed to the replicas of their keys.
    pub(in crate::server) fn answer_reads(
        &mut self,
        reads: &MemoryReads,
        admission: &Admission<'_>,
        protocol: Protocol,
    ) -> Tally {
        let (mut tally, mut from) = (Tally::default(), 0);
        // Not all at once if they are long: writers wait for a look-up.
        while from < reads.all().len() && self.answers_bytes < ANSWERS_BYTES_MAX {
            let mut left_bytes = OUTPUT_BYTES_MAX;
            let first = from;
            from = reads.all().len();
            reads.look_up(first, admission, |index, recalled, store| {
                let read = &reads.all()[index];
                self.write_expected(read.slot);
                let written = self.written.push_by(|written| {
                    let mut reply = Reply::new(written, protocol);
                    memory::write(read.look_up, recalled, store, &mut reply)
                });
                if let Some((is_absent, bytes)) = written {
                    let slot = &mut self.slots[(read.slot - self.first) as usize];
                    (slot.written_bytes, slot.answers_bytes) = (bytes, bytes);
                    self.answers_bytes += bytes;
                    tally.hot += 1;
                    tally.absent += u64::from(is_absent);
                    left_bytes = left_bytes.saturating_sub(bytes);
                }
                if left_bytes == 0 {
                    from = index + 1;
                }
                left_bytes > 0
            });
        }
        self.write_expected(self.first + self.slots.len() as u64);
        self.unwritten = None;
        for read in reads.all() {
            let at = (read.slot - self.first) as usize;
            if self.slots[at].written_bytes > 0 {
                continue;
            }
            match admission.keys(reads.asked(read)) {
                Ok(keys) => {
                    self.slots[at].left = keys.len();
                    self.slots[at].outcome = Outcome::Keys(smallvec![None; keys.len()], Combined::Only);
                    self.push_parts(read.slot, keys.into_iter());
                }
                Err(refusal) => self.slots[at].outcome = Outcome::Refused(refusal),
            }
        }
        tally
    }

    /// Writes the replies that are expected to writes before a request, as far as they are not written.
    fn write_expected(&mut self, before: u64) {
        if let Some(unwritten) = self.unwritten {
            let (start, end) = ((unwritten - self.first) as usize, (before - self.first) as usize);
            self.slots
                .range_mut(start..end)
                .for_each(|slot| slot.expect_ok(&mut self.written));
            self.unwritten = Some(before);
        }
    }

    /// The request that was let in last is traced.
    pub(in crate::server) fn trace_last(&mut self, trace: Box<RequestTrace>) {
        if let Some(slot) = self.slots.back_mut() {
            slot.trace = Some(trace);
            self.traced += 1;
        }
    }

    /// The trace that work belongs to, if its request is traced.
    #[inline]
    pub(in crate::server) fn tracing_of(&self, work: &Work) -> Option<Tracing> {
        match work {
            _ if self.traced == 0 => None,
            work => {
                let slot = self.slots.get((work.place()?.slot - self.first) as usize)?;
                slot.trace.as_ref()?.tracing()
            }
        }
    }

    /// Lets in a request that is refused.
    pub(in crate::server) fn push_refused(&mut self, accepted: Accepted, refusal: String) {
        self.push(Slot::new(accepted, 0, Outcome::Refused(refusal)));
    }

    fn push(&mut self, slot: Slot) -> u64 {
        self.bytes += slot.bytes;
        self.answers_bytes += slot.answers_bytes;
        self.slots.push_back(slot);
        self.first + self.slots.len() as u64 - 1
    }

    fn make_startable(&mut self, waiting: Waiting) {
        let completer = Completer::new(&self.completed, waiting.place, Some(waiting.key_hash));
        self.startable.push_back(waiting.into_work(completer));
    }

    /// The next work to be begun; none while enough is under way.
    pub(in crate::server) fn next_work(&mut self) -> Option<Work> {
        if !self.has_work() {
            return None;
        }
        let work = self.startable.pop_front()?;
        self.running += 1;
        Some(work)
    }

    /// Notes look-ups that were begun together.
    pub(in crate::server) fn note_reads(&mut self, begun: Option<AbortHandle>) {
        self.reads.retain(|reads| !reads.is_finished());
        self.reads.extend(begun);
    }

    /// Waits until work is done that is not [taken note](Self::take_done) of.
    pub(in crate::server) async fn next_done(&self) {
        self.completed.wait().await;
    }

    /// Takes note of the work that is done by now.
    pub(in crate::server) fn take_done(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        self.completed.swap(&mut taken);
        taken.drain(..).for_each(|done| self.take(done));
        self.taken = taken;
    }

    fn take(&mut self, done: Done) {
        self.running -= 1;
        if let Some(key_hash) = done.key_hash
            && let Entry::Occupied(mut waiting) = self.busy.entry(key_hash)
        {
            match waiting.get_mut().pop_front() {
                Some(part) => self.make_startable(part),
                None => drop(waiting.remove()),
            }
        }
        let bytes = done.finding.bytes();
        self.answers_bytes += bytes;
        let Place { slot, key } = done.place;
        let slot = &mut self.slots[(slot - self.first) as usize];
        slot.left -= 1;
        slot.answers_bytes += bytes;
        if let Some(charge) = done.charge {
            slot.charges.push(charge);
            slot.charged_bytes += bytes;
            self.charged_bytes += bytes;
        }
        match (&mut slot.outcome, done.finding) {
            (Outcome::Keys(answers, _), Finding::Key(answer)) => answers[key] = Some(answer),
            (Outcome::Replica(reply), Finding::Replica(answered)) => *reply = Some(answered),
            _ => {}
        }
    }

    /// Whether the first request is done.
    pub(in crate::server) fn has_answer(&self) -> bool {
        self.slots.front().is_some_and(|slot| slot.left == 0)
    }

    /// How many bytes of replies may be [given](Self::give).
    pub(in crate::server) fn due(&self) -> usize {
        self.written.due()
    }

    /// Puts replies that may be sent behind others.
    pub(in crate::server) fn give(&mut self, to: &mut Vec<u8>) {
        self.written.give(to);
    }

    /// Writes the replies to those requests, from the first on, that are done, until there are more bytes than these, with
    /// those that are [due](Self::due) then; and notes the requests. `charges` gets those of long replies, to be kept until they are
    /// sent: given back earlier, they would let the next long answer in while this one is still held.
    pub(in crate::server) fn answer_done(
        &mut self,
        bytes_max: usize,
        reply: &mut Reply<'_>,
        charges: &mut Vec<Charge>,
        mut note: impl FnMut(Answered),
    ) {
        debug_assert!(self.unwritten.is_none());
        while reply.buffer.len() + self.written.due() <= bytes_max
            && let Some(mut slot) = self.slots.pop_front_if(|slot| slot.left == 0)
        {
            self.first += 1;
            charges.append(&mut slot.charges);
            self.bytes -= slot.bytes;
            self.answers_bytes -= slot.answers_bytes;
            self.charged_bytes -= slot.charged_bytes;
            let mut answered = Answered {
                command: slot.command,
                store: slot.store,
                began: slot.began,
                has_failed: false,
            };
            let trace = slot.trace.take();
            self.traced -= usize::from(trace.is_some());
            if slot.is_as_written() {
                self.written.take(slot.written_bytes);
            } else {
                self.written.give(reply.buffer);
                self.written.skip(slot.written_bytes);
                let start = reply.buffer.len();
                answered.has_failed = slot.outcome.write(reply);
                if let Some(mut trace) = trace
                    && answered.has_failed
                {
                    trace.fail(reply.buffer.get(start + 1..).unwrap_or_default());
                }
                if slot.is_muted {
                    reply.buffer.truncate(start);
                }
            }
            note(answered);
        }
    }
}

#[inline]
fn is_free(busy: &Busy, wire_key: &[u8]) -> bool {
    busy.is_empty() || !busy.contains_key(&xxh3_64(wire_key))
}

impl Drop for RequestQueue {
    fn drop(&mut self) {
        self.reads.iter().for_each(AbortHandle::abort);
    }
}

/// A request that is let in.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Accepted {
    pub(in crate::server) command: CommandId,
    pub(in crate::server) began: Instant,
    pub(in crate::server) bytes: usize,
    /// Whether the client wants no reply to it.
    pub(in crate::server) is_muted: bool,
}

/// A request that is answered.
pub(in crate::server) struct Answered {
    pub(in crate::server) command: CommandId,
    /// The store that a client asked for, or that of the first key.
    pub(in crate::server) store: Option<StoreId>,
    pub(in crate::server) began: Instant,
    pub(in crate::server) has_failed: bool,
}

/// The answer to work whose task ended before it was done.
const LOST: &str = "ERR the server could not finish the request, and does not know what came of it";

impl Outcome {
    /// Writes it, unless it is written; whether it is an error.
    fn write(self, reply: &mut Reply<'_>) -> bool {
        match self {
            Self::Refused(refusal) => {
                reply.error(&refusal);
                true
            }
            Self::Replica(None) => {
                reply.error(LOST);
                true
            }
            Self::Replica(Some(answered)) => {
                answered.write(reply);
                matches!(answered, ReplicaReply::Error(_))
            }
            Self::Keys(answers, combined) => {
                let answer = combined.of(answers);
                answer.write(reply);
                matches!(answer, Answer::Error(_))
            }
            Self::Written => false,
        }
    }
}

impl Combined {
    /// One answer out of those for all keys: the first error, if there is one.
    fn of(self, answers: SmallVec<[Option<Answer>; 1]>) -> Answer {
        let mut sum = 0;
        let mut last = None;
        for answer in answers {
            match answer.unwrap_or_else(|| Answer::Error(LOST.into())) {
                Answer::Error(error) => return Answer::Error(error),
                Answer::Integer(number) if self == Self::Sum => sum += number,
                answer => last = Some(answer),
            }
        }
        match (self, last) {
            (Self::Only, Some(answer)) => answer,
            (Self::Ok, _) => Answer::Ok,
            _ => Answer::Integer(sum),
        }
    }
}
