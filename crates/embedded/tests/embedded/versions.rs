//! Versions for tests: each value contains its key and the mark of its version.

use std::fs;
use std::path::{Path, PathBuf};

use fondaco_builder::{BuildOptions, Progress, ValueSelection, build};
use fondaco_format::Compression;
use fondaco_model::StoreName;
use fondaco_storage::Location;

pub(crate) const STORE: &str = "cities";

pub(crate) fn store() -> StoreName {
    STORE.parse().unwrap()
}

pub(crate) fn key(number: usize) -> String {
    format!("key-{number}")
}

pub(crate) fn value(number: usize, mark: u64) -> String {
    format!("{}:{mark}:{}", key(number), "x".repeat(number % 97))
}

/// Options for a version of the keys below `keys` in a folder of `dir`. The values of keys below `changed` have the mark,
/// and all others have mark 0.
pub(crate) fn options(dir: &Path, partitions: u32, keys: usize, changed: usize, mark: u64) -> BuildOptions {
    let rows = dir.join(format!("rows-{mark}.csv"));
    let line = |number| {
        let mark = if number < changed { mark } else { 0 };
        format!("{},{}\n", key(number), value(number, mark))
    };
    let lines: String = std::iter::once("id,city\n".to_owned())
        .chain((0..keys).map(line))
        .collect();
    fs::write(&rows, lines).unwrap();
    let mut options = BuildOptions::new(
        store(),
        partitions.try_into().unwrap(),
        vec![rows.display().to_string()],
        "id",
        Location::local(dir.join(format!("built-{mark}"))),
        dir.to_owned(),
    );
    options.value = ValueSelection::Column("city".into());
    options
}

/// Builds a version in which all values have the mark.
pub(crate) fn built(dir: &Path, partitions: u32, keys: usize, mark: u64, compression: Compression) -> PathBuf {
    let mut options = options(dir, partitions, keys, keys, mark);
    options.compression = compression;
    built_with(&options)
}

pub(crate) fn built_with(options: &BuildOptions) -> PathBuf {
    build(options, &Progress::default()).unwrap();
    options.output.local_path().unwrap().to_owned()
}
