//! The node's entries in the coordination service: that it is live, and its report. Both are ephemeral: they go with
//! its session, and are made again in the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_cluster::layout;
use fondaco_coordination::{Coordination, CoordinationError, Revision, SessionState};
use fondaco_decisions::RecordPath;
use fondaco_model::NodeId;
use fondaco_model::cluster::{Announcement, ReportRecord};

use crate::error::AgentError;

/// How much longer than a session timeout the entry of an earlier process may stay: the service checks sessions only
/// periodically.
const LINGER: Duration = Duration::from_secs(5);

/// The ephemeral entries of a node.
pub(crate) struct Presence {
    coordination: Arc<dyn Coordination>,
    announcement: Announcement,
    session_timeout: Duration,
    /// The session in which it is announced.
    announced: Option<u64>,
    /// Since when another process has held this identity.
    refused_since: Option<Instant>,
    /// The report, as it was written in this session.
    reported: Option<Revision>,
}

/// Whether a node is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    /// It was announced before.
    Already,
    /// It was announced just now: everything of an earlier session is gone.
    Newly,
    /// It is not announced yet, or that is unknown, since the service does not answer.
    NotYet,
}

impl Presence {
    pub(crate) fn new(
        coordination: Arc<dyn Coordination>,
        announcement: Announcement,
        session_timeout: Duration,
    ) -> Self {
        Self {
            coordination,
            announcement,
            session_timeout,
            announced: None,
            refused_since: None,
            reported: None,
        }
    }

    /// Ensures that the node is announced in the present session.
    ///
    /// # Errors
    /// [`AgentError::IdentityInUse`] if another process has held the identity for longer than an earlier process of
    /// this node could.
    pub(crate) fn announce(&mut self) -> Result<Announced, AgentError> {
        let session = self.coordination.session();
        // A call to a service that does not answer blocks for long, and the node has other things to do.
        if session.state != SessionState::Connected {
            return Ok(Announced::NotYet);
        }
        if self.announced == Some(session.generation) {
            return Ok(Announced::Already);
        }
        self.announced = None;
        self.reported = None;
        let path = layout::path(&RecordPath::Announcement(self.announcement.identity.clone()))?;
        let bytes = to_json(&self.announcement)?;
        match self.coordination.create_ephemeral(&path, &bytes) {
            Ok(_) => {
                self.announced = Some(session.generation);
                self.refused_since = None;
                tracing::info!(identity = %self.announcement.identity, "announced");
                Ok(Announced::Newly)
            }
            Err(CoordinationError::Conflict { .. }) => {
                let since = *self.refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.session_timeout + LINGER {
                    return Ok(Announced::NotYet);
                }
                let other = self.coordination.read(&path)?;
                let other: Option<Announcement> = other.and_then(|entry| serde_json::from_slice(&entry.bytes).ok());
                Err(AgentError::IdentityInUse {
                    identity: self.announcement.identity.clone(),
                    at: other.map_or_else(|| "an unknown address".to_owned(), |other| other.http),
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the report. The node is announced.
    pub(crate) fn report(&mut self, node: NodeId, report: &ReportRecord) -> Result<(), AgentError> {
        let path = layout::path(&RecordPath::Report(node))?;
        let bytes = to_json(report)?;
        let written = match self.reported {
            Some(before) => self.coordination.write(&path, &bytes, Some(before)),
            None => self.coordination.create_ephemeral(&path, &bytes),
        };
        match written {
            Ok(revision) => {
                self.reported = Some(revision);
                Ok(())
            }
            Err(error @ CoordinationError::Conflict { .. }) => {
                // The report of an earlier process of this node will soon disappear, but the report of this process
                // must not wait for that.
                self.reported = None;
                if let Some(entry) = self.coordination.read(&path)? {
                    self.coordination.delete(&path, entry.revision)?;
                }
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn to_json<T: serde::Serialize>(record: &T) -> Result<Vec<u8>, AgentError> {
    serde_json::to_vec(record).map_err(AgentError::invalid_metadata("report"))
}
