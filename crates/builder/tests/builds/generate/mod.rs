//! Writes the same rows as Parquet, Avro, JSON lines and CSV, and builds versions of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_avro::compression::CompressionCodec;
use arrow_avro::writer::{AvroWriter, WriterBuilder, format::AvroOcfFormat};
use arrow_schema::{DataType, Field, Schema};
use fondaco_builder::{BuildError, BuildOptions, BuildReport, Progress, ValueSelection, build};
use fondaco_format::Version;
use fondaco_storage::Location;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

/// A folder with inputs, and a path for the output.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["in", "temporary"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub fn input(&self, name: &str) -> PathBuf {
        self.folder.path().join("in").join(name)
    }

    pub fn output(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.input(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Options that read all inputs: key `k`, value `v`.
    pub fn options(&self) -> BuildOptions {
        BuildOptions {
            value: ValueSelection::Column("v".to_owned()),
            memory_bytes: 16 << 20,
            threads: 2,
            ..BuildOptions::new(
                "pymk".parse().unwrap(),
                4.try_into().unwrap(),
                vec![self.folder.path().join("in").to_str().unwrap().to_owned()],
                "k",
                Location::local(self.output()),
                self.temporary(),
            )
        }
    }

    pub fn build(&self, change: impl FnOnce(&mut BuildOptions)) -> Result<BuildReport, BuildError> {
        let mut options = self.options();
        change(&mut options);
        build(&options, &Progress::new())
    }

    /// Builds, which must succeed, and opens the version.
    pub fn built(&self, change: impl FnOnce(&mut BuildOptions)) -> Version {
        self.build(change).unwrap();
        Version::open(&self.output()).unwrap()
    }

    /// The error message of a build that must fail and leave no files.
    pub fn refused(&self, change: impl FnOnce(&mut BuildOptions)) -> String {
        let error = self.build(change).map(|_| ()).unwrap_err();
        assert!(!self.output().exists(), "a failed build leaves nothing");
        assert_eq!(fs::read_dir(self.temporary()).unwrap().count(), 0);
        error.to_string()
    }
}

/// The value of a key as text.
pub fn get(version: &Version, key: &str) -> Option<String> {
    version
        .get(key.as_bytes())
        .unwrap()
        .map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// A table of named columns; nullable.
pub fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

/// A table of a text key and a text value.
pub fn texts(rows: &[(Option<&str>, Option<&str>)]) -> RecordBatch {
    let keys: StringArray = rows.iter().map(|(key, _)| *key).collect();
    let values: StringArray = rows.iter().map(|(_, value)| *value).collect();
    table(vec![("k", Arc::new(keys)), ("v", Arc::new(values))])
}

pub fn write_parquet(path: &Path, batch: &RecordBatch, rows_per_group: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

pub fn write_avro(path: &Path, batches: &[RecordBatch], codec: Option<CompressionCodec>) {
    let schema = batches[0].schema().as_ref().clone();
    let mut writer: AvroWriter<File> = WriterBuilder::new(schema)
        .with_compression(codec)
        .build::<_, AvroOcfFormat>(File::create(path).unwrap())
        .unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

/// Writes binary rows, distributed over several files of several formats; file 0 has the first rows.
pub fn write_binary_rows(place: &Place, rows: &[(Vec<u8>, Vec<u8>)], files: usize) {
    for (number, rows) in rows.chunks(rows.len().div_ceil(files).max(1)).enumerate() {
        let fields = vec![
            Field::new("k", DataType::Binary, true),
            Field::new("v", DataType::Binary, true),
        ];
        let keys: BinaryArray = rows.iter().map(|(key, _)| Some(&key[..])).collect();
        let values: BinaryArray = rows.iter().map(|(_, value)| Some(&value[..])).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(keys), Arc::new(values)]);
        let batch = batch.unwrap();
        if number % 2 == 0 {
            write_parquet(&place.input(&format!("{number:03}.parquet")), &batch, 50);
        } else {
            write_avro(
                &place.input(&format!("{number:03}.avro")),
                &[batch],
                Some(CompressionCodec::Snappy),
            );
        }
    }
}

/// Checks that a message has all of these parts.
pub fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}
