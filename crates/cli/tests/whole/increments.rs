//! Pushes of differences to the current version.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use fondaco_format::Manifest;
use parquet::arrow::ArrowWriter;
use serde_json::json;

use super::node::{Dev, of_csv};

fn row(n: u32, round: u32) -> (String, String) {
    (n.to_string(), format!("{round}:{n}:{}", "x".repeat(100)))
}

fn get(dev: &Dev, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query(&mut dev.redis()).unwrap()
}

#[test]
fn a_difference_is_pushed_on_top_of_the_current_version() {
    let dev = Dev::start();
    let path = |name: &str| dev.path(name).to_str().unwrap().to_owned();
    dev.csv("all.csv", (0..1000).map(|n| row(n, 1)));
    dev.csv("changed.csv", (0..1020).step_by(20).map(|n| row(n, 2)));
    dev.csv("gone.csv", [5, 7, 5000].map(|n| row(n, 0)));
    let columns = ["--key", "key", "--value", "value"];
    let push = |inputs: &[&str], more: &[&str]| [&["push", "s"], inputs, &columns, more].concat().join("\n");
    let done = |command: String| dev.json(&command.split('\n').collect::<Vec<_>>());
    let refused = |code, command: String| dev.refused(code, &command.split('\n').collect::<Vec<_>>());
    let [all, changed, gone, v1, v2, v3] = ["all.csv", "changed.csv", "gone.csv", "v1", "v2", "v3"].map(path);

    let error = refused(1, push(&[&changed], &["--incremental"]));
    assert!(error.contains("no store \"s\""), "{error}");
    dev.done(&["store", "create", "s"]);
    let error = refused(1, push(&[&changed], &["--incremental"]));
    assert!(
        error.contains("store \"s\" has no version to change: push all records first"),
        "{error}"
    );
    for option in [["--compress", "zstd"], ["--chunk-size", "1MiB"], ["--edges", "a,b"]] {
        refused(2, push(&[&changed], &[&["--incremental"][..], &option].concat()));
    }
    refused(2, push(&[&changed], &["--delete", &gone]));

    done(push(&[&all], &["--output", &v1]));
    let pushed = done(push(
        &[&changed, "--delete", &gone],
        &["--incremental", "--output", &v2],
    ));
    let increment = &pushed["build"]["increment"];
    assert_eq!(
        (&increment["deleted"], &increment["absent"]),
        (&2.into(), &1.into()),
        "{pushed}"
    );
    let served = |key: u32, round: Option<u32>| {
        assert_eq!(
            get(&dev, &format!("s:{key}")),
            round.map(|round| row(key, round).1),
            "{key}"
        );
    };
    let check = || {
        for (key, round) in [
            (0, Some(2)),
            (1, Some(1)),
            (5, None),
            (7, None),
            (1000, Some(2)),
            (999, Some(1)),
        ] {
            served(key, round);
        }
    };
    check();
    let manifest = Manifest::read(v2.as_ref()).unwrap();
    assert!(!manifest.patches.is_empty() && manifest.records == 999);
    assert!(dev.done(&["inspect", &v2, "--verify"]).contains("patches"));

    // Where the current version was built, it is not any more: the node has it.
    fs::remove_dir_all(&v2).unwrap();
    let pushed = done(push(&["--delete", &gone], &["--incremental"]));
    assert_eq!(pushed["build"]["increment"]["absent"], 3, "{pushed}");
    check();

    // A version that was built from another one than the current would undo what came between.
    let build = [
        "build", "s", &changed, "--key", "key", "--value", "value", "--base", &v1, "--output", &v3,
    ];
    dev.done(&build);
    let error = dev.refused(1, &["deploy", "s", &v3]);
    assert!(
        error.contains("--incremental") && error.contains("--any-base"),
        "{error}"
    );
    check();
    dev.done(&["deploy", "s", &v3, "--any-base"]);
    served(5, Some(1));
    dev.done(&["deploy", "s", &v3]);
}

#[test]
fn other_columns_are_named_in_a_full_push_and_refused_in_a_difference() {
    let dev = Dev::start();
    let file = |name: &str, age: &dyn Fn(i64) -> ArrayRef, other: &str| {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let others: ArrayRef = Arc::new(StringArray::from_iter_values((0..10).map(|n| n.to_string())));
        let rows = RecordBatch::try_from_iter([("k", keys), ("age", age(10)), (other, others)]).unwrap();
        let path = dev.path(name);
        let mut writer = ArrowWriter::try_new(fs::File::create(&path).unwrap(), rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = file(
        "old.parquet",
        &|n| Arc::new(Int32Array::from_iter_values(0..n as i32)),
        "city",
    );
    let longer = file(
        "longer.parquet",
        &|n| Arc::new(Int64Array::from_iter_values(0..n)),
        "city",
    );
    let new = file("new.parquet", &|n| Arc::new(Int64Array::from_iter_values(0..n)), "town");
    dev.json(&["push", "s", &old, "--key", "k", "--create"]);

    let error = dev.refused(1, &["push", "s", &longer, "--key", "k", "--incremental"]);
    assert!(error.contains("\"age\" was Int32 and is Int64"), "{error}");
    let error = dev.refused(1, &["push", "s", &new, "--key", "k", "--same-schema"]);
    assert!(
        error.contains("\"town\" (Utf8) is new, \"city\" (Utf8) is gone"),
        "{error}"
    );
    assert_eq!(dev.json(&["versions", "s"])["versions"].as_array().unwrap().len(), 1);

    let again = dev.json(&["push", "s", &old, "--key", "k", "--same-schema"]);
    assert_eq!(again["build"].get("schema_change"), None, "{again}");
    let change = &dev.json(&["push", "s", &new, "--key", "k"])["build"]["schema_change"];
    let column = |name: &str| json!([{"name": name, "type": "Utf8"}]);
    let changed = json!([{"name": "age", "from": "Int32", "to": "Int64"}]);
    assert_eq!(
        *change,
        json!({"added": column("town"), "removed": column("city"), "changed": changed})
    );
}

#[test]
fn stores_of_other_kinds_refuse_or_take_differences() {
    let dev = Dev::start();
    let csv = |name: &str, rows: &[(u32, u32)]| {
        let rows: Vec<_> = rows.iter().map(|&(n, round)| row(n, round)).collect();
        dev.csv(name, rows).to_str().unwrap().to_owned()
    };
    let (all, changed) = (csv("all.csv", &[(1, 1), (2, 1)]), csv("changed.csv", &[(2, 2)]));
    let push = |store, input, more: &[_]| of_csv("push", store, Path::new(input), more);
    let refused = |command: Vec<&str>| dev.refused(1, &command);
    let done = |command: Vec<&str>| dev.done(&command);

    dev.done(&["store", "create", "versioned", "--kind", "versioned"]);
    let error = refused(push("versioned", &changed, &["--incremental"]));
    assert!(error.contains("store versioned is versioned"), "{error}");

    let edges = dev.csv("edges.csv", [("a".to_owned(), "b".to_owned())]);
    let edges = edges.to_str().unwrap();
    let edges = format!("KNOWS={edges}");
    dev.done(&["push", "graph", &edges, "--edges", "key,value", "--create"]);
    let error = refused(push("graph", &changed, &["--incremental"]));
    assert!(error.contains("graph"), "{error}");

    dev.done(&["store", "create", "counts", "--kind", "hybrid", "--stream", "log"]);
    done(push("counts", &all, &[]));
    done(push(
        "counts",
        &changed,
        &["--incremental", "--as-of", "2026-01-01T00:00:00Z"],
    ));
    assert_eq!(get(&dev, "counts:1"), Some(row(1, 1).1));
    assert_eq!(get(&dev, "counts:2"), Some(row(2, 2).1));
}

#[test]
fn a_build_says_up_to_when_it_contains_events() {
    let dev = Dev::start();
    let path = |name: &str| dev.path(name).to_str().unwrap().to_owned();
    let [all, changed] = [("all.csv", 1..=2, 1), ("changed.csv", 2..=2, 2)].map(|(name, keys, round)| {
        dev.csv(name, keys.map(|n| row(n, round)));
        path(name)
    });
    dev.done(&[
        "store", "create", "counts", "--kind", "hybrid", "--stream", "log", "--rewind", "1h",
    ]);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let event = |key: &str, age_ms: u64| json!({"key": key, "value": "event", "time_unix_ms": now_ms - age_ms});
    dev.http_post(
        "/v1/stores/counts/events",
        json!({"events": [event("1", 60_000), event("2", 20_000)]}),
    );
    let as_of = (now_ms - 40_000).to_string();
    let built = path("v1");
    dev.done(&[
        "build", "counts", &all, "--key", "key", "--value", "value", "--output", &built, "--as-of", &as_of,
    ]);
    dev.done(&["deploy", "counts", &built]);
    let check = || {
        assert_eq!(get(&dev, "counts:1"), Some(row(1, 1).1), "the event is in the version");
        assert_eq!(get(&dev, "counts:2").as_deref(), Some("event"));
    };
    check();
    let of_push = of_csv("push", "counts", Path::new(&changed), &["--incremental"]);
    dev.done(&of_push);
    check();
    // Another time may be said.
    let earlier = (now_ms - 80_000).to_string();
    dev.done(&["deploy", "counts", &built, "--any-base", "--as-of", &earlier]);
    assert_eq!(get(&dev, "counts:1").as_deref(), Some("event"));
    // It stays, whatever the build was told.
    dev.done(&of_push);
    assert_eq!(get(&dev, "counts:1").as_deref(), Some("event"));
}
