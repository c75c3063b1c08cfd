//! Writes a version: units of sorted buckets become chunks, in any number of threads; the manifest comes last, when
//! every other file is durable.
//!
//! A separate thread syncs finished files, so that waiting for the disk does not stop the sorting; thousands of small
//! files are synced together at the end.

mod chunks;
mod plan;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use fondaco_format::{Checksum, ChunkEntry, FileEntry, FormatError, dictionary_file_name};
use fondaco_storage::{FileWriter, StorageError};
use parking_lot::Mutex;

use crate::error::BuildError;
use crate::input::or_panic;
use crate::options::BuildOptions;
use crate::progress::Progress;
use crate::sort::{Drain, Part, Scratch, Sorted};
pub(crate) use chunks::{ChunkSequence, begin_chunk, end_chunk};
pub(crate) use plan::{Unit, chunks as chunks_of, units};

/// Up to this many files are synced one by one.
pub(crate) const FILES_SYNCED_ONE_BY_ONE_MAX: usize = 256;

/// How many finished files may wait to be synced. Each keeps a file descriptor open.
pub(crate) const FILES_WAITING_MAX: usize = 64;

/// The written files.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// In the order of partition and number; empty after a dry run.
    pub(crate) entries: Vec<ChunkEntry>,
    pub(crate) chunks: u64,
    pub(crate) records: u64,
    /// Of keys and values, uncompressed.
    pub(crate) bytes: u64,
    pub(crate) duplicates: u64,
}

/// Writes all chunks durably.
pub(crate) fn write(
    options: &BuildOptions,
    sorted: Sorted,
    drain: Drain<'_>,
    dictionary: Option<&[u8]>,
    progress: &Progress,
) -> Result<Written, BuildError> {
    let plans = plan::plans(&sorted.tallies, options.chunk_bytes_target);
    let units = units(&plans, sorted.layout.bucket_bits);
    let chunks: usize = units.iter().map(|unit| unit.chunks.len()).sum();
    let sync_each = chunks * 2 <= FILES_SYNCED_ONE_BY_ONE_MAX;
    let parts: Vec<Mutex<Part>> = sorted.parts.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let (finished, to_sync) = bounded(FILES_WAITING_MAX);

    let write_unit = |unit: &Unit, scratch: &mut Scratch| -> Result<Written, BuildError> {
        let mut sequence = ChunkSequence::new(options, "", unit.chunks.clone(), dictionary, &finished)?;
        let mut duplicates = 0;
        for bucket in unit.buckets.clone() {
            progress.check()?;
            let part = std::mem::take(&mut *parts[bucket].lock());
            let records = part.records;
            duplicates += drain.drain(part, sorted.layout.bucket_bits, scratch, &mut |record| {
                sequence.append(record)
            })?;
            progress.records_written.fetch_add(records, Ordering::Relaxed);
        }
        let mut written = sequence.finish()?;
        written.duplicates = duplicates;
        Ok(written)
    };
    let write_some = || {
        let mut done = Vec::new();
        let mut scratch = Scratch::default();
        while let Some((number, unit)) = take(&next, &units) {
            match write_unit(unit, &mut scratch) {
                Ok(written) => done.push((number, written)),
                Err(e) => {
                    next.store(units.len(), Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
        Ok(done)
    };
    let (results, synced) = thread::scope(|scope| {
        let syncing = scope.spawn(|| sync(&to_sync, sync_each));
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(write_some)).collect();
        let results: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        // Ends the syncing thread, even if another thread panicked.
        let _ = finished.send(None);
        (
            results.into_iter().map(or_panic).collect::<Vec<_>>(),
            or_panic(syncing.join()),
        )
    });
    let mut done = Vec::new();
    for result in results {
        done.extend(result?);
    }
    synced?;
    if !options.dry_run && !sync_each {
        options.output.sync_all()?;
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done
        .into_iter()
        .fold(Written::default(), |sum, (_, unit)| sum.with(unit)))
}

fn take<'u>(next: &AtomicUsize, units: &'u [Unit]) -> Option<(usize, &'u Unit)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, units.get(number)?))
}

/// Syncs file by file until `None` arrives. After an error it only receives.
pub(crate) fn sync(finished: &Receiver<Option<FileWriter>>, sync_each: bool) -> Result<(), StorageError> {
    let mut result = Ok(());
    while let Ok(Some(file)) = finished.recv() {
        if result.is_ok() {
            result = if sync_each { file.finish() } else { file.finish_later() };
        }
    }
    result
}

/// The queue of files to sync.
pub(crate) type Finished = Sender<Option<FileWriter>>;

/// Writes the compression dictionary, durably.
pub(crate) fn write_dictionary(options: &BuildOptions, dictionary: &[u8]) -> Result<FileEntry, BuildError> {
    let checksum = Checksum::of(dictionary);
    let name = dictionary_file_name(checksum);
    let mut file = options.output.create_file(&name)?;
    file.write_all(dictionary)
        .map_err(|e| chunk_error(options, FormatError::Write(e)))?;
    file.finish()?;
    Ok(FileEntry {
        name,
        bytes: dictionary.len() as u64,
        checksum,
    })
}

/// Converts the error of a chunk writer; a full disk gets its own error.
pub(crate) fn chunk_error(options: &BuildOptions, source: FormatError) -> BuildError {
    let output = &options.output;
    match source {
        FormatError::Table(e) => BuildError::temporary(&options.temporary, e),
        FormatError::Write(e) if e.kind() == std::io::ErrorKind::StorageFull => StorageError::DiskFull {
            path: output.to_string().into(),
        }
        .into(),
        source => BuildError::Chunk {
            output: output.to_string(),
            source,
        },
    }
}

impl Written {
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.chunks += other.chunks;
        self.records += other.records;
        self.bytes += other.bytes;
        self.duplicates += other.duplicates;
        self
    }
}
