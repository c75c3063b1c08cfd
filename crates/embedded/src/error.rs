//! The errors of an embedded reader, each with its remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fondaco_admin::AdminError;
use fondaco_engine::EngineError;
use fondaco_fetch::FetchError;
use fondaco_format::FormatError;
use fondaco_model::{StoreKind, StoreName, VersionNumber};
use fondaco_stream::StreamError;

use crate::follow::State;

/// A reader cannot be opened, or a key cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A file of the version is damaged, missing or unreadable, or the key's partition is not there.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// A value, or the JSON of a key, is not of the type that the store declares.
    #[error(transparent)]
    Value(#[from] fondaco_schema::ValueError),

    /// The schemas of a version cannot be used.
    #[error(transparent)]
    Schema(#[from] fondaco_schema::SchemaError),

    /// A reader that follows a store has no version yet.
    #[error("no version of the store is here yet: wait for the first one, and see the status for the reason")]
    NoVersion,

    /// The values are parts of a graph, which single look-ups do not explain.
    #[error(
        "{path:?} is a version of the graph {store:?}: an embedded reader has no queries; push it to a cluster and ask \
         there: fondaco graph query {store} 'MATCH …'"
    )]
    Graph {
        /// The directory.
        path: PathBuf,
        /// The store.
        store: StoreName,
    },

    /// The store of the cluster is a graph.
    #[error(
        "{store:?} is a graph: an embedded reader has no queries; ask the cluster: fondaco graph query {store} 'MATCH …'"
    )]
    GraphStore {
        /// The store.
        store: StoreName,
    },

    /// The store's values are written by clients, and not by versions or streams.
    #[error(
        "{store:?} is a {} store, whose values are at quorums of nodes: an embedded reader follows batch and hybrid stores; read it \
         from the cluster: fondaco get {store}:KEY, or the client library",
        kind.as_str()
    )]
    OtherKind {
        /// The store.
        store: StoreName,
        /// Its kind.
        kind: StoreKind,
    },

    /// The stream of the hybrid store is not a topic of Kafka.
    #[error(
        "the stream of {store:?} is the log inside a process of the cluster, which other programs cannot read: read the store from \
         the cluster, fondaco get {store}:KEY, or create one with a topic of Kafka: --stream kafka://HOST:PORT/TOPIC"
    )]
    LogStream {
        /// The store.
        store: String,
    },

    /// The cluster describes a version of a hybrid store without its stream.
    #[error(
        "version {version} of {store:?} is described without where its stream begins: upgrade the cluster to this release"
    )]
    StreamNotDescribed {
        /// The store.
        store: String,
        /// The number of the version.
        version: u64,
    },

    /// The stream on top of the version has yet to be read for the key's partition.
    #[error(
        "version {version} of {store:?} does not answer for this key yet: its stream is being read; wait for it, see the status for \
         the reason, or let the cluster answer (fallback)"
    )]
    Behind {
        /// The store.
        store: StoreName,
        /// The number of the version.
        version: u64,
    },

    /// The key is not here, and the cluster does not answer for it.
    #[error("not answered here: {here}; and not by the cluster: {cluster}")]
    NotAnswered {
        /// Why the reader does not have it.
        here: Box<Self>,
        /// Why the cluster does not answer.
        cluster: String,
    },

    /// The events of a hybrid store cannot be kept or read.
    #[error(transparent)]
    Stream(#[from] StreamError),

    /// The engine of the events failed.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// The cluster has no such store.
    #[error("the cluster has no store {store:?}: create it with fondaco store create {store}, or check the name")]
    NoStore {
        /// The name.
        store: StoreName,
    },

    /// No control port was given.
    #[error("no control port of the cluster is given: give the host:port of at least one process")]
    NoEndpoint,

    /// A control port cannot be reached, or refuses.
    #[error(transparent)]
    Admin(#[from] AdminError),

    /// The cluster describes a version in a way that this release does not understand.
    #[error("version {version} of {store:?} is described without its checksum: upgrade the cluster to this release")]
    NotDescribed {
        /// The store.
        store: StoreName,
        /// The number of the version.
        version: u64,
    },

    /// A version cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),

    /// A thread that follows a store or fetches a version ended by a panic.
    #[error("a thread of the reader ended by a panic, which was printed: report it, and open the reader again")]
    Panicked,

    /// Another process uses the directory.
    #[error("{path:?} is in use by the process with pid {pid}: stop it, or give each process a directory of its own")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: String,
    },

    /// The directory has versions of another store.
    #[error("{path:?} follows the store {found:?}, not {expected:?}: give each store a directory of its own")]
    OtherStore {
        /// The directory.
        path: PathBuf,
        /// Its store.
        found: StoreName,
        /// The requested store.
        expected: StoreName,
    },

    /// A version did not come in time.
    #[error(
        "waited {waited:?} in vain: the reader has {}, and its state is {:?}{reason}",
        version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}")),
        state.as_str()
    )]
    Timeout {
        /// How long.
        waited: Duration,
        /// The version that is there.
        version: Option<VersionNumber>,
        /// The state.
        state: State,
        /// The last error, after a colon.
        reason: String,
    },

    /// The operating system refused something in the directory.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl EmbeddedError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether nodes of the cluster may have what is not here.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoVersion | Self::Behind { .. } | Self::Format(FormatError::NotHeld { .. })
        )
    }

    /// Whether the same request may succeed later without a change by an operator: the cluster is away.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Admin(error) if error.is_away())
    }
}
