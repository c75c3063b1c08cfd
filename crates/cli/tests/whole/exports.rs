//! Exports of versions and stores: every row with its types, and nothing left of an export that failed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type};
use arrow_array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema};
use fondaco_testing::SmallDisk;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use redis::Commands;
use serde_json::json;

use super::node::{Dev, fondaco, of_csv, signal, until, wait};

const ROWS: i64 = 3000;

/// A Parquet file of a few types: the key is a number.
fn write_rows(path: &Path) {
    let numbers = 0..ROWS;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(numbers.clone()))),
        (
            "name",
            Arc::new(
                numbers
                    .clone()
                    .map(|n| (n % 7 > 0).then(|| format!("ä\"{n}")))
                    .collect::<StringArray>(),
            ),
        ),
        (
            "score",
            Arc::new(Float64Array::from_iter_values(numbers.clone().map(|n| n as f64 / 3.0))),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values(numbers.clone().map(i128::from))
                    .with_precision_and_scale(20, 2)
                    .unwrap(),
            ),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(numbers.clone().map(|n| n as i32))),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter_values(numbers.map(i64::to_be_bytes))),
        ),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn parquet(path: &Path) -> Vec<RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    reader.build().unwrap().map(Result::unwrap).collect()
}

fn arrow(stream: &[u8]) -> (Arc<Schema>, Vec<RecordBatch>) {
    let reader = StreamReader::try_new(Cursor::new(stream), None).unwrap();
    let schema = reader.schema();
    (schema, reader.map(Result::unwrap).collect())
}

/// Checks the columns of all rows; returns their keys.
fn check_rows(batches: &[RecordBatch]) -> Vec<i64> {
    let mut keys = Vec::new();
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let ids = column("id").as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let id = ids.value(row);
            let names = column("name").as_string::<i32>();
            let name = (!arrow_array::Array::is_null(names, row)).then(|| names.value(row).to_owned());
            assert_eq!(name, (id % 7 > 0).then(|| format!("ä\"{id}")));
            assert_eq!(
                column("score").as_primitive::<Float64Type>().value(row),
                id as f64 / 3.0
            );
            assert_eq!(
                column("price").as_primitive::<Decimal128Type>().value(row),
                i128::from(id)
            );
            assert_eq!(column("day").as_primitive::<Date32Type>().value(row), id as i32);
            assert_eq!(column("bytes").as_binary::<i32>().value(row), id.to_be_bytes());
            keys.push(id);
        }
    }
    keys.sort_unstable();
    keys
}

/// The files of a directory.
fn files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_version_and_its_batch_store_are_exported_with_the_types_of_the_input() {
    let dev = Dev::start();
    let [rows, version, out] = ["rows.parquet", "v1", "out.parquet"].map(|name| dev.path(name));
    write_rows(&rows);
    dev.done(&[
        "push",
        "people",
        text(&rows),
        "--key",
        "id",
        "--output",
        text(&version),
        "--create",
    ]);
    let all: Vec<i64> = (0..ROWS).collect();

    for source in [&["people"][..], &["--from", text(&version)]] {
        let to_file = [&["export"], source, &["--output", text(&out)]].concat();
        let report = dev.json(&to_file);
        assert_eq!(report["records"], ROWS);
        assert_eq!(report["bytes"], fs::metadata(&out).unwrap().len());
        assert_eq!(
            report["columns"][3],
            json!({"name": "price", "type": "Decimal128(20, 2)"})
        );
        assert_eq!(check_rows(&parquet(&out)), all);
        let stream = dev.run(&[&["export"], source, &["--format", "arrow"]].concat());
        assert!(stream.status.success());
        let (schema, batches) = arrow(&stream.stdout);
        assert_eq!(check_rows(&batches), all);
        assert_eq!(schema.field(0), &Field::new("id", DataType::Int64, false));
        let columns = dev.run(&[&["export"], source, &["--format", "arrow", "--schema"]].concat());
        // Programs learn from it how many parts they can read at a time.
        let partitions = fondaco_format::Manifest::read(&version).unwrap().partitions;
        assert_eq!(schema.metadata()["fondaco.partitions"], partitions.get().to_string());
        assert_eq!(arrow(&columns.stdout), (schema, vec![]));
    }

    // Partitions, which together are everything.
    let last = fondaco_format::Manifest::read(&version).unwrap().partitions.get() - 1;
    let mut parts = Vec::new();
    for partitions in ["0".to_owned(), format!("1-{last}")] {
        dev.done(&[
            "export",
            "--from",
            text(&version),
            "--partitions",
            &partitions,
            "--output",
            text(&out),
        ]);
        let part = check_rows(&parquet(&out));
        assert!(!part.is_empty() && part.len() < all.len());
        parts.extend(part);
    }
    parts.sort_unstable();
    assert_eq!(parts, all);
    let error = dev.refused(
        2,
        &["export", "people", "--partitions", "16383", "--output", text(&out)],
    );
    assert!(error.contains("no partition 16383"), "{error}");

    let raw = dev.run(&["export", "people", "--raw", "--format", "arrow"]);
    let (_, batches) = arrow(&raw.stdout);
    let keys = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_binary::<i32>().iter());
    assert_eq!(keys.flatten().filter(|key| *key == b"17").count(), 1);
    assert!(files(dev.dir.path()).iter().all(|name| !name.ends_with(".part")));
}

#[test]
fn hybrid_and_versioned_stores_are_exported_with_their_changes() {
    let dev = Dev::start();
    let out = dev.path("out.parquet");
    let csv = dev.csv("rows.csv", (0..2500).map(|n| (n.to_string(), format!("v{n}"))));
    dev.done(&[
        "store", "create", "counts", "--kind", "hybrid", "--stream", "log", "--rewind", "1h",
    ]);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    dev.done(&of_csv(
        "push",
        "counts",
        &csv,
        &["--as-of", &(now_ms - 60_000).to_string()],
    ));
    let event = |key: &str, value: Option<&str>| json!({"key": key, "value": value, "time_unix_ms": now_ms});
    let events = [
        event("7", Some("changed")),
        event("8", None),
        event("new", Some("added")),
    ];
    dev.http_post("/v1/stores/counts/events", json!({"events": events}));
    let get = |key: &str| dev.redis().get::<_, Option<String>>(key).unwrap();
    until("the events to be served", || {
        get("counts:new").is_some() && get("counts:8").is_none()
    });
    let mut expected: BTreeMap<String, String> = (0..2500).map(|n| (n.to_string(), format!("v{n}"))).collect();
    expected.insert("7".into(), "changed".into());
    expected.insert("new".into(), "added".into());
    expected.remove("8");
    dev.done(&["export", "counts", "--output", text(&out)]);
    let mut found = BTreeMap::new();
    for batch in parquet(&out) {
        let [keys, values] = ["key", "value"].map(|name| batch.column_by_name(name).unwrap().as_string::<i32>());
        for (key, value) in keys.iter().zip(values) {
            let former = found.insert(key.unwrap().to_owned(), value.unwrap().to_owned());
            assert_eq!(former, None, "a key is exported once");
        }
    }
    assert_eq!(found, expected);

    dev.done(&["store", "create", "carts", "--kind", "versioned"]);
    let mut redis = dev.redis();
    for key in 0..1500 {
        redis
            .set::<_, _, ()>(format!("carts:{key}"), format!("c{key}"))
            .unwrap();
    }
    redis.del::<_, ()>("carts:3").unwrap();
    let exported = |more: &[&str]| {
        let stream = dev.run(&[&["export", "carts", "--format", "arrow"], more].concat());
        let (_, batches) = arrow(&stream.stdout);
        let mut found = BTreeMap::new();
        for batch in batches {
            let [keys, values] = [0, 1].map(|column| batch.column(column).as_binary::<i32>());
            let texts = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
            found.extend(keys.iter().map(texts).zip(values.iter().map(texts)));
        }
        found
    };
    let expected: BTreeMap<String, String> = (0..1500)
        .filter(|key| *key != 3)
        .map(|key| (key.to_string(), format!("c{key}")))
        .collect();
    assert_eq!(exported(&[]), expected);
    let mut parts = exported(&["--partitions", "0"]);
    assert!(!parts.is_empty() && parts.len() < expected.len());
    let error = dev.refused(2, &["export", "carts", "--partitions", "16383", "--output", text(&out)]);
    let (_, last) = error.trim().rsplit_once(' ').unwrap();
    parts.extend(exported(&["--partitions", &format!("1-{last}")]));
    assert_eq!(parts, expected);
}

#[test]
fn a_value_that_does_not_fit_fails_the_export_and_is_named() {
    let dev = Dev::start();
    let [rows, out] = ["rows.parquet", "out.parquet"].map(|name| dev.path(name));
    write_rows(&rows);
    dev.done(&[
        "store", "create", "people", "--kind", "hybrid", "--stream", "log", "--rewind", "1h",
    ]);
    dev.done(&["push", "people", text(&rows), "--key", "id"]);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 + 1000;
    let foreign = json!({"key": "17", "value": "{\"day\":\"yesterday\"}", "time_unix_ms": now_ms});
    dev.http_post("/v1/stores/people/events", json!({"events": [foreign]}));
    until("the event to be served", || {
        dev.redis().get::<_, String>("people:17").unwrap().contains("yesterday")
    });
    fs::write(&out, "former").unwrap();
    let error = dev.refused(1, &["export", "people", "--output", text(&out)]);
    for part in ["\"17\"", "\"day\"", "\"yesterday\" is no Date32", "--raw"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(fs::read(&out).unwrap(), b"former", "a failed export changes nothing");
    assert!(files(dev.dir.path()).iter().all(|name| !name.ends_with(".part")));
    dev.done(&["export", "people", "--raw", "--output", text(&out)]);
    let rows: usize = parquet(&out).iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows as i64, ROWS);
}

#[test]
fn a_damaged_version_fails_the_export() {
    let dev = Dev::start();
    let [version, out] = ["v1", "out.parquet"].map(|name| dev.path(name));
    let csv = dev.csv("rows.csv", (0..500).map(|n| (n.to_string(), format!("value {n}"))));
    dev.done(
        &[
            &of_csv("build", "s", &csv, &["--partitions", "1"])[..],
            &["--output", text(&version)],
        ]
        .concat(),
    );
    let data = files(&version)
        .into_iter()
        .find(|name| name.ends_with(".data"))
        .unwrap();
    let mut bytes = fs::read(version.join(&data)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(version.join(&data), bytes).unwrap();
    let error = dev.refused(1, &["export", "--from", text(&version), "--output", text(&out)]);
    assert!(error.contains(&data), "{error}");
    assert!(!out.exists());
    let error = dev.refused(
        1,
        &["export", "--from", text(&dev.path("absent")), "--output", text(&out)],
    );
    assert!(error.contains("absent"), "{error}");
}

#[test]
fn a_full_disk_fails_an_export_and_leaves_no_file() {
    let dev = Dev::start();
    let Some(disk) = SmallDisk::temporary(64 << 10) else {
        return;
    };
    let mut random = fastrand::Rng::with_seed(1);
    dev.push("s", (0..5000).map(|n| (n.to_string(), random.u128(..).to_string())));
    let out = disk.path().join("out.parquet");
    let error = dev.refused(1, &["export", "s", "--output", text(&out)]);
    assert!(error.contains("No space left") && error.contains(text(&out)), "{error}");
    assert_eq!(files(disk.path()), [""; 0]);
}

#[test]
fn a_pipe_gets_the_rows_and_stays_a_pipe() {
    let dev = Dev::start();
    let [rows, version, pipe] = ["rows.parquet", "v1", "pipe"].map(|name| dev.path(name));
    write_rows(&rows);
    let build = [
        "build",
        "people",
        text(&rows),
        "--key",
        "id",
        "--output",
        text(&version),
    ];
    dev.done(&build);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    let into = ["--format", "arrow", "--output", text(&pipe)];
    dev.done(&[&["export", "--from", text(&version)], &into[..]].concat());
    assert_eq!(
        check_rows(&arrow(&read.join().unwrap()).1),
        (0..ROWS).collect::<Vec<_>>()
    );
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let dev = Dev::start();
    let [version, outs] = ["v1", "outs"].map(|name| dev.path(name));
    fs::create_dir(&outs).unwrap();
    let csv = dev.csv("rows.csv", (0..400_000).map(|n| (n.to_string(), format!("value {n}"))));
    let build = [
        "build",
        "s",
        text(&csv),
        "--key",
        "key",
        "--partitions",
        "4",
        "--output",
        text(&version),
    ];
    dev.done(&build);
    let out = outs.join("out.parquet");
    let mut command = fondaco();
    command.args(["export", "--from", text(&version), "--output", text(&out)]);
    let mut export = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the export to write", || !files(&outs).is_empty());
    signal(&export, rustix::process::Signal::INT);
    assert_eq!(wait(&mut export).code(), Some(1));
    assert_eq!(files(&outs), [""; 0]);

    // A reader that has enough is no error.
    let mut command = fondaco();
    command.args(["export", "--from", text(&version), "--format", "arrow"]);
    let mut export = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(export.stdout.take());
    assert_eq!(wait(&mut export).code(), Some(0));
}
