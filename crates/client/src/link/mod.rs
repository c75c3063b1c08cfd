//! The link to one node: a few connections, each shared by many requests at a time.
//!
//! It is not a pool: a request is put in a connection's queue and its answer comes back to the operation's [`Inbox`],
//! so no request waits for a free connection. The invariant: each request given to [`Link::submit`] gets exactly one
//! outcome, an answer or a failure.

mod ask;
mod coalescing;
mod connection;
mod connection_loop;
mod long_values;
mod transport;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fondaco_protocol::replica::ReplicaRequest;
use tokio::sync::mpsc;

pub(crate) use ask::{Ask, Inbox, Outcomes, Request};
pub(crate) use long_values::LONG_BYTES;
use long_values::LongValues;
pub(crate) use transport::{Credentials, Stream, Transport, call, first_bulks};

use crate::clock::Clock;
use crate::read::{BatchRequest, Failure, Member};

/// The state of a connection.
const CONNECTING: u8 = 0;
const CONNECTED: u8 = 1;
const DOWN: u8 = 2;

/// The connections to one node.
#[derive(Debug)]
pub(crate) struct Link {
    lines: Vec<Line>,
    /// A connection for requests that take long and for long values, made when the first one comes.
    long: OnceLock<Line>,
    long_values: Arc<LongValues>,
    member: Member,
    transport: Arc<Transport>,
    clock: Clock,
}

/// The client's side of a connection.
#[derive(Debug)]
struct Line {
    requests: mpsc::UnboundedSender<Message>,
    shared: Arc<LineState>,
}

/// State shared by both sides of a connection.
#[derive(Debug, Default)]
struct LineState {
    stage: AtomicU8,
    /// Requests queued, or sent and not answered.
    in_flight: Arc<AtomicUsize>,
}

/// A message to a connection.
pub(crate) enum Message {
    /// Keys to be looked up.
    Read(Ask<BatchRequest>),
    /// A request to a replica.
    Replica(Box<Ask<ReplicaRequest>>),
    /// Its node was suspended: probe it until it answers.
    Watch,
}

impl Line {
    /// A connection to a node, made now and whenever it breaks. Must be called within a tokio runtime.
    fn new(member: &Member, transport: &Arc<Transport>, clock: Clock) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        let shared = Arc::new(LineState::default());
        let owner = connection_loop::ConnectionLoop {
            requests: received,
            shared: Arc::clone(&shared),
            address: Arc::clone(&member.address),
            health: Arc::clone(&member.health),
            transport: Arc::clone(transport),
            clock,
        };
        drop(transport.spawn(owner.run()));
        Self { requests, shared }
    }
}

impl Link {
    /// Makes connections to a node, now and whenever they break, until the link is dropped. Must be called within a
    /// tokio runtime.
    pub(crate) fn new(member: &Member, transport: &Arc<Transport>, clock: Clock) -> Self {
        let lines = 0..transport.connections_per_node.max(1);
        Self {
            lines: lines.map(|_| Line::new(member, transport, clock)).collect(),
            long: OnceLock::new(),
            long_values: Arc::default(),
            member: member.clone(),
            transport: Arc::clone(transport),
            clock,
        }
    }

    /// Queues a request. Its operation gets an outcome in any case, maybe at once.
    pub(crate) fn submit<Q: Request>(&self, ask: Ask<Q>) {
        let line = match ask.request.is_long(&self.long_values) {
            false => self.best(),
            true => Some(
                self.long
                    .get_or_init(|| Line::new(&self.member, &self.transport, self.clock)),
            ),
        };
        match self.room(line) {
            Ok(line) => {
                let ask = ask.counted(&line.shared.in_flight, &self.long_values);
                // If the other side is gone, dropping the request reports the failure.
                let _ = line.requests.send(Q::message(ask));
            }
            Err(failure) => ask.fail(failure),
        }
    }

    /// The connection, if it has capacity for a request; the request is counted already.
    fn room<'a>(&self, line: Option<&'a Line>) -> Result<&'a Line, Failure> {
        let Some(line) = line else {
            return Err(Failure::Unsent("there is no connection".into()));
        };
        let in_flight = line.shared.in_flight.fetch_add(1, Relaxed);
        if in_flight >= self.transport.in_flight_max {
            line.shared.in_flight.fetch_sub(1, Relaxed);
            return Err(Failure::Full {
                in_flight: self.in_flight(),
            });
        }
        Ok(line)
    }

    /// The connection with the fewest outstanding requests, of those that are connected, or else are connecting.
    fn best(&self) -> Option<&Line> {
        if let [line] = &self.lines[..] {
            return (line.shared.stage.load(Relaxed) != DOWN).then_some(line);
        }
        let at = |stage| {
            self.lines
                .iter()
                .filter(move |line| line.shared.stage.load(Relaxed) == stage)
        };
        let fewest = |line: &&Line| line.shared.in_flight.load(Relaxed);
        at(CONNECTED)
            .min_by_key(fewest)
            .or_else(|| at(CONNECTING).min_by_key(fewest))
    }

    /// The node was suspended: probe it until it answers.
    pub(crate) fn watch(&self) {
        if let Some(line) = self.lines.first() {
            let _ = line.requests.send(Message::Watch);
        }
    }

    /// The number of requests that are queued, or sent and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        let lines = self.lines.iter().chain(self.long.get());
        lines.map(|line| line.shared.in_flight.load(Relaxed)).sum()
    }

    /// The number of open connections.
    pub(crate) fn connected(&self) -> usize {
        let there = |line: &&Line| line.shared.stage.load(Relaxed) == CONNECTED;
        self.lines.iter().filter(there).count()
    }
}
