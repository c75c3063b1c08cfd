//! Between a request and the connections that carry its parts: where events arrive.
//!
//! One allocation a request. Its lock is touched by that request and by whoever has an answer for it, for
//! as long as it takes to move the answer in or out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use fondaco_model::VersionNumber;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::read::{Answer, Failure, SubId, SubRequest};
use fondaco_protocol::WireKey;

/// What came back for a sub-request.
#[derive(Debug)]
pub(crate) enum Event {
    Answer(SubId, Answer),
    Failure(SubId, Failure),
}

/// Several events, of which there is mostly one.
pub(crate) type Events = SmallVec<[Event; 1]>;

/// The place where the events of one request arrive.
#[derive(Debug)]
pub(crate) struct Exchange {
    keys: Arc<Vec<WireKey>>,
    inbox: Mutex<Inbox>,
    /// Nobody waits any more.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    events: Events,
    waker: Option<Waker>,
}

impl Exchange {
    pub(crate) fn new(keys: Arc<Vec<WireKey>>) -> Arc<Self> {
        Arc::new(Self {
            keys,
            inbox: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// Takes what has come, if anything has.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Events> {
        let mut inbox = self.inbox.lock();
        if !inbox.events.is_empty() {
            return Poll::Ready(std::mem::take(&mut inbox.events));
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Nobody will wait any more: what was not sent yet need not be.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    fn push(&self, event: Event) {
        let waker = {
            let mut inbox = self.inbox.lock();
            inbox.events.push(event);
            inbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A sub-request on its way. However it ends, the request hears of it, once.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Nothing once the request has heard.
    exchange: Option<Arc<Exchange>>,
    in_flight: Option<Arc<AtomicUsize>>,
    id: SubId,
    pub(super) store_id: u16,
    pub(super) version: VersionNumber,
    pub(super) deadline_us: u64,
    keys: SmallVec<[u32; 6]>,
}

impl Ask {
    pub(crate) fn new(exchange: &Arc<Exchange>, sub: &SubRequest<'_>) -> Self {
        Self {
            exchange: Some(Arc::clone(exchange)),
            in_flight: None,
            id: sub.id,
            store_id: sub.store_id,
            version: sub.version,
            deadline_us: sub.deadline_us,
            keys: SmallVec::from_slice(sub.keys),
        }
    }

    /// It counts in this number until it ends.
    pub(super) fn counted(mut self, in_flight: &Arc<AtomicUsize>) -> Self {
        self.in_flight = Some(Arc::clone(in_flight));
        self
    }

    /// Whether somebody waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.exchange
            .as_ref()
            .is_some_and(|exchange| !exchange.ended.load(Relaxed))
    }

    /// The keys to ask for.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &WireKey> {
        let keys = self.exchange.as_ref().map_or(&[][..], |exchange| &exchange.keys[..]);
        self.keys.iter().map(|&place| &keys[place as usize])
    }

    /// The name of the store that all its keys are of.
    pub(super) fn store(&self) -> &str {
        self.keys().next().map_or("", WireKey::store)
    }

    pub(super) fn answer(mut self, answer: Answer) {
        self.tell(Event::Answer(self.id, answer));
    }

    pub(super) fn fail(mut self, failure: Failure) {
        self.tell(Event::Failure(self.id, failure));
    }

    /// Ends it without an event: it was never accepted.
    pub(super) fn forget(mut self) {
        self.exchange = None;
    }

    fn tell(&mut self, event: Event) {
        if let Some(exchange) = self.exchange.take() {
            exchange.push(event);
        }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.fetch_sub(1, Relaxed);
        }
        self.tell(Event::Failure(
            self.id,
            Failure::Lost("the connection was given up".into()),
        ));
    }
}
