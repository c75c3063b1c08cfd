//! Counts the starts and checkpoints of the node's data directory. The count is kept in the directory and in the
//! coordination service, so that the node notices when an operator restored an older copy of the directory.
//!
//! The count is raised at each start, at each orderly stop, and once a minute while the node takes writes: first in the
//! directory, then in the service. So a directory with a lower count than the service is an older copy, however the
//! process ended. If the service itself was restored from a copy, no harm is done. If the entries are in the data
//! directory too, as on a single node, they are restored with it, and nothing is noticed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_cluster::layout;
use fondaco_coordination::{Coordination, Entry, SessionState};
use fondaco_model::{DirectoryCounts, NodeId};
use fondaco_replica::{ReplicaCounter, Replicas};
use serde::{Deserialize, Serialize};

use crate::error::AgentError;

/// How long a starting node waits for the service before it serves from the remembered view.
pub const MEMORY_AFTER: Duration = Duration::from_secs(3);

/// How often the count is raised while the node takes writes, unless configured.
const PERIOD_DEFAULT: Duration = Duration::from_secs(60);

/// The entry.
#[derive(Debug, Serialize, Deserialize)]
struct CountRecord {
    count: u64,
}

/// The count of a node.
pub(super) struct Counting {
    coordination: Arc<dyn Coordination>,
    replicas: Arc<Replicas>,
    period: Duration,
    begun: Instant,
    state: State,
}

enum State {
    /// The service has not been asked yet.
    Unknown,
    /// The count could not be read, and the replicas begin a new count.
    Anew,
    /// The count is known.
    Counted(Counted),
}

#[derive(Clone, Copy)]
struct Counted {
    node: NodeId,
    at: Instant,
    /// How many group commits there had been.
    commits: u64,
}

impl Counting {
    pub(super) fn new(coordination: Arc<dyn Coordination>, replicas: Arc<Replicas>, period: Option<Duration>) -> Self {
        Self {
            coordination,
            replicas,
            period: period.unwrap_or(PERIOD_DEFAULT),
            begun: Instant::now(),
            state: State::Unknown,
        }
    }

    /// Raises the count if it is time to. Returns whether the replicas may use the data in the directory: either it is
    /// known to be the newest, or the service has not answered for so long that the node stops waiting for it.
    pub(super) fn raise_if_due(&mut self, node: NodeId, is_service_there: bool) -> bool {
        let is_due = match &self.state {
            State::Unknown | State::Anew => true,
            State::Counted(counted) => counted.at.elapsed() >= self.period && self.has_written(counted),
        };
        if is_service_there
            && is_due
            && let Err(error) = self.count(node)
        {
            tracing::warn!(%error, "cannot raise the count of the data directory: trying again");
        }
        if matches!(self.state, State::Unknown) && self.begun.elapsed() >= MEMORY_AFTER {
            // An older copy would assign dots a second time.
            match self.replicas.count_anew() {
                Ok(()) => self.state = State::Anew,
                Err(error) => tracing::warn!(%error, "cannot begin a new count: trying again"),
            }
        }
        !matches!(self.state, State::Unknown)
    }

    /// Raises the count a last time before an orderly stop: earlier copies of the directory are then older.
    pub(super) fn end(&mut self) {
        if let State::Counted(counted) = self.state
            && self.has_written(&counted)
            && self.coordination.session().state == SessionState::Connected
            && let Err(error) = self.count(counted.node)
        {
            tracing::warn!(%error, "cannot raise the count of the data directory: a recent copy may pass for it");
        }
    }

    fn has_written(&self, counted: &Counted) -> bool {
        self.commits() != counted.commits
    }

    fn commits(&self) -> u64 {
        self.replicas.counter(ReplicaCounter::Commits)
    }

    fn count(&mut self, node: NodeId) -> Result<(), AgentError> {
        let commits = self.commits();
        let path = layout::count(node)?;
        let entry = self.coordination.read(&path)?;
        let known = entry.as_ref().map(|entry| parse(entry, path.as_str())).transpose()?;
        let counts = DirectoryCounts {
            directory: self.replicas.count(),
            coordination: known,
        };
        if counts.is_older_copy() {
            let (found, known) = (counts.directory.unwrap_or(0), known.unwrap_or(0));
            self.replicas.went_back(&format!(
                "the data directory is an older copy: its count is {found}, but the last count of this node was {known}"
            ))?;
        }
        let count = counts.next();
        self.replicas.set_count(count)?;
        let bytes = serde_json::to_vec(&CountRecord { count }).map_err(AgentError::invalid_metadata(&path))?;
        self.coordination
            .write(&path, &bytes, entry.map(|entry| entry.revision))?;
        self.state = State::Counted(Counted {
            node,
            at: Instant::now(),
            commits,
        });
        Ok(())
    }
}

fn parse(entry: &Entry, path: &str) -> Result<u64, AgentError> {
    let record: CountRecord = serde_json::from_slice(&entry.bytes).map_err(AgentError::invalid_metadata(path))?;
    Ok(record.count)
}
