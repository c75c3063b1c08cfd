//! Updates of values with a schema.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::ValueType;
use fondaco_schema::{Schema, Schemas, ValueRules, put_id};
use fondaco_stream::{Change, Found, Overlay};
use fondaco_testing::random;
use serde_json::{Value, json};

use super::{START_MS, Topic, event, open_on, read_all, update};

const OLD: &str = r#"{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":18},{"name":"tags","type":{"type":"array","items":"string"},"default":[]}]}"#;
const NEW: &str = r#"{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"long","default":18},{"name":"city","type":"string","default":"Venice"},{"name":"tags","type":{"type":"array","items":"string"},"default":[]}]}"#;

fn rules(texts: &[&str]) -> ValueRules {
    let schema = |text: &&str| Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    let schemas: Schemas = (1..).zip(texts.iter().map(schema)).collect();
    ValueRules::new(ValueType::Avro, Arc::new(schemas))
}

fn stored(id: u16, value: &Value) -> Bytes {
    let mut bytes = Vec::new();
    put_id(id, &mut bytes);
    let both = rules(&[OLD, NEW]);
    bytes.extend(both.schemas().get(id).unwrap().of_json(value).unwrap());
    bytes.into()
}

/// An overlay of a version in which "below" has a value of the first schema.
fn open(engine: &Arc<dyn Engine>) -> Arc<Overlay> {
    let value = stored(1, &json!({"name": "Ada", "age": 36, "tags": ["a"]}));
    let overlay = open_on(
        engine,
        None,
        Arc::new(move |key| Ok((key == b"below").then(|| (value.clone(), None)))),
    );
    overlay.rules().set(rules(&[OLD]));
    overlay
}

fn shown(overlay: &Overlay, key: &str) -> (u16, Value) {
    match overlay.find(key.as_bytes()).unwrap() {
        Found::Value(value) => overlay.rules().load().schemas().decode(&value).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_of_records_are_changed_in_the_order_of_times() {
    for seed in 0..6 {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let (overlay, topic) = (open(&engine), Arc::new(Topic::default()));
        let mut events = vec![
            (1, json!({"set": {"name": "Bo"}, "increment": {"age": 1}})),
            (2, json!({"append": {"tags": ["b"]}})),
            (3, json!({"set": {"age": 50}, "remove": {"tags": ["a"]}})),
            (4, json!({"increment": {"age": 2}})),
        ];
        random(&format!("typed updates {seed}")).shuffle(&mut events);
        for (at, (time_ms, operations)) in events.iter().enumerate() {
            for key in ["below", "new"] {
                topic.log(
                    at as u32,
                    START_MS + 10,
                    event(key, update(operations), START_MS + time_ms),
                );
            }
        }
        read_all(&overlay, &topic);
        let changed = json!({"name": "Bo", "age": 52, "tags": ["b"]});
        assert_eq!(shown(&overlay, "below"), (1, changed.clone()), "seed {seed}");
        assert_eq!(shown(&overlay, "new"), (1, changed), "seed {seed}");
        assert_eq!(shown(&open(&engine), "below").1["age"], 52, "after a restart");
    }
}

#[test]
fn operations_that_do_not_fit_the_schema_are_counted() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let (overlay, topic) = (open(&engine), Arc::new(Topic::default()));
    for (at, operations) in [
        json!({"set": {"age": "x", "name": "Bo"}}),
        json!({"set": {"city": "Venice"}}),
        json!({"increment": {"age": 1i64 << 40}}),
        json!({"increment": 1}),
    ]
    .iter()
    .enumerate()
    {
        topic.log(0, START_MS, event("below", update(operations), START_MS + at as u64));
    }
    // It needs a name.
    topic.log(0, START_MS, event("new", update(&json!({"set": {"age": 1}})), START_MS));
    read_all(&overlay, &topic);
    assert_eq!(overlay.applied().unfit, 5);
    assert_eq!(
        shown(&overlay, "below"),
        (1, json!({"name": "Bo", "age": 36, "tags": ["a"]}))
    );
    assert_eq!(overlay.find(b"new").unwrap(), Found::Deleted);
}

#[test]
fn a_schema_that_is_upgraded_between_two_updates_holds_for_the_second() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let (overlay, topic) = (open(&engine), Arc::new(Topic::default()));
    let grow = |time_ms, by: i64| {
        let change = update(&json!({"increment": {"age": by}}));
        topic.log(0, START_MS, event("below", change, START_MS + time_ms));
    };
    grow(1, 1);
    read_all(&overlay, &topic);
    assert_eq!(shown(&overlay, "below").0, 1);
    overlay.rules().set(rules(&[OLD, NEW]));
    grow(3, 1 << 40);
    read_all(&overlay, &topic);
    let grown = json!({"name": "Ada", "age": (1i64 << 40) + 37, "city": "Venice", "tags": ["a"]});
    assert_eq!(shown(&overlay, "below"), (2, grown));
    // A whole value of the former schema, and an update of it.
    let whole = stored(1, &json!({"name": "Cy"}));
    topic.log(1, START_MS, event("below", Change::Put(whole), START_MS + 4));
    let change = update(&json!({"set": {"city": "Rome"}}));
    topic.log(1, START_MS, event("below", change, START_MS + 5));
    read_all(&overlay, &topic);
    let whole = json!({"name": "Cy", "age": 18, "city": "Rome", "tags": []});
    assert_eq!(shown(&overlay, "below"), (2, whole));
    assert_eq!(overlay.applied().unfit, 0);
}
