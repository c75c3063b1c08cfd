//! Events that Confluent's own serializers write to Kafka, with schemas in a registry that is not ours.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fondaco_testing::{Kafka, SchemaRegistry, eventually, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::node::{Node, of_csv, write_csv};

/// The producer's packages.
const PACKAGES: &str = "confluent-kafka[avro,json,protobuf,schemaregistry]==2.16.1";

/// A Python that has Confluent's client, below `.cache`.
fn python() -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/confluent");
    fs::create_dir_all(&cache).unwrap();
    let lock = File::create(cache.join("lock")).unwrap();
    lock.lock().unwrap();
    let (venv, done) = (cache.join("venv"), cache.join("installed"));
    if fs::read_to_string(&done).is_ok_and(|installed| installed == PACKAGES) {
        return venv.join("bin/python");
    }
    let run = |command: &mut Command| {
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; install Python 3"));
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    run(Command::new(venv.join("bin/pip")).args(["install", "-q", "--disable-pip-version-check", PACKAGES]));
    fs::write(&done, PACKAGES).unwrap();
    venv.join("bin/python")
}

/// Sends events to a topic. Returns the value of each, as it is in the topic.
fn produce(kafka: &Kafka, registry: &SchemaRegistry, topic: &str, events: &[Value]) -> Vec<Vec<u8>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/confluent_producer.py");
    let mut command = Command::new(python());
    command.arg(script).args([&registry.url(), &kafka.address(), topic]);
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut producer = piped.spawn().unwrap();
    let mut input = producer.stdin.take().unwrap();
    for event in events {
        writeln!(input, "{event}").unwrap();
    }
    drop(input);
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let bytes = |line: &str| {
        let pairs = line.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    lines.lines().map(bytes).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hybrid store of this type with an empty version, whose events are in the topic of its name. A push needs a schema of the store.
fn store(
    node: &Node,
    dir: &Path,
    (kafka, registry): (&Kafka, &SchemaRegistry),
    (name, value_type): (&str, &str),
    schema: Option<Value>,
) {
    kafka.make_topic(name, 2);
    let stream = format!("kafka://{}/{name}", kafka.address());
    let create = ["store", "create", name, "--kind", "hybrid", "--value-type", value_type];
    node.done(&[&create[..], &["--stream", &stream, "--registry", &registry.url()]].concat());
    if let Some(schema) = schema {
        let registered = node.http_post(&format!("/v1/stores/{name}/schemas"), schema);
        assert_eq!(registered["id"], 1);
    }
    let none = dir.join(format!("{name}.csv"));
    write_csv(&none, []);
    node.done(&of_csv("push", name, &none, &["--allow-empty"]));
}

/// A process with three nodes, each of which has all partitions, and reads the topics by itself.
fn cluster() -> (TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::dev_with(
        &dir.path().join("data"),
        &["--nodes", "3", "--replicas", "3", "--loops", "1"],
    );
    (dir, node)
}

/// Waits until the nodes have read equally much of a store's stream, and returns how many events each has applied and refused.
fn counts(node: &Node, store: &str) -> (u64, u64) {
    eventually("the nodes to have read all", || {
        let versions = node.http_get(&format!("/v1/stores/{store}/stream"))["versions"].clone();
        let versions = versions.as_array().unwrap();
        let count = |version: &Value, name: &str| version[name].as_u64().unwrap();
        let counts = versions
            .iter()
            .map(|version| (count(version, "applied"), count(version, "poison")));
        let counts: Vec<_> = counts.collect();
        let is_read = |version: &Value| {
            let mut partitions = version["partitions"].as_array().unwrap().iter();
            partitions.all(|partition| partition["lag_records"] == 0)
        };
        (counts.len() == 3 && versions.iter().all(is_read) && counts.iter().all(|count| *count == counts[0]))
            .then(|| counts[0])
    })
}

fn get(node: &Node, key: &str) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(key).query(&mut node.redis()).unwrap()
}

fn wait_for(node: &Node, key: &str, value: &[u8]) {
    until(&format!("{key} to have its value"), || {
        get(node, key).as_deref() == Some(value)
    });
}

/// The reasons of the events of a store that are poison, by partition and offset.
fn poison(node: &Node, store: &str) -> Vec<String> {
    let found = node.http_get(&format!("/v1/stores/{store}/stream/poison"));
    let records = found["records"].as_array().unwrap().iter();
    records
        .map(|record| record["reason"].as_str().unwrap().to_owned())
        .collect()
}

fn schema_ids(node: &Node, store: &str) -> Vec<u64> {
    let found = node.http_get(&format!("/v1/stores/{store}/schemas"));
    let schemas = found["schemas"].as_array().unwrap().iter();
    schemas.map(|schema| schema["id"].as_u64().unwrap()).collect()
}

fn user(fields: &[Value]) -> Value {
    let fields = [&[json!({"name": "age", "type": "int"})], fields].concat();
    json!({"type": "record", "name": "User", "namespace": "shop", "fields": fields})
}

#[test]
fn avro_values_are_stored_with_schemas_that_come_from_the_registry() {
    let (kafka, registry) = (Kafka::start(), SchemaRegistry::start());
    let (dir, node) = cluster();
    // The store has the first schema already, in another form.
    let mut own = user(&[]);
    own["doc"] = json!("users of the shop");
    let own = Some(json!({"schema": own}));
    store(&node, dir.path(), (&kafka, &registry), ("users", "avro"), own);
    let first = user(&[]);
    let second = user(&[json!({"name": "city", "type": "string", "default": "Venice"})]);
    // The registry has other numbers, since another topic has schemas there.
    let events = [
        json!({"key": "", "topic": "others", "avro": {"type": "record", "name": "Other", "fields": []}, "value": {}}),
        json!({"key": "old", "avro": first, "value": {"age": 1}}),
        json!({"key": "new", "avro": second, "value": {"age": 2, "city": "Chioggia"}}),
    ];
    let sent = produce(&kafka, &registry, "users", &events);
    assert_eq!(
        (&sent[1][..5], &sent[2][..5]),
        (&[0, 0, 0, 0, 2][..], &[0, 0, 0, 0, 3][..])
    );
    wait_for(&node, "users:old", &[&[1], &sent[1][5..]].concat());
    wait_for(&node, "users:new", &[&[2], &sent[2][5..]].concat());
    assert_eq!(schema_ids(&node, "users"), [1, 2]);
    // Apicurio accepts a clash that the store does not: the new field has no default.
    let clash = user(&[json!({"name": "name", "type": "string"})]);
    let cut = format!("{}{}", "00".repeat(4), "0302");
    let bad = [
        json!({"key": "clash", "avro": clash, "value": {"age": 3, "name": "x"}}),
        json!({"key": "cut", "bytes": cut}),
        json!({"key": "unknown", "bytes": "0000000fa002"}),
        json!({"key": "text", "bytes": "7b7d"}),
        json!({"key": "last", "avro": second, "value": {"age": 4, "city": "x"}}),
    ];
    let sent = produce(&kafka, &registry, "users", &bad);
    wait_for(&node, "users:last", &[&[2], &sent[4][5..]].concat());
    until("all bad events to be poison", || poison(&node, "users").len() == 4);
    let reasons = poison(&node, "users");
    let has = |parts: &[&str]| {
        let found = reasons
            .iter()
            .any(|reason| parts.iter().all(|part| reason.contains(part)));
        assert!(found, "{parts:?}: {reasons:#?}");
    };
    has(&[
        "schema 4 of the registry",
        "is not accepted",
        "compatibility is backward",
        "name",
    ]);
    has(&["of type avro", "field \"city\""]);
    has(&["has no schema 4000"]);
    has(&["begins with 0x7b, not with 0x00"]);
    assert_eq!(schema_ids(&node, "users"), [1, 2]);
    for key in ["clash", "cut", "unknown", "text"] {
        assert_eq!(get(&node, &format!("users:{key}")), None);
    }
    a_registry_that_is_away_stalls_the_stream(&node, &kafka, &registry);
}

fn a_registry_that_is_away_stalls_the_stream(node: &Node, kafka: &Kafka, registry: &SchemaRegistry) {
    let third = user(&[json!({"name": "zip", "type": ["null", "string"], "default": null})]);
    let made = produce(
        kafka,
        registry,
        "users",
        &[json!({"key": "", "topic": "others", "avro": third, "value": {"age": 9, "zip": null}})],
    );
    registry.pause();
    produce(
        kafka,
        registry,
        "users",
        &[json!({"key": "stalled", "bytes": hex(&made[0])})],
    );
    let why = "is not given";
    until("the reason to be visible", || {
        node.done(&["store", "show", "users"]).contains(why)
    });
    let lag = node.http_get("/v1/stores/users/stream")["versions"][0]["partitions"].clone();
    assert!(
        lag.as_array()
            .unwrap()
            .iter()
            .any(|partition| partition["lag_records"] == 1),
        "{lag}"
    );
    assert_eq!(poison(node, "users").len(), 4);
    registry.resume();
    wait_for(node, "users:stalled", &[&[3], &made[0][5..]].concat());
    assert_eq!(counts(node, "users"), (4, 4), "each node took and refused the same");
    until("the reason to be gone", || {
        !node.done(&["store", "show", "users"]).contains(why)
    });
}

#[test]
fn json_and_protobuf_values_are_stored_in_the_form_of_the_store() {
    let (kafka, registry) = (Kafka::start(), SchemaRegistry::start());
    let (dir, node) = cluster();
    store(&node, dir.path(), (&kafka, &registry), ("texts", "json"), None);
    // The file of the producer's messages, as a set.
    let set = "CmEKCnVzZXIucHJvdG8SBHNob3AiIgoFT3RoZXISCwoDYWdlGAIgASgFEgwKBGNpdHkYBCABKAkiIQoEVXNlchILCgNhZ2UYASABKAUSDAoEY2l0eRgDIAEoCWIGcHJvdG8z";
    let own = Some(json!({"schema": set, "message": "shop.User"}));
    store(&node, dir.path(), (&kafka, &registry), ("messages", "protobuf"), own);
    let schema = json!({"title": "User", "type": "object", "properties": {"age": {"type": "integer"}}});
    let avro = user(&[]);
    let sent = produce(
        &kafka,
        &registry,
        "texts",
        &[
            json!({"key": "k", "json": schema, "value": {"age": 1}}),
            // Apicurio takes the second schema of a topic for one of the first one's type.
            json!({"key": "", "topic": "others", "avro": avro, "value": {"age": 1}}),
        ],
    );
    let foreign = json!({"key": "avro", "bytes": hex(&sent[1])});
    produce(&kafka, &registry, "texts", &[foreign]);
    wait_for(&node, "texts:k", &sent[0][5..]);
    until("the Avro value to be poison", || poison(&node, "texts").len() == 1);
    let reason = &poison(&node, "texts")[0];
    assert!(
        reason.contains("is of type AVRO, and the values of the store are of type json"),
        "{reason}"
    );

    // It is the second message of its file.
    let sent = produce(
        &kafka,
        &registry,
        "messages",
        &[json!({"key": "user", "protobuf": 1, "value": {"age": 5, "city": "x"}})],
    );
    wait_for(&node, "messages:user", &[&[1], &sent[0][7..]].concat());
    let schemas = node.http_get("/v1/stores/messages/schemas");
    assert_eq!(schemas["schemas"].as_array().unwrap().len(), 1, "{schemas}");
}
