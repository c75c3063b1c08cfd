//! Before a replica has taken the write: chooses that replica, and collects contexts.

use fondaco_model::NodeId;
use fondaco_model::versioned::Change;
use fondaco_protocol::replica::PutOver;

use super::{Fate, Intent, Owner, Purpose, Step, Try, Write};
use crate::asks::Ask;
use crate::operation::Environment;
use crate::quorum::counts::count;
use crate::quorum::no_quorum::{QuorumPart, ReplicaFailure};

impl Write {
    /// Asks for contexts until a read quorum has answered, then asks a replica to take the write.
    pub(super) fn prepare(&mut self, env: &Environment<'_>) {
        let is_made_once = self.is_made_once();
        let waits = |ask: &Ask<Purpose>| ask.purpose.is_put() && (is_made_once || ask.is_counted_on());
        if self.asks.open().any(waits) {
            return;
        }
        let Some(writer) = self.writer() else {
            // A slow replica may still take it.
            if !self.asks.open().any(|ask| ask.purpose.is_put()) {
                self.come_short(QuorumPart::Writes, env);
            }
            return;
        };
        let needed = self.contexts_needed();
        let (told, asked, late) = (
            self.count_seen(Step::Done),
            self.count_seen(Step::Asked),
            self.count_seen(Step::Late),
        );
        if told >= needed {
            return self.put(writer, env);
        }
        let mut more = needed.saturating_sub(told + asked);
        while more > 0 && self.ask_context(env) {
            more -= 1;
        }
        if more > 0 && self.store.settings.sloppy && self.count_seen(Step::Asked) == 0 {
            // If hints count, reads need not see every write, and a write need not see every earlier one.
            self.put(writer, env);
        } else if more > late {
            self.come_short(QuorumPart::Reads, env);
        }
    }

    /// A replica is slow to answer its context: asks another one as well.
    pub(super) fn hedge(&mut self, env: &Environment<'_>) {
        if self.record.is_none() && self.tries.is_empty() && env.steering.take_hedge() && self.ask_context(env) {
            count(&env.counts.hedges);
        }
    }

    /// The replica to take the write: of those not asked yet, the first that answered its context, or otherwise the
    /// first that has not failed to.
    fn writer(&self) -> Option<NodeId> {
        let untried = |owner: &&Owner| self.current.contains(&owner.node) && !self.was_tried(owner.node);
        let rank = |owner: &&Owner| match owner.seen {
            Step::Done => 0,
            Step::Unasked | Step::Asked | Step::Moot => 1,
            Step::Late | Step::Failed => 2,
        };
        let owner = self.owners.iter().filter(untried).min_by_key(rank);
        owner.map(|owner| owner.node)
    }

    /// Asks one more replica for its context. Returns whether there is one.
    fn ask_context(&mut self, env: &Environment<'_>) -> bool {
        let spare = |owner: &&Owner| owner.seen == Step::Unasked && self.current.contains(&owner.node);
        // A replica that did not take the write may not answer its context either.
        let was_tried = |owner: &&Owner| self.was_tried(owner.node);
        let spare = self.owners.iter().filter(spare).min_by_key(was_tried);
        let Some(node) = spare.map(|owner| owner.node) else {
            return false;
        };
        if let Some(owner) = self.owner(node) {
            owner.seen = Step::Asked;
        }
        let late_us = env.steering.hedge_threshold_us(1);
        self.asks.plan(node, Purpose::Context, late_us);
        true
    }

    /// How many contexts are needed before a replica takes the write.
    fn contexts_needed(&self) -> usize {
        match self.over() {
            PutOver::Context if self.intent == Intent::All && !self.is_add() && !self.may_be_taken() => {
                self.store.settings.reads as usize
            }
            // It replaces the record on arrival, or the values that its context covers, or nothing.
            PutOver::All | PutOver::Context | PutOver::Unchanged => 0,
        }
    }

    /// The number of replicas at this step of answering their context.
    fn count_seen(&self, seen: Step) -> usize {
        let current = self.owners.iter().filter(|owner| self.current.contains(&owner.node));
        current.filter(|owner| owner.seen == seen).count()
    }

    /// The values that a replica must replace when it takes the write.
    fn over(&self) -> PutOver {
        // The record of the only replica is all that was acknowledged, if no other node has or will have one.
        let is_only = self.owners.len() == 1 && self.store.settings.reads == 1;
        match self.intent {
            Intent::All if is_only && !self.is_add() && !self.may_be_taken() => PutOver::All,
            Intent::All | Intent::Context(_) => PutOver::Context,
            Intent::Unchanged(_) => PutOver::Unchanged,
        }
    }

    pub(super) fn is_add(&self) -> bool {
        matches!(self.update.change, Change::Add(_))
    }

    /// Whether a replica may have taken the write, or may still take it.
    pub(super) fn may_be_taken(&self) -> bool {
        self.tries.iter().any(|tried| tried.fate == Fate::Unknown)
    }

    /// The same, for replicas other than this one.
    pub(super) fn may_be_taken_elsewhere(&self, node: NodeId) -> bool {
        let mut others = self.tries.iter().filter(|tried| tried.node != node);
        others.any(|tried| tried.fate == Fate::Unknown)
    }

    /// Whether only one replica may be asked to take the write while another one may have taken it: an addition would
    /// count twice, and a late write over all values would replace later acknowledged ones.
    pub(super) fn is_made_once(&self) -> bool {
        let is_over_all = |tried: &Try| tried.over == PutOver::All && tried.fate == Fate::Unknown;
        self.is_add() || self.tries.iter().any(is_over_all)
    }

    fn was_tried(&self, node: NodeId) -> bool {
        self.tries.iter().any(|tried| tried.node == node)
    }

    fn put(&mut self, node: NodeId, env: &Environment<'_>) {
        if !self.tries.is_empty() {
            // Retrying after a full disk is no more work than asking the other replica first.
            let is_free = self.tries.iter().all(|tried| tried.is_unable);
            if !is_free && !env.steering.take_retry() {
                self.replica_failures.add(node, ReplicaFailure::NoBudget);
                return self.come_short(QuorumPart::Writes, env);
            }
            count(&env.counts.retries);
        }
        let (over, fate) = (self.over(), Fate::Unknown);
        self.tries.push(Try {
            node,
            over,
            fate,
            is_unable: false,
        });
        self.asks.plan(node, Purpose::Put { over }, None);
    }
}

impl Purpose {
    pub(super) fn is_put(self) -> bool {
        matches!(self, Self::Put { .. })
    }
}
