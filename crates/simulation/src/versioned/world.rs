//! The world of one versioned store: time, processes, and their events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use fondaco_model::{NodeId, PartitionSet, RoutingTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::coordinator::Coordinator;
use super::history::History;
use super::machine::{self, Machine, WorldClock};
use super::message::{Event, Happening, Matter};
use super::replica::{Deeds, Life, Replica, Store};
use super::scenario::{Flaw, Scenario};
use super::sums::Sums;
use super::topology::{first_table, id, name, partitions};
use crate::kernel::{Agenda, Chances, FaultyDisk, Network, Notes, Place, Receipt, Running, Violation};

/// The approximate interval of a process's periodic work, in microseconds.
const TICK_US: u64 = 250_000;

/// The session timeout of a silent node in the coordination service, in microseconds.
const SESSION_US: u64 = 3_000_000;

/// The interval between checks at the end whether everything has settled, in microseconds.
const LOOK_US: u64 = 1_000_000;

/// The maximum number of events in a run: more indicate a loop.
const EVENTS_MAX: u64 = 5_000_000;

/// Runs a scenario to its end.
///
/// # Errors
/// A guarantee was broken, or replicas do not become equal.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, false).run()
}

/// Runs a scenario to its end with notes: slower, but otherwise identical.
///
/// # Errors
/// A guarantee was broken, or replicas do not become equal.
pub fn simulate_traced(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, true).run()
}

/// The statistics of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Successful operations.
    pub answered: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Completed comparisons of two replicas.
    pub exchanges: u64,
    /// Groups of writes that were committed together.
    pub commits: u64,
    /// Deletions that replicas have forgotten.
    pub forgotten: u64,
    /// How often each partition was split in two.
    pub splits: u32,
    /// How often the number of replicas began to change.
    pub counts: u64,
    /// Steps of plans that move partitions: begun, cancelled, switched or finished.
    pub steps_of_plans: u64,
    /// How often processes ended.
    pub deaths: u32,
    /// How many of these were clean stops.
    pub stops: u64,
    /// How many disks were lost, or replaced by older copies.
    pub disks: u64,
    /// How many records became unreadable.
    pub unreadable: u64,
    /// The number of events.
    pub events: u64,
    /// The duration in simulated milliseconds.
    pub took_ms: u64,
    /// A hash of all events and their times: another run of the scenario has the same hash.
    pub trace: u64,
}

/// A node, or a client without a replica.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) running: Running<Event>,
    /// The error of its clock.
    pub(super) offset_ms: i64,
    /// When the coordination service last heard from it.
    heard_us: u64,
    /// Until this time, its coordinator learns nothing of the cluster except on request, and its replica nothing at
    /// all.
    pub(super) deaf_until_us: u64,
    pub(super) replica_deaf_until_us: u64,
    pub(super) replica: Option<Replica>,
    pub(super) coordinator: Coordinator,
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) store: Store,
    /// The routing table in the coordination service.
    pub(super) table: Arc<RoutingTable>,
    pub(super) rng: Rng,
    pub(super) now_us: u64,
    /// The same time, for replicas.
    pub(super) clock: Arc<WorldClock>,
    pub(super) network: Network,
    pub(super) processes: Vec<Process>,
    pub(super) history: History,
    pub(super) sums: Sums,
    pub(super) outcome: Outcome,
    pub(super) deaths: u32,
    pub(super) lost_disks: usize,
    /// The last reports of nodes: the epoch of their table, and the partitions that lack some of their data.
    pub(super) reports: BTreeMap<NodeId, (u64, PartitionSet)>,
    /// The last number given to an operation, a chore's request or a value.
    pub(super) last_number: u64,
    is_calm: bool,
    agenda: Agenda<Happening>,
    notes: Notes,
}

impl World {
    fn new(scenario: &Scenario, is_traced: bool) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let store = Store {
            name: name(),
            settings: scenario.settings,
            replicas: scenario.replicas as usize,
            nodes: scenario.nodes,
            flaw: scenario.flaw,
        };
        let table = first_table(scenario, partitions(scenario.partitions));
        let mut world = Self {
            scenario: scenario.clone(),
            table: Arc::new(table),
            store,
            network: network(&mut rng),
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
            agenda: Agenda::default(),
            notes: Notes::new(is_traced),
        };
        for process in 0..scenario.nodes + scenario.clients {
            let is_node = process < scenario.nodes;
            let coordinator = world.new_coordinator(process);
            let replica = is_node.then(|| world.new_replica(process));
            world.processes.push(Process {
                running: Running::new(),
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
        let disk = FaultyDisk::simulated(self.rng.u64(1..), self.rng.u64(..2_000), never_syncs);
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
        while let Some((at_us, number, happening)) = self.agenda.take() {
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
            self.happen(happening);
            self.outcome.events += 1;
            self.outcome.trace = xxh3_64_with_seed(
                &[at_us.to_le_bytes(), number.to_le_bytes()].concat(),
                self.outcome.trace,
            );
            if self.outcome.events > EVENTS_MAX {
                self.violated(format!("the run does not end after {EVENTS_MAX} events"));
            }
            if self.notes.is_broken() {
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
        if let Some(mut violation) = self.notes.violation(self.scenario.seed, took_ms) {
            violation.what = format!("{}\n{:?}", violation.what, self.scenario);
            return Err(violation);
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
                if self.processes[process].running.is_running(self.now_us) {
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
            Happening::Room(process) => self.set_full(process, false),
            Happening::Calm => {
                self.is_calm = true;
                self.repair_everything();
            }
        }
    }

    fn happen_to(&mut self, process: usize, life: u32, event: Event) {
        let event = match self.processes[process].running.receive(life, event, self.now_us) {
            Receipt::Now(event) => event,
            Receipt::Gone(Event::Request { asker, .. }) => return self.connection_broke(asker),
            Receipt::Gone(_) | Receipt::Waits => return,
        };
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
                let live = self.processes[process].coordinator.live();
                self.learn(process, &live, &table);
            }
            Event::ChoreEnds(number) => self.chore_ends(process, number),
        }
    }

    /// A process reports that it is live, learns which other nodes are, and does its periodic work.
    fn look_around(&mut self, process: usize) {
        let now_us = self.now_us;
        if !self.network.is_isolated(Place::Process(process), now_us) {
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
            // An operator gives up data that no other node has, but not immediately.
            if self.rng.u8(..16) == 0
                && let Err(error) = replica.accept_losses()
            {
                self.violated(format!("{process} cannot give up the lost data: {error}"));
            }
        }
        for node in self.processes[process].coordinator.to_probe(now_us) {
            let place = node.get() as usize - 1;
            let is_there =
                self.processes[place].running.is_running(now_us) && self.network.connects(process, place, now_us);
            self.processes[process].coordinator.probed(node, is_there, now_us);
        }
    }

    /// Whether the coordination service considers a node live.
    pub(super) fn is_seen(&self, node: NodeId) -> bool {
        self.processes[node.get() as usize - 1].heard_us + SESSION_US > self.now_us
    }

    /// The time of a process's clock, in milliseconds since 1970.
    pub(super) fn unix_ms(&self, process: usize) -> u64 {
        machine::unix_ms(self.now_us, self.processes[process].offset_ms)
    }

    /// Schedules an event in this many microseconds.
    pub(super) fn after(&mut self, after_us: u64, happening: Happening) {
        self.agenda.put(self.now_us + after_us, happening);
    }

    /// Adds the counts of a process when it ends.
    pub(super) fn count(&mut self, deeds: &Deeds) {
        self.outcome.exchanges += deeds.exchanges;
        self.outcome.forgotten += deeds.forgotten;
        self.outcome.commits += deeds.commits;
    }

    /// Records a broken guarantee; only the first one counts.
    pub(super) fn violated(&mut self, what: String) {
        self.notes.broke(what);
    }

    /// Adds a note, if the run is traced.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        self.notes.add(format_args!("{:.3} ms", self.now_us as f64 / 1e3), what);
    }
}

/// A network with random failures, or without some. All times are in microseconds. A coordinator gives up before the latest
/// messages arrive.
fn network(rng: &mut Rng) -> Network {
    let mut chance = |most: u32| rng.u32(..=most) * rng.u32(0..=1);
    let chances = Chances {
        late: chance(60),
        lost: chance(30),
        doubled: chance(50),
    };
    Network::new(50..1_500, 1_000..600_000, 1_000..100_000, chances)
}
