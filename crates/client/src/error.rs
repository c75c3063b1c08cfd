//! What can go wrong, for a whole request or for one key of it.

use std::sync::Arc;

use fondaco_model::{NodeId, PartitionId, StoreName, VersionNumber};
use fondaco_protocol::InvalidKey;
use thiserror::Error;

use crate::quorum::NoQuorum;

/// Why a request, or one key of it, has no answer. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The client was not told where to find the cluster, or how to reach it.
    #[error("the client cannot be made: {reason}")]
    Configuration {
        /// What is missing or wrong.
        reason: Arc<str>,
    },
    /// Nobody told the topology of the cluster.
    #[error(
        "the topology of the cluster could not be had within {waited_ms} ms, last: {reason}; are the seeds right, and does the cluster have its first nodes?"
    )]
    NoTopology {
        /// How long it was waited for.
        waited_ms: u64,
        /// What was heard last.
        reason: Arc<str>,
    },
    /// A key that no store can hold.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// More keys than one request may have.
    #[error("a request of {keys} keys is over the limit of {keys_max}: ask for them in parts")]
    TooManyKeys {
        /// How many it has.
        keys: usize,
        /// How many it may have.
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
    /// No node that may be asked holds the partition.
    #[error("no node has partition {partition} of store {store:?} now: see fondaco nodes, and try again")]
    NoReplica {
        /// The store.
        store: StoreName,
        /// The partition that the key lies in.
        partition: PartitionId,
    },
    /// The store changed its version again and again while it was asked.
    #[error("version {version} of store {store:?} was gone before it was read, and so were those after it: try again")]
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
    /// A node could not be reached or gave no answer, and nobody else was there to ask.
    #[error("node {node} cannot be read from, and no other replica could be asked: {reason}")]
    Unavailable {
        /// The node that was asked last.
        node: NodeId,
        /// What happened.
        reason: Arc<str>,
    },
    /// Too much is under way already: to be tried again later, and less often.
    #[error("node {node} has {in_flight} requests under way, which is the limit: send fewer at a time")]
    Overloaded {
        /// The node.
        node: NodeId,
        /// How many.
        in_flight: usize,
    },
    /// The values of all requests together are more than may be held: to be tried again later, or for
    /// fewer keys.
    #[error("values of {bytes_max} bytes may be held at a time, and are: ask for fewer keys, or at another time")]
    NoRoom {
        /// How many bytes of values may be held.
        bytes_max: u64,
    },
    /// Fewer replicas of a versioned store did their part than its settings ask for. A write that fails so may
    /// be on some of them nevertheless.
    #[error("{0}")]
    NoQuorum(Arc<NoQuorum>),
    /// A key of a versioned store was written by others between each of its reads and the write.
    #[error("the key of store {store:?} was changed by others meanwhile: read it again, and write what follows")]
    Conflict {
        /// The store.
        store: StoreName,
    },
    /// A write over what was read, to a store of counters: it would have to know how far each sum had come.
    #[error("store {store:?} counts, and takes no context: set it, delete it, or add to it without one")]
    ContextOfCounter {
        /// The store.
        store: Box<str>,
    },
    /// The store has versions that are pushed: it is not written key by key.
    #[error("store {store:?} is no versioned store: its values are pushed, and not written one by one")]
    NotVersioned {
        /// The store.
        store: StoreName,
    },
    /// A node refused, and others would as well.
    #[error("node {node} refused: {message}")]
    Refused {
        /// The node.
        node: NodeId,
        /// What it said.
        message: Arc<str>,
    },
}

impl ClientError {
    /// The code that a server puts before the message when it answers with this error over RESP.
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
            Self::Refused { .. } => "REFUSED",
        }
    }
}
