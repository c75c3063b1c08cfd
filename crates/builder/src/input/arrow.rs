//! Reads batches of Arrow: those of a file or a stream of Arrow IPC, and those that a program has in memory.
//!
//! A file of Arrow IPC is also called Feather, version 2. Batches are cut into pieces that threads share.
//!
//! Times with a zone are instants, as in Parquet: the name of the zone is not needed to write them in UTC.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_ipc::reader::FileReaderBuilder;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use fondaco_format::Schema as StoredSchema;

use super::arrow_stream::BatchStream;
use super::columns::{RecordMaker, describe};
use super::constants::{Constant, with_constants};
use super::nested::Selection;
use super::rows::RowSink;
use super::{Batches, Chosen, Conversion, Piece, Reading};
use crate::error::BuildError;

/// The rows of a piece.
const PIECE_ROWS: usize = 16 << 10;

/// The magic of a file; a stream has none.
const FILE_MAGIC: &[u8] = b"ARROW1\0\0";

/// The size of a read of a file, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// The form of the rows of a table: how its columns become keys and values.
pub(crate) struct Rows {
    file: u32,
    maker: RecordMaker,
    /// The columns as they are read.
    schema: SchemaRef,
    /// The columns of the input, for the manifest.
    pub(crate) stored: StoredSchema,
}

/// Some rows.
pub(super) struct Batch {
    rows: Arc<Rows>,
    batch: RecordBatch,
    /// The number of its first row.
    row: u64,
}

/// Reads the batches in memory, or those of a file.
pub(super) fn read(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let in_memory = reading.batches.lock().take();
    let batches = match in_memory {
        Some(batches) => batches,
        None => open(path)?,
    };
    let constants = reading.constants(file, |name| Selection::has(&batches.schema(), name));
    let rows = Arc::new(Rows::new(&reading.conversion, file, &batches.schema(), constants)?);
    reading.note_schema(file, 0, || rows.stored.clone());
    let mut row = 1;
    for batch in batches {
        let batch = batch.map_err(|error| unreadable(path, &error))?;
        sink.progress()
            .bytes_read
            .fetch_add(batch.get_array_memory_size() as u64, Ordering::Relaxed);
        for start in (0..batch.num_rows()).step_by(PIECE_ROWS) {
            let piece = Batch {
                rows: Arc::clone(&rows),
                batch: batch.slice(start, PIECE_ROWS.min(batch.num_rows() - start)),
                row,
            };
            row += piece.batch.num_rows() as u64;
            reading.hand_over(Piece::Batch(piece), sink)?;
        }
    }
    Ok(())
}

/// Opens a file or a stream.
fn open(path: &Path) -> Result<Batches, BuildError> {
    let unopened = |error: std::io::Error| BuildError::unreadable(path, error);
    let mut file = File::open(path).map_err(unopened)?;
    let mut magic = Vec::new();
    let is_regular = file.metadata().map_err(unopened)?.is_file();
    if is_regular {
        let read = file.by_ref().take(FILE_MAGIC.len() as u64).read_to_end(&mut magic);
        read.and_then(|_| file.rewind()).map_err(unopened)?;
    }
    if magic == FILE_MAGIC {
        let reader = FileReaderBuilder::new().build(BufReader::with_capacity(BUFFER_BYTES, file));
        return Ok(Box::new(reader.map_err(|error| unreadable(path, &error))?));
    }
    let stream = BatchStream::open(file).map_err(|error| unreadable(path, &error))?;
    let schema = stream.schema();
    Ok(Box::new(RecordBatchIterator::new(stream, schema)))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> BuildError {
    BuildError::unreadable(
        path,
        format!("it is not a complete file or stream of Arrow IPC: {error}"),
    )
}

impl Rows {
    /// The form of rows with this schema, in a file of the conversion. The constants are columns of all rows that batches
    /// do not have.
    pub(crate) fn new(
        conversion: &Conversion<'_>,
        file: u32,
        schema: &Schema,
        constants: Vec<Constant>,
    ) -> Result<Self, BuildError> {
        let path = &*conversion.paths[file as usize];
        let decoded = Arc::new(Schema::new(schema.fields().iter().map(in_utc).collect::<Fields>()));
        let schema = with_constants(&decoded, &constants);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut selection = Selection::default();
        let chosen = Chosen::find(conversion, path, &names, |name| selection.find(&schema, name))?;
        let stored = chosen.schema(|number| describe(selection.field(number)));
        let delete = conversion.delete.map(|name| match selection.find(&schema, name) {
            Some(number) if *selection.field(number).data_type() == DataType::Boolean => Ok(number),
            Some(number) => Err(BuildError::UnsupportedType {
                file: path.to_owned(),
                column: name.to_owned(),
                data_type: selection.field(number).data_type().to_string(),
                reason: "the column that says which rows delete their keys is of booleans",
            }),
            None => {
                let names = names.iter().map(|&name| name.to_owned()).collect();
                Err(BuildError::missing_column(path, name, names))
            }
        });
        let maker = RecordMaker::new(conversion, file, chosen, selection, constants)?;
        Ok(Self {
            file,
            maker: maker.with_delete(delete.transpose()?),
            schema: decoded,
            stored,
        })
    }

    /// Hands over the rows of a batch, whose first row is row `row` of the file.
    pub(crate) fn make(
        &self,
        batch: &RecordBatch,
        path: &Path,
        row: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), BuildError> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns: Result<Vec<ArrayRef>, ArrowError> =
            columns.map(|(column, field)| as_type(column, field)).collect();
        let batch = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        let batch = batch.map_err(|error| BuildError::unreadable(path, error))?;
        self.maker.make(&batch, self.file, path, row, sink)
    }
}

impl Batch {
    /// Its file, and the number of its first row.
    pub(super) fn first_row(&self) -> (u32, u64) {
        (self.rows.file, self.row)
    }

    pub(super) fn read(&self, path: &Path, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        self.rows.make(&self.batch, path, self.row, sink)
    }
}

/// A column whose times with a zone are in UTC, in which they are stored. Only the name of the zone changes.
fn in_utc(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(in_utc).collect()),
        DataType::List(field) => DataType::List(in_utc(field)),
        DataType::LargeList(field) => DataType::LargeList(in_utc(field)),
        DataType::ListView(field) => DataType::ListView(in_utc(field)),
        DataType::LargeListView(field) => DataType::LargeListView(in_utc(field)),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(in_utc(field), *length),
        DataType::Map(field, sorted) => DataType::Map(in_utc(field), *sorted),
        other => other.clone(),
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}

fn as_type(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => arrow_cast::cast(column, field.data_type()),
    }
}
