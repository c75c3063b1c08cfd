//! Why a fetch ended without a version, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use fondaco_format::{Checksum, FormatError};
use fondaco_model::{PartitionCount, StoreName};

use crate::source::SourceError;

/// An error of a fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is nowhere to fetch from.
    #[error("no source was named to fetch from: name where the version was built, or a node that has it")]
    NoSource,
    /// A file could not be had from any source, even after trying again. The last one is named.
    #[error("cannot read {file:?} of {location:?}: {source}; check that the version is complete and push again")]
    Source {
        /// The file.
        file: String,
        /// The directory that it should be in.
        location: String,
        /// The last reason.
        source: SourceError,
    },
    /// The source has a version, and it is another one than that which is fetched.
    #[error(
        "{location:?} was changed: its manifest has checksum {found}, and that of the version which was pushed has \
         {expected}; push what is there now as a version of its own"
    )]
    SourceChanged {
        /// The source.
        location: String,
        /// The checksum of the manifest of the version.
        expected: Checksum,
        /// That of the manifest that is there now.
        found: Checksum,
    },
    /// The directory of the version holds another one.
    #[error("{path:?} holds another version: its manifest has checksum {found}, not {expected}; delete it")]
    OtherVersion {
        /// The directory.
        path: PathBuf,
        /// The checksum of the manifest of the version.
        expected: Checksum,
        /// That of the manifest in the directory.
        found: Checksum,
    },
    /// The certificates that peers are to be trusted by cannot be used.
    #[error("cannot use the certificates to trust peers by: {reason}; use a PEM file of certificates")]
    PeerCertificates {
        /// What is wrong with them.
        reason: String,
    },
    /// The source has no readable manifest.
    #[error("no usable manifest in {location:?}: {source}")]
    Manifest {
        /// The directory.
        location: String,
        /// What is wrong with it.
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
    /// The version divides its records into another number of partitions than the cluster.
    #[error("{location:?} was built for {found} partitions and this cluster has {expected}: build it again")]
    WrongPartitions {
        /// The source.
        location: String,
        /// What the cluster has.
        expected: PartitionCount,
        /// What the version has.
        found: PartitionCount,
    },
    /// The version would not fit.
    #[error(
        "not enough space in {path:?}: {needed_bytes} bytes are needed and {available_bytes} available, \
         {reserve_bytes} of them held in reserve and {reserved_bytes} needed by other fetches; free some, or lower a \
         store's backups"
    )]
    NoSpace {
        /// Where it would go.
        path: PathBuf,
        /// What the version takes.
        needed_bytes: u64,
        /// What the file system has.
        available_bytes: u64,
        /// What must stay free of it.
        reserve_bytes: u64,
        /// What other fetches still need of it.
        reserved_bytes: u64,
    },
    /// The disk became full.
    #[error("the disk of {path:?} became full: free some space and push again")]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// A file is not what its manifest says, read twice from each source that has it. The last one is named.
    #[error(
        "{file:?} of {location:?} is corrupt: its manifest says {expected_bytes} bytes with checksum {expected}, \
         found {found_bytes} with {found}; build the version again"
    )]
    Mismatch {
        /// The file.
        file: String,
        /// The source.
        location: String,
        /// Its length by the manifest.
        expected_bytes: u64,
        /// Its checksum by the manifest.
        expected: Checksum,
        /// How many bytes came.
        found_bytes: u64,
        /// Their checksum.
        found: Checksum,
    },
    /// The operating system refused something on the node's own disk.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Someone asked to stop.
    #[error("the fetch was cancelled")]
    Cancelled,
    /// The node is stopping; the fetch resumes when it starts again.
    #[error("the fetch was interrupted by the node stopping, and resumes when it starts")]
    Interrupted,
}

impl FetchError {
    /// Gives an error of the node's own disk its name.
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
