//! The engine that keeps the events. Its writes survive the end of the process at any moment. If it finds that writes are lost, by a
//! damaged file or a loss of power, all overlays begin anew: a part of the effects of events is never read as all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fondaco_engine::{
    CacheBudget, DiskEngine, DiskOptions, Engine, EngineError, LogEngine, LogOptions, LossNotes, OnLoss,
};
use fondaco_model::versioned::EngineKind;

use crate::error::EmbeddedError;

/// The length of a segment of the log.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Opens the engine of a kind in a directory. Half of the memory is for keys or blocks of files, and half for values.
pub(super) fn open(
    dir: &Path,
    kind: EngineKind,
    memory_bytes: u64,
    disk_reserve_bytes: u64,
) -> Result<Arc<dyn Engine>, EmbeddedError> {
    let note = dir.with_extension("lost");
    let on_loss = OnLoss::Note(Arc::new(LossFile(note.clone())));
    let cache = CacheBudget::new(memory_bytes / 2);
    let engine: Arc<dyn Engine> = match kind {
        EngineKind::Disk => Arc::new(DiskEngine::open(
            dir,
            DiskOptions {
                cache,
                block_cache_bytes: memory_bytes / 2,
                log_bytes_max: 64 << 20,
                table_buffer_bytes: 8 << 20,
                disk_reserve_bytes,
                threads: 1,
                on_loss,
            },
        )?),
        _ => Arc::new(LogEngine::open(
            dir,
            LogOptions {
                cache,
                key_bytes_max: memory_bytes / 2,
                segment_bytes: SEGMENT_BYTES,
                disk_reserve_bytes,
                on_loss,
                ..LogOptions::default()
            },
        )?),
    };
    if note.exists() {
        tracing::warn!(
            ?dir,
            "events were lost on the disk: the stream is read again from the version"
        );
        drop_tables(&*engine, |_| true)?;
        fondaco_durable::remove_file(&note).map_err(EmbeddedError::io("delete", note))?;
    }
    Ok(engine)
}

/// Deletes the tables with such names.
pub(super) fn drop_tables(engine: &dyn Engine, is_it: impl Fn(&str) -> bool) -> Result<(), EngineError> {
    // The offsets of an overlay first: one with offsets and without records would take these for read.
    let tables = engine.tables()?;
    let mut dropped = tables.iter().rev().filter(|table| is_it(table));
    dropped.try_for_each(|table| engine.drop_table(table))
}

/// The file that says that the engine beside it has lost writes.
#[derive(Debug)]
struct LossFile(PathBuf);

impl LossNotes for LossFile {
    fn note(&self, lost: &str) -> io::Result<()> {
        fondaco_durable::replace_file(&self.0, &self.0.with_extension("lost-new"), lost.as_bytes())
    }
}
