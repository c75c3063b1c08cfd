//! Batches are atomic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fondaco_engine::{EngineError, WriteBatch};

use super::engines::{UnderTest, put, scanned};
use super::scans::both_keys_agree_until;

pub fn the_last_change_of_a_key_counts(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    put(&*engine, &*table, b"c", b"before");
    let mut batch = WriteBatch::new();
    batch.put(&*table, "a".into(), "first".into());
    batch.put(&*table, "b".into(), "first".into());
    batch.delete(&*table, "a".into());
    batch.put(&*table, "b".into(), "second".into());
    batch.delete(&*table, "c".into());
    batch.put(&*table, "c".into(), "after".into());
    assert_eq!(batch.len(), 3);
    assert_eq!(batch.bytes(), 3 + "second".len() + "after".len());
    assert_eq!(batch.change_of(&*table, b"a"), Some(None));
    assert_eq!(batch.change_of(&*table, b"b"), Some(Some("second".into())));
    assert_eq!(batch.change_of(&*table, b"d"), None);
    assert!(batch.changes_key(&*table, b"a") && !batch.changes_key(&*table, b"d"));
    engine.write(batch).unwrap();
    assert_eq!(table.get(b"a").unwrap(), None);
    assert_eq!(table.get(b"b").unwrap().unwrap(), "second");
    assert_eq!(table.get(b"c").unwrap().unwrap(), "after");
    engine.write(WriteBatch::new()).unwrap();
}

pub fn a_batch_is_seen_whole_while_others_write(under_test: &dyn UnderTest) {
    const BATCHES: u32 = 300;
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| both_keys_agree_until(&done, &*table));
        for number in 0..BATCHES {
            let mut batch = WriteBatch::new();
            for key in ["one", "two"] {
                batch.put(&*table, key.into(), number.to_be_bytes().to_vec().into());
            }
            engine.write(batch).unwrap();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    let last = (BATCHES - 1).to_be_bytes().to_vec();
    assert_eq!(table.get(b"two").unwrap().unwrap(), last);
}

pub fn a_batch_that_fails_changes_nothing(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let (kept, dropped) = (
        engine.open_table("kept").unwrap(),
        engine.open_table("dropped").unwrap(),
    );
    let mut batch = WriteBatch::new();
    batch.put(&*kept, "key".into(), "value".into());
    batch.put(&*dropped, "key".into(), "value".into());
    engine.drop_table("dropped").unwrap();
    let refused = engine.write(batch);
    assert!(matches!(refused, Err(EngineError::NoTable { .. })), "{refused:?}");
    assert_eq!(scanned(&*kept, b"", None), []);
    put(&*engine, &*kept, b"key", b"value");
}

pub fn writers_of_many_threads_lose_nothing(under_test: &dyn UnderTest) {
    const THREADS: u32 = 4;
    const WRITES: u32 = 100;
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, table) = (&*engine, &*table);
            scope.spawn(move || {
                for number in 0..WRITES {
                    let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                    put(engine, table, &key, &key);
                    if number % 25 == 0 {
                        engine.sync().unwrap();
                    }
                    assert_eq!(table.get(&key).unwrap().unwrap(), key);
                }
            });
        }
    });
    assert_eq!(scanned(&*table, b"", None).len(), (THREADS * WRITES) as usize);
}
