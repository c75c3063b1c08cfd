//! Fields of values, and scores over them: read where the values are, from routers and nodes, of batch and versioned stores.

use std::fmt::Write;

use fondaco_testing::Kafka;
use redis::Value as Reply;
use serde_json::{Value, json};

use super::node::{Node, of_csv, until, write_csv};
use super::sets::{addresses, ask, connect, requests, several};

const KEYS: u64 = 300;

/// Items with a vector, as the first schema has them.
const ITEM: &str = r#"{"type":"record","name":"Item","fields":[
    {"name":"id","type":"long"},
    {"name":"name","type":"string"},
    {"name":"sold","type":"boolean"},
    {"name":"price","type":["null","double"],"default":null},
    {"name":"tags","type":{"type":"array","items":"string"}},
    {"name":"embedding","type":{"type":"array","items":"float"}}]}"#;

/// The second schema: a field more, one that is renamed and wider.
const NEWER: &str = r#"{"type":"record","name":"Item","fields":[
    {"name":"number","type":"double","aliases":["id"]},
    {"name":"name","type":"string"},
    {"name":"city","type":"string","default":"Venice"},
    {"name":"price","type":["null","double"],"default":null},
    {"name":"tags","type":{"type":"array","items":"string"}},
    {"name":"embedding","type":{"type":"array","items":"float"}}]}"#;

fn price(id: u64) -> Option<f64> {
    (!id.is_multiple_of(10)).then_some(id as f64 + 0.5)
}

fn item(id: u64) -> Value {
    let tags: Vec<String> = (0..id % 4).map(|tag| format!("tag-{tag}")).collect();
    json!({"id": id, "name": format!("item {id}"), "sold": id.is_multiple_of(2), "price": price(id), "tags": tags, "embedding": [id, 1, -1, 0.5]})
}

fn floats(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

/// A cluster of two groups with a batch store of items, and a versioned store of the same type.
fn items() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let groups = ["--nodes", "4", "--groups", "2", "--loops", "1"];
    let dev = several(&dir.path().join("data"), &groups);
    dev.done(&["store", "create", "items", "--value-type", "avro"]);
    dev.done(&[
        "store",
        "create",
        "carts",
        "--kind",
        "versioned",
        "--value-type",
        "avro",
        "--reads",
        "1",
        "--writes",
        "1",
    ]);
    for store in ["items", "carts"] {
        dev.http_post(&format!("/v1/stores/{store}/schemas"), json!({"schema": ITEM}));
    }
    for (role, address) in addresses(&dev, "node").iter().chain(&addresses(&dev, "router")) {
        let redis = &mut connect(address);
        until(&format!("{role} knows the schemas"), || {
            let found = command("FONDACO.MGET FIELDS 1 id", &[], &["carts:none".to_owned()]).query::<Vec<Reply>>(redis);
            found.is_ok_and(|found| found == [Reply::Nil])
        });
    }
    let mut rows = String::new();
    for id in 0..KEYS {
        let mut row = item(id);
        row["key"] = json!(id.to_string());
        writeln!(rows, "{row}").unwrap();
    }
    let input = dir.path().join("items.jsonl");
    std::fs::write(&input, rows).unwrap();
    dev.done(&[
        "push",
        "items",
        input.to_str().unwrap(),
        "--key",
        "key",
        "--values",
        "id,name,sold,price,tags,embedding",
    ]);
    (dir, dev)
}

fn command(words: &str, more: &[&[u8]], keys: &[String]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words.split(' ') {
        match word {
            "$" => _ = command.arg(more[0]),
            word => _ = command.arg(word),
        }
    }
    command.arg(keys);
    command
}

fn of_items(ids: impl IntoIterator<Item = u64>) -> Vec<String> {
    ids.into_iter().map(|id| format!("items:{id}")).collect()
}

fn error(redis: &mut redis::Connection, words: &str, more: &[&[u8]], keys: &[String]) -> String {
    let refused = command(words, more, keys).query::<Reply>(redis).unwrap_err();
    refused.to_string()
}

/// Two fields of an item, each with its name.
type Found = (String, String, String, Option<f64>);

#[test]
fn fields_and_scores_are_alike_at_router_and_nodes() {
    let (_dir, dev) = items();
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    assert_eq!(all.len(), 5);
    let vector = floats(&[1.0, 2.0, 0.0, 4.0]);
    for (name, address) in &all {
        let redis = &mut connect(address);
        let found: Vec<Option<Found>> = command("FONDACO.MGET FIELDS 2 name price", &[], &of_items([7, 10, 9999]))
            .query(redis)
            .unwrap();
        let of = |id: u64| Some(("name".into(), format!("item {id}"), "price".into(), price(id)));
        assert_eq!(found, [of(7), of(10), None], "{name}");
        let found: Vec<Option<String>> = command(
            "FONDACO.MGET FIELDS 2 tags id AS JSON WHERE sold = true AND price > 100",
            &[],
            &of_items([2, 101, 102]),
        )
        .query(redis)
        .unwrap();
        assert_eq!(
            found,
            [None, None, Some(r#"{"tags":["tag-0","tag-1"],"id":102}"#.into())],
            "{name}"
        );
        let found: Vec<Vec<u8>> = command("FONDACO.MGET FIELDS 1 id AS RAW", &[], &of_items([3]))
            .query(redis)
            .unwrap();
        assert_eq!(found, [[6]], "{name}");
        let scores: Vec<Option<f64>> = command(
            "FONDACO.MSCORE DOT embedding VECTOR $ KEYS",
            &[&vector],
            &of_items([0, 5, 9999]),
        )
        .query(redis)
        .unwrap();
        assert_eq!(scores, [Some(4.0), Some(9.0), None], "{name}");
        let words = "FONDACO.MSCORE DOT embedding VECTOR $ WHERE price < 200 TOP 3 KEYS";
        let top: Vec<(String, f64)> = command(words, &[&vector], &of_items(0..KEYS)).query(redis).unwrap();
        assert_eq!(
            top,
            [199, 198, 197].map(|id| (format!("items:{id}"), id as f64 + 4.0)),
            "{name}"
        );
        let counts: Vec<Option<u64>> = command("FONDACO.MSCORE COUNT tags KEYS", &[], &of_items([0, 3]))
            .query(redis)
            .unwrap();
        assert_eq!(counts, [Some(0), Some(3)], "{name}");
        let products: Vec<Vec<u8>> = command(
            "FONDACO.MSCORE HADAMARD embedding VECTOR $ KEYS",
            &[&vector],
            &of_items([5]),
        )
        .query(redis)
        .unwrap();
        assert_eq!(products, [floats(&[5.0, 2.0, -0.0, 2.0])], "{name}");
        let cosine: Vec<f64> = command(
            "FONDACO.MSCORE COSINE embedding VECTOR $ KEYS",
            &[&floats(&[2.0, 1.0, -1.0, 0.5])],
            &of_items([2]),
        )
        .query(redis)
        .unwrap();
        assert!((cosine[0] - 1.0).abs() < 1e-6, "{name}: {cosine:?}");
    }
    // A client of version 3 gets maps, numbers and booleans.
    let redis = &mut dev.redis_resp3();
    let found: Vec<Reply> = command("FONDACO.MGET FIELDS 3 sold price id", &[], &of_items([4]))
        .query(redis)
        .unwrap();
    let text = |text: &str| Reply::BulkString(text.into());
    let pairs = vec![
        (text("sold"), Reply::Boolean(true)),
        (text("price"), Reply::Double(4.5)),
        (text("id"), Reply::Int(4)),
    ];
    assert_eq!(found, [Reply::Map(pairs)]);
}

#[test]
fn a_router_asks_the_nodes_for_fields_and_not_for_values() {
    let (_dir, dev) = items();
    let nodes = addresses(&dev, "node");
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let asked = |counted| requests(&nodes, counted);
    let before = (asked("fondaco.compute"), asked("fondaco.read"));
    let keys = of_items(0..KEYS);
    let found: Vec<Reply> = command("FONDACO.MGET FIELDS 1 id", &[], &keys).query(router).unwrap();
    assert_eq!(found.len(), KEYS as usize);
    assert!(asked("fondaco.compute") > before.0);
    assert_eq!(asked("fondaco.read"), before.1);
}

#[test]
fn older_values_are_read_by_the_newest_schema_or_by_the_one_that_is_asked_for() {
    let (_dir, dev) = items();
    dev.http_post("/v1/stores/items/schemas", json!({"schema": NEWER}));
    let redis = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let keys = of_items([7]);
    until("all nodes know the schema", || {
        let found = command("FONDACO.MGET FIELDS 2 number city AS JSON", &[], &of_items(0..KEYS));
        found
            .query::<Vec<String>>(redis)
            .is_ok_and(|found| found[7] == r#"{"number":7.0,"city":"Venice"}"#)
    });
    let found: Vec<String> = command("FONDACO.MGET FIELDS 2 id sold AS JSON SCHEMA 1", &[], &keys)
        .query(redis)
        .unwrap();
    assert_eq!(found, [r#"{"id":7,"sold":false}"#]);
    let refused = error(redis, "FONDACO.MGET FIELDS 2 name id", &[], &keys);
    assert!(
        refused.contains("no field \"id\"") && refused.contains("number, name, city"),
        "{refused}"
    );
    let refused = error(redis, "FONDACO.MGET FIELDS 1 id SCHEMA 7", &[], &keys);
    assert!(refused.contains("no schema has the id 7"), "{refused}");
}

#[test]
fn values_of_versioned_stores_are_read_at_their_quorums() {
    let (_dir, dev) = items();
    let schema = fondaco_schema::Schema::parse(fondaco_model::ValueType::Avro, ITEM.as_bytes(), None).unwrap();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    for id in 0..20 {
        let mut value = vec![1];
        value.extend(schema.of_json(&item(id)).unwrap());
        redis::cmd("SET")
            .arg(format!("carts:{id}"))
            .arg(value)
            .exec(router)
            .unwrap();
    }
    let keys: Vec<String> = [3, 12, 99].map(|id| format!("carts:{id}")).into();
    for (role, address) in addresses(&dev, "node").iter().chain(&addresses(&dev, "router")) {
        let redis = &mut connect(address);
        let found: Vec<Option<String>> = command("FONDACO.MGET FIELDS 1 name AS JSON", &[], &keys)
            .query(redis)
            .unwrap();
        assert_eq!(
            found,
            [
                Some(r#"{"name":"item 3"}"#.into()),
                Some(r#"{"name":"item 12"}"#.into()),
                None
            ],
            "{role}"
        );
        let top: Vec<(String, u64)> = command("FONDACO.MSCORE COUNT tags TOP 1 KEYS", &[], &keys)
            .query(redis)
            .unwrap();
        assert_eq!(top, [("carts:3".to_owned(), 3)], "{role}");
    }
}

#[test]
fn what_cannot_be_computed_is_refused_by_name() {
    let (dir, dev) = items();
    dev.done(&["store", "create", "plain"]);
    let csv = dir.path().join("plain.csv");
    write_csv(&csv, [("a".to_owned(), "b".to_owned())]);
    dev.done(&of_csv("push", "plain", &csv, &[]));
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let keys = of_items([1, 2]);
    let nan = floats(&[1.0, f32::NAN, 0.0, 0.0]);
    let cases: [(&str, &[u8], &[String], &str); 9] = [
        ("FONDACO.MGET FIELDS 1 nothing", b"", &keys, "no field \"nothing\""),
        ("FONDACO.MGET FIELDS 1000000 id", b"", &keys, "from 1 to 1024"),
        ("FONDACO.MGET FIELDS 1 $", b"", &keys, "empty"),
        ("FONDACO.MSCORE DOT embedding VECTOR $ KEYS", b"abc", &keys, "3 bytes"),
        (
            "FONDACO.MSCORE DOT embedding VECTOR $ KEYS",
            &nan,
            &keys,
            "NaN at place 1",
        ),
        (
            "FONDACO.MSCORE DOT embedding VECTOR $ TOP 2 KEYS",
            &floats(&[1.0]),
            &keys,
            "4 floats, the given one 1",
        ),
        (
            "FONDACO.MSCORE DOT name VECTOR $ TOP 1 KEYS",
            &floats(&[1.0]),
            &keys,
            "no array of float",
        ),
        ("FONDACO.MGET FIELDS 1 id", b"", &["plain:a".into()], "no fields"),
        (
            "FONDACO.MGET FIELDS 1 id",
            b"",
            &["items:1".into(), "plain:a".into()],
            "of one store",
        ),
    ];
    for (words, vector, keys, part) in cases {
        let refused = error(router, words, &[vector], keys);
        assert!(refused.contains(part), "{words}: {refused}");
    }
    // An error of one key leaves the others, and PARTIAL lists it.
    let words = "FONDACO.MGET DEADLINE 5000 PARTIAL FIELDS 1 id WHERE name > x AND tags = x";
    let found: Vec<Reply> = command(words, &[], &of_items([1])).query(router).unwrap();
    assert_eq!(found, [Reply::Nil, Reply::Nil], "the first condition does not hold");
    let words = "FONDACO.MGET DEADLINE 5000 PARTIAL FIELDS 1 id WHERE id > 1 AND tags = x";
    let found: Vec<Reply> = command(words, &[], &of_items([1, 2])).query(router).unwrap();
    let Reply::Array(late) = &found[2] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&found[..2], &late[1..]),
        (&[Reply::Nil, Reply::Nil][..], &[Reply::Int(1)][..])
    );
    // The router serves on.
    assert_eq!(ask::<String>(router, "PING", &[]), "PONG");
}

#[test]
fn fields_of_hybrid_stores_are_those_of_later_events() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("fields-of-events", 2);
    let dir = tempfile::tempdir().unwrap();
    let dev = several(&dir.path().join("data"), &["--nodes", "2", "--loops", "1"]);
    let stream = format!("kafka://{}/fields-of-events", kafka.address());
    dev.done(&[
        "store",
        "create",
        "items",
        "--kind",
        "hybrid",
        "--value-type",
        "json",
        "--stream",
        &stream,
        "--replicas",
        "1",
    ]);
    let mut rows = String::new();
    for id in 0..50 {
        writeln!(
            rows,
            "{}",
            json!({"key": id.to_string(), "name": format!("item {id}"), "v": [id, 1]})
        )
        .unwrap();
    }
    let input = dir.path().join("items.jsonl");
    std::fs::write(&input, rows).unwrap();
    dev.done(&[
        "push",
        "items",
        input.to_str().unwrap(),
        "--key",
        "key",
        "--values",
        "name,v",
    ]);
    for id in [3, 4, 60] {
        let event = json!({"name": format!("later {id}"), "v": [100 + id, 1]}).to_string();
        topic.send(id % 2, Some(&id.to_string()), Some(&event), Vec::new());
    }
    topic.send(0, Some("5"), None, Vec::new());
    topic.flush();
    let vector = floats(&[1.0, 0.0]);
    for (role, address) in addresses(&dev, "node").iter().chain(&addresses(&dev, "router")) {
        let redis = &mut connect(address);
        let keys = of_items([2, 3, 4, 5, 60]);
        until(&format!("{role} answers with the events"), || {
            let found = command("FONDACO.MGET FIELDS 1 name AS JSON", &[], &keys).query::<Vec<Option<String>>>(redis);
            let of = |name: &str| Some(format!(r#"{{"name":"{name}"}}"#));
            found.is_ok_and(|found| found == [of("item 2"), of("later 3"), of("later 4"), None, of("later 60")])
        });
        let words = "FONDACO.MSCORE DOT v VECTOR $ TOP 3 KEYS";
        let top: Vec<(String, f64)> = command(words, &[&vector], &of_items(0..70)).query(redis).unwrap();
        let expected = [(60, 160.0), (4, 104.0), (3, 103.0)].map(|(id, score)| (format!("items:{id}"), score));
        assert_eq!(top, expected, "{role}");
    }
}
