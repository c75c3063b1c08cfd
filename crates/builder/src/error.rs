//! The errors of a build, each with a remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_format::FormatError;
use fondaco_storage::{Location, StorageError};

use crate::report::{BadRow, RowPlace, excerpt};
use crate::sort::RowId;
use crate::task::TaskError;

/// Why a build failed. A failed build leaves no files.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An option has an invalid value.
    #[error("invalid {option} {value}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value, quoted if it is text.
        value: String,
        /// The allowed values.
        reason: &'static str,
    },

    /// An input matches no file.
    #[error("no input file in {input:?}: check the path; names that begin with _ or . are skipped")]
    NoInput {
        /// The input as given.
        input: String,
    },

    /// More files than can be numbered.
    #[error("{files} input files are more than the {max} that one build can read: merge them")]
    TooManyFiles {
        /// The number of files.
        files: usize,
        /// The limit.
        max: usize,
    },

    /// The format cannot be derived from the file's name.
    #[error("the name of {file:?} does not tell its format: use --format parquet, avro, jsonl, csv or arrow")]
    UnknownFormat {
        /// The file.
        file: PathBuf,
    },

    /// A file in a format that is not read.
    #[error(
        "{file:?} is in the format {format}, which is not read: write it as Parquet, for instance in Python with \
         pyarrow.parquet.write_table({reader}, \"FILE.parquet\"), and use that as input"
    )]
    UnsupportedFormat {
        /// The file.
        file: PathBuf,
        /// The format.
        format: &'static str,
        /// How Python reads it.
        reader: &'static str,
    },

    /// Files have different columns.
    #[error(
        "{file:?} has other columns than {other:?}: {}; write them alike, or take each as it is with --allow-drift",
        .differences.join("; ")
    )]
    Drift {
        /// The file.
        file: PathBuf,
        /// Another file.
        other: PathBuf,
        /// Each column that differs, and how.
        differences: Vec<String>,
    },

    /// A file could not be read: missing, forbidden, truncated, or in another format.
    #[error("cannot read {file:?}: {reason}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },

    /// A file belongs to a table, whose other files say which of its rows count.
    #[error(
        "{table:?} is a table of {format}, whose files alone would bring back deleted and replaced rows: write its current \
         rows to Parquet in another directory, with {reader} or with Spark, and use that as input"
    )]
    TableFormat {
        /// The directory of the table.
        table: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// A program that reads it.
        reader: String,
    },

    /// A requested column is missing.
    #[error(
        "{file:?} has no column {column:?}{}: its columns are {}{}{}",
        did_you_mean(.nearest),
        quoted(.existing),
        other_delimiter(*.delimiter),
        no_header(*.headerless)
    )]
    MissingColumn {
        /// The file.
        file: PathBuf,
        /// The requested column.
        column: String,
        /// The existing columns.
        existing: Vec<String>,
        /// The most similar column name.
        nearest: Option<String>,
        /// The likely delimiter of this CSV, if it differs from the one used.
        delimiter: Option<char>,
        /// The number of columns of this CSV, if its first row seems to be no header.
        headerless: Option<usize>,
    },

    /// Two columns of a file have the same name.
    #[error("two columns of {file:?} have the name {column:?}: rename one of them where the file is written")]
    SameName {
        /// The file.
        file: PathBuf,
        /// The name.
        column: String,
    },

    /// The type of a column cannot be a key or a value.
    #[error("column {column:?} of {file:?} has type {data_type}: {reason}")]
    UnsupportedType {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// The supported types.
        reason: &'static str,
    },

    /// More bad rows than allowed.
    #[error(
        "{count} bad row(s), more than the {max} allowed: fix them, or skip more with --max-bad-rows{}",
        listed(.samples)
    )]
    BadRows {
        /// How many were found before the build stopped.
        count: u64,
        /// The limit.
        max: u64,
        /// The first few.
        samples: Vec<BadRow>,
    },

    /// Two rows have the same key.
    #[error("key {key:?} occurs twice, in {first} and in {second}: fix the input, or use --on-duplicate first or last")]
    Duplicate {
        /// The key, as text, shortened.
        key: String,
        /// The row of the first occurrence.
        first: RowPlace,
        /// The row of the second occurrence.
        second: RowPlace,
    },

    /// A label or an edge type has an invalid name.
    #[error(
        "invalid {what} {name:?}: use letters, digits and underscores, the first no digit, at most {}",
        fondaco_graph::Description::NAME_BYTES_MAX
    )]
    InvalidName {
        /// The kind of thing that it names.
        what: &'static str,
        /// The name.
        name: String,
    },

    /// An option names an edge type without edges.
    #[error("{option} names the edge type {name:?}, which no file has: the types are {}", quoted(.existing))]
    UnknownType {
        /// The option.
        option: &'static str,
        /// The name.
        name: String,
        /// The types of the files.
        existing: Vec<String>,
    },

    /// Two rows of vertices have the same name.
    #[error(
        "vertex {name:?} occurs twice, in {first} and in {second}: fix the input, or use --on-duplicate first or last"
    )]
    DuplicateVertex {
        /// The name, shortened.
        name: String,
        /// The row of one occurrence.
        first: RowPlace,
        /// The row of another one.
        second: RowPlace,
    },

    /// Two rows have the same edge, with properties.
    #[error(
        "an edge of type {edge_type} with properties occurs twice, in {first} and in {second}: fix the input, or use \
         --on-duplicate first or last"
    )]
    DuplicateEdge {
        /// The type.
        edge_type: String,
        /// The row of one occurrence.
        first: RowPlace,
        /// The row of another one.
        second: RowPlace,
    },

    /// Edges lead to vertices that no file of vertices has.
    #[error(
        "{count} name(s) in edges are in no file of vertices, the first is {name:?} in {place}: add them there, or use \
         --unknown-vertices add or skip"
    )]
    UnknownVertices {
        /// How many names.
        count: u64,
        /// The first one, shortened.
        name: String,
        /// The row of an edge.
        place: RowPlace,
    },

    /// A file of vertices has a column `name` besides the one with the names.
    #[error(
        "vertices have a column \"name\", but the names are in column {column:?}: a vertex has its name as property \
         \"name\", so rename that column, or use --vertex-name name"
    )]
    NameColumn {
        /// The column with the names.
        column: String,
    },

    /// More different names of properties than a graph can have.
    #[error("vertices have more than {max} different properties: put rare ones into one property, as JSON")]
    TooManyProperties {
        /// The limit.
        max: usize,
    },

    /// The value of a key of a graph would be too long.
    #[error(
        "the value of key {key:?} would have {bytes} bytes, more than {max}: divide it, for instance into more types"
    )]
    ValueTooLong {
        /// The key.
        key: String,
        /// How long it would be, or the least length that it would have.
        bytes: usize,
        /// The limit.
        max: usize,
    },

    /// The ids that the current version of a graph gave to names are unknown or impossible.
    #[error("cannot keep the ids of vertices: {reason}")]
    KnownIds {
        /// Why.
        reason: String,
    },

    /// There was no good row.
    #[error("the input has no rows: check it, or allow an empty version with --allow-empty")]
    EmptyInput,

    /// The output directory is in use.
    #[error("{output:?} is not empty: choose a new directory for the version, or delete it{}", leftover(.unfinished))]
    OutputNotEmpty {
        /// The directory.
        output: String,
        /// Whether it looks like the output of a killed build.
        unfinished: bool,
    },

    /// The disk does not have enough space.
    #[error(
        "{place:?} has {free_bytes} bytes free and the build needs about {needed_bytes}: free space or choose another place"
    )]
    NotEnoughSpace {
        /// The directory of the output.
        place: String,
        /// The free space.
        free_bytes: u64,
        /// The least space needed.
        needed_bytes: u64,
    },

    /// Temporary files could not be written or read.
    #[error("cannot use temporary files in {directory:?}: {source}; free some space, or choose another directory")]
    Temporary {
        /// Their directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The output could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// A chunk could not be written.
    #[error("cannot write a chunk to {output:?}: {source}")]
    Chunk {
        /// The directory of the version.
        output: String,
        /// The error of the writer.
        source: FormatError,
    },

    /// A version cannot be the base of an incremental build.
    #[error("cannot build on the version in {base:?}: {reason}")]
    Base {
        /// Its directory.
        base: String,
        /// The reason, with the remedy.
        reason: String,
    },

    /// A task of a build failed.
    #[error(transparent)]
    Task(#[from] TaskError),

    /// The build was cancelled.
    #[error("the build was cancelled: nothing was kept")]
    Cancelled,
}

impl BuildError {
    /// The code of the error, for programs: `version_complete`, if an abort was refused because the output is a version, or
    /// `failed`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Task(TaskError::CompleteVersion { .. }) => "version_complete",
            _ => "failed",
        }
    }

    pub(crate) fn temporary(directory: &Path, source: io::Error) -> Self {
        Self::Temporary {
            directory: directory.to_owned(),
            source,
        }
    }

    pub(crate) fn base(base: &Location, reason: impl fmt::Display) -> Self {
        Self::Base {
            base: base.to_string(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn temporary_damaged(directory: &Path) -> Self {
        Self::temporary(
            directory,
            io::Error::new(io::ErrorKind::InvalidData, "a record is damaged"),
        )
    }

    pub(crate) fn unreadable(file: &Path, reason: impl fmt::Display) -> Self {
        Self::Unreadable {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn duplicate(files: &[PathBuf], key: &[u8], first: RowId, second: RowId) -> Self {
        Self::Duplicate {
            key: excerpt(key),
            first: RowPlace::of(files, first),
            second: RowPlace::of(files, second),
        }
    }

    pub(crate) fn missing_column(file: &Path, column: &str, existing: Vec<String>) -> Self {
        let nearest = existing
            .iter()
            .map(|name| {
                (
                    strsim::damerau_levenshtein(&name.to_lowercase(), &column.to_lowercase()),
                    name,
                )
            })
            .filter(|(distance, name)| *distance <= name.chars().count().div_ceil(3))
            .min()
            .map(|(_, name)| name.clone());
        Self::MissingColumn {
            file: file.to_owned(),
            column: column.to_owned(),
            existing,
            nearest,
            delimiter: None,
            headerless: None,
        }
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

fn other_delimiter(delimiter: Option<char>) -> String {
    delimiter.map_or_else(String::new, |delimiter| {
        format!(
            "; they look separated by {delimiter:?}: use --delimiter '{}'",
            delimiter.escape_default()
        )
    })
}

fn no_header(columns: Option<usize>) -> String {
    const NAMES_MAX: usize = 4;
    columns.map_or_else(String::new, |columns| {
        let mut names: Vec<String> = (1..=columns.min(NAMES_MAX))
            .map(|number| format!("c{number}"))
            .collect();
        if columns > NAMES_MAX {
            names.push("…".to_owned());
        }
        format!(
            "; if its first row is no header, name its {columns} columns: --no-header --columns {}",
            names.join(",")
        )
    })
}

fn leftover(unfinished: &bool) -> &'static str {
    if *unfinished {
        "; it has no manifest, so an interrupted build left it"
    } else {
        ""
    }
}

/// Listing thousands of columns would bury the message.
fn quoted(names: &[String]) -> String {
    const NAMES_MAX: usize = 30;
    let mut text = names
        .iter()
        .take(NAMES_MAX)
        .map(|name| format!("{name:?}"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > NAMES_MAX {
        text += &format!(" and {} more", names.len() - NAMES_MAX);
    }
    text
}

fn listed(samples: &[BadRow]) -> String {
    samples.iter().map(|bad| format!("\n  {bad}")).collect()
}
