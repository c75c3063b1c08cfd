//! Carries out changes of the cluster by conditional writes: all of a change or nothing.

use fondaco_coordination::{Change as EntryChange, Coordination, CoordinationError, EntryPath, Revision};
use fondaco_decisions::Change;

use crate::layout;
use crate::mirror::Mirror;

/// Carries a change out, and makes the mirror of this process see it at once.
///
/// # Errors
/// [`CoordinationError::Conflict`] if an entry that it depends on has changed; then nothing is written.
pub fn carry_out(coordination: &dyn Coordination, mirror: &Mirror, change: &Change) -> Result<(), CoordinationError> {
    let mut changes = Vec::new();
    for (record, revision) in &change.unchanged {
        changes.push(EntryChange::Check {
            path: layout::path(record)?,
            expected: Revision::new(*revision),
        });
    }
    for write in &change.writes {
        let path = layout::path(&write.path)?;
        let expected = write.expected.map(Revision::new);
        changes.push(match (&write.record, expected) {
            (Some(record), expected) => EntryChange::Write {
                // Plain data with text keys: serialising it into memory cannot fail.
                bytes: serde_json::to_vec(record).expect("a record is plain data"),
                path,
                expected,
            },
            (None, Some(expected)) => EntryChange::Delete { path, expected },
            // A missing entry need not be deleted.
            (None, None) => continue,
        });
    }
    coordination.transact(&changes)?;
    let written: Vec<EntryPath> = changes.iter().map(|change| change.path().clone()).collect();
    if let Err(error) = mirror.refresh(coordination, &written) {
        // The change is made all the same, and the watch reports it.
        tracing::debug!(%error, "cannot read back the written entries");
    }
    Ok(())
}
