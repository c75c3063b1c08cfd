//! The interface of all operations, look-ups and those on versioned stores, to their driver.

use std::sync::Arc;

use fondaco_model::NodeId;

use crate::quorum::QuorumCounters;
use crate::read::{Directory, Failure, Steering};

/// The number of a request to a node within its operation.
pub type AskId = u32;

/// A request to a node, to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing<R> {
    /// Its number within the operation: the outcome carries it.
    pub id: AskId,
    /// The node to ask.
    pub node: NodeId,
    /// An answer after this time is useless.
    pub deadline_us: u64,
    /// The request itself.
    pub request: R,
}

/// The description of an operation, or of one of its requests, in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described<'a> {
    /// The action in a word or two, or the command.
    pub name: &'static str,
    /// The store, or the first of several.
    pub store: &'a str,
    /// The number of keys.
    pub keys: usize,
}

/// The context of each event of an operation: the time, and state shared by operations.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The monotonic time, in microseconds.
    pub now_us: u64,
    /// The wall-clock time, in milliseconds since 1970, which decides on expiry. No answer's correctness depends on it.
    pub now_unix_ms: u64,
    /// The newest directory.
    pub latest: &'a Arc<Directory>,
    /// Budgets, and learnt thresholds.
    pub steering: &'a Steering,
    /// Counters of operations on versioned stores.
    pub counts: &'a QuorumCounters,
}

/// An operation, as its driver sees it.
///
/// The driver sends what [`next_send`](Self::next_send) returns, reports outcomes and the time, and sends again, until
/// the operation is over. The operation may be answered before that: then the caller need not wait any longer, and the
/// rest continues without it.
pub trait Operation {
    /// A request to a node.
    type Request;
    /// A node's answer.
    type Reply;

    /// Its description in its own span; `None` if only its requests have spans.
    fn described(&self) -> Option<Described<'_>> {
        None
    }

    /// Why the request with this number is sent, in a word, for its span.
    fn role(&self, _id: AskId) -> &'static str {
        "first"
    }

    /// The next request to send; `None` until an outcome arrives or a timer is due.
    fn next_send(&mut self, env: &Environment<'_>) -> Option<Outgoing<Self::Request>>;

    /// A node answered.
    fn on_reply(&mut self, id: AskId, reply: Self::Reply, env: &Environment<'_>);

    /// A request will not be answered.
    fn on_failure(&mut self, id: AskId, failure: Failure, env: &Environment<'_>);

    /// There is a newer directory.
    fn on_directory(&mut self, env: &Environment<'_>);

    /// It is [`wake_at_us`](Self::wake_at_us), or later.
    fn on_time(&mut self, env: &Environment<'_>);

    /// The latest time to call [`on_time`](Self::on_time).
    fn wake_at_us(&self) -> u64;

    /// Whether to call [`on_directory`](Self::on_directory) when there is a newer one.
    fn wants_directory(&self) -> bool;

    /// Whether a newer topology is wanted; true once per need.
    fn take_refresh(&mut self) -> bool;

    /// A node that was suspended because of this operation, and must be probed from now on. The driver calls this until
    /// it returns `None`.
    fn take_suspended(&mut self) -> Option<NodeId>;

    /// Whether its answer is available.
    fn is_answered(&self) -> bool;

    /// Whether no work is left.
    fn is_over(&self) -> bool;
}
