//! Makes keys, values and positions of rows in any order.

use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use fondaco_format::{key_hash, key_position};
use fondaco_model::{PartitionCount, SlotPrefix};

use super::error::TaskError;
use super::spec::Spec;
use super::{ROWS, column};
use crate::error::BuildError;
use crate::input::{BadRows, BatchStream, Conversion, RowKind, RowSink, Rows, Stream, Target};
use crate::options::BuildOptions;
use crate::progress::Progress;
use crate::samples::Samples;
use crate::sort::RowId;

/// A batch of encoded rows is passed on when it has this many bytes.
const BATCH_BYTES: usize = 8 << 20;

/// The size of a write, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Encodes a stream of rows: writes a stream with the position, the partition, the key and the value of each, in the same
/// order. Returns how many rows there were.
///
/// # Errors
/// A row is bad, or one of the streams fails.
pub fn encode(spec: &Spec, input: impl Read, output: impl Write, progress: &Progress) -> Result<u64, BuildError> {
    let options = spec.options()?;
    let stream = BatchStream::open(input).map_err(TaskError::stream)?;
    let paths = [PathBuf::from(ROWS)];
    let schema = stream.schema();
    let rows = rows(spec, &options, &paths, &schema)?;
    let order = order_of(spec, &schema)?;
    let bad_rows = BadRows::new(0, paths.to_vec());
    let mut encoding = Encoding::begin(&options, order.is_some(), output)?;
    let mut row = 1;
    for batch in stream {
        let batch = batch.map_err(TaskError::stream)?;
        encoding.batch_row = row;
        encoding.order = match &order {
            Some((number, converter)) => {
                let column = Arc::clone(batch.column(*number));
                Some(converter.convert_columns(&[column]).map_err(TaskError::stream)?)
            }
            None => None,
        };
        let target = Target::Stream(&mut encoding);
        let kind = (&options, RowKind::Record);
        let mut sink = RowSink::new(target, Samples::new(false), &bad_rows, progress, kind, 0);
        rows.make(&batch, Path::new(ROWS), row, &mut sink)?;
        sink.close()?;
        bad_rows.check()?;
        row += batch.num_rows() as u64;
    }
    encoding.finish()?;
    Ok(row - 1)
}

/// How columns become keys and values.
pub(super) fn rows(
    spec: &Spec,
    options: &BuildOptions,
    paths: &[PathBuf],
    schema: &Schema,
) -> Result<Rows, BuildError> {
    let conversion = Conversion::new(options, RowKind::Record, paths, spec.delete.as_deref());
    Rows::new(&conversion, 0, schema, Vec::new())
}

/// The column that orders rows, and its converter to bytes that sort as its values do.
pub(super) fn order_of(spec: &Spec, schema: &SchemaRef) -> Result<Option<(usize, RowConverter)>, BuildError> {
    let Some(name) = &spec.order_by else {
        return Ok(None);
    };
    let Some((number, field)) = schema.column_with_name(name) else {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        return Err(BuildError::missing_column(Path::new(ROWS), name, names));
    };
    let converter = RowConverter::new(vec![SortField::new(field.data_type().clone())]);
    let converter = converter.map_err(|_| BuildError::UnsupportedType {
        file: ROWS.into(),
        column: name.clone(),
        data_type: field.data_type().to_string(),
        reason: "values of this type have no order",
    })?;
    Ok(Some((number, converter)))
}

/// Encoded rows that are being written.
struct Encoding<W: Write> {
    partitions: PartitionCount,
    slots: SlotPrefix,
    writer: StreamWriter<BufWriter<W>>,
    schema: SchemaRef,
    position: Int64Builder,
    partition: Int32Builder,
    key: BinaryBuilder,
    value: BinaryBuilder,
    order_bytes: Option<BinaryBuilder>,
    /// The order of the rows of the present batch, and the number of its first row.
    order: Option<arrow_row::Rows>,
    batch_row: u64,
    /// The bytes of the rows that were not passed on.
    bytes: usize,
}

impl<W: Write> Encoding<W> {
    fn begin(options: &BuildOptions, has_order: bool, output: W) -> Result<Self, BuildError> {
        let mut fields = vec![
            Field::new(column::POSITION, DataType::Int64, false),
            Field::new(column::PARTITION, DataType::Int32, false),
            Field::new(column::KEY, DataType::Binary, false),
            Field::new(column::VALUE, DataType::Binary, true),
        ];
        if has_order {
            fields.push(Field::new(column::ORDER, DataType::Binary, false));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            partitions: options.partitions,
            slots: SlotPrefix::of(&options.store),
            writer: StreamWriter::try_new(BufWriter::with_capacity(BUFFER_BYTES, output), &schema)
                .map_err(TaskError::stream)?,
            schema,
            position: Int64Builder::new(),
            partition: Int32Builder::new(),
            key: BinaryBuilder::new(),
            value: BinaryBuilder::new(),
            order_bytes: has_order.then(BinaryBuilder::new),
            order: None,
            batch_row: 0,
            bytes: 0,
        })
    }

    fn pass_on(&mut self) -> Result<(), BuildError> {
        if self.bytes == 0 {
            return Ok(());
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.position.finish()),
            Arc::new(self.partition.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
        ];
        if let Some(order) = &mut self.order_bytes {
            columns.push(Arc::new(order.finish()));
        }
        self.bytes = 0;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let written = batch.and_then(|batch| self.writer.write(&batch));
        Ok(written.map_err(TaskError::stream)?)
    }

    fn finish(mut self) -> Result<(), BuildError> {
        self.pass_on()?;
        let finished = self.writer.finish().and_then(|()| self.writer.flush());
        Ok(finished.map_err(TaskError::stream)?)
    }
}

impl<W: Write> Stream for Encoding<W> {
    fn add(&mut self, row: RowId, key: &[u8], value: Option<&[u8]>) -> Result<u64, BuildError> {
        let hash = key_hash(key);
        let partition = self.partitions.partition_of(self.slots.slot(key));
        self.position
            .append_value(key_position(self.partitions, partition, hash));
        self.partition.append_value(partition.get().cast_signed());
        self.key.append_value(key);
        self.value.append_option(value);
        if let (Some(bytes), Some(order)) = (&mut self.order_bytes, &self.order) {
            let order = order.row((row.row() - self.batch_row) as usize);
            self.bytes += order.as_ref().len();
            bytes.append_value(order.as_ref());
        }
        // Each row counts, also one of a short key.
        self.bytes += 16 + key.len() + value.map_or(0, <[u8]>::len);
        if self.bytes >= BATCH_BYTES {
            self.pass_on()?;
        }
        Ok(hash)
    }
}
