//! The reasons that a push fails.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_admin::AdminError;
use fondaco_builder::BuildError;
use fondaco_fetch::FetchError;
use fondaco_format::FormatError;
use fondaco_storage::StorageError;
use fondaco_stream::VersionTopicError;

/// A push, a deploy, a build or a compaction failed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// A request to a cluster failed.
    #[error(transparent)]
    Admin(#[from] AdminError),

    /// The build failed.
    #[error(transparent)]
    Build(#[from] BuildError),

    /// The version that is to be changed cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),

    /// A version cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// A location is invalid.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// The topic that the version is sent through cannot be used.
    #[error(transparent)]
    Topic(#[from] VersionTopicError),

    /// The options contradict each other, or the store or files that they name.
    #[error("{0}")]
    WrongOptions(String),

    /// The clusters or the store cannot take the version: a check before or during the job says why.
    #[error("{0}")]
    Unfit(String),

    /// An answer of a node, or a file, has an unexpected content.
    #[error("{0}")]
    Damaged(String),

    /// The version does not fit on the disk of a node.
    #[error(
        "the version needs about {needed_bytes} bytes, but the disk of the node has only {free_bytes} free: free some space there"
    )]
    NoSpace {
        /// The size of the version.
        needed_bytes: u64,
        /// The free space.
        free_bytes: u64,
    },

    /// The cluster has begun the push and did not end it with a swap.
    #[error("{0}")]
    Failed(String),

    /// A gate did not let the version go live. The nodes keep it until the next push.
    #[error("{0}")]
    Held(String),

    /// The run was deployed before, and its push has failed or was cancelled.
    #[error("run {run:?} has this end: to try again, name another --run")]
    RunFailed {
        /// The id of the run.
        run: String,
        /// The end of its push.
        #[source]
        source: Box<PushError>,
    },

    /// The [token](crate::CancelToken) stopped the job.
    #[error("{0}")]
    Cancelled(String),

    /// The push was begun, and continues without being watched: its version has to stay.
    #[error("{message}")]
    Continues {
        /// The state of the push.
        message: &'static str,
        /// The reason that it is not watched.
        #[source]
        source: Box<PushError>,
    },

    /// A step failed.
    #[error("{message}")]
    Step {
        /// The step, and the remedy.
        message: String,
        /// The reason.
        #[source]
        source: Box<PushError>,
    },

    /// A file or a directory of this machine cannot be used.
    #[error("cannot {action} {path:?}{remedy}")]
    File {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The remedy, behind a colon, if there is one.
        remedy: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },

    /// A file with changes cannot be written.
    #[error("cannot write {path:?}")]
    Changes {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: parquet::errors::ParquetError,
    },
}

impl PushError {
    /// The code of the error, for programs: that of the process which refused, `unreachable`, `wrong_usage`, `run_failed`,
    /// `version_complete`, or `failed`.
    pub fn code(&self) -> &str {
        match self {
            Self::Admin(error) => error.code(),
            Self::Build(error) => error.code(),
            Self::WrongOptions(_) => "wrong_usage",
            Self::RunFailed { .. } => "run_failed",
            Self::Continues { source, .. } | Self::Step { source, .. } => source.code(),
            _ => "failed",
        }
    }

    /// Whether the [token](crate::CancelToken) stopped the job.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled(_) | Self::Build(BuildError::Cancelled) | Self::Fetch(FetchError::Cancelled) => true,
            Self::Continues { source, .. } | Self::Step { source, .. } => source.is_cancelled(),
            _ => false,
        }
    }

    /// Whether the push continues in the cluster after this error: its version has to stay.
    pub fn continues(&self) -> bool {
        match self {
            Self::Continues { .. } => true,
            Self::Step { source, .. } => source.continues(),
            _ => false,
        }
    }

    /// Whether the data center may be down: no process answers, its answer broke off, or it has lost its coordination service.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Admin(error) => error.is_away(),
            Self::Continues { source, .. } | Self::Step { source, .. } => source.is_away(),
            _ => false,
        }
    }

    pub(crate) fn within(self, message: impl Into<String>) -> Self {
        Self::Step {
            message: message.into(),
            source: Box::new(self),
        }
    }

    pub(crate) fn continuing(self, message: &'static str) -> Self {
        Self::Continues {
            message,
            source: Box::new(self),
        }
    }

    /// For `map_err`: an operation on a file failed.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::file_with(action, path, "")
    }

    /// As [`file`](Self::file), with a remedy.
    pub(crate) fn file_with(action: &'static str, path: &Path, remedy: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            remedy,
            source,
        }
    }
}

/// An error with its causes, without the causes that the text already contains.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        next = error.source();
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> PushError {
        PushError::Admin(AdminError::Refused {
            code: code.to_owned(),
            message: "no".to_owned(),
        })
    }

    #[test]
    fn the_code_of_a_refusal_is_that_of_the_step_that_it_ended() {
        let error = refused("base_changed")
            .continuing("the push continues")
            .within("a step");
        assert_eq!(error.code(), "base_changed");
        assert!(error.continues() && !error.is_away());
        assert!(refused("unavailable").within("a step").is_away());
        assert!(PushError::Build(BuildError::Cancelled).within("a step").is_cancelled());
    }

    #[test]
    fn a_cause_is_in_the_text_once() {
        let error = refused("x").within("a step says no").within("the job");
        assert_eq!(with_causes(&error), "the job: a step says no");
    }
}
