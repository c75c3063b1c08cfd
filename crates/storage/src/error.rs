//! What can go wrong with a place, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a storage operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The URL names a kind of storage that this build has no code for.
    #[error("{url:?} is on {scheme:?}, but this build supports local paths only: use a path or a file:// URL")]
    UnsupportedScheme {
        /// What was asked for.
        url: String,
        /// Its scheme.
        scheme: String,
    },

    /// The text is neither a path nor a URL.
    #[error("{url:?} is not a location: {reason}; use a path or a file:// URL")]
    InvalidLocation {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// A file name that would lead out of its directory.
    #[error("{name:?} is not a file name: use one name without \"/\" that is not \".\" or \"..\"")]
    InvalidName {
        /// The name.
        name: String,
    },

    /// The file or directory is not there.
    #[error("{path:?} does not exist: check the path")]
    NotFound {
        /// What was looked for.
        path: PathBuf,
    },

    /// The disk is full.
    #[error("no space left on the disk of {path:?}: free some, or choose another place")]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },

    /// A file ended before the length that it had when it was opened.
    #[error(
        "{path:?} ended at byte {offset}, {missing_bytes} bytes early: it was changed while it was read; start again"
    )]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Where it ended.
        offset: u64,
        /// How much was still expected.
        missing_bytes: u64,
    },

    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },

    /// The object store refused.
    #[error("cannot {action} {path:?}: {source}")]
    ObjectStore {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: object_store::Error,
    },
}

impl StorageError {
    /// Gives an error of the operating system its name.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { action, path, source },
        }
    }

    /// Gives an error of the object store its name.
    pub(crate) fn object_store(action: &'static str, path: impl Into<PathBuf>, source: object_store::Error) -> Self {
        let path = path.into();
        match source {
            object_store::Error::NotFound { .. } => Self::NotFound { path },
            source => Self::ObjectStore { action, path, source },
        }
    }
}
