//! What can go wrong with a build, each with what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use fondaco_format::FormatError;
use fondaco_storage::StorageError;

use crate::report::{BadRow, RowPlace, excerpt};
use crate::sort::RowId;

/// Why a build failed. Nothing it wrote is left behind.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An option has a value that no build can have.
    #[error("invalid {option} {value}: {reason}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// Its value, quoted if it is a text.
        value: String,
        /// What is allowed.
        reason: &'static str,
    },

    /// An input names no file.
    #[error("no input file in {input:?}: check the path; names that begin with _ or . are skipped")]
    NoInput {
        /// What was asked for.
        input: String,
    },

    /// More files than can be numbered.
    #[error("{files} input files are more than the {max} that one build can read: merge them")]
    TooManyFiles {
        /// How many there are.
        files: usize,
        /// How many there may be.
        max: usize,
    },

    /// A file's name does not tell its format.
    #[error("the name of {file:?} does not tell its format: say --format parquet, avro, jsonl or csv")]
    UnknownFormat {
        /// The file.
        file: PathBuf,
    },

    /// A file could not be read: missing, forbidden, truncated, or not what its name says.
    #[error("cannot read {file:?}: {reason}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },

    /// A column that was asked for is not there.
    #[error(
        "{file:?} has no column {column:?}{}: its columns are {}{}",
        did_you_mean(.nearest),
        quoted(.existing),
        other_delimiter(*.delimiter)
    )]
    MissingColumn {
        /// The file.
        file: PathBuf,
        /// The column that was asked for.
        column: String,
        /// The columns that there are.
        existing: Vec<String>,
        /// The most similar of them.
        nearest: Option<String>,
        /// What separates the columns of this CSV, if it looks like something else than it was read with.
        delimiter: Option<char>,
    },

    /// Two columns of a file have one name.
    #[error("two columns of {file:?} have the name {column:?}: rename one of them where the file is written")]
    SameName {
        /// The file.
        file: PathBuf,
        /// The name.
        column: String,
    },

    /// A column has a type of which no key, or no value, can be made.
    #[error("column {column:?} of {file:?} has type {data_type}: {reason}")]
    UnsupportedType {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// Which types there may be.
        reason: &'static str,
    },

    /// More bad rows than allowed.
    #[error(
        "{count} bad row(s), more than the {max} allowed: mend them, or skip more with --max-bad-rows{}",
        listed(.samples)
    )]
    BadRows {
        /// How many were found before the build stopped.
        count: u64,
        /// How many were allowed.
        max: u64,
        /// The first few.
        samples: Vec<BadRow>,
    },

    /// Two rows have one key.
    #[error(
        "key {key:?} comes twice, in {first} and in {second}: mend the input, or choose with --on-duplicate first or last"
    )]
    Duplicate {
        /// The key, as text, shortened.
        key: String,
        /// Where it comes first.
        first: RowPlace,
        /// Where it comes again.
        second: RowPlace,
    },

    /// There was not a single good row.
    #[error("the input has no row: check it, or allow an empty version with --allow-empty")]
    EmptyInput,

    /// The output directory is in use.
    #[error("{output:?} is not empty: choose a new directory for the version, or delete it{}", leftover(.unfinished))]
    OutputNotEmpty {
        /// The directory.
        output: String,
        /// Whether it looks like what a killed build left.
        unfinished: bool,
    },

    /// The disk is too small for what is to be written.
    #[error(
        "{place:?} has {free_bytes} bytes free and the build needs about {needed_bytes}: free some, or choose another place"
    )]
    NotEnoughSpace {
        /// Where it would be written.
        place: String,
        /// How much is free.
        free_bytes: u64,
        /// How much is needed, at the least.
        needed_bytes: u64,
    },

    /// Temporary files could not be written or read.
    #[error("cannot use temporary files in {directory:?}: {source}; free some space, or choose another directory")]
    Temporary {
        /// Their directory.
        directory: PathBuf,
        /// What the operating system said.
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
        /// What the writer said.
        source: FormatError,
    },

    /// Someone asked the build to stop.
    #[error("the build was cancelled: nothing was kept")]
    Cancelled,
}

impl BuildError {
    pub(crate) fn temporary(directory: &Path, source: io::Error) -> Self {
        Self::Temporary {
            directory: directory.to_owned(),
            source,
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
            "; they look separated by {delimiter:?}: say --delimiter '{}'",
            delimiter.escape_default()
        )
    })
}

fn leftover(unfinished: &bool) -> &'static str {
    if *unfinished {
        "; it has no manifest, so it is what an interrupted build left"
    } else {
        ""
    }
}

/// The columns of a table with thousands of them would bury the message.
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
