//! The context of a chore: the state shared by all threads, its signal, and its rate limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::pace::Pace;
use crate::shared::Shared;
use crate::store::HeldStore;
use crate::worker::Signal;
use crate::writes::answer::Answer;
use crate::writes::commit::Task;

/// How long to wait for a reply beyond the timeout of the request.
const GRACE: Duration = Duration::from_secs(1);

/// The context of one chore.
pub(crate) struct Background {
    pub(crate) shared: Arc<Shared>,
    pub(crate) signal: Arc<Signal>,
    pace: Arc<Mutex<Pace>>,
    /// The pace of a chore whose rate limit may change.
    moving: Option<Pace>,
}

impl Background {
    /// The context of a chore that reads or sends at most this many bytes a second.
    pub(crate) fn new(shared: &Arc<Shared>, signal: &Arc<Signal>, bytes_per_second: Option<u64>) -> Self {
        Self {
            shared: Arc::clone(shared),
            signal: Arc::clone(signal),
            pace: Arc::new(Mutex::new(Pace::new(bytes_per_second, shared.host.now()))),
            moving: None,
        }
    }

    /// The context of the chore that compares partitions with other replicas. It shares the rate of exchanges with that of
    /// moves.
    pub(crate) fn exchanging(shared: &Arc<Shared>, signal: &Arc<Signal>) -> Self {
        Self {
            pace: Arc::clone(&shared.exchange_pace),
            ..Self::new(shared, signal, None)
        }
    }

    /// The context of the chore that compares partitions that move to this node: at the lower of the rates of exchanges and
    /// of moves.
    pub(crate) fn moving(shared: &Arc<Shared>, signal: &Arc<Signal>) -> Self {
        Self {
            moving: Some(Pace::new(None, shared.host.now())),
            ..Self::exchanging(shared, signal)
        }
    }

    /// Whether the chore is to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.signal.has_ended()
    }

    /// Sleeps until it is woken or ended, at most for this time. Returns whether the chore should go on.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        self.signal.sleep(time).await
    }

    /// Accounts for bytes that were read or sent: pauses to keep the rate. Returns whether the chore should go on.
    pub(crate) async fn spend(&mut self, bytes: u64) -> bool {
        let now = self.shared.host.now();
        self.pace.lock().take(bytes, now);
        if let Some(moving) = &mut self.moving {
            moving.limit(self.shared.move_rate(), now);
            moving.take(bytes, now);
        }
        loop {
            let now = self.shared.host.now();
            let mut pause = self.pace.lock().pause(now);
            if let Some(moving) = &mut self.moving {
                moving.limit(self.shared.move_rate(), now);
                pause = pause.max(moving.pause(now));
            }
            if pause.is_zero() {
                return !self.has_ended();
            }
            if !self.signal.pause(pause).await {
                return false;
            }
        }
    }

    /// Sends a request to a node, which may be this one, and waits for the reply.
    ///
    /// # Errors
    /// The error that the node returned, or that it did not answer in time.
    pub(crate) async fn ask(&self, node: NodeId, request: ReplicaRequest) -> Result<ReplicaReply, ReplicaError> {
        // The connections to other nodes know whether bytes of a long value move, and answer sooner if none do.
        let timeout = self.shared.options.peer_timeout_max + GRACE;
        let until = self.shared.host.now() + timeout;
        let (sender, mut receiver) = oneshot::channel();
        // If the chore has stopped waiting, the reply is dropped.
        self.shared
            .ask(node, request, Box::new(move |reply| drop(sender.send(reply))));
        let reply = poll_fn(|context| match Pin::new(&mut receiver).poll(context) {
            Poll::Ready(reply) => Poll::Ready(reply.ok()),
            Poll::Pending => self.signal.poll_until(until).map(|()| None),
        });
        match reply.await {
            Some(ReplicaReply::Error(error)) => Err(error),
            Some(reply) => Ok(reply),
            None => Err(ReplicaError::new(
                ReplicaErrorCode::Timeout,
                format!("node {node} did not answer within {} ms", timeout.as_millis()),
            )),
        }
    }

    /// Runs an action between two groups of a shard, and waits for its result. `None` if the shard has ended.
    pub(crate) async fn between<T: Send + 'static>(
        &self,
        shard: usize,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        // If the chore was dropped, nothing receives the result.
        self.shared.between(shard, move || drop(sender.send(action())));
        receiver.await.ok()
    }

    /// Waits until a write is committed on a shard.
    ///
    /// # Errors
    /// Why it was not committed.
    pub(crate) async fn commit(
        &self,
        shard: usize,
        store: Option<&Arc<HeldStore>>,
        task: Task,
    ) -> Result<(), ReplicaError> {
        let (sender, receiver) = oneshot::channel();
        let answer = Answer::to(Box::new(move |reply| drop(sender.send(reply))));
        self.shared.enqueue(shard, 0, store, None, task, answer);
        // There is always a reply, even if the shard panics.
        match receiver.await {
            Ok(ReplicaReply::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
