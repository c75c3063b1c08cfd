//! The changes that events have made, in files for a build: Parquet, since keys and values are any bytes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fondaco_api::{CHANGED_TO_DATED, CHANGED_TO_VALUE, Frame};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::error::PushError;

/// How many bytes of changes are written at a time.
const GROUP_BYTES: usize = 16 << 20;

/// Files with changes, for a build.
#[derive(Default)]
pub(super) struct Files {
    pub(super) changed: Vec<PathBuf>,
    pub(super) deleted: Vec<PathBuf>,
    /// How many keys.
    pub(super) count: u64,
}

/// The files of one node.
pub(super) struct PartFiles {
    changed: Table,
    deleted: Table,
}

impl PartFiles {
    pub(super) fn new(dir: &Path, number: usize) -> Self {
        Self {
            changed: Table::new(dir.join(format!("changed-{number}.parquet")), &["key", "value"]),
            deleted: Table::new(dir.join(format!("deleted-{number}.parquet")), &["key"]),
        }
    }

    /// Adds the keys of a page. Returns how many.
    pub(super) fn add(&mut self, mut page: &[u8]) -> Result<u64, PushError> {
        let mut count = 0;
        while let Some(Frame { key, mut record }) = Frame::read(&mut page)
            .map_err(|error| PushError::Damaged(format!("the node sent no page of changes: {error}")))?
        {
            match record.first() {
                // A time stays before the value: the build reads it there.
                Some(&(CHANGED_TO_VALUE | CHANGED_TO_DATED)) => {
                    record.remove(0);
                    self.changed.add([key, record])?;
                }
                _ => self.deleted.add([key])?,
            }
            count += 1;
        }
        Ok(count)
    }

    pub(super) fn finish(self) -> Result<(Option<PathBuf>, Option<PathBuf>), PushError> {
        Ok((self.changed.finish()?, self.deleted.finish()?))
    }
}

/// A file of rows.
struct Table {
    path: PathBuf,
    names: &'static [&'static str],
    columns: Vec<Vec<ByteArray>>,
    bytes: usize,
    file: Option<SerializedFileWriter<File>>,
}

impl Table {
    fn new(path: PathBuf, names: &'static [&'static str]) -> Self {
        Self {
            path,
            names,
            columns: vec![Vec::new(); names.len()],
            bytes: 0,
            file: None,
        }
    }

    fn add<const N: usize>(&mut self, row: [Vec<u8>; N]) -> Result<(), PushError> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            self.bytes += cell.len();
            column.push(cell.into());
        }
        match self.bytes >= GROUP_BYTES {
            true => self.flush().map_err(failed(&self.path)),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let columns: String = self
                    .names
                    .iter()
                    .map(|name| format!("required binary {name};"))
                    .collect();
                let schema = Arc::new(parse_message_type(&format!("message changes {{ {columns} }}"))?);
                // A value is looked at once.
                let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
                none.insert(SerializedFileWriter::new(
                    File::create(&self.path)?,
                    schema,
                    Arc::new(properties),
                )?)
            }
        };
        let mut group = file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group
                .next_column()?
                .ok_or_else(|| ParquetError::General("the schema lacks a column".to_owned()))?;
            if let ColumnWriter::ByteArrayColumnWriter(writer) = writer.untyped() {
                writer.write_batch(column, None, None)?;
            }
            writer.close()?;
            column.clear();
        }
        group.close()?;
        self.bytes = 0;
        Ok(())
    }

    /// The path of the file, if there are rows.
    fn finish(mut self) -> Result<Option<PathBuf>, PushError> {
        if self.columns.iter().all(Vec::is_empty) && self.file.is_none() {
            return Ok(None);
        }
        if self.columns.iter().any(|column| !column.is_empty()) {
            self.flush().map_err(failed(&self.path))?;
        }
        if let Some(file) = self.file {
            file.close().map_err(failed(&self.path))?;
        }
        Ok(Some(self.path))
    }
}

/// For `map_err`: a file cannot be written.
fn failed(path: &Path) -> impl FnOnce(ParquetError) -> PushError {
    let path = path.to_owned();
    |source| PushError::Changes { path, source }
}
