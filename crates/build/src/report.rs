//! What a build tells of what it read and wrote.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_format::Manifest;

use crate::sort::RowId;

/// The longest excerpt of a row or a key that is shown, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// What a build did.
#[derive(Debug, Clone)]
pub struct BuildReport {
    /// How many input files were read.
    pub files: u64,
    /// How many rows were read, bad ones and duplicates included.
    pub rows: u64,
    /// How many records the version has.
    pub records: u64,
    /// How many bytes their keys and values have together, before compression.
    pub bytes: u64,
    /// How many rows were dropped because another one with the same key was kept.
    pub duplicates: u64,
    /// How many bad rows were skipped.
    pub bad_rows: u64,
    /// The first few bad rows.
    pub bad_row_samples: Vec<BadRow>,
    /// How many partitions have records.
    pub partitions: u32,
    /// How many chunks were, or would be, written.
    pub chunks: u64,
    /// How many bytes went to temporary files because they passed the memory.
    pub spilled_bytes: u64,
    /// How long the input was read.
    pub reading: Duration,
    /// How long the version was written.
    pub writing: Duration,
    /// What was written; `None` after a dry run.
    pub manifest: Option<Manifest>,
}

/// A row of an input file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The file.
    pub file: PathBuf,
    /// The row in it, counted from 1. In JSON lines it is the line; of CSV the header is not a row.
    pub row: u64,
}

/// A row of which no record could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Where it is.
    pub place: RowPlace,
    /// What is wrong with it.
    pub reason: String,
    /// Its beginning.
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
