//! Reads all input files, in any number of threads.
//!
//! A thread opens the next file and splits it into *pieces* (row groups, blocks, lines). Any free thread turns a
//! piece into rows. So one large file keeps all cores as busy as many small ones. A row is identified by its file and
//! its number, whichever thread reads it, and only these decide about order.

mod array;
mod arrow;
mod arrow_stream;
mod as_text;
mod avro;
mod avro_schema;
mod columns;
mod constants;
mod csv;
mod declared;
mod decoded;
mod discover;
mod drift;
mod json;
mod jsonl;
mod key;
mod memory_budget;
mod nested;
mod parquet;
mod queue;
mod rows;
mod table_format;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;

use arrow_array::RecordBatchReader;
use fondaco_format::{Column, Compression, Schema, ValueEncoding};
use parking_lot::Mutex;

pub(crate) use arrow::Rows;
pub(crate) use arrow_stream::BatchStream;
pub(crate) use discover::{InputFiles, discover};
pub(crate) use rows::{BadRows, RowKind, RowSink, Stream, Target};

use crate::error::BuildError;
use crate::memory::Memory;
use crate::options::{BuildOptions, InputFormat, ValueSelection};
use crate::progress::Progress;
use crate::samples::Samples;
use crate::sort::{PartitionTally, Sorter};
use constants::Constant;
use drift::Drift;
use memory_budget::MemoryBudget;
use queue::{Job, Queue};

/// How the columns of all files become keys and values.
pub(crate) struct Conversion<'a> {
    options: &'a BuildOptions,
    rows: RowKind,
    paths: &'a [PathBuf],
    /// The columns of the files so far.
    drift: Drift,
    /// The column that says which rows delete their keys.
    delete: Option<&'a str>,
}

impl<'a> Conversion<'a> {
    pub(crate) fn new(options: &'a BuildOptions, rows: RowKind, paths: &'a [PathBuf], delete: Option<&'a str>) -> Self {
        Self {
            options,
            rows,
            paths,
            drift: Drift::new(options, rows),
            delete,
        }
    }
}

/// Batches of rows in memory.
pub type Batches = Box<dyn RecordBatchReader + Send>;

/// The rows of a build: those of files, or the batches that stand for the first file.
pub(crate) struct Source<'a> {
    pub(crate) files: &'a InputFiles,
    pub(crate) batches: Option<Batches>,
}

impl<'a> From<&'a InputFiles> for Source<'a> {
    fn from(files: &'a InputFiles) -> Self {
        Self { files, batches: None }
    }
}

/// The shared state of all readers.
struct Reading<'a> {
    options: &'a BuildOptions,
    rows: RowKind,
    files: &'a InputFiles,
    /// The rows of the first file, if they are in memory.
    batches: Mutex<Option<Batches>>,
    conversion: Conversion<'a>,
    queue: Queue<Piece>,
    room: MemoryBudget<'a>,
    /// The columns according to the earliest row: its file, its number, and the schema.
    schema: Mutex<Option<(u32, u64, Schema)>>,
    /// Columns that a JSON object may lack, and whether any object had them.
    optional: jsonl::OptionalColumns,
}

/// A part of a file.
enum Piece {
    RowGroup(parquet::RowGroup),
    Block(avro::Block),
    Lines(jsonl::Lines),
    Batch(arrow::Batch),
}

/// The result of reading.
pub(crate) struct Input {
    /// The records that each thread appended to each partition.
    pub(crate) tallies: Vec<Vec<PartitionTally>>,
    pub(crate) samples: Vec<Vec<u8>>,
    pub(crate) schema: Schema,
    /// The schemas of values that were encoded already.
    pub(crate) schema_ids: BTreeSet<u16>,
}

/// Reads all rows, of files or of batches in memory, into the sort. Their kind decides what is appended for each.
pub(crate) fn read(
    options: &BuildOptions,
    rows: RowKind,
    source: Source<'_>,
    sorter: &Sorter,
    memory: Memory,
    bad_rows: &BadRows,
    progress: &Progress,
) -> Result<Input, BuildError> {
    let Source { files, batches } = source;
    let reading = Reading {
        options,
        rows,
        files,
        batches: Mutex::new(batches),
        conversion: Conversion::new(options, rows, &files.paths, None),
        queue: Queue::new(files.paths.len(), options.threads),
        room: MemoryBudget::new(sorter, memory.pages_bytes, memory.sort_bytes),
        schema: Mutex::new(None),
        optional: jsonl::OptionalColumns::new(&options.value),
    };
    if matches!(rows, RowKind::Record | RowKind::Edge) {
        check_csv_columns(options, files)?;
    }
    let sample_values = options.compression == Compression::Zstd && !options.dry_run;
    let read_some = || {
        let samples = Samples::new(sample_values);
        let mut sink = RowSink::new(
            Target::Sort(sorter.appender()),
            samples,
            bad_rows,
            progress,
            (options, rows),
            files.first,
        );
        let result = reading.work(&mut sink);
        if result.is_err() {
            reading.queue.stop();
        }
        result.and_then(|()| sink.close())
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(read_some)).collect();
        threads
            .into_iter()
            .map(|thread| or_panic(thread.join()))
            .collect::<Vec<_>>()
    });
    let read = results.into_iter().collect::<Result<Vec<_>, BuildError>>()?;
    bad_rows.check()?;
    let schema = reading.schema.into_inner();
    let schema = match schema {
        Some((_, _, schema)) => {
            reading.optional.check(&files.paths)?;
            schema
        }
        None => schema_of(options, |_| String::from("unknown")),
    };
    let (mut tallies, mut samples, mut schema_ids) = (Vec::new(), Vec::new(), BTreeSet::new());
    for closed in read {
        tallies.push(closed.tallies);
        samples.push(closed.samples);
        schema_ids.extend(closed.schema_ids);
    }
    Ok(Input {
        tallies,
        samples: Samples::merge(samples),
        schema,
        schema_ids,
    })
}

/// The result of a thread; a panic of the thread continues in this one.
pub(crate) fn or_panic<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Reading<'_> {
    fn work(&self, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        while let Some(job) = self.queue.next() {
            let done = match job {
                Job::Piece(piece) => self.read_piece(piece, sink),
                Job::File(file, _opening) => match self.files.formats[file as usize] {
                    _ if sink.check_is_wanted(file, 0).is_err() => continue,
                    InputFormat::Parquet => parquet::open(self, file, sink),
                    InputFormat::Avro => avro::open(self, file, sink),
                    InputFormat::Jsonl => jsonl::open(self, file, sink),
                    InputFormat::Csv => csv::read(self, file, sink),
                    InputFormat::Arrow => arrow::read(self, file, sink),
                },
            };
            match done {
                // The rest of this piece or file does not matter, but earlier rows may be bad, too, and come first then.
                Err(BuildError::BadRows { .. }) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Queues a piece for another thread, or reads it here if the queue is full.
    fn hand_over(&self, piece: Piece, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        sink.progress().check()?;
        let (file, row) = match &piece {
            Piece::RowGroup(group) => group.first_row(),
            Piece::Block(block) => block.first_row(),
            Piece::Lines(lines) => (lines.file, lines.row),
            Piece::Batch(batch) => batch.first_row(),
        };
        sink.check_is_wanted(file, row)?;
        match self.queue.offer(piece) {
            Some(piece) => self.read_piece(piece, sink),
            None => Ok(()),
        }
    }

    fn read_piece(&self, piece: Piece, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        match piece {
            Piece::RowGroup(group) => group.read(self, sink),
            Piece::Block(block) => block.read(self, sink),
            Piece::Lines(lines) => lines.read(self, sink),
            Piece::Batch(batch) => batch.read(self.path(batch.first_row().0), sink),
        }
    }

    /// The columns that all rows of a file have in common; `has` says whether the file itself has a column.
    fn constants(&self, file: u32, has: impl Fn(&str) -> bool) -> Vec<Constant> {
        let partitions = &self.files.partitions[file as usize];
        let mut constants: Vec<Constant> = partitions.iter().filter(|column| !has(&column.name)).cloned().collect();
        if let (ValueSelection::Columns(names), true) = (&self.options.value, self.options.reading.allow_drift) {
            for name in names {
                if !has(name) && constants.iter().all(|column| column.name != *name) {
                    constants.push(Constant::missing(name));
                }
            }
        }
        constants
    }

    fn path(&self, file: u32) -> &Path {
        &self.files.paths[file as usize]
    }

    /// Records the columns of a file, according to its row `row`.
    fn note_schema(&self, file: u32, row: u64, schema: impl FnOnce() -> Schema) {
        let mut noted = self.schema.lock();
        if noted
            .as_ref()
            .is_none_or(|(noted_file, noted_row, _)| (file, row) < (*noted_file, *noted_row))
        {
            *noted = Some((file, row, schema()));
        }
    }
}

/// The columns that the options name.
fn named_columns(options: &BuildOptions) -> impl Iterator<Item = &str> {
    let values = match &options.value {
        ValueSelection::Column(name) => std::slice::from_ref(name),
        ValueSelection::Columns(names) => names,
        ValueSelection::AllOthers => &[],
    };
    options.key.iter().chain(values).map(String::as_str)
}

/// Refuses names of CSV columns that no file takes.
fn check_csv_columns(options: &BuildOptions, files: &InputFiles) -> Result<(), BuildError> {
    match &options.reading.csv_columns {
        Some(names) if !files.formats.contains(&InputFormat::Csv) => Err(BuildError::InvalidOption {
            option: "columns",
            value: format!("{names:?}"),
            reason: "only CSV has no header: no input is CSV",
        }),
        _ => Ok(()),
    }
}

/// The schema of the chosen columns, if all columns are known by name.
pub(crate) fn schema_of(options: &BuildOptions, type_of: impl Fn(&str) -> String) -> Schema {
    let column = |name: &String| Column {
        name: name.clone(),
        r#type: type_of(name),
    };
    let (values, encoding) = match &options.value {
        ValueSelection::Column(name) => (vec![column(name)], ValueEncoding::Raw),
        ValueSelection::Columns(names) => (names.iter().map(column).collect(), ValueEncoding::Json),
        ValueSelection::AllOthers => (vec![], ValueEncoding::Json),
    };
    Schema {
        key: column(&options.key.join(",")),
        values,
        encoding,
    }
}

/// The columns of a table that make up key and value, by their indices.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chosen {
    /// One or several.
    key: Vec<usize>,
    value: ChosenValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChosenValue {
    /// One column, unchanged.
    Raw(usize),
    /// An object of these columns.
    Object(Vec<usize>),
}

impl Chosen {
    /// Finds the columns that the options name; `place` returns the index of a column.
    fn find(
        conversion: &Conversion<'_>,
        file: &Path,
        columns: &[&str],
        mut place: impl FnMut(&str) -> Option<usize>,
    ) -> Result<Self, BuildError> {
        let options = conversion.options;
        let mut sorted = columns.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(BuildError::SameName {
                file: file.to_owned(),
                column: pair[0].to_owned(),
            });
        }
        let mut find = |name: &str| {
            place(name).ok_or_else(|| {
                BuildError::missing_column(file, name, columns.iter().map(|&column| column.to_owned()).collect())
            })
        };
        let key = options.key.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
        let value = match &options.value {
            ValueSelection::Column(name) => ChosenValue::Raw(find(name)?),
            ValueSelection::Columns(names) => {
                ChosenValue::Object(names.iter().map(|name| find(name)).collect::<Result<_, _>>()?)
            }
            ValueSelection::AllOthers => {
                let excluded = &options.reading.exclude;
                let unknown = excluded.iter().find(|name| !columns.contains(&name.as_str()));
                if let (Some(name), true) = (unknown, conversion.drift.is_refused()) {
                    return Err(BuildError::missing_column(
                        file,
                        name,
                        columns.iter().map(|&column| column.to_owned()).collect(),
                    ));
                }
                let others = columns
                    .iter()
                    .filter(|&&column| excluded.iter().all(|other| other != column))
                    .filter(|&&column| !options.key.iter().any(|key| key == column) || options.declared.keeps(column))
                    .filter(|&&column| conversion.delete != Some(column));
                ChosenValue::Object(others.map(|name| find(name)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { key, value })
    }

    /// All of them, of key and value.
    fn places(&self) -> impl Iterator<Item = usize> {
        let values = match &self.value {
            ChosenValue::Raw(place) => std::slice::from_ref(place),
            ChosenValue::Object(places) => places,
        };
        self.key.iter().chain(values).copied()
    }

    /// Their entry in the manifest.
    fn schema(&self, column: impl Fn(usize) -> Column) -> Schema {
        let (values, encoding) = match &self.value {
            ChosenValue::Raw(place) => (vec![column(*place)], ValueEncoding::Raw),
            ChosenValue::Object(places) => (places.iter().map(|&place| column(place)).collect(), ValueEncoding::Json),
        };
        let key: Vec<Column> = self.key.iter().map(|&place| column(place)).collect();
        let joined = |part: fn(&Column) -> &str| key.iter().map(part).collect::<Vec<_>>().join(",");
        Schema {
            key: Column {
                name: joined(|column| &column.name),
                r#type: joined(|column| &column.r#type),
            },
            values,
            encoding,
        }
    }
}
