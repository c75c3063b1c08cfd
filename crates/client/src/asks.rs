//! The outstanding requests of one operation, of any kind: when they were sent, when they are late, how they end.
//!
//! The operation knows their purpose. This module holds the common part: timers, and updates of the nodes'
//! health. The invariant: an ask ends once, and anything that arrives for it later is ignored.

use fondaco_model::NodeId;
use smallvec::SmallVec;

use crate::operation::{AskId, Environment};
use crate::read::{Directory, Failure};

/// A timer that is not set.
pub(crate) const NEVER: u64 = u64::MAX;

/// How long a request may take at most, however slowly the bytes of long values move.
pub(crate) const TRANSFER_US_MAX: u64 = 60_000_000;

/// The state of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// To be sent.
    Planned,
    /// Sent, and waiting for its answer.
    Pending,
    /// Timed out: it no longer counts, but an answer is still accepted.
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
    /// It took longer than such requests usually do.
    pub(crate) is_late: bool,
    /// How long it may take before it is late; [`NEVER`] if it never is.
    late_after_us: u64,
    late_at_us: u64,
    give_up_at_us: u64,
}

impl<P> Ask<P> {
    /// The time until which it may take because bytes of long values move to its node or from it: it may be one of
    /// them, or wait for them. 0 if none move.
    fn moves_until_us(&self, attempt_us: u64, env: &Environment<'_>) -> u64 {
        let moved_at_us = env
            .latest
            .member(self.node)
            .map_or(0, |member| member.health.moved_at_us());
        if moved_at_us < self.sent_us {
            return 0;
        }
        let last_us = self.sent_us.saturating_add(TRANSFER_US_MAX);
        moved_at_us.saturating_add(attempt_us).min(last_us)
    }

    /// Whether its answer is still expected.
    pub(crate) fn is_counted_on(&self) -> bool {
        matches!(self.stage, Stage::Planned | Stage::Pending)
    }
}

/// The requests of one operation.
#[derive(Debug)]
pub(crate) struct Asks<P> {
    list: SmallVec<[Ask<P>; 4]>,
    /// The first that may still be unsent.
    unsent: usize,
    /// The number of asks that are sent and still expected.
    pending: usize,
    attempt_us: u64,
    suspended: SmallVec<[NodeId; 1]>,
}

/// A timer that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// This ask takes longer than usual: another node may be asked as well.
    Late(AskId),
    /// This ask is no longer expected.
    GivenUp(AskId),
}

/// The conduct of a node, as its answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// It works.
    Well,
    /// It does not answer as it should.
    Failed,
}

impl<P> Asks<P> {
    /// No asks. Each is expected for at most `attempt_us`.
    pub(crate) fn new(attempt_us: u64) -> Self {
        Self {
            list: SmallVec::new(),
            unsent: 0,
            pending: 0,
            attempt_us,
            suspended: SmallVec::new(),
        }
    }

    /// Plans to ask a node. The ask is late when it takes longer than `late_after_us`.
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

    /// The next ask to send; it counts as sent from now on.
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

    /// The purpose of an ask, to be extended.
    pub(crate) fn purpose_mut(&mut self, id: AskId) -> &mut P {
        &mut self.list[id as usize].purpose
    }

    /// All asks.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Ask<P>> {
        self.list.iter()
    }

    /// The asks that may still be answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Ask<P>> {
        self.list.iter().filter(|ask| ask.stage != Stage::Ended)
    }

    /// The number of asks, which is the id of the next one.
    pub(crate) fn len(&self) -> AskId {
        self.list.len() as AskId
    }

    /// Ends an ask that was answered. Returns its state before; `None` if it had ended.
    pub(crate) fn answered(&mut self, id: AskId, conduct: Conduct, env: &Environment<'_>) -> Option<Stage> {
        let stage = self.end(id)?;
        let node = self.get(id).node;
        match conduct {
            // The health of a late node was updated already.
            _ if stage != Stage::Pending => {}
            Conduct::Well => {
                if let Some(member) = env.latest.member(node) {
                    member.health.succeeded(env.now_us);
                }
            }
            Conduct::Failed => self.failed(node, env),
        }
        Some(stage)
    }

    /// Ends an ask that will not be answered. Returns its state before; `None` if it had ended.
    pub(crate) fn lost(&mut self, id: AskId, failure: &Failure, env: &Environment<'_>) -> Option<Stage> {
        let stage = self.end(id)?;
        if stage == Stage::Pending && matches!(failure, Failure::Lost(_)) {
            let node = self.get(id).node;
            self.failed(node, env);
        }
        Some(stage)
    }

    /// Ends all asks that may still be answered; their answers are ignored.
    pub(crate) fn end_all(&mut self) {
        self.list.iter_mut().for_each(|ask| ask.stage = Stage::Ended);
        self.pending = 0;
    }

    /// Ends asks that are unsent and no longer needed.
    pub(crate) fn cancel_planned(&mut self, is_useless: impl Fn(&P) -> bool) {
        let planned = self.list[self.unsent..].iter_mut();
        for ask in planned.filter(|ask| ask.stage == Stage::Planned && is_useless(&ask.purpose)) {
            ask.stage = Stage::Ended;
        }
    }

    /// The number of asks that are sent and still expected.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// The timers that are due by now, one at a time.
    pub(crate) fn due(&mut self, env: &Environment<'_>) -> Option<Due> {
        let now_us = env.now_us;
        for ask in &mut self.list {
            if ask.stage == Stage::Pending && now_us >= ask.give_up_at_us {
                ask.give_up_at_us = ask.give_up_at_us.max(ask.moves_until_us(self.attempt_us, env));
            }
        }
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
        self.failed(node, env);
        Some(Due::GivenUp(id as AskId))
    }

    /// Until when the operation waits beyond its deadline, because bytes of long values move between it and nodes that owe it
    /// answers; 0 if none do.
    pub(crate) fn moves_until_us(&self, env: &Environment<'_>) -> u64 {
        let pending = self.list.iter().filter(|ask| ask.stage == Stage::Pending);
        let until = pending.map(|ask| ask.moves_until_us(self.attempt_us, env));
        until.max().unwrap_or(0)
    }

    /// When the next timer is due; [`NEVER`] if no timer is set.
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

    fn failed(&mut self, node: NodeId, env: &Environment<'_>) {
        if suspend_for_failure(env.latest, node, env.now_us) {
            self.suspended.push(node);
        }
    }
}

/// Records that a node failed. Returns whether the node is suspended for it.
fn suspend_for_failure(directory: &Directory, node: NodeId, now_us: u64) -> bool {
    let member = directory.member(node);
    member.is_some_and(|member| member.health.failed(now_us))
}
