//! A node sends what it measures to the leading controller, directly: coordination is not for what changes all the time.

use std::sync::Arc;
use std::time::Duration;

use fondaco_coordination::Coordination;
use fondaco_fetch::{PeerClient, PeerPort};
use fondaco_node::{NodeMetrics, Settings};
use parking_lot::Mutex;

use super::measuring::Meter;
use super::report_period;
use crate::agent::AgentWork;
use crate::change_signal::ChangeSignal;
use crate::controller::Candidate;
use crate::error::ControlError;
use crate::layout::ELECTION;
use crate::mirror::Mirror;
use crate::worker::{Ending, Worker};

/// How long a node without a leader waits before it looks for one again.
const LEADERLESS: Duration = Duration::from_secs(1);

/// The leading controller, as other processes reach it.
pub(crate) struct Leader {
    coordination: Arc<dyn Coordination>,
    peers: PeerClient,
    known: Mutex<Option<PeerPort>>,
    /// The address of this process.
    own: String,
}

impl Leader {
    pub(crate) fn new(coordination: Arc<dyn Coordination>, peers: PeerClient, own: String) -> Self {
        Self {
            coordination,
            peers,
            known: Mutex::default(),
            own,
        }
    }

    /// The control port of the leader, if that is another process. An entry that this process left before it was restarted
    /// names itself: it must not ask itself.
    pub(crate) fn other(&self) -> Option<PeerPort> {
        let port = self.port()?;
        if port.address() == self.own {
            self.forget();
            return None;
        }
        Some(port)
    }

    /// The control port of the leader, as it was found last; `None` if there is none.
    pub(crate) fn port(&self) -> Option<PeerPort> {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = self.look().map(|address| self.peers.port(&address));
        }
        known.clone()
    }

    /// The leader did not answer, or leads no longer: it is looked for again.
    pub(crate) fn forget(&self) {
        *self.known.lock() = None;
    }

    fn look(&self) -> Option<String> {
        let leader = self.coordination.leader(&ELECTION.parse().ok()?).ok().flatten()?;
        let leader: Candidate = serde_json::from_slice(&leader).ok()?;
        Some(leader.http)
    }
}

/// What reporting needs.
pub(crate) struct ReportingParts {
    pub(crate) agent: Arc<AgentWork>,
    pub(crate) metrics: Arc<NodeMetrics>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mirror: Mirror,
    pub(crate) leader: Arc<Leader>,
}

/// The thread that reports. It ends when this is dropped.
pub(crate) struct ReportingWork {
    _worker: Worker,
}

impl ReportingWork {
    pub(crate) fn start(parts: ReportingParts) -> Result<Self, ControlError> {
        let signal = Arc::new(ChangeSignal::default());
        let theirs = Arc::clone(&signal);
        let worker = Worker::start("load", signal, move |ending| report(&parts, &theirs, ending))?;
        Ok(Self { _worker: worker })
    }
}

fn report(parts: &ReportingParts, signal: &ChangeSignal, ending: &Ending) {
    let mut meter = Meter::new(
        Arc::clone(&parts.agent),
        Arc::clone(&parts.metrics),
        parts.mirror.clone(),
    );
    loop {
        let seen = signal.count();
        if ending.has_come() {
            return;
        }
        signal.wait(seen, report_period(&parts.settings));
        let Some(node) = parts.agent.node() else { continue };
        let report = meter.report(node);
        let Some(port) = parts.leader.port() else {
            signal.wait(seen, LEADERLESS);
            continue;
        };
        let Ok(body) = serde_json::to_vec(&report) else {
            continue;
        };
        match port.post("/v1/load", &body) {
            Ok((status, _)) if status.is_success() => {}
            Ok((status, answer)) => {
                let answer = String::from_utf8_lossy(&answer);
                tracing::debug!(%status, %answer, leader = port.address(), "the report of the load was refused");
                parts.leader.forget();
            }
            Err(error) => {
                tracing::debug!(%error, leader = port.address(), "the report of the load was not delivered");
                parts.leader.forget();
            }
        }
    }
}
