//! Writes the chunks of one unit in sequence, from records in their order.

use fondaco_format::{
    ChunkEntry, ChunkPlan, ChunkWriter, DATA_KIND, Encoder, INDEX_KIND, chunk_of_hash, unnamed_chunk_file,
};
use fondaco_storage::FileWriter;

use super::{Finished, Written, chunk_error};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::sort::Record;

/// The chunks of a unit.
pub(crate) struct ChunkSequence<'a> {
    options: &'a BuildOptions,
    /// The beginning of the names of files that are being written.
    prefix: &'a str,
    encoder: Encoder,
    finished: &'a Finished,
    /// The chunks that are not started yet.
    plans: std::vec::IntoIter<ChunkPlan>,
    current: Option<(ChunkPlan, Option<ChunkWriter<FileWriter>>)>,
    written: Written,
}

impl<'a> ChunkSequence<'a> {
    pub(crate) fn new(
        options: &'a BuildOptions,
        prefix: &'a str,
        plans: Vec<ChunkPlan>,
        dictionary: Option<&[u8]>,
        finished: &'a Finished,
    ) -> Result<Self, BuildError> {
        let encoder = Encoder::new(options.compression, dictionary).map_err(|e| chunk_error(options, e))?;
        Ok(Self {
            options,
            prefix,
            encoder,
            finished,
            plans: plans.into_iter(),
            current: None,
            written: Written::default(),
        })
    }

    pub(crate) fn append(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        loop {
            match &mut self.current {
                Some((plan, writer)) if holds(plan, record) => {
                    self.written.records += 1;
                    let Some(writer) = writer else {
                        self.written.bytes += record.key.len() as u64 + record.value_bytes(true);
                        return Ok(());
                    };
                    self.written.bytes += (record.key.len() + record.value.len()) as u64;
                    return self
                        .encoder
                        .encode(record.value)
                        .and_then(|value| writer.append(record.hash, record.key, value))
                        .map_err(|e| chunk_error(self.options, e));
                }
                _ => assert!(self.next_chunk()?, "every record belongs to a chunk of its unit"),
            }
        }
    }

    /// Ends the current chunk, and starts the next one. Returns whether there is one.
    fn next_chunk(&mut self) -> Result<bool, BuildError> {
        if let Some((plan, Some(writer))) = self.current.take() {
            let (entry, files) = end_chunk(self.options, self.prefix, &plan, writer)?;
            files.into_iter().try_for_each(|file| self.end_file(file))?;
            self.written.entries.push(entry);
        }
        let Some(plan) = self.plans.next() else {
            return Ok(false);
        };
        let writer = if self.options.dry_run {
            None
        } else {
            Some(begin_chunk(self.options, self.prefix, &plan)?)
        };
        self.written.chunks += 1;
        self.current = Some((plan, writer));
        Ok(true)
    }

    /// Queues a file for syncing.
    fn end_file(&self, file: FileWriter) -> Result<(), BuildError> {
        if self.options.output.local_path().is_none() {
            // Buffered data is in memory and must not pile up.
            file.finish()?;
        } else {
            // The syncing thread receives until it is told to end, which happens after this thread ends.
            let _ = self.finished.send(Some(file));
        }
        Ok(())
    }

    /// Ends the last chunk, and writes the remaining chunks without records.
    pub(crate) fn finish(mut self) -> Result<Written, BuildError> {
        while self.next_chunk()? {}
        Ok(self.written)
    }
}

/// Begins to write a chunk, to a file whose name begins with the prefix.
pub(crate) fn begin_chunk(
    options: &BuildOptions,
    prefix: &str,
    plan: &ChunkPlan,
) -> Result<ChunkWriter<FileWriter>, BuildError> {
    let name = unnamed_chunk_file(plan.partition, plan.chunk, DATA_KIND);
    let data = options.output.create_file(&format!("{prefix}{name}"))?;
    let temporary = options.temporary.clone();
    let writer = ChunkWriter::new(*plan, options.compression, data);
    Ok(writer.with_places_in(move || tempfile::tempfile_in(temporary)))
}

/// Ends a chunk, and gives its files the names derived from their contents. They are not durable yet.
pub(crate) fn end_chunk(
    options: &BuildOptions,
    prefix: &str,
    plan: &ChunkPlan,
    writer: ChunkWriter<FileWriter>,
) -> Result<(ChunkEntry, [FileWriter; 2]), BuildError> {
    let name = unnamed_chunk_file(plan.partition, plan.chunk, INDEX_KIND);
    let index = options.output.create_file(&format!("{prefix}{name}"))?;
    let (entry, mut data, mut index) = writer.finish(index).map_err(|e| chunk_error(options, e))?;
    data.rename(&entry.data.name)?;
    index.rename(&entry.index.name)?;
    Ok((entry, [data, index]))
}

fn holds(plan: &ChunkPlan, record: &Record<'_>) -> bool {
    plan.partition.get() == record.partition && plan.chunk == chunk_of_hash(record.hash, plan.chunk_count)
}
