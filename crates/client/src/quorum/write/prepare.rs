//! Before a replica has taken the write: who is to take it, and what others have seen until then.

use fondaco_model::NodeId;
use fondaco_model::versioned::Change;

use super::{Intent, Purpose, Step, Write};
use crate::quorum::asks::Ask;
use crate::quorum::counts::count;
use crate::quorum::operation::Moment;
use crate::quorum::shortfall::QuorumPart;

impl Write {
    /// Asks for contexts until those who told theirs and the replica that is to take the write are a read quorum,
    /// then has it taken.
    pub(super) fn prepare(&mut self, moment: &Moment<'_>) {
        // Nobody else adds while the first may have done it: it would count twice.
        let is_add = self.is_add();
        let waits = |ask: &Ask<Purpose>| ask.purpose == Purpose::Put && (is_add || ask.is_counted_on());
        if self.asks.open().any(waits) {
            return;
        }
        let Some(writer) = self.writer() else {
            // One that takes long may do it still.
            if !self.asks.open().any(|ask| ask.purpose == Purpose::Put) {
                self.come_short(QuorumPart::Writes, moment);
            }
            return;
        };
        let needed = self.contexts_needed();
        let others = |seen: Step| {
            let others = self.owners.iter();
            others
                .filter(|owner| owner.node != writer && owner.seen == seen && self.current.contains(&owner.node))
                .count()
        };
        let (told, asked, late) = (others(Step::Done), others(Step::Asked), others(Step::Late));
        if told >= needed {
            return self.put(writer, moment);
        }
        let mut more = needed.saturating_sub(told + asked);
        while more > 0 && self.ask_context(writer, moment) {
            more -= 1;
        }
        if more > 0 && asked == 0 && self.store.settings.sloppy {
            // Where hints count, a write need not be seen by every read, nor see every write.
            self.put(writer, moment);
        } else if more > late {
            self.come_short(QuorumPart::Reads, moment);
        }
    }

    /// A replica takes long to tell what it has seen: another one is asked besides.
    pub(super) fn hedge(&mut self, moment: &Moment<'_>) {
        if self.record.is_none()
            && let Some(writer) = self.writer()
            && moment.steering.take_hedge()
            && self.ask_context(writer, moment)
        {
            count(&moment.counts.hedges);
        }
    }

    /// Who is to take the write: the first who was not asked yet.
    fn writer(&self) -> Option<NodeId> {
        let mut owners = self.owners.iter();
        let owner = owners.find(|owner| !owner.was_put && self.current.contains(&owner.node));
        owner.map(|owner| owner.node)
    }

    /// Asks one more replica what it has seen. Returns whether there is one.
    fn ask_context(&mut self, writer: NodeId, moment: &Moment<'_>) -> bool {
        let current = &self.current;
        let spare = |owner: &&mut super::Owner| {
            owner.node != writer && owner.seen == Step::Unasked && current.contains(&owner.node)
        };
        // Who did not take the write may not tell either.
        let spare = self.owners.iter_mut().filter(spare).min_by_key(|owner| owner.was_put);
        let Some(owner) = spare else { return false };
        owner.seen = Step::Asked;
        let late_us = moment.steering.hedge_threshold_us(1);
        self.asks.plan(owner.node, Purpose::Context, late_us);
        true
    }

    /// How many other replicas must tell what they have seen before one takes the write.
    fn contexts_needed(&self) -> usize {
        match self.intent {
            // What is added makes nothing obsolete.
            Intent::All if self.is_add() => 0,
            Intent::All => self.store.settings.reads.saturating_sub(1) as usize,
            Intent::Context(_) | Intent::Unchanged(_) => 0,
        }
    }

    pub(super) fn is_add(&self) -> bool {
        matches!(self.update.change, Change::Add(_))
    }

    fn put(&mut self, writer: NodeId, moment: &Moment<'_>) {
        if self.owners.iter().any(|owner| owner.was_put) {
            if !moment.steering.take_retry() {
                return self.come_short(QuorumPart::Writes, moment);
            }
            count(&moment.counts.retries);
        }
        if let Some(owner) = self.owner(writer) {
            owner.was_put = true;
        }
        self.asks.plan(writer, Purpose::Put, None);
    }
}
