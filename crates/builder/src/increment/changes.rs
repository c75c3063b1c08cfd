//! The difference in the order of the chunks: in nameless temporary files, in the form of a patch.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fondaco_format::{Encoder, chunk_of_hash, write_change};
use parking_lot::Mutex;

use super::base::Base;
use super::each;
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::output::{chunk_error, chunks_of, units};
use crate::progress::Progress;
use crate::sort::{Drain, Part, PartitionTally, Record, Scratch, Sorted, temporary_file};

/// How many bytes are written to a temporary file at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The changes of one chunk: a range of a temporary file.
#[derive(Clone)]
pub(crate) struct Stretch {
    file: Arc<File>,
    range: Range<u64>,
}

impl Stretch {
    /// Its length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Read for Stretch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(self.length() as usize);
        let count = self.file.read_at(&mut buffer[..wanted], self.range.start)?;
        self.range.start += count as u64;
        Ok(count)
    }
}

/// The partition and the number of a chunk, and its changes.
type ChunkChanges = ((u32, u32), Stretch);

/// The changes of all chunks.
#[derive(Default)]
pub(crate) struct Changes {
    /// By partition and number of the chunk.
    pub(crate) by_chunk: BTreeMap<(u32, u32), Stretch>,
    /// The number of chunks of each partition that has changes.
    pub(crate) chunk_counts: BTreeMap<u32, u32>,
    pub(crate) duplicates: u64,
}

/// Sorts the difference, whose rows from the file `first_deletion` on delete their keys.
pub(super) fn sort_changes(
    options: &BuildOptions,
    base: &Base,
    sorted: Sorted,
    drain: Drain<'_>,
    first_deletion: u32,
    progress: &Progress,
) -> Result<Changes, BuildError> {
    let count_of = |partition: u32, tally: PartitionTally| match base.chunks_of(partition).len() {
        0 => tally.chunk_count(options.chunk_bytes_target),
        count => count as u64,
    };
    let tallies = sorted.tallies.iter().enumerate();
    let plans: Vec<_> = tallies
        .map(|(partition, tally)| match tally.records {
            0 => vec![],
            _ => chunks_of(partition as u32, count_of(partition as u32, *tally)),
        })
        .collect();
    let units = units(&plans, sorted.layout.bucket_bits);
    let parts: Vec<Mutex<Part>> = sorted.parts.into_iter().map(Mutex::new).collect();
    let begin = || Ok((Sorting::new(options, base, first_deletion)?, Scratch::default()));
    let each_unit = |number: usize, (sorting, scratch): &mut (Sorting<'_>, Scratch)| {
        let mut dropped = 0;
        for bucket in units[number].buckets.clone() {
            progress.check()?;
            let part = std::mem::take(&mut *parts[bucket].lock());
            let records = part.records;
            dropped += drain.drain(part, sorted.layout.bucket_bits, scratch, &mut |record| {
                sorting.add(record, plans[record.partition as usize].len() as u32)
            })?;
            progress.records_written.fetch_add(records, Ordering::Relaxed);
        }
        Ok((dropped, sorting.take_done()?))
    };
    let done = each(options.threads, units.len(), begin, each_unit)?;
    let counts = plans.iter().enumerate().filter(|(_, chunks)| !chunks.is_empty());
    let mut changes = Changes {
        by_chunk: BTreeMap::new(),
        chunk_counts: counts.map(|(at, chunks)| (at as u32, chunks.len() as u32)).collect(),
        duplicates: 0,
    };
    for (dropped, stretches) in done {
        changes.duplicates += dropped;
        changes.by_chunk.extend(stretches);
    }
    Ok(changes)
}

/// Writes changes, which come in the order of the chunks, to a temporary file.
pub(crate) struct Sorting<'a> {
    options: &'a BuildOptions,
    first_deletion: u32,
    encoder: Encoder,
    file: Arc<File>,
    /// The bytes in the file.
    written: u64,
    buffer: Vec<u8>,
    /// The present chunk, and where its changes begin in the file.
    chunk: Option<((u32, u32), u64)>,
    done: Vec<ChunkChanges>,
}

impl<'a> Sorting<'a> {
    /// Rows from the file `first_deletion` on delete their keys.
    pub(crate) fn new(options: &'a BuildOptions, base: &Base, first_deletion: u32) -> Result<Self, BuildError> {
        let encoder = Encoder::new(options.compression, base.dictionary.as_deref());
        Ok(Self {
            options,
            first_deletion,
            encoder: encoder.map_err(|error| chunk_error(options, error))?,
            file: Arc::new(temporary_file(&options.temporary)?),
            written: 0,
            buffer: Vec::new(),
            chunk: None,
            done: Vec::new(),
        })
    }

    /// Adds a change in a partition with this number of chunks.
    pub(crate) fn add(&mut self, record: &Record<'_>, count: u32) -> Result<(), BuildError> {
        let chunk = (record.partition, chunk_of_hash(record.hash, count));
        if self.chunk.is_none_or(|(present, _)| present != chunk) {
            self.end_chunk()?;
            self.chunk = Some((chunk, self.written));
        }
        let value = match record.row.file() >= self.first_deletion {
            true => None,
            false => Some(record.value),
        };
        let dated = value.map(|value| match self.options.times {
            // The sink of rows has refused values that are too short.
            Some(times) => times
                .divide(value)
                .map_or((None, value), |(time, value)| (Some(time), value)),
            None => (None, value),
        });
        let value = dated.map(|(time_ms, value)| Ok(self.encoder.encode(value)?.at(time_ms)));
        let value = value.transpose().map_err(|error| chunk_error(self.options, error))?;
        write_change(&mut self.buffer, record.key, value);
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(|error| BuildError::temporary(&self.options.temporary, error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }

    /// The changes of each chunk so far.
    pub(crate) fn take_done(&mut self) -> Result<Vec<ChunkChanges>, BuildError> {
        self.end_chunk()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn end_chunk(&mut self) -> Result<(), BuildError> {
        self.flush()?;
        if let Some((chunk, start)) = self.chunk.take() {
            let file = Arc::clone(&self.file);
            let range = start..self.written;
            self.done.push((chunk, Stretch { file, range }));
        }
        Ok(())
    }
}
