//! Overlays in an engine that has lost writes since they were made: effects of events may be gone, and later offsets
//! still there. They begin anew.

use fondaco_engine::{Engine, WriteBatch};

use super::OverlayOptions;
use crate::error::StreamError;
use crate::progress::{loss_known, note_loss};

/// Deletes all overlays in an engine that has lost writes since they were created. Call it when a process starts: an
/// engine forgets its loss once other data is restored, which may be before an overlay is opened.
///
/// # Errors
/// An error of the engine.
pub fn drop_after_losses(engine: &dyn Engine) -> Result<(), StreamError> {
    if engine.lost_writes().is_none() {
        return Ok(());
    }
    let tables = engine.tables()?;
    let mut overlays = tables.iter().filter_map(|table| OverlayOptions::tables_with(table));
    overlays.try_for_each(|tables| drop_after_loss(engine, &tables))
}

/// Does the same for one overlay, with these tables. The loss does not concern an overlay that is created later.
pub(super) fn drop_after_loss(engine: &dyn Engine, tables: &[String; 3]) -> Result<(), StreamError> {
    let Some(lost) = engine.lost_writes() else {
        return Ok(());
    };
    let [table, notes, events] = tables;
    if loss_known(&*engine.open_table(notes)?)?.as_deref() == Some(lost.as_bytes()) {
        return Ok(());
    }
    // The progress is deleted last: without it, the remaining records would be taken for those of no events.
    for table in [table, events, notes] {
        engine.drop_table(table)?;
    }
    let mut batch = WriteBatch::new();
    note_loss(&*engine.open_table(notes)?, lost, &mut batch);
    Ok(engine.write(batch)?)
}
