//! Faults, and their repair.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_engine::Engine;

use super::message::{Event, Happening};
use super::replica::{Replica, TABLE};
use super::scenario::Flaw;
use super::world::World;
use crate::kernel::Place;

/// The maximum number of lost disks in a run.
const DISKS_MAX: usize = 4;

/// The maximum error of clocks, in milliseconds: longer than deletions are remembered.
const OFFSET_MS_MAX: i64 = 40_000;

impl World {
    /// Causes a random fault.
    pub(super) fn break_something(&mut self) {
        let process = self.rng.usize(..self.processes.len());
        let other = self.rng.usize(..self.processes.len());
        let second_us = 1_000_000;
        let relied_on = (0..self.scenario.nodes).find(|&node| self.scenario.loses_disk && self.is_relied_on(node));
        if let Some(node) = relied_on.filter(|_| self.rng.bool()) {
            return self.end(node);
        }
        let kinds = if self.scenario.plan_every_ms.is_some() { 18 } else { 11 };
        match self.rng.u8(..kinds) {
            0..3 => self.end(process),
            3 => {
                let for_us = self.rng.u64(second_us / 10..4 * second_us);
                self.note(|| format!("{process} is stopped for {} ms", for_us / 1000));
                self.processes[process].running.stopped_until = self.now_us + for_us;
                self.after(for_us, Happening::Resume(process));
            }
            4 => {
                let for_us = self.rng.u64(second_us / 2..10 * second_us);
                self.note(|| format!("{process} is cut off for {} ms", for_us / 1000));
                self.network.isolate(process, self.now_us + for_us);
            }
            5 | 6 => {
                let for_us = self.rng.u64(second_us / 2..10 * second_us);
                self.note(|| format!("{process} does not reach {other} for {} ms", for_us / 1000));
                let (one, another, until_us) = (Place::Process(process), Place::Process(other), self.now_us + for_us);
                self.network.cut(one, another, until_us);
                if self.rng.bool() {
                    self.network.cut(another, one, until_us);
                }
            }
            7 => {
                let for_us = self.rng.u64(second_us / 2..8 * second_us);
                self.note(|| format!("the disk of {process} is full for {} ms", for_us / 1000));
                self.set_full(process, true);
                self.after(for_us, Happening::Room(process));
            }
            8 => {
                let offset_ms = self.rng.i64(-OFFSET_MS_MAX..=OFFSET_MS_MAX);
                self.note(|| format!("the clock of {process} is set {offset_ms} ms off"));
                self.processes[process].offset_ms = offset_ms;
                if let Some(replica) = &self.processes[process].replica {
                    replica.machine.offset_ms.store(offset_ms, Relaxed);
                }
            }
            9 => (0..self.processes.len()).for_each(|process| self.end(process)),
            10 => self.spoil(process),
            11..15 => {
                let for_us = self.rng.u64(second_us..30 * second_us);
                self.note(|| format!("the coordinator of {process} hears nothing for {} ms", for_us / 1000));
                self.processes[process].deaf_until_us = self.now_us + for_us;
            }
            _ => {
                let for_us = self.rng.u64(second_us / 10..8 * second_us);
                for process in 0..self.processes.len() {
                    if self.rng.bool() {
                        self.note(|| format!("{process} hears nothing for {} ms", for_us / 1000));
                        let deaf = &mut self.processes[process];
                        deaf.replica_deaf_until_us = self.now_us + for_us;
                        deaf.deaf_until_us = deaf.deaf_until_us.max(self.now_us + for_us);
                    }
                }
            }
        }
    }

    /// Ends a process, by a crash or a clean stop; it restarts later. Its machine may also lose power, or its disk, or
    /// the disk may be replaced by an older copy. The node knows that something is lost.
    fn end(&mut self, process: usize) {
        if !self.processes[process].running.is_up || self.deaths >= self.scenario.deaths_max {
            return;
        }
        self.deaths += 1;
        // A disk loss is most interesting when the fewest other copies exist, or when others rely on this one.
        let nodes = &self.processes[..self.scenario.nodes];
        let is_missed = nodes.iter().any(|node| !node.running.is_up) || self.is_relied_on(process);
        let loses_power = self.scenario.loses_power && self.rng.bool();
        let is_orderly =
            !loses_power && self.processes[process].running.is_running(self.now_us) && self.rng.u8(..4) == 0;
        match is_orderly {
            true => self.stop(process),
            false => self.die(process),
        }
        if loses_power {
            self.lose_power(process);
        }
        let may_lose_disk = self.scenario.loses_disk && self.survives_the_disk_of(process);
        if may_lose_disk && self.rng.u8(..8) < if is_missed { 4 } else { 1 } {
            self.lose_disk(process);
        } else if let Some(replica) = &mut self.processes[process].replica {
            replica.copy = Some((replica.disk().copy(), Arc::clone(&replica.table)));
        }
        let away_us = self.rng.u64(100_000..15_000_000);
        self.after(away_us, Happening::Restart(process));
    }

    /// Stops a process cleanly: it replies to all accepted requests.
    fn stop(&mut self, process: usize) {
        self.outcome.stops += 1;
        self.note(|| format!("{process} is stopped cleanly"));
        let replica = self.processes[process].replica.as_mut();
        let (deeds, replies) = replica.map(Replica::stop).unwrap_or_default();
        self.count(&deeds);
        for (asker, reply) in replies {
            self.answer(process, asker, reply);
        }
        self.is_down(process);
    }

    fn die(&mut self, process: usize) {
        self.note(|| format!("{process} dies"));
        let replica = self.processes[process].replica.as_mut();
        let (deeds, askers) = replica.map(Replica::die).unwrap_or_default();
        self.count(&deeds);
        askers.into_iter().for_each(|asker| self.connection_broke(asker));
        if self.scenario.flaw == Some(Flaw::KeepsIncarnation)
            && let Some(replica) = &self.processes[process].replica
        {
            replica.say_that_it_ended_well();
        }
        self.is_down(process);
    }

    fn is_down(&mut self, process: usize) {
        for event in self.processes[process].running.end() {
            if let Event::Request { asker, .. } = event {
                self.connection_broke(asker);
            }
        }
    }

    fn lose_power(&mut self, process: usize) {
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        replica.boots += 1;
        let unsynced = replica.disk().unsynced();
        let kept = self.rng.usize(..=unsynced);
        replica.disk().lose_power(kept);
        self.note(|| format!("its machine loses power, and {} writes", unsynced - kept));
    }

    /// Loses a disk, or replaces it by an older copy.
    fn lose_disk(&mut self, process: usize) {
        let is_put_back = self.scenario.remembers_deletions_for_long() && self.rng.bool();
        let identity = self.rng.u64(1..);
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let kept = replica
            .kept_incarnation()
            .filter(|_| self.scenario.flaw == Some(Flaw::KeepsIncarnation));
        let identity = kept
            .as_ref()
            .and_then(|_| replica.disk().identity())
            .unwrap_or(identity);
        let now = (replica.disk().copy(), Arc::clone(&replica.table));
        let copy = replica.copy.replace(now).filter(|_| is_put_back);
        let is_noticed = self.scenario.flaw != Some(Flaw::AnswersForWhatItLost);
        let became = match copy {
            Some((disk, table)) => {
                replica.disk().replace(Some(disk), identity);
                (replica.table, replica.went_back) = (table, is_noticed);
                "an older copy of itself"
            }
            None if is_noticed => {
                replica.disk().replace(None, identity);
                replica.remembers = false;
                "empty"
            }
            None => {
                replica.disk().lose_tables();
                "empty, and does not know it"
            }
        };
        if let Some(kept) = kept {
            replica.disk().set_incarnation(kept);
            replica.went_back = false;
        }
        replica.has_lost = true;
        self.lost_disks += 1;
        self.outcome.disks += 1;
        self.note(|| format!("the disk of {process} is {became}"));
    }

    /// Makes a record unreadable.
    fn spoil(&mut self, process: usize) {
        if process >= self.scenario.nodes || !self.scenario.loses_disk || !self.survives_the_disk_of(process) {
            return;
        }
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let keys = replica.disk().keys(TABLE);
        if keys.is_empty() {
            return;
        }
        let key = keys[self.rng.usize(..keys.len())].clone();
        replica.disk().spoil(TABLE, key.clone());
        replica.has_lost = true;
        self.lost_disks += 1;
        self.outcome.unreadable += 1;
        self.note(|| format!("{process} cannot read {key:?}"));
    }

    /// Whether acknowledged writes survive the loss of this disk: another node has them that has not lost its own disk,
    /// or has recovered its content.
    fn survives_the_disk_of(&self, process: usize) -> bool {
        if !self.scenario.promise().reads_see_writes {
            return self.lost_disks == 0;
        }
        let others = (0..self.scenario.nodes).filter(|&other| other != process);
        let has_lost = |&other: &usize| {
            self.processes[other]
                .replica
                .as_ref()
                .is_some_and(|replica| replica.has_lost)
        };
        let lost = others.filter(has_lost).count() + 1;
        self.lost_disks < DISKS_MAX && lost < self.scenario.settings.writes as usize
    }

    /// Restarts a process.
    pub(super) fn restart(&mut self, process: usize) {
        if self.processes[process].running.is_up {
            return;
        }
        self.note(|| format!("{process} starts again"));
        let coordinator = self.new_coordinator(process);
        let restarted = &mut self.processes[process];
        (restarted.running.is_up, restarted.coordinator) = (true, coordinator);
        self.start_replica(process, false);
        self.go_on(process);
    }

    /// Starts the replica of a process.
    pub(super) fn start_replica(&mut self, process: usize, is_first: bool) {
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        if let Err(error) = replica.start(&self.store, is_first) {
            self.violated(format!("{process} cannot start: {error}"));
        }
    }

    /// Resumes a process: the events that arrived meanwhile happen at once.
    pub(super) fn resume(&mut self, process: usize) {
        let running = &mut self.processes[process].running;
        if running.stopped_until > self.now_us {
            return;
        }
        let life = running.life;
        for event in running.resume() {
            self.after(1, Happening::To { process, life, event });
        }
        self.go_on(process);
    }

    /// A disk becomes full, or has room again.
    pub(super) fn set_full(&mut self, process: usize, is_full: bool) {
        if let Some(replica) = &self.processes[process].replica {
            replica.disk().set_full(is_full);
        }
    }

    /// Stops the faults, and repairs everything.
    pub(super) fn repair_everything(&mut self) {
        self.note(|| "nothing breaks any more".to_owned());
        self.network.heal();
        for process in 0..self.processes.len() {
            self.restart(process);
            self.processes[process].running.stopped_until = 0;
            self.processes[process].deaf_until_us = 0;
            self.processes[process].replica_deaf_until_us = 0;
            self.resume(process);
            self.set_full(process, false);
        }
    }
}
