//! Recognises directories of table formats: Delta Lake, Apache Iceberg and Apache Hudi.
//!
//! The files in them are not the table: its log says which files count, and which of their rows are deleted. Reading them
//! as plain files would serve deleted rows, so all files of such a table are refused, however they are named.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::BuildError;

/// A table format, and a reader of it.
struct TableFormat {
    name: &'static str,
    reader: &'static str,
}

const DELTA: TableFormat = TableFormat {
    name: "Delta Lake",
    reader: "DeltaTable(\"TABLE\").to_pyarrow_table() of Python's deltalake",
};
const ICEBERG: TableFormat = TableFormat {
    name: "Apache Iceberg",
    reader: "StaticTable.from_metadata(\"METADATA FILE\").scan().to_arrow() of Python's pyiceberg",
};
const HUDI: TableFormat = TableFormat {
    name: "Apache Hudi",
    reader: "spark.read.format(\"hudi\").load(\"TABLE\") of Spark",
};

/// Refuses files that belong to a table.
pub(super) fn refuse_tables(files: &[PathBuf]) -> Result<(), BuildError> {
    let mut seen = HashSet::new();
    for file in files {
        // A link may lead into a table, or from one.
        let real = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        for path in [file, &real] {
            for folder in path.ancestors().skip(1) {
                if !seen.insert(folder.to_owned()) {
                    break;
                }
                if let Some(format) = format_of(folder) {
                    return Err(BuildError::TableFormat {
                        table: folder.to_owned(),
                        format: format.name,
                        reader: format.reader.replace("TABLE", &folder.display().to_string()),
                    });
                }
            }
        }
    }
    Ok(())
}

/// The format of the table in a folder; `None` if there is no table.
fn format_of(folder: &Path) -> Option<TableFormat> {
    if folder.join("_delta_log").is_dir() {
        return Some(DELTA);
    }
    if folder.join(".hoodie").is_dir() {
        return Some(HUDI);
    }
    let metadata = fs::read_dir(folder.join("metadata")).ok()?;
    let is_iceberg = |name: &str| name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz");
    metadata
        .flatten()
        .any(|entry| entry.file_name().to_str().is_some_and(is_iceberg))
        .then_some(ICEBERG)
}
