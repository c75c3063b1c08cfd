//! Parts of files that the disk cannot read.

use std::fs;
use std::path::{Path, PathBuf};

use fondaco_engine::{EngineError, WriteBatch};
use fondaco_testing::fail_reads;

use super::engines::{Kind, Options};
use super::rot::{
    Opened, content, copy_without_keys, files, is_log, last_log, open_noting, read, wait_until_still, written,
};

/// The file and the offset of these bytes.
fn find(files: &[PathBuf], bytes: &[u8]) -> (PathBuf, u64) {
    let mut places = files.iter().filter_map(|path| {
        let content = fs::read(path).unwrap();
        let at = content.windows(bytes.len()).position(|window| window == bytes)?;
        Some((path.clone(), at as u64))
    });
    places.next_back().expect("no file has these bytes")
}

/// An engine that reads from the disk and not from a cache.
fn cold() -> Options {
    Options {
        cache_bytes: 0,
        ..Options::default()
    }
}

pub fn an_unreadable_record_is_damage_of_its_key(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let records = written(kind, dir.path());
    let engine = kind.open(dir.path(), cold()).unwrap();
    // Compaction would move the record to another file, or meet the unreadable place first, and stop the writes.
    wait_until_still(dir.path());
    // Records in a file that is read only on demand.
    let candidates: Vec<_> = files(dir.path())
        .into_iter()
        .filter(|path| (kind == Kind::Log) == is_log(path))
        .collect();
    let is_stored = |value: &[u8]| {
        let has = |path: &PathBuf| content(path).windows(value.len()).any(|window| window == value);
        value.len() > 700 && candidates.iter().any(has)
    };
    let (key, value) = records.iter().find(|(_, value)| is_stored(value)).unwrap();
    let (path, at) = find(&candidates, value);
    let table = engine.open_table("t").unwrap();
    let unreadable = match kind {
        Kind::Log => fail_reads(&path, at..at + 1),
        // The preceding data in the block is never read separately.
        Kind::Tree => fail_reads(&path, 0..at + 1),
    };
    let error = table.get(key).unwrap_err();
    assert_eq!(error.damaged_key(), Some(&key[..]), "{error}");
    assert!(error.to_string().contains("os error 5"), "{error}");
    let damage = engine.damage().unwrap();
    assert!(damage.contains(dir.path().to_str().unwrap()), "{damage}");
    if kind == Kind::Log {
        let mut expected = records.iter();
        for entry in table.scan(b"", None).unwrap() {
            let (expected_key, expected_value) = expected.next().unwrap();
            match entry {
                Ok((key, value)) => assert_eq!((&key[..], &value[..]), (&expected_key[..], &expected_value[..])),
                Err(error) => {
                    assert_eq!(error.damaged_key(), Some(&key[..]), "{error}");
                    assert_eq!(expected_key, key);
                }
            }
        }
        assert_eq!(expected.next(), None, "the scan ends too early");
    }
    let mut batch = WriteBatch::new();
    batch.put(&*table, key.clone().into(), "new".into());
    engine.write(batch).unwrap();
    assert_eq!(table.get(key).unwrap().as_deref(), Some(&b"new"[..]));
    if kind == Kind::Log {
        assert_eq!(engine.damage(), None, "an overwritten record is not damage");
    }
    drop(unreadable);
}

#[test]
fn only_data_that_is_unreadable_at_startup_is_lost() {
    let kind = Kind::Log;
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source.path(), copy.path());
    let log = last_log(copy.path());
    let middle = content(&log).len() as u64 / 2;
    let unreadable = fail_reads(&log, middle..middle + 1);
    let refused = kind.open(copy.path(), Options::default()).err();
    assert!(matches!(refused, Some(EngineError::Corrupt { .. })), "{refused:?}");
    let Opened { engine, lost_writes } = open_noting(kind, copy.path()).unwrap();
    let lost = lost_writes.unwrap();
    assert!(lost.contains(log.file_name().unwrap().to_str().unwrap()), "{lost}");
    assert!(lost.contains("os error 5"), "{lost}");
    let has_copy = |path: &Path| path.to_str().unwrap().contains("-damaged");
    assert!(
        files(copy.path()).iter().any(|path| has_copy(path)),
        "the damaged file is not kept"
    );
    drop(unreadable);
    let table = engine.open_table("t").unwrap();
    let differing = records
        .iter()
        .filter(|(key, value)| table.get(key).unwrap().as_deref() != Some(&value[..]))
        .count();
    // A place of 4 KiB, and the batches that overlap it, of up to 4 KiB each.
    assert!((1..=20).contains(&differing), "{differing} of {}", records.len());
}

#[test]
fn a_tree_whose_log_is_unreadable_does_not_open_and_loses_nothing() {
    let kind = Kind::Tree;
    let dir = tempfile::tempdir().unwrap();
    let records = written(kind, dir.path());
    let log = last_log(dir.path());
    let middle = content(&log).len() as u64 / 2;
    let unreadable = fail_reads(&log, middle..middle + 1);
    let refused = kind.open(dir.path(), Options::default()).err();
    for error in [refused, open_noting(kind, dir.path()).err()] {
        let error = error.unwrap();
        assert!(error.to_string().contains("os error 5"), "{error}");
    }
    drop(unreadable);
    let engine = kind.open(dir.path(), Options::default()).unwrap();
    assert_eq!(read(&*engine, &records), 0);
}
