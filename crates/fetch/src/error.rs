//! Why a fetch ended without a version, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use fondaco_format::{Checksum, FormatError};
use fondaco_model::{KeyType, PartitionCount, StoreName, ValueType};

use crate::source::SourceError;

/// An error of a fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no source.
    #[error("no source to fetch from: name the location where the version was built, or a node that has it")]
    NoSource,
    /// A file could not be read from any source, even after retries. The last source is named.
    #[error("cannot read {file:?} of {location:?}: {source}; check that the version is complete and push again")]
    Source {
        /// The file.
        file: String,
        /// The directory that it should be in.
        location: String,
        /// The last error.
        source: SourceError,
    },
    /// The source now has another version than the one that is fetched.
    #[error(
        "{location:?} was changed: its manifest has checksum {found}, and the pushed version has checksum \
         {expected}; push its present files as a new version"
    )]
    SourceChanged {
        /// The source.
        location: String,
        /// The checksum of the manifest of the version.
        expected: Checksum,
        /// The checksum of the manifest at the source now.
        found: Checksum,
    },
    /// The directory of the version holds another version.
    #[error("{path:?} holds another version: its manifest has checksum {found}, not {expected}; delete it")]
    OtherVersion {
        /// The directory.
        path: PathBuf,
        /// The checksum of the manifest of the version.
        expected: Checksum,
        /// The checksum of the manifest in the directory.
        found: Checksum,
    },
    /// The certificates for trusting peers cannot be used.
    #[error("cannot use the certificates for trusting peers: {reason}; use a PEM file of certificates")]
    PeerCertificates {
        /// The cause.
        reason: String,
    },
    /// The source has no readable manifest.
    #[error("no usable manifest in {location:?}: {source}")]
    Manifest {
        /// The directory.
        location: String,
        /// The cause.
        source: FormatError,
    },
    /// The version was built for another store; slots depend on the name.
    #[error("{location:?} was built for store {found:?}, not {expected:?}: push it there, or build it again")]
    WrongStore {
        /// The source.
        location: String,
        /// The store that was pushed to.
        expected: StoreName,
        /// The store that it was built for.
        found: StoreName,
    },
    /// The version has another number of partitions than the cluster.
    #[error("{location:?} was built for {found} partitions, but this cluster has {expected}: build it again")]
    WrongPartitions {
        /// The source.
        location: String,
        /// The number of the cluster.
        expected: PartitionCount,
        /// The number of the version.
        found: PartitionCount,
    },
    /// Not all members of the cluster read the format of the version.
    #[error(
        "{location:?} has format version {format}, which needs protocol {needed}, and the cluster is at protocol \
         {in_force}: upgrade all nodes and routers first (fondaco status shows their protocols), or build the version \
         with the former release"
    )]
    LaterFormat {
        /// The source.
        location: String,
        /// The format version.
        format: u32,
        /// The protocol that all members must speak.
        needed: u32,
        /// The protocol in force.
        in_force: u32,
    },
    /// The values of the version have another type than those of the store.
    #[error(
        "{location:?} has values of type {found}, and those of the store are {expected}: build it again with \
         --value-type {expected}, or push it to another store"
    )]
    WrongValueType {
        /// The source.
        location: String,
        /// The type of the store.
        expected: ValueType,
        /// The type of the version.
        found: ValueType,
    },
    /// The keys of the version have another type than those of the store.
    #[error(
        "{location:?} has keys of type {found}, and those of the store are {expected}: build it again with \
         --key-type '{expected}', or push it to another store"
    )]
    WrongKeyType {
        /// The source.
        location: String,
        /// The type of the store.
        expected: KeyType,
        /// The type of the version.
        found: KeyType,
    },
    /// The values of the version have a schema that the store does not have under its id.
    #[error(
        "the values of {location:?} have schema {id}, but {reason}; build it again with a schema of the store and its \
         --schema-id: fondaco schema list {store} shows them, and fondaco schema register {store} FILE adds one"
    )]
    WrongSchema {
        /// The source.
        location: String,
        /// The store.
        store: StoreName,
        /// The id of the schema.
        id: u16,
        /// The difference.
        reason: String,
    },
    /// The version would not fit.
    #[error(
        "not enough space in {path:?}: {needed_bytes} bytes are needed and {available_bytes} available, \
         {reserve_bytes} of them held in reserve and {reserved_bytes} needed by other fetches; free some, or lower a \
         store's backups"
    )]
    NoSpace {
        /// The target directory.
        path: PathBuf,
        /// The space that the version needs.
        needed_bytes: u64,
        /// The free space of the file system.
        available_bytes: u64,
        /// The space that must stay free.
        reserve_bytes: u64,
        /// The space that other fetches still need.
        reserved_bytes: u64,
    },
    /// The disk became full.
    #[error("the disk of {path:?} became full: free some space and push again")]
    DiskFull {
        /// The file that was being written.
        path: PathBuf,
    },
    /// A file does not match its manifest, after being read twice from each source that has it. The last source is
    /// named.
    #[error(
        "{file:?} of {location:?} is corrupt: its manifest says {expected_bytes} bytes with checksum {expected}, \
         found {found_bytes} with {found}; build the version again"
    )]
    Mismatch {
        /// The file.
        file: String,
        /// The source.
        location: String,
        /// Its length in the manifest.
        expected_bytes: u64,
        /// Its checksum in the manifest.
        expected: Checksum,
        /// The length that was read.
        found_bytes: u64,
        /// The checksum that was read.
        found: Checksum,
    },
    /// The operating system refused something on the node's own disk.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The fetch was cancelled.
    #[error("the fetch was cancelled")]
    Cancelled,
    /// The node is stopping; the fetch resumes when it starts again.
    #[error("the fetch was interrupted by the node stopping, and resumes when it starts")]
    Interrupted,
}

impl FetchError {
    /// Whether a source cannot give the file as it should be, however often it is asked.
    pub fn blames_source(&self) -> bool {
        let unusable = |source: &SourceError| matches!(source, SourceError::Unusable { .. });
        match self {
            Self::Mismatch { .. } => true,
            Self::Source { source, .. } => unusable(source),
            _ => false,
        }
    }

    /// Whether an early retry would end the same way.
    pub fn is_for_good(&self) -> bool {
        self.blames_source()
            || matches!(
                self,
                Self::WrongStore { .. }
                    | Self::WrongPartitions { .. }
                    | Self::WrongValueType { .. }
                    | Self::WrongKeyType { .. }
                    | Self::WrongSchema { .. }
                    | Self::SourceChanged { .. }
            )
    }

    /// Adds action and path to an error of the node's own disk.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.as_ref().to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
                _ => Self::Io { action, path, source },
            }
        }
    }
}
