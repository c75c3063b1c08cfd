//! Stores whose values have schemas: registration, checks of writes, reading by people, and upgrades under traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use fondaco_model::ValueType;
use fondaco_schema::{Resolver, Schema, put_id, read_id};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{Node, until};

/// Three versions of a schema, each compatible with the others both ways.
const VERSIONS: [&str; 3] = [
    r#"{"type":"record","name":"Member","fields":[{"name":"id","type":"long"},{"name":"name","type":"string","default":"nobody"}]}"#,
    r#"{"type":"record","name":"Member","fields":[{"name":"id","type":"long"},{"name":"name","type":"string","default":"nobody"},{"name":"city","type":"string","default":"Venice"}]}"#,
    r#"{"type":"record","name":"Member","fields":[{"name":"id","type":"long"},{"name":"city","type":"string","default":"Venice"},{"name":"tags","type":{"type":"array","items":"string"},"default":["new"]}]}"#,
];

fn schema(text: &str) -> Schema {
    Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap()
}

/// A stored value: the number of its schema, and the payload.
fn stored(id: u16, schema: &Schema, json: &Value) -> Vec<u8> {
    let mut value = Vec::new();
    put_id(id, &mut value);
    value.extend(schema.of_json(json).unwrap());
    value
}

/// A cluster with a versioned store of Avro values.
fn with_store(options: &[&str]) -> Cluster {
    with_store_in(Shape::steady(), options)
}

fn with_store_in(shape: Shape, options: &[&str]) -> Cluster {
    let cluster = Cluster::start(shape);
    let create = [
        "store",
        "create",
        "members",
        "--kind",
        "versioned",
        "--value-type",
        "avro",
    ];
    cluster.any().done(&[&create[..], options].concat());
    cluster
}

/// Registers a schema through a process.
fn register(cluster: &Cluster, through: &Node, text: &str) -> u16 {
    let path = cluster.dir.path().join("schema.avsc");
    fs::write(&path, text).unwrap();
    let registered = through.json(&["schema", "register", "members", path.to_str().unwrap()]);
    registered["id"].as_u64().unwrap() as u16
}

fn set(node: &Node, key: &str, value: &[u8]) -> Result<(), String> {
    let done = redis::cmd("SET").arg(key).arg(value).query::<()>(&mut node.redis());
    done.map_err(|error| error.to_string())
}

#[test]
fn writes_are_checked_by_schemas_that_every_process_knows_once_they_are_registered() {
    let cluster = with_store(&[]);
    let writers = ["node-1", "node-2", "node-3", "router-1"];
    for (at, text) in VERSIONS[..2].iter().enumerate() {
        let id = register(&cluster, cluster.any(), text);
        assert_eq!(id as usize, at + 1);
        // At once, at each.
        for writer in writers {
            let value = stored(id, &schema(text), &json!({"id": 7, "name": "ann"}));
            set(cluster.get(writer), "members:7", &value).unwrap();
        }
    }
    assert_eq!(register(&cluster, cluster.get("node-2"), VERSIONS[0]), 1, "it has it");
    let ann = stored(1, &schema(VERSIONS[0]), &json!({"id": 7, "name": "ann"}));
    for writer in writers {
        let node = cluster.get(writer);
        for (value, reason) in [
            (&ann[..ann.len() - 1], r#"field "name""#),
            (&[&ann[..], b"x"].concat(), "WRONGTYPE"),
            (b"", "it has no schema id"),
            (b"{}", "has no schema 123"),
            (&[&[3], &ann[1..]].concat(), "has no schema 3"),
        ] {
            let refused = set(node, "members:7", value).unwrap_err();
            assert!(refused.contains(reason), "{value:?}: {refused}");
        }
        for (command, more) in [("APPEND", "x"), ("INCRBY", "1")] {
            let refused = redis::cmd(command)
                .arg("members:7")
                .arg(more)
                .query::<i64>(&mut node.redis());
            assert!(refused.unwrap_err().to_string().contains("write a whole value"));
        }
        assert_eq!(
            node.json(&["get", "members:7", "--decode"])["value"]["decoded"]["json"]["city"],
            "Venice"
        );
    }
    let raw = cluster.get("node-1").run(&["get", "members:7", "--raw"]).stdout;
    assert_eq!(raw[0], 2, "the number of its schema");
    let found = cluster.get("node-1").done(&["mget", "members:7", "--decode"]);
    assert!(found.starts_with("members:7\t{") && found.contains("ann"), "{found}");

    // Dropped and restored, the store has its schemas; another store of its name has none.
    cluster.any().done(&["store", "drop", "members", "--yes"]);
    cluster.any().done(&["store", "restore", "members"]);
    let listed = cluster.get("node-1").json(&["schema", "list", "members"]);
    assert_eq!(listed["schemas"].as_array().unwrap().len(), 2);
    cluster.any().done(&["store", "drop", "members", "--yes"]);
    let create = [
        "store",
        "create",
        "members",
        "--kind",
        "versioned",
        "--value-type",
        "avro",
    ];
    cluster.any().done(&create);
    assert_eq!(
        cluster.get("node-1").http_get("/v1/stores/members/schemas")["schemas"],
        json!([])
    );
}

#[test]
fn a_schema_that_clashes_or_is_hostile_is_refused_by_name_and_rule() {
    let cluster = with_store(&["--compatibility", "full"]);
    register(&cluster, cluster.any(), VERSIONS[0]);
    let path = cluster.dir.path().join("other.avsc");
    let file = path.to_str().unwrap();
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        cluster.any().refused(1, &["schema", "register", "members", file])
    };
    let clash = refused(
        r#"{"type":"record","name":"Member","fields":[{"name":"id","type":"string"},{"name":"city","type":"string"}]}"#,
    );
    for part in ["full", r#"field "id""#, r#"field "city""#, "default", "schema 1"] {
        assert!(clash.contains(part), "{part}: {clash}");
    }
    let nested = format!(
        "{}\"int\"{}",
        r#"{"type":"array","items":"#.repeat(5000),
        "}".repeat(5000)
    );
    for (text, reason) in [
        ("{", "schema"),
        (r#"{"type":"record"}"#, "name"),
        (&nested, ""),
        (&format!("\"{}\"", "x".repeat(300 << 10)), "262144"),
        (&format!("\"{}\"", "x".repeat(10 << 20)), "262144"),
    ] {
        let error = refused(text);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    fs::write(&path, VERSIONS[1]).unwrap();
    let checked = cluster.any().done(&["schema", "check", "members", file]);
    assert!(checked.contains("it would be schema 2"), "{checked}");
    assert!(
        cluster
            .any()
            .refused(1, &["schema", "show", "members", "2"])
            .contains("no such schema")
    );
    cluster.any().done(&["schema", "register", "members", file]);
    let diff = cluster.any().done(&["schema", "diff", "members", "1", "2"]);
    assert_eq!(diff, "+ city: string, default \"Venice\"\n");
    let shown = cluster.any().done(&["schema", "show", "members"]);
    assert!(shown.contains("city") && shown.contains("Venice"), "{shown}");
    assert!(
        cluster
            .any()
            .refused(1, &["schema", "diff", "members", "1", "9"])
            .contains("no schema 9")
    );
}

#[test]
fn types_without_schemas_and_keys_of_several_parts_are_checked() {
    let cluster = Cluster::start(Shape::steady());
    let node = cluster.get("node-1");
    for value_type in ["string", "integer", "json", "messagepack"] {
        let create = [
            "store",
            "create",
            value_type,
            "--kind",
            "versioned",
            "--value-type",
            value_type,
        ];
        cluster.any().done(&create);
    }
    let kinds: [(&str, &[u8], &[u8]); 4] = [
        ("string", "ö".as_bytes(), b"\xff"),
        ("integer", b"-7", b"7.5"),
        ("json", br#"{"a":[1]}"#, b"{"),
        ("messagepack", b"\x93\x01\x02\x03", b"\x93\x01"),
    ];
    for (store, good, bad) in kinds {
        let key = format!("{store}:k");
        set(node, &key, good).unwrap();
        let refused = set(node, &key, bad).unwrap_err();
        assert!(refused.contains(&format!("are of type {store}")), "{refused}");
    }
    let more: i64 = redis::cmd("INCRBY")
        .arg("integer:k")
        .arg(9)
        .query(&mut node.redis())
        .unwrap();
    assert_eq!(more, 2);
    assert_eq!(node.done(&["get", "--decode", "json:k"]), "{\"a\":[1]}\n");
    assert_eq!(node.done(&["get", "--decode", "messagepack:k"]), "[1,2,3]\n");

    let create = [
        "store",
        "create",
        "carts",
        "--kind",
        "versioned",
        "--key-type",
        "(string,integer)",
        "--value-type",
        "json",
    ];
    cluster.any().done(&create);
    let refused = set(node, "carts:ann", b"1").unwrap_err();
    assert!(refused.contains("(string,integer)"), "{refused}");
    // As the documentation writes ("ab", -5).
    let key = b"carts:\x02\x61\x62\x00\x13\xfa";
    redis::cmd("SET")
        .arg(key)
        .arg("1")
        .query::<()>(&mut node.redis())
        .unwrap();
    assert_eq!(node.done(&["get", "--decode", r#"carts:["ab",-5]"#]), "1\n");
    let refused = node.refused(1, &["get", "--decode", "carts:ab"]);
    assert!(refused.contains("no JSON list"), "{refused}");
}

#[test]
fn records_are_counted_by_schema_once_each_and_a_stopped_node_is_named() {
    const KEYS: u64 = 300;
    let shape = Shape {
        session_timeout_ms: 10_000,
        ..Shape::default()
    };
    let mut cluster = with_store_in(shape, &[]);
    let ids = [VERSIONS[0], VERSIONS[1]].map(|text| register(&cluster, cluster.any(), text));
    assert_eq!(ids, [1, 2]);
    let put = |node: &str, id: usize, key: u64| {
        // So long that a node reads several pages of a partition.
        let json = json!({"id": key, "name": "n".repeat(100_000), "city": "c"});
        let json = if id == 1 {
            json!({"id": key, "name": json["name"]})
        } else {
            json
        };
        let value = stored(id as u16, &schema(VERSIONS[id - 1]), &json);
        set(cluster.get(node), &format!("members:{key}"), &value).unwrap();
    };
    let nodes = ["node-1", "node-2", "node-3", "router-1"];
    for key in 0..KEYS {
        put(nodes[key as usize % 4], 1, key);
    }
    // Some have a later value of the other schema, and some are deleted.
    (0..90).for_each(|key| put(nodes[(key as usize + 1) % 4], 2, key));
    for key in 280..KEYS {
        let _: u32 = redis::cmd("DEL")
            .arg(format!("members:{key}"))
            .query(&mut cluster.get("node-1").redis())
            .unwrap();
    }
    let count =
        |schema: u16, records: u64| json!({"schema": schema, "version": null, "events": false, "records": records});
    let all = json!({"counts": [count(1, 190), count(2, 90)], "missing": []});
    let counted = |cluster: &Cluster, name: &str| cluster.get(name).json(&["schema", "list", "members", "--records"]);
    for name in nodes {
        // A replica may get the last writes a moment later.
        let mut found = Value::Null;
        until("the counts", || {
            found = counted(&cluster, name);
            found == all
        });
    }
    let raw = cluster
        .get("controller-1")
        .http_get("/v1/stores/members/schemas/records");
    assert_eq!(raw, all);

    let stopped = cluster.number("node-3");
    cluster.kill("node-3");
    let found = counted(&cluster, "router-1");
    assert_eq!(found["missing"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["missing"][0]["node"], stopped, "{found}");
    let of_others: u64 = found["counts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count["records"].as_u64().unwrap())
        .sum();
    assert!(of_others < 280, "{found}");
    let text = cluster.get("node-1").done(&["schema", "list", "members", "--records"]);
    assert!(
        text.contains(&format!("not counted: the records of node {stopped}")),
        "{text}"
    );
    // Once it is known to be absent, the other owners of its partitions count them.
    cluster.until_live(stopped, false);
    until("the counts of the other owners", || {
        counted(&cluster, "router-1") == all
    });
    let second = cluster.number("node-2");
    cluster.kill("node-2");
    cluster.until_live(second, false);
    let found = counted(&cluster, "node-1");
    let missing: BTreeSet<u64> = found["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node"].as_u64().unwrap())
        .collect();
    let both = BTreeSet::from([second, stopped]);
    assert_eq!(missing, both, "partitions that only the absent nodes have: {found}");
}

/// How many keys the traffic writes.
const KEYS: u64 = 500;
/// How many requests a client has under way.
const PIPELINED: u64 = 50;
/// How many keys are written, and read, with each version of the schema.
const PHASE: u64 = 4000;

/// A reader that wants values of one version of the schema, and learns the others when it meets them.
struct Reader<'a> {
    node: &'a Node,
    own: Schema,
    known: BTreeMap<u16, (Schema, Resolver)>,
}

impl Reader<'_> {
    fn read(&mut self, value: &[u8]) -> (Value, Value) {
        let (id, payload) = read_id(value).unwrap();
        if !self.known.contains_key(&id) {
            let found = self.node.http_get(&format!("/v1/stores/members/schemas/{id}"));
            let writer = schema(found["schema"].as_str().unwrap());
            let resolver = Resolver::new(&writer, &self.own).unwrap();
            self.known.insert(id, (writer, resolver));
        }
        let (writer, resolver) = &self.known[&id];
        let resolved = self.own.to_json(&resolver.resolve(payload).unwrap()).unwrap();
        (writer.to_json(payload).unwrap(), resolved)
    }
}

/// The value that a writer of a version writes.
fn written(version: usize, key: u64) -> Value {
    let all = json!({"id": key, "name": format!("n{key}"), "city": format!("c{key}"), "tags": [format!("t{key}")]});
    let fields: &[&str] = [&["id", "name"][..], &["id", "name", "city"], &["id", "city", "tags"]][version];
    fields
        .iter()
        .map(|&field| (field.to_owned(), all[field].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The record that a reader of a version has to find in a value.
fn expected(version: usize, found: &Value) -> Value {
    let defaults = json!({"id": null, "name": "nobody", "city": "Venice", "tags": ["new"]});
    let fields: &[&str] = [&["id", "name"][..], &["id", "name", "city"], &["id", "city", "tags"]][version];
    let field = |&field: &&str| (field.to_owned(), found.get(field).unwrap_or(&defaults[field]).clone());
    fields.iter().map(field).collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn a_schema_is_upgraded_twice_under_traffic_with_readers_and_writers_of_three_versions() {
    let cluster = with_store(&["--compatibility", "full"]);
    let first = register(&cluster, cluster.any(), VERSIONS[0]);
    let router = cluster.get("router-1");
    let mut filling = redis::pipe();
    for key in 0..KEYS {
        let value = stored(first, &schema(VERSIONS[0]), &written(0, key));
        filling.cmd("SET").arg(format!("members:{key}")).arg(value).ignore();
    }
    filling.query::<()>(&mut router.redis()).unwrap();

    let ended = AtomicBool::new(false);
    let requests = [AtomicU64::new(0), AtomicU64::new(0)];
    // Writers of the second and third version begin once it is registered.
    let ids: [AtomicU64; 3] = [u64::from(first), 0, 0].map(AtomicU64::new);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for version in 0..3 {
            let (ended, requests, ids, cluster) = (&ended, &requests, &ids, &cluster);
            scope.spawn(move || {
                let schema = schema(VERSIONS[version]);
                let node = cluster.get(["node-1", "node-2", "router-1"][version]);
                let mut connection = node.redis();
                let mut at = version as u64;
                while !ended.load(Relaxed) {
                    let id = ids[version].load(Relaxed);
                    if id == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let mut batch = redis::pipe();
                    for _ in 0..PIPELINED {
                        at = (at + 7) % KEYS;
                        let value = stored(id as u16, &schema, &written(version, at));
                        batch.cmd("SET").arg(format!("members:{at}")).arg(value).ignore();
                    }
                    batch.query::<()>(&mut connection).unwrap();
                    requests[0].fetch_add(PIPELINED, Relaxed);
                }
            });
            scope.spawn(move || {
                let node = cluster.get(["router-1", "node-3", "node-1"][version]);
                let mut reader = Reader {
                    node,
                    own: schema(VERSIONS[version]),
                    known: BTreeMap::new(),
                };
                let mut connection = node.redis();
                let mut at = version as u64;
                while !ended.load(Relaxed) {
                    let keys: Vec<u64> = (0..PIPELINED).map(|step| (at + step * 11) % KEYS).collect();
                    at += 1;
                    let mut asked = redis::cmd("MGET");
                    keys.iter().for_each(|key| _ = asked.arg(format!("members:{key}")));
                    let values: Vec<Vec<u8>> = asked.query(&mut connection).unwrap();
                    for (key, value) in keys.iter().zip(values) {
                        let (found, resolved) = reader.read(&value);
                        assert_eq!(found["id"], *key);
                        assert_eq!(resolved, expected(version, &found));
                    }
                    requests[1].fetch_add(PIPELINED, Relaxed);
                }
            });
        }
        let phase = |number: u64| {
            until("the traffic goes on", || {
                requests.iter().all(|count| count.load(Relaxed) > PHASE * number)
            });
        };
        for version in 1..3 {
            phase(version as u64);
            let through = cluster.get(["node-1", "node-2"][version - 1]);
            let id = register(&cluster, through, VERSIONS[version]);
            ids[version].store(u64::from(id), Relaxed);
        }
        phase(3);
        ended.store(true, Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64();
    let [writes, reads] = requests.map(|count| count.into_inner() as f64 / seconds);
    println!("{writes:.0} writes and {reads:.0} reads a second");
    let mut found = [0; 3];
    for key in 0..KEYS {
        let value: Vec<u8> = redis::cmd("GET")
            .arg(format!("members:{key}"))
            .query(&mut router.redis())
            .unwrap();
        found[usize::from(value[0]) - 1] += 1;
    }
    assert!(found[1] > 0 && found[2] > 0, "values of all versions: {found:?}");
}
