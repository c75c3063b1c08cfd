//! Requests of one connection that are carried out side by side: what is to be begun, what is under way, and
//! what is to be answered next.
//!
//! Requests on different keys are under way together, those on one key one after the other, in the order in
//! which they came; replies are in the order of requests, whichever is done first. How much is under way is
//! bounded: the connection reads no more requests than [`Pipeline::has_room`] lets in. No I/O is done here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaReply, ReplicaRequest};
use fondaco_resp::Reply;
use fondaco_resp::command::CommandId;
use smallvec::{SmallVec, smallvec};
use xxhash_rust::xxh3::xxh3_64;

use super::gets::AnsweredGets;
use super::operation::{Answer, Operation};
use super::parse::Combined;
use crate::catalog::VersionedStore;

/// How many requests wait for their answers before no more are read.
const REQUESTS_MAX: usize = 1024;
/// How many bytes of requests wait before no more are read.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many bytes of answers wait to be sent, beyond which work is begun one at a time.
const ANSWERS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The reply to most writes.
const OK: &[u8] = b"+OK\r\n";
/// How much memory is kept for replies that wait, when there are none.
const PIECES_BYTES_KEPT: usize = 256 * 1024;
/// How much of them must be gone before the rest is moved.
const PIECES_BYTES_MOVED: usize = 64 * 1024;
/// How many keys are worked on at a time.
const RUNNING_MAX: usize = 256;

/// The requests of a connection that are not answered yet.
#[derive(Default)]
pub(in crate::server) struct Pipeline {
    slots: VecDeque<Slot>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
    answers_bytes: usize,
    /// Replies that were written before it was their turn, one after the other.
    written: Pieces,
    /// Keys that are worked on, by their hashes, each with the work that waits for it. Keys of one hash wait for one
    /// another.
    busy: Busy,
    /// What may be begun.
    startable: VecDeque<Work>,
    running: usize,
    told: Arc<Told>,
    /// What was told, while it is taken note of.
    taken: Vec<Done>,
}

/// What waits for each key that is worked on.
type Busy = HashMap<u64, VecDeque<Part>, BuildHasherDefault<AsItIs>>;

/// The hash of what is a hash already.
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

/// A request, and what is known of its reply.
struct Slot {
    command: CommandId,
    began: Instant,
    bytes: usize,
    /// What is known of its reply, in bytes.
    answers_bytes: usize,
    /// How much of [`Pieces`] is its own: all of its reply, or that which is expected.
    written_bytes: usize,
    is_muted: bool,
    left: usize,
    outcome: Outcome,
}

enum Outcome {
    /// Answers for keys.
    Keys(SmallVec<[Option<Answer>; 1]>, Combined),
    /// The answer of this node's own replica.
    Replica(Option<ReplicaReply>),
    /// It was answered when it came.
    Known(Answer),
    /// So were so many `GET`s, and the replies are written.
    Written { replies: u64 },
    /// It was refused.
    Refused(String),
}

/// What a request asks of one key.
pub(in crate::server) struct Part {
    place: Place,
    key_hash: u64,
    pub(in crate::server) store: Arc<VersionedStore>,
    /// With the name of the store before it.
    pub(in crate::server) wire_key: Bytes,
    pub(in crate::server) operation: Operation,
}

/// Work to be begun, and whom to tell when it is done.
pub(in crate::server) enum Work {
    /// For the coordinator.
    Part(Part, Teller),
    /// For this node's own replica.
    Replica(ReplicaRequest, Teller),
}

/// Where an answer belongs: a request, and a key of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: u64,
    key: usize,
}

/// Work that is done.
pub(in crate::server) struct Done {
    place: Place,
    /// The hash of the key that may be worked on further.
    key_hash: Option<u64>,
    finding: Finding,
}

enum Finding {
    Key(Answer),
    Replica(ReplicaReply),
    Lost,
}

impl Finding {
    /// How long the values in it are.
    fn bytes(&self) -> usize {
        match self {
            Self::Key(answer) => answer.bytes(),
            Self::Replica(ReplicaReply::Records(records)) => {
                let found = records.iter().filter_map(|record| record.as_ref().ok()?.as_ref());
                found.map(Bytes::len).sum()
            }
            Self::Replica(ReplicaReply::Written(record)) => record.len(),
            Self::Replica(_) | Self::Lost => 0,
        }
    }
}

/// What a connection was told, by whichever threads, and has not taken note of.
#[derive(Default)]
struct Told(Mutex<Tidings>);

#[derive(Default)]
struct Tidings {
    done: Vec<Done>,
    /// The connection, while it waits for something to be done.
    waiting: Option<Waker>,
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, Tidings> {
        // A list, whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, done: Done) {
        let waiting = {
            let mut tidings = self.lock();
            tidings.done.push(done);
            tidings.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

/// Tells a connection that work is done: in any case, once.
pub(in crate::server) struct Teller {
    told: Arc<Told>,
    /// What it is about, until it is told.
    untold: Option<(Place, Option<u64>)>,
}

impl Teller {
    fn new(told: &Arc<Told>, place: Place, key_hash: Option<u64>) -> Self {
        Self {
            told: Arc::clone(told),
            untold: Some((place, key_hash)),
        }
    }

    /// Says what came of a key.
    pub(in crate::server) fn answer(mut self, answer: Answer) {
        self.tell(Finding::Key(answer));
    }

    /// Says what the replica has answered.
    pub(in crate::server) fn reply(mut self, reply: ReplicaReply) {
        self.tell(Finding::Replica(reply));
    }

    fn tell(&mut self, finding: Finding) {
        if let Some((place, key_hash)) = self.untold.take() {
            self.told.tell(Done {
                place,
                key_hash,
                finding,
            });
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(Finding::Lost);
    }
}

impl Pipeline {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether more requests may be let in.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.slots.len() < REQUESTS_MAX && self.bytes < BYTES_MAX
    }

    /// Whether there is work that may be begun.
    pub(in crate::server) fn has_work(&self) -> bool {
        // The first of all is under way, or may be begun: so there is always an end to the waiting.
        let running_max = match self.answers_bytes < ANSWERS_BYTES_MAX {
            true => RUNNING_MAX,
            false => 1,
        };
        self.running < running_max && !self.startable.is_empty()
    }

    /// Lets in a request on keys.
    pub(in crate::server) fn push_keys(
        &mut self,
        request: Accepted,
        combined: Combined,
        keys: impl ExactSizeIterator<Item = (Arc<VersionedStore>, Bytes, Operation)>,
    ) {
        let is_muted = request.is_muted;
        let slot = self.push(
            request,
            keys.len(),
            Outcome::Keys(smallvec![None; keys.len()], combined),
        );
        let mut keys = keys.peekable();
        // Most writes are answered so; what stands behind it then need not be moved.
        let may_be_ok = keys
            .peek()
            .is_some_and(|(_, _, operation)| operation.unconditional().is_some());
        if may_be_ok && !is_muted {
            self.written.make_room();
            self.written.buffer.extend_from_slice(OK);
            if let Some(slot) = self.slots.back_mut() {
                slot.written_bytes = OK.len();
            }
        }
        for (key, (store, wire_key, operation)) in keys.enumerate() {
            let part = Part {
                place: Place { slot, key },
                key_hash: xxh3_64(&wire_key),
                store,
                wire_key,
                operation,
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
        let slot = self.push(accepted, 1, Outcome::Replica(None));
        let teller = Teller::new(&self.told, Place { slot, key: 0 }, None);
        self.startable.push_back(Work::Replica(request, teller));
    }

    /// Whether a look-up of a key may be answered at once: nothing is under way on it, and not too many answers wait.
    pub(in crate::server) fn may_answer(&self, wire_key: &[u8]) -> bool {
        may_answer(self.answers_bytes, &self.busy, wire_key)
    }

    /// Lets in a request whose answer is known.
    pub(in crate::server) fn push_known(&mut self, accepted: Accepted, answer: Answer) {
        let bytes = answer.bytes();
        self.answers_bytes += bytes;
        self.push_answered(accepted, Outcome::Known(answer), bytes);
    }

    /// Lets in the first requests of the input that `answer` writes the replies to, if there are any; it is told of which
    /// keys [that may be](Self::may_answer).
    pub(in crate::server) fn push_gets(
        &mut self,
        accepted: Accepted,
        answer: impl FnOnce(&dyn Fn(&[u8]) -> bool, &mut Vec<u8>) -> Option<AnsweredGets>,
    ) -> Option<AnsweredGets> {
        let may_answer = |wire_key: &[u8]| may_answer(self.answers_bytes, &self.busy, wire_key);
        let (gets, bytes) = self.written.add(|written| answer(&may_answer, written))?;
        self.answers_bytes += bytes;
        let accepted = Accepted {
            bytes: gets.bytes,
            ..accepted
        };
        self.push_answered(accepted, Outcome::Written { replies: gets.count }, bytes);
        if let Some(slot) = self.slots.back_mut() {
            slot.written_bytes = bytes;
        }
        Some(gets)
    }

    /// Lets in a request that is refused.
    pub(in crate::server) fn push_refused(&mut self, accepted: Accepted, refusal: String) {
        self.push(accepted, 0, Outcome::Refused(refusal));
    }

    fn push_answered(&mut self, accepted: Accepted, outcome: Outcome, answers_bytes: usize) {
        self.push(accepted, 0, outcome);
        if let Some(slot) = self.slots.back_mut() {
            slot.answers_bytes = answers_bytes;
        }
    }

    fn push(&mut self, accepted: Accepted, left: usize, outcome: Outcome) -> u64 {
        self.bytes += accepted.bytes;
        self.slots.push_back(Slot {
            command: accepted.command,
            began: accepted.began,
            bytes: accepted.bytes,
            answers_bytes: 0,
            written_bytes: 0,
            is_muted: accepted.is_muted,
            left,
            outcome,
        });
        self.first + self.slots.len() as u64 - 1
    }

    fn make_startable(&mut self, part: Part) {
        let teller = Teller::new(&self.told, part.place, Some(part.key_hash));
        self.startable.push_back(Work::Part(part, teller));
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

    /// Waits until work is done that is not [taken note](Self::take_done) of.
    pub(in crate::server) async fn next_done(&self) {
        poll_fn(|context| {
            let mut tidings = self.told.lock();
            if !tidings.done.is_empty() {
                return Poll::Ready(());
            }
            tidings.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Takes note of what is done by now.
    pub(in crate::server) fn take_done(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(&mut self.told.lock().done, &mut taken);
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

    /// Writes the replies to those requests, from the first on, that are done, until there are more bytes than these; and
    /// notes what they were.
    pub(in crate::server) fn answer_done(
        &mut self,
        bytes_max: usize,
        reply: &mut Reply<'_>,
        mut note: impl FnMut(Answered),
    ) {
        while reply.buffer.len() + self.written.due() <= bytes_max
            && let Some(slot) = self.slots.pop_front_if(|slot| slot.left == 0)
        {
            self.first += 1;
            self.bytes -= slot.bytes;
            self.answers_bytes -= slot.answers_bytes;
            let mut answered = Answered {
                command: slot.command,
                began: slot.began,
                count: 1,
                has_failed: false,
            };
            match slot.outcome.settled() {
                Outcome::Written { replies } => {
                    answered.count = replies;
                    self.written.take(slot.written_bytes);
                }
                Outcome::Known(Answer::Ok) if slot.written_bytes > 0 => self.written.take(slot.written_bytes),
                outcome => {
                    self.written.give(reply.buffer);
                    self.written.take_back(slot.written_bytes);
                    let start = reply.buffer.len();
                    answered.has_failed = outcome.write(reply);
                    if slot.is_muted {
                        reply.buffer.truncate(start);
                    }
                }
            }
            note(answered);
        }
        self.written.give(reply.buffer);
    }
}

fn may_answer(answers_bytes: usize, busy: &Busy, wire_key: &[u8]) -> bool {
    let is_busy = || !busy.is_empty() && busy.contains_key(&xxh3_64(wire_key));
    answers_bytes < ANSWERS_BYTES_MAX && !is_busy()
}

/// Bytes that are written at one end, and taken from the other.
#[derive(Default)]
struct Pieces {
    buffer: Vec<u8>,
    /// How many at its start are gone.
    gone: usize,
    /// How many are taken behind them, or gone.
    taken: usize,
}

impl Pieces {
    /// How long was what `write` has written, and what it says of that.
    fn add<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<T>) -> Option<(T, usize)> {
        self.make_room();
        let start = self.buffer.len();
        let found = write(&mut self.buffer);
        if found.is_none() {
            self.buffer.truncate(start);
        }
        found.map(|found| (found, self.buffer.len() - start))
    }

    /// Drops what is gone. What is left is moved for that, but seldom: when it is less.
    fn make_room(&mut self) {
        if self.gone >= PIECES_BYTES_MOVED.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.gone);
            self.taken -= self.gone;
            self.gone = 0;
        }
    }

    /// Takes the next bytes, to be given.
    fn take(&mut self, length: usize) {
        self.taken += length;
    }

    /// How many are taken, and not yet given.
    fn due(&self) -> usize {
        self.taken - self.gone
    }

    /// Puts what was taken behind other bytes. Where that is everything, it takes their place.
    fn give(&mut self, to: &mut Vec<u8>) {
        if self.due() == self.buffer.len() && to.is_empty() {
            std::mem::swap(&mut self.buffer, to);
            self.taken = 0;
        } else {
            to.extend_from_slice(&self.buffer[self.gone..self.taken]);
        }
        self.forget_taken();
    }

    /// Forgets the next bytes, when all before them are given.
    fn take_back(&mut self, length: usize) {
        self.taken += length;
        self.forget_taken();
    }

    fn forget_taken(&mut self) {
        self.gone = self.taken;
        if self.gone == self.buffer.len() {
            (self.gone, self.taken) = (0, 0);
            self.buffer.clear();
            self.buffer.shrink_to(PIECES_BYTES_KEPT);
        }
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
    pub(in crate::server) began: Instant,
    /// How many requests it stands for.
    pub(in crate::server) count: u64,
    pub(in crate::server) has_failed: bool,
}

/// What became of work whose task ended before it was done.
const LOST: &str = "ERR the server could not finish the request, and does not know what came of it";

impl Outcome {
    /// The answer to the request, if it is one for keys.
    fn settled(self) -> Self {
        match self {
            Self::Keys(answers, combined) => Self::Known(combined.of(answers)),
            other => other,
        }
    }

    /// Writes it, if it is not written yet; whether it is an error.
    fn write(self, reply: &mut Reply<'_>) -> bool {
        match self {
            Self::Refused(refusal) => {
                reply.error(&refusal);
                true
            }
            Self::Known(answer) => {
                answer.write(reply);
                matches!(answer, Answer::Error(_))
            }
            Self::Replica(None) => {
                reply.error(LOST);
                true
            }
            Self::Replica(Some(answered)) => {
                answered.write(reply);
                matches!(answered, ReplicaReply::Error(_))
            }
            Self::Keys(answers, combined) => Self::Known(combined.of(answers)).write(reply),
            Self::Written { .. } => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_as_they_went_in_and_what_is_gone_takes_no_room() {
        let (mut pieces, mut out) = (Pieces::default(), Vec::new());
        let (mut waiting, mut written, mut expected) = (VecDeque::new(), 0_u64, Vec::new());
        let mut longest = 0;
        for round in 0..100_000_usize {
            let length = round * 7 % 1_500;
            let piece: Vec<u8> = (0..length).map(|_| (written % 251) as u8).collect();
            written += 1;
            let added = pieces.add(|buffer| {
                buffer.extend_from_slice(&piece);
                (round % 11 > 0).then_some(())
            });
            if let Some((_, added)) = added {
                assert_eq!(added, length);
                waiting.push_back(piece);
            }
            // Of some hundred pieces, one waits all the time, mostly.
            while waiting.len() > usize::from(round % 200 > 0)
                && let Some(piece) = waiting.pop_front()
            {
                match round % 5 {
                    0 => {
                        pieces.give(&mut out);
                        pieces.take_back(piece.len());
                    }
                    _ => {
                        pieces.take(piece.len());
                        expected.extend(piece);
                    }
                }
            }
            if round % 3 == 0 {
                pieces.give(&mut out);
                assert!(out == expected, "{round}");
                out.clear();
                expected.clear();
            }
            longest = longest.max(pieces.buffer.len());
        }
        assert!(longest < 4 * PIECES_BYTES_MOVED, "{longest}");
    }
}
