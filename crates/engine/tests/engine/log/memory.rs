//! The memory of keys and of cached values is bounded.

use fondaco_engine::{Engine, EngineError, Hot, LogEngine, LogOptions, Table, WriteBatch};

use super::{SEGMENT_BYTES, open_table};
use crate::conformance::engines::{delete, put};

#[test]
fn cached_values_stay_within_budget_and_are_reloaded_when_read() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    let mut is_cold = 0;
    for number in 0..2000_u32 {
        put(&engine, &*table, &number.to_be_bytes(), &[number as u8; 500]);
        assert!(engine.cached_bytes() <= 256 << 10, "{} bytes", engine.cached_bytes());
    }
    for number in 0..2000_u32 {
        let key = number.to_be_bytes();
        is_cold += usize::from(table.get_hot(&key).unwrap() == Hot::Cold);
        assert_eq!(table.get(&key).unwrap().as_deref(), Some(&[number as u8; 500][..]));
        assert!(matches!(table.get_hot(&key).unwrap(), Hot::Found(_)));
    }
    assert!(is_cold > 1000, "{is_cold}");
    assert!(engine.cached_bytes() > 128 << 10, "{} bytes", engine.cached_bytes());
    assert_eq!(table.get_hot(b"nothing").unwrap(), Hot::Absent);
    engine.drop_table("t").unwrap();
    assert_eq!(engine.cached_bytes(), 0);
}

#[test]
fn the_beginnings_of_evicted_values_stay_in_memory_if_they_are_asked_for() {
    const BYTES: usize = 9;
    let dir = tempfile::tempdir().unwrap();
    let (engine, table) = open_table(dir.path());
    let values: Vec<Vec<u8>> = (0..2000_usize)
        .map(|number| vec![number as u8; [2000, BYTES, 3, 0][number % 4]])
        .collect();
    let keys: Vec<[u8; 4]> = (0..2000_u32).map(u32::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let seen = |table: &dyn Table| {
        let mut seen = Vec::new();
        let looked = table.look_at_beginnings(&keys, BYTES, &mut |hot, _| {
            seen.push(match hot {
                Hot::Found(value) => Some(value.to_vec()),
                Hot::Absent | Hot::Cold => None,
            });
            true
        });
        looked.unwrap();
        seen
    };
    let is_cold = |table: &dyn Table, number: usize| table.get_hot(keys[number]).unwrap() == Hot::Cold;
    table.keep_beginnings(BYTES);
    for (key, value) in keys.iter().zip(&values) {
        put(&engine, &*table, key, value);
    }
    for ((number, value), seen) in values.iter().enumerate().zip(seen(&*table)) {
        let seen = seen.expect("it is in memory");
        assert!(
            value.starts_with(&seen) && seen.len() >= value.len().min(BYTES),
            "{number}: {seen:?}"
        );
        assert!(!is_cold(&*table, number) || seen.len() <= BYTES, "{number}: {seen:?}");
    }
    let cold = (0..2000).filter(|&number| is_cold(&*table, number)).count();
    assert!(cold > 500, "{cold}");
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    let mut all = Vec::new();
    table.each_key(&mut |key| all.push(key.to_vec())).unwrap();
    assert_eq!(all, keys);
    drop((table, engine));
    // The keys are read at the start, and not the values.
    let (_engine, table) = open_table(dir.path());
    assert!(
        seen(&*table)
            .iter()
            .zip(&values)
            .all(|(seen, value)| seen.is_none() || value.is_empty())
    );
    assert_eq!(table.get(keys[0]).unwrap().as_deref(), Some(&values[0][..]));
    assert_eq!(seen(&*table)[0].as_ref(), Some(&values[0]));
}

#[test]
fn only_new_keys_are_refused_when_their_memory_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let open_with = |key_bytes_max: u64| {
        let options = LogOptions {
            key_bytes_max,
            segment_bytes: SEGMENT_BYTES,
            disk_reserve_bytes: 0,
            ..LogOptions::default()
        };
        LogEngine::open(dir.path(), options).unwrap()
    };
    let write = |engine: &LogEngine, table: &dyn Table, number: u32| {
        let mut batch = WriteBatch::new();
        batch.put(table, number.to_be_bytes().to_vec().into(), vec![7; 50].into());
        engine.write(batch)
    };
    let engine = open_with(100_000);
    let table = engine.open_table("t").unwrap();
    let mut count = 0;
    let refused = loop {
        match write(&engine, &*table, count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    let memory = engine.key_memory().unwrap();
    assert!(
        (800..1000).contains(&count) && memory.keys == u64::from(count),
        "{memory:?}"
    );
    assert!((100_000..110_000).contains(&memory.bytes), "{memory:?}");
    let expected = format!(
        "{count} keys take {} bytes of memory, and may take 100000",
        memory.bytes
    );
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    assert!(engine.check_new_keys().is_err());
    // A batch with one new key is refused whole.
    let mut batch = WriteBatch::new();
    batch.put(&*table, 0_u32.to_be_bytes().to_vec().into(), "new".into());
    batch.put(&*table, count.to_be_bytes().to_vec().into(), "new".into());
    assert!(matches!(engine.write(batch), Err(EngineError::KeysFull { .. })));
    assert_eq!(table.get(&0_u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 50][..]));
    put(&engine, &*table, &0_u32.to_be_bytes(), b"newer");
    delete(&engine, &*table, b"never there");
    // Deletions make room.
    for number in 0..count / 2 {
        delete(&engine, &*table, &number.to_be_bytes());
    }
    assert!(engine.check_new_keys().is_ok());
    write(&engine, &*table, count).unwrap();
    let before = engine.key_memory().unwrap();
    drop((table, engine));
    // The engine opens and serves, even if it finds more keys than the limit.
    let engine = open_with(1000);
    let table = engine.open_table("t").unwrap();
    let memory = engine.key_memory().unwrap();
    assert_eq!((memory.keys, memory.bytes), (before.keys, before.bytes));
    assert!(table.get(&count.to_be_bytes()).unwrap().is_some());
    write(&engine, &*table, count).unwrap();
    assert!(matches!(write(&engine, &*table, 0), Err(EngineError::KeysFull { .. })));
    engine.drop_table("t").unwrap();
    assert_eq!(
        engine.key_memory().map(|memory| (memory.keys, memory.bytes)),
        Some((0, 0))
    );
    write(&engine, &*engine.open_table("t").unwrap(), 0).unwrap();
}

#[test]
fn an_unused_store_takes_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
    engine.open_table("t").unwrap();
    assert!(engine.disk_bytes() < 64 << 10, "{} bytes", engine.disk_bytes());
}
