//! The way to one node: a few connections, each shared by many requests at a time.
//!
//! Not a pool to borrow from: a request is put in a connection's queue and its answer comes back to the
//! operation's [`Inbox`], so that no request waits for a connection to be free. The invariant: each request
//! that [`Link::submit`] is given gets exactly one outcome, an answer or a failure.

mod ask;
mod coalescing;
mod connection;
mod connection_loop;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use fondaco_protocol::replica::ReplicaRequest;
use tokio::sync::mpsc;

pub(crate) use ask::{Ask, Inbox, Outcomes, Request};
pub(crate) use transport::{Credentials, Stream, Transport, call, first_bulks};

use crate::clock::Clock;
use crate::read::{BatchRequest, Failure, Member};

/// Where a connection stands.
const CONNECTING: u8 = 0;
const CONNECTED: u8 = 1;
const DOWN: u8 = 2;

/// The connections to one node.
#[derive(Debug)]
pub(crate) struct Link {
    lines: Vec<Line>,
    in_flight_max: usize,
}

/// A connection, from the side of those who use it.
#[derive(Debug)]
struct Line {
    requests: mpsc::UnboundedSender<Message>,
    shared: Arc<LineState>,
}

/// What both sides of a connection know of it.
#[derive(Debug, Default)]
struct LineState {
    stage: AtomicU8,
    /// Requests queued, or sent and not answered.
    in_flight: Arc<AtomicUsize>,
}

/// What a connection is told.
pub(crate) enum Message {
    /// Keys to be looked up.
    Read(Ask<BatchRequest>),
    /// Something to be asked of a replica.
    Replica(Box<Ask<ReplicaRequest>>),
    /// Its node was suspended: to be probed until it answers.
    Watch,
}

impl Link {
    /// Makes connections to a node, now and whenever they break, until the link is dropped. To be called
    /// within a tokio runtime.
    pub(crate) fn new(member: &Member, transport: &Arc<Transport>, clock: Clock) -> Self {
        let line = |_| {
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
            Line { requests, shared }
        };
        Self {
            lines: (0..transport.connections_per_node.max(1)).map(line).collect(),
            in_flight_max: transport.in_flight_max,
        }
    }

    /// Queues a request. Its operation hears of its end in any case, maybe at once.
    pub(crate) fn submit<Q: Request>(&self, ask: Ask<Q>) {
        match self.room() {
            Ok(line) => {
                let ask = ask.counted(&line.shared.in_flight);
                // If the other side is gone, the drop of the request tells so.
                let _ = line.requests.send(Q::message(ask));
            }
            Err(failure) => ask.fail(failure),
        }
    }

    /// A connection with room for a request, in which it is counted already.
    fn room(&self) -> Result<&Line, Failure> {
        let Some(line) = self.best() else {
            return Err(Failure::Unsent("there is no connection".into()));
        };
        let in_flight = line.shared.in_flight.fetch_add(1, Relaxed);
        if in_flight >= self.in_flight_max {
            line.shared.in_flight.fetch_sub(1, Relaxed);
            return Err(Failure::Full {
                in_flight: self.in_flight(),
            });
        }
        Ok(line)
    }

    /// The connection with the fewest requests under way, of those that are there, or else will be.
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

    /// The node was suspended: it is to be probed until it answers.
    pub(crate) fn watch(&self) {
        if let Some(line) = self.lines.first() {
            let _ = line.requests.send(Message::Watch);
        }
    }

    /// How many requests are queued, or sent and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.lines.iter().map(|line| line.shared.in_flight.load(Relaxed)).sum()
    }

    /// How many connections are there.
    pub(crate) fn connected(&self) -> usize {
        let there = |line: &&Line| line.shared.stage.load(Relaxed) == CONNECTED;
        self.lines.iter().filter(there).count()
    }
}
