//! What the control plane refuses or fails at; each with its code, under which the HTTP port reports it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fondaco_format::FormatError;
use fondaco_model::{StoreName, VersionNumber};
use fondaco_node::FetchError;

use crate::coordination::CoordinationError;

/// An error of the control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No store has this name.
    #[error("no store {store:?}: create it first, GET /v1/stores lists those that exist")]
    StoreNotFound {
        /// The name.
        store: StoreName,
    },
    /// A store has this name already.
    #[error("store {store:?} exists: choose another name, or drop it first")]
    StoreExists {
        /// The name.
        store: StoreName,
    },
    /// The node has as many stores as it can.
    #[error("there are {max} stores, and no more are possible: drop one first")]
    TooManyStores {
        /// The limit.
        max: usize,
    },
    /// The definition of a store has a value that is not possible.
    #[error("invalid store {store:?}: {reason}")]
    InvalidDefinition {
        /// The name.
        store: StoreName,
        /// What is wrong.
        reason: String,
    },
    /// The store does not keep this version.
    #[error("store {store:?} has no version {version}: it keeps {kept}")]
    VersionNotFound {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// Those that it keeps, for people.
        kept: String,
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
    /// The store serves nothing that could be looked up in.
    #[error("store {store:?} serves no version: push one first")]
    NothingServed {
        /// The store.
        store: StoreName,
    },
    /// There is no version to go back to.
    #[error("store {store:?} keeps no version to roll back to: raise its backups before the next push")]
    NoRollback {
        /// The store.
        store: StoreName,
    },
    /// One push of a store at a time.
    #[error("push of version {version} of store {store:?} is in progress: wait for it, or cancel it first")]
    PushInProgress {
        /// The store.
        store: StoreName,
        /// The version being pushed.
        version: VersionNumber,
    },
    /// The store was never pushed to.
    #[error("store {store:?} has no push: start one first")]
    PushNotFound {
        /// The store.
        store: StoreName,
    },
    /// The push ended before it could be cancelled.
    #[error("the last push of store {store:?} has ended: there is nothing to cancel")]
    PushEnded {
        /// The store.
        store: StoreName,
    },
    /// The thread of a push ended by a panic.
    #[error("the push ended by a defect of this program, which its log shows: report it")]
    PushPanicked,
    /// Too many stores are being pushed to.
    #[error("{max} pushes are in progress, and no more are possible: wait for one of them")]
    TooManyPushes {
        /// The limit.
        max: usize,
    },
    /// The source of a push is no location that this program can read.
    #[error("invalid source: {0}")]
    InvalidSource(#[from] fondaco_storage::StorageError),
    /// The fetch of a version failed, or would.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A version that was fetched cannot be opened.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A setting has no such name or value.
    #[error(transparent)]
    Setting(#[from] fondaco_node::SettingError),
    /// Metadata could not be read or written.
    #[error(transparent)]
    Coordination(#[from] CoordinationError),
    /// Metadata does not hold what was written.
    #[error("metadata entry {entry:?} is not what this program writes: {reason}; use a matching release")]
    InvalidMetadata {
        /// The entry.
        entry: String,
        /// What does not fit.
        reason: String,
    },
    /// The data directory was made with other parameters.
    #[error(
        "{path:?} was made for {found} partitions, and {configured} are configured: their number never changes, \
         set it back or use another directory"
    )]
    PartitionsChanged {
        /// The data directory.
        path: PathBuf,
        /// What it was made for.
        found: u32,
        /// What is configured.
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
    /// Everybody on the network could use the port.
    #[error(
        "refusing to serve {port} on {addr}, which is not loopback, without {missing}: configure {missing}, listen on \
         127.0.0.1, or allow it explicitly with allow_insecure"
    )]
    Insecure {
        /// Which port.
        port: &'static str,
        /// Where it would listen.
        addr: SocketAddr,
        /// What would protect it.
        missing: &'static str,
    },
    /// A configured value is not possible.
    #[error("invalid configuration: {0}")]
    InvalidConfig(String),
    /// The RESP server did not start.
    #[error(transparent)]
    Resp(#[from] fondaco_node::ServerError),
    /// The HTTP port cannot be listened on.
    #[error("cannot listen on {addr} for HTTP: {source}; choose another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Its reason.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The node is stopping.
    #[error("the node is stopping: try again when it is back")]
    Stopping,
}

impl ControlError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }
}
