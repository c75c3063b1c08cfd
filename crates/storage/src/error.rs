//! The errors of storage locations, and their remedies.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Why a storage operation failed. A path is a local one, or a URL.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The scheme of the URL is not supported.
    #[error("{url:?} has the unsupported scheme {scheme:?}: use a local path, or a file://, s3:// or hdfs:// URL")]
    UnsupportedScheme {
        /// The URL.
        url: String,
        /// Its scheme.
        scheme: String,
    },

    /// The text is neither a path nor a URL.
    #[error(
        "{url:?} is not a location: {reason}; use a path, file:///path, s3://bucket/prefix or hdfs://host:port/path"
    )]
    InvalidLocation {
        /// The text.
        url: String,
        /// Why it is invalid.
        reason: &'static str,
    },

    /// The options for a kind of storage cannot be used.
    #[error("cannot set up access to {url:?}: {reason}; check its options and the environment")]
    InvalidOptions {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },

    /// A file name that would lead out of its directory.
    #[error("{name:?} is not a file name: use one name without \"/\" that is not \".\" or \"..\"")]
    InvalidName {
        /// The name.
        name: String,
    },

    /// The file or directory does not exist.
    #[error("{path:?} does not exist: check the path")]
    NotFound {
        /// The file or directory.
        path: PathBuf,
    },

    /// The file already exists; files are never overwritten.
    #[error("{path:?} exists: delete it, or choose another place")]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },

    /// The disk is full.
    #[error("no space left on the disk of {path:?}: free some space, or choose another place")]
    DiskFull {
        /// The file or directory that was written.
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
        /// How many more bytes were expected.
        missing_bytes: u64,
    },

    /// The file is not the one that was opened.
    #[error("{path:?} was replaced while it was read: start again")]
    Replaced {
        /// The file.
        path: PathBuf,
    },

    /// A file that should be small is not.
    #[error("{path:?} has {bytes} bytes, more than the {bytes_max} allowed")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The maximum length.
        bytes_max: u64,
    },

    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The remote storage rejected the credentials.
    #[error("cannot {action} {path:?}, access was denied: check the credentials; {source}")]
    Denied {
        /// The action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the storage.
        source: Box<dyn Error + Send + Sync>,
    },

    /// The remote storage failed or could not be reached, even after retries.
    #[error("cannot {action} {path:?}: {source}")]
    Remote {
        /// The action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the storage.
        source: Box<dyn Error + Send + Sync>,
    },

    /// The remote storage did not answer.
    #[error("cannot {action} {path:?}: no answer for {seconds} s; check that the storage is up and reachable")]
    NoAnswer {
        /// The action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// How long the request waited.
        seconds: u64,
    },
}

impl StorageError {
    /// Maps an error of the operating system.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::AlreadyExists => Self::AlreadyExists { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { action, path, source },
        }
    }

    /// Maps an error of a remote storage.
    pub(crate) fn remote(action: &'static str, path: impl Into<PathBuf>, source: object_store::Error) -> Self {
        use object_store::Error as E;
        let path = path.into();
        match source {
            E::NotFound { .. } => Self::NotFound { path },
            E::AlreadyExists { .. } => Self::AlreadyExists { path },
            E::Precondition { .. } | E::NotModified { .. } => Self::Replaced { path },
            E::PermissionDenied { source, .. } | E::Unauthenticated { source, .. } => {
                Self::Denied { action, path, source }
            }
            source => Self::Remote {
                action,
                path,
                source: source.into(),
            },
        }
    }
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        let kind = match &error {
            StorageError::NotFound { .. } => io::ErrorKind::NotFound,
            StorageError::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
            StorageError::DiskFull { .. } => io::ErrorKind::StorageFull,
            StorageError::Denied { .. } => io::ErrorKind::PermissionDenied,
            StorageError::NoAnswer { .. } => io::ErrorKind::TimedOut,
            StorageError::Shortened { .. } => io::ErrorKind::UnexpectedEof,
            StorageError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
