//! Drives operations on versioned stores: between their logic and the connections, or the replica in the process.
//!
//! The caller waits until an operation is answered. What it does after that, for replicas that were slow or had
//! less, goes on in a task of its own; how many there are is bounded.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use fondaco_model::NodeId;
use fondaco_protocol::now_unix_ms;
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply, ReplicaRequest};
use tokio::sync::watch;

use crate::client::{Client, Inner, Snapshot};
use crate::drive::next_snapshot;
use crate::error::ClientError;
use crate::link::{Call, CallOutcomes, Replies};
use crate::quorum::{Moment, Operation, Outgoing};
use crate::read::Failure;

/// How many operations may go on after they were answered.
const BACKGROUND_MAX: usize = 4096;

/// An operation that is being driven.
struct Run<O> {
    inner: Arc<Inner>,
    operation: O,
    replies: Arc<Replies>,
    snapshot: Arc<Snapshot>,
    newer: Option<watch::Receiver<Option<Arc<Snapshot>>>>,
}

/// What an operation waits for.
enum Wake {
    Replies(CallOutcomes),
    Directory(Arc<Snapshot>),
    Time,
}

/// An operation counts as one in the background until it ends, however it does.
struct InBackground(Arc<Inner>);

impl Drop for InBackground {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Relaxed);
    }
}

impl Inner {
    /// Carries out an operation, and takes its answer. It goes on until it is over, without the caller.
    pub(crate) async fn coordinate<O, T>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Moment<'_>) -> Result<O, ClientError>,
        take: impl FnOnce(&mut O) -> Result<T, ClientError>,
    ) -> Result<T, ClientError>
    where
        O: Operation + Send + 'static,
    {
        let mut run = self.begin(start)?;
        run.until(O::is_answered).await;
        let answer = take(&mut run.operation);
        if let Some(guard) = self.left_to_do(&run) {
            drop(self.transport.spawn(async move {
                let _guard = guard;
                run.until(O::is_over).await;
            }));
        }
        answer
    }

    /// Carries out an operation until it is over, and tells its answer when that is there: for those who have a task
    /// of their own for it.
    pub(crate) async fn coordinate_to_the_end<O, T>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Moment<'_>) -> Result<O, ClientError>,
        take: impl FnOnce(&mut O) -> Result<T, ClientError>,
        answer: impl FnOnce(Result<T, ClientError>),
    ) where
        O: Operation,
    {
        let mut run = match self.begin(start) {
            Ok(run) => run,
            Err(error) => return answer(Err(error)),
        };
        run.until(O::is_answered).await;
        answer(take(&mut run.operation));
        if let Some(_guard) = self.left_to_do(&run) {
            run.until(O::is_over).await;
        }
    }

    fn begin<O: Operation>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Moment<'_>) -> Result<O, ClientError>,
    ) -> Result<Run<O>, ClientError> {
        let snapshot = self.current.load_full().ok_or_else(|| self.no_topology(0))?;
        Ok(Run {
            operation: start(&snapshot, &self.moment(&snapshot))?,
            inner: Arc::clone(self),
            replies: Arc::default(),
            snapshot,
            newer: None,
        })
    }

    /// Whether an operation that is answered is to go on in the background: it is not over, and not too many do.
    fn left_to_do<O: Operation>(self: &Arc<Self>, run: &Run<O>) -> Option<InBackground> {
        if run.operation.is_over() {
            return None;
        }
        let guard = InBackground(Arc::clone(self));
        if self.background.fetch_add(1, Relaxed) >= BACKGROUND_MAX {
            self.counters.abandoned.fetch_add(1, Relaxed);
            return None;
        }
        Some(guard)
    }

    fn moment<'a>(&'a self, snapshot: &'a Snapshot) -> Moment<'a> {
        Moment {
            now_us: self.clock.now_us(),
            now_unix_ms: now_unix_ms(),
            latest: &snapshot.directory,
            steering: &self.steering,
            counts: &self.counters,
        }
    }

    /// Whether a node's replica is the one in this process.
    fn is_local(&self, node: NodeId) -> bool {
        self.replica.as_ref().is_some_and(|local| local.node() == Some(node))
    }

    /// Sends a request to a replica: the one in this process, or over a connection.
    fn send_to_replica(&self, mut outgoing: Outgoing, snapshot: &Snapshot, replies: &Arc<Replies>) {
        let id = outgoing.id;
        if let Some(local) = self.replica.as_ref().filter(|_| self.is_local(outgoing.node)) {
            let replies = Arc::clone(replies);
            return local.request(outgoing.request, Box::new(move |reply| replies.push(id, Ok(reply))));
        }
        if let ReplicaOperation::Put { is_charged, .. } = &mut outgoing.request.operation {
            *is_charged = self.charges_quotas;
        }
        match snapshot.link(outgoing.node) {
            Some(link) => link.call(Call::new(outgoing, replies)),
            None => {
                let reason = "the node is no longer in the topology".into();
                replies.push(id, Err(Failure::Unsent(reason)));
            }
        }
    }
}

impl<O: Operation> Run<O> {
    /// Goes on until the operation is that far.
    async fn until(&mut self, is_there: impl Fn(&O) -> bool) {
        let inner = Arc::clone(&self.inner);
        let mut sleep = inner.alarm.sleep();
        loop {
            self.send();
            if is_there(&self.operation) {
                return;
            }
            let wake_at_us = self.operation.wake_at_us();
            let wake = {
                let mut next = pin!(next_snapshot(self.newer.as_mut()));
                poll_fn(|context| {
                    if let Poll::Ready(outcomes) = self.replies.poll(context) {
                        return Poll::Ready(Wake::Replies(outcomes));
                    }
                    if let Poll::Ready(snapshot) = next.as_mut().poll(context) {
                        return Poll::Ready(Wake::Directory(snapshot));
                    }
                    let now_us = inner.clock.now_us();
                    if now_us >= wake_at_us {
                        return Poll::Ready(Wake::Time);
                    }
                    sleep.until(wake_at_us, now_us, context.waker());
                    Poll::Pending
                })
                .await
            };
            if let Some(latest) = inner.current.load_full() {
                self.snapshot = latest;
            }
            match wake {
                Wake::Replies(outcomes) => self.hear(outcomes),
                Wake::Directory(latest) => {
                    self.snapshot = latest;
                    self.operation.on_directory(&inner.moment(&self.snapshot));
                }
                Wake::Time => {
                    let moment = inner.moment(&self.snapshot);
                    self.operation.on_time(&moment);
                    if self.operation.wake_at_us() <= moment.now_us {
                        // What it waits for may need this thread.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Tells the operation what came back.
    fn hear(&mut self, outcomes: CallOutcomes) {
        let moment = self.inner.moment(&self.snapshot);
        for (id, outcome) in outcomes {
            match outcome {
                Ok(reply) => self.operation.on_reply(id, reply, &moment),
                Err(failure) => self.operation.on_failure(id, failure, &moment),
            }
        }
    }

    /// Sends what the operation wants sent, and does what else it asks for.
    fn send(&mut self) {
        loop {
            let moment = self.inner.moment(&self.snapshot);
            let Some(outgoing) = self.operation.next_send(&moment) else {
                break;
            };
            let is_local = self.inner.is_local(outgoing.node);
            self.inner.send_to_replica(outgoing, &self.snapshot, &self.replies);
            if is_local {
                // What it has in memory it has told already, and others need not.
                self.hear(self.replies.take());
            }
        }
        while let Some(node) = self.operation.take_suspended() {
            tracing::warn!(%node, "a node is suspended: others are asked");
            self.snapshot.link(node).inspect(|link| link.watch());
        }
        if self.operation.take_refresh() {
            self.inner.topology_wanted.notify_one();
        }
        if self.newer.is_none() && self.operation.wants_directory() {
            let mut changed = self.inner.changed.subscribe();
            changed.mark_changed();
            self.newer = Some(changed);
        }
    }
}

impl Client {
    /// Asks one replica one thing, and waits for the answer: for those who compare replicas, or hand over hints.
    /// It is neither retried nor hedged.
    ///
    /// # Errors
    /// [`ClientError::NoTopology`], [`ClientError::Unavailable`], [`ClientError::Overloaded`],
    /// [`ClientError::Timeout`]. What the replica says, errors included, is an answer.
    pub async fn ask_replica(
        &self,
        node: NodeId,
        request: ReplicaRequest,
        timeout: Duration,
    ) -> Result<ReplicaReply, ClientError> {
        let inner = self.inner();
        let snapshot = inner.current.load_full().ok_or_else(|| inner.no_topology(0))?;
        let replies = Arc::<Replies>::default();
        let outgoing = Outgoing {
            id: 0,
            node,
            deadline_us: inner.clock.now_us().saturating_add(timeout.as_micros() as u64),
            request,
        };
        inner.send_to_replica(outgoing, &snapshot, &replies);
        let reply = poll_fn(|context| replies.poll(context));
        let outcomes = tokio::time::timeout(timeout, reply).await;
        let mut outcomes = outcomes.map_err(|_| ClientError::Timeout {
            deadline_ms: timeout.as_millis() as u64,
        })?;
        match outcomes.pop() {
            Some((_, Ok(reply))) => Ok(reply),
            Some((_, Err(Failure::Full { in_flight }))) => Err(ClientError::Overloaded { node, in_flight }),
            Some((_, Err(Failure::Unsent(reason) | Failure::Lost(reason)))) => {
                Err(ClientError::Unavailable { node, reason })
            }
            // What wakes has brought something.
            None => Err(ClientError::Timeout { deadline_ms: 0 }),
        }
    }
}
