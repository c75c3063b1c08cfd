//! The controller's work: standing for election, and carrying out the model's decisions while this process leads.
//!
//! It is level-triggered: the next pass decides anew by the state at that time, whatever was missed or failed before. A
//! leader that does not know yet that it lost leadership does no harm, since every write is conditional.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_catalog::Settings;
use fondaco_cluster::layout::ELECTION;
use fondaco_cluster::{Bootstrap, Candidate, ChangeSignal, ClusterError, Ending, Mirror, Origin, Worker, carry_out};
use fondaco_coordination::{Coordination, CoordinationError, Election};
use fondaco_decisions::{Controller, Now, Patience};
use fondaco_model::cluster::ClusterView;
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;

use crate::balancer::Balancer;
use crate::cluster_load::ClusterLoad;
use crate::config::MachinesConfig;
use crate::journal::Journal;
use crate::machines::Machines;

/// How often a pass begins when nothing changes.
const TICK: Duration = Duration::from_secs(1);

/// The shortest time between two passes when nothing changes.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// How often a candidate checks whether it leads: a stop waits at most for this long.
const CANDIDATE_TICK: Duration = Duration::from_millis(100);

/// The controller of a process. Dropping it resigns.
pub struct ControllerWork {
    shared: Arc<Shared>,
    cluster_load: Arc<ClusterLoad>,
    journal: Arc<Journal>,
    _worker: Worker,
}

/// The parts by which a controller evens out the load.
pub struct BalancerParts {
    /// The live settings.
    pub settings: Arc<Settings>,
    /// The decisions so far.
    pub journal: Journal,
    /// How machines are requested, if they are.
    pub machines: Option<MachinesConfig>,
}

#[derive(Default)]
struct Shared {
    leading: AtomicBool,
    decisions: AtomicU64,
    changes: AtomicU64,
    conflicts: AtomicU64,
    hook_failures: AtomicU64,
    problems: Mutex<Vec<String>>,
}

/// Counters of a controller, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct ControllerCounts {
    /// Whether it leads.
    pub leading: bool,
    /// Passes of its loop.
    pub decisions: u64,
    /// Decisions that were carried out.
    pub changes: u64,
    /// Decisions that came too late.
    pub conflicts: u64,
    /// How often the hook for machines has failed for the request under way.
    pub hook_failures: u64,
}

impl ControllerWork {
    /// Stands for election, on a thread of its own.
    pub fn start(
        coordination: Arc<dyn Coordination>,
        mirror: Mirror,
        bootstrap: Option<Bootstrap>,
        candidate: &Candidate,
        patience: Patience,
        parts: BalancerParts,
    ) -> Result<Self, ClusterError> {
        let cluster_load = Arc::new(ClusterLoad::default());
        let journal = Arc::new(parts.journal);
        let change_signal = Arc::new(ChangeSignal::default());
        mirror.raise_on_change(&change_signal);
        let shared = Arc::new(Shared::default());
        let candidate = serde_json::to_vec(candidate).map_err(ClusterError::invalid_metadata(ELECTION))?;
        let work = Work {
            shared: Arc::clone(&shared),
            change_signal: Arc::clone(&change_signal),
            coordination,
            mirror,
            bootstrap,
            patience,
            started: Instant::now(),
            cluster_load: Arc::clone(&cluster_load),
            journal: Arc::clone(&journal),
            settings: parts.settings,
            machines: parts.machines,
        };
        Ok(Self {
            shared,
            cluster_load,
            journal,
            _worker: Worker::start("controller", change_signal, move |ending| work.run(&candidate, ending))?,
        })
    }

    /// The reports of nodes.
    pub fn cluster_load(&self) -> &ClusterLoad {
        &self.cluster_load
    }

    /// Its decisions.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The counters so far.
    pub fn counts(&self) -> ControllerCounts {
        ControllerCounts {
            leading: self.shared.leading.load(Relaxed),
            decisions: self.shared.decisions.load(Relaxed),
            changes: self.shared.changes.load(Relaxed),
            conflicts: self.shared.conflicts.load(Relaxed),
            hook_failures: self.shared.hook_failures.load(Relaxed),
        }
    }

    /// The problems that keep it from doing all its work while it leads.
    pub fn problems(&self) -> Vec<String> {
        self.shared.problems.lock().clone()
    }
}

struct Work {
    shared: Arc<Shared>,
    change_signal: Arc<ChangeSignal>,
    coordination: Arc<dyn Coordination>,
    mirror: Mirror,
    /// How to make the cluster, unless the node of this process does.
    bootstrap: Option<Bootstrap>,
    patience: Patience,
    started: Instant,
    cluster_load: Arc<ClusterLoad>,
    journal: Arc<Journal>,
    settings: Arc<Settings>,
    machines: Option<MachinesConfig>,
}

impl Work {
    fn run(&self, candidate: &[u8], ending: &Ending) {
        let Some(election) = self.join(candidate, ending) else {
            return;
        };
        while !ending.has_come() {
            if election.wait(CANDIDATE_TICK) {
                tracing::info!("this controller leads");
                self.lead(&election, ending);
                tracing::info!("this controller leads no longer");
            }
        }
    }

    fn join(&self, candidate: &[u8], ending: &Ending) -> Option<Election> {
        let path = ELECTION.parse().ok()?;
        while !ending.has_come() {
            let seen = self.change_signal.count();
            match self.coordination.elect(&path, candidate) {
                Ok(election) => return Some(election),
                Err(error) => tracing::warn!(%error, "cannot stand for election: trying again"),
            }
            self.change_signal.wait(seen, TICK);
        }
        None
    }

    fn lead(&self, election: &Election, ending: &Ending) {
        // Its timers restart with each term: it did not watch in between.
        let mut controller = Controller::new(self.patience);
        let (cluster_load, journal) = (Arc::clone(&self.cluster_load), Arc::clone(&self.journal));
        let machines = self.machines.as_ref();
        let machines = machines.map(|config| Machines::new(config, Arc::clone(&self.coordination)));
        let mut balancer = Balancer::new(cluster_load, journal, Arc::clone(&self.settings), machines);
        while !ending.has_come() && election.is_leader() {
            self.shared.leading.store(true, Relaxed);
            let seen = self.change_signal.count();
            let sighting = self.mirror.sighting();
            let mut again = false;
            if sighting.origin == Origin::Service && sighting.is_current {
                let bootstrap = self.bootstrap.as_ref();
                let founded = bootstrap.map(|bootstrap| bootstrap.found(&*self.coordination, &self.mirror));
                if let Some(Err(error)) = founded {
                    tracing::warn!(%error, "cannot make the cluster: trying again");
                }
                let now = Now {
                    monotonic_ms: self.started.elapsed().as_millis() as u64,
                    unix_ms: now_unix_ms(),
                };
                let changes = controller.decide(&sighting.view, now);
                self.shared.decisions.fetch_add(1, Relaxed);
                again = changes.len() == Controller::CHANGES_MAX;
                for change in &changes {
                    match carry_out(&*self.coordination, &self.mirror, change) {
                        Ok(()) => drop(self.shared.changes.fetch_add(1, Relaxed)),
                        // Another process was faster: the next pass sees its change.
                        Err(CoordinationError::Conflict { path }) => {
                            tracing::debug!(%path, "a decision came too late");
                            self.shared.conflicts.fetch_add(1, Relaxed);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "cannot carry out a decision: deciding anew");
                            break;
                        }
                    }
                }
                self.note(controller.problems());
                if changes.is_empty() {
                    self.balance(&mut balancer, &controller, &sighting.view);
                    let failures = balancer.hook_failures();
                    self.shared.hook_failures.store(failures.into(), Relaxed);
                }
            }
            if !again {
                self.change_signal
                    .wait(seen, TICK.min(balancer.wait()).max(SHORTEST_WAIT));
            }
        }
        self.shared.leading.store(false, Relaxed);
        self.shared.hook_failures.store(0, Relaxed);
        self.note(&[]);
    }

    /// Decides about the load, if it is time to, and carries the decision out.
    fn balance(&self, balancer: &mut Balancer, controller: &Controller, view: &ClusterView) {
        let Some((change, mut kept)) = balancer.decide_if_due(view, |node| controller.absent_ms(node)) else {
            return;
        };
        match carry_out(&*self.coordination, &self.mirror, &change) {
            Ok(()) => {
                tracing::info!(plan = kept.plan, reasons = ?kept.decision.reasons, "the load is to be evened out")
            }
            Err(error) => {
                tracing::debug!(%error, "a plan of the analyzer came too late");
                kept.plan = None;
            }
        }
        self.journal.add(kept);
    }

    fn note(&self, problems: &[String]) {
        let mut known = self.shared.problems.lock();
        if *known != problems {
            problems
                .iter()
                .for_each(|problem| tracing::warn!(%problem, "the controller is blocked"));
            *known = problems.to_vec();
        }
    }
}
