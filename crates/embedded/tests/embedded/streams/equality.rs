//! A reader answers as a node does: the same random events, and all keys.

use std::collections::BTreeSet;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_api::{SchemaResource, StreamStatus};
use fondaco_builder::Declaration;
use fondaco_embedded::{Reader, State};
use fondaco_model::ValueType;
use fondaco_schema::{Schema, put_id};
use fondaco_testing::{Kafka, random, until};
use serde_json::json;

use super::{Hybrid, TOPIC_PARTITIONS, number, wait_until_read};
use crate::node::{PARTITIONS, PATIENCE, wait_for_state};
use crate::versions::{built_with, key, options};

const EVENTS: usize = 20_000;
const EVENT_KEYS: usize = 1500;
const MINUTE_MS: u64 = 60_000;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The node's answers for all keys.
fn of_node(hybrid: &Hybrid, keys: &[String]) -> Vec<Option<Vec<u8>>> {
    let mut command = redis::cmd("MGET");
    keys.iter().for_each(|key| _ = command.arg(format!("cities:{key}")));
    command.query(&mut hybrid.node.redis()).unwrap()
}

fn of_reader(reader: &Reader, keys: &[String]) -> Vec<Option<Vec<u8>>> {
    let values = reader.get_many(keys).unwrap();
    for at in (0..keys.len()).step_by(11) {
        assert_eq!(reader.get(&keys[at]).unwrap().as_deref(), values.get(at));
    }
    values.iter().map(|value| value.map(<[u8]>::to_vec)).collect()
}

/// Waits until the node and the reader have read this number of events.
fn wait_for_both(hybrid: &Hybrid, reader: &Reader, events: usize) {
    let client = hybrid.node.endpoint().client().unwrap();
    until("the node to read all events", || {
        let status: StreamStatus = client.get("/v1/stores/cities/stream").unwrap();
        let read = status.versions.iter().map(|read| {
            let applied = read.applied + read.superseded + read.repeated;
            applied + read.cut + read.late + read.poison
        });
        read.sum::<u64>() >= events as u64
    });
    wait_until_read(reader, events as u64);
}

/// A random event of a JSON object, with an event time of the last two hours, not near to the end of an hour's life.
fn send_random(hybrid: &Hybrid, random: &mut fastrand::Rng) {
    let name = key(random.usize(..EVENT_KEYS));
    let age_ms = match random.bool() {
        true => random.u64(..50 * MINUTE_MS),
        false => random.u64(75 * MINUTE_MS..120 * MINUTE_MS),
    };
    let (time, id) = ((now_ms() - age_ms).to_string(), random.u8(..).to_string());
    let number = random.i32(-5..50);
    let (value, is_update) = match random.u8(..10) {
        0 => (None, false),
        1 | 2 => (Some(json!({"n": number, "name": "event"})), false),
        3..6 => (Some(json!({"increment": {"n": number}})), true),
        6 => (Some(json!({"set": {"name": number.to_string()}})), true),
        7 => (Some(json!({"add": {"tags": [number]}})), true),
        8 => (Some(json!({"remove": {"tags": [number]}})), true),
        _ => (Some(json!({"set": {"n": null}, "increment": {"other": 1}})), true),
    };
    let mut headers = vec![("event-time", &*time)];
    if is_update {
        headers.push(("event-type", "update"));
    }
    if is_update && random.u8(..4) == 0 {
        headers.push(("event-id", &*id));
    }
    let partition = random.i32(0..TOPIC_PARTITIONS);
    let text = value.map(|value| value.to_string());
    hybrid.topic.send(partition, Some(&name), text.as_deref(), headers);
}

#[test]
fn random_events_have_the_effects_that_they_have_on_a_node() {
    let stream = json!({"ttl_ms": 60 * MINUTE_MS, "grace_ms": 24 * 60 * MINUTE_MS});
    let hybrid = Hybrid::start(
        Kafka::shared(),
        "embedded-equality",
        stream,
        json!({"value_type": "json"}),
    );
    let rows = hybrid.node.dir.path().join("rows.jsonl");
    let row = |at: usize| json!({"id": key(at), "n": at, "name": format!("name {at}"), "tags": [at % 7]}).to_string();
    fs::write(&rows, (0..1000).map(|at| row(at) + "\n").collect::<String>()).unwrap();
    let mut build = options(hybrid.node.dir.path(), PARTITIONS, 1, 1, 1);
    build.inputs = vec![rows.display().to_string()];
    build.value = fondaco_builder::ValueSelection::AllOthers;
    build.declared = ValueType::Json.into();
    hybrid.node.push_from(&built_with(&build));
    let mut random = random("events");
    for _ in 0..EVENTS / 2 {
        send_random(&hybrid, &mut random);
    }
    let reader = hybrid.node.reader();
    for _ in 0..EVENTS / 2 {
        send_random(&hybrid, &mut random);
    }
    hybrid.topic.flush();
    reader.wait_ready(PATIENCE).unwrap();
    wait_for_both(&hybrid, &reader, EVENTS);
    let keys: Vec<String> = (0..EVENT_KEYS + 10).map(key).collect();
    let (node, own) = (of_node(&hybrid, &keys), of_reader(&reader, &keys));
    for (at, (node, own)) in node.iter().zip(&own).enumerate() {
        let text = |value: &Option<Vec<u8>>| {
            value
                .as_deref()
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(text(own), text(node), "{}", keys[at]);
    }
    let present = own.iter().flatten().count();
    println!("{present} of {} keys have a value", keys.len());
    assert!(present > EVENT_KEYS / 4 && present < keys.len());
    let mut scanned = BTreeSet::new();
    for piece in reader.scan(None).unwrap() {
        scanned.extend(piece.unwrap().into_iter().map(|(key, _)| key));
    }
    let expected = keys.iter().zip(&own).filter(|(_, value)| value.is_some());
    let expected: BTreeSet<Vec<u8>> = expected.map(|(key, _)| key.clone().into_bytes()).collect();
    assert_eq!(scanned, expected);
}

#[test]
fn values_of_schemas_that_were_registered_later_are_decoded_also_without_the_cluster() {
    let text =
        |more: &str| format!(r#"{{"type":"record","name":"R","fields":[{{"name":"city","type":"string"}}{more}]}}"#);
    let schema = |text: &str| Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
    let mut hybrid = Hybrid::start(
        Kafka::shared(),
        "embedded-schemas",
        json!({}),
        json!({"value_type": "avro"}),
    );
    let client = hybrid.node.endpoint().client().unwrap();
    let register = |text: &str| {
        let new = json!({"schema": text});
        client
            .post::<SchemaResource>("/v1/stores/cities/schemas", &new)
            .unwrap()
            .id
    };
    let [old, new] = [text(""), text(r#",{"name":"n","type":"long","default":7}"#)];
    let id = register(&old);
    let mut build = options(hybrid.node.dir.path(), PARTITIONS, 10, 10, 1);
    build.value = fondaco_builder::ValueSelection::AllOthers;
    build.declared = Declaration {
        schemas: [(id, schema(&old))].into_iter().collect(),
        ..ValueType::Avro.into()
    };
    hybrid.node.push_from(&built_with(&build));
    let reader = hybrid.node.reader();
    reader.wait_ready(PATIENCE).unwrap();

    // The reader hears of the schema by the event alone.
    let later = register(&new);
    let mut bytes = Vec::new();
    put_id(later, &mut bytes);
    bytes.extend(schema(&new).of_json(&json!({"city": "Lucca", "n": 3})).unwrap());
    let value = String::from_utf8(bytes).unwrap();
    hybrid.send([("key-1", Some(&*value)), ("key-9", Some("no such value"))]);
    let update = json!({"increment": {"n": 1}}).to_string();
    hybrid
        .topic
        .send(0, Some("key-2"), Some(&update), [("event-type", "update")]);
    hybrid.topic.flush();
    let decoded = |reader: &Reader, key: &str| {
        let snapshot = reader.snapshot().unwrap();
        let value = snapshot.get_owned(key).unwrap().unwrap();
        snapshot.decode(&value).unwrap().unwrap()
    };
    until("the events", || {
        decoded(&reader, "key-1")["n"] == 3 && decoded(&reader, "key-2")["n"] == 8
    });
    wait_for_both(&hybrid, &reader, 3);
    let keys: Vec<String> = (0..12).map(key).collect();
    assert_eq!(of_reader(&reader, &keys), of_node(&hybrid, &keys));
    assert_eq!(
        decoded(&reader, "key-9").as_object().unwrap().len(),
        1,
        "poison has no effect"
    );
    drop(reader);
    hybrid.node.stop();
    let reader = hybrid.node.reader();
    wait_for_state(&reader, State::Unreachable);
    assert_eq!(reader.version(), Some(number(1)));
    assert_eq!(decoded(&reader, "key-1"), json!({"city": "Lucca", "n": 3}));
}
