//! The world of one versioned store: time, processes, and what happens to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use fondaco_model::{NodeId, RoutingTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::coordinator::Coordinator;
use super::disk::Disk;
use super::history::History;
use super::machine::{self, Machine, WorldClock};
use super::message::{Event, Happening, Matter};
use super::network::Network;
use super::replica::{Deeds, Life, Replica, Store};
use super::scenario::{Flaw, Scenario};
use super::sums::Sums;
use super::topology::{first_table, id, name, partitions};
use crate::outcome::Violation;

/// How often a process looks around, in microseconds, about.
const TICK_US: u64 = 250_000;

/// How long the coordination service waits for word of a node, in microseconds.
const SESSION_US: u64 = 3_000_000;

/// How often it is looked in the end whether all is well, in microseconds.
const LOOK_US: u64 = 1_000_000;

/// The most events of a run: more are a loop.
const EVENTS_MAX: u64 = 5_000_000;

/// How many lines of what happened last are remembered.
const NOTES_MAX: usize = 2_000;

/// Runs a scenario to its end.
///
/// # Errors
/// A promise was broken, or replicas do not become equal.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, false).run()
}

/// Runs a scenario to its end, and notes what happens: slower, and the same otherwise.
///
/// # Errors
/// A promise was broken, or replicas do not become equal.
pub fn simulate_traced(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, true).run()
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations that did what they were to do.
    pub answered: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Comparisons of two replicas that came to their end.
    pub exchanges: u64,
    /// Groups of writes that were committed together.
    pub commits: u64,
    /// Deletions that replicas have forgotten.
    pub forgotten: u64,
    /// Steps of plans that move partitions: that they began, were given up, switched or finished.
    pub steps_of_plans: u64,
    /// How often processes ended.
    pub deaths: u32,
    /// How often they did so in good order.
    pub stops: u64,
    /// How many disks were lost, or replaced by older copies.
    pub disks: u64,
    /// How many records became unreadable.
    pub unreadable: u64,
    /// How many events there were.
    pub events: u64,
    /// How long it took, in the world's milliseconds.
    pub took_ms: u64,
    /// A hash of when what happened: that of another run of the scenario is the same.
    pub trace: u64,
}

/// A node, or a client that is none.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) life: u32,
    pub(super) is_up: bool,
    pub(super) stopped_until_us: u64,
    /// What came while it was stopped.
    pub(super) waiting: Vec<Event>,
    /// How wrong its clock is.
    pub(super) offset_ms: i64,
    /// When the coordination service last heard of it.
    heard_us: u64,
    /// Until when its coordinator hears nothing of the cluster but what it asks for, and its replica nothing at all.
    pub(super) deaf_until_us: u64,
    pub(super) replica_deaf_until_us: u64,
    pub(super) replica: Option<Replica>,
    pub(super) coordinator: Coordinator,
}

impl Process {
    pub(super) fn is_running(&self, now_us: u64) -> bool {
        self.is_up && self.stopped_until_us <= now_us
    }
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) store: Store,
    /// Where partitions are, as the coordination service says.
    pub(super) table: Arc<RoutingTable>,
    pub(super) rng: Rng,
    pub(super) now_us: u64,
    /// The same, for replicas.
    pub(super) clock: Arc<WorldClock>,
    pub(super) network: Network,
    pub(super) processes: Vec<Process>,
    pub(super) history: History,
    pub(super) sums: Sums,
    pub(super) outcome: Outcome,
    pub(super) deaths: u32,
    pub(super) lost_disks: usize,
    /// What nodes said last: the epoch of the table that they go by, and whether they have what that gives them.
    pub(super) reports: BTreeMap<NodeId, (u64, bool)>,
    /// The last number of an operation, a piece of work or a value.
    pub(super) last_number: u64,
    is_calm: bool,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    last_happening: u64,
    is_traced: bool,
    notes: VecDeque<String>,
    violation: Option<String>,
}

impl World {
    fn new(scenario: &Scenario, is_traced: bool) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let store = Store {
            name: name(),
            partitions: partitions(scenario.partitions),
            settings: scenario.settings,
            replicas: scenario.replicas as usize,
            nodes: scenario.nodes,
            flaw: scenario.flaw,
        };
        let table = first_table(scenario, store.partitions);
        let mut world = Self {
            scenario: scenario.clone(),
            table: Arc::new(table),
            store,
            network: Network::new(&mut rng),
            rng,
            now_us: 1,
            clock: WorldClock::new(),
            processes: Vec::new(),
            history: History::new(scenario.promise()),
            sums: Sums::new(scenario.promise()),
            outcome: Outcome::default(),
            deaths: 0,
            lost_disks: 0,
            reports: BTreeMap::new(),
            last_number: 0,
            is_calm: false,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            last_happening: 0,
            is_traced,
            notes: VecDeque::new(),
            violation: None,
        };
        for process in 0..scenario.nodes + scenario.clients {
            let is_node = process < scenario.nodes;
            let coordinator = world.new_coordinator(process);
            let replica = is_node.then(|| world.new_replica(process));
            world.processes.push(Process {
                life: 0,
                is_up: true,
                stopped_until_us: 0,
                waiting: Vec::new(),
                offset_ms: 0,
                heard_us: 1,
                deaf_until_us: 0,
                replica_deaf_until_us: 0,
                replica,
                coordinator,
            });
            let first_us = world.rng.u64(..TICK_US);
            world.after(first_us, Happening::Tick(process));
        }
        for process in 0..scenario.nodes {
            world.start_replica(process, true);
        }
        world.after(1, Happening::Operate);
        world.after(scenario.fault_every_ms * 1_000, Happening::Fault);
        world.begin_plans();
        world.after(scenario.busy_ms * 1_000, Happening::Calm);
        world
    }

    fn new_replica(&mut self, process: usize) -> Replica {
        let never_syncs = self.scenario.flaw == Some(Flaw::AcknowledgesUnsynced);
        let disk = Disk::new(self.rng.u64(1..), self.rng.u64(..2_000), never_syncs);
        let machine = Machine {
            clock: Arc::clone(&self.clock),
            disk,
            offset_ms: 0.into(),
            rng: Rng::with_seed(self.rng.u64(..)).into(),
        };
        Replica::new(id(process), machine, &self.table)
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        let calm_us = self.scenario.busy_ms * 1_000;
        let ends_us = calm_us + self.scenario.settle_ms * 1_000;
        let mut look_us = calm_us + self.scenario.watched_ms * 1_000;
        while let Some(Reverse((at_us, number))) = self.agenda.pop() {
            if self.is_calm && at_us >= look_us {
                look_us = at_us + LOOK_US;
                self.read_what_is_spoilt();
                let unsettled = self.unsettled();
                if unsettled.is_none() {
                    self.judge();
                    break;
                }
                if let Some(what) = unsettled.filter(|_| at_us >= ends_us) {
                    let settle_ms = self.scenario.settle_ms;
                    self.violated(format!("{settle_ms} ms after the last fault {what}"));
                }
            }
            self.now_us = self.now_us.max(at_us);
            self.clock.set(self.now_us);
            if let Some(happening) = self.happenings.remove(&number) {
                self.happen(happening);
            }
            self.outcome.events += 1;
            self.outcome.trace = xxh3_64_with_seed(
                &[at_us.to_le_bytes(), number.to_le_bytes()].concat(),
                self.outcome.trace,
            );
            if self.outcome.events > EVENTS_MAX {
                self.violated(format!("after {EVENTS_MAX} events there is no end"));
            }
            if self.violation.is_some() {
                break;
            }
        }
        let took_ms = self.now_us / 1_000;
        for process in 0..self.processes.len() {
            let life = self.processes[process]
                .replica
                .as_ref()
                .and_then(|replica| replica.life.as_ref());
            if let Some(deeds) = life.map(Life::deeds) {
                self.count(&deeds);
            }
        }
        if let Some(what) = self.violation {
            return Err(Violation {
                seed: self.scenario.seed,
                at_ms: took_ms,
                what: format!("{what}\n{:?}", self.scenario),
                notes: self.notes.into(),
            });
        }
        Ok(Outcome {
            took_ms,
            deaths: self.deaths,
            acknowledged: (self.history.acknowledged() + self.sums.acknowledged()) as u64,
            ..self.outcome
        })
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::To { process, life, event } => {
                self.happen_to(process, life, event);
                self.go_on(process);
            }
            Happening::Tick(process) => {
                let next_us = self.rng.u64(TICK_US / 2..TICK_US * 3 / 2);
                self.after(next_us, Happening::Tick(process));
                if self.processes[process].is_running(self.now_us) {
                    self.look_around(process);
                    self.go_on(process);
                }
            }
            Happening::Operate if !self.is_calm => {
                let every_us = self.scenario.operate_every_ms * 1_000;
                let next_us = self.rng.u64(..2 * every_us);
                self.after(next_us, Happening::Operate);
                self.operate();
            }
            Happening::Fault if !self.is_calm => {
                let every_us = self.scenario.fault_every_ms * 1_000;
                let next_us = self.rng.u64(..2 * every_us);
                self.after(next_us, Happening::Fault);
                self.break_something();
            }
            Happening::Plan if !self.is_calm => self.plan(),
            Happening::LookAtPlan => self.look_at_plan(),
            Happening::Operate | Happening::Fault | Happening::Plan => {}
            Happening::Restart(process) => self.restart(process),
            Happening::Resume(process) => self.resume(process),
            Happening::Unblock(from, to) => self.network.unblock(from, to),
            Happening::Join(process) => self.network.join(process),
            Happening::Room(process) => self.set_full(process, false),
            Happening::Calm => {
                self.is_calm = true;
                self.repair_everything();
            }
        }
    }

    fn happen_to(&mut self, process: usize, life: u32, event: Event) {
        let at = &mut self.processes[process];
        if !at.is_up || at.life != life {
            if let Event::Request { asker, .. } = event {
                self.connection_broke(asker);
            }
            return;
        }
        if !at.is_running(self.now_us) {
            return at.waiting.push(event);
        }
        match event {
            Event::Request { asker, request } => self.serve(process, asker, *request),
            Event::Answer { of, answer } => match of {
                Matter::Operation { number, ask } => self.operation_answered(process, number, ask, answer),
                Matter::Chore(number) => self.chore_answered(process, number, answer),
            },
            Event::Commit(shard) => self.commit(process, shard),
            Event::Sync(shard) => self.sync(process, shard),
            Event::Poll => self.polled(process),
            Event::Wake(number) => self.wake_operation(process, number),
            Event::Told(table) => {
                let live = at.coordinator.live();
                self.learn(process, &live, &table);
            }
            Event::ChoreEnds(number) => self.chore_ends(process, number),
        }
    }

    /// A process tells the coordination service that it is live, learns which others are, and does what is to be done.
    fn look_around(&mut self, process: usize) {
        let now_us = self.now_us;
        if !self.network.is_isolated(process) {
            self.processes[process].heard_us = now_us;
            let live: BTreeSet<NodeId> = (0..self.scenario.nodes)
                .map(id)
                .filter(|&node| self.is_seen(node))
                .collect();
            self.hear(process, &live);
            self.report(process);
        }
        if let Some(replica) = &mut self.processes[process].replica {
            replica.look_what_is_lost();
            // An operator gives up what no other node has: not at once.
            if self.rng.u8(..16) == 0
                && let Err(error) = replica.accept_losses()
            {
                self.violated(format!("{process} cannot give up what is lost: {error}"));
            }
        }
        for node in self.processes[process].coordinator.to_probe(now_us) {
            let place = node.get() as usize - 1;
            let is_there = self.processes[place].is_running(now_us)
                && self.network.reaches(process, place)
                && self.network.reaches(place, process);
            self.processes[process].coordinator.probed(node, is_there, now_us);
        }
    }

    /// Whether the coordination service takes a node to be there.
    pub(super) fn is_seen(&self, node: NodeId) -> bool {
        self.processes[node.get() as usize - 1].heard_us + SESSION_US > self.now_us
    }

    /// What time it is by the clock of a process, in milliseconds since 1970.
    pub(super) fn unix_ms(&self, process: usize) -> u64 {
        machine::unix_ms(self.now_us, self.processes[process].offset_ms)
    }

    /// Something is to happen in so many microseconds.
    pub(super) fn after(&mut self, after_us: u64, happening: Happening) {
        self.last_happening += 1;
        self.agenda.push(Reverse((self.now_us + after_us, self.last_happening)));
        self.happenings.insert(self.last_happening, happening);
    }

    /// What a process has done is counted when it ends.
    pub(super) fn count(&mut self, deeds: &Deeds) {
        self.outcome.exchanges += deeds.exchanges;
        self.outcome.forgotten += deeds.forgotten;
        self.outcome.commits += deeds.commits;
    }

    /// A promise is broken: the first is told.
    pub(super) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Notes what happens, if that is wanted.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_traced {
            if self.notes.len() >= NOTES_MAX {
                self.notes.pop_front();
            }
            self.notes
                .push_back(format!("{:>9.3} ms  {}", self.now_us as f64 / 1e3, what()));
        }
    }
}
