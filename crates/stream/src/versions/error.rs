//! Errors of versions in topics.

use std::io;
use std::path::PathBuf;

use fondaco_format::FormatError;

use super::{TopicAddress, VersionAddress};

/// Why a version cannot be sent through a topic, or read from one.
#[derive(Debug, thiserror::Error)]
pub enum VersionTopicError {
    /// The text names no topic, or no version in one.
    #[error(
        "{found:?} is no topic of Kafka and no version in one: use kafka://HOST:PORT,…/TOPIC, or for a version kafka://HOST:PORT,…/TOPIC/PARTITION/OFFSET"
    )]
    NoAddress {
        /// The text.
        found: String,
    },

    /// The brokers do not have the topic, or not the partition.
    #[error("there is no {topic}, or it has no partition {partition}: create the topic, or correct its name")]
    NoTopic {
        /// The topic.
        topic: TopicAddress,
        /// The partition.
        partition: i32,
    },

    /// Kafka failed, and may work later.
    #[error("{topic} cannot be used: {reason}")]
    Unavailable {
        /// The topic.
        topic: TopicAddress,
        /// Why.
        reason: String,
    },

    /// The topic does not have the records any more.
    #[error(
        "partition {partition} of {topic} begins at offset {first} now, and offset {offset} is needed: the topic has to \
         keep its records until all nodes have the version (retention.ms, retention.bytes)"
    )]
    Gone {
        /// The topic.
        topic: TopicAddress,
        /// The partition.
        partition: i32,
        /// The offset that is needed.
        offset: u64,
        /// The first offset that there is.
        first: u64,
    },

    /// The records are not those of a complete version.
    #[error("{address} is no complete version: {detail}")]
    Damaged {
        /// The version.
        address: VersionAddress,
        /// The damaged content.
        detail: String,
    },

    /// The end of the push and the manifest count different numbers of records.
    #[error(
        "the end of the push counts {sent} records in partition {partition}, and the manifest {found}: the files in {address} are \
         not those that were sent"
    )]
    Miscounted {
        /// The version.
        address: VersionAddress,
        /// The partition of the store.
        partition: u32,
        /// How many records were sent.
        sent: u64,
        /// How many there are by the manifest.
        found: u64,
    },

    /// The version does not have the file.
    #[error("{address} has no file {file:?}")]
    NoFile {
        /// The version.
        address: VersionAddress,
        /// The file.
        file: String,
    },

    /// The directory is no version.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// A file changed since it was built.
    #[error("{path:?} is not as its manifest says: build the version again")]
    Changed {
        /// The file.
        path: PathBuf,
    },

    /// The operating system refused.
    #[error("cannot read {path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The caller has cancelled the push.
    #[error("interrupted before the version was sent completely")]
    Interrupted,
}

impl VersionTopicError {
    /// Whether the same may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
