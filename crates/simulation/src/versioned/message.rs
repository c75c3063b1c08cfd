//! Events: messages between processes, and timers.

use std::sync::Arc;

use fondaco_client::operation::AskId;
use fondaco_client::read::Failure;
use fondaco_model::RoutingTable;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};

/// The process and the operation that wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) process: usize,
    /// The life of the process: a later one does not know the operation.
    pub(super) life: u32,
    pub(super) of: Matter,
}

/// The purpose of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matter {
    /// A request of an operation.
    Operation { number: u64, ask: AskId },
    /// A chore of a node's replica.
    Chore(u64),
}

/// An event of a process.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A request arrives.
    Request { asker: Asker, request: Box<ReplicaRequest> },
    /// A reply arrives, or the news that none will.
    Answer {
        of: Matter,
        answer: Result<ReplicaReply, Failure>,
    },
    /// A shard of the replica commits its waiting writes.
    Commit(usize),
    /// The committed writes of a shard are synced.
    Sync(usize),
    /// The chores of the replica continue.
    Poll,
    /// An operation reaches a deadline.
    Wake(u64),
    /// A chore times out.
    ChoreEnds(u64),
    /// A coordinator receives a topology.
    Told(Arc<RoutingTable>),
}

/// An event.
#[derive(Debug)]
pub(super) enum Happening {
    /// An event of one life of a process.
    To { process: usize, life: u32, event: Event },
    /// A process does its periodic work.
    Tick(usize),
    /// A client begins an operation.
    Operate,
    /// An operator begins a plan, or cancels one.
    Plan,
    /// Checks whether a plan can continue.
    LookAtPlan,
    /// A fault happens.
    Fault,
    /// A process restarts.
    Restart(usize),
    /// A paused process resumes.
    Resume(usize),
    /// A disk has room again.
    Room(usize),
    /// The faults end, and clients stop.
    Calm,
}
