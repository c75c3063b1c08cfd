//! A request on its way to a node, and the inbox of the operation that waits for the result.
//!
//! Each operation has one inbox. Its lock is held only to move an outcome in or out.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fondaco_model::versioned::Change;
use fondaco_protocol::TraceContext;
use fondaco_protocol::replica::{Held, KeyRecord, Known, RecordPart, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_resp::ReplyItem;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::Message;
use super::long_values::{LONG_BYTES, LongValues};
use crate::client::Inner;
use crate::operation::{AskId, Described, Outgoing};
use crate::read::{Answer, BatchRequest, Element, Failure};

/// How long a request has left that waited behind a long value which is being sent.
const LEFT_AFTER_MOVE_US: u64 = 1_000_000;

/// A request that a connection can carry.
pub(crate) trait Request: Sized {
    /// The reply to it.
    type Reply;

    /// Whether it need not be sent once the operation is over.
    const ENDS_WITH_OPERATION: bool;

    /// Whether it or its answer takes so long that requests behind it should not wait for it.
    fn is_long(&self, long_values: &LongValues) -> bool;

    /// Notes the lengths of the values in its answer.
    fn note_lengths(&self, reply: &Self::Reply, long_values: &LongValues);

    /// Its description in a span.
    fn described(&self) -> Described<'_>;

    /// The error that is in a reply, the first one if several are, its code first.
    fn error_of(reply: &Self::Reply) -> Option<Cow<'_, str>>;

    /// The request, as a message to a connection.
    fn message(ask: Ask<Self>) -> Message;

    /// Carries the request out within the process if its node is the local one; else returns it, ready for a
    /// connection.
    fn carry_out_here(
        outgoing: Outgoing<Self>,
        _inner: &Inner,
        _inbox: &Arc<Inbox<Self::Reply>>,
    ) -> Option<Outgoing<Self>> {
        Some(outgoing)
    }
}

impl Request for BatchRequest {
    type Reply = Answer;
    const ENDS_WITH_OPERATION: bool = true;

    fn is_long(&self, long_values: &LongValues) -> bool {
        self.computation.is_some() || self.keys().any(|key| long_values.has(self.store_id, key.key()))
    }

    fn note_lengths(&self, reply: &Answer, long_values: &LongValues) {
        if let (Answer::Elements(elements), None) = (reply, &self.computation) {
            for (key, element) in self.keys().zip(elements) {
                if let Element::Value(Some(value)) = element {
                    long_values.note(self.store_id, key.key(), value.len());
                }
            }
        }
    }

    fn described(&self) -> Described<'_> {
        Described {
            name: self.computation.as_ref().map_or("FONDACO.READ", |_| "FONDACO.COMPUTE"),
            store: self.store(),
            keys: self.places.len(),
        }
    }

    fn error_of(reply: &Answer) -> Option<Cow<'_, str>> {
        let error = match reply {
            Answer::Error(error) => Some(error),
            Answer::Elements(elements) => elements.iter().find_map(|element| match element {
                Element::Error(error) => Some(error),
                Element::Value(_) => None,
            }),
        };
        error.map(|error| String::from_utf8_lossy(error))
    }

    fn message(ask: Ask<Self>) -> Message {
        Message::Read(ask)
    }
}

impl Request for ReplicaRequest {
    type Reply = ReplicaReply;
    const ENDS_WITH_OPERATION: bool = false;

    fn is_long(&self, long_values: &LongValues) -> bool {
        let is_long = |key: &[u8]| long_values.has(self.store_id, key);
        match &self.operation {
            ReplicaOperation::Get {
                part: RecordPart::Context,
                ..
            } => false,
            ReplicaOperation::Get { keys, .. } => keys.iter().any(|key| is_long(key)),
            ReplicaOperation::GetOther { keys } => keys.iter().any(|known| is_long(&known.key)),
            ReplicaOperation::Put { key, update, .. } => {
                let bytes = match &update.change {
                    Change::Put(value) => value.len(),
                    _ => 0,
                };
                long_values.note(self.store_id, key, bytes);
                bytes >= LONG_BYTES
            }
            ReplicaOperation::Merge { records } | ReplicaOperation::Hint { records, .. } => {
                let lengths = records.iter().map(|KeyRecord { key, record }| {
                    long_values.note(self.store_id, key, record.len());
                    record.len()
                });
                lengths.sum::<usize>() >= LONG_BYTES
            }
            // Their answers have records of all lengths, and they are made in the background.
            ReplicaOperation::Sync { .. } => true,
            ReplicaOperation::Tree { .. } | ReplicaOperation::OldestHint => false,
        }
    }

    fn note_lengths(&self, reply: &ReplicaReply, long_values: &LongValues) {
        let ReplicaReply::Records(records) = reply else { return };
        let note = |key: &[u8], record: &Result<Held, _>| {
            if let Ok(Held::Record(record)) = record {
                long_values.note(self.store_id, key, record.len());
            }
        };
        match &self.operation {
            ReplicaOperation::Get {
                part: RecordPart::Full,
                keys,
            } => {
                keys.iter().zip(records).for_each(|(key, record)| note(key, record));
            }
            ReplicaOperation::GetOther { keys } => {
                let asked = keys.iter().zip(records).filter(|(key, _)| key.known == Known::Nothing);
                asked.for_each(|(key, record)| note(&key.key, record));
            }
            _ => {}
        }
    }

    fn described(&self) -> Described<'_> {
        Described {
            name: self.operation.command().name(),
            store: self.store.as_str(),
            keys: self.operation.key_count(),
        }
    }

    fn error_of(reply: &ReplicaReply) -> Option<Cow<'_, str>> {
        let error = match reply {
            ReplicaReply::Error(error) => Some(error),
            ReplicaReply::Records(records) => records.iter().find_map(|record| record.as_ref().err()),
            _ => None,
        };
        error.map(|error| error.code.as_str().into())
    }

    fn message(ask: Ask<Self>) -> Message {
        // Boxed because they are rare and larger than the other entries of the queue.
        Message::Replica(Box::new(ask))
    }

    fn carry_out_here(
        mut outgoing: Outgoing<Self>,
        inner: &Inner,
        inbox: &Arc<Inbox<ReplicaReply>>,
    ) -> Option<Outgoing<Self>> {
        let here = inner.replica.as_ref();
        if let Some(replica) = here.filter(|replica| replica.node() == Some(outgoing.node)) {
            let (id, inbox) = (outgoing.id, Arc::clone(inbox));
            replica.request(outgoing.request, Box::new(move |reply| inbox.push(id, Ok(reply))));
            return None;
        }
        if let ReplicaOperation::Put { is_charged, .. } = &mut outgoing.request.operation {
            *is_charged = inner.charges_quotas;
        }
        Some(outgoing)
    }
}

/// The outcomes for the requests of one operation: mostly one.
pub(crate) type Outcomes<R> = SmallVec<[(AskId, Result<R, Failure>); 1]>;

/// Receives the outcomes for the requests of one operation, from connections and from the replica within the process.
#[derive(Debug)]
pub(crate) struct Inbox<R> {
    arrived: Mutex<Arrived<R>>,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Arrived<R> {
    outcomes: Outcomes<R>,
    waker: Option<Waker>,
}

impl<R> Default for Inbox<R> {
    fn default() -> Self {
        Self {
            arrived: Mutex::new(Arrived {
                outcomes: SmallVec::new(),
                waker: None,
            }),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl<R> Inbox<R> {
    /// Takes the outcomes that have arrived, if any.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcomes<R>> {
        let mut arrived = self.arrived.lock();
        if !arrived.outcomes.is_empty() {
            return Poll::Ready(std::mem::take(&mut arrived.outcomes));
        }
        match &mut arrived.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the outcomes that have arrived by now.
    pub(crate) fn take(&self) -> Outcomes<R> {
        std::mem::take(&mut self.arrived.lock().outcomes)
    }

    /// Adds an outcome.
    pub(crate) fn push(&self, id: AskId, outcome: Result<R, Failure>) {
        let waker = {
            let mut arrived = self.arrived.lock();
            arrived.outcomes.push((id, outcome));
            arrived.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Discards all further outcomes.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }
}

/// A request on its way. Its operation gets exactly one outcome for it.
pub(crate) struct Ask<Q: Request> {
    pub(super) request: Q,
    pub(super) deadline_us: u64,
    /// `None` once the outcome was delivered.
    inbox: Option<Arc<Inbox<Q::Reply>>>,
    id: AskId,
    in_flight: Option<Arc<AtomicUsize>>,
    long_values: Option<Arc<LongValues>>,
    /// The trace context that it carries, if the request is sampled.
    pub(super) trace: Option<Box<TraceContext>>,
}

impl<Q: Request> Ask<Q> {
    /// A request of the operation with this inbox.
    pub(crate) fn new(outgoing: Outgoing<Q>, trace: Option<TraceContext>, inbox: &Arc<Inbox<Q::Reply>>) -> Self {
        Self {
            request: outgoing.request,
            deadline_us: outgoing.deadline_us,
            inbox: Some(Arc::clone(inbox)),
            id: outgoing.id,
            in_flight: None,
            long_values: None,
            trace: trace.map(Box::new),
        }
    }

    /// Counts it in this number until it ends, and notes there which values are long.
    pub(super) fn counted(mut self, in_flight: &Arc<AtomicUsize>, long_values: &Arc<LongValues>) -> Self {
        self.in_flight = Some(Arc::clone(in_flight));
        self.long_values = Some(Arc::clone(long_values));
        self
    }

    /// The time left, in microseconds, given when bytes of a long value last moved: it may have waited for those. `None` if it
    /// is not to be sent any more.
    pub(super) fn left_us(&self, now_us: u64, moved_at_us: u64) -> Option<u64> {
        let is_over = |inbox: &Arc<Inbox<_>>| Q::ENDS_WITH_OPERATION && inbox.is_closed.load(Relaxed);
        let after_move_us = match moved_at_us {
            0 => 0,
            moved_at_us => moved_at_us.saturating_add(LEFT_AFTER_MOVE_US),
        };
        let left_us = self.deadline_us.max(after_move_us).saturating_sub(now_us);
        (left_us > 0 && !self.inbox.as_ref().is_none_or(is_over)).then_some(left_us)
    }

    pub(super) fn answer(mut self, reply: Q::Reply) {
        if let Some(long_values) = self.long_values.take() {
            self.request.note_lengths(&reply, &long_values);
        }
        self.deliver(Ok(reply));
    }

    pub(super) fn fail(mut self, failure: Failure) {
        self.deliver(Err(failure));
    }

    /// Ends it: it was not sent in time.
    pub(super) fn expire(self) {
        self.fail(Failure::Unsent("its deadline passed before it could be sent".into()));
    }

    fn deliver(&mut self, outcome: Result<Q::Reply, Failure>) {
        if let Some(inbox) = self.inbox.take() {
            inbox.push(self.id, outcome);
        }
    }
}

impl Ask<ReplicaRequest> {
    /// Delivers a received reply; false if it is no reply to this request.
    pub(super) fn answer_received(self, reply: &Bytes, items: &[ReplyItem]) -> bool {
        let reply = ReplicaReply::parse(self.request.operation.command(), reply, items);
        let is_one = reply.is_some();
        // Without an answer it is dropped and thereby lost, like all requests behind it: the connection ends.
        if let Some(reply) = reply {
            self.answer(reply);
        }
        is_one
    }
}

impl<Q: Request> Drop for Ask<Q> {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.fetch_sub(1, Relaxed);
        }
        self.deliver(Err(Failure::Lost("the connection was closed".into())));
    }
}
