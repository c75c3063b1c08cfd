//! A build that is divided into tasks, for engines such as Spark, which divide and sort rows themselves.
//!
//! 1. [`plan`], once: checks the [`Spec`] and the columns before any row is read.
//! 2. [`encode`], in each task that has rows in any order: makes keys, values and positions of them.
//! 3. The engine brings the rows of each partition to one task, in the order of their positions.
//! 4. [`write`], in each of those tasks: writes the chunks of some partitions, which it knows completely.
//! 5. [`commit`], once: makes a version of the files of all tasks, or [`abort`].
//!
//! Rows are streams of Arrow IPC. No step reads anything twice, and none needs memory for more than a batch and 16 MiB.
//!
//! Invariants: the version is that of [`build`](crate::build()) of the same rows, byte for byte, however tasks divide the
//! partitions. Attempts of one task do not disturb each other, and a lost one leaves nothing in a committed version.

mod commit;
mod encode;
mod error;
mod newest;
mod partition;
mod plan;
mod spec;
mod write;

pub use commit::{Committed, abort, commit};
pub use encode::encode;
pub use error::TaskError;
pub use plan::plan;
pub use spec::{Spec, read_dictionary};
pub use write::{Written, write};

/// The columns of encoded rows.
mod column {
    pub(super) const POSITION: &str = "position";
    pub(super) const PARTITION: &str = "partition";
    pub(super) const KEY: &str = "key";
    pub(super) const VALUE: &str = "value";
    pub(super) const ORDER: &str = "order";
}

/// The name of the rows of a task in messages.
const ROWS: &str = "the rows of the task";

/// The names of files that the attempt with this id is writing begin with this.
fn prefix_of(attempt: &str) -> String {
    format!("attempt-{attempt}-")
}
