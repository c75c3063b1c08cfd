//! Cleaning frees space and loses nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fondaco_engine::Engine;
use fondaco_testing::wait_until;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{
    DEADLINE, Records, SEGMENT_BYTES, all, churn, first_sealed, open, open_table, put_and_delete, segments,
    wait_for_rest, write_until,
};
use crate::conformance::engines::{delete, put};

#[test]
fn cleaning_frees_space_and_keeps_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut records = Records::new();
    for round in 0..3 {
        let (engine, table) = open_table(dir.path());
        assert_eq!(all(&*table), records, "round {round}");
        churn(&engine, &*table, &mut records, &mut random);
        let live: usize = records.iter().map(|(key, value)| key.len() + value.len() + 20).sum();
        // Half of it may be garbage, and some segments are tolerated.
        let most = live as u64 * 2 + 8 * SEGMENT_BYTES;
        wait_until("it is not cleaned", DEADLINE, || {
            put(&engine, &*table, b"one more", b"");
            segments(dir.path()).len() as u64 * SEGMENT_BYTES <= most
        });
        records.insert(b"one more".to_vec(), Vec::new());
        assert_eq!(all(&*table), records, "round {round}");
    }
}

#[test]
fn a_tombstone_outlives_the_cleaning_of_its_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    // The first segment keeps records that are not overwritten, and the record of the deleted key.
    put(&engine, &*table, b"deleted", &[1; 100]);
    for number in 0..55_u8 {
        put(&engine, &*table, &[b'k', number], &[number; 1000]);
    }
    delete(&engine, &*table, b"deleted");
    let first = segments(dir.path())[0].clone();
    for number in 0..3000_u32 {
        put(&engine, &*table, b"again and again", &number.to_be_bytes().repeat(200));
    }
    write_until(
        "the segment of the deletion is not cleaned",
        &engine,
        &*table,
        b"again and again",
        || segments(dir.path()).len() <= 8,
    );
    assert!(first.exists(), "the deleted record should still be in the log");
    drop((table, engine));
    let (_engine, table) = open_table(dir.path());
    assert_eq!(table.get(b"deleted").unwrap(), None);
    assert_eq!(table.approximate_len(), 56);
}

/// A file that cannot be deleted while this lives.
struct Immutable(fs::File, IFlags);

impl Immutable {
    /// `None` where this process may not make one, or the file system knows none, which is printed.
    fn make(path: &Path) -> Option<Self> {
        let file = fs::File::open(path).unwrap();
        let before = ioctl_getflags(&file);
        let made = before.and_then(|before| ioctl_setflags(&file, before | IFlags::IMMUTABLE).map(|()| before));
        if let Err(error) = made {
            eprintln!("skipped: a file cannot be made immutable (it needs root, and ext4 or xfs): {error}");
        }
        Some(Self(file, made.ok()?))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        ioctl_setflags(&self.0, self.1).unwrap();
    }
}

#[test]
fn a_segment_that_cannot_be_deleted_brings_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    put(&engine, &*table, b"deleted", &[1; 100]);
    for number in 0..80_u8 {
        put(&engine, &*table, &[b'k', number], &[number; 1000]);
    }
    let first = first_sealed(dir.path());
    let Some(immutable) = Immutable::make(&first) else {
        return;
    };
    delete(&engine, &*table, b"deleted");
    for number in 0..80_u8 {
        put(&engine, &*table, &[b'k', number], b"");
    }
    // The segments of the deletion are cleaned, again and again.
    for number in 0..6000_u32 {
        put(&engine, &*table, b"again and again", &number.to_be_bytes().repeat(200));
    }
    wait_until("the first segment is cleaned", DEADLINE, || {
        !first.with_extension("keys").exists()
    });
    write_until(
        "the other segments are cleaned",
        &engine,
        &*table,
        b"again and again",
        || segments(dir.path()).len() <= 8,
    );
    drop((table, engine));
    assert!(first.exists());
    drop(immutable);
    let (engine, table) = open_table(dir.path());
    assert_eq!(table.get(b"deleted").unwrap(), None);
    assert_eq!(table.approximate_len(), 81);
    write_until("it is deleted at last", &engine, &*table, b"again and again", || {
        !first.exists()
    });
    assert_eq!(table.get(b"deleted").unwrap(), None);
}

#[test]
fn tombstones_kept_for_an_old_segment_are_dropped_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    // The first segment is never worth cleaning.
    for number in 0..65_u8 {
        put(&engine, &*table, &[number], &[number; 960]);
    }
    let first = segments(dir.path())[0].clone();
    put_and_delete(&engine, &*table);
    // The tolerated garbage and tombstones, and the live records.
    let is_clean = || !first.exists() && segments(dir.path()).len() <= 12;
    wait_until("it is not cleaned", DEADLINE, is_clean);
    wait_for_rest(&engine, dir.path());
    assert!(is_clean(), "{} segments", segments(dir.path()).len());
    drop((table, engine));
    let (engine, table) = open_table(dir.path());
    assert_eq!(all(&*table).len(), 65);
    wait_for_rest(&engine, dir.path());
}

#[test]
fn cleaning_terminates_whatever_was_written_and_deleted() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut records: BTreeMap<&str, Records> = BTreeMap::new();
        for _ in 0..3 {
            let engine = open(dir.path());
            for _ in 0..random.usize(1..6) {
                let name = ["one", "two"][random.usize(..2)];
                let table = engine.open_table(name).unwrap();
                let records = records.entry(name).or_default();
                assert!(all(&*table) == *records, "seed {seed}");
                match random.u8(..6) {
                    0 => churn(&engine, &*table, records, &mut random),
                    // Records that stay, of any length.
                    1 => {
                        for _ in 0..random.usize(..400) {
                            let (key, value) = (random.u64(..).to_be_bytes(), vec![1; random.usize(..1500)]);
                            put(&engine, &*table, &key, &value);
                            records.insert(key.to_vec(), value);
                        }
                    }
                    // Records that come and go, with unique keys or with few keys.
                    kind @ 2..5 => {
                        let names = if kind == 2 { 100 } else { u64::MAX };
                        for _ in 0..random.usize(..15_000) {
                            let key = (random.u64(..) % names).to_be_bytes();
                            put(&engine, &*table, &key, b"");
                            delete(&engine, &*table, &key);
                            records.remove(&key[..]);
                        }
                    }
                    _ => {
                        engine.drop_table(name).unwrap();
                        records.clear();
                    }
                }
            }
            wait_for_rest(&engine, dir.path());
        }
        let engine = open(dir.path());
        for (name, records) in records {
            assert!(all(&*engine.open_table(name).unwrap()) == records, "seed {seed}");
        }
    }
}
