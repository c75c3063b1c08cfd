//! The report of a build.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_format::Manifest;

use crate::sort::RowId;

/// The longest excerpt of a row or a key, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// The result of a build.
#[derive(Debug, Clone)]
pub struct BuildReport {
    /// The number of input files.
    pub files: u64,
    /// The number of rows read, including bad ones and duplicates.
    pub rows: u64,
    /// The number of records in the version.
    pub records: u64,
    /// The total size of their keys and values, in bytes, before compression.
    pub bytes: u64,
    /// The number of rows dropped because another one with the same key was kept.
    pub duplicates: u64,
    /// The number of skipped bad rows.
    pub bad_rows: u64,
    /// The first few bad rows.
    pub bad_row_samples: Vec<BadRow>,
    /// The number of partitions with records.
    pub partitions: u32,
    /// The number of chunks that were, or in a dry run would be, written.
    pub chunks: u64,
    /// The bytes written to temporary files because they did not fit into memory.
    pub spilled_bytes: u64,
    /// How long reading the input took.
    pub reading: Duration,
    /// How long writing the version took.
    pub writing: Duration,
    /// The manifest; `None` after a dry run.
    pub manifest: Option<Manifest>,
}

/// A row of an input file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The file.
    pub file: PathBuf,
    /// The row in it, counted from 1. In JSON lines it is the line; in CSV the header does not count.
    pub row: u64,
}

/// A row that could not be converted to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its place.
    pub place: RowPlace,
    /// The error.
    pub reason: String,
    /// The beginning of the row.
    pub sample: String,
}

impl RowPlace {
    pub(crate) fn of(files: &[PathBuf], row: RowId) -> Self {
        let file = files.get(row.file() as usize).map_or(Path::new("?"), PathBuf::as_path);
        Self {
            file: file.to_owned(),
            row: row.row(),
        }
    }
}

impl fmt::Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} row {}", self.file, self.row)
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.reason, self.sample)
    }
}

/// The beginning of some bytes as text on one line.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(EXCERPT_CHARS_MAX * 4)];
    let mut text: String = String::from_utf8_lossy(beginning)
        .trim_end()
        .chars()
        .take(EXCERPT_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().count() == EXCERPT_CHARS_MAX {
        text.push('…');
    }
    text
}
