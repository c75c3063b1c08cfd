//! Time to live and quota of writes of hybrid stores, across restarts, differences, compactions and rollbacks.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::node::{Dev, Node, of_csv, until, write_csv};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn log(node: &Node, store: &str, events: Value) {
    node.http_post(&format!("/v1/stores/{store}/events"), json!({"events": events}));
}

fn asked<T: redis::FromRedisValue>(node: &Node, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| _ = command.arg(word));
    command.query(&mut node.redis()).unwrap()
}

fn get(node: &Node, key: &str) -> Option<String> {
    asked(node, &["GET", key])
}

/// When a key expires, in milliseconds since 1970.
fn end_ms(node: &Node, key: &str) -> i64 {
    asked(node, &["PEXPIRETIME", key])
}

fn rows(keys: &[&str]) -> Vec<(String, String)> {
    keys.iter()
        .map(|key| (key.to_string(), format!("pushed-{key}")))
        .collect()
}

fn push(node: &Node, csv: &std::path::Path, more: &[&str]) {
    node.done(&of_csv("push", "s", csv, more));
}

#[test]
fn keys_of_a_hybrid_store_are_absent_once_their_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (data, csv, changed) = (
        dir.path().join("data"),
        dir.path().join("rows.csv"),
        dir.path().join("new.csv"),
    );
    let node = Node::dev(&data);
    let create = [
        "store", "create", "s", "--kind", "hybrid", "--stream", "log", "--grace", "5days",
    ];
    node.done(&[&create[..], &["--ttl", "1h"]].concat());
    let now_ms = now_ms();
    let as_of_ms = now_ms - 10 * MINUTE_MS;
    write_csv(&csv, rows(&["a", "b", "c"]));
    // Without a cut, so that old events count.
    push(&node, &csv, &[]);
    let put = |key: &str, age_ms: u64| json!({"key": key, "value": "event", "time_unix_ms": now_ms - age_ms});
    let add = |key: &str, age_ms: u64| json!({"key": key, "update": {"increment": {"n": 1}}, "time_unix_ms": now_ms - age_ms});
    log(
        &node,
        "s",
        json!([
            put("b", 2 * HOUR_MS),
            put("old", 2 * HOUR_MS),
            put("new", 30 * MINUTE_MS),
            // Late, and out of order: only the last two are within an hour of one another.
            add("count", MINUTE_MS),
            add("count", 3 * HOUR_MS),
            add("count", 40 * MINUTE_MS),
            add("a", 20 * MINUTE_MS),
            put("last", MINUTE_MS),
        ]),
    );
    // Keys of different partitions come in no order.
    until("the events to be read", || {
        let is = |key: &str, value: Option<&str>| get(&node, key).as_deref() == value;
        is("s:b", None)
            && is("s:count", Some(r#"{"n":2}"#))
            && ["s:new", "s:last"].iter().all(|key| is(key, Some("event")))
    });
    let check = |node: &Node| {
        assert_eq!(get(node, "s:b"), None, "the version's value does not come back");
        assert_eq!(get(node, "s:old"), None);
        assert_eq!(get(node, "s:new").as_deref(), Some("event"));
        assert_eq!(get(node, "s:count").as_deref(), Some(r#"{"n":2}"#));
        assert_eq!(get(node, "s:c").as_deref(), Some("pushed-c"));
        let several: Vec<Option<String>> = asked(node, &["MGET", "s:old", "s:new", "s:b"]);
        assert_eq!(several, [None, Some("event".to_owned()), None]);
        assert_eq!(asked::<u32>(node, &["EXISTS", "s:old", "s:b", "s:new"]), 1);
        let (_, mut listed): (u64, Vec<String>) = asked(node, &["SCAN", "0", "COUNT", "1000"]);
        listed.sort();
        assert_eq!(listed, ["s:a", "s:c", "s:count", "s:last", "s:new"]);
        for (key, age_ms) in [("new", 30 * MINUTE_MS), ("count", MINUTE_MS), ("last", MINUTE_MS)] {
            assert_eq!(
                end_ms(node, &format!("s:{key}")),
                (now_ms - age_ms + HOUR_MS) as i64,
                "{key}"
            );
        }
        let left: i64 = asked(node, &["TTL", "s:new"]);
        assert!((1..=30 * 60).contains(&left), "{left}");
        let left: i64 = asked(node, &["TTL", "s:c"]);
        assert!((3000..=3600).contains(&left), "{left}");
        for key in ["s:old", "s:b", "s:none"] {
            assert_eq!(asked::<i64>(node, &["PTTL", key]), -2, "{key}");
        }
    };
    check(&node);
    node.kill();
    let node = Node::dev(&data);
    until("the version to answer", || get(&node, "s:last").is_some());
    check(&node);

    // A version of old data has expired as a whole, but for later events.
    push(&node, &csv, &["--as-of", &(now_ms - 90 * MINUTE_MS).to_string()]);
    assert_eq!((get(&node, "s:c"), get(&node, "s:a").is_some()), (None, true));
    assert_eq!(get(&node, "s:new").as_deref(), Some("event"));
    node.done(&["rollback", "s"]);
    check(&node);

    // A difference has a time of its own, and the records that it leaves keep theirs.
    push(&node, &csv, &["--as-of", &as_of_ms.to_string()]);
    assert_eq!(end_ms(&node, "s:b"), (as_of_ms + HOUR_MS) as i64);
    let later_ms = as_of_ms + 5 * MINUTE_MS;
    write_csv(&changed, rows(&["b", "d"]));
    push(&node, &changed, &["--incremental", "--as-of", &later_ms.to_string()]);
    let ends = |node: &Node| ["s:b", "s:c", "s:d"].map(|key| end_ms(node, key) - HOUR_MS as i64);
    let expected = [later_ms, as_of_ms, later_ms].map(|ms| ms as i64);
    assert_eq!(ends(&node), expected);
    // A change of the time to live applies to the next version, and to the times that its records have.
    node.done(&["store", "alter", "s", "--ttl", "2h"]);
    assert_eq!(ends(&node), expected);
    write_csv(&changed, rows(&["d"]));
    push(&node, &changed, &["--incremental", "--as-of", &later_ms.to_string()]);
    assert_eq!(ends(&node), expected.map(|ms| ms + HOUR_MS as i64));
    node.done(&["store", "alter", "s", "--ttl", "0"]);
    push(&node, &csv, &["--as-of", &as_of_ms.to_string()]);
    assert_eq!(end_ms(&node, "s:b"), -1);
}

#[test]
fn a_compaction_keeps_the_times_of_events_and_drops_what_has_expired() {
    const TTL_MS: u64 = 20 * MINUTE_MS;
    let dir = tempfile::tempdir().unwrap();
    let (data, csv) = (dir.path().join("data"), dir.path().join("rows.csv"));
    let node = Node::dev(&data);
    let create = [
        "store", "create", "s", "--kind", "hybrid", "--stream", "log:1", "--grace", "1s", "--ttl", "20min",
    ];
    node.done(&create);
    let begin_ms = now_ms();
    let as_of_ms = begin_ms - HOUR_MS;
    write_csv(&csv, rows(&["gone-1", "gone-2", "replaced"]));
    push(&node, &csv, &["--as-of", &as_of_ms.to_string()]);
    assert_eq!(get(&node, "s:gone-1"), None);
    let changed = dir.path().join("new.csv");
    write_csv(&changed, rows(&["lives"]));
    let changed_ms = begin_ms - MINUTE_MS;
    push(&node, &changed, &["--incremental", "--as-of", &changed_ms.to_string()]);
    let event = |key: &str, ms: u64| json!({"key": key, "value": "event", "time_unix_ms": ms});
    let add = |ms: u64| json!({"key": "count", "update": {"increment": {"n": 1}}, "time_unix_ms": ms});
    log(
        &node,
        "s",
        json!([
            event("replaced", begin_ms),
            add(begin_ms),
            add(begin_ms + 5),
            event("new", begin_ms + 1)
        ]),
    );
    until("the events to be settled", || {
        log(&node, "s", json!([event("tick", now_ms())]));
        let stream = node.http_get("/v1/stores/s/stream");
        let versions = stream["versions"].as_array().unwrap();
        versions
            .iter()
            .all(|version| version["settled_unix_ms"].as_u64().unwrap() > begin_ms + 5)
    });
    let compacted = node.json(&["store", "compact", "s", "--quiet"]);
    assert_eq!(compacted["push"]["state"], "swapped", "{compacted}");
    let expected = [
        ("replaced", begin_ms),
        ("count", begin_ms + 5),
        ("new", begin_ms + 1),
        ("lives", changed_ms),
    ];
    let check = |node: &Node| {
        for (key, ms) in expected {
            assert_eq!(end_ms(node, &format!("s:{key}")), (ms + TTL_MS) as i64, "{key}");
        }
        assert_eq!(get(node, "s:count").as_deref(), Some(r#"{"n":2}"#));
        assert_eq!(get(node, "s:lives").as_deref(), Some("pushed-lives"));
        assert_eq!(get(node, "s:gone-1"), None);
    };
    check(&node);
    let versions = node.json(&["store", "show", "s"])["versions"]
        .as_array()
        .unwrap()
        .clone();
    let current = versions.iter().find(|version| version["current"] == true).unwrap();
    let records = current["records"].as_u64().unwrap();
    assert!((4..=5).contains(&records), "both expired records are gone: {current}");
    node.kill();
    let node = Node::dev(&data);
    until("the version to answer", || get(&node, "s:new").is_some());
    check(&node);
}

#[test]
fn events_beyond_the_quota_of_writes_are_refused_until_there_is_room_and_none_is_dropped() {
    let dev = Dev::start();
    let create = ["store", "create", "s", "--kind", "hybrid", "--stream", "log"];
    dev.done(&[&create[..], &["--write-keys-per-second", "20"]].concat());
    let csv = dev.csv("rows.csv", rows(&["a"]));
    push(&dev, &csv, &[]);
    let events = |from: u64| -> Value {
        let events = (from..from + 50).map(|number| json!({"key": format!("k{number}"), "value": "v"}));
        json!({"events": events.collect::<Vec<_>>()})
    };
    dev.http_post("/v1/stores/s/events", events(0));
    assert_eq!(dev.http_refused("/v1/stores/s/events", events(50)), "quota");
    assert_eq!(get(&dev, "s:k99"), None);
    dev.done(&["store", "alter", "s", "--write-keys-per-second", "0"]);
    dev.http_post("/v1/stores/s/events", events(50));
    until("all events to be read", || {
        (0..100).all(|number| get(&dev, &format!("s:k{number}")).is_some())
    });
}
