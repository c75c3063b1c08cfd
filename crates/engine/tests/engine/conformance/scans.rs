//! Scans: their order, their bounds, and their snapshot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fondaco_engine::WriteBatch;

use super::engines::{Entry, UnderTest, delete, put, scanned};

fn entry(key: &[u8]) -> Entry {
    (key.to_vec(), [b"value of ", key].concat())
}

pub fn a_scan_is_sorted_between_inclusive_start_and_exclusive_end(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    let keys: [&[u8]; 8] = [b"\0", b"\0\0", b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff"];
    for key in keys.iter().rev() {
        let (key, value) = entry(key);
        put(&*engine, &*table, &key, &value);
    }
    let all: Vec<_> = keys.iter().map(|key| entry(key)).collect();
    assert_eq!(scanned(&*table, b"", None), all);
    assert_eq!(scanned(&*table, b"a", Some(b"b")), all[2..5]);
    assert_eq!(scanned(&*table, b"a\0\0", Some(b"b\0")), all[4..6]);
    assert_eq!(scanned(&*table, b"\xff", None), all[6..]);
    assert_eq!(scanned(&*table, b"\xff\xff\xff", None), []);
    assert_eq!(scanned(&*table, b"b", Some(b"b")), []);
    assert_eq!(scanned(&*table, b"b", Some(b"a")), []);
}

pub fn a_scan_is_a_snapshot(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    let key = |number: u32| number.to_be_bytes();
    let mut batch = WriteBatch::new();
    for number in 0..2000 {
        batch.put(&*table, key(number * 2).to_vec().into(), vec![1; 100].into());
    }
    engine.write(batch).unwrap();
    let mut scan = table.scan(b"", None).unwrap();
    let (first, _) = scan.next().unwrap().unwrap();
    assert_eq!(first[..], key(0));
    // Changed, deleted and new keys, behind the scan and ahead of it; enough that they are flushed meanwhile.
    for round in 2..6 {
        let mut batch = WriteBatch::new();
        for number in 0..1500 {
            batch.put(&*table, key(number * 2).to_vec().into(), vec![round; 200].into());
            batch.put(&*table, key(number * 2 + 1).to_vec().into(), vec![round; 100].into());
        }
        engine.write(batch).unwrap();
    }
    for number in 1500..2000 {
        delete(&*engine, &*table, &key(number * 2));
    }
    for number in 1..2000 {
        let (found, value) = scan.next().unwrap().unwrap();
        assert_eq!(found[..], key(number * 2));
        assert_eq!(value[..], [1; 100]);
    }
    assert!(scan.next().is_none());
    assert_eq!(scanned(&*table, b"", None).len(), 3000);
}

pub fn a_scan_outlasts_its_table(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..2000_u32 {
        batch.put(&*table, number.to_be_bytes().to_vec().into(), vec![7; 100].into());
    }
    engine.write(batch).unwrap();
    let scan = table.scan(b"", None).unwrap();
    drop(table);
    engine.drop_table("t").unwrap();
    let table = engine.open_table("t").unwrap();
    put(&*engine, &*table, b"key", b"value");
    assert_eq!(scan.map(Result::unwrap).count(), 2000);
}

/// For [`super::batches`]: scans a table of two keys until a writer has finished, and sees the same value for both.
pub fn both_keys_agree_until(done: &AtomicBool, table: &dyn fondaco_engine::Table) -> usize {
    let mut scans = 0;
    while !done.load(Ordering::Acquire) {
        let entries = scanned(table, b"", None);
        if let [(_, one), (_, two)] = &entries[..] {
            assert_eq!(one, two);
        } else {
            assert!(entries.is_empty(), "a partial batch: {entries:?}");
        }
        scans += 1;
        thread::yield_now();
    }
    scans
}
