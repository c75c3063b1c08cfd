//! Segments that are damaged, unreadable, missing or of another version.

use std::fs;
use std::sync::Arc;

use fondaco_engine::{Engine, EngineError, LogEngine, LogOptions};
use fondaco_testing::{fail_reads, wait_until};

use super::{
    DEADLINE, SEGMENT_BYTES, all, fill, first_sealed, flip_a_bit, open, open_table, put_and_delete, segments,
    wait_for_rest, write_until,
};
use crate::conformance::engines::put;
use crate::losses::Noted;

#[test]
fn tombstones_kept_for_a_damaged_segment_do_not_block_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    for number in 0..200_u8 {
        put(&engine, &*table, &[number], &[number; 960]);
    }
    let first = first_sealed(dir.path());
    drop((table, engine));
    flip_a_bit(&first);

    let (engine, table) = open_table(dir.path());
    put_and_delete(&engine, &*table);
    wait_for_rest(&engine, dir.path());
    assert!(first.exists());
    assert_eq!(table.approximate_len(), 200);
}

#[test]
fn a_damaged_record_fails_alone_and_is_not_cleaned_away() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    fill(&engine, &*table, 2000);
    let first = first_sealed(dir.path());
    drop((table, engine));
    flip_a_bit(&first);

    let (engine, table) = open_table(dir.path());
    let is_damaged = |number: u32| matches!(table.get(&number.to_be_bytes()), Err(EngineError::Corrupt { .. }));
    let damaged: Vec<_> = (0..2000).filter(|&number| is_damaged(number)).collect();
    let [damaged] = damaged[..] else { panic!("{damaged:?}") };
    // A scan reports the damage, and continues.
    for (number, entry) in table.scan(b"", None).unwrap().enumerate() {
        let key = (number as u32).to_be_bytes();
        match entry {
            Err(EngineError::Corrupt { key: Some(named), .. }) => {
                assert_eq!((number as u32, &named[..]), (damaged, &key[..]));
            }
            entry => assert_eq!(entry.unwrap(), (key.to_vec().into(), vec![number as u8; 500].into())),
        }
    }
    assert_eq!(table.scan(b"", None).unwrap().count(), 2000);
    // Everything around the record is overwritten, so the rest of its segment would be cleaned.
    for _ in 0..4 {
        for number in (100..2000_u32).chain(0..5) {
            put(&engine, &*table, &number.to_be_bytes(), &[7; 500]);
        }
    }
    wait_until("it is not cleaned", DEADLINE, || {
        put(&engine, &*table, b"one more", b"");
        segments(dir.path()).len() < 50
    });
    assert_eq!((0..2000).filter(|&number| is_damaged(number)).count(), 1);
    assert!(first.exists());
    // The record is repaired from another replica.
    put(&engine, &*table, &damaged.to_be_bytes(), &[7; 500]);
    write_until("the segment stays", &engine, &*table, b"one more", || !first.exists());
    drop((table, engine));
    let engine = open(dir.path());
    assert_eq!(all(&*engine.open_table("t").unwrap()).len(), 2001);
}

#[test]
fn a_missing_segment_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    fill(&engine, &*table, 500);
    let first = first_sealed(dir.path());
    drop((table, engine));
    fs::remove_file(&first).unwrap();
    let error = LogEngine::open(dir.path(), LogOptions::default()).err().unwrap();
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("segment 1 of the log"), "{error}");
}

#[test]
fn a_last_segment_that_was_cleaned_away_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let table = engine.open_table("dropped").unwrap();
    // One batch, more than a segment and more garbage than is tolerated, is in a segment of its own.
    put(&engine, &*table, b"long", &vec![1; 8 * SEGMENT_BYTES as usize]);
    engine.sync().unwrap();
    drop((table, engine));
    // As if the process was killed before it had made the next one.
    segments(dir.path())
        .iter()
        .skip(1)
        .for_each(|unused| fs::remove_file(unused).unwrap());
    let engine = open(dir.path());
    engine.drop_table("dropped").unwrap();
    wait_until("the segment is cleaned", DEADLINE, || segments(dir.path()).is_empty());
    drop(engine);
    // A loss would be refused.
    let engine = open(dir.path());
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, b"key", b"value");
    drop((table, engine));
    assert_eq!(all(&*open(dir.path()).open_table("t").unwrap()).len(), 1);
}

#[test]
fn unreadable_data_blocks_neither_the_cleaner_nor_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    fill(&engine, &*table, 2000);
    let first = first_sealed(dir.path());
    let unreadable = fail_reads(&first, 5000..5001);
    let is_damaged = |number: u32| match table.get(&number.to_be_bytes()) {
        Ok(_) => false,
        Err(error) => error.damaged_key() == Some(&number.to_be_bytes()[..]),
    };
    let damaged: Vec<_> = (0..2000).filter(|&number| is_damaged(number)).collect();
    let [damaged] = damaged[..] else { panic!("{damaged:?}") };
    assert!(engine.damage().is_some());
    for _ in 0..4 {
        for number in (0..2000_u32).filter(|number| *number != damaged) {
            put(&engine, &*table, &number.to_be_bytes(), &[7; 500]);
        }
    }
    wait_until(
        "the cleaner did not reach the damage, or did not continue behind it",
        DEADLINE,
        || {
            put(&engine, &*table, b"one more", &[0; 800]);
            engine.damage().is_some_and(|damage| damage.contains("segments")) && segments(dir.path()).len() < 50
        },
    );
    wait_for_rest(&engine, dir.path());
    assert!(first.exists() && is_damaged(damaged));
    put(&engine, &*table, &damaged.to_be_bytes(), &[7; 500]);
    write_until("the segment stays", &engine, &*table, b"one more", || !first.exists());
    wait_until("the damage is still reported", DEADLINE, || engine.damage().is_none());
    drop(unreadable);
}

#[test]
fn a_segment_of_another_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    put(&engine, &*table, b"key", b"value");
    drop((table, engine));
    let segment = segments(dir.path())[0].clone();
    let ours = fs::read(&segment).unwrap();
    let noted = Arc::<Noted>::default();
    let going_on = || LogOptions {
        on_loss: noted.reaction(),
        ..LogOptions::default()
    };
    // A segment of another version. The other segments have damaged heads, which lose nothing.
    for (at, head, is_refused) in [(0, &b"fondseg3"[..], true), (8, &[7], false), (0, &[0; 16], false)] {
        let mut theirs = ours.clone();
        theirs[at..at + head.len()].copy_from_slice(head);
        fs::write(&segment, &theirs).unwrap();
        match LogEngine::open(dir.path(), going_on()) {
            Ok(engine) => {
                assert!(!is_refused, "{head:?}");
                assert_eq!(noted.text(), None);
                let table = engine.open_table("t").unwrap();
                assert_eq!(table.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
            Err(error) => {
                assert!(is_refused && error.to_string().contains("another version"), "{error}");
                assert!(fs::read(&segment).unwrap() == theirs, "the segment was changed");
            }
        }
    }
    fs::write(&segment, &ours).unwrap();
    // A segment to which its process had not written anything yet.
    let last = segments(dir.path()).len() as u32;
    fs::write(dir.path().join(format!("{:010}.segment", last + 1)), b"").unwrap();
    assert_eq!(all(&*open(dir.path()).open_table("t").unwrap()).len(), 1);
}
