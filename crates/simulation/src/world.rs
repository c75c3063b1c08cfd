//! The world: time, the processes, and the dispatch of events to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use fondaco_decisions::{Now, RecordPath};
use fondaco_model::cluster::ClusterRecord;
use fondaco_model::{Identity, PartitionCount, PushState};

use crate::data::Sources;
use crate::event::{Event, ProcessEvent};
use crate::kernel::{Agenda, Chances, Network, Notes, Receipt, Violation};
use crate::oracle::Oracle;
use crate::outcome::Outcome;
use crate::process::{Leading, Node, Process, Reader, Role};
use crate::record::Value;
use crate::scenario::{Flaw, Scenario};
use crate::service::{CoordinationCounts, Service};

/// The interval at which each process does its periodic work, in milliseconds.
const TICK_MS: u64 = 1_000;

/// How long requests of the busy time may still be in flight, in milliseconds.
const LATE_MS: u64 = 10_000;

/// How long a settled cluster is watched, in milliseconds.
const WATCHED_MS: u64 = 5_000;

/// The maximum number of events in a run: more indicate a loop.
const EVENTS_MAX: u64 = 20_000_000;

/// Runs a scenario to its end.
///
/// # Errors
/// A rule was broken.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, false).run()
}

/// Runs a scenario to its end with notes: slower, but otherwise identical.
///
/// # Errors
/// A rule was broken.
pub fn simulate_traced(scenario: &Scenario) -> Result<Outcome, Violation> {
    World::new(scenario, true).run()
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now_ms: u64,
    pub(crate) rng: Rng,
    pub(crate) partitions: PartitionCount,
    pub(crate) network: Network,
    pub(crate) service: Service,
    pub(crate) processes: Vec<Process>,
    pub(crate) sources: Sources,
    pub(crate) oracle: Oracle,
    pub(crate) last_connection: u64,
    pub(crate) last_read: u64,
    pub(crate) last_fetch: u64,
    pub(crate) last_question: u64,
    pub(crate) at_steps: Vec<CoordinationCounts>,
    /// Processes that do not restart.
    pub(crate) removed: BTreeSet<usize>,
    agenda: Agenda<Event>,
    notes: Notes,
}

impl World {
    pub(crate) fn new(scenario: &Scenario, traced: bool) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let mut service = Service::new(scenario.flaw == Some(Flaw::WritesUnconditionally));
        // The number in a scenario is a power of two.
        let partitions = PartitionCount::try_from(scenario.partitions.next_power_of_two().min(16_384))
            .unwrap_or_else(|error| unreachable!("{error}"));
        let cluster = ClusterRecord {
            identity: identity(&mut rng),
            partitions,
            placement: scenario.placement,
            replicas: scenario.replicas,
            nodes_initial: scenario.nodes as u32,
            adoptions: 0,
        };
        service.set(RecordPath::Cluster, Some(Arc::new(Value::Cluster(cluster))), None);
        let mut world = Self {
            scenario: scenario.clone(),
            now_ms: 0,
            rng,
            partitions,
            network: network(scenario.fault_every_ms > 0),
            service,
            processes: Vec::new(),
            sources: Sources::default(),
            oracle: Oracle::default(),
            last_connection: 0,
            last_read: 0,
            last_fetch: 0,
            last_question: 0,
            at_steps: Vec::new(),
            removed: BTreeSet::new(),
            agenda: Agenda::default(),
            notes: Notes::new(traced),
        };
        for _ in 0..scenario.controllers {
            world.add(Role::Controller(Box::<Leading>::default()));
        }
        for _ in 0..scenario.nodes {
            world.add_node();
        }
        for _ in 0..scenario.readers {
            let identity = identity(&mut world.rng);
            world.add(Role::Reader(Box::new(Reader::new(identity))));
        }
        world.add(Role::Operator);
        for _ in 0..scenario.nodes_later {
            let at_ms = world.rng.u64(..scenario.busy_ms.max(1));
            world.at(at_ms, Event::Join);
        }
        world.schedule_next(scenario.fault_every_ms, Event::Fault);
        world.schedule_next(scenario.operate_every_ms, Event::Operate);
        for &(at_ms, step) in &scenario.script {
            world.at(at_ms, Event::Step(step));
        }
        world.at(scenario.busy_ms, Event::Judge);
        world
    }

    fn add(&mut self, role: Role) {
        let process = self.processes.len();
        let ahead_ms = self.rng.u64(..10_000_000_000);
        self.processes.push(Process::new(role, ahead_ms));
        self.begin_ticking(process);
    }

    fn add_node(&mut self) {
        let identity = identity(&mut self.rng);
        let zone = format!("zone{}", self.rng.u32(..2));
        self.add(Role::Node(Box::new(Node::new(identity, zone))));
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        let mut events = 0;
        while let Some((at_ms, _, event)) = self.agenda.take() {
            self.now_ms = at_ms;
            events += 1;
            if events > EVENTS_MAX {
                self.violation("the run does not end".to_owned());
            }
            let ended = self.happen(event);
            self.arrange_notifications();
            if let Some(violation) = self.notes.violation(self.scenario.seed, at_ms) {
                return Err(violation);
            }
            if ended {
                break;
            }
        }
        let pushes = self.oracle.pushes.values();
        let swapped = pushes.filter(|&&state| state == PushState::Swapped).count();
        Ok(Outcome {
            coordination: self.service.counts,
            at_steps: self.at_steps,
            last_swap_ms: self.oracle.last_swap_ms,
            pushes_swapped: swapped,
            pushes_given_up: self.oracle.pushes.len() - swapped,
            keys_read: self.oracle.reads_answered,
            keys_failed: self.oracle.reads_failed,
            events,
            took_ms: self.now_ms,
        })
    }

    /// Handles an event; returns whether it was the last one.
    fn happen(&mut self, event: Event) -> bool {
        match event {
            Event::To { process, life, event } => {
                if let Receipt::Now(event) = self.processes[process].running.receive(life, event, self.now_ms) {
                    self.happen_to(process, event);
                }
            }
            Event::ToService {
                process,
                life,
                connection,
                session,
                request,
            } => {
                self.expire_sessions();
                if !self.network.is_broken(connection) {
                    self.serve(process, life, connection, session, request);
                }
            }
            Event::Notify { session } => self.notify(session),
            Event::Restart(process) => self.restart(process),
            Event::Resume(process) if self.processes[process].running.is_running(self.now_ms) => self.resume(process),
            Event::Resume(_) => {}
            Event::Join => self.add_node(),
            Event::Step(step) => self.step(step),
            Event::Fault if self.is_busy() => {
                self.break_something();
                self.schedule_next(self.scenario.fault_every_ms, Event::Fault);
            }
            Event::Operate if self.is_busy() => {
                let operator = self
                    .processes
                    .iter()
                    .position(|process| matches!(process.role, Role::Operator));
                if let Some(operator) = operator.filter(|&operator| self.processes[operator].running.is_up) {
                    self.operate(operator);
                }
                self.schedule_next(self.scenario.operate_every_ms, Event::Operate);
            }
            Event::Fault | Event::Operate => {}
            Event::Judge => return self.judge(),
        }
        false
    }

    fn happen_to(&mut self, process: usize, event: ProcessEvent) {
        match event {
            ProcessEvent::FromService { connection, message } => self.hear(process, connection, message),
            ProcessEvent::Question(question) => self.asked(process, &question),
            ProcessEvent::Answer { read, sub, answer } => self.answered(process, read, sub, answer),
            ProcessEvent::WakeRead(read) => self.wake_read(process, read),
            ProcessEvent::FetchStep { key, number } => self.fetch_step(process, key, number),
            ProcessEvent::Tick => self.tick(process),
            ProcessEvent::Look => self.look(process),
        }
    }

    fn is_busy(&self) -> bool {
        self.now_ms < self.scenario.busy_ms
    }

    /// After the last fault: checks whether the cluster has settled. Returns whether the run is over.
    fn judge(&mut self) -> bool {
        if self.now_ms == self.scenario.busy_ms {
            self.repair_everything();
        }
        self.at(self.now_ms + 1_000, Event::Judge);
        match (self.oracle.settled_ms, self.is_settled()) {
            (Some(settled_ms), Ok(())) => return self.now_ms >= settled_ms + WATCHED_MS,
            (Some(_), Err(what)) => self.violation(format!("the cluster was settled, but is not any more: {what}")),
            (None, Ok(())) if self.now_ms >= self.scenario.busy_ms + LATE_MS && self.readers_know() => {
                self.oracle.settled_ms = Some(self.now_ms);
                let reader = self
                    .processes
                    .iter()
                    .position(|process| matches!(process.role, Role::Reader(_)));
                if let Some(reader) = reader {
                    self.read_everything_once(reader);
                }
            }
            (None, state) if self.now_ms >= self.scenario.busy_ms + self.scenario.settle_ms => {
                let what = state
                    .err()
                    .unwrap_or_else(|| "routers do not know the current state".to_owned());
                self.violation(format!("the cluster does not settle: {what}"));
            }
            (None, _) => {}
        }
        false
    }

    /// Whether all readers have the current state.
    fn readers_know(&mut self) -> bool {
        let view = self.service.snapshot(false);
        let readers = self
            .processes
            .iter()
            .filter(|process| matches!(process.role, Role::Reader(_)));
        readers.into_iter().all(|process| process.view == view)
    }

    /// A process does its due work.
    pub(crate) fn look(&mut self, process: usize) {
        match self.processes[process].role {
            Role::Node(_) => self.look_as_node(process),
            Role::Controller(_) => self.look_as_controller(process),
            Role::Reader(_) => self.look_as_reader(process),
            Role::Operator => {}
        }
    }

    /// Schedules another look of a process, after its current work.
    pub(crate) fn look_soon(&mut self, process: usize) {
        self.at_process(self.now_ms, process, ProcessEvent::Look);
    }

    fn tick(&mut self, process: usize) {
        self.tend_link(process);
        match self.processes[process].role {
            Role::Reader(_) => {
                let announced = match &self.processes[process].role {
                    Role::Reader(reader) => reader.announced,
                    _ => true,
                };
                if !announced && self.processes[process].view_is_whole {
                    self.look(process);
                }
                self.tick_as_reader(process);
            }
            _ => self.look(process),
        }
        self.tick_later(process, TICK_MS);
    }

    /// Starts the periodic work of a process.
    pub(crate) fn begin_ticking(&mut self, process: usize) {
        let first_ms = self.rng.u64(..200);
        self.tick_later(process, first_ms);
    }

    fn tick_later(&mut self, process: usize, delay_ms: u64) {
        self.at_process(self.now_ms + delay_ms, process, ProcessEvent::Tick);
    }

    fn schedule_next(&mut self, every_ms: u64, event: Event) {
        if every_ms > 0 {
            let delay_ms = self.rng.u64(1..=every_ms * 2);
            self.at(self.now_ms + delay_ms, event);
        }
    }

    /// Schedules an event at a time.
    pub(crate) fn at(&mut self, at_ms: u64, event: Event) {
        self.agenda.put(at_ms, event);
    }

    /// Schedules an event of the current life of a process.
    pub(crate) fn at_process(&mut self, at_ms: u64, process: usize, event: ProcessEvent) {
        let life = self.processes[process].running.life;
        self.at(at_ms, Event::To { process, life, event });
    }

    /// The time of a process's clock.
    pub(crate) fn now_of(&self, process: usize) -> Now {
        let ahead_ms = self.processes[process].clock_ahead_ms;
        Now {
            monotonic_ms: self.now_ms + ahead_ms,
            unix_ms: self.now_ms.wrapping_mul(3).wrapping_sub(ahead_ms / 2),
        }
    }

    /// Adds a note, if the run is traced.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        self.notes.add(self.now_ms, what);
    }

    /// Records a broken rule; only the first one counts.
    pub(crate) fn violation(&mut self, what: String) {
        self.notes.broke(what);
    }
}

/// A network with or without random failures. All times are in milliseconds.
fn network(is_unreliable: bool) -> Network {
    let chances = Chances {
        late: 20,
        lost: 10,
        doubled: 20,
    };
    let chances = if is_unreliable { chances } else { Chances::default() };
    Network::new(1..15, 50..2_000, 1..100, chances)
}

fn identity(rng: &mut Rng) -> Identity {
    Identity::of(u128::from(rng.u64(..)) << 64 | u128::from(rng.u64(..)))
}
