//! Updates of fields.

use fondaco_catalog::StoreSchemas;
use fondaco_model::ValueType;
use fondaco_model::cluster::{ClusterView, Revised, SchemaRecord};
use fondaco_model::versioned::{Resolution, VersionedChange};
use fondaco_testing::until;
use redis::Value;
use serde_json::json;

use super::harness::{Shape, three};
use crate::harness::{Cluster, Connection, bulk, text};

const USER: &str = r#"{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":18},{"name":"tags","type":{"type":"array","items":"string"},"default":[]}]}"#;

fn of(value_type: ValueType, shape: Shape) -> Shape {
    Shape { value_type, ..shape }
}

/// All nodes know these schemas of the store, and no others.
fn register(cluster: &Cluster, texts: &[String]) {
    let mut view = ClusterView::default();
    for (id, text) in (1..).zip(texts) {
        let record = SchemaRecord {
            store: cluster.topology.stores[&cluster.store].id,
            id,
            value_type: ValueType::Avro,
            text: text.clone(),
            message: None,
            registered_unix_ms: 1,
        };
        view.schemas.insert(record.key(), Revised { record, revision: 1 });
    }
    let schemas = StoreSchemas::of(&view, &StoreSchemas::default());
    for node in &cluster.nodes {
        *node.schemas.lock().unwrap() = schemas.clone();
    }
    cluster.publish();
}

fn update(redis: &mut Connection, key: &str, update: &serde_json::Value) -> Result<Value, String> {
    redis.ask(&["FONDACO.UPDATE", key, &update.to_string()])
}

/// The new value as JSON.
fn updated(redis: &mut Connection, key: &str, update: &serde_json::Value) -> serde_json::Value {
    let answer = redis
        .ask(&["FONDACO.UPDATE", key, &update.to_string(), "RETURN"])
        .unwrap();
    serde_json::from_str(&text(answer).unwrap()).unwrap()
}

#[test]
fn fields_of_json_are_changed_on_one_node_and_on_three() {
    for value_type in [ValueType::Bytes, ValueType::Json] {
        for shape in [Shape::default(), three()] {
            let cluster = Cluster::versioned(of(value_type, shape));
            let mut redis = cluster.nodes[0].connect();
            assert_eq!(update(&mut redis, "s:1", &json!({"set": {"a": 1}})), Ok(Value::Okay));
            let after = updated(
                &mut redis,
                "s:1",
                &json!({"increment": {"a": 2}, "append": {"log": ["x"]}}),
            );
            assert_eq!(after, json!({"a": 3, "log": ["x"]}));
            assert_eq!(redis.send("GET s:1"), Ok(bulk(r#"{"a":3,"log":["x"]}"#)));
            // Nothing is written.
            let refused = update(&mut redis, "s:1", &json!({"increment": {"log": 1}, "set": {"a": 0}})).unwrap_err();
            assert!(
                refused.starts_with("WRONGTYPE") && refused.contains("\"log\""),
                "{refused}"
            );
            assert_eq!(redis.send("GET s:1"), Ok(bulk(r#"{"a":3,"log":["x"]}"#)));
            assert_eq!(
                update(&mut redis, "s:none", &json!({"remove": {"a": [1]}})),
                Ok(Value::Okay)
            );
            assert_eq!(redis.send("EXISTS s:none"), Ok(Value::Int(0)));
            assert_eq!(
                redis.send(r#"FONDACO.UPDATE s:none {"remove":{"a":[1]}} RETURN"#),
                Ok(Value::Nil)
            );
            assert_eq!(redis.code("FONDACO.UPDATE s:1 {}"), "ERR");
            assert_eq!(redis.code(r#"FONDACO.UPDATE s:1 {"set":{"a":1}} KEEPTTL"#), "ERR");
        }
    }
}

#[test]
fn an_update_keeps_the_expiry_or_sets_it() {
    let cluster = Cluster::versioned(three());
    let mut redis = cluster.nodes[0].connect();
    let document = r#"{"set":{"a":1}}"#;
    redis.send(&format!("FONDACO.UPDATE s:1 {document} EX 1000")).unwrap();
    let seconds = |redis: &mut Connection| match redis.send("TTL s:1") {
        Ok(Value::Int(seconds)) => seconds,
        other => panic!("{other:?}"),
    };
    assert!((990..=1000).contains(&seconds(&mut redis)));
    redis.send(&format!("FONDACO.UPDATE s:1 {document}")).unwrap();
    assert!((990..=1000).contains(&seconds(&mut redis)));
    redis
        .send(&format!("FONDACO.UPDATE s:1 {document} PERSIST RETURN"))
        .unwrap();
    assert_eq!(seconds(&mut redis), -1);
}

#[test]
fn values_of_other_types_are_changed_by_their_type() {
    let cluster = Cluster::versioned(of(ValueType::Integer, three()));
    let mut redis = cluster.nodes[0].connect();
    assert_eq!(updated(&mut redis, "s:1", &json!({"increment": 5})), json!(5));
    let refused = update(&mut redis, "s:1", &json!({"set": {"a": 1}})).unwrap_err();
    assert!(refused.contains("values of type integer have no fields"), "{refused}");
    let cluster = Cluster::versioned(of(ValueType::Messagepack, three()));
    let mut redis = cluster.nodes[0].connect();
    update(&mut redis, "s:1", &json!({"set": {"a": 1}})).unwrap();
    assert_eq!(redis.send("GET s:1"), Ok(Value::BulkString(vec![0x81, 0xa1, b'a', 1])));
    for value_type in [ValueType::String, ValueType::Ids] {
        let cluster = Cluster::versioned(of(value_type, three()));
        let refused = update(&mut cluster.nodes[0].connect(), "s:1", &json!({"set": {"a": 1}})).unwrap_err();
        assert!(refused.starts_with("WRONGTYPE"), "{refused}");
    }
}

#[test]
fn fields_follow_the_schema_that_is_upgraded_between_two_updates() {
    let cluster = Cluster::versioned(of(ValueType::Avro, three()));
    let mut redis = cluster.nodes[0].connect();
    let refused = update(&mut redis, "s:1", &json!({"set": {"name": "Ada"}})).unwrap_err();
    assert!(refused.contains("the store has no schema"), "{refused}");
    register(&cluster, &[USER.into()]);
    for (document, reason) in [
        (
            json!({"increment": {"age": 1}}),
            r#"field "name": the field is missing and has no default"#,
        ),
        (
            json!({"set": {"name": "Ada", "age": "x"}}),
            r#"field "age": "x" is no int"#,
        ),
        (
            json!({"set": {"name": "Ada", "city": "x"}}),
            r#"field "city": the schema has no such field"#,
        ),
    ] {
        let refused = update(&mut redis, "s:1", &document).unwrap_err();
        assert!(
            refused.starts_with("WRONGTYPE") && refused.contains(reason),
            "{refused}"
        );
        assert_eq!(redis.send("EXISTS s:1"), Ok(Value::Int(0)));
    }
    let first = updated(
        &mut redis,
        "s:1",
        &json!({"set": {"name": "Ada"}, "increment": {"age": 1}}),
    );
    assert_eq!(first, json!({"name": "Ada", "age": 19, "tags": []}));
    let new = USER.replace(
        r#""type":"int","default":18}"#,
        r#""type":"long","default":18},{"name":"city","type":"string","default":"Venice"}"#,
    );
    register(&cluster, &[USER.into(), new]);
    let second = updated(&mut redis, "s:1", &json!({"increment": {"age": 1i64 << 40}}));
    assert_eq!(
        second,
        json!({"name": "Ada", "age": (1i64 << 40) + 19, "city": "Venice", "tags": []})
    );
    let Ok(Value::BulkString(stored)) = redis.send("GET s:1") else {
        panic!()
    };
    assert_eq!(stored[0], 2);
}

#[test]
fn concurrent_updates_lose_nothing_while_all_nodes_reach_one_another() {
    for resolution in [Resolution::Latest, Resolution::Fields] {
        let cluster = Cluster::versioned(three().with(|settings| settings.resolution = Some(resolution)));
        std::thread::scope(|scope| {
            for (at, node) in cluster.nodes.iter().enumerate() {
                scope.spawn(move || {
                    let mut redis = node.connect();
                    for round in 0..40 {
                        let document = json!({"increment": {"all": 1}, "set": {format!("of{at}"): round}}).to_string();
                        // Too many conflicts in a row are an error, and nothing was written.
                        while let Err(error) = redis.ask(&["FONDACO.UPDATE", "s:1", &document]) {
                            assert!(error.starts_with("CONFLICT"), "{error}");
                        }
                    }
                });
            }
        });
        let mut redis = cluster.nodes[0].connect();
        let Ok(Value::BulkString(value)) = redis.send("GET s:1") else {
            panic!()
        };
        let value: serde_json::Value = serde_json::from_slice(&value).unwrap();
        assert_eq!(
            value,
            json!({"all": 120, "of0": 39, "of1": 39, "of2": 39}),
            "{resolution}"
        );
    }
}

/// Gives the store other settings.
fn alter(cluster: &mut Cluster, change: impl FnOnce(&mut VersionedChange)) {
    let mut settings = VersionedChange::default();
    change(&mut settings);
    let store = cluster.topology.stores.get_mut(&cluster.store).unwrap();
    store.versioned = store.versioned.map(|known| known.with(&settings));
}

#[test]
fn both_sides_of_a_partition_keep_the_fields_that_they_wrote() {
    for value_type in [ValueType::Json, ValueType::Messagepack, ValueType::Avro] {
        let shape = three().with(|settings| {
            settings.resolution = Some(Resolution::Fields);
            settings.writes = Some(3);
            settings.reads = Some(1);
        });
        let mut cluster = Cluster::versioned(of(value_type, shape));
        if value_type == ValueType::Avro {
            register(&cluster, &[USER.into()]);
        }
        let base = json!({"set": {"name": "Ada", "age": 1, "tags": ["a"]}});
        update(&mut cluster.nodes[0].connect(), "s:1", &base).unwrap();
        update(&mut cluster.nodes[0].connect(), "s:2", &base).unwrap();
        // Each node is alone, and writes what it can.
        alter(&mut cluster, |settings| settings.writes = Some(1));
        let whole = cluster.topology.clone();
        let numbers: Vec<_> = whole.nodes.keys().copied().collect();
        for (node, own) in cluster.nodes.iter().zip(&numbers) {
            let mut topology = whole.clone();
            for (number, described) in &mut topology.nodes {
                described.live = number == own;
            }
            node.publish(&topology);
        }
        for (at, document) in [
            json!({"set": {"name": "Bo"}}),
            json!({"increment": {"age": 1}}),
            json!({"append": {"tags": ["b"]}}),
        ]
        .iter()
        .enumerate()
        {
            let mut redis = cluster.nodes[at].connect();
            until("the node to be alone", || update(&mut redis, "s:1", document).is_ok());
            // Of one field, the latest write counts.
            update(&mut redis, "s:2", &json!({"set": {"age": 10 + at}})).unwrap();
        }
        alter(&mut cluster, |settings| settings.reads = Some(3));
        cluster.publish();
        for node in &cluster.nodes {
            let mut redis = node.connect();
            until("the sides to be merged", || {
                let healed = redis.ask(&["FONDACO.UPDATE", "s:1", r#"{"remove":{"tags":["none"]}}"#, "RETURN"]);
                let healed = healed.ok().and_then(text);
                let healed: Option<serde_json::Value> = healed.and_then(|text| serde_json::from_str(&text).ok());
                healed == Some(json!({"name": "Bo", "age": 2, "tags": ["a", "b"]}))
            });
            let other = updated(&mut redis, "s:2", &json!({"remove": {"tags": ["none"]}}));
            assert_eq!(other, json!({"name": "Ada", "age": 12, "tags": ["a"]}));
        }
    }
}

#[test]
fn a_merged_value_is_read_like_any_other() {
    let shape = three().with(|settings| settings.resolution = Some(Resolution::Fields));
    let cluster = Cluster::versioned(shape);
    let mut redis = cluster.nodes[0].connect();
    redis.send(r#"SET s:1 {"a":1,"b":1}"#).unwrap();
    update(&mut redis, "s:1", &json!({"set": {"a": 2}})).unwrap();
    assert_eq!(redis.send("STRLEN s:1"), Ok(Value::Int(13)));
    assert_eq!(
        redis.send("MGET s:1 s:2"),
        Ok(Value::Array(vec![bulk(r#"{"a":2,"b":1}"#), Value::Nil]))
    );
    // Its expiry changes, and its fields keep their times.
    assert_eq!(redis.send("EXPIRE s:1 1000"), Ok(Value::Int(1)));
    assert_eq!(redis.send("PERSIST s:1"), Ok(Value::Int(1)));
    assert_eq!(redis.send("GET s:1"), Ok(bulk(r#"{"a":2,"b":1}"#)));
    assert_eq!(redis.send("DEL s:1"), Ok(Value::Int(1)));
    assert_eq!(redis.send("GET s:1"), Ok(Value::Nil));
}
