//! Faults: processes end, pause and come back, disks lose versions or become full, lines are cut, sources disappear or
//! change, clocks jump.

use crate::event::Event;
use crate::kernel::Place;
use crate::process::Role;
use crate::world::World;
use fondaco_model::Identity;

impl World {
    /// Causes a random fault.
    pub(crate) fn break_something(&mut self) {
        let process = self.rng.usize(..self.processes.len());
        let now_ms = self.now_ms;
        match self.rng.u32(..100) {
            0..20 => self.crash(process, Loss::Nothing),
            20..25 => self.crash(process, Loss::Versions),
            25..28 => self.crash(process, Loss::Everything),
            28..45 => {
                let until_ms = now_ms + self.rng.u64(500..25_000);
                self.note(|| format!("process {process} is stopped until {until_ms}"));
                self.stop(process, until_ms);
            }
            45..60 => {
                let until_ms = now_ms + self.rng.u64(1_000..25_000);
                self.note(|| format!("process {process} is cut off from coordination until {until_ms}"));
                self.network.cut(Place::Coordination, Place::Process(process), until_ms);
            }
            60..75 => {
                let other = self.rng.usize(..self.processes.len());
                let until_ms = now_ms + self.rng.u64(1_000..20_000);
                self.note(|| format!("processes {process} and {other} are cut off from each other until {until_ms}"));
                for (from, to) in [(process, other), (other, process)] {
                    self.network.cut(Place::Process(from), Place::Process(to), until_ms);
                }
            }
            75..83 => {
                let pick = self.rng.usize(..);
                let until_ms = now_ms + self.rng.u64(1_000..20_000);
                self.note(|| "a source is gone".to_owned());
                self.sources.lose(pick, until_ms);
            }
            83..86 => {
                let pick = self.rng.usize(..);
                self.note(|| "a source has changed".to_owned());
                self.sources.change(pick);
            }
            86..93 => {
                let until_ms = now_ms + self.rng.u64(1_000..30_000);
                if let Role::Node(node) = &mut self.processes[process].role {
                    node.disk.full_until_ms = until_ms;
                    self.note(|| format!("the disk of {process} is full until {until_ms}"));
                }
            }
            _ => {
                let jump_ms = self.rng.u64(1_000..3_600_000);
                self.processes[process].clock_ahead_ms += jump_ms;
                self.note(|| format!("the clock of {process} jumps by {jump_ms} ms"));
            }
        }
    }

    fn crash(&mut self, process: usize, loss: Loss) {
        if !self.processes[process].running.is_up {
            return;
        }
        self.note(|| format!("process {process} ends, and loses {loss:?}"));
        self.processes[process].end();
        let bits = u128::from(self.rng.u64(..)) << 64 | u128::from(self.rng.u64(..));
        let now_ms = self.now_ms;
        if let Role::Node(node) = &mut self.processes[process].role {
            match loss {
                Loss::Nothing => {}
                Loss::Versions => {
                    node.disk.versions.clear();
                    node.lost_ms = Some(now_ms);
                }
                Loss::Everything => {
                    node.disk = Default::default();
                    node.identity = Identity::of(bits);
                    node.lost_ms = Some(now_ms);
                }
            }
        }
        let back_ms = now_ms + self.rng.u64(100..25_000);
        self.at(back_ms, Event::Restart(process));
    }

    /// Ends a process for good.
    pub(crate) fn remove(&mut self, process: usize) {
        self.note(|| format!("process {process} ends for good"));
        self.processes[process].end();
        self.removed.insert(process);
    }

    /// Restarts a process.
    pub(crate) fn restart(&mut self, process: usize) {
        if self.processes[process].running.is_up || self.removed.contains(&process) {
            return;
        }
        self.note(|| format!("process {process} starts"));
        self.processes[process].running.is_up = true;
        self.start_node(process);
        self.begin_ticking(process);
    }

    fn stop(&mut self, process: usize, until_ms: u64) {
        let running = &mut self.processes[process].running;
        if running.is_running(self.now_ms) {
            running.stopped_until = until_ms;
            self.at(until_ms, Event::Resume(process));
        }
    }

    /// Resumes a paused process: everything that reached it meanwhile arrives at once.
    pub(crate) fn resume(&mut self, process: usize) {
        for event in self.processes[process].running.resume() {
            self.at_process(self.now_ms, process, event);
        }
    }

    /// Stops the faults, and repairs everything.
    pub(crate) fn repair_everything(&mut self) {
        self.note(|| "nothing breaks any more".to_owned());
        self.network.heal();
        self.sources.restore();
        for process in 0..self.processes.len() {
            self.resume(process);
            self.restart(process);
            if let Role::Node(node) = &mut self.processes[process].role {
                node.disk.full_until_ms = 0;
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Loss {
    Nothing,
    Versions,
    Everything,
}
