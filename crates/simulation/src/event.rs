//! The future events and their times.
//!
//! Events at the same time happen in the order in which they were added, so that a seed gives one run.

use std::collections::BTreeMap;

use fondaco_client::operation::AskId;
use fondaco_client::read::{Answer, Failure};
use fondaco_model::cluster::ReplicaKey;

use crate::link::{Message, Request};
use crate::reader::Question;
use crate::scenario::Step;

/// All future events.
#[derive(Default)]
pub(crate) struct Agenda {
    /// By time in milliseconds, then by number.
    events: BTreeMap<(u64, u64), Event>,
    last: u64,
}

/// An event.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    ToService {
        process: usize,
        life: u32,
        connection: u64,
        session: Option<u64>,
        request: Request,
    },
    FromService {
        process: usize,
        life: u32,
        connection: u64,
        message: Message,
    },
    Notify {
        session: u64,
    },
    Question {
        to: usize,
        life: u32,
        question: Question,
    },
    Answer {
        process: usize,
        life: u32,
        read: u64,
        sub: AskId,
        answer: Result<Answer, Failure>,
    },
    WakeRead {
        process: usize,
        life: u32,
        read: u64,
    },
    FetchStep {
        process: usize,
        life: u32,
        key: ReplicaKey,
        number: u64,
    },
    Tick {
        process: usize,
        life: u32,
    },
    Look {
        process: usize,
        life: u32,
    },
    Restart {
        process: usize,
    },
    Resume {
        process: usize,
        life: u32,
    },
    Join,
    Step(Step),
    Fault,
    Operate,
    Judge,
}

impl Agenda {
    /// Adds an event at a time.
    pub(crate) fn put(&mut self, at_ms: u64, event: Event) {
        self.last += 1;
        self.events.insert((at_ms, self.last), event);
    }

    /// Removes the next event, and returns it with its time.
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let ((at_ms, _), event) = self.events.pop_first()?;
        Some((at_ms, event))
    }
}

impl Event {
    /// The process that the event concerns, and the number of its life.
    pub(crate) fn belongs_to(&self) -> Option<(usize, u32)> {
        match *self {
            Self::FromService { process, life, .. }
            | Self::Answer { process, life, .. }
            | Self::WakeRead { process, life, .. }
            | Self::FetchStep { process, life, .. }
            | Self::Tick { process, life }
            | Self::Look { process, life }
            | Self::Resume { process, life } => Some((process, life)),
            Self::Question { to, life, .. } => Some((to, life)),
            _ => None,
        }
    }
}
