//! A dataset as a Parquet file, the input of every loader.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::{Dataset, Scattered, append_value, key};

/// The column of the keys.
pub const KEY_COLUMN: &str = "key";
/// The column of the values.
pub const VALUE_COLUMN: &str = "value";

const BATCH_ROWS: usize = 8192;
const ROW_GROUP_ROWS: usize = 256 * 1024;

/// Writes a dataset with its rows in random order and the usual compression.
pub fn write(dataset: Dataset, path: &Path) -> Result<()> {
    let scattered = Scattered::new(dataset.records);
    let ids = (0..dataset.records).map(|number| scattered.place(number));
    write_records(ids, dataset.value_bytes, path)
}

/// Writes records, given by number, with the usual compression.
pub fn write_records(ids: impl Iterator<Item = u64>, value_bytes: usize, path: &Path) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![
        Field::new(KEY_COLUMN, DataType::Utf8, false),
        Field::new(VALUE_COLUMN, DataType::Binary, false),
    ]));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let file = File::create(path).with_context(|| format!("could not create {path:?}"))?;
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))?;
    let mut ids = ids.peekable();
    let mut value = Vec::new();
    while ids.peek().is_some() {
        let (mut keys, mut values) = (StringBuilder::new(), BinaryBuilder::new());
        for id in ids.by_ref().take(BATCH_ROWS) {
            keys.append_value(std::str::from_utf8(&key(id))?);
            value.clear();
            append_value(id, value_bytes, &mut value);
            values.append_value(&value);
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), Arc::new(values.finish())];
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    let file = writer.into_inner()?;
    file.sync_all()?;
    Ok(())
}

/// Reads every `stride`th row group, from `first` on, and passes each key and value to `each`.
pub fn read(path: &Path, first: usize, stride: usize, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let file = File::open(path).with_context(|| format!("could not open {path:?}"))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS);
    let groups = (first..builder.metadata().num_row_groups()).step_by(stride).collect();
    for batch in builder.with_row_groups(groups).build()? {
        let batch = batch?;
        ensure!(
            batch.num_columns() == 2,
            "{path:?} has other columns than key and value"
        );
        let keys = batch.column(0).as_string::<i32>();
        let values = batch.column(1).as_binary::<i32>();
        for row in 0..batch.num_rows() {
            each(keys.value(row).as_bytes(), values.value(row))?;
        }
    }
    Ok(())
}
