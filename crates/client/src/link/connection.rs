//! One live connection: sends requests in order, and receives the answers in that order.
//!
//! All requests that are queued when its turn comes go out in one write, [combined](super::coalescing) where possible. A
//! combined request that has room for more waits until the runtime has polled its sockets once: clients that are ready
//! by then join it. The runtime does not sleep meanwhile, so a request waits for work that is there, never for time.
//! A node that is silent while it owes answers is probed over a separate connection: a slow node answers the probe, a
//! dead one does not.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use fondaco_protocol::replica::{ReplicaRequest, Splices};
use fondaco_resp::{Protocol, Reply, ReplyItems, ReplyParse, parse_reply};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::Message;
use super::ask::Ask;
use super::coalescing::{Coalesced, Owed};
use super::connection_loop::ConnectionLoop;
use super::long_values::LONG_BYTES;
use super::transport::Stream;
use crate::read::BatchRequest;

/// Requests are taken from the queue while fewer bytes than this wait to be written.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// A larger buffer is freed after use.
const OUTPUT_BYTES_KEPT_MAX: usize = 64 * 1024;
const INPUT_CHUNK_BYTES: usize = 32 * 1024;
/// The most bytes of long values that are moved before the other tasks of the runtime have their turn.
const TURN_BYTES: usize = 256 * 1024;
/// The number of requests taken from the queue at a time.
const TAKEN_MAX: usize = 256;

/// Why a connection ended.
pub(super) enum End {
    /// The client no longer uses it.
    Unused,
    /// It broke.
    Broken(Arc<str>),
}

/// How often a node is asked for its rate of requests, which costs a few bytes.
const RATE_PERIOD_US: u64 = 100_000;

/// A live connection.
pub(super) struct Connection<'a> {
    owner: &'a mut ConnectionLoop,
    stream: Stream,
    taken: Vec<Message>,
    /// Requests to be combined.
    coalesced: Coalesced,
    /// Whether they wait until the runtime has polled its sockets.
    gathers: bool,
    output: Vec<u8>,
    /// Long strings of the output.
    splices: Splices,
    written: usize,
    unflushed: bool,
    input: BytesMut,
    /// The number of input bytes needed before parsing can succeed.
    needed: usize,
    items: ReplyItems,
    owed: Owed,
    /// When a byte last arrived, or when the first outstanding request was sent.
    heard_us: u64,
    /// When the node is next asked for its rate of requests.
    rate_wanted_at_us: u64,
    /// The node is suspended, and this connection must probe it.
    watching: bool,
    unused: bool,
    timer: Pin<Box<Sleep>>,
    timer_set: bool,
    probe: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(owner: &'a mut ConnectionLoop, stream: Stream) -> Self {
        let heard_us = owner.clock.now_us();
        Self {
            timer: Box::pin(tokio::time::sleep_until(owner.clock.at(heard_us))),
            owner,
            stream,
            taken: Vec::new(),
            coalesced: Coalesced::default(),
            gathers: false,
            output: Vec::new(),
            splices: Splices::default(),
            written: 0,
            unflushed: false,
            input: BytesMut::new(),
            needed: 1,
            items: ReplyItems::new(),
            owed: Owed::default(),
            heard_us,
            rate_wanted_at_us: heard_us,
            watching: false,
            unused: false,
            timer_set: false,
            probe: None,
        }
    }

    /// Carries requests until the connection is over. Unanswered requests are lost then.
    pub(super) async fn serve(mut self) -> End {
        let end = poll_fn(|context| self.poll(context)).await;
        let reason: Arc<str> = match &end {
            End::Unused => "the client was dropped".into(),
            End::Broken(reason) => Arc::clone(reason),
        };
        self.owed.fail(&reason);
        self.coalesced.fail(&reason);
        end
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        match self.poll_io(context) {
            Poll::Ready(Ok(())) => Poll::Ready(End::Unused),
            Poll::Ready(Err(error)) => Poll::Ready(End::Broken(error.to_string().into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_io(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Requests wait once, however the connection is woken then.
        let may_gather = !std::mem::take(&mut self.gathers);
        let mut moved = 0;
        loop {
            let took = self.take_requests(context);
            self.encode_or_gather(may_gather, context);
            let wrote = self.write(context)?;
            let read = self.read(context)?;
            self.mind_silence(context)?;
            if self.unused && self.owed.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !took && wrote == 0 && read == 0 {
                return Poll::Pending;
            }
            moved += wrote + read;
            if moved >= TURN_BYTES {
                wake_after_next_poll(context);
                return Poll::Pending;
            }
        }
    }

    /// Takes requests from the queue, as long as their bytes can be written.
    fn take_requests(&mut self, context: &mut Context<'_>) -> bool {
        if self.unused || self.output.len() - self.written >= OUTPUT_BYTES_MAX || !self.splices.is_empty() {
            return false;
        }
        let requests: &mut mpsc::UnboundedReceiver<Message> = &mut self.owner.requests;
        match requests.poll_recv_many(context, &mut self.taken, TAKEN_MAX) {
            Poll::Pending => return false,
            Poll::Ready(0) => self.unused = true,
            Poll::Ready(_) => {}
        }
        let now_us = self.owner.clock.now_us();
        let mut taken = std::mem::take(&mut self.taken);
        for message in taken.drain(..) {
            match message {
                Message::Read(ask) => self.join(ask, now_us),
                Message::Replica(ask) => self.encode_alone(ask, now_us),
                Message::Watch => {
                    (self.watching, self.timer_set) = (true, false);
                }
            }
        }
        self.taken = taken;
        true
    }

    /// Writes the combined request to the output, or lets it wait for the requests that the runtime's next poll brings.
    ///
    /// Under load, several clients become ready while their runtime is busy with others. A request to the node costs both
    /// ends a system call, and the node a wake-up, however many keys it has.
    fn encode_or_gather(&mut self, may_gather: bool, context: &mut Context<'_>) {
        if self.coalesced.is_empty() {
            return;
        }
        // With nothing else under way, the client may be the only one.
        let is_alone = self.owed.is_empty() && self.coalesced.is_single();
        if !may_gather || self.unused || is_alone || self.coalesced.is_full() {
            return self.encode(self.owner.clock.now_us());
        }
        if !std::mem::replace(&mut self.gathers, true) {
            wake_after_next_poll(context);
        }
    }

    /// Combines a request with the pending ones, or sends those and begins anew.
    fn join(&mut self, ask: Ask<BatchRequest>, now_us: u64) {
        let Some(left_us) = ask.left_us(now_us, self.owner.health.moved_at_us()) else {
            return ask.expire();
        };
        let timeout_ms = left_us.div_ceil(1000);
        if !self.coalesced.fits(&ask, timeout_ms) {
            self.encode(now_us);
        }
        self.coalesced.push(ask, timeout_ms);
    }

    /// Writes the combined request to the output.
    fn encode(&mut self, now_us: u64) {
        if self.owed.is_empty() {
            self.heard_us = now_us;
        }
        if self.coalesced.is_empty() {
            return;
        }
        let wants_rate = now_us >= self.rate_wanted_at_us;
        if wants_rate {
            self.rate_wanted_at_us = now_us + RATE_PERIOD_US;
        }
        let protocol = self.owner.transport.protocol.load(Relaxed);
        self.coalesced
            .encode(&mut self.output, &mut self.owed, protocol, wants_rate);
    }

    /// Sends the combined request, then a request that is never combined.
    fn encode_alone(&mut self, ask: Box<Ask<ReplicaRequest>>, now_us: u64) {
        let Some(left_us) = ask.left_us(now_us, self.owner.health.moved_at_us()) else {
            return ask.expire();
        };
        self.encode(now_us);
        if self.owed.is_empty() {
            self.heard_us = now_us;
        }
        let mut writer = Reply::new(&mut self.output, Protocol::Resp2);
        let protocol = self.owner.transport.protocol.load(Relaxed);
        let (left_ms, trace) = (left_us.div_ceil(1000), ask.trace.as_deref().copied());
        ask.request
            .write(protocol, left_ms, trace, &mut writer, &mut self.splices);
        self.owed.push_alone(ask);
    }

    /// Returns the number of bytes written: about [`TURN_BYTES`] at most.
    fn write(&mut self, context: &mut Context<'_>) -> io::Result<usize> {
        let mut moved = 0;
        while self.written < self.output.len() {
            if moved >= TURN_BYTES {
                return Ok(moved);
            }
            let is_long = self.output.len() >= LONG_BYTES || !self.splices.is_empty();
            let next = self.splices.next(&self.output, self.written);
            let next = &next[..next.len().min(TURN_BYTES)];
            let count = match Pin::new(&mut self.stream).poll_write(context, next)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => count,
                Poll::Pending => return Ok(moved),
            };
            self.splices.advance(&mut self.written, count);
            moved += count;
            self.unflushed = true;
            if is_long {
                self.moved();
            }
        }
        if self.written > 0 {
            self.written = 0;
            self.output.clear();
            self.output.shrink_to(OUTPUT_BYTES_KEPT_MAX);
        }
        if self.unflushed && Pin::new(&mut self.stream).poll_flush(context)?.is_ready() {
            self.unflushed = false;
        }
        Ok(moved)
    }

    /// Bytes of a long value were sent: the node takes them, so it is not silent.
    fn moved(&mut self) {
        self.heard_us = self.owner.clock.now_us();
        self.owner.health.moved(self.heard_us);
    }

    /// Returns the number of bytes read: [`TURN_BYTES`] at most.
    fn read(&mut self, context: &mut Context<'_>) -> io::Result<usize> {
        let count = match self.fill(context) {
            Poll::Pending => return Ok(0),
            Poll::Ready(Ok(0)) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the node closed the connection",
                ));
            }
            Poll::Ready(Ok(count)) => {
                self.heard_us = self.owner.clock.now_us();
                self.owner.health.heard(self.heard_us);
                if self.needed >= LONG_BYTES {
                    self.owner.health.moved(self.heard_us);
                }
                count
            }
            Poll::Ready(Err(error)) => return Err(error),
        };
        while self.input.len() >= self.needed {
            match parse_reply(&self.input, &self.owner.transport.limits, &mut self.items).map_err(io::Error::other)? {
                ReplyParse::Complete { consumed } => {
                    let reply = self.input.split_to(consumed).freeze();
                    self.needed = 1;
                    if !self.owed.answer(&reply, self.items.as_slice(), &self.owner.health) {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "the node sent an answer that fits no request",
                        ));
                    }
                }
                ReplyParse::Incomplete { needed } => self.needed = needed,
            }
        }
        Ok(count)
    }

    /// Reads once, into the space behind earlier input.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wanted = self.needed.saturating_sub(self.input.len()).max(INPUT_CHUNK_BYTES / 8);
        if self.input.capacity() - self.input.len() < wanted {
            self.input.reserve(wanted.max(INPUT_CHUNK_BYTES));
        }
        // Polling it only once loses nothing: it has no state.
        pin!(self.stream.read_buf(&mut (&mut self.input).limit(TURN_BYTES))).poll(context)
    }

    /// Probes the node when it owes answers and is silent, or when it is suspended and its probe is due.
    fn mind_silence(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        loop {
            if let Some(probe) = &mut self.probe {
                let Poll::Ready(outcome) = probe.as_mut().poll(context) else {
                    return Ok(());
                };
                self.probe = None;
                let now_us = self.owner.clock.now_us();
                match outcome {
                    Ok(()) => {
                        self.owner.health.probe_succeeded(now_us);
                        (self.heard_us, self.watching, self.timer_set) = (now_us, false, false);
                    }
                    Err(error) if !self.is_silent(now_us) => {
                        tracing::debug!(address = %self.owner.address, %error, "a suspended node cannot be reached");
                        self.owner.health.probe_failed(now_us);
                        self.timer_set = false;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !self.timer_set {
                let Some(due_us) = self.probe_due_us() else {
                    return Ok(());
                };
                self.timer.as_mut().reset(self.owner.clock.at(due_us));
                self.timer_set = true;
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Ok(());
            }
            self.timer_set = false;
            if self
                .probe_due_us()
                .is_some_and(|due_us| due_us <= self.owner.clock.now_us())
            {
                let (transport, address) = (Arc::clone(&self.owner.transport), Arc::clone(&self.owner.address));
                self.probe = Some(Box::pin(async move { transport.connect(&address).await.map(drop) }));
            }
        }
    }

    /// When the next probe of the node is due.
    fn probe_due_us(&mut self) -> Option<u64> {
        let suspended = self.watching.then(|| self.owner.health.probe_at_us()).flatten();
        self.watching = suspended.is_some();
        [self.silent_from_us(), suspended].into_iter().flatten().min()
    }

    /// When the node's silence will exceed the limit.
    fn silent_from_us(&self) -> Option<u64> {
        let silence_us = self.owner.transport.silence.as_micros() as u64;
        (!self.owed.is_empty()).then(|| self.heard_us.saturating_add(silence_us))
    }

    fn is_silent(&self, now_us: u64) -> bool {
        self.silent_from_us().is_some_and(|from_us| from_us <= now_us)
    }
}

/// Has the task woken after the runtime has polled its sockets once, behind the tasks that are ready then.
fn wake_after_next_poll(context: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(context);
}
