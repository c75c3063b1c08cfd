//! Writes the version: partitions with changes from their chunks in the base and the changes, others as they are.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fondaco_format::{
    ChunkCounts, ChunkEntry, ChunkPlan, EncodedValue, FileEntry, FormatError, Merged, PATCH_KIND, PatchEntry, merge,
    unnamed_chunk_file, write_patch,
};
use fondaco_model::PartitionId;
use fondaco_storage::FileWriter;

use super::base::Base;
use super::changes::{Changes, Stretch};
use super::each;
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::output::{FILES_SYNCED_ONE_BY_ONE_MAX, begin_chunk, chunk_error, chunks_of, end_chunk};
use crate::progress::{Phase, Progress};

/// A patch is published if its changes, before compression, are at most this part of the chunk, in percent.
const PATCH_PERCENT_MAX: u64 = 50;

/// A chunk of a partition with changes.
struct Task<'a> {
    plan: ChunkPlan,
    base: Option<&'a ChunkEntry>,
    changes: Option<Stretch>,
}

impl Task<'_> {
    fn changes(&self) -> Box<dyn Read> {
        match &self.changes {
            Some(changes) => Box::new(changes.clone()),
            None => Box::new(io::empty()),
        }
    }
}

/// A step of writing the version, in the order of the chunks.
enum Step<'a> {
    Copy(&'a ChunkEntry),
    Rewrite(Task<'a>),
}

/// The chunks to write, and what they have in all.
pub(crate) struct Rewriting<'a> {
    options: &'a BuildOptions,
    base: &'a Base,
    steps: Vec<Step<'a>>,
    pub(crate) records: u64,
    pub(crate) partitions: u32,
    pub(crate) deleted: u64,
    pub(crate) absent: u64,
}

/// The chunks that were written.
#[derive(Default)]
pub(crate) struct Rewritten {
    pub(crate) chunks: Vec<ChunkEntry>,
    pub(crate) patches: Vec<PatchEntry>,
    pub(crate) changed: u64,
}

impl<'a> Rewriting<'a> {
    /// Counts the records that each of these partitions, which are in order, will have.
    pub(crate) fn plan(
        options: &'a BuildOptions,
        base: &'a Base,
        of_partitions: &[PartitionId],
        mut changes: Changes,
        progress: &Progress,
    ) -> Result<Self, BuildError> {
        let mut rewriting = Self {
            options,
            base,
            steps: Vec::new(),
            records: 0,
            partitions: 0,
            deleted: 0,
            absent: 0,
        };
        let mut partitions = Vec::new();
        for (&partition, &count) in &changes.chunk_counts {
            let plans = chunks_of(partition, count.into());
            let tasks = plans.into_iter().zip(0..).map(|(plan, chunk)| Task {
                plan,
                base: base.chunks_of(partition).get(chunk as usize),
                changes: changes.by_chunk.remove(&(partition, chunk)),
            });
            partitions.push((partition, tasks.collect::<Vec<_>>()));
        }
        let tasks: Vec<&Task<'_>> = partitions.iter().flat_map(|(_, tasks)| tasks).collect();
        let counted = each(
            options.threads,
            tasks.len(),
            || Ok(()),
            |number, ()| {
                progress.check()?;
                rewriting.count(tasks[number])
            },
        )?;
        let mut counted = counted.into_iter();
        let mut partitions = partitions.into_iter().peekable();
        for &partition in of_partitions {
            let Some((_, tasks)) = partitions.next_if(|(next, _)| *next == partition.get()) else {
                let chunks = base.chunks_of(partition.get());
                rewriting.records += chunks.iter().map(|chunk| chunk.records).sum::<u64>();
                rewriting.partitions += u32::from(!chunks.is_empty());
                rewriting.steps.extend(chunks.iter().map(Step::Copy));
                continue;
            };
            let mut counts = ChunkCounts::default();
            for (merged, bytes) in counted.by_ref().take(tasks.len()) {
                counts.records += merged.records;
                counts.bytes += bytes;
                rewriting.deleted += merged.deleted;
                rewriting.absent += merged.absent;
            }
            rewriting.add(partition, counts, tasks)?;
        }
        Ok(rewriting)
    }

    /// How many chunks there will be.
    pub(super) fn chunks(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Adds the chunks of a partition with changes, unless it has no records any more.
    fn add(&mut self, partition: PartitionId, counts: ChunkCounts, tasks: Vec<Task<'a>>) -> Result<(), BuildError> {
        let bytes_max = BuildOptions::CHUNK_BYTES_TARGET_MAX;
        if counts.bytes.div_ceil(tasks.len() as u64) > bytes_max {
            let reason = format!(
                "partition {partition} would have {} bytes in {} chunks, more than {bytes_max} in each: build the \
                 version from all records",
                counts.bytes,
                tasks.len()
            );
            return Err(BuildError::base(&self.base.dir, reason));
        }
        if counts.records == 0 {
            return Ok(());
        }
        self.records += counts.records;
        self.partitions += 1;
        self.steps.extend(tasks.into_iter().map(|task| match task {
            // Nothing changes in this chunk.
            Task {
                base: Some(chunk),
                changes: None,
                ..
            } => Step::Copy(chunk),
            task => Step::Rewrite(task),
        }));
        Ok(())
    }

    /// Counts the records that a chunk will have, and the bytes of its keys and values.
    fn count(&self, task: &Task<'_>) -> Result<(Merged, u64), BuildError> {
        let mut bytes = 0;
        let merged = self.merge(task, |_, key, value| {
            bytes += key.len() as u64 + value.value_bytes(self.options.compression);
            Ok(())
        })?;
        Ok((merged, bytes))
    }

    /// Hands over the records that a chunk will have.
    fn merge(
        &self,
        task: &Task<'_>,
        each: impl FnMut(u64, &[u8], EncodedValue<'_>) -> Result<(), FormatError>,
    ) -> Result<Merged, BuildError> {
        let mut changes = task.changes();
        let name = &*self.options.temporary;
        let merged = match task.base {
            None => merge(&task.plan, None, (name, &mut *changes), each),
            Some(chunk) => {
                let path = PathBuf::from(format!("{}/{}", self.base.dir, chunk.data.name));
                self.base.read(&chunk.data, |reader| {
                    Ok(merge(&task.plan, Some((&path, reader)), (name, &mut *changes), each))
                })?
            }
        };
        merged.map_err(|error| match error {
            FormatError::Corrupt { .. } | FormatError::Io { .. } => BuildError::base(&self.base.dir, error),
            error => chunk_error(self.options, error),
        })
    }

    /// Writes the files of all chunks, durably. Until they are complete, their names begin with the prefix.
    pub(crate) fn run(&self, prefix: &str, progress: &Progress) -> Result<Rewritten, BuildError> {
        progress.enter_sorting(Phase::Writing, self.records);
        let sync_each = self.steps.len() * 2 <= FILES_SYNCED_ONE_BY_ONE_MAX;
        let done = each(
            self.options.threads,
            self.steps.len(),
            || Ok(()),
            |number, ()| {
                progress.check()?;
                let (entry, patch) = match &self.steps[number] {
                    Step::Copy(chunk) => {
                        chunk.files().try_for_each(|file| self.copy(file, prefix, sync_each))?;
                        ((*chunk).clone(), None)
                    }
                    Step::Rewrite(task) => self.rewrite(task, prefix, sync_each)?,
                };
                progress.records_written.fetch_add(entry.records, Ordering::Relaxed);
                Ok((entry, patch))
            },
        )?;
        if !sync_each {
            self.options.output.sync_all()?;
        }
        let mut rewritten = Rewritten::default();
        for ((entry, patch), step) in done.into_iter().zip(&self.steps) {
            if let Step::Rewrite(task) = step {
                rewritten.changed += u64::from(task.base.is_none_or(|base| base.data != entry.data));
            }
            rewritten.chunks.push(entry);
            rewritten.patches.extend(patch);
        }
        Ok(rewritten)
    }

    fn copy(&self, entry: &FileEntry, prefix: &str, sync: bool) -> Result<(), BuildError> {
        let mut file = self.options.output.create_file(&format!("{prefix}{}", entry.name))?;
        // Its own errors name the disk; those of writing come as the file is finished.
        let written = self.base.read(entry, |reader| Ok(io::copy(reader, &mut file)))?;
        written.map_err(|error| chunk_error(self.options, FormatError::Write(error)))?;
        if !prefix.is_empty() {
            file.rename(&entry.name)?;
        }
        finish(file, sync)
    }

    /// Writes a chunk, and the patch that makes it from that of the base.
    fn rewrite(
        &self,
        task: &Task<'_>,
        prefix: &str,
        sync: bool,
    ) -> Result<(ChunkEntry, Option<PatchEntry>), BuildError> {
        let (options, plan) = (self.options, &task.plan);
        let mut writer = begin_chunk(options, prefix, plan)?;
        self.merge(task, |hash, key, value| writer.append(hash, key, value))?;
        let counts = writer.counts();
        let (entry, files) = end_chunk(options, prefix, plan, writer)?;
        files.into_iter().try_for_each(|file| finish(file, sync))?;
        let base = task
            .base
            .filter(|base| base.data != entry.data || base.index != entry.index);
        let changes_bytes = task.changes.as_ref().map_or(0, Stretch::length);
        let Some(base) = base.filter(|_| changes_bytes * 100 <= entry.data.bytes * PATCH_PERCENT_MAX) else {
            return Ok((entry, None));
        };
        let file = options.output.create_file(&format!(
            "{prefix}{}",
            unnamed_chunk_file(plan.partition, plan.chunk, PATCH_KIND)
        ))?;
        let written = write_patch(base.data.checksum, plan, counts, task.changes(), file);
        let (patch, mut file) = written.map_err(|error| chunk_error(options, error))?;
        file.rename(&patch.name)?;
        finish(file, sync)?;
        let patch = PatchEntry {
            partition: plan.partition,
            chunk: plan.chunk,
            base: base.data.clone(),
            patch,
        };
        Ok((entry, Some(patch)))
    }
}

/// Closes a file: durably, or for the sync of all files at the end.
fn finish(file: FileWriter, sync: bool) -> Result<(), BuildError> {
    match sync {
        true => file.finish(),
        false => file.finish_later(),
    }
    .map_err(BuildError::from)
}
