//! Tables, one key at a time.

use fondaco_engine::{EngineError, Hot};

use super::engines::{UnderTest, delete, put, scanned};

pub fn a_value_is_there_until_it_is_deleted(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    assert_eq!(table.get(b"key").unwrap(), None);
    put(&*engine, &*table, b"key", b"one");
    assert_eq!(table.get(b"key").unwrap().unwrap(), "one");
    put(&*engine, &*table, b"key", b"two");
    assert_eq!(table.get(b"key").unwrap().unwrap(), "two");
    delete(&*engine, &*table, b"key");
    assert_eq!(table.get(b"key").unwrap(), None);
    delete(&*engine, &*table, b"key");
    assert_eq!(table.get(b"ke").unwrap(), None);
}

pub fn a_hot_read_returns_the_last_write_or_is_cold(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let table = engine.open_table("t").unwrap();
    for round in 0..100_u32 {
        let value = round.to_be_bytes();
        put(&*engine, &*table, b"key", &value);
        match table.get_hot(b"key").unwrap() {
            Hot::Found(found) => assert_eq!(found[..], value),
            Hot::Cold => assert_eq!(table.get(b"key").unwrap().unwrap()[..], value),
            Hot::Absent => panic!("it was written"),
        }
        delete(&*engine, &*table, b"key");
        let hot = table.get_hot(b"key").unwrap();
        assert!(!matches!(hot, Hot::Found(_)), "{hot:?}");
    }
}

pub fn tables_are_apart(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let (one, two) = (engine.open_table("one").unwrap(), engine.open_table("two").unwrap());
    put(&*engine, &*one, b"key", b"1");
    assert_eq!(two.get(b"key").unwrap(), None);
    put(&*engine, &*two, b"key", b"2");
    assert_eq!(one.get(b"key").unwrap().unwrap(), "1");
    assert_eq!(engine.open_table("one").unwrap().get(b"key").unwrap().unwrap(), "1");
    assert_eq!(engine.tables().unwrap(), ["one", "two"]);
    assert_eq!((one.name(), two.name()), ("one", "two"));
}

pub fn there_may_be_many_tables(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let names: Vec<_> = (0..under_test.many_tables())
        .map(|at| format!("table-{at:04}"))
        .collect();
    for name in &names {
        let table = engine.open_table(name).unwrap();
        put(&*engine, &*table, b"name", name.as_bytes());
    }
    assert_eq!(engine.tables().unwrap(), names);
    for name in &names {
        let table = engine.open_table(name).unwrap();
        assert_eq!(table.get(b"name").unwrap().unwrap(), name.as_bytes());
        assert_eq!(scanned(&*table, b"", None).len(), 1);
    }
}

pub fn a_dropped_table_is_gone_for_all_its_handles(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    let old = engine.open_table("t").unwrap();
    put(&*engine, &*old, b"key", b"old");
    assert_eq!(old.get(b"key").unwrap().unwrap(), "old");
    engine.drop_table("t").unwrap();
    engine.drop_table("t").unwrap();
    assert!(engine.tables().unwrap().is_empty());
    let gone = |result| assert!(matches!(result, Err(EngineError::NoTable { .. })), "{result:?}");
    gone(old.get(b"key").map(drop));
    gone(old.get_hot(b"key").map(drop));
    gone(old.scan(b"", None).map(drop));

    let new = engine.open_table("t").unwrap();
    assert_eq!(new.get(b"key").unwrap(), None);
    put(&*engine, &*new, b"key", b"new");
    gone(old.get(b"key").map(drop));
    assert_eq!(new.get(b"key").unwrap().unwrap(), "new");
}

pub fn invalid_table_names_are_refused(under_test: &dyn UnderTest) {
    let engine = under_test.open();
    for name in ["", "..", "A", "a b", "a`b"] {
        let opened = engine.open_table(name);
        assert!(matches!(opened, Err(EngineError::InvalidTableName { .. })), "{name:?}");
    }
}

pub fn a_durable_engine_has_everything_when_opened_again(under_test: &dyn UnderTest) {
    let mut engine = under_test.open();
    {
        let (kept, dropped) = (
            engine.open_table("kept").unwrap(),
            engine.open_table("dropped").unwrap(),
        );
        put(&*engine, &*kept, b"key", b"value");
        put(&*engine, &*kept, b"deleted", b"value");
        delete(&*engine, &*kept, b"deleted");
        put(&*engine, &*dropped, b"key", b"value");
    }
    engine.drop_table("dropped").unwrap();
    engine.sync().unwrap();
    let is_durable = engine.is_durable();
    for _ in 0..2 {
        drop(engine);
        engine = under_test.open();
        let names: &[&str] = if is_durable { &["kept"] } else { &[] };
        assert_eq!(engine.tables().unwrap(), names);
    }
    let kept = engine.open_table("kept").unwrap();
    let expected = if is_durable {
        vec![(b"key".to_vec(), b"value".to_vec())]
    } else {
        vec![]
    };
    assert_eq!(scanned(&*kept, b"", None), expected);
    let dropped = engine.open_table("dropped").unwrap();
    assert_eq!(dropped.get(b"key").unwrap(), None);
}
