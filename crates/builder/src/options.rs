//! Options of a build.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use bytes::Bytes;
use fondaco_format::Compression;
use fondaco_model::{PartitionCount, StoreName};
use fondaco_storage::Location;

use crate::declaration::Declaration;

/// A build: its input, its columns, and its output.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The store of the version. Slots depend on its name.
    pub store: StoreName,
    /// Files, folders (recursively, without names that begin with `_` or `.`) and globs; `-` is the standard input.
    pub inputs: Vec<String>,
    /// The format of all inputs; derived from their names if `None`.
    pub format: Option<InputFormat>,
    /// The field separator of CSV; if `None`, a tab in files with a name for tab-separated data, and a comma in others.
    pub delimiter: Option<u8>,
    /// The columns of the key: one for each part of a tuple; for keys of bytes the texts of several columns are joined by `:`. Here and in `value`, `a.b` is member `b`
    /// of the object in column `a`, unless a column itself has that name.
    pub key: Vec<String>,
    /// How rows of all formats are read.
    pub reading: ReadOptions,
    /// How the store's keys and values are encoded.
    pub declared: Declaration,
    /// The columns of the value.
    pub value: ValueSelection,
    /// The treatment of several rows with the same key.
    pub on_duplicate: OnDuplicate,
    /// How many bad rows are skipped; one more fails the build.
    pub bad_rows_max: u64,
    /// Whether an input without rows makes an empty version, not an error.
    pub allow_empty: bool,
    /// The memory budget of the process, in bytes, at least 1 MiB. It may use up to 256 MiB more.
    pub memory_bytes: u64,
    /// The number of threads that read and write, if there is enough memory for them.
    pub threads: usize,
    /// The number of partitions of the cluster.
    pub partitions: PartitionCount,
    /// The version contains all events of streams up to this time, in milliseconds since 1970.
    pub cut_unix_ms: Option<u64>,
    /// Of a difference: the times of records, if they expire.
    pub times: Option<RecordTimes>,
    /// The compression of values.
    pub compression: Compression,
    /// A partition is divided into a power of two of chunks, each with at most about this many bytes of keys and
    /// values; from 1 byte to 2 GiB.
    pub chunk_bytes_target: u64,
    /// The directory of the version; it must be empty or missing.
    pub output: Location,
    /// An existing directory for temporary files.
    pub temporary: PathBuf,
    /// Read and check everything, and write only temporary files.
    pub dry_run: bool,
    /// The dictionary of zstd; without one, it is made from a sample of the values.
    pub dictionary: Option<Bytes>,
}

impl BuildOptions {
    /// The default memory budget of a build, in bytes.
    pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
    /// The default size of chunks, in bytes.
    pub const CHUNK_BYTES_TARGET_DEFAULT: u64 = 1 << 30;
    /// The largest allowed chunk size, in bytes: a chunk file is limited to 4 GiB, and hashes divide large values
    /// unevenly.
    pub const CHUNK_BYTES_TARGET_MAX: u64 = 2 << 30;

    /// A build of rows with this column as key and all others as value, by one thread, with the defaults of everything else.
    pub fn new(
        store: StoreName,
        partitions: PartitionCount,
        inputs: Vec<String>,
        key: &str,
        output: Location,
        temporary: PathBuf,
    ) -> Self {
        Self {
            store,
            inputs,
            format: None,
            delimiter: None,
            key: vec![key.to_owned()],
            reading: ReadOptions::default(),
            declared: Declaration::default(),
            value: ValueSelection::AllOthers,
            on_duplicate: OnDuplicate::Fail,
            bad_rows_max: 0,
            allow_empty: false,
            memory_bytes: Self::MEMORY_BYTES_DEFAULT,
            threads: 1,
            partitions,
            cut_unix_ms: None,
            times: None,
            compression: Compression::None,
            chunk_bytes_target: Self::CHUNK_BYTES_TARGET_DEFAULT,
            output,
            temporary,
            dry_run: false,
            dictionary: None,
        }
    }
}

/// The times of the records of a difference, and of the version that it changes. Records expire a fixed time after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTimes {
    /// The time of the records of the changed version that have none of their own, in milliseconds since 1970.
    pub undated_unix_ms: u64,
    /// The time of each record of the difference, in milliseconds since 1970. `None` if the values of the input, which are final, begin
    /// with it: 8 bytes, little-endian.
    pub all_unix_ms: Option<u64>,
}

impl RecordTimes {
    /// The length of a time before a value, in bytes.
    const BYTES: usize = size_of::<u64>();

    /// The time of a record, and its value, given the value of the input; `None` if that is too short.
    pub(crate) fn divide(self, value: &[u8]) -> Option<(u64, &[u8])> {
        match self.all_unix_ms {
            Some(time_ms) => Some((time_ms, value)),
            None => {
                let (time, value) = value.split_first_chunk::<{ Self::BYTES }>()?;
                Some((u64::from_le_bytes(*time), value))
            }
        }
    }
}

/// How rows are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The columns that [`ValueSelection::AllOthers`] leaves out.
    pub exclude: Vec<String>,
    /// The columns of CSV files, which have no header row then.
    pub csv_columns: Option<Vec<String>>,
    /// How numbers are written that many readers of JSON round.
    pub numbers: Numbers,
    /// What NaN and infinity become.
    pub non_finite: NonFinite,
    /// Whether files may lack columns that others have, or have them with other types. A column of
    /// [`ValueSelection::Columns`] is null in the rows of files that lack it.
    pub allow_drift: bool,
}

/// How decimals and 64-bit integers are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numbers {
    /// As numbers.
    #[default]
    Number,
    /// As text.
    Text,
}

/// What NaN and infinity in columns of floats become: JSON has neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NonFinite {
    /// The row is bad.
    #[default]
    Fail,
    /// Null.
    Null,
    /// The texts `NaN`, `Infinity` and `-Infinity`.
    Text,
}

/// The format of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    /// Apache Parquet.
    Parquet,
    /// Apache Avro object container files.
    Avro,
    /// One JSON object per line, or one JSON array of objects; plain, gzip or zstd.
    Jsonl,
    /// Comma-separated values under a header row; plain, gzip or zstd.
    Csv,
    /// Arrow IPC: a file, also called Feather, or a stream.
    Arrow,
}

/// The columns of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSelection {
    /// One column, unchanged.
    Column(String),
    /// A JSON object of these columns, in this order.
    Columns(Vec<String>),
    /// A JSON object of all columns except the key.
    AllOthers,
}

/// The treatment of several rows with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDuplicate {
    /// The build fails, and names two such rows.
    #[default]
    Fail,
    /// The first one is kept: by file name, then by row.
    First,
    /// The last one is kept: by file name, then by row.
    Last,
}

/// The text is not one of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {text:?}: use {choices}")]
pub struct ChoiceError {
    what: &'static str,
    text: String,
    choices: &'static str,
}

impl ChoiceError {
    pub(crate) fn new(what: &'static str, text: &str, choices: &'static str) -> Self {
        Self {
            what,
            text: text.to_owned(),
            choices,
        }
    }
}

impl FromStr for InputFormat {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "parquet" => Ok(Self::Parquet),
            "avro" => Ok(Self::Avro),
            "jsonl" => Ok(Self::Jsonl),
            "csv" => Ok(Self::Csv),
            "arrow" => Ok(Self::Arrow),
            _ => Err(ChoiceError::new(
                "input format",
                text,
                "parquet, avro, jsonl, csv or arrow",
            )),
        }
    }
}

impl fmt::Display for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parquet => "parquet",
            Self::Avro => "avro",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
        })
    }
}

impl FromStr for Numbers {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "number" => Ok(Self::Number),
            "text" => Ok(Self::Text),
            _ => Err(ChoiceError::new("form of numbers", text, "number or text")),
        }
    }
}

impl FromStr for NonFinite {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "fail" => Ok(Self::Fail),
            "null" => Ok(Self::Null),
            "text" => Ok(Self::Text),
            _ => Err(ChoiceError::new(
                "choice for NaN and infinity",
                text,
                "fail, null or text",
            )),
        }
    }
}

impl FromStr for OnDuplicate {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "fail" => Ok(Self::Fail),
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            _ => Err(ChoiceError::new("choice for duplicates", text, "fail, first or last")),
        }
    }
}

impl fmt::Display for OnDuplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::First => "first",
            Self::Last => "last",
        })
    }
}
