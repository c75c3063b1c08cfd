//! Reads Parquet, one row group at a time and only the needed columns.
//!
//! Texts and binaries are read as views of the decompressed pages. Their bytes are copied once, into the sort, and a
//! value that a dictionary holds once is not multiplied in memory. All row groups that are read at a time share a
//! memory budget for their pages: a row group waits for its share.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::PageType;
use parquet::file::metadata::ColumnChunkMetaData;

use super::columns::{RecordMaker, describe};
use super::constants::with_constants;
use super::decoded::{decoded_schema, refused_type};
use super::nested::Selection;
use super::rows::RowSink;
use super::{Chosen, Piece, Reading};
use crate::error::BuildError;

/// The approximate size of a decoded batch, in bytes and in rows.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_ROWS_MAX: u64 = 8192;

/// The assumed length of a page or dictionary if the file does not tell: the usual page size of writers.
const PAGE_BYTES: u64 = 1 << 20;

/// How many pages of a column are in memory: one in its file format, and the two in which a batch begins and ends.
const PAGES_AT_ONCE: u64 = 3;

/// The common properties of the row groups of a file.
struct Table {
    file: u32,
    metadata: ArrowReaderMetadata,
    /// The selected columns.
    projection: ProjectionMask,
    maker: RecordMaker,
}

/// One row group.
pub(super) struct RowGroup {
    table: Arc<Table>,
    number: usize,
    /// The number of the row group's first row.
    row: u64,
}

/// Splits a file into its row groups.
pub(super) fn open(reading: &Reading<'_>, file: u32, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
    let path = reading.path(file);
    let table = Arc::new(Table::open(reading, file, path)?);
    let groups = table.metadata.metadata().row_groups();
    let mut row = 1;
    for (number, group) in groups.iter().enumerate() {
        let piece = RowGroup {
            table: Arc::clone(&table),
            number,
            row,
        };
        reading.hand_over(Piece::RowGroup(piece), sink)?;
        row += group.num_rows().unsigned_abs();
    }
    Ok(())
}

impl Table {
    fn open(reading: &Reading<'_>, file: u32, path: &Path) -> Result<Self, BuildError> {
        let handle = File::open(path).map_err(|e| BuildError::unreadable(path, e))?;
        let failed = |e| BuildError::unreadable(path, format!("it is not a complete Parquet file: {e}"));
        let options = ArrowReaderOptions::new().with_encoding_stats_as_mask(false);
        let plain = ArrowReaderMetadata::load(&handle, options).map_err(failed)?;
        let mut constants = reading.constants(file, |name| Selection::has(plain.schema(), name));
        let schema = with_constants(plain.schema(), &constants);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut selection = Selection::default();
        let chosen = Chosen::find(&reading.conversion, path, &names, |name| selection.find(&schema, name))?;
        reading.note_schema(file, 0, || chosen.schema(|number| describe(selection.field(number))));
        let file_metadata = plain.metadata().file_metadata();
        for (number, field) in selection.fields().enumerate() {
            if let Some((data_type, reason)) = refused_type(file_metadata, selection.leaves(&schema, number)) {
                return Err(BuildError::UnsupportedType {
                    file: path.to_owned(),
                    column: field.name().clone(),
                    data_type: data_type.to_owned(),
                    reason,
                });
            }
        }
        let decoded = decoded_schema(plain.schema(), file_metadata);
        let options = ArrowReaderOptions::new().with_schema(decoded);
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options).map_err(failed)?;

        let selected = selection.roots();
        let in_file = plain.schema().fields().len();
        let read: Vec<usize> = selected.iter().copied().filter(|&root| root < in_file).collect();
        let projection = ProjectionMask::roots(metadata.parquet_schema(), read.iter().copied());
        let schema = metadata
            .schema()
            .project(&read)
            .map_err(|e| BuildError::unreadable(path, e))?;
        let mut root = in_file..;
        constants.retain(|_| root.next().is_some_and(|root| selected.contains(&root)));
        let selection = selection.of_projection(&selected, &with_constants(&schema, &constants));
        let maker = RecordMaker::new(&reading.conversion, file, chosen, selection, constants)?;
        Ok(Self {
            file,
            metadata,
            projection,
            maker,
        })
    }
}

impl RowGroup {
    /// Its file, and the number of its first row.
    pub(super) fn first_row(&self) -> (u32, u64) {
        (self.table.file, self.row)
    }

    pub(super) fn read(&self, reading: &Reading<'_>, sink: &mut RowSink<'_>) -> Result<(), BuildError> {
        let table = &self.table;
        let path = reading.path(table.file);
        let failed = |e: &dyn std::fmt::Display| {
            BuildError::unreadable(path, format!("row group {} is damaged: {e}", self.number))
        };
        // A separate handle: other threads would move the position of a shared one.
        let handle = File::open(path).map_err(|e| BuildError::unreadable(path, e))?;
        let group = table.metadata.metadata().row_group(self.number);
        let rows = group.num_rows().unsigned_abs().max(1);
        let row_bytes = group.total_byte_size().unsigned_abs() / rows;
        let batch_rows = (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX);
        let columns = group.columns().iter().enumerate();
        let read = columns.filter(|(leaf, _)| table.projection.leaf_included(*leaf));
        let pages_bytes: u64 = read.map(|(_, column)| pages_bytes(column)).sum();
        let _taken = reading.room.take(BATCH_BYTES + pages_bytes)?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(handle, table.metadata.clone())
            .with_row_groups(vec![self.number])
            .with_projection(table.projection.clone())
            .with_batch_size(batch_rows as usize)
            .build()
            .map_err(|e| failed(&e))?;
        let mut row = self.row;
        let file_bytes = group.compressed_size().unsigned_abs();
        let mut bytes_counted = 0;
        for batch in reader {
            let batch = batch.map_err(|e| failed(&e))?;
            table.maker.make(&batch, table.file, path, row, sink)?;
            row += batch.num_rows() as u64;
            let bytes_done = (u128::from(file_bytes) * u128::from(row - self.row) / u128::from(rows)) as u64;
            let progress = &sink.progress().bytes_read;
            progress.fetch_add(bytes_done.saturating_sub(bytes_counted), Ordering::Relaxed);
            bytes_counted = bytes_done;
        }
        if row - self.row == group.num_rows().unsigned_abs() {
            Ok(())
        } else {
            Err(failed(&format_args!(
                "it has {} rows instead of {}",
                row - self.row,
                group.num_rows()
            )))
        }
    }
}

/// The approximate memory of the pages of a column that are in memory at a time.
fn pages_bytes(column: &ColumnChunkMetaData) -> u64 {
    let column_bytes = column.uncompressed_size().unsigned_abs();
    let is_data = |page: PageType| matches!(page, PageType::DATA_PAGE | PageType::DATA_PAGE_V2);
    let pages = column.page_encoding_stats().map(|stats| {
        let data = stats.iter().filter(|stats| is_data(stats.page_type));
        data.map(|stats| u64::from(stats.count.unsigned_abs())).sum::<u64>()
    });
    let page_bytes = match pages {
        // The last page is shorter than the others.
        Some(pages) => column_bytes / pages.saturating_sub(1).max(1),
        None => column_bytes.min(PAGE_BYTES),
    };
    let dictionary_bytes = column
        .dictionary_page_offset()
        .map_or(0, |_| column_bytes.min(PAGE_BYTES));
    PAGES_AT_ONCE * page_bytes + dictionary_bytes
}
