//! What happens: messages between processes, timers, and what waits for them.

use std::sync::Arc;

use fondaco_client::operation::AskId;
use fondaco_client::read::Failure;
use fondaco_model::RoutingTable;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};

/// The process and the operation that wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) process: usize,
    /// The life of the process: the next one knows nothing of it.
    pub(super) life: u32,
    pub(super) of: Matter,
}

/// What an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matter {
    /// A request of an operation.
    Operation { number: u64, ask: AskId },
    /// A chore of a node's replica.
    Chore(u64),
}

/// Something that happens to a process.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A request arrives.
    Request { asker: Asker, request: Box<ReplicaRequest> },
    /// An answer arrives, or word that none will.
    Answer {
        of: Matter,
        answer: Result<ReplicaReply, Failure>,
    },
    /// A shard of the replica commits what waits.
    Commit(usize),
    /// What a shard has committed is on the disk.
    Sync(usize),
    /// The chores of the replica are to go on.
    Poll,
    /// An operation is to look at the clock.
    Wake(u64),
    /// A chore has taken too long.
    ChoreEnds(u64),
    /// A coordinator is told of a topology.
    Told(Arc<RoutingTable>),
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum Happening {
    /// To one life of a process.
    To { process: usize, life: u32, event: Event },
    /// A process looks around.
    Tick(usize),
    /// A client does something.
    Operate,
    /// An operator begins a plan, or gives one up.
    Plan,
    /// It is looked whether a plan can go on.
    LookAtPlan,
    /// Something breaks.
    Fault,
    /// A process starts again.
    Restart(usize),
    /// A process goes on that was stopped.
    Resume(usize),
    /// Messages get through again.
    Unblock(usize, usize),
    /// A process is no longer cut off.
    Join(usize),
    /// A disk has room again.
    Room(usize),
    /// Nothing breaks any more, and clients stop.
    Calm,
}
