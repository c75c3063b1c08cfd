//! Overlays in an engine that has lost writes since they were made: effects of events may be gone, and later offsets
//! still there. They begin anew.

use fondaco_engine::{Engine, WriteBatch};

use super::OverlayOptions;
use crate::error::StreamError;
use crate::progress::{loss_known, note_loss};

/// Deletes all overlays in an engine that has `lost` writes since they were created. Call it when a process starts: a loss
/// is forgotten once other data is restored, which may be before an overlay is opened.
///
/// # Errors
/// An error of the engine.
pub fn drop_after_losses(engine: &dyn Engine, lost: &str) -> Result<(), StreamError> {
    let tables = engine.tables()?;
    let mut overlays = tables.iter().filter_map(|table| OverlayOptions::tables_with(table));
    overlays.try_for_each(|tables| drop_tables(engine, &tables, lost))
}

/// Does the same for one overlay. Call it before the overlay is opened. The loss does not concern an overlay that is
/// created later.
///
/// # Errors
/// An error of the engine.
pub fn drop_after_loss(engine: &dyn Engine, options: &OverlayOptions, lost: &str) -> Result<(), StreamError> {
    drop_tables(engine, &options.tables(), lost)
}

fn drop_tables(engine: &dyn Engine, tables: &[String; 3], lost: &str) -> Result<(), StreamError> {
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
