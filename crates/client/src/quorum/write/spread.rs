//! After a replica has taken the write: other replicas get its record, or hints are kept for them.

use fondaco_model::NodeId;
use fondaco_model::versioned::Quorums;
use smallvec::SmallVec;

use super::{Group, Purpose, Step, Write};
use crate::asks::NEVER;
use crate::operation::Environment;
use crate::quorum::PREFERRED_WAIT_US;
use crate::quorum::counts::count;
use crate::quorum::no_quorum::{QuorumPart, ReplicaFailure};
use crate::quorum::replicas::{Nodes, hint_keepers, is_well};

/// How many nodes are asked to keep a hint for one replica.
const HINT_TRIES_MAX: usize = 3;

impl Write {
    /// Sends the record to replicas, and hints for those that do not take it; answers when enough have it.
    pub(super) fn spread(&mut self, env: &Environment<'_>) {
        let unasked = self.owners.iter().filter(|owner| owner.kept == Step::Unasked);
        let unasked: Nodes = unasked.map(|owner| owner.node).collect();
        for node in unasked {
            let is_well = is_well(env.latest, node);
            // A node that is down is asked only if it is needed.
            let is_asked = is_well || (self.is_open() && self.is_needed(node, env));
            let owner = self.owners.iter_mut().find(|owner| owner.node == node);
            let is_hinted = owner.is_some_and(|owner| {
                if is_asked {
                    owner.kept = Step::Asked;
                }
                !matches!(owner.hint, Step::Unasked | Step::Failed)
            });
            if is_asked {
                self.asks.plan(node, Purpose::Merge, None);
            }
            if !is_well && !is_hinted && (!is_asked || self.store.settings.sloppy) {
                self.replica_failures.add(node, ReplicaFailure::NotThere);
                self.hint(node, env);
            }
        }
        let failed = self.owners.iter().filter(|owner| {
            matches!(owner.kept, Step::Failed | Step::Late) && matches!(owner.hint, Step::Unasked | Step::Failed)
        });
        let failed: Nodes = failed.map(|owner| owner.node).collect();
        for node in failed {
            self.hint(node, env);
        }
        self.settle(env);
    }

    /// Whether, in the groups of this node, too few replicas, or replicas in too few zones, have the record or are
    /// asked to take it.
    fn is_needed(&self, node: NodeId, env: &Environment<'_>) -> bool {
        let is_counted = |step: Step| matches!(step, Step::Done | Step::Asked);
        let is_short = |group: &Group<'_>| {
            let owners = self.owners.iter().filter(|owner| group.nodes.contains(&owner.node));
            let counted = owners.filter(|owner| is_counted(owner.kept));
            !self.is_quorum(&group.quorums, counted.map(|owner| owner.node).collect(), env)
        };
        self.groups()
            .any(|group| group.nodes.contains(&node) && is_short(&group))
    }

    /// Whether these nodes are as many, and in as many zones, as must have the record.
    pub(super) fn is_quorum(&self, quorums: &Quorums, holders: Nodes, env: &Environment<'_>) -> bool {
        holders.len() as u32 >= quorums.writes && self.home.other_zones(holders, env.latest) >= quorums.zone_writes
    }

    /// If hints must count as copies in further zones: the zones in which a hint would not. A hint counts for the zone
    /// of its keeper, not for that of the replica, which may be lost.
    fn zones_covered<'a>(&'a self, env: &Environment<'a>) -> Option<SmallVec<[&'a str; 4]>> {
        let settings = &self.store.settings;
        if !settings.sloppy || settings.zone_writes == 0 {
            return None;
        }
        let is_copy = |step: Step| matches!(step, Step::Done | Step::Asked);
        let owners = self
            .owners
            .iter()
            .filter(|owner| is_copy(owner.kept))
            .map(|owner| owner.node);
        let hints = self
            .asks
            .open()
            .filter(|ask| matches!(ask.purpose, Purpose::Hint { .. }));
        let hints = self.keepers.iter().copied().chain(hints.map(|ask| ask.node));
        let copies: Nodes = owners.chain(hints).collect();
        let is_enough = self.home.other_zones(copies.iter().copied(), env.latest) >= settings.zone_writes;
        (!is_enough).then(|| self.home.zones_covered(copies, env.latest))
    }

    /// Asks the next possible node to keep a hint for a replica.
    fn hint(&mut self, target: NodeId, env: &Environment<'_>) {
        let purpose = Purpose::Hint { target };
        let tried: Nodes = self
            .asks
            .all()
            .filter(|ask| ask.purpose == purpose)
            .map(|ask| ask.node)
            .collect();
        let may = |node: &NodeId| !tried.contains(node) && is_well(env.latest, *node);
        let mut keepers = {
            let zones = self.zones_covered(env);
            let zones = zones.as_deref();
            hint_keepers(&self.store, &self.key, target, &self.home, zones, env.latest)
        };
        let is_wanted = !keepers.is_empty();
        keepers.retain(|node| may(node));
        // A hint on a node that has a copy already is worth less than one that is a copy of its own.
        let is_copy =
            |node: &NodeId| self.owners.iter().any(|owner| owner.node == *node) || self.keepers.contains(node);
        keepers.sort_by_key(is_copy);
        let keeper = keepers.first().copied().filter(|_| tried.len() < HINT_TRIES_MAX);
        if keeper.is_none() && is_wanted {
            count(&env.counts.hints_failed);
        }
        if let Some(owner) = self.owner(target) {
            owner.hint = keeper.map_or(Step::Moot, |_| Step::Asked);
        }
        if let Some(keeper) = keeper {
            self.asks.plan(keeper, purpose, None);
        }
    }

    /// The nodes of a group that have the record, with the keepers of hints if hints count.
    pub(super) fn holders(&self, group: &Nodes) -> Nodes {
        let owners = self.owners.iter().filter(|owner| owner.kept == Step::Done);
        let owners = owners.filter(|owner| group.contains(&owner.node));
        let mut holders: Nodes = owners.map(|owner| owner.node).collect();
        if self.store.settings.sloppy {
            for &keeper in &self.keepers {
                if !holders.contains(&keeper) {
                    holders.push(keeper);
                }
            }
        }
        holders
    }

    /// Answers if enough replicas have the record, or never will.
    fn settle(&mut self, env: &Environment<'_>) {
        if !self.is_open() {
            return;
        }
        let has_quorum = |group: Group<'_>| self.is_quorum(&group.quorums, self.holders(group.nodes), env);
        if self.groups().all(has_quorum) {
            let has_preferred =
                |group: Group<'_>| self.holders(group.nodes).len() as u32 >= group.quorums.preferred_writes;
            let are_preferred = self.groups().all(has_preferred);
            let more_may_come = self.owners.iter().any(|owner| owner.kept == Step::Asked);
            let is_time = env.now_us >= self.settle_at_us;
            if are_preferred || !more_may_come || is_time {
                self.succeed();
            } else if self.settle_at_us == NEVER {
                self.settle_at_us = env.now_us.saturating_add(PREFERRED_WAIT_US);
            }
            return;
        }
        // There may have been a quorum under another table.
        self.settle_at_us = NEVER;
        let sloppy = self.store.settings.sloppy;
        let may_help = |purpose: Purpose| match purpose {
            Purpose::Merge | Purpose::Put { .. } => true,
            Purpose::Hint { .. } => sloppy,
            Purpose::Context => false,
        };
        if !self.asks.open().any(|ask| may_help(ask.purpose)) {
            self.come_short(QuorumPart::Writes, env);
        }
    }
}
