//! The entries that a cache keeps, and those that it evicts.

use fondaco_engine::{CacheEngine, Engine, Table, WriteBatch};

const BYTES_MAX: u64 = 1 << 20;

fn put(engine: &CacheEngine, table: &dyn Table, key: u32, value: Vec<u8>) {
    let mut batch = WriteBatch::new();
    batch.put(table, key.to_be_bytes().to_vec().into(), value.into());
    engine.write(batch).unwrap();
}

#[test]
fn a_cache_stays_within_its_budget_and_keeps_entries_that_are_read() {
    let engine = CacheEngine::new(BYTES_MAX);
    let (one, two) = (engine.open_table("one").unwrap(), engine.open_table("two").unwrap());
    for number in 0..20_000_u32 {
        let table = if number % 2 == 0 { &one } else { &two };
        put(&engine, &**table, number, vec![1; 100]);
        assert!(engine.disk_bytes() <= BYTES_MAX);
        // Read again and again, so it must not be evicted.
        for favourite in 0..10_u32 {
            let table = if favourite % 2 == 0 { &one } else { &two };
            let found = table.get(&favourite.to_be_bytes()).unwrap();
            assert!(
                found.is_some() || number < favourite,
                "{favourite} was evicted when {number} was put"
            );
        }
    }
    let kept = one.approximate_len() + two.approximate_len();
    assert!(kept * 270 > BYTES_MAX, "only {kept} records are kept");
    assert!(one.approximate_len() > 0 && two.approximate_len() > 0);
}

#[test]
fn values_that_fill_most_of_the_cache_are_not_kept() {
    let engine = CacheEngine::new(BYTES_MAX);
    let table = engine.open_table("t").unwrap();
    put(&engine, &*table, 1, vec![1; 2 << 20]);
    assert_eq!(table.get(&1_u32.to_be_bytes()).unwrap(), None);
    assert_eq!(engine.disk_bytes(), 0);
    for number in 0..100 {
        put(&engine, &*table, number, vec![1; 100]);
    }
    put(&engine, &*table, 1, vec![1; 900 << 10]);
    assert_eq!(table.approximate_len(), 99);
    assert_eq!(table.get(&1_u32.to_be_bytes()).unwrap(), None);
}

#[test]
fn a_dropped_table_takes_no_room() {
    let engine = CacheEngine::new(BYTES_MAX);
    let table = engine.open_table("t").unwrap();
    for number in 0..1000 {
        put(&engine, &*table, number, vec![1; 100]);
    }
    assert!(engine.disk_bytes() > 0);
    engine.drop_table("t").unwrap();
    assert_eq!(engine.disk_bytes(), 0);
}
