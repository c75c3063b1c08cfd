//! A node sends the load that it measures to the leading controller, directly: the coordination service is not for values that
//! change all the time.

use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::Settings;
use fondaco_cluster::{ChangeSignal, Ending, Mirror, Worker, report_period};
use fondaco_metrics::NodeMetrics;

use crate::agent::AgentWork;
use crate::error::AgentError;
use crate::leader::Leader;
use crate::load_meter::Meter;

/// How long a node without a leader waits before it looks for one again.
const LEADERLESS: Duration = Duration::from_secs(1);

/// The parts that reporting is made of.
pub struct ReportingParts {
    /// The agent of this node.
    pub agent: Arc<AgentWork>,
    /// The counters of this node.
    pub metrics: Arc<NodeMetrics>,
    /// The live settings, which say how often it reports.
    pub settings: Arc<Settings>,
    /// The cluster.
    pub mirror: Mirror,
    /// The controller that gets the reports.
    pub leader: Arc<Leader>,
}

/// The thread that reports. It ends when this is dropped.
pub struct ReportingWork {
    _worker: Worker,
}

impl ReportingWork {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(parts: ReportingParts) -> Result<Self, AgentError> {
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
