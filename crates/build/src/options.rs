//! What to build, and how.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fondaco_format::Compression;
use fondaco_model::{PartitionCount, StoreName};
use fondaco_storage::Location;

/// A build: from which rows, of which columns, into which version.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The store that the version is for. Slots depend on its name.
    pub store: StoreName,
    /// Files, folders (with all below them, but for names that begin with `_` or `.`) and globs; `-` is the standard
    /// input.
    pub inputs: Vec<String>,
    /// The format of all inputs; by their names if `None`.
    pub format: Option<InputFormat>,
    /// What separates the fields of CSV; a tab in files whose names say so and a comma in others if `None`.
    pub delimiter: Option<u8>,
    /// The columns that hold the key: one, or several, whose texts are joined by `:`. Here and in `value`, `a.b` is
    /// member `b` of the object in column `a`, unless a column has that name itself.
    pub key: Vec<String>,
    /// The columns that make the value.
    pub value: ValueSelection,
    /// What to do about several rows with one key.
    pub on_duplicate: OnDuplicate,
    /// How many bad rows are skipped; one more fails the build.
    pub bad_rows_max: u64,
    /// Whether an input without a row makes an empty version rather than an error.
    pub allow_empty: bool,
    /// What the process may use, in bytes, at least 1 MiB. It takes up to 256 MiB more.
    pub memory_bytes: u64,
    /// How many threads read and write, as far as there is memory for them.
    pub threads: usize,
    /// How many partitions the cluster has.
    pub partitions: PartitionCount,
    /// How values are compressed.
    pub compression: Compression,
    /// A partition is divided into a power of two of chunks of about at most so many bytes of keys
    /// and values; from 1 byte to 2 GiB.
    pub chunk_bytes_target: u64,
    /// The directory of the version; it must be empty or missing.
    pub output: Location,
    /// An existing directory for temporary files.
    pub temporary: PathBuf,
    /// Read and check all, and write nothing but temporary files.
    pub dry_run: bool,
}

impl BuildOptions {
    /// The memory that a build may use unless told otherwise, in bytes.
    pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
    /// The size of chunks unless told otherwise, in bytes.
    pub const CHUNK_BYTES_TARGET_DEFAULT: u64 = 1 << 30;
    /// The largest chunk that may be asked for, in bytes: a chunk file ends at 4 GiB, and hashes
    /// divide large values unevenly.
    pub const CHUNK_BYTES_TARGET_MAX: u64 = 2 << 30;
}

/// How the input is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    /// Apache Parquet.
    Parquet,
    /// Apache Avro object container files.
    Avro,
    /// A JSON object a line, or one JSON array of objects; plain, gzip or zstd.
    Jsonl,
    /// Comma-separated values under a header row; plain, gzip or zstd.
    Csv,
}

/// Which columns make the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSelection {
    /// One column as it is.
    Column(String),
    /// A JSON object of these columns, in this order.
    Columns(Vec<String>),
    /// A JSON object of all columns but the key.
    AllOthers,
}

/// What to do about several rows with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDuplicate {
    /// The build fails, and names two such rows.
    #[default]
    Fail,
    /// The first one stays: by the names of the files, then by the rows.
    First,
    /// The last one stays: by the names of the files, then by the rows.
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

impl FromStr for InputFormat {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "parquet" => Ok(Self::Parquet),
            "avro" => Ok(Self::Avro),
            "jsonl" => Ok(Self::Jsonl),
            "csv" => Ok(Self::Csv),
            _ => Err(ChoiceError {
                what: "input format",
                text: text.to_owned(),
                choices: "parquet, avro, jsonl or csv",
            }),
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
        })
    }
}

impl FromStr for OnDuplicate {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "fail" => Ok(Self::Fail),
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            _ => Err(ChoiceError {
                what: "choice for duplicates",
                text: text.to_owned(),
                choices: "fail, first or last",
            }),
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
