//! Finds the input files, and determines their formats.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use fondaco_storage::Location;

use super::constants::{Constant, partition_columns};
use super::table_format::refuse_tables;
use crate::error::BuildError;
use crate::options::InputFormat;
use crate::sort::RowId;

/// The path of the standard input, written as `-` on the command line.
pub(super) const STANDARD_INPUT: &str = "/dev/stdin";

/// The name of rows in memory in messages.
const IN_MEMORY: &str = "rows";

/// All files to read; their order is the order of the input.
#[derive(Debug, Default)]
pub(crate) struct InputFiles {
    /// Sorted by name; a row refers to its file by the index.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) formats: Vec<InputFormat>,
    /// Their columns of partitions.
    pub(crate) partitions: Vec<Vec<Constant>>,
    /// Their total length.
    pub(crate) bytes: u64,
    /// How many files of the build come before the first one.
    pub(crate) first: u32,
}

impl InputFiles {
    /// The rows that a program has in memory, as one file.
    pub(crate) fn in_memory() -> Self {
        Self {
            paths: vec![PathBuf::from(IN_MEMORY)],
            formats: vec![InputFormat::Arrow],
            partitions: vec![Vec::new()],
            bytes: 0,
            first: 0,
        }
    }
}

/// Finds all files that the inputs match, each once.
pub(crate) fn discover(inputs: &[String], format: Option<InputFormat>) -> Result<InputFiles, BuildError> {
    let mut paths = Vec::new();
    for input in inputs {
        let before = paths.len();
        expand(input, &mut paths)?;
        if paths.len() == before {
            return Err(BuildError::NoInput { input: input.clone() });
        }
    }
    if paths.is_empty() {
        return Err(BuildError::NoInput { input: String::new() });
    }
    paths.sort();
    paths.dedup();
    if paths.len() > RowId::FILES_MAX {
        return Err(BuildError::TooManyFiles {
            files: paths.len(),
            max: RowId::FILES_MAX,
        });
    }
    refuse_tables(&paths)?;
    let mut formats = Vec::with_capacity(paths.len());
    let mut bytes = 0;
    for path in &paths {
        let metadata = fs::metadata(path).map_err(|e| BuildError::unreadable(path, e))?;
        if metadata.is_file() {
            refuse_unsupported(path)?;
        }
        let by_name = || format_of_name(path).ok_or_else(|| BuildError::UnknownFormat { file: path.clone() });
        formats.push(format.map_or_else(by_name, Ok)?);
        if matches!(formats.last(), Some(InputFormat::Parquet | InputFormat::Avro)) && !metadata.is_file() {
            let reason = "Parquet and Avro are not read from a pipe: write the data to a file, and use that as input";
            return Err(BuildError::unreadable(path, reason));
        }
        bytes += metadata.len();
    }
    Ok(InputFiles {
        partitions: partition_columns(&paths),
        paths,
        formats,
        bytes,
        first: 0,
    })
}

fn expand(input: &str, paths: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    if input == "-" {
        paths.push(PathBuf::from(STANDARD_INPUT));
        return Ok(());
    }
    let location: Location = input.parse()?;
    let Some(path) = location.local_path() else {
        return Ok(());
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => walk(path, paths),
        Ok(_) => {
            paths.push(path.to_owned());
            Ok(())
        }
        Err(e) => match path.to_str() {
            Some(pattern) if pattern.contains(['*', '?', '[']) => expand_glob(pattern, paths),
            _ => Err(BuildError::unreadable(path, e)),
        },
    }
}

fn expand_glob(pattern: &str, paths: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let matches = glob::glob(pattern).map_err(|e| BuildError::unreadable(Path::new(pattern), e))?;
    for path in matches {
        let path = path.map_err(|e| BuildError::unreadable(e.path(), e.error()))?;
        if path.is_dir() {
            walk(&path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// Adds all files below a folder, except hidden ones and the marker files of Hadoop and Spark. A folder `_a=1` is a partition.
fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let failed = |e| BuildError::unreadable(folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name.starts_with('_') && !name.contains('=') {
            continue;
        }
        let path = entry.path();
        // Links to folders are not followed: they could form a cycle.
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(&path, paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Refuses files of columnar formats that are not read, by their first bytes.
fn refuse_unsupported(path: &Path) -> Result<(), BuildError> {
    let mut magic = Vec::new();
    let mut file = fs::File::open(path).map_err(|e| BuildError::unreadable(path, e))?;
    file.by_ref()
        .take(8)
        .read_to_end(&mut magic)
        .map_err(|e| BuildError::unreadable(path, e))?;
    let (format, reader) = match &magic[..] {
        [b'O', b'R', b'C', ..] => ("ORC", "pyarrow.orc.read_table(FILE)"),
        [b'F', b'E', b'A', b'1', ..] => ("Feather, version 1", "pyarrow.feather.read_table(FILE)"),
        _ => return Ok(()),
    };
    Err(BuildError::UnsupportedFormat {
        file: path.to_owned(),
        format,
        reader,
    })
}

fn format_of_name(path: &Path) -> Option<InputFormat> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    match without_compression(&name).rsplit_once('.')?.1 {
        "parquet" | "pq" => Some(InputFormat::Parquet),
        "avro" => Some(InputFormat::Avro),
        "jsonl" | "ndjson" | "json" => Some(InputFormat::Jsonl),
        "csv" | "tsv" | "tab" => Some(InputFormat::Csv),
        "arrow" | "arrows" | "feather" | "ipc" => Some(InputFormat::Arrow),
        _ => None,
    }
}

/// A file name without the extension of its compression.
pub(super) fn without_compression(name: &str) -> &str {
    [".gz", ".gzip", ".zst", ".zstd"]
        .iter()
        .find_map(|compression| name.strip_suffix(compression))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/_temporary")).unwrap();
        for name in [
            "b/2.csv",
            "a.parquet",
            "b/1.csv.gz",
            "_SUCCESS",
            ".hidden.csv",
            "b/_temporary/x.csv",
        ] {
            fs::write(folder.path().join(name), "12345").unwrap();
        }
        folder
    }

    fn names(files: &InputFiles, folder: &Path) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        files.paths.iter().map(name).collect()
    }

    #[test]
    fn a_folder_is_read_in_name_order_without_markers() {
        let folder = folder();
        let files = discover(&[folder.path().to_str().unwrap().to_owned()], None).unwrap();
        assert_eq!(names(&files, folder.path()), ["a.parquet", "b/1.csv.gz", "b/2.csv"]);
        assert_eq!(
            files.formats,
            [InputFormat::Parquet, InputFormat::Csv, InputFormat::Csv]
        );
        assert_eq!(files.bytes, 15);
    }

    #[test]
    fn a_file_named_twice_is_read_once() {
        let folder = folder();
        let root = folder.path().to_str().unwrap();
        let files = discover(&[format!("{root}/b/*.csv"), format!("file://{root}/b/2.csv")], None).unwrap();
        assert_eq!(names(&files, folder.path()), ["b/2.csv"]);
    }

    #[test]
    fn the_error_for_a_missing_input_names_it() {
        let folder = folder();
        let root = folder.path().to_str().unwrap();
        for input in ["nothing.csv", "*.avro", "b/_temporary/none*"] {
            let error = discover(&[format!("{root}/{input}")], None).unwrap_err();
            assert!(error.to_string().contains(input), "{error}");
        }
        assert!(matches!(discover(&[], None), Err(BuildError::NoInput { .. })));
    }

    #[test]
    fn an_unknown_file_name_needs_an_explicit_format() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("part-00000"), "x").unwrap();
        let input = [folder.path().to_str().unwrap().to_owned()];
        assert!(matches!(discover(&input, None), Err(BuildError::UnknownFormat { .. })));
        assert_eq!(
            discover(&input, Some(InputFormat::Csv)).unwrap().formats,
            [InputFormat::Csv]
        );
    }
}
