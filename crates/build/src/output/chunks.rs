//! Writes the chunks of one unit in sequence, from records in their order.

use fondaco_format::{
    ChunkPlan, ChunkWriter, DATA_KIND, Encoder, FileEntry, INDEX_KIND, chunk_of_hash, unnamed_chunk_file,
};
use fondaco_storage::FileWriter;

use super::{Finished, Written, chunk_error};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::sort::{Record, temporary_file};

/// If a chunk has more records, its table, of four bytes per record, is kept in a temporary file.
const RECORDS_WITHOUT_FILE_MAX: u64 = 64 << 10;

/// The chunks of a unit.
pub(super) struct ChunkSequence<'a> {
    options: &'a BuildOptions,
    encoder: Encoder,
    finished: &'a Finished,
    /// The chunks that are not started yet.
    plans: std::slice::Iter<'a, ChunkPlan>,
    current: Option<(ChunkPlan, Option<ChunkWriter<FileWriter>>)>,
    written: Written,
}

impl<'a> ChunkSequence<'a> {
    pub(super) fn new(
        options: &'a BuildOptions,
        plans: &'a [ChunkPlan],
        dictionary: Option<&[u8]>,
        finished: &'a Finished,
    ) -> Result<Self, BuildError> {
        let encoder = Encoder::new(options.compression, dictionary).map_err(|e| chunk_error(options, e))?;
        Ok(Self {
            options,
            encoder,
            finished,
            plans: plans.iter(),
            current: None,
            written: Written::default(),
        })
    }

    pub(super) fn append(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
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
        let output = &self.options.output;
        if let Some((plan, Some(writer))) = self.current.take() {
            let index = output.create_file(&unnamed_chunk_file(plan.partition, plan.chunk, INDEX_KIND))?;
            let (entry, data, index) = writer.finish(index).map_err(|e| chunk_error(self.options, e))?;
            self.end_file(data, &entry.data)?;
            self.end_file(index, &entry.index)?;
            self.written.entries.push(entry);
        }
        let Some(plan) = self.plans.next() else {
            return Ok(false);
        };
        let writer = if self.options.dry_run {
            None
        } else {
            let data = output.create_file(&unnamed_chunk_file(plan.partition, plan.chunk, DATA_KIND))?;
            let writer = ChunkWriter::new(*plan, data).map_err(|e| chunk_error(self.options, e))?;
            Some(match plan.records_expected > RECORDS_WITHOUT_FILE_MAX {
                true => writer.with_table_in(temporary_file(&self.options.temporary)?),
                false => writer,
            })
        };
        self.written.chunks += 1;
        self.current = Some((*plan, writer));
        Ok(true)
    }

    /// Gives a file the name derived from its content, and queues it for syncing.
    fn end_file(&self, mut file: FileWriter, entry: &FileEntry) -> Result<(), BuildError> {
        file.rename(&entry.name)?;
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
    pub(super) fn finish(mut self) -> Result<Written, BuildError> {
        while self.next_chunk()? {}
        Ok(self.written)
    }
}

fn holds(plan: &ChunkPlan, record: &Record<'_>) -> bool {
    plan.partition.get() == record.partition && plan.chunk == chunk_of_hash(record.hash, plan.chunk_count)
}
