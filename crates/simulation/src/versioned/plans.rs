//! Moving partitions: moves that begin, are cancelled or finish, each by itself, and when each process learns of them.
//!
//! The steps of a move are those of the real routing table. A step waits for the same conditions as in the real
//! controller: the next owners report that they were compared with enough of the owners, and the live former owners
//! know the switch. Reads that see all writes also need enough of those owners, so the simulation waits for that, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use fondaco_model::versioned::Quorums;
use fondaco_model::{Copies, Member, NodeId, PartitionId, PartitionSet, Placement, Shares, Stage, Steps, replan};

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

/// With how many partitions they are no longer split.
const PARTITIONS_MAX: u32 = 32;

impl World {
    /// Begins plans from now on, if the scenario has plans.
    pub(super) fn begin_plans(&mut self) {
        if let Some(every_ms) = self.scenario.plan_every_ms {
            self.after(every_ms * 1_000, Happening::Plan);
            self.after(LOOK_US, Happening::LookAtPlan);
        }
    }

    /// An operator begins moves of some partitions, or cancels some.
    pub(super) fn plan(&mut self) {
        let every_us = self.scenario.plan_every_ms.unwrap_or(1_000) * 1_000;
        let next_us = self.rng.u64(..2 * every_us);
        self.after(next_us, Happening::Plan);
        let begun: Vec<PartitionId> = self.table.begun().map(|(partition, ..)| partition).collect();
        if !begun.is_empty() && self.rng.u8(..4) == 0 {
            let cancel = self.some(begun);
            let steps = Steps {
                cancel,
                ..Steps::default()
            };
            return self.step("given up", &steps);
        }
        if !self.table.is_moving() && self.table.partitions().get() < PARTITIONS_MAX && self.rng.u8(..8) == 0 {
            return self.split();
        }
        if self.may_count() && self.rng.u8(..3) == 0 {
            return self.change_replicas();
        }
        let is_shuffled = self.scenario.placement == Placement::Ring && self.rng.bool();
        let next = match is_shuffled {
            true => Some(self.shuffled_owners()),
            false => self.planned_owners(),
        };
        let Some(next) = next else { return };
        let still = self.table.partitions().partitions();
        let still = still
            .filter(|&partition| self.table.joint(partition).is_none())
            .collect();
        let begin = self.some(still);
        let lists = begin
            .iter()
            .map(|partition| (partition, next[partition.get() as usize].clone()));
        let steps = Steps {
            begin: lists.collect(),
            ..Steps::default()
        };
        self.step("begun", &steps);
    }

    /// Each partition is split in two.
    fn split(&mut self) {
        if let Some(split) = self.table.split() {
            self.table = Arc::new(split);
            self.outcome.splits += 1;
            let (epoch, partitions) = (self.table.epoch(), self.table.partitions());
            self.note(|| format!("partitions are split: epoch {epoch}, there are {partitions}"));
        }
    }

    /// Whether the store's number of replicas may change now: disks are not lost, as acknowledged writes could be on only one.
    fn may_count(&self) -> bool {
        let scenario = &self.scenario;
        scenario.flaw.is_none() && !scenario.loses_disk && scenario.replicas > 1 && !self.table.is_moving()
    }

    /// The quorums of the store now.
    fn quorums(&self) -> Quorums {
        let counts = self.table.counts().get(&STORE_ID);
        let first = || self.scenario.settings.quorums(self.scenario.replicas);
        counts.map_or_else(first, |counts| counts.now)
    }

    /// The store's number of replicas begins to change, with quorums that an operator may choose: reads of a store that see
    /// every write continue to do so.
    fn change_replicas(&mut self) {
        let (now, is_strict) = (self.quorums(), self.scenario.promise().reads_see_writes);
        let replicas = self.rng.u32(1..=self.scenario.replicas);
        let (reads, writes) = (self.rng.u32(1..=replicas), self.rng.u32(1..=replicas));
        let next = Quorums {
            replicas,
            reads,
            writes,
            preferred_reads: self.rng.u32(reads..=replicas),
            preferred_writes: self.rng.u32(writes..=replicas),
            zone_reads: 0,
            zone_writes: 0,
        };
        if next.replicas == now.replicas || is_strict && !(next.overlap() && next.follow(&now)) {
            return;
        }
        self.outcome.counts += 1;
        let count = Some((STORE_ID, now, next));
        self.step(
            "counted",
            &Steps {
                count,
                ..Steps::default()
            },
        );
    }

    /// All of them, or a random half.
    fn some(&mut self, partitions: Vec<PartitionId>) -> PartitionSet {
        let all = self.rng.bool();
        partitions.into_iter().filter(|_| all || self.rng.bool()).collect()
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
        let plan = replan(
            self.scenario.placement,
            &self.table,
            replicas,
            &members,
            Shares::ByWeight,
        )
        .ok()?;
        let is_enough = plan.owners.iter().all(|owners| owners.len() == replicas as usize);
        (plan.changes && is_enough).then_some(plan.owners)
    }

    /// Continues the current plan, if its conditions are met.
    pub(super) fn look_at_plan(&mut self) {
        // There may be a new controller by now, with an old view.
        let every_us = if self.rng.u8(..4) == 0 { LOOK_LATE_US } else { LOOK_US };
        let next_us = self.rng.u64(every_us / 2..every_us * 3 / 2);
        self.after(next_us, Happening::LookAtPlan);
        let finishes_at_once = self.scenario.flaw == Some(Flaw::FinishesAtOnce);
        let mut steps = Steps::default();
        for (&partition, stage) in self.table.moves() {
            match stage {
                Stage::Begun { next, .. } if self.are_ready(partition, next) => steps.switch.insert(partition),
                Stage::Switched { at, former } if finishes_at_once || self.is_known(*at, former) => {
                    steps.finish.insert(partition);
                }
                _ => {}
            }
        }
        self.step("carried on", &steps);
    }

    fn step(&mut self, what: &str, steps: &Steps) {
        // Only partitions that do not move begin to.
        let Ok(table) = self.table.after(steps) else { return };
        if table == *self.table {
            return;
        }
        self.table = Arc::new(table);
        let (epoch, changes) = (self.table.epoch(), self.table.changes().count());
        self.outcome.steps_of_plans += 1;
        self.note(|| format!("a plan is {what}: epoch {epoch}, {changes} partitions move"));
    }

    /// Whether all next owners of a partition have reported that they have everything that the owners have. They may
    /// have lost it since.
    fn are_ready(&self, partition: PartitionId, next: &[NodeId]) -> bool {
        let mut next = next.iter().take(self.copies().joint);
        next.all(|&node| self.has_proved(partition, node))
    }

    /// How many nodes of each list have the store.
    pub(super) fn copies(&self) -> Copies {
        self.table.copies(STORE_ID, self.scenario.replicas as usize)
    }

    /// Whether a node has reported, since the last step that concerned it, that it has all of a partition.
    fn has_proved(&self, partition: PartitionId, node: NodeId) -> bool {
        let since = self.table.last_steps().get(&node).copied().unwrap_or(0);
        let report = self.reports.get(&node);
        report.is_some_and(|(epoch, lacking)| *epoch >= since && !lacking.contains(partition))
    }

    /// A node reports the epoch of its table, and which partitions lack data that the table assigns to them.
    pub(super) fn report(&mut self, process: usize) {
        let at = &self.processes[process];
        let Some(replica) = &at.replica else { return };
        let Some(lacking) = replica.lacking() else { return };
        self.reports.insert(replica.node, (replica.table.epoch(), lacking));
    }

    /// Whether the switch of a move relies on data that a node has received from others.
    pub(super) fn is_relied_on(&self, process: usize) -> bool {
        let node = id(process);
        self.table.begun().any(|(partition, next, _)| {
            let is_next = next.contains(&node) && !self.table.owners(partition).contains(&node);
            is_next && self.has_proved(partition, node)
        })
    }

    /// Whether former owners refuse all readers that do not know the switch.
    fn is_known(&self, switched_at: u64, former: &[NodeId]) -> bool {
        let counts = self.table.counts().get(&STORE_ID);
        let reads = counts.and_then(|counts| counts.joint).unwrap_or(self.quorums()).reads;
        let former = &former[..former.len().min(self.copies().joint)];
        let count = former.iter().filter(|&&node| self.knows(node, switched_at)).count();
        former
            .iter()
            .all(|&node| self.knows(node, switched_at) || !self.is_seen(node))
            && count + reads as usize > former.len()
    }

    /// Whether a node uses the table of an epoch, or a later one.
    fn knows(&self, node: NodeId, epoch: u64) -> bool {
        let replica = self.processes[node.get() as usize - 1].replica.as_ref();
        replica.is_some_and(|replica| replica.table.epoch() >= epoch)
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
        let is_there = self.processes[from].running.is_running(self.now_us);
        if !is_there || !self.network.connects(process, from, self.now_us) {
            return;
        }
        let table = Arc::clone(self.processes[from].coordinator.table());
        let life = self.processes[process].running.life;
        let after_us = self.rng.u64(100..TOLD_US_MAX);
        let event = Event::Told(table);
        self.after(after_us, Happening::To { process, life, event });
    }

    /// Why moves are not finished yet; `None` if they are.
    pub(super) fn moving(&self) -> Option<String> {
        if self.table.is_moving() {
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
