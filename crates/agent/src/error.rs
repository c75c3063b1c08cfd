//! Errors of a node's agent.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_cluster::ClusterError;
use fondaco_coordination::CoordinationError;
use fondaco_decisions::AdmissionError;
use fondaco_decisions::operator::OperatorError;
use fondaco_fetch::FetchError;
use fondaco_format::FormatError;
use fondaco_model::Identity;
use fondaco_replica::ReplicasError;

use crate::uploads::UploadError;

/// An error of a node's agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The cluster cannot be seen or changed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A stream cannot be written or read.
    #[error(transparent)]
    Stream(#[from] fondaco_stream::StreamError),
    /// A version in a topic is not named as it must be.
    #[error(transparent)]
    VersionTopic(#[from] fondaco_stream::VersionTopicError),
    /// The node's identity file is missing, though it has data.
    #[error(
        "{path:?} is missing, and the data directory has {found}: the node would join as another one and could not use \
         its data; restore the file from a copy, or, to give up its data, start with an empty directory; the file \
         is {{\"identity\": …, \"id\": …, \"cluster\": …}} as fondaco nodes --json and fondaco status --json show them"
    )]
    NodeFileMissing {
        /// The file.
        path: PathBuf,
        /// The data that was found.
        found: &'static str,
    },
    /// Another process is this node: one data directory was copied from the other.
    #[error(
        "another process, which serves HTTP at {at}, is the node with identity {identity}: one data directory is a \
         copy of the other; stop that process, or delete node.json from the copy"
    )]
    IdentityInUse {
        /// The identity of both.
        identity: Identity,
        /// The address of the other process.
        at: String,
    },
    /// The data directory belongs to a cluster, and the coordination service has no cluster at this root.
    #[error(
        "the data directory belongs to cluster {remembered}, but the coordination service has no cluster there: \
         check its address and root, restore its entries, or use another data directory"
    )]
    ClusterMissing {
        /// The cluster.
        remembered: Identity,
    },
    /// The versioned stores on this node cannot be opened.
    #[error("versioned stores: {0}")]
    Replicas(#[from] ReplicasError),
    /// The node is not announced yet, so it must not report.
    #[error("the node is not announced yet: its report waits")]
    NotAnnounced,
    /// The thread of a fetch ended by a panic.
    #[error("the fetch ended by a bug of this program, which its log shows: report it")]
    FetchPanicked,
    /// The source of a push is not a location that this program can read.
    #[error("invalid source: {0}")]
    InvalidSource(#[from] fondaco_storage::StorageError),
    /// Files cannot be uploaded to this node as they were sent.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// The fetch of a version failed, or would fail.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A version that was fetched cannot be opened.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Another process has the data directory.
    #[error("{path:?} is in use by the process with pid {pid}: stop it, or use another directory")]
    DataDirLocked {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: String,
    },
}

impl AgentError {
    /// Whether a node that meets this error must stop.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_fatal(),
            Self::IdentityInUse { .. } | Self::ClusterMissing { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |error| ClusterError::io(action, path)(error).into()
    }

    pub(crate) fn invalid_metadata(entry: impl Display) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| ClusterError::invalid_metadata(entry)(error).into()
    }
}

impl From<CoordinationError> for AgentError {
    fn from(error: CoordinationError) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<AdmissionError> for AgentError {
    fn from(error: AdmissionError) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<OperatorError> for AgentError {
    fn from(error: OperatorError) -> Self {
        Self::Cluster(error.into())
    }
}
