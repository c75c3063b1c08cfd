//! Columns with one value in all rows of a file: the partition columns of Hive, and columns that a file lacks.
//!
//! In `table/dt=2026-11-27/city=K%C3%B6ln/part-0.parquet` they are `dt` and `city`: folders `NAME=VALUE` directly above the
//! file. Names and values are percent-encoded, and `__HIVE_DEFAULT_PARTITION__` is null. A column is of integers if all its
//! values in the input are written as such, and of text otherwise: `07` and `1.10` keep their zeros. A column of the same
//! name in the file itself takes precedence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use percent_encoding::percent_decode_str;

const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A column with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constant {
    pub(super) name: String,
    pub(super) value: Option<String>,
    /// `Int64` or `Utf8`; `Null` if the file lacks the column.
    pub(super) data_type: DataType,
}

impl Constant {
    /// A column that the file lacks.
    pub(super) fn missing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: None,
            data_type: DataType::Null,
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        self.data_type == DataType::Int64
    }

    fn array(&self, rows: usize) -> ArrayRef {
        match (&self.value, self.value.as_deref().and_then(integer)) {
            (Some(_), Some(number)) if self.is_integer() => Arc::new(Int64Array::from_value(number, rows)),
            (Some(text), _) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows))),
            (None, _) => new_null_array(&self.data_type, rows),
        }
    }
}

/// The partition columns of each file.
pub(super) fn partition_columns(files: &[PathBuf]) -> Vec<Vec<Constant>> {
    let mut columns: Vec<Vec<Constant>> = files.iter().map(|file| columns_of(file)).collect();
    let mut are_integers: BTreeMap<String, bool> = BTreeMap::new();
    for column in columns.iter().flatten() {
        if let Some(value) = &column.value {
            let are = are_integers.entry(column.name.clone()).or_insert(true);
            *are &= integer(value).is_some();
        }
    }
    for column in columns.iter_mut().flatten() {
        if are_integers.get(&column.name) == Some(&true) {
            column.data_type = DataType::Int64;
        }
    }
    columns
}

/// The columns of a file, outermost first, as text.
fn columns_of(file: &Path) -> Vec<Constant> {
    let folders = file.ancestors().skip(1).map_while(|folder| {
        let (name, value) = folder.file_name()?.to_str()?.split_once('=')?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        (!name.is_empty()).then(|| Constant {
            name: decoded(name),
            value: (value != NULL).then(|| decoded(value)),
            data_type: DataType::Utf8,
        })
    });
    let mut columns: Vec<Constant> = folders.collect();
    columns.reverse();
    columns
}

/// The number that a text is, if it is written without further characters.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

/// A table's schema with these columns at its end.
pub(super) fn with_constants(schema: &Schema, constants: &[Constant]) -> Schema {
    let added = constants
        .iter()
        .map(|column| Arc::new(Field::new(&column.name, column.data_type.clone(), true)));
    let fields: Vec<_> = schema.fields().iter().cloned().chain(added).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// A batch with these columns at its end.
pub(super) fn batch_with_constants(batch: &RecordBatch, constants: &[Constant]) -> Result<RecordBatch, ArrowError> {
    let added = constants.iter().map(|column| column.array(batch.num_rows()));
    let arrays = batch.columns().iter().cloned().chain(added).collect();
    RecordBatch::try_new(Arc::new(with_constants(batch.schema_ref(), constants)), arrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(paths: &[&str]) -> Vec<Vec<(String, Option<String>, bool)>> {
        let files: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let files = partition_columns(&files).into_iter();
        files
            .map(|columns| {
                let columns = columns.into_iter();
                columns
                    .map(|column| (column.name.clone(), column.value.clone(), column.is_integer()))
                    .collect()
            })
            .collect()
    }

    fn column(name: &str, value: Option<&str>, is_integer: bool) -> (String, Option<String>, bool) {
        (name.to_owned(), value.map(str::to_owned), is_integer)
    }

    #[test]
    fn only_the_folders_directly_above_a_file_are_partitions() {
        assert_eq!(
            columns(&["/run=5/t/a%3Db=x%2Fy/c=1=2/part.csv", "part.csv", "t/part=1.csv"]),
            [
                vec![column("a=b", Some("x/y"), false), column("c", Some("1=2"), false)],
                vec![],
                vec![],
            ]
        );
    }

    #[test]
    fn a_column_is_of_integers_if_all_its_values_are() {
        let null = "__HIVE_DEFAULT_PARTITION__";
        assert_eq!(
            columns(&["n=1/m=1/f", "n=-20/m=01/f", &format!("n={null}/m={null}/f")]),
            [
                [column("n", Some("1"), true), column("m", Some("1"), false)],
                [column("n", Some("-20"), true), column("m", Some("01"), false)],
                [column("n", None, true), column("m", None, false)],
            ]
        );
    }
}
