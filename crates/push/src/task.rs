//! The tasks of an engine's build that a signal may stop, and their result.

use std::io::Read;

use fondaco_builder::task::{self, Spec, Written};

use crate::build::{BuildResult, IncrementResult, watched};
use crate::error::PushError;
use crate::observer::Job;

/// Writes some partitions: see [`task::write`].
///
/// # Errors
/// As there, also if the job is cancelled: then nothing is left under temporary names.
pub fn write_task(
    spec: &Spec,
    partitions: &[u32],
    attempt: &str,
    rows: impl Read + Send,
    job: Job<'_>,
) -> Result<Written, PushError> {
    watched(job, |progress| task::write(spec, partitions, attempt, rows, progress))
}

/// Makes a version of the results of tasks: see [`task::commit`].
///
/// # Errors
/// As there.
pub fn commit_task(spec: &Spec, results: &str) -> Result<BuildResult, PushError> {
    let committed = task::commit(spec, results)?;
    Ok(BuildResult {
        increment: committed.increment.as_ref().map(IncrementResult::from),
        ..BuildResult::new(&committed.options, &committed.report)
    })
}
