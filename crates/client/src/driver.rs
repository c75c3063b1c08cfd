//! The driver of all operations: it connects their logic to the connections, or the replica in the process, with the
//! client's clock and alarm.
//!
//! The caller waits until an operation is answered. A write or read of a versioned store may then continue in a task
//! of its own, for replicas that were slow or had stale records. The number of such tasks is bounded.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use fondaco_ids::Computation;
use fondaco_model::NodeId;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};
use fondaco_protocol::{TraceContext, WireKey, now_unix_ms};
use tokio::sync::watch;

use crate::asks::TRANSFER_US_MAX;
use crate::client::{Client, Inner, Snapshot};
use crate::error::ClientError;
use crate::link::{Ask, Inbox, Outcomes, Request};
use crate::operation::{Environment, Operation, Outgoing};
use crate::options::ReadOptions;
use crate::read::{BatchReply, Failure, NodeHealth, Read};
use crate::trace::{Parts, Sent, Tracing};

/// The number of operations that may continue after they were answered.
const BACKGROUND_MAX: usize = 4096;

/// An operation that is being driven.
pub(crate) struct Run<O: Operation<Request: Request<Reply = O::Reply>>> {
    inner: Arc<Inner>,
    pub(crate) operation: O,
    inbox: OwnInbox<O::Reply>,
    snapshot: Arc<Snapshot>,
    newer: Option<watch::Receiver<Option<Arc<Snapshot>>>>,
    /// The spans of a sampled request.
    parts: Option<Box<Parts>>,
}

/// The inbox of an operation, closed when the operation is over or abandoned.
struct OwnInbox<R>(Arc<Inbox<R>>);

impl<R> Drop for OwnInbox<R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The reason for waking an operation.
enum Wake<R> {
    Outcomes(Outcomes<R>),
    Directory(Arc<Snapshot>),
    Time,
}

/// The time of one step of an operation. Clocks are read once for each step, not for each of its requests.
#[derive(Clone, Copy)]
struct Now {
    us: u64,
    unix_ms: u64,
}

/// Counts an operation as a background one until it ends in any way.
struct InBackground(Arc<Inner>);

impl Drop for InBackground {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Relaxed);
    }
}

impl Inner {
    /// Carries out a look-up.
    pub(crate) async fn read(
        self: &Arc<Self>,
        keys: Vec<WireKey>,
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        let mut run = self.begin(|_, env| Read::start(Arc::new(keys), options.clone(), env))?;
        run.until(Read::is_over).await;
        run.operation.finish()
    }

    /// Has nodes compute over the values of keys: sets of ids, or fields.
    pub(crate) async fn compute(
        self: &Arc<Self>,
        keys: Vec<WireKey>,
        computation: Computation,
        options: &ReadOptions,
    ) -> Result<BatchReply, ClientError> {
        let mut run = self.begin(|_, env| Read::compute(Arc::new(keys), computation, options.clone(), env))?;
        run.until(Read::is_over).await;
        run.operation.finish()
    }

    /// Carries out an operation, and takes its answer. The operation continues until it is over, without the caller.
    pub(crate) async fn coordinate<O, T>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Environment<'_>) -> Result<O, ClientError>,
        take: impl FnOnce(&mut O) -> Result<T, ClientError>,
    ) -> Result<T, ClientError>
    where
        O: Operation<Request = ReplicaRequest, Reply = ReplicaReply> + Send + 'static,
    {
        let mut run = self.begin(start)?;
        run.until(O::is_answered).await;
        let answer = run.take(take);
        if let Some(guard) = self.left_to_do(&run.operation) {
            drop(self.transport.spawn(async move {
                let _guard = guard;
                run.until(O::is_over).await;
            }));
        }
        answer
    }

    /// Carries out an operation until it is over, and sends its answer as soon as it is available: for callers with a
    /// task of their own for it.
    pub(crate) async fn coordinate_to_the_end<O, T>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Environment<'_>) -> Result<O, ClientError>,
        take: impl FnOnce(&mut O) -> Result<T, ClientError>,
        answer: impl FnOnce(Result<T, ClientError>),
    ) where
        O: Operation<Request = ReplicaRequest, Reply = ReplicaReply>,
    {
        let mut run = match self.begin(start) {
            Ok(run) => run,
            Err(error) => return answer(Err(error)),
        };
        run.until(O::is_answered).await;
        answer(run.take(take));
        if let Some(_guard) = self.left_to_do(&run.operation) {
            run.until(O::is_over).await;
        }
    }

    pub(crate) fn begin<O: Operation<Request: Request<Reply = O::Reply>>>(
        self: &Arc<Self>,
        start: impl FnOnce(&Snapshot, &Environment<'_>) -> Result<O, ClientError>,
    ) -> Result<Run<O>, ClientError> {
        let snapshot = self.newest()?;
        let operation = start(&snapshot, &self.env(&snapshot, self.now()))?;
        Ok(Run {
            parts: Tracing::current().map(|tracing| Parts::of(tracing, operation.described())),
            operation,
            inner: Arc::clone(self),
            inbox: OwnInbox(Arc::default()),
            snapshot,
            newer: None,
        })
    }

    /// Whether an answered operation continues in the background: it is not over, and the number of others is below the
    /// limit.
    fn left_to_do(self: &Arc<Self>, operation: &impl Operation) -> Option<InBackground> {
        if operation.is_over() {
            return None;
        }
        let guard = InBackground(Arc::clone(self));
        if self.background.fetch_add(1, Relaxed) >= BACKGROUND_MAX {
            self.counters.abandoned.fetch_add(1, Relaxed);
            return None;
        }
        Some(guard)
    }

    fn now(&self) -> Now {
        Now {
            us: self.clock.now_us(),
            unix_ms: now_unix_ms(),
        }
    }

    fn env<'a>(&'a self, snapshot: &'a Snapshot, now: Now) -> Environment<'a> {
        Environment {
            now_us: now.us,
            now_unix_ms: now.unix_ms,
            latest: &snapshot.directory,
            steering: &self.steering,
            counts: &self.counters,
        }
    }

    /// Sends a request over a connection to its node.
    fn send<Q: Request>(
        &self,
        outgoing: Outgoing<Q>,
        trace: Option<TraceContext>,
        snapshot: &Snapshot,
        inbox: &Arc<Inbox<Q::Reply>>,
    ) {
        match snapshot.link(outgoing.node) {
            Some(link) => link.submit(Ask::new(outgoing, trace, inbox)),
            None => {
                let reason = "the node is no longer in the topology".into();
                inbox.push(outgoing.id, Err(Failure::Unsent(reason)));
            }
        }
    }
}

impl<O: Operation<Request: Request<Reply = O::Reply>>> Run<O> {
    /// Runs the operation until `is_there` holds.
    pub(crate) async fn until(&mut self, is_there: impl Fn(&O) -> bool) {
        let inner = Arc::clone(&self.inner);
        let mut sleep = inner.alarm.sleep();
        let mut now = inner.now();
        loop {
            self.send(now);
            if is_there(&self.operation) {
                return;
            }
            let wake_at_us = self.operation.wake_at_us();
            let wake = {
                let mut next = pin!(next_snapshot(self.newer.as_mut()));
                poll_fn(|context| {
                    if let Poll::Ready(outcomes) = self.inbox.0.poll(context) {
                        return Poll::Ready(Wake::Outcomes(outcomes));
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
            if let Some(latest) = &*inner.current.load()
                && !Arc::ptr_eq(latest, &self.snapshot)
            {
                self.snapshot = Arc::clone(latest);
            }
            now = inner.now();
            match wake {
                Wake::Outcomes(outcomes) => self.hear(outcomes, now),
                Wake::Directory(latest) => {
                    self.snapshot = latest;
                    self.operation.on_directory(&inner.env(&self.snapshot, now));
                }
                Wake::Time => {
                    let env = inner.env(&self.snapshot, now);
                    self.operation.on_time(&env);
                    if self.operation.wake_at_us() <= env.now_us {
                        // The awaited result may need this thread.
                        tokio::task::yield_now().await;
                        now = inner.now();
                    }
                }
            }
        }
    }

    /// Passes results to the operation.
    fn hear(&mut self, outcomes: Outcomes<O::Reply>, now: Now) {
        let env = self.inner.env(&self.snapshot, now);
        for (id, outcome) in outcomes {
            if let Some(parts) = &mut self.parts {
                parts.heard(id, error_of::<O::Request>(&outcome).as_deref());
            }
            match outcome {
                Ok(reply) => self.operation.on_reply(id, reply, &env),
                Err(failure) => self.operation.on_failure(id, failure, &env),
            }
        }
    }

    /// Sends the operation's requests, and carries out its other demands.
    fn send(&mut self, mut now: Now) {
        loop {
            let env = self.inner.env(&self.snapshot, now);
            let Some(outgoing) = self.operation.next_send(&env) else {
                break;
            };
            let trace = self.begin_span(&outgoing);
            let (id, inbox) = (outgoing.id, &self.inbox.0);
            match O::Request::carry_out_here(outgoing, &self.inner, inbox) {
                Some(outgoing) => self.inner.send(outgoing, trace, &self.snapshot, inbox),
                // The replica answered from memory already; the other outcomes need no wake-up.
                None => {
                    if let Some(parts) = &mut self.parts {
                        parts.is_here(id);
                    }
                    let outcomes = inbox.take();
                    now = self.inner.now();
                    self.hear(outcomes, now);
                }
            }
        }
        while let Some(node) = self.operation.take_suspended() {
            tracing::warn!(%node, "a node is suspended: using other nodes");
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

impl<O: Operation<Request: Request<Reply = O::Reply>>> Run<O> {
    /// Takes the answer.
    fn take<T>(&mut self, take: impl FnOnce(&mut O) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let answer = take(&mut self.operation);
        if let Some(parts) = &mut self.parts {
            parts.answered(answer.as_ref().err().map(ClientError::code));
        }
        answer
    }

    /// Begins the span of a request, if it is sampled: what it carries along.
    #[inline]
    fn begin_span(&mut self, outgoing: &Outgoing<O::Request>) -> Option<TraceContext> {
        let parts = self.parts.as_mut()?;
        let member = self.snapshot.directory.member(outgoing.node);
        let sent = Sent {
            id: outgoing.id,
            node: outgoing.node,
            address: member.map(|member| &*member.address),
            role: self.operation.role(outgoing.id),
        };
        parts.sent(&sent, &outgoing.request.described())
    }
}

/// The error that a request ended with, its code first.
fn error_of<Q: Request>(outcome: &Result<Q::Reply, Failure>) -> Option<Cow<'_, str>> {
    match outcome {
        Ok(reply) => Q::error_of(reply),
        Err(Failure::Unsent(_)) => Some("UNSENT".into()),
        Err(Failure::Full { .. }) => Some("OVERLOADED".into()),
        Err(Failure::Lost(_)) => Some("LOST".into()),
    }
}

/// The next snapshot; pending for ever if none is waited for.
async fn next_snapshot(newer: Option<&mut watch::Receiver<Option<Arc<Snapshot>>>>) -> Arc<Snapshot> {
    if let Some(newer) = newer {
        while newer.changed().await.is_ok() {
            let snapshot = newer.borrow_and_update().clone();
            if let Some(snapshot) = snapshot {
                return snapshot;
            }
        }
    }
    std::future::pending().await
}

/// Whether bytes of a long value moved to a node or from it within the last such time, since a request was made that has not
/// taken too long altogether.
fn is_moving(health: &NodeHealth, begun_us: u64, now_us: u64, within: Duration) -> bool {
    let moved_at_us = health.moved_at_us();
    moved_at_us > begun_us.max(now_us.saturating_sub(within.as_micros() as u64))
        && now_us < begun_us.saturating_add(TRANSFER_US_MAX)
}

impl Client {
    /// Sends one request to one replica, and waits for the answer: for anti-entropy and hinted handoff. It is neither
    /// retried nor hedged.
    ///
    /// # Errors
    /// [`ClientError::NoTopology`], [`ClientError::Unavailable`], [`ClientError::Overloaded`],
    /// [`ClientError::Timeout`]. An error that the replica answers is an answer.
    pub async fn ask_replica(
        &self,
        node: NodeId,
        request: ReplicaRequest,
        timeout: Duration,
    ) -> Result<ReplicaReply, ClientError> {
        let inner = self.inner();
        let snapshot = inner.newest()?;
        let inbox = Arc::<Inbox<ReplicaReply>>::default();
        let outgoing = Outgoing {
            id: 0,
            node,
            deadline_us: inner.clock.now_us().saturating_add(timeout.as_micros() as u64),
            request,
        };
        if let Some(outgoing) = ReplicaRequest::carry_out_here(outgoing, inner, &inbox) {
            inner.send(outgoing, None, &snapshot, &inbox);
        }
        let begun_us = inner.clock.now_us();
        let mut outcomes = loop {
            let reply = poll_fn(|context| inbox.poll(context));
            if let Ok(outcomes) = tokio::time::timeout(timeout, reply).await {
                break outcomes;
            }
            // The time limit is that of a node that does nothing: bytes of long values take theirs.
            let member = snapshot.directory.member(node);
            if !member.is_some_and(|member| is_moving(&member.health, begun_us, inner.clock.now_us(), timeout)) {
                return Err(ClientError::Timeout {
                    deadline_ms: timeout.as_millis() as u64,
                });
            }
        };
        match outcomes.pop() {
            Some((_, Ok(reply))) => Ok(reply),
            Some((_, Err(Failure::Full { in_flight }))) => Err(ClientError::Overloaded { node, in_flight }),
            Some((_, Err(Failure::Unsent(reason) | Failure::Lost(reason)))) => {
                Err(ClientError::Unavailable { node, reason })
            }
            // A wake-up always brings an outcome.
            None => Err(ClientError::Timeout { deadline_ms: 0 }),
        }
    }
}
