//! The requests that one operation has under way, of whichever kind: when they were sent, when they are late, how they end.
//!
//! What they are for is the operation's business. Here is what is the same for all: timers, and what a node's
//! health learns from them. The invariant: an ask ends once, and whatever comes for it after that is not heard.

use fondaco_model::NodeId;
use smallvec::SmallVec;

use crate::operation::{AskId, Moment};
use crate::read::{Directory, Failure};

/// No such time: a timer that is not set.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where an ask stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// To be sent.
    Planned,
    /// Sent, its answer awaited.
    Pending,
    /// Sent, and no longer counted on; an answer is still taken.
    GivenUp,
    /// Answered, or failed.
    Ended,
}

/// A request to one node.
#[derive(Debug)]
pub(crate) struct Ask<P> {
    pub(crate) node: NodeId,
    pub(crate) purpose: P,
    pub(crate) stage: Stage,
    pub(crate) sent_us: u64,
    /// It took longer than such requests do.
    pub(crate) is_late: bool,
    /// How long it may take before it is late; [`NEVER`] if it never is.
    late_after_us: u64,
    late_at_us: u64,
    give_up_at_us: u64,
}

impl<P> Ask<P> {
    /// Whether its answer is still waited for, and not given up.
    pub(crate) fn is_counted_on(&self) -> bool {
        matches!(self.stage, Stage::Planned | Stage::Pending)
    }
}

/// The requests of one operation.
#[derive(Debug)]
pub(crate) struct Asks<P> {
    list: SmallVec<[Ask<P>; 4]>,
    /// The first that may still have to be sent.
    unsent: usize,
    /// How many are sent, and counted on.
    pending: usize,
    attempt_us: u64,
    suspended: SmallVec<[NodeId; 1]>,
}

/// What the time has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// This one takes longer than such requests do: another node may be asked besides.
    Late(AskId),
    /// This one is counted on no more.
    GivenUp(AskId),
}

/// What an answer says of the node that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// It does its work.
    Well,
    /// It does not answer as it should.
    Failed,
}

impl<P> Asks<P> {
    /// None yet. Each may take so long before it is counted on no more.
    pub(crate) fn new(attempt_us: u64) -> Self {
        Self {
            list: SmallVec::new(),
            unsent: 0,
            pending: 0,
            attempt_us,
            suspended: SmallVec::new(),
        }
    }

    /// Plans to ask a node. It is late when it takes longer than `late_after_us`.
    pub(crate) fn plan(&mut self, node: NodeId, purpose: P, late_after_us: Option<u64>) {
        self.list.push(Ask {
            node,
            purpose,
            stage: Stage::Planned,
            sent_us: NEVER,
            is_late: false,
            late_after_us: late_after_us.unwrap_or(NEVER),
            late_at_us: NEVER,
            give_up_at_us: NEVER,
        });
    }

    /// The next one to send, which then is sent.
    pub(crate) fn next(&mut self, now_us: u64) -> Option<AskId> {
        loop {
            let id = self.unsent;
            let ask = self.list.get_mut(id)?;
            self.unsent += 1;
            if ask.stage == Stage::Planned {
                ask.stage = Stage::Pending;
                self.pending += 1;
                ask.sent_us = now_us;
                ask.late_at_us = now_us.saturating_add(ask.late_after_us);
                ask.give_up_at_us = now_us.saturating_add(self.attempt_us);
                return Some(id as AskId);
            }
        }
    }

    pub(crate) fn get(&self, id: AskId) -> &Ask<P> {
        &self.list[id as usize]
    }

    /// What one is for, to be added to.
    pub(crate) fn purpose_mut(&mut self, id: AskId) -> &mut P {
        &mut self.list[id as usize].purpose
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Ask<P>> {
        self.list.iter()
    }

    /// Those that something may still come for.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Ask<P>> {
        self.list.iter().filter(|ask| ask.stage != Stage::Ended)
    }

    /// How many there are: the number of the next one.
    pub(crate) fn len(&self) -> AskId {
        self.list.len() as AskId
    }

    /// Ends one that was answered. Returns where it stood; nothing if it had ended.
    pub(crate) fn answered(&mut self, id: AskId, conduct: Conduct, moment: &Moment<'_>) -> Option<Stage> {
        let stage = self.end(id)?;
        let node = self.get(id).node;
        match conduct {
            // Who was late has been told so already.
            _ if stage != Stage::Pending => {}
            Conduct::Well => {
                if let Some(member) = moment.latest.member(node) {
                    member.health.succeeded(moment.now_us);
                }
            }
            Conduct::Failed => self.failed(node, moment),
        }
        Some(stage)
    }

    /// Ends one that will not be answered. Returns where it stood; nothing if it had ended.
    pub(crate) fn lost(&mut self, id: AskId, failure: &Failure, moment: &Moment<'_>) -> Option<Stage> {
        let stage = self.end(id)?;
        if stage == Stage::Pending && matches!(failure, Failure::Lost(_)) {
            let node = self.get(id).node;
            self.failed(node, moment);
        }
        Some(stage)
    }

    /// Ends all that something may still come for: nothing of it will be heard.
    pub(crate) fn end_all(&mut self) {
        self.list.iter_mut().for_each(|ask| ask.stage = Stage::Ended);
        self.pending = 0;
    }

    /// Ends those that are to be sent yet, and are of no use any more.
    pub(crate) fn cancel_planned(&mut self, is_useless: impl Fn(&P) -> bool) {
        let planned = self.list[self.unsent..].iter_mut();
        for ask in planned.filter(|ask| ask.stage == Stage::Planned && is_useless(&ask.purpose)) {
            ask.stage = Stage::Ended;
        }
    }

    /// How many are sent, and counted on.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// What is due by now, one at a time.
    pub(crate) fn due(&mut self, moment: &Moment<'_>) -> Option<Due> {
        let now_us = moment.now_us;
        let due = |ask: &Ask<P>| ask.stage == Stage::Pending && now_us >= ask.late_at_us.min(ask.give_up_at_us);
        let id = self.list.iter().position(due)?;
        let ask = &mut self.list[id];
        if now_us < ask.give_up_at_us {
            (ask.late_at_us, ask.is_late) = (NEVER, true);
            return Some(Due::Late(id as AskId));
        }
        ask.stage = Stage::GivenUp;
        self.pending -= 1;
        let node = ask.node;
        self.failed(node, moment);
        Some(Due::GivenUp(id as AskId))
    }

    /// When something is due; [`NEVER`] if nothing will be.
    pub(crate) fn due_at_us(&self) -> u64 {
        let pending = self.list.iter().filter(|ask| ask.stage == Stage::Pending);
        let timers = pending.map(|ask| ask.late_at_us.min(ask.give_up_at_us));
        timers.min().unwrap_or(NEVER)
    }

    pub(crate) fn take_suspended(&mut self) -> Option<NodeId> {
        self.suspended.pop()
    }

    fn end(&mut self, id: AskId) -> Option<Stage> {
        let ask = self.list.get_mut(id as usize)?;
        let stage = std::mem::replace(&mut ask.stage, Stage::Ended);
        self.pending -= usize::from(stage == Stage::Pending);
        matches!(stage, Stage::Pending | Stage::GivenUp).then_some(stage)
    }

    fn failed(&mut self, node: NodeId, moment: &Moment<'_>) {
        if suspend_for_failure(moment.latest, node, moment.now_us) {
            self.suspended.push(node);
        }
    }
}

/// A node failed. Whether it is suspended for it.
fn suspend_for_failure(directory: &Directory, node: NodeId, now_us: u64) -> bool {
    let member = directory.member(node);
    member.is_some_and(|member| member.health.failed(now_us))
}
