//! Writes the chunks of some partitions, from encoded rows in the order of their positions.

use std::collections::BTreeMap;
use std::io::Read;
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::DataType;
use crossbeam_channel::bounded;
use fondaco_format::{ChunkEntry, MANIFEST_FILE, PatchEntry, key_hash, key_position};
use fondaco_model::{KEY_BYTES_MAX, PartitionId, SlotPrefix};
use fondaco_storage::Location;
use serde::{Deserialize, Serialize};

use super::error::TaskError;
use super::newest::{Newest, Row};
use super::partition::Waiting;
use super::spec::Spec;
use super::{column, prefix_of};
use crate::error::BuildError;
use crate::increment::{Base, Changes, Rewriting, Rewritten, Sorting};
use crate::input::{BatchStream, or_panic};
use crate::options::BuildOptions;
use crate::output::{self, ChunkSequence, FILES_SYNCED_ONE_BY_ONE_MAX, FILES_WAITING_MAX, Finished, chunks_of};
use crate::progress::Progress;
use crate::report::excerpt;
use crate::sort::{PartitionTally, Record, RowId};

/// The longest id of an attempt, in bytes: file names have a limit, too.
const ATTEMPT_BYTES_MAX: usize = 100;

/// How many partitions an error names.
const PARTITIONS_NAMED_MAX: usize = 8;

/// The result of a task, for [`commit`](super::commit()).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// The attempt.
    pub attempt: String,
    /// The partitions of the task, in order.
    pub partitions: Vec<u32>,
    /// Their chunks.
    pub chunks: Vec<ChunkEntry>,
    /// The patches that make chunks of the base to these.
    pub patches: Vec<PatchEntry>,
    /// The number of rows.
    pub rows: u64,
    /// The number of records of these partitions.
    pub records: u64,
    /// The bytes of the keys and values of the rows that were kept.
    pub bytes: u64,
    /// The number of rows that were dropped because another one of their key was kept.
    pub duplicates: u64,
    /// The number of keys of the base that were deleted.
    pub deleted: u64,
    /// The number of keys to delete that were not in the base.
    pub absent: u64,
    /// The number of chunks with other records than in the base.
    pub changed_chunks: u64,
}

/// Writes the chunks of these partitions. The input is a stream of Arrow IPC of encoded rows. After an error, and after a
/// cancellation through `progress`, nothing is left under the temporary names of this attempt.
///
/// # Errors
/// The rows are not those of these partitions or out of order, the stream was cut off, or the output cannot be written.
pub fn write(
    spec: &Spec,
    partitions: &[u32],
    attempt: &str,
    input: impl Read,
    progress: &Progress,
) -> Result<Written, BuildError> {
    let (options, base) = spec.with_base(spec.options()?)?;
    let partitions = &checked_partitions(&options, partitions)?;
    check_attempt(attempt)?;
    if options.output.exists(MANIFEST_FILE)? {
        return Err(BuildError::OutputNotEmpty {
            output: options.output.to_string(),
            unfinished: false,
        });
    }
    options.output.create_directory()?;
    let prefix = &*prefix_of(attempt);
    let sync_each = partitions.len() * 2 <= FILES_SYNCED_ONE_BY_ONE_MAX;
    let (finished, to_sync) = bounded(FILES_WAITING_MAX);
    let (written, synced) = thread::scope(|scope| {
        let syncing = scope.spawn(|| output::sync(&to_sync, sync_each));
        let written = Writing::begin(spec, &options, base.as_ref(), partitions, prefix, &finished)
            .and_then(|writing| writing.run(input, progress));
        // Ends the syncing thread.
        let _ = finished.send(None);
        (written, or_panic(syncing.join()))
    });
    let written = written.and_then(|written| {
        synced?;
        if !sync_each {
            options.output.sync_all()?;
        }
        Ok(written)
    });
    let written = written.inspect_err(|_| delete_unfinished(&options.output, prefix))?;
    Ok(Written {
        attempt: attempt.to_owned(),
        partitions: partitions.iter().map(|partition| partition.get()).collect(),
        ..written
    })
}

fn checked_partitions(options: &BuildOptions, partitions: &[u32]) -> Result<Vec<PartitionId>, BuildError> {
    let count = options.partitions;
    if let Some(partition) = partitions.iter().find(|&&partition| partition >= count.get()) {
        return Err(TaskError::spec(format!("there is no partition {partition}: there are {count}")).into());
    }
    let mut sorted = partitions.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(TaskError::spec(format!("partition {} is named twice", pair[0])).into());
    }
    Ok(sorted.into_iter().map(PartitionId::new).collect())
}

fn check_attempt(attempt: &str) -> Result<(), BuildError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match (1..=ATTEMPT_BYTES_MAX).contains(&attempt.len()) && attempt.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(TaskError::spec(format!(
            "attempt {attempt:?} is no id: use 1 to {ATTEMPT_BYTES_MAX} letters, digits, dots, dashes and underscores"
        ))
        .into()),
    }
}

/// Deletes the files that an attempt did not finish.
fn delete_unfinished(output: &Location, prefix: &str) {
    // Without files there is no directory in some storages.
    let files = output.list().unwrap_or_default();
    for file in files.iter().filter(|file| file.name.contains(prefix)) {
        if let Err(error) = output.delete_file(&file.name) {
            tracing::warn!(file = %file.name, %error, "cannot delete an unfinished file");
        }
    }
}

/// The state of a task.
struct Writing<'a> {
    options: &'a BuildOptions,
    base: Option<&'a Base>,
    partitions: &'a [PartitionId],
    prefix: &'a str,
    finished: &'a Finished,
    slots: SlotPrefix,
    has_order: bool,
    newest: Newest,
    /// The position of the last row.
    position: i64,
    partition: Option<Partition<'a>>,
    /// The changes of the base.
    changes: Option<Sorting<'a>>,
    /// The number of chunks of each partition with changes.
    chunk_counts: BTreeMap<u32, u32>,
    rows: u64,
    written: output::Written,
}

/// The partition of the last row.
struct Partition<'a> {
    id: PartitionId,
    tally: PartitionTally,
    waiting: Waiting,
    /// Known once enough rows were seen.
    chunk_count: Option<u32>,
    chunks: Option<ChunkSequence<'a>>,
}

impl<'a> Writing<'a> {
    fn begin(
        spec: &Spec,
        options: &'a BuildOptions,
        base: Option<&'a Base>,
        partitions: &'a [PartitionId],
        prefix: &'a str,
        finished: &'a Finished,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            options,
            base,
            partitions,
            prefix,
            finished,
            slots: SlotPrefix::of(&options.store),
            has_order: spec.order_by.is_some(),
            newest: Newest::new(options.on_duplicate, spec.order_by.as_deref()),
            position: i64::MIN,
            partition: None,
            // Deletions are rows of file 1.
            changes: base.map(|base| Sorting::new(options, base, 1)).transpose()?,
            chunk_counts: BTreeMap::new(),
            rows: 0,
            written: output::Written::default(),
        })
    }

    fn run(mut self, input: impl Read, progress: &Progress) -> Result<Written, BuildError> {
        let stream = BatchStream::open(input).map_err(TaskError::stream)?;
        for batch in stream {
            progress.check()?;
            self.add_batch(&batch.map_err(TaskError::stream)?)?;
        }
        progress.check()?;
        self.end_partition()?;
        let written = Written {
            chunks: self.written.entries,
            rows: self.rows,
            records: self.written.records,
            bytes: self.written.bytes,
            duplicates: self.newest.duplicates,
            ..Written::default()
        };
        let (Some(mut changes), Some(base)) = (self.changes, self.base) else {
            return Ok(written);
        };
        let changes = Changes {
            by_chunk: changes.take_done()?.into_iter().collect(),
            chunk_counts: self.chunk_counts,
            duplicates: written.duplicates,
        };
        let rewriting = Rewriting::plan(self.options, base, self.partitions, changes, progress)?;
        let Rewritten {
            chunks,
            patches,
            changed,
        } = rewriting.run(self.prefix, progress)?;
        Ok(Written {
            chunks,
            patches,
            records: rewriting.records,
            deleted: rewriting.deleted,
            absent: rewriting.absent,
            changed_chunks: changed,
            ..written
        })
    }

    fn add_batch(&mut self, batch: &RecordBatch) -> Result<(), BuildError> {
        let keys = binary(batch, column::KEY)?;
        let values = binary(batch, column::VALUE)?;
        let orders = match self.has_order {
            true => Some(binary(batch, column::ORDER)?),
            false => None,
        };
        for row in 0..batch.num_rows() {
            let key = keys.value(row);
            let row = Row {
                hash: key_hash(key),
                key,
                value: values.is_valid(row).then(|| values.value(row)),
                order: orders.as_ref().map_or(&[], |orders| orders.value(row)),
            };
            self.add(row)?;
        }
        Ok(())
    }

    fn add(&mut self, row: Row<'_>) -> Result<(), BuildError> {
        if row.key.is_empty() || row.key.len() > KEY_BYTES_MAX {
            let reason = format!("a key has {} bytes, and must have 1 to {KEY_BYTES_MAX}", row.key.len());
            return Err(TaskError::encoded(reason).into());
        }
        let partition = self.options.partitions.partition_of(self.slots.slot(row.key));
        let position = key_position(self.options.partitions, partition, row.hash);
        let is_first = self.partition.is_none();
        if position < self.position && !is_first {
            return Err(TaskError::OutOfOrder { key: excerpt(row.key) }.into());
        }
        if position != self.position || is_first {
            self.take_newest()?;
            self.position = position;
        }
        if self.partition.as_ref().is_none_or(|present| present.id != partition) {
            self.end_partition()?;
            self.partition = Some(self.begin_partition(partition, row.key)?);
        }
        if row.value.is_none() && self.base.is_none() {
            let reason = format!(
                "key {:?} has no value, which deletes it: name the base",
                excerpt(row.key)
            );
            return Err(TaskError::encoded(reason).into());
        }
        if let Some(present) = &mut self.partition {
            let bytes = row.key.len() + row.value.map_or(0, <[u8]>::len);
            present.tally.count(row.hash, bytes as u64);
        }
        self.rows += 1;
        self.newest.add(row)
    }

    fn begin_partition(&self, id: PartitionId, key: &[u8]) -> Result<Partition<'a>, BuildError> {
        if self.partitions.binary_search(&id).is_err() {
            return Err(TaskError::OtherPartition {
                key: excerpt(key),
                partition: id.get(),
                of_task: named(self.partitions),
            }
            .into());
        }
        // Chunks of the base stay.
        let of_base = self.base.map_or(0, |base| base.chunks_of(id.get()).len());
        Ok(Partition {
            id,
            tally: PartitionTally::default(),
            waiting: Waiting::default(),
            chunk_count: (of_base > 0).then_some(of_base as u32),
            chunks: None,
        })
    }

    /// Passes on the rows of the last position.
    fn take_newest(&mut self) -> Result<(), BuildError> {
        let mut newest = std::mem::replace(&mut self.newest, Newest::new(self.options.on_duplicate, None));
        let taken = newest.take(|row| self.accept(row));
        self.newest = newest;
        taken
    }

    /// Takes the only row of a key.
    fn accept(&mut self, row: Row<'_>) -> Result<(), BuildError> {
        let Some(mut partition) = self.partition.take() else {
            return Ok(());
        };
        let record = Record {
            row: RowId::new(u32::from(row.value.is_none()), 1),
            hash: row.hash,
            partition: partition.id.get(),
            key: row.key,
            value: row.value.unwrap_or_default(),
        };
        if partition.chunk_count.is_none() {
            let target = self.options.chunk_bytes_target;
            let decided = partition.tally.chunk_count_at(row.hash, target);
            if let Some(count) = decided {
                self.decide(&mut partition, count)?;
            }
        }
        match partition.chunk_count {
            Some(_) => self.write(&mut partition, &record)?,
            None => {
                let memory_bytes = self.options.memory_bytes / 4;
                partition.waiting.add(&record, memory_bytes, &self.options.temporary)?;
            }
        }
        self.partition = Some(partition);
        Ok(())
    }

    /// Writes the records that were waiting for the number of chunks.
    fn decide(&mut self, partition: &mut Partition<'a>, chunk_count: u64) -> Result<(), BuildError> {
        partition.chunk_count = Some(chunk_count as u32);
        let mut waiting = std::mem::take(&mut partition.waiting);
        waiting.take(&self.options.temporary, |record| self.write(partition, record))
    }

    fn write(&mut self, partition: &mut Partition<'a>, record: &Record<'_>) -> Result<(), BuildError> {
        let count = partition.chunk_count.unwrap_or(1);
        if let Some(changes) = &mut self.changes {
            self.written.bytes += (record.key.len() + record.value.len()) as u64;
            self.chunk_counts.insert(record.partition, count);
            return changes.add(record, count);
        }
        let chunks = match &mut partition.chunks {
            Some(chunks) => chunks,
            None => {
                let plans = chunks_of(record.partition, count.into());
                let dictionary = self.options.dictionary.as_deref();
                let chunks = ChunkSequence::new(self.options, self.prefix, plans, dictionary, self.finished)?;
                partition.chunks.insert(chunks)
            }
        };
        chunks.append(record)
    }

    fn end_partition(&mut self) -> Result<(), BuildError> {
        self.take_newest()?;
        let Some(mut partition) = self.partition.take() else {
            return Ok(());
        };
        if partition.chunk_count.is_none() {
            let count = partition.tally.chunk_count(self.options.chunk_bytes_target);
            self.decide(&mut partition, count)?;
        }
        if let Some(chunks) = partition.chunks {
            let written = chunks.finish()?;
            self.written = std::mem::take(&mut self.written).with(written);
        }
        Ok(())
    }
}

/// A column of bytes.
fn binary(batch: &RecordBatch, name: &str) -> Result<BinaryArray, BuildError> {
    let Some(column) = batch.column_by_name(name) else {
        return Err(TaskError::encoded(format!("they have no column {name:?}")).into());
    };
    match column.data_type() {
        DataType::Binary => Ok(column.as_binary().clone()),
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            let cast = arrow_cast::cast(column, &DataType::Binary).map_err(TaskError::encoded)?;
            Ok(cast.as_binary().clone())
        }
        other => Err(TaskError::encoded(format!("column {name:?} is of type {other}, and must be of bytes")).into()),
    }
}

/// Some partitions by their numbers.
fn named(partitions: &[PartitionId]) -> String {
    let names = partitions.iter().take(PARTITIONS_NAMED_MAX);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    match partitions.len().saturating_sub(PARTITIONS_NAMED_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
