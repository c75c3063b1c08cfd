//! What can go wrong with a version, each with its remedy.

use std::io;
use std::path::PathBuf;

use fondaco_model::{PartitionCount, PartitionId};

use crate::manifest::ValueType;

/// An error of the format.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Writing failed where no path is known.
    #[error("cannot write a chunk: {0}")]
    Write(#[source] io::Error),
    /// What of the index of a chunk is kept in a temporary file could not be written or read.
    #[error("cannot keep a part of an index in a temporary file: {0}")]
    Table(#[source] io::Error),
    /// No manifest: the directory is not a version, or its build did not finish.
    #[error(
        "no manifest in {path:?}: it is not a version, or its build did not finish; build it again or name another directory"
    )]
    NoManifest {
        /// The directory.
        path: PathBuf,
    },
    /// The version was written in a format that this program does not know.
    #[error(
        "{path:?} has format version {found}, and this program reads versions {first} to {last}: use a matching release",
        first = crate::FORMAT_VERSIONS_READ.start(), last = crate::FORMAT_VERSIONS_READ.end()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u64,
    },
    /// The version has values of a type that this program does not know.
    #[error(
        "the version has values of type {found:?}, and this program knows {}: use a matching release",
        known_types()
    )]
    UnknownValueType {
        /// The name of the type.
        found: String,
    },
    /// A file does not hold what was written.
    #[error("{path:?} is corrupt: {reason}; fetch or build the version again")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A partition that must be there is not: one of its files is missing, or not complete.
    #[error("{path:?} of partition {partition} {defect}: fetch the partition")]
    MissingFile {
        /// The partition.
        partition: PartitionId,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        defect: FileDefect,
    },
    /// The process has as many files of versions mapped as it may: one more, and it might get no memory.
    #[error(
        "cannot map {path:?}: files of versions take {mappings} memory mappings of this process already, and may take {mappings_max}; raise vm.max_map_count (sysctl), keep fewer versions, or build with a larger chunk size"
    )]
    TooManyMappings {
        /// The file.
        path: PathBuf,
        /// How many mappings are taken.
        mappings: u64,
        /// How many may be: most of what the operating system allows.
        mappings_max: u64,
    },
    /// The process has as many files open as it may.
    #[error(
        "cannot open {path:?}: the process has as many files open as it may; raise its hard limit (ulimit -Hn, LimitNOFILE= of systemd), keep fewer versions, or build with a larger chunk size"
    )]
    TooManyOpenFiles {
        /// The file.
        path: PathBuf,
    },
    /// A key that may be in the version, but not in the part of it that is here.
    #[error("partition {partition} is not held here: ask a node that holds it")]
    NotHeld {
        /// The partition of the key.
        partition: PartitionId,
    },
    /// A partition that the version does not have.
    #[error("{path:?} has {partitions} partitions, and none is number {partition}: numbers begin with 0")]
    NoPartition {
        /// What was asked for.
        partition: PartitionId,
        /// What there is.
        partitions: PartitionCount,
        /// The version.
        path: PathBuf,
    },
    /// A manifest's text does not hold what was written.
    #[error("the manifest is corrupt: {reason}; fetch or build the version again")]
    CorruptManifest {
        /// What does not fit.
        reason: String,
    },
    /// A key that no store can hold.
    #[error("the key has {bytes} bytes: keys have 1 to {max}", max = fondaco_model::KEY_BYTES_MAX)]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// A value that no store can hold.
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
    /// The compression library refused.
    #[error("compression failed: {0}")]
    Compression(String),
}

fn known_types() -> String {
    let names: Vec<&str> = ValueType::ALL.iter().map(|known| known.name()).collect();
    names.join(", ")
}

/// Why a file does not count as being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileDefect {
    /// There is none of its name.
    #[error("is missing")]
    Absent,
    /// Its length is another.
    #[error("has {found_bytes} bytes and its manifest says {expected_bytes}")]
    Length {
        /// How long it is.
        found_bytes: u64,
        /// How long it must be.
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

    /// Whether the stored bytes are wrong, as opposed to unreadable or unknown.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::CorruptManifest { .. })
    }
}
