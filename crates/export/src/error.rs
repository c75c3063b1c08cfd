//! The reasons that an export fails.

use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use fondaco_admin::AdminError;
use fondaco_format::FormatError;
use fondaco_push::PushError;
use fondaco_typed::DecodeError;
use parquet::errors::ParquetError;

/// An export failed. It has left no file.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A request to a cluster failed.
    #[error(transparent)]
    Admin(#[from] AdminError),

    /// The version cannot be found or fetched.
    #[error(transparent)]
    Version(#[from] PushError),

    /// The version cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// A record does not fit the schema.
    #[error(transparent)]
    Decode(#[from] DecodeError),

    /// The options and the data contradict each other.
    #[error("{0}")]
    WrongOptions(String),

    /// Parquet has no form for a type.
    #[error("cannot write the rows as Parquet: use --format arrow, or --raw")]
    Parquet(#[source] ParquetError),

    /// The batches cannot be written as Arrow IPC.
    #[error("cannot write the rows as Arrow IPC")]
    Arrow(#[source] ArrowError),

    /// The output cannot be written.
    #[error("cannot write {path:?}; choose another file")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },

    /// A stream that the caller has opened cannot be written.
    #[error("cannot write the output")]
    Stream(#[source] io::Error),

    /// The token stopped the export.
    #[error("cancelled: nothing was exported")]
    Cancelled,
}

impl ExportError {
    /// The code of the error, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Admin(error) => error.code(),
            Self::Version(error) => error.code(),
            Self::WrongOptions(_) => "wrong_usage",
            _ => "failed",
        }
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
