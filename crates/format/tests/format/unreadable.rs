//! Open files that become unreadable: each look-up returns the right value or an error, and the process survives.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::written::{Shape, write};
use fondaco_format::{Compression, FormatError, Version, unreadable_pages};
use fondaco_model::PartitionId;

fn records() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let record = |n: u32| {
        (
            n.to_string().into_bytes(),
            format!("value {n} {}", "x".repeat(500)).into_bytes(),
        )
    };
    (0..2000).map(record).collect()
}

fn version(dir: &Path, compression: Compression) -> Version {
    let shape = Shape {
        partitions: 2,
        chunks: 1,
        compression,
    };
    write(dir, &records(), &shape);
    Version::open(dir).unwrap()
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

fn truncate(path: &Path, bytes: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(bytes)
        .unwrap();
}

/// Looks up all keys twice, so that all are in memory. Returns the number of right values, and the errors.
fn look_up_all(version: &Version) -> (usize, Vec<FormatError>) {
    let mut right = 0;
    let mut errors = Vec::new();
    for _ in 0..2 {
        (right, errors) = (0, Vec::new());
        for (key, value) in records() {
            match version.get_owned(&key) {
                Ok(found) => {
                    assert_eq!(found, Some(value), "a wrong value");
                    right += 1;
                }
                Err(error) => errors.push(error),
            }
        }
    }
    (right, errors)
}

#[test]
fn a_truncated_data_file_serves_its_rest_and_errors() {
    for compression in [Compression::None, Compression::Lz4] {
        for is_warm in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let version = version(dir.path(), compression);
            if is_warm {
                version.warm().unwrap();
            }
            assert_eq!(look_up_all(&version).0, 2000);
            assert!(version.damaged().is_empty());
            let name = &version.manifest().chunks[0].data.name;
            let before = unreadable_pages();
            truncate(&file(dir.path(), name), 20_000);
            let (right, errors) = look_up_all(&version);
            assert!(unreadable_pages() > before, "no missing page was touched");
            assert!(right > 900 && errors.len() > 100, "{right} {}", errors.len());
            assert!(errors[0].to_string().contains(name.as_str()), "{}", errors[0]);
            let damaged: Vec<PartitionId> = version.damaged().into_keys().collect();
            assert_eq!(damaged, [version.manifest().chunks[0].partition]);
        }
    }
}

#[test]
fn a_truncated_index_fails_until_it_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let version = version(dir.path(), Compression::None);
    assert_eq!(look_up_all(&version).0, 2000);
    let name = &version.manifest().chunks[1].index.name;
    truncate(&file(dir.path(), name), 4096);
    let (right, errors) = look_up_all(&version);
    assert!(right > 900 && errors.len() > 900, "{right} {}", errors.len());
    let damaged: Vec<PartitionId> = version.damaged().into_keys().collect();
    assert_eq!(damaged, [version.manifest().chunks[1].partition]);
}

#[test]
fn a_value_whose_page_becomes_unreadable_is_not_intact() {
    let dir = tempfile::tempdir().unwrap();
    let version = version(dir.path(), Compression::None);
    let (key, value) = records().pop_last().unwrap();
    // Twice: the first look-up reads the disk, and returns a copy.
    version.get(&key).unwrap();
    let found = version.get(&key).unwrap().unwrap();
    assert_eq!(&found[..], &value[..]);
    assert!(found.is_intact());
    for chunk in &version.manifest().chunks {
        truncate(&file(dir.path(), &chunk.data.name), 0);
    }
    assert_ne!(&found[..], &value[..], "the value was not mapped");
    assert!(!found.is_intact());
    assert!(version.get_owned(&key).is_err());
}

#[test]
fn readers_on_several_threads_never_see_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let version = version(dir.path(), Compression::None);
    assert_eq!(look_up_all(&version).0, 2000);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut errors = 0;
                    while errors == 0 {
                        errors = look_up_all(&version).1.len();
                    }
                    look_up_all(&version)
                })
            })
            .collect();
        for chunk in &version.manifest().chunks {
            // Whole pages: the kernel zeroes the rest of the last page after the end of the file, like a program that
            // writes to it.
            truncate(&file(dir.path(), &chunk.data.name), 20 * 4096);
        }
        for reader in readers {
            let (right, errors) = reader.join().unwrap();
            assert_eq!(right + errors.len(), 2000);
        }
    });
    assert_eq!(version.damaged().len(), 2);
}

#[test]
fn a_version_with_loaded_indexes_does_not_need_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut version = version(dir.path(), Compression::None);
    let open = |extension: &str| {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let ours = targets.filter(|path| path.starts_with(dir.path()));
        ours.filter(|path| path.extension().is_some_and(|found| found == extension))
            .count()
    };
    assert_eq!((open("data"), open("index")), (2, 2));
    version.warm_and_close().unwrap();
    assert_eq!((open("data"), open("index")), (2, 0));
    for chunk in &version.manifest().chunks {
        std::fs::remove_file(dir.path().join(&chunk.index.name)).unwrap();
    }
    assert_eq!(look_up_all(&version).0, 2000);
    assert_eq!(version.scan().map(Result::unwrap).count(), 2000);
    assert!(version.damaged().is_empty());
}
