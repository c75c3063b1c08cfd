//! Errors of versions, each with its remedy.

use std::io;
use std::path::PathBuf;

use fondaco_model::{PartitionCount, PartitionId, ValueType};

use crate::partial::is_missing;

/// An error of the format.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// An I/O error of the operating system.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A write failed; the path is unknown.
    #[error("cannot write a chunk: {0}")]
    Write(#[source] io::Error),
    /// Writing or reading the temporary file of a chunk's index failed.
    #[error("cannot keep a part of an index in a temporary file: {0}")]
    Table(#[source] io::Error),
    /// Two versions whose partitions cannot be compared.
    #[error("cannot compare {before:?} and {after:?}: {reason}; compare versions that were built alike")]
    Incomparable {
        /// The former version.
        before: PathBuf,
        /// The later version.
        after: PathBuf,
        /// The difference.
        reason: String,
    },
    /// No manifest: the directory is not a version, or its build did not finish.
    #[error(
        "no manifest in {path:?}: it is not a version, or its build did not finish; build it again or name another directory"
    )]
    NoManifest {
        /// The directory.
        path: PathBuf,
    },
    /// The version's format is unknown to this program.
    #[error(
        "{path:?} has format version {found}, and this program reads versions {first} to {last}: upgrade it; in a \
         cluster, upgrade all nodes and routers before the programs that build",
        first = crate::format_versions_read().start(), last = crate::format_versions_read().end()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u64,
    },
    /// The version's type of values is unknown to this program.
    #[error(
        "the version has values of type {found:?}, and this program knows {}: use a matching release",
        known_types()
    )]
    UnknownValueType {
        /// The name of the type.
        found: String,
    },
    /// The content of a file is not the one that was written.
    #[error("{path:?} is corrupt: {reason}; fetch or build the version again")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        reason: String,
    },
    /// A required partition is not complete: one of its files is missing or has another length.
    #[error("{path:?} of partition {partition} {defect}: fetch the partition")]
    MissingFile {
        /// The partition.
        partition: PartitionId,
        /// The file.
        path: PathBuf,
        /// The defect.
        defect: FileDefect,
    },
    /// The process has reached its limit of mapped files; with more, memory allocation might fail.
    #[error(
        "cannot map {path:?}: files of versions take {mappings} memory mappings of this process already, and may take {mappings_max}; raise vm.max_map_count (sysctl), keep fewer versions, or build with a larger chunk size"
    )]
    TooManyMappings {
        /// The file.
        path: PathBuf,
        /// The number of mappings in use.
        mappings: u64,
        /// The limit: most of what the operating system allows.
        mappings_max: u64,
    },
    /// The process has reached its limit of open files.
    #[error(
        "cannot open {path:?}: the process has as many files open as it may; raise its hard limit (ulimit -Hn, LimitNOFILE= of systemd), keep fewer versions, or build with a larger chunk size"
    )]
    TooManyOpenFiles {
        /// The file.
        path: PathBuf,
    },
    /// A key of a partition that this directory does not hold.
    #[error("partition {partition} is not held here: ask a node that holds it")]
    NotHeld {
        /// The partition of the key.
        partition: PartitionId,
    },
    /// A partition number that the version does not have.
    #[error("{path:?} has {partitions} partitions, not one with number {partition}: numbers begin with 0")]
    NoPartition {
        /// The requested partition.
        partition: PartitionId,
        /// The number of partitions.
        partitions: PartitionCount,
        /// The version.
        path: PathBuf,
    },
    /// The content of a manifest is not the one that was written.
    #[error("the manifest is corrupt: {reason}; fetch or build the version again")]
    CorruptManifest {
        /// The mismatch.
        reason: String,
    },
    /// A key of a length that no store accepts.
    #[error("the key has {bytes} bytes: keys have 1 to {max}", max = fondaco_model::KEY_BYTES_MAX)]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// A value of a length that no store accepts.
    #[error("the value has {bytes} bytes: values have at most {max}", max = fondaco_model::VALUE_BYTES_MAX)]
    ValueLength {
        /// Its length.
        bytes: usize,
    },
    /// A chunk would be larger than its index can address.
    #[error("chunk {chunk} of partition {partition} would pass 4 GiB: build with a smaller chunk size")]
    ChunkTooLarge {
        /// The partition.
        partition: u32,
        /// The chunk.
        chunk: u32,
    },
    /// An error of the compression library.
    #[error("compression failed: {0}")]
    Compression(String),
}

fn known_types() -> String {
    let names: Vec<&str> = ValueType::ALL.iter().map(|known| known.name()).collect();
    names.join(", ")
}

/// Why a file counts as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileDefect {
    /// No file has its name.
    #[error("is missing")]
    Absent,
    /// It has another length.
    #[error("has {found_bytes} bytes, but its manifest says {expected_bytes}")]
    Length {
        /// The actual length.
        found_bytes: u64,
        /// The expected length.
        expected_bytes: u64,
    },
}

impl FormatError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.into(),
            reason: reason.into(),
        }
    }

    /// Whether the stored bytes are wrong, as opposed to unreadable or of an unknown format.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::CorruptManifest { .. })
    }

    /// Whether bytes of a version that is open while it is fetched could not be read from its sources: the disk is not damaged.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_missing(source))
    }
}
