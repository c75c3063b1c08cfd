//! The shortest and longest keys and values.

use fondaco_engine::{EngineError, KEY_BYTES_MAX, WriteBatch};

use super::engines::{Entry, UnderTest, put, scanned};

pub fn keys_of_all_lengths_keep_values_of_all_lengths(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    let key_lengths = [
        1,
        2,
        100,
        767,
        1000,
        2047,
        2048,
        2049,
        3072,
        3073,
        10_000,
        KEY_BYTES_MAX - 1,
        KEY_BYTES_MAX,
    ];
    let value_lengths = [0, 1, 100, 4096, 70_000, 1 << 20, (64 << 20) + 100];
    let lengths = key_lengths.iter().zip(value_lengths.iter().cycle());
    let mut expected: Vec<Entry> = Vec::new();
    for (number, (key_bytes, value_bytes)) in lengths.enumerate() {
        // Each key is a prefix of the others, except perhaps for its last byte.
        let mut key = vec![b'k'; *key_bytes];
        key[key_bytes - 1] = b'a' + (number % 20) as u8;
        let value: Vec<_> = (0..*value_bytes).map(|at| (at * 7 + number) as u8).collect();
        put(&*engine, &*table, &key, &value);
        expected.push((key, value));
    }
    for (key, value) in &expected {
        assert!(
            table.get(key).unwrap().unwrap() == value[..],
            "a key of {} bytes",
            key.len()
        );
    }
    expected.sort();
    let found = scanned(&*table, b"", None);
    let lengths =
        |entries: &[Entry]| -> Vec<_> { entries.iter().map(|(key, value)| (key.len(), value.len())).collect() };
    assert_eq!(lengths(&found), lengths(&expected));
    assert!(found == expected);
}

pub fn keys_and_values_that_are_too_long_are_refused(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    for length in [0, KEY_BYTES_MAX + 1] {
        let mut batch = WriteBatch::new();
        batch.put(&*table, "key".into(), "value".into());
        batch.put(&*table, vec![1; length].into(), "value".into());
        let refused = engine.write(batch);
        assert!(matches!(refused, Err(EngineError::KeyTooLong { .. })), "{refused:?}");
        assert_eq!(table.get(&vec![1; length]).unwrap(), None);
    }
    assert_eq!(table.get(b"key").unwrap(), None);

    // The bounds of scans may have any length.
    put(&*engine, &*table, &[1; KEY_BYTES_MAX], b"value");
    let beyond = [1; KEY_BYTES_MAX + 1];
    assert_eq!(scanned(&*table, &beyond, None), []);
    assert_eq!(scanned(&*table, b"", Some(&beyond)).len(), 1);
}
