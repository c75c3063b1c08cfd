//! What breaks, and how it is repaired.

use super::disk::Disk;
use super::message::{Event, Happening};
use super::world::World;

/// The most starts of processes in a run: clocks of records have room for so many incarnations, and keys that
/// had more of them are none of the rules here.
const DEATHS_MAX: u32 = 20;

/// How wrong clocks may be, in milliseconds: by more than the time for which deletions are remembered.
const OFFSET_MS_MAX: i64 = 40_000;

impl World {
    /// Something breaks.
    pub(super) fn break_something(&mut self) {
        let process = self.rng.usize(..self.processes.len());
        let other = self.rng.usize(..self.processes.len());
        let second_us = 1_000_000;
        let kinds = if self.scenario.plan_every_ms.is_some() { 17 } else { 10 };
        match self.rng.u8(..kinds) {
            0..3 => self.end(process),
            3 => {
                let for_us = self.rng.u64(second_us / 10..4 * second_us);
                self.note(|| format!("{process} is stopped for {} ms", for_us / 1000));
                self.processes[process].stopped_until_us = self.now_us + for_us;
                self.after(for_us, Happening::Resume(process));
            }
            4 => {
                let for_us = self.rng.u64(second_us / 2..10 * second_us);
                self.note(|| format!("{process} is cut off for {} ms", for_us / 1000));
                self.network.isolate(process);
                self.after(for_us, Happening::Join(process));
            }
            5 | 6 => {
                let for_us = self.rng.u64(second_us / 2..10 * second_us);
                self.note(|| format!("{process} does not reach {other} for {} ms", for_us / 1000));
                self.network.block(process, other);
                self.after(for_us, Happening::Unblock(process, other));
                if self.rng.bool() {
                    self.network.block(other, process);
                    self.after(for_us, Happening::Unblock(other, process));
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
            }
            9 => (0..self.processes.len()).for_each(|process| self.end(process)),
            10..14 => {
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

    /// A process dies, and starts again later; maybe its machine lost power, or its disk.
    fn end(&mut self, process: usize) {
        if !self.processes[process].is_up || self.deaths >= DEATHS_MAX {
            return;
        }
        self.deaths += 1;
        // A disk is lost best when there is the least else.
        let is_another_away = self.processes[..self.scenario.nodes].iter().any(|node| !node.is_up);
        let loses_power = self.scenario.loses_power && self.rng.bool();
        let ended = &mut self.processes[process];
        (ended.is_up, ended.stopped_until_us) = (false, 0);
        ended.life += 1;
        let waited = std::mem::take(&mut ended.waiting);
        let unsynced = ended.replica.as_ref().map_or(0, |replica| replica.disk.unsynced());
        let kept = self.rng.usize(..=unsynced);
        if let Some(replica) = self.processes[process].replica.as_mut().filter(|_| loses_power) {
            replica.disk.lose_power(kept);
        }
        let may_lose_disk = self.scenario.loses_disk && !self.has_lost_disk;
        let loses_disk = may_lose_disk && self.rng.u8(..8) < if is_another_away { 4 } else { 1 };
        if let Some(replica) = self.processes[process].replica.as_mut().filter(|_| loses_disk) {
            (replica.disk, replica.is_behind) = (Disk::default(), true);
            self.has_lost_disk = true;
            self.note(|| format!("{process} loses its disk"));
        }
        self.note(|| match loses_power {
            true => format!("{process} loses power, and {} changes", unsynced - kept),
            false => format!("{process} dies"),
        });
        for event in waited {
            if let Event::Request { asker, .. } | Event::Synced { asker, .. } = event {
                self.connection_broke(asker);
            }
        }
        let away_us = self.rng.u64(100_000..15_000_000);
        self.after(away_us, Happening::Restart(process));
    }

    /// A process starts again.
    pub(super) fn restart(&mut self, process: usize) {
        if self.processes[process].is_up {
            return;
        }
        self.note(|| format!("{process} starts again"));
        let coordinator = self.new_coordinator(process);
        let restarted = &mut self.processes[process];
        (restarted.is_up, restarted.coordinator) = (true, coordinator);
        if let Some(replica) = &mut restarted.replica {
            replica.restart(&self.store);
        }
    }

    /// A process goes on: what came meanwhile comes at once.
    pub(super) fn resume(&mut self, process: usize) {
        if self.processes[process].stopped_until_us > self.now_us {
            return;
        }
        self.processes[process].stopped_until_us = 0;
        let life = self.processes[process].life;
        for event in std::mem::take(&mut self.processes[process].waiting) {
            self.after(1, Happening::To { process, life, event });
        }
    }

    /// A disk is full, or has room again.
    pub(super) fn set_full(&mut self, process: usize, is_full: bool) {
        if let Some(replica) = &mut self.processes[process].replica {
            replica.is_full = is_full;
        }
    }

    /// Nothing breaks any more, and what is broken is repaired.
    pub(super) fn repair_everything(&mut self) {
        self.note(|| "nothing breaks any more".to_owned());
        self.network.heal();
        for process in 0..self.processes.len() {
            self.restart(process);
            self.processes[process].stopped_until_us = 0;
            self.processes[process].deaf_until_us = 0;
            self.processes[process].replica_deaf_until_us = 0;
            self.resume(process);
            self.set_full(process, false);
        }
    }
}
