//! Pushes of records: the schema comes from the store, and a version of another one is refused.

use std::fs::{self, File};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::node::{Dev, fondaco, until};

const USER: &str =
    r#"{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"}]}"#;
const USER_2: &str = r#"{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"},
    {"name":"city","type":"string","default":"Venice"}]}"#;

fn stored(dev: &Dev, key: &[u8]) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(key).query(&mut dev.redis()).unwrap()
}

/// The rows of an export, sorted.
fn exported(dev: &Dev, store: &str) -> Vec<(String, i64, String, i32, String)> {
    let path = dev.path(&format!("{store}.parquet"));
    dev.done(&["export", store, "--output", path.to_str().unwrap()]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap().map(Result::unwrap) {
        let text = |name: &str, row| {
            batch
                .column_by_name(name)
                .unwrap()
                .as_string::<i32>()
                .value(row)
                .to_owned()
        };
        for row in 0..batch.num_rows() {
            let id = batch["id"].as_primitive::<Int64Type>().value(row);
            let age = batch["age"].as_primitive::<Int32Type>().value(row);
            rows.push((text("shop", row), id, text("name", row), age, text("city", row)));
        }
    }
    rows.sort();
    rows
}

#[test]
fn a_push_makes_records_of_the_newest_schema_of_the_store() {
    let dev = Dev::start();
    let file = |name: &str, content: &str| {
        fs::write(dev.path(name), content).unwrap();
        dev.path(name).to_str().unwrap().to_owned()
    };
    let schema = file("user.avsc", USER);
    let rows = file("users.csv", "shop,id,name,age\nrome,1,Ada,36\nrome,2,Bob,7\n");
    let push = ["push", "users", &rows, "--key", "shop,id"];
    let created = ["--create", "--key-type", "(string,integer)", "--value-type", "avro"];
    let error = dev.refused(2, &[&push[..], &created].concat());
    assert!(
        error.contains("values of type avro need a schema") && error.contains("--schema FILE"),
        "{error}"
    );
    dev.done(&[&push[..], &created, &["--schema", &schema]].concat());
    let value = stored(&dev, b"users:\x02rome\0\x15\x01").unwrap();
    assert_eq!(value, b"\x01\x06Ada\x48");
    let list: Value = dev.http_get("/v1/stores/users/schemas");
    assert_eq!(
        (list["schemas"][0]["id"].as_u64(), list["value_type"].as_str()),
        (Some(1), Some("avro"))
    );

    // A later schema; the difference has the first one's records, too.
    let new = json!({"schema": serde_json::from_str::<Value>(USER_2).unwrap()});
    dev.http_post("/v1/stores/users/schemas", new);
    let more = file(
        "more.jsonl",
        "{\"shop\":\"bari\",\"id\":3,\"name\":\"Cleo\",\"age\":5,\"city\":\"Bari\"}\n",
    );
    let bad = file(
        "bad.jsonl",
        "{\"shop\":\"bari\",\"id\":3,\"name\":\"Cleo\",\"age\":\"old\"}\n",
    );
    let difference = |input: &str| ["push", "users", input, "--key", "shop,id", "--incremental"].map(str::to_owned);
    let refused = |input: &str| dev.refused(1, &difference(input).iter().map(String::as_str).collect::<Vec<_>>());
    let error = refused(&bad);
    assert!(
        error.contains("row 1") && error.contains("field \"age\": \"old\" is no int"),
        "{error}"
    );
    dev.done(&difference(&more).iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        stored(&dev, b"users:\x02bari\0\x15\x03")
            .unwrap()
            .starts_with(b"\x02\x08Cleo")
    );
    let row =
        |shop: &str, id, name: &str, age, city: &str| (shop.to_owned(), id, name.to_owned(), age, city.to_owned());
    let expected = [
        row("bari", 3, "Cleo", 5, "Bari"),
        row("rome", 1, "Ada", 36, "Venice"),
        row("rome", 2, "Bob", 7, "Venice"),
    ];
    assert_eq!(exported(&dev, "users"), expected);
    let of = |version: u64, schema: u16, records: u64| json!({"version": version, "schema": schema, "events": false, "records": records});
    let counted = dev.json(&["schema", "list", "users", "--records"]);
    assert_eq!(
        counted,
        json!({"counts": [of(1, 1, 2), of(2, 1, 2), of(2, 2, 1)], "missing": []})
    );
    let lines = dev.done(&["schema", "list", "users", "--records"]);
    let rows: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SCHEMA", "VERSION", "RECORDS"]);
    assert_eq!(rows[1..], [["1", "1", "2"], ["1", "2", "2"], ["2", "2", "1"]]);
}

/// The counts of a store: version, schema, whether they are of events, records.
fn counts(dev: &Dev, store: &str) -> Vec<(u64, u64, bool, u64)> {
    let counted = dev.json(&["schema", "list", store, "--records"]);
    assert_eq!(counted["missing"], json!([]));
    let counts = counted["counts"].as_array().unwrap().iter();
    let number = |count: &Value, name: &str| count[name].as_u64().unwrap();
    counts
        .map(|count| {
            let events = count["events"].as_bool().unwrap();
            (
                number(count, "version"),
                number(count, "schema"),
                events,
                number(count, "records"),
            )
        })
        .collect()
}

#[test]
fn events_in_json_become_values_of_the_newest_schema_and_are_counted() {
    let dev = Dev::start();
    let create = ["store", "create", "users", "--kind", "hybrid", "--stream", "log"];
    dev.done(&[&create[..], &["--value-type", "avro"]].concat());
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER}));
    fs::write(dev.path("users.csv"), "id,name,age\n1,Ada,36\n2,Bob,7\n3,Eve,9\n").unwrap();
    dev.done(&["push", "users", dev.path("users.csv").to_str().unwrap(), "--key", "id"]);
    assert_eq!(counts(&dev, "users"), [(1, 1, false, 3)]);
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER_2}));

    let path = "/v1/stores/users/events";
    let event = |key: &str, json: Value| json!({"key": key, "json": json});
    let good = event("2", json!({"name": "Bea", "age": 8}));
    for (bad, reason) in [
        (event("4", json!({"name": "Dan", "age": "old"})), "age"),
        (event("4", json!({"age": 1})), "name"),
        (event("4", json!({"name": "Dan", "age": 1, "size": 2})), "size"),
    ] {
        let (is_success, said) = dev.http_send(path, json!({"events": [good, bad]}));
        assert!(!is_success, "{said}");
        let message = said["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("event number 1") && message.contains(reason) && message.contains("no event was logged"),
            "{reason}: {message}"
        );
    }
    let deleted = json!({"key": "3"});
    let new = event("5", json!({"name": "Flo", "age": 2, "city": "Bari"}));
    dev.http_post(path, json!({"events": [new, deleted, good]}));
    until("the events to be read", || {
        stored(&dev, b"users:2") == Some(b"\x02\x06Bea\x10\x0cVenice".to_vec())
    });
    assert_eq!(stored(&dev, b"users:4"), None);
    assert_eq!(counts(&dev, "users"), [(1, 1, false, 3), (1, 2, true, 2)]);
}

#[test]
fn a_version_of_two_schemas_is_counted_over_several_pages() {
    let dev = Dev::start();
    dev.done(&["store", "create", "users", "--value-type", "avro"]);
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER}));
    let file = |name: &str, keys: std::ops::Range<u32>| {
        let rows: String = keys.map(|key| format!("{key},n{key},7\n")).collect();
        fs::write(dev.path(name), format!("id,name,age\n{rows}")).unwrap();
        dev.path(name).to_str().unwrap().to_owned()
    };
    dev.done(&["push", "users", &file("all.csv", 0..120_000), "--key", "id"]);
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER_2}));
    dev.done(&[
        "push",
        "users",
        &file("new.csv", 100_000..130_000),
        "--key",
        "id",
        "--incremental",
    ]);
    let expected = [(1, 1, false, 120_000), (2, 1, false, 100_000), (2, 2, false, 30_000)];
    assert_eq!(counts(&dev, "users"), expected);
    // The versions were built for fewer partitions than there are then.
    let partitions = || dev.http_get("/v1/status")["partitions"].as_u64().unwrap();
    let before = partitions();
    dev.http_post("/v1/routing/split", json!({}));
    until("the split", || partitions() == before * 2);
    until("the counts after the split", || {
        dev.http_get("/v1/stores/users/schemas/records")["missing"] == json!([])
    });
    assert_eq!(counts(&dev, "users"), expected);
}

#[test]
fn a_version_with_other_types_or_schemas_than_the_store_is_refused() {
    let dev = Dev::start();
    let path = |name: &str| dev.path(name).to_str().unwrap().to_owned();
    fs::write(dev.path("user.avsc"), USER).unwrap();
    fs::write(dev.path("other.avsc"), USER_2).unwrap();
    fs::write(dev.path("users.csv"), "id,name,age\n1,Ada,36\n").unwrap();
    let build = |output: &str, schema: &str, more: &[&str]| {
        let (input, schema, output) = (path("users.csv"), path(schema), path(output));
        let mut command = vec![
            "build",
            "users",
            &input,
            "--key",
            "id",
            "--value-type",
            "avro",
            "--schema",
            &schema,
        ];
        command.extend(more);
        command.extend(["--output", &output]);
        let done = fondaco().args(&command).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        output
    };
    dev.done(&["store", "create", "users", "--value-type", "avro"]);
    let good = build("good", "user.avsc", &[]);
    let error = dev.refused(1, &["deploy", "users", &good]);
    assert!(
        error.contains("store users has no schema 1") && error.contains("fondaco schema register users"),
        "{error}"
    );
    let error = dev.refused(1, &["push", "users", &path("users.csv"), "--key", "id"]);
    assert!(error.contains("store users has no schema: register one"), "{error}");
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER}));
    dev.done(&["deploy", "users", &good]);
    let error = dev.refused(1, &["deploy", "users", &build("other", "other.avsc", &[])]);
    assert!(
        error.contains("schema 1 of store users is another one") && error.contains("city"),
        "{error}"
    );
    let error = dev.refused(
        1,
        &["deploy", "users", &build("later", "user.avsc", &["--schema-id", "7"])],
    );
    assert!(
        error.contains("store users has no schema 7") && error.contains("--schema-id"),
        "{error}"
    );
    let keys = build("keys", "user.avsc", &["--key-type", "integer"]);
    let error = dev.refused(1, &["deploy", "users", &keys]);
    assert!(
        error.contains("keys of type integer") && error.contains("--key-type 'bytes'"),
        "{error}"
    );
    let error = dev.refused(
        1,
        &["push", "users", &path("users.csv"), "--key", "id", "--schema-id", "9"],
    );
    assert!(error.contains("no schema 9"), "{error}");
    let shown: Value = serde_json::from_slice(
        &fondaco()
            .args(["inspect", &good, "--keys", "1", "--json"])
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    assert_eq!(
        shown["keys"][0],
        json!({"key": "1", "value_bytes": 6, "schema": 1, "value": {"name": "Ada", "age": 36}})
    );
    assert_eq!(shown["manifest"]["value_schemas"][0]["id"], 1);
}

#[test]
fn a_versioned_store_of_records_is_exported_as_the_fields_of_its_schema() {
    let dev = Dev::start();
    let types = ["--value-type", "avro", "--key-type", "(string,integer)"];
    dev.done(&[&["store", "create", "users", "--kind", "versioned"][..], &types].concat());
    dev.http_post("/v1/stores/users/schemas", json!({"schema": USER}));
    let mut set = redis::cmd("SET");
    set.arg(b"users:\x02rome\0\x15\x01").arg(b"\x01\x06Ada\x48");
    let () = set.query(&mut dev.redis()).unwrap();
    let path = dev.path("users.parquet");
    dev.done(&["export", "users", "--output", path.to_str().unwrap()]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let names: Vec<&str> = batch
        .schema_ref()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["key.1", "key.2", "name", "age"]);
    assert_eq!(batch["key.1"].as_string::<i32>().value(0), "rome");
    assert_eq!(batch["key.2"].as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(batch["age"].as_primitive::<Int32Type>().value(0), 36);
}
