//! Versioned stores, as people and programs use them: created, written, read, listed, protected, and intact after a
//! crash.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use redis::{Commands, Value};
use serde_json::json;

use super::node::{Dev, Node, until};

/// The SHA-256 of `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn create(node: &Node, name: &str, options: &[&str]) {
    node.done(&[&["store", "create", name, "--kind", "versioned"], options].concat());
}

fn code<T: redis::FromRedisValue + std::fmt::Debug>(answer: redis::RedisResult<T>) -> String {
    answer.unwrap_err().code().unwrap_or_default().to_owned()
}

#[test]
fn a_store_is_created_written_read_listed_and_dropped() {
    let dev = Dev::start();
    create(&dev, "carts", &["--ttl", "1h"]);
    let store = dev.json(&["store", "show", "carts"]);
    assert_eq!(store["kind"], "versioned");
    assert_eq!(
        (&store["versioned"]["reads"], &store["versioned"]["writes"]),
        (&json!(1), &json!(1))
    );
    let shown = dev.done(&["store", "show", "carts"]);
    assert!(
        shown.contains("versioned") && shown.contains("values live 1h"),
        "{shown}"
    );

    let mut redis = dev.redis();
    let keys: BTreeSet<String> = (0..300).map(|key| format!("carts:{key}")).collect();
    for key in &keys {
        redis.set::<_, _, ()>(key, format!("value of {key}")).unwrap();
    }
    redis.del::<_, ()>("carts:7").unwrap();
    assert_eq!(dev.done(&["get", "carts:42"]), "value of carts:42");
    assert_eq!(
        dev.done(&["mget", "carts:1", "carts:2"]),
        "carts:1\tvalue of carts:1\ncarts:2\tvalue of carts:2\n"
    );
    assert!(dev.refused(1, &["get", "carts:7"]).contains("no key"));
    let listed = dev.done(&["scan", "carts"]);
    let listed: Vec<&str> = listed.lines().collect();
    let distinct: BTreeSet<String> = listed.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(distinct.len(), listed.len(), "a key is listed once");
    assert_eq!(distinct, keys.iter().filter(|key| *key != "carts:7").cloned().collect());
    let ttl: i64 = redis.ttl("carts:1").unwrap();
    assert!((3000..=3600).contains(&ttl), "{ttl}");

    dev.done(&["store", "alter", "carts", "--ttl", "0", "--durability", "fsync"]);
    until("the store has no time to live", || {
        redis.set::<_, _, ()>("carts:1", "x").unwrap();
        redis.ttl::<_, i64>("carts:1").unwrap() == -1
    });
    dev.refused(2, &["store", "alter", "carts"]);
    assert!(
        dev.refused(1, &["store", "alter", "carts", "--engine", "memory"])
            .contains("engine")
    );
    for command in [&["rollback", "carts"][..], &["swap", "carts", "--to", "1"]] {
        assert!(dev.refused(1, command).contains("versioned"), "{command:?}");
    }

    dev.done(&["store", "drop", "carts", "--yes"]);
    assert_eq!(code(redis.get::<_, Option<String>>("carts:1")), "NOSTORE");
    create(&dev, "carts", &[]);
    assert_eq!(
        redis.get::<_, Option<String>>("carts:1"),
        Ok(None),
        "another store of the name"
    );
}

#[test]
fn writes_to_batch_stores_and_of_several_keys_are_refused() {
    let dev = Dev::start();
    dev.push("batch", [("1".to_owned(), "x".to_owned())]);
    create(&dev, "s", &[]);
    let mut redis = dev.redis();
    assert_eq!(code(redis.set::<_, _, ()>("batch:1", "y")), "READONLY");
    assert_eq!(code(redis.del::<_, ()>(&["s:1", "batch:1"])), "READONLY");
    assert_eq!(code(redis.rename::<_, _, ()>("s:1", "s:2")), "ERR");
    assert_eq!(code(redis.set::<_, _, ()>("s:", "y")), "BADKEY");
    assert_eq!(code(redis.set::<_, _, ()>("none:1", "y")), "NOSTORE");
    // Lookups may span stores of both kinds.
    redis.set::<_, _, ()>("s:1", "y").unwrap();
    let both: Vec<Option<String>> = redis.mget(&["s:1", "batch:1", "s:2"]).unwrap();
    assert_eq!(both, [Some("y".to_owned()), Some("x".to_owned()), None]);
}

#[test]
fn a_user_writes_only_permitted_stores_within_its_quota() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fondaco.toml");
    let users = format!(
        "[[users]]\nname = \"default\"\npassword-sha256 = \"{SECRET}\"\nwrites = [\"*\"]\n\
         [[users]]\nname = \"reader\"\npassword-sha256 = \"{SECRET}\"\nstores = [\"*\"]\nwrites = [\"own-*\"]\n"
    );
    let data = dir.path().join("data");
    let text = format!(
        "data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nallow-insecure = true\n[peers]\npassword = \"secret\"\n{users}"
    );
    fs::write(&path, text).unwrap();
    let node = Node::server(&path);
    create(&node, "other", &[]);
    create(&node, "own-1", &["--write-keys-per-second", "20"]);
    let mut reader = node.redis_as("reader:secret@");
    assert_eq!(code(reader.set::<_, _, ()>("other:1", "x")), "NOPERM");
    assert_eq!(code(reader.incr::<_, _, i64>("other:1", 1)), "NOPERM");
    let hint = redis::cmd("FONDACO.RMERGE")
        .arg(&["v1;timeout=1000", "1", "other", "1", "x"])
        .query::<Value>(&mut reader);
    assert_eq!(code(hint), "NOPERM");
    assert_eq!(reader.get::<_, Option<String>>("other:1"), Ok(None));
    let mut writer = node.redis_as(":secret@");
    assert_eq!(writer.set::<_, _, ()>("other:1", "x"), Ok(()));
    let answers: Vec<redis::RedisResult<()>> = (0..100).map(|key| reader.set(format!("own-1:{key}"), "x")).collect();
    let refused = answers.into_iter().filter_map(Result::err);
    let codes: BTreeSet<String> = refused
        .map(|error| error.code().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(codes, BTreeSet::from(["QUOTA".to_owned()]));
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    for durability in ["log", "fsync"] {
        let (node, dir) = Dev::start().into_parts();
        create(&node, "s", &["--durability", durability]);
        let mut redis = node.redis();
        let mut pipeline = redis::pipe();
        for key in 0..500 {
            pipeline.cmd("SET").arg(format!("s:{key}")).arg(key).ignore();
        }
        pipeline.exec(&mut redis).unwrap();
        redis.del::<_, ()>("s:3").unwrap();
        node.kill();
        let node = Node::dev(&dir.path().join("data"));
        let mut redis = node.redis();
        let keys: Vec<String> = (0..500).map(|key| format!("s:{key}")).collect();
        let values: Vec<Option<u64>> = redis.mget(&keys).unwrap();
        for (key, value) in (0..500).zip(values) {
            assert_eq!(value, Some(key).filter(|&key| key != 3), "{durability}, {key}");
        }
    }
}

#[test]
fn acknowledged_updates_of_fields_survive_kill_9_and_follow_the_schema() {
    const KEYS: i64 = 200;
    for resolution in ["latest", "fields"] {
        let (node, dir) = Dev::start().into_parts();
        let options = [
            "--durability",
            "log",
            "--value-type",
            "avro",
            "--resolution",
            resolution,
        ];
        create(&node, "s", &options);
        let fields = json!([{"name": "name", "type": "string"}, {"name": "views", "type": "long", "default": 0}]);
        let schema = json!({"type": "record", "name": "User", "fields": fields});
        let registered = node.http_post("/v1/stores/s/schemas", json!({"schema": schema}));
        assert_eq!(registered["id"], 1, "{registered}");
        let mut redis = node.redis();
        let mut update = |key: &str, update: serde_json::Value| {
            let update = update.to_string();
            redis::cmd("FONDACO.UPDATE")
                .arg(key)
                .arg(&update)
                .query::<String>(&mut redis)
        };
        until("the node to know the schema", || {
            update("s:0", json!({"set": {"name": "0"}})).is_ok()
        });
        for key in 0..KEYS {
            let name = format!("s:{key}");
            update(&name, json!({"set": {"name": key.to_string()}})).unwrap();
            update(&name, json!({"increment": {"views": key}})).unwrap();
        }
        assert_eq!(code(update("s:1", json!({"set": {"views": "many"}}))), "WRONGTYPE");
        node.kill();
        let node = Node::dev(&dir.path().join("data"));
        let mut redis = node.redis();
        for key in 0..KEYS {
            let shown = || -> redis::RedisResult<String> {
                let mut redis = node.redis();
                let mut command = redis::cmd("FONDACO.UPDATE");
                command
                    .arg(format!("s:{key}"))
                    .arg(r#"{"increment":{"views":1}}"#)
                    .arg("RETURN");
                command.query(&mut redis)
            };
            let shown: serde_json::Value = serde_json::from_str(&shown().unwrap()).unwrap();
            assert_eq!(
                shown,
                json!({"name": key.to_string(), "views": key + 1}),
                "{resolution}"
            );
        }
        let stored: Vec<u8> = redis.get("s:1").unwrap();
        assert_eq!(stored, [1, 2, b'1', 4], "the schema's id, a text, a number");
    }
}

#[test]
fn redis_benchmark_runs_its_writes() {
    let dev = Dev::start();
    // The prefix of its keys.
    create(&dev, "key", &[]);
    create(&dev, "counter", &[]);
    let (host, port) = dev.resp.rsplit_once(':').unwrap();
    let benchmark = Command::new("redis-benchmark")
        .args([
            "-h",
            host,
            "-p",
            port,
            "-t",
            "set,get,incr,mset",
            "-n",
            "2000",
            "-r",
            "1000",
            "-P",
            "8",
            "--csv",
        ])
        .output();
    let output = match benchmark {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: there is no redis-benchmark: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("ERR"), "{text}");
    for name in ["SET", "GET", "INCR", "MSET"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let mut redis = dev.redis();
    let (_, counters): (u64, Vec<String>) = redis::cmd("SCAN")
        .arg(0)
        .arg("MATCH")
        .arg("counter:*")
        .arg("COUNT")
        .arg(5000)
        .query(&mut redis)
        .unwrap();
    let counted: Vec<u64> = redis.mget(&counters).unwrap();
    assert_eq!(counted.iter().sum::<u64>(), 2000);
}

#[test]
fn a_node_that_refuses_all_writes_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let server = |reserve: &str| {
        let config = dir.path().join("fondaco.toml");
        let data = dir.path().join("data");
        let text =
            format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ndisk-reserve = \"{reserve}\"\n");
        std::fs::write(&config, text).unwrap();
        Node::server(&config)
    };
    let reasons = |node: &Node| node.http_get("/v1/status")["not_ready"].to_string();
    let node = server("1MiB");
    node.done(&["store", "create", "carts", "--kind", "versioned"]);
    assert_eq!(reasons(&node), "[]");
    node.terminate();
    let node = server("1000000GiB");
    let reasons = reasons(&node);
    assert!(
        reasons.contains("writes to versioned stores are refused") && reasons.contains("must stay free"),
        "{reasons}"
    );
}
