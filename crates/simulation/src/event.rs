//! The events of the world.

use fondaco_client::operation::AskId;
use fondaco_client::read::{Answer, Failure};
use fondaco_decisions::ReplicaKey;

use crate::link::{Message, Request};
use crate::reader::Question;
use crate::scenario::Step;

/// An event.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// An event of one life of a process.
    To {
        process: usize,
        life: u32,
        event: ProcessEvent,
    },
    ToService {
        process: usize,
        life: u32,
        connection: u64,
        session: Option<u64>,
        request: Request,
    },
    Notify {
        session: u64,
    },
    Restart(usize),
    Resume(usize),
    Join,
    Step(Step),
    Fault,
    Operate,
    Judge,
}

/// An event of a process.
#[derive(Debug, Clone)]
pub(crate) enum ProcessEvent {
    FromService {
        connection: u64,
        message: Message,
    },
    Question(Question),
    Answer {
        read: u64,
        sub: AskId,
        answer: Result<Answer, Failure>,
    },
    WakeRead(u64),
    FetchStep {
        key: ReplicaKey,
        number: u64,
    },
    Tick,
    Look,
}
