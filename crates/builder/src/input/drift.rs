//! Compares the columns of the files of a build: a column that a file lacks, or has with another type, is reported.
//!
//! JSON objects have their own columns each, and files of vertices those of their label, so they are not compared. Types
//! are compared by the text that is made of them, so integers of any length are alike, and so are a text and a dictionary
//! of texts. A column that is always null fits any type.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::RowKind;
use crate::error::BuildError;
use crate::options::BuildOptions;

/// The type of a column whose values are all null.
pub(super) const NULL: &str = "null";

/// The type of bytes.
pub(super) const BINARY: &str = "binary";

/// The type of texts.
pub(super) const TEXT: &str = "text";

/// The columns of the files so far.
pub(super) struct Drift {
    is_refused: bool,
    known: Mutex<Option<Known>>,
}

struct Known {
    /// The file that had the columns first.
    file: u32,
    /// The type of each column, and a file that has it.
    columns: BTreeMap<String, (String, u32)>,
}

impl Drift {
    pub(super) fn new(options: &BuildOptions, rows: RowKind) -> Self {
        Self {
            is_refused: !options.reading.allow_drift && rows != RowKind::Vertex,
            known: Mutex::new(None),
        }
    }

    /// Whether files must have the same columns.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Compares the used columns of a file, and their types, with those of the files before.
    pub(super) fn check(
        &self,
        files: &[PathBuf],
        file: u32,
        columns: BTreeMap<String, String>,
    ) -> Result<(), BuildError> {
        if !self.is_refused {
            return Ok(());
        }
        let mut known = self.known.lock();
        let Some(known) = &mut *known else {
            let columns = columns.into_iter().map(|(name, of_type)| (name, (of_type, file)));
            *known = Some(Known {
                file,
                columns: columns.collect(),
            });
            return Ok(());
        };
        let mut differences = Vec::new();
        let mut other = known.file;
        for name in known.columns.keys().filter(|name| !columns.contains_key(*name)) {
            differences.push(format!("it lacks {name:?}"));
        }
        for (name, of_type) in columns {
            match known.columns.get_mut(&name) {
                None => differences.push(format!("only it has {name:?}")),
                Some((of_type_known, _)) if *of_type_known == of_type || of_type == NULL => {}
                Some(before) if before.0 == NULL => *before = (of_type, file),
                Some((of_type_known, of_file)) => {
                    other = *of_file;
                    differences.push(format!(
                        "{name:?} is of type {of_type}, and there of type {of_type_known}"
                    ));
                }
            }
        }
        match differences.is_empty() {
            true => Ok(()),
            false => Err(BuildError::Drift {
                file: files[file as usize].clone(),
                other: files[other as usize].clone(),
                differences,
            }),
        }
    }
}
