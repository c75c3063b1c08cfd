//! Errors of seeing and changing the cluster.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_client::ClientError;
use fondaco_coordination::CoordinationError;
use fondaco_decisions::operator::OperatorError;
use fondaco_decisions::{AdmissionError, Discontinuity};

/// An error of seeing or changing the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The model does not allow what an operator asked for.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// This process must not take part in the cluster.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The entries of the coordination service contradict what this process saw before.
    #[error(transparent)]
    Discontinuity(#[from] Discontinuity),
    /// Nothing can be decided before the cluster was seen.
    #[error("the coordination service has not answered since the process started: try again when it does")]
    NothingSeen,
    /// Other processes changed the same entries again and again.
    #[error("other processes changed the same entries again and again: try again")]
    TooManyConflicts,
    /// There is no setting of this name, or it cannot have this value.
    #[error(transparent)]
    Setting(#[from] fondaco_catalog::SettingError),
    /// The name of a template of settings does not exist.
    #[error("invalid template {template:?} of a setting: its name has 1 to 64 bytes, as in large/maxclients")]
    InvalidTemplate {
        /// The name.
        template: String,
    },
    /// Metadata could not be read or written.
    #[error(transparent)]
    Coordination(#[from] CoordinationError),
    /// A metadata entry has an unexpected format.
    #[error("metadata entry {entry:?} has an unexpected format: {reason}; use a matching release")]
    InvalidMetadata {
        /// The entry.
        entry: String,
        /// The difference.
        reason: String,
    },
    /// The data directory was made for another number of partitions.
    #[error(
        "{path:?} was made for {found} partitions, but {configured} are configured: the number never changes, \
         set it back or use another directory"
    )]
    PartitionsChanged {
        /// The data directory.
        path: PathBuf,
        /// The number that it was made for.
        found: u32,
        /// The configured number.
        configured: u32,
    },
    /// Other servers cannot be asked for the topology.
    #[error("invalid configuration: {0}")]
    Client(#[from] ClientError),
    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl ClusterError {
    /// Whether a process that meets this error must stop.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Admission(_) | Self::PartitionsChanged { .. })
    }

    /// The operating system refused an action on a path.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// An entry, or a file like one, has an unexpected format.
    pub fn invalid_metadata(entry: impl Display) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::InvalidMetadata {
            entry: entry.to_string(),
            reason: error.to_string(),
        }
    }
}
