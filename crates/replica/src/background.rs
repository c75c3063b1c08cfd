//! What a chore works with: what all threads share, its signal, and its pace.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use tokio::sync::oneshot;

use crate::pace::Pace;
use crate::shared::Shared;
use crate::store::HeldStore;
use crate::worker::Signal;
use crate::writes::answer::Answer;
use crate::writes::commit::Task;

/// How much longer than a request may take its answer is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// The surroundings of one chore.
pub(crate) struct Background {
    pub(crate) shared: Arc<Shared>,
    pub(crate) signal: Arc<Signal>,
    pace: Pace,
}

impl Background {
    /// A chore that reads or sends so many bytes a second at most.
    pub(crate) fn new(shared: &Arc<Shared>, signal: &Arc<Signal>, bytes_per_second: Option<u64>) -> Self {
        Self {
            shared: Arc::clone(shared),
            signal: Arc::clone(signal),
            pace: Pace::new(bytes_per_second, shared.host.now()),
        }
    }

    /// Whether the chore is to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.signal.has_ended()
    }

    /// Sleeps until it is woken or ended, for so long at most. Whether the chore is to go on.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        self.signal.sleep(time).await
    }

    /// So many bytes were read or sent: pauses as long as that takes. Whether the chore is to go on.
    pub(crate) async fn spend(&mut self, bytes: u64) -> bool {
        self.pace.take(bytes, self.shared.host.now());
        loop {
            let pause = self.pace.pause(self.shared.host.now());
            if pause.is_zero() {
                return !self.has_ended();
            }
            if !self.signal.pause(pause).await {
                return false;
            }
        }
    }

    /// Asks a node, this one included, and waits for the answer.
    ///
    /// # Errors
    /// What it answered instead, or that it did not.
    pub(crate) async fn ask(&self, node: NodeId, request: ReplicaRequest) -> Result<ReplicaReply, ReplicaError> {
        let timeout = Duration::from_millis(request.timeout_ms) + GRACE;
        let until = self.shared.host.now() + timeout;
        let (sender, mut receiver) = oneshot::channel();
        // A chore that waited too long does not receive it.
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

    /// Does something between two groups of a shard, and waits for what comes of it. `None` if the shard has ended.
    pub(crate) async fn between<T: Send + 'static>(
        &self,
        shard: usize,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        // It is not received if the chore was dropped.
        self.shared.between(shard, move || drop(sender.send(action())));
        receiver.await.ok()
    }

    /// Waits until something is committed on a shard.
    ///
    /// # Errors
    /// Why it was not.
    pub(crate) async fn commit(
        &self,
        shard: usize,
        store: Option<&Arc<HeldStore>>,
        task: Task,
    ) -> Result<(), ReplicaError> {
        let (sender, receiver) = oneshot::channel();
        let answer = Answer::to(Box::new(move |reply| drop(sender.send(reply))));
        self.shared.enqueue(shard, 0, store, None, task, answer);
        // Answered in any case, also if the shard panics.
        match receiver.await {
            Ok(ReplicaReply::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
