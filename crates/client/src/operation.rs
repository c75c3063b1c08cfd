//! What all operations have in common, look-ups and those on versioned stores: how they are driven.

use std::sync::Arc;

use fondaco_model::NodeId;

use crate::quorum::QuorumCounters;
use crate::read::{Directory, Failure, Steering};

/// The number of a request to a node within its operation.
pub type AskId = u32;

/// A request to a node, to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing<R> {
    /// Its number within the operation: what comes back is told with it.
    pub id: AskId,
    /// The node to ask.
    pub node: NodeId,
    /// From then on the answer is in vain.
    pub deadline_us: u64,
    /// What to ask.
    pub request: R,
}

/// What an operation may look at whenever it is told something: the time, and what operations share.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The time, by a clock that is never set, in microseconds.
    pub now_us: u64,
    /// The time by the clock on the wall, in milliseconds since 1970: what expires does so by it. No answer rests
    /// on its being right.
    pub now_unix_ms: u64,
    /// The newest directory.
    pub latest: &'a Arc<Directory>,
    /// Budgets, and what was learnt.
    pub steering: &'a Steering,
    /// What operations on versioned stores count.
    pub counts: &'a QuorumCounters,
}

/// An operation, as its driver sees it.
///
/// The driver sends what [`next_send`](Self::next_send) gives, tells what comes back and what time it is, and
/// sends again, until the operation is over. It may be answered before that: then the caller need wait no
/// longer, and what is left goes on without it.
pub trait Operation {
    /// What it asks of nodes.
    type Request;
    /// What they answer.
    type Reply;

    /// What to send next; nothing until something comes back, or its time has come.
    fn next_send(&mut self, moment: &Moment<'_>) -> Option<Outgoing<Self::Request>>;

    /// A node answered.
    fn on_reply(&mut self, id: AskId, reply: Self::Reply, moment: &Moment<'_>);

    /// Nothing will come back for a request.
    fn on_failure(&mut self, id: AskId, failure: Failure, moment: &Moment<'_>);

    /// There is a newer directory.
    fn on_directory(&mut self, moment: &Moment<'_>);

    /// It is [`wake_at_us`](Self::wake_at_us), or later.
    fn on_time(&mut self, moment: &Moment<'_>);

    /// When [`on_time`](Self::on_time) is to be called, at the latest.
    fn wake_at_us(&self) -> u64;

    /// Whether [`on_directory`](Self::on_directory) is worth calling when there is a newer one.
    fn wants_directory(&self) -> bool;

    /// Whether a newer topology is wanted: answered once for each time that it is.
    fn take_refresh(&mut self) -> bool;

    /// A node that was suspended for what this operation saw of it, to be probed from now on. To be asked until
    /// there is none.
    fn take_suspended(&mut self) -> Option<NodeId>;

    /// Whether its answer is there.
    fn is_answered(&self) -> bool;

    /// Whether nothing is left to be done.
    fn is_over(&self) -> bool;
}
