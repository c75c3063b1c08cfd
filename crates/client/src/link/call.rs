//! Requests to replicas on their way, and where their replies arrive.
//!
//! Beside [`Ask`](super::Ask), which is about the keys of one look-up, a [`Call`] carries a whole request of its
//! own. However it ends, whoever waits for it hears of it, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};
use fondaco_resp::{Reply, ReplyItem};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::quorum::{AskId, Outgoing};
use crate::read::Failure;

/// What came back for a request to a replica.
pub(crate) type CallOutcome = Result<ReplicaReply, Failure>;

/// Several outcomes, of which there is mostly one.
pub(crate) type CallOutcomes = SmallVec<[(AskId, CallOutcome); 1]>;

/// The place where the replies for one operation arrive, from connections and from the replica within the
/// process.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    outcomes: CallOutcomes,
    waker: Option<Waker>,
}

impl Replies {
    /// Takes what has come, if anything has.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<CallOutcomes> {
        let mut inbox = self.inbox.lock();
        if !inbox.outcomes.is_empty() {
            return Poll::Ready(std::mem::take(&mut inbox.outcomes));
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes what has come by now.
    pub(crate) fn take(&self) -> CallOutcomes {
        std::mem::take(&mut self.inbox.lock().outcomes)
    }

    /// Something came back.
    pub(crate) fn push(&self, id: AskId, outcome: CallOutcome) {
        let waker = {
            let mut inbox = self.inbox.lock();
            inbox.outcomes.push((id, outcome));
            inbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request to a replica on its way.
#[derive(Debug)]
pub(crate) struct Call {
    request: ReplicaRequest,
    pub(super) deadline_us: u64,
    /// Who is told of its end; nothing once it was.
    replies: Option<Arc<Replies>>,
    id: AskId,
    in_flight: Option<Arc<AtomicUsize>>,
}

impl Call {
    /// A request of the operation that waits for these replies.
    pub(crate) fn new(outgoing: Outgoing, replies: &Arc<Replies>) -> Self {
        let Outgoing {
            id,
            deadline_us,
            request,
            ..
        } = outgoing;
        Self {
            request,
            deadline_us,
            replies: Some(Arc::clone(replies)),
            id,
            in_flight: None,
        }
    }

    /// It counts in this number until it ends.
    pub(super) fn counted(mut self, in_flight: &Arc<AtomicUsize>) -> Self {
        self.in_flight = Some(Arc::clone(in_flight));
        self
    }

    /// Writes the request, of which so much time is left.
    pub(super) fn write(&self, left_us: u64, writer: &mut Reply<'_>) {
        self.request.write(left_us.div_ceil(1000), writer);
    }

    /// Hands over what a received reply says; false if it is none to this request.
    pub(super) fn answer(mut self, reply: &Bytes, items: &[ReplyItem]) -> bool {
        let reply = ReplicaReply::parse(self.request.operation.command(), reply, items);
        let is_one = reply.is_some();
        // Dropped without an answer, it is lost, as all behind it are: the connection ends.
        if let Some(reply) = reply {
            self.tell(Ok(reply));
        }
        is_one
    }

    pub(super) fn fail(mut self, failure: Failure) {
        self.tell(Err(failure));
    }

    fn tell(&mut self, outcome: CallOutcome) {
        if let Some(replies) = self.replies.take() {
            replies.push(self.id, outcome);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.fetch_sub(1, Relaxed);
        }
        self.tell(Err(Failure::Lost("the connection was given up".into())));
    }
}
