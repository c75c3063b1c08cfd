//! Errors of the control plane, each with the code under which the HTTP port reports it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fondaco_coordination::CoordinationError;
use fondaco_fetch::FetchError;
use fondaco_format::FormatError;
use fondaco_model::cluster::operator::OperatorError;
use fondaco_model::cluster::{AdmissionError, Discontinuity};
use fondaco_model::{Identity, StoreName, VersionNumber};
use fondaco_replica::ReplicasError;

use crate::uploads::UploadError;

/// An error of the control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The model does not allow what an operator asked for.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// This process must not take part in the cluster.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The entries of the coordination service contradict what this process saw before.
    #[error(transparent)]
    Discontinuity(#[from] Discontinuity),
    /// A stream cannot be written or read.
    #[error(transparent)]
    Stream(#[from] fondaco_stream::StreamError),
    /// A version in a topic is not named as it must be.
    #[error(transparent)]
    VersionTopic(#[from] fondaco_stream::VersionTopicError),
    /// An event that cannot be applied: none was logged.
    #[error("event number {at}, counted from 0: {reason}; no event was logged")]
    InvalidEvent {
        /// Its place among those to be logged.
        at: usize,
        /// Why.
        reason: String,
    },
    /// The process is not a whole cluster.
    #[error(
        "events are logged only in a process that is a whole cluster (fondaco dev, or fondaco server without ZooKeeper), and only for \
         stores whose stream is log: send those of other stores to their topic"
    )]
    NoEventLog,
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
    /// The node that was started must not take part in the cluster.
    #[error(transparent)]
    Unfit(Arc<ControlError>),
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
    /// Nothing can be decided before the cluster was seen.
    #[error("the coordination service has not answered since the process started: try again when it does")]
    NothingSeen,
    /// Other processes changed the same entries again and again.
    #[error("other processes changed the same entries again and again: try again")]
    TooManyConflicts,
    /// No controller leads that could answer.
    #[error("no controller leads that could be asked: start one, or try again in a moment; fondaco status shows it")]
    NotLeading,
    /// The leading controller knows no such decision.
    #[error(
        "the leading controller has made no decision {number}, or has forgotten it: fondaco why lists the last ones"
    )]
    DecisionNotFound {
        /// The number.
        number: u64,
    },
    /// A development cluster has no such member.
    #[error(
        "no member {member:?} of a development cluster is here: fondaco dev --nodes 3 makes one, and lists its members when it starts"
    )]
    NoSuchMember {
        /// Its name.
        member: String,
    },
    /// A member of a development cluster cannot be stopped or started now.
    #[error("member {member:?} {reason}")]
    MemberBusy {
        /// Its name.
        member: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The version is kept, but could not be opened.
    #[error("version {version} of store {store:?} cannot be served: {reason}")]
    VersionFailed {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// Why not.
        reason: String,
    },
    /// The store has no version that a lookup could read.
    #[error("store {store:?} serves no version: push one first")]
    NothingServed {
        /// The store.
        store: StoreName,
    },
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
    /// There is no setting of this name, or it cannot have this value.
    #[error(transparent)]
    Setting(#[from] fondaco_node::SettingError),
    /// The name of a template of settings is none.
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
    /// Another process has the data directory.
    #[error("{path:?} is in use by the process with pid {pid}: stop it, or use another directory")]
    DataDirLocked {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: String,
    },
    /// The port would be open to everyone on the network.
    #[error(
        "refusing to serve {port} on {addr}, which is not loopback, without {missing}: configure {missing}, listen on \
         127.0.0.1, or allow it: allow-insecure = true in the file, or --allow-insecure"
    )]
    Insecure {
        /// The port.
        port: &'static str,
        /// The address that it would listen on.
        addr: SocketAddr,
        /// The missing protection.
        missing: &'static str,
    },
    /// RESP checks the rights of users, and HTTP would let everyone on this machine do everything.
    #[error(
        "refusing to serve HTTP on {addr} without a token beside users: it reads and changes all stores, and asks for no \
         password; set token = \"…\" in the file (or --token, FONDACO_TOKEN), or allow it: allow-insecure = true in the \
         file, or --allow-insecure"
    )]
    UsersWithoutToken {
        /// The HTTP address.
        addr: SocketAddr,
    },
    /// A configured value is not possible.
    #[error("invalid configuration: {0}")]
    InvalidConfig(String),
    /// The RESP server did not start.
    #[error(transparent)]
    Resp(#[from] fondaco_node::ServerError),
    /// The HTTP address cannot be listened on.
    #[error("cannot listen on {addr} for HTTP: {source}; choose another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
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
    /// The node is stopping.
    #[error("the node is stopping: try again when it is back")]
    Stopping,
}

impl ControlError {
    /// Whether a process that meets this error must not go on.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Admission(_)
                | Self::IdentityInUse { .. }
                | Self::ClusterMissing { .. }
                | Self::PartitionsChanged { .. }
        )
    }

    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }
}
