//! The errors of a whole request, or of one of its keys.

use std::sync::Arc;

use fondaco_ids::IdsError;
use fondaco_model::{NodeId, PartitionId, StoreName, VersionNumber};
use fondaco_protocol::InvalidKey;
use fondaco_schema::{QueryError, ValueError};
use thiserror::Error;

use crate::quorum::NoQuorum;

/// Why a request, or one key of it, has no answer. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The client's configuration of the cluster is missing or unusable.
    #[error("the client cannot be made: {reason}")]
    Configuration {
        /// The missing or wrong part.
        reason: Arc<str>,
    },
    /// No server gave the topology of the cluster.
    #[error(
        "cannot get the topology of the cluster within {waited_ms} ms, last error: {reason}; check the seeds, and that the cluster has its first nodes"
    )]
    NoTopology {
        /// How long the client waited.
        waited_ms: u64,
        /// The last error.
        reason: Arc<str>,
    },
    /// A key that no store can hold.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// One request has more keys than allowed.
    #[error("a request of {keys} keys is over the limit of {keys_max}: ask for them in parts")]
    TooManyKeys {
        /// The number of keys.
        keys: usize,
        /// The limit.
        keys_max: usize,
    },
    /// No store has this name. One that was created a moment ago is known within a second.
    #[error("no store is named {store:?}: create it, or list those there are, with fondaco store")]
    UnknownStore {
        /// The name.
        store: Box<str>,
    },
    /// The store has no version yet.
    #[error("store {store:?} has no version yet: push one")]
    NoVersion {
        /// The store.
        store: StoreName,
    },
    /// No node that may be asked has the partition.
    #[error("no node has partition {partition} of store {store:?} now: see fondaco nodes, and try again")]
    NoReplica {
        /// The store.
        store: StoreName,
        /// The partition that the key lies in.
        partition: PartitionId,
    },
    /// The version of the store changed repeatedly during the request.
    #[error(
        "version {version} of store {store:?} was deleted before it could be read, and so were later ones: try again"
    )]
    VersionGone {
        /// The store.
        store: StoreName,
        /// The last version that was asked for.
        version: VersionNumber,
    },
    /// The deadline passed.
    #[error("no answer within {deadline_ms} ms")]
    Timeout {
        /// The deadline of the request.
        deadline_ms: u64,
    },
    /// A node could not be reached or gave no answer, and no other node was left to ask.
    #[error("cannot read from node {node}, and no other replica could be asked: {reason}")]
    Unavailable {
        /// The node that was asked last.
        node: NodeId,
        /// The cause.
        reason: Arc<str>,
    },
    /// Too many requests are outstanding: try again later, and less often.
    #[error("node {node} has {in_flight} requests in flight, which is the limit: send fewer at a time")]
    Overloaded {
        /// The node.
        node: NodeId,
        /// The number of outstanding requests.
        in_flight: usize,
    },
    /// The values of all requests together exceed the memory limit: try again later, or with fewer keys.
    #[error("value memory limit of {bytes_max} bytes reached: ask for fewer keys, or retry later")]
    NoRoom {
        /// The limit, in bytes of values.
        bytes_max: u64,
    },
    /// Fewer replicas of a versioned store did their part than its settings require. Some of them may have a failed
    /// write nevertheless.
    #[error("{0}")]
    NoQuorum(Arc<NoQuorum>),
    /// Other clients wrote a key of a versioned store between each of its reads and the write.
    #[error("other clients changed the key of store {store:?} meanwhile: read it again, and repeat the change")]
    Conflict {
        /// The store.
        store: StoreName,
    },
    /// A write with a context to a store of counters: it would need each sum as it was read, which is not part of a
    /// context.
    #[error("store {store:?} holds counters and takes no context: set, delete or add without one")]
    ContextOfCounter {
        /// The store.
        store: Box<str>,
    },
    /// The store's versions are pushed: single keys cannot be written.
    #[error("store {store:?} is not versioned: push its data, single keys cannot be written")]
    NotVersioned {
        /// The store.
        store: StoreName,
    },
    /// A query over sets of ids has keys of several stores, or of a store of another type of values.
    #[error("store {store:?} cannot be asked for sets of ids: {reason}")]
    NoIds {
        /// The store.
        store: Box<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// A set of ids is malformed, or a result too large.
    #[error("cannot compute over the sets of ids: {0}")]
    Ids(#[from] IdsError),
    /// A query of a graph has no answer: the message begins with the code of a server.
    #[error("{0}")]
    Graph(String),
    /// A query over fields that the store's values do not have.
    #[error(transparent)]
    Fields(QueryError),
    /// A value that is not of its store's type, or not what a query wants.
    #[error(transparent)]
    Value(Arc<ValueError>),
    /// A node refused; the others would refuse as well.
    #[error("node {node} refused: {message}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Its message.
        message: Arc<str>,
    },
}

impl ClientError {
    /// Whether there was no answer in time, since nodes were slow, gone or overloaded, in contrast to an answer that is an error.
    pub fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::NoReplica { .. }
                | Self::Unavailable { .. }
                | Self::NoQuorum(_)
                | Self::Overloaded { .. }
                | Self::NoRoom { .. }
                | Self::VersionGone { .. }
        )
    }

    /// The code that a server puts before the message when it returns this error over RESP.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Configuration { .. } | Self::TooManyKeys { .. } | Self::ContextOfCounter { .. } => "ERR",
            Self::InvalidKey(_) => "BADKEY",
            Self::UnknownStore { .. } => "NOSTORE",
            Self::NoVersion { .. } => "NOVERSION",
            Self::NoTopology { .. } | Self::NoReplica { .. } | Self::Unavailable { .. } => "UNAVAILABLE",
            Self::VersionGone { .. } => "VERSIONGONE",
            Self::Timeout { .. } => "TIMEOUT",
            Self::Overloaded { .. } | Self::NoRoom { .. } => "OVERLOADED",
            Self::NoQuorum(_) => "NOQUORUM",
            Self::Conflict { .. } => "CONFLICT",
            Self::NotVersioned { .. } => "READONLY",
            Self::NoIds { .. } | Self::Value(_) | Self::Fields(QueryError::Type(_)) => "WRONGTYPE",
            Self::Fields(_) => "ERR",
            Self::Ids(_) | Self::Graph(_) => "ERR",
            Self::Refused { .. } => "REFUSED",
        }
    }
}
