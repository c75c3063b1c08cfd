//! A node that is killed while it reads the stream of a hybrid store.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fondaco_testing::{random, until};
use serde_json::{Value, json};

use crate::harness::{Builds, Client, KEYS, NodeProcess, key, value};

const ROUNDS: u64 = 16;
const PADDING: usize = 50;

/// The values of all keys, as the node serves them.
fn served(client: &Client) -> Vec<Value> {
    let keys: Vec<_> = (0..KEYS).map(|number| format!("pymk:{}", key(number))).collect();
    let (status, answer) = client.call("POST", "/v1/lookup", json!({"keys": keys}));
    match status {
        200 => answer["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["utf8"].clone())
            .collect(),
        // It is being opened.
        _ => {
            assert!(!answer.to_string().contains("OVERLOADED"), "{answer}");
            Vec::new()
        }
    }
}

/// Every event has another time: one that is applied twice would be counted as superseded.
fn check_counts(client: &Client) {
    for version in client.get("/v1/stores/pymk/stream")["versions"].as_array().unwrap() {
        assert_eq!(
            (&version["superseded"], &version["late"]),
            (&json!(0), &json!(0)),
            "{version}"
        );
        assert_eq!(version["lost"], json!([]));
    }
}

fn survive(dir: &Path, engine: &str) {
    let mut random = random("kills of a node that reads a stream");
    let mut node = NodeProcess::start(dir);
    let store = json!({"name": "pymk", "kind": "hybrid", "stream": {"source": "log:3", "engine": engine, "lag_ms": 0}});
    node.client.done("POST", "/v1/stores", store, 201);
    let builds = Builds::beside();
    node.client.push(&builds.build(1));
    let begun_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut latest: BTreeMap<u64, Value> = BTreeMap::new();
    for round in 0..ROUNDS {
        let numbers: Vec<u64> = (0..KEYS as u64).filter(|_| random.bool()).collect();
        let events = numbers.iter().map(|&number| {
            let text = (random.u32(..7) > 0).then(|| format!("{round}-{number}"));
            latest.insert(number, json!(text));
            json!({"key": key(number as usize), "value": text, "time_unix_ms": begun_ms + round})
        });
        let events: Vec<Value> = events.collect();
        let answer = node
            .client
            .call("POST", "/v1/stores/pymk/events", json!({"events": events}));
        assert_eq!(answer.0, 200, "{answer:?}");
        if round == ROUNDS / 2 {
            // A new version reads it from the beginning, through the kills that follow.
            node.client.begin_push(&builds.build(2));
        }
        std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
        check_counts(&node.client);
        node.kill();
        node = NodeProcess::start(dir);
    }
    let push = node.client.ended_push();
    assert_eq!(push["state"], "swapped", "{push}");
    let expected: Vec<Value> = (0..KEYS)
        .map(|number| {
            let of_version = || json!(value(2, number, PADDING));
            latest.get(&(number as u64)).cloned().unwrap_or_else(of_version)
        })
        .collect();
    until("all events to be served", || served(&node.client) == expected);
    check_counts(&node.client);
    // So is what is on the disk.
    node.kill();
    let node = NodeProcess::start(dir);
    until("all events to be served again", || served(&node.client) == expected);
    node.client.done("POST", "/v1/stores/pymk/rollback", json!({}), 200);
    let former: Vec<Value> = (0..KEYS)
        .map(|number| {
            let of_version = || json!(value(1, number, PADDING));
            latest.get(&(number as u64)).cloned().unwrap_or_else(of_version)
        })
        .collect();
    until("the former version to have them, too", || {
        served(&node.client) == former
    });
}

#[test]
fn no_event_is_lost_or_applied_twice_by_kills_on_disk() {
    survive(tempfile::tempdir().unwrap().path(), "disk");
}

#[test]
fn no_event_is_lost_or_applied_twice_by_kills_in_the_log() {
    survive(tempfile::tempdir().unwrap().path(), "log");
}
