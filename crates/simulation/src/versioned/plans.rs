//! Moving partitions: plans that begin, are cancelled or finish, and when each process learns of them.
//!
//! The steps of a plan are those of the real routing table. A step waits for the same conditions as in the real
//! controller: the next owners report that they were compared with enough of the owners, and the live former owners
//! know the switch. Reads that see all writes also need enough of those owners, so the simulation waits for that, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use fondaco_model::{Member, Placement, replan};
use fondaco_model::{NodeId, PartitionId, RoutingTable};

use super::message::{Event, Happening};
use super::replica::STORE_ID;
use super::scenario::Flaw;
use super::topology::{id, member};
use super::world::World;

/// The approximate interval between checks whether a plan can continue, in microseconds.
const LOOK_US: u64 = 200_000;

/// The interval when the controller is slow.
const LOOK_LATE_US: u64 = 4_000_000;

/// The maximum time to learn of a topology, in microseconds.
const TOLD_US_MAX: u64 = 5_000;

impl World {
    /// Begins plans from now on, if the scenario has plans.
    pub(super) fn begin_plans(&mut self) {
        if let Some(every_ms) = self.scenario.plan_every_ms {
            self.after(every_ms * 1_000, Happening::Plan);
            self.after(LOOK_US, Happening::LookAtPlan);
        }
    }

    /// An operator begins a plan, or cancels one.
    pub(super) fn plan(&mut self) {
        let every_us = self.scenario.plan_every_ms.unwrap_or(1_000) * 1_000;
        let next_us = self.rng.u64(..2 * every_us);
        self.after(next_us, Happening::Plan);
        if self.table.next().is_some() && self.rng.u8(..4) == 0 {
            return self.change_table("given up", RoutingTable::cancelled);
        }
        if self.table.is_in_plan() {
            return;
        }
        let is_shuffled = self.scenario.placement == Placement::Ring && self.rng.bool();
        let next = match is_shuffled {
            true => Some(self.shuffled_owners()),
            false => self.planned_owners(),
        };
        if let Some(next) = next {
            self.change_table("begun", |table| table.with_plan(next).unwrap_or_else(|_| table.clone()));
        }
    }

    /// Random nodes for some of the partitions.
    fn shuffled_owners(&mut self) -> Vec<Vec<NodeId>> {
        let mut next = self.table.all_owners().to_vec();
        for owners in &mut next {
            if self.rng.bool() {
                let mut nodes: Vec<NodeId> = (0..self.scenario.nodes).map(id).collect();
                self.rng.shuffle(&mut nodes);
                nodes.truncate(owners.len());
                *owners = nodes;
            }
        }
        next
    }

    /// The real plan for removing some nodes and adding others again; `None` if too few would be left.
    fn planned_owners(&mut self) -> Option<Vec<Vec<NodeId>>> {
        let members = (0..self.scenario.nodes).map(|process| member(process, &self.scenario));
        let mut members: Vec<Member> = members.collect();
        members.retain(|_| self.rng.u8(..3) > 0);
        let replicas = self.scenario.replicas;
        let plan = replan(self.scenario.placement, &self.table, replicas, &members).ok()?;
        let is_enough = plan.owners.iter().all(|owners| owners.len() == replicas as usize);
        (plan.changes && is_enough).then_some(plan.owners)
    }

    /// Continues the current plan, if its conditions are met.
    pub(super) fn look_at_plan(&mut self) {
        // There may be a new controller by now, with an old view.
        let every_us = if self.rng.u8(..4) == 0 { LOOK_LATE_US } else { LOOK_US };
        let next_us = self.rng.u64(every_us / 2..every_us * 3 / 2);
        self.after(next_us, Happening::LookAtPlan);
        if self.table.next().is_some() && self.are_next_owners_ready() {
            self.change_table("switched", RoutingTable::switched);
        } else if self.table.former().is_some()
            && (self.is_switch_known() || self.scenario.flaw == Some(Flaw::FinishesAtOnce))
        {
            self.change_table("finished", RoutingTable::finished);
        }
    }

    fn change_table(&mut self, what: &str, change: impl FnOnce(&RoutingTable) -> RoutingTable) {
        self.table = Arc::new(change(&self.table));
        let (epoch, changes) = (self.table.epoch(), self.table.changes().count());
        self.outcome.steps_of_plans += 1;
        self.note(|| format!("a plan is {what}: epoch {epoch}, {changes} partitions move"));
    }

    /// Whether all next owners have reported that they have everything that the owners have. They may have lost it
    /// since.
    fn are_next_owners_ready(&self) -> bool {
        let mut next = self.table.next().into_iter().flatten().flatten();
        next.all(|node| self.reports.get(node) == Some(&(self.table.epoch(), true)))
    }

    /// A node reports the epoch of its table, and whether it has all data that the table assigns to it.
    pub(super) fn report(&mut self, process: usize) {
        let at = &self.processes[process];
        let Some(replica) = &at.replica else { return };
        let has_all = replica.has_all();
        self.reports.insert(replica.node, (replica.table.epoch(), has_all));
    }

    /// Whether the switch of the current plan relies on data that a node has received from others.
    pub(super) fn is_relied_on(&self, process: usize) -> bool {
        let node = id(process);
        let is_next = |(partition, next): (PartitionId, &[NodeId])| {
            next.contains(&node) && !self.table.owners(partition).contains(&node)
        };
        self.table.next().is_some()
            && self.reports.get(&node) == Some(&(self.table.epoch(), true))
            && self.table.changes().any(is_next)
    }

    /// Whether former owners refuse all readers that do not know the switch.
    fn is_switch_known(&self) -> bool {
        let settings = &self.scenario.settings;
        self.table.changes().all(|(_, former)| {
            let count = former.iter().filter(|&&node| self.knows(node)).count();
            former.iter().all(|&node| self.knows(node) || !self.is_seen(node))
                && count + settings.reads as usize > former.len()
        })
    }

    /// Whether a node uses the current table.
    fn knows(&self, node: NodeId) -> bool {
        let replica = self.processes[node.get() as usize - 1].replica.as_ref();
        replica.is_some_and(|replica| replica.table.epoch() == self.table.epoch())
    }

    /// The replica and the coordinator of a process receive the state of the cluster from the coordination service,
    /// unless they are deaf.
    pub(super) fn hear(&mut self, process: usize, live: &BTreeSet<NodeId>) {
        let (now_us, table) = (self.now_us, Arc::clone(&self.table));
        let at = &mut self.processes[process];
        if at.replica_deaf_until_us <= now_us
            && let Some(replica) = &mut at.replica
            && let Err(error) = replica.hear(&self.store, &table, live)
        {
            self.violated(format!("{process} cannot apply the state of the cluster: {error}"));
        }
        if self.processes[process].deaf_until_us <= now_us {
            self.learn(process, live, &table);
        }
    }

    /// A coordinator that has detected an old topology asks a random node for a newer one.
    pub(super) fn ask_for_topology(&mut self, process: usize) {
        let from = self.rng.usize(..self.scenario.nodes);
        let is_there = self.processes[from].is_running(self.now_us);
        if !is_there || !self.network.reaches(process, from) || !self.network.reaches(from, process) {
            return;
        }
        let table = Arc::clone(self.processes[from].coordinator.table());
        let life = self.processes[process].life;
        let after_us = self.rng.u64(100..TOLD_US_MAX);
        let event = Event::Told(table);
        self.after(after_us, Happening::To { process, life, event });
    }

    /// Why moves are not finished yet; `None` if they are.
    pub(super) fn moving(&self) -> Option<String> {
        if self.table.is_in_plan() {
            return Some(format!("a plan is in progress: {:?}", self.table));
        }
        for (process, at) in self.processes.iter().enumerate() {
            if at.coordinator.table().epoch() != self.table.epoch() {
                return Some(format!("{process} has not heard of the end of a plan"));
            }
            let Some(replica) = &at.replica else { continue };
            if replica.table.epoch() != self.table.epoch() {
                return Some(format!("the replica of {process} has not heard of the end of a plan"));
            }
            let status = replica.life.as_ref().and_then(|life| life.driven.status(STORE_ID));
            let surplus = status.map_or(0, |status| status.surplus);
            if surplus > 0 {
                return Some(format!("{process} still has {surplus} partitions, which others own"));
            }
        }
        None
    }
}
