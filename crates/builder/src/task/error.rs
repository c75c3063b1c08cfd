//! The errors that only tasks have, each with a remedy.

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The description of the build is wrong.
    #[error("invalid task: {reason}")]
    Spec {
        /// Why, with the remedy.
        reason: String,
    },

    /// The rows could not be read, or encoded rows could not be passed on.
    #[error("the stream of rows failed: {reason}")]
    Stream {
        /// Why.
        reason: String,
    },

    /// Encoded rows are not as `encode` makes them.
    #[error("cannot read encoded rows: {reason}")]
    Encoded {
        /// Why.
        reason: String,
    },

    /// A row belongs to a partition of another task.
    #[error(
        "key {key:?} is in partition {partition}, which is not one of this task ({of_task}): divide rows by the column \
         \"partition\""
    )]
    OtherPartition {
        /// The key, shortened.
        key: String,
        /// Its partition.
        partition: u32,
        /// The partitions of the task.
        of_task: String,
    },

    /// Rows are not in their order.
    #[error(
        "key {key:?} comes after a key with a higher position: sort the rows of the task by the column \"position\""
    )]
    OutOfOrder {
        /// The key, shortened.
        key: String,
    },

    /// Two rows have the same key.
    #[error(
        "key {key:?} occurs twice: fix the input, or keep one row of each key with on_duplicate first or last and order_by"
    )]
    Duplicate {
        /// The key, shortened.
        key: String,
    },

    /// Two rows of a key differ, and their order does not say which one to keep.
    #[error(
        "key {key:?} has two rows with an equal value of {order_by:?} and different values: choose a column that orders them"
    )]
    EqualOrder {
        /// The key, shortened.
        key: String,
        /// The column that orders rows.
        order_by: String,
    },

    /// The output is a version already.
    #[error("cannot abort: {output:?} is a complete version, which an abort does not delete")]
    CompleteVersion {
        /// Its location.
        output: String,
    },

    /// The results of the tasks do not make a complete version.
    #[error("cannot commit: {reason}")]
    Commit {
        /// Why, with the remedy.
        reason: String,
    },
}

impl TaskError {
    pub(super) fn spec(reason: impl Into<String>) -> Self {
        Self::Spec { reason: reason.into() }
    }

    pub(super) fn encoded(reason: impl ToString) -> Self {
        Self::Encoded {
            reason: reason.to_string(),
        }
    }

    pub(super) fn stream(reason: impl ToString) -> Self {
        Self::Stream {
            reason: reason.to_string(),
        }
    }

    pub(super) fn commit(reason: impl Into<String>) -> Self {
        Self::Commit { reason: reason.into() }
    }
}
