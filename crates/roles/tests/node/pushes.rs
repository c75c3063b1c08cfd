//! Pushes: refused, failed, cancelled and resumed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use fondaco_format::GIVEN_AWAY_FILE;
use serde_json::{Value, json};

use crate::harness::{Builds, Client, KEYS, TestNode, file_with, key, names, until, value};

const PUSHES: &str = "/v1/stores/pymk/pushes";

/// Begins a push so slow that it is still under way when the test looks.
fn begin_slow_push(client: &Client, builds: &Builds, build: u64) {
    client.set_rate(16 << 10);
    client.begin_push(&builds.build(build));
    until("bytes to arrive", || {
        let push = client.get("/v1/stores/pymk/push");
        assert_eq!(push["state"], "fetching", "{push}");
        push["bytes_done"].as_u64() > Some(0)
    });
}

#[test]
fn a_second_push_is_refused_and_names_the_first() {
    let node = TestNode::start();
    let builds = Builds::elsewhere(1000);
    let client = &node.client;
    client.create(1);
    begin_slow_push(client, &builds, 1);
    let (status, answer) = client.call("POST", PUSHES, json!({"source": builds.build(2)}));
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("push_in_progress")));
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("version 1"),
        "{answer}"
    );
    client.refused("DELETE", "/v1/stores/pymk", Value::Null, 409, "push_in_progress");
    // The rate can be changed while it runs.
    client.set_rate(0);
    assert_eq!(client.ended_push()["state"], "swapped");
    assert_eq!(client.served_build(1000), 1);
}

#[test]
fn a_cancelled_push_leaves_no_files_and_no_reusable_number() {
    let node = TestNode::start();
    let builds = Builds::elsewhere(1000);
    let client = &node.client;
    client.create(1);
    let path = "/v1/stores/pymk/push";
    client.refused("DELETE", path, Value::Null, 404, "push_not_found");
    begin_slow_push(client, &builds, 1);
    let (status, push) = client.call("DELETE", path, Value::Null);
    assert_eq!((status, &push["state"]), (200, &json!("cancelled")), "{push}");
    assert_eq!(names(&node.dir.path().join("stores/pymk")), [""; 0]);
    client.refused("DELETE", path, Value::Null, 409, "push_ended");
    client.set_rate(0);
    assert_eq!(client.push(&builds.build(2)), 2);
    assert_eq!(client.served_build(1000), 2);
}

#[test]
fn a_push_resumes_after_a_restart_with_its_fetched_files() {
    let node = TestNode::start();
    let builds = Builds::elsewhere(1000);
    node.client.create(1);
    begin_slow_push(&node.client, &builds, 1);
    let node = node.restart();
    let push = node.client.get("/v1/stores/pymk/push");
    assert_eq!((&push["state"], &push["version"]), (&json!("fetching"), &json!(1)));
    node.client.set_rate(0);
    assert_eq!(node.client.ended_push()["state"], "swapped");
    assert_eq!(node.client.served_build(1000), 1);
    node.wait_for_dirs(&["version-1"]);
}

#[test]
fn a_file_changed_at_the_source_fails_the_push() {
    for builds in [Builds::beside(), Builds::elsewhere(50)] {
        let node = TestNode::start();
        let client = &node.client;
        client.create(1);
        client.push(&builds.build(1));
        let source = builds.build(2);
        let data = file_with(&source, ".data");
        let mut bytes = fs::read(source.join(&data)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(source.join(&data), bytes).unwrap();
        client.begin_push(&source);
        let push = client.ended_push();
        assert_eq!(push["state"], "failed");
        let error = push["error"].as_str().unwrap();
        assert!(error.contains(&data) && error.contains("checksum"), "{error}");
        node.wait_for_dirs(&["version-1"]);
        assert_eq!(client.served_build(50), 1);
        assert!(source.join(&data).exists(), "the source is not ours to delete");
    }
}

#[test]
fn only_changed_chunks_of_a_push_are_fetched() {
    let node = TestNode::start();
    let builds = Builds::elsewhere(50);
    let client = &node.client;
    client.create(1);
    client.push(&builds.build(1));
    let changed = builds.build_changed(1, 7, "another value");
    let dry_run = client.done("POST", PUSHES, json!({"source": changed, "dry_run": true}), 200);
    assert_eq!(client.push(&changed), 2);
    let dir = |version: u64| node.dir.path().join(format!("stores/pymk/version-{version}"));
    let inode = |version, name: &str| fs::metadata(dir(version).join(name)).map(|found| found.ino()).ok();
    let files = names(&dir(2)).into_iter().filter(|name| name.starts_with('p'));
    let (linked, fetched): (Vec<_>, Vec<_>) = files.partition(|name| inode(1, name) == inode(2, name));
    assert_eq!((linked.len(), fetched.len()), (14, 2), "{fetched:?}");
    let bytes = |name: &String| fs::metadata(dir(2).join(name)).unwrap().len();
    let needed: u64 = fetched.iter().map(bytes).sum();
    assert_eq!(dry_run["needed_bytes"], needed, "{dry_run}");
    let (_, answer) = client.call(
        "POST",
        "/v1/lookup",
        json!({"keys": ["pymk:member-7", "pymk:member-8"]}),
    );
    assert_eq!(answer["values"][0]["utf8"], "another value", "{answer}");
    assert_eq!(answer["values"][1]["utf8"], value(1, 8, 50), "{answer}");
    let (status, _) = client.call("POST", "/v1/stores/pymk/swap", json!({"version": 1}));
    assert_eq!(status, 200);
    assert_eq!(client.served_build(50), 1);
}

#[test]
fn a_missing_or_longer_file_fails_the_push() {
    let node = TestNode::start();
    let client = &node.client;
    let builds = Builds::elsewhere(50);
    client.create(1);
    let source = builds.build(1);
    let index = file_with(&source, ".index");
    let whole = fs::read(source.join(&index)).unwrap();
    fs::write(source.join(&index), [&whole[..], b"more"].concat()).unwrap();
    client.begin_push(&source);
    let error = client.ended_push()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("is corrupt"), "{error}");
    fs::remove_file(source.join(&index)).unwrap();
    client.begin_push(&source);
    let error = client.ended_push()["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&index), "{error}");
    node.wait_for_dirs(&[]);
}

#[test]
fn impossible_pushes_are_refused_at_once() {
    let node = TestNode::start();
    let client = &node.client;
    let builds = Builds::beside();
    let source = builds.build(1);
    client.refused("POST", PUSHES, json!({"source": source}), 404, "store_not_found");
    client.create(1);
    for source in ["/nowhere", "s3://bucket/v1", ""] {
        client.refused("POST", PUSHES, json!({"source": source}), 422, "invalid_source");
    }
    let other = builds.build_of(1, 8);
    let (status, answer) = client.call("POST", PUSHES, json!({"source": other}));
    assert_eq!(status, 422);
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("8 partitions"),
        "{answer}"
    );
    let (status, _) = client.call("POST", "/v1/stores", json!({"name": "other"}));
    assert_eq!(status, 201);
    let (status, answer) = client.call("POST", "/v1/stores/other/pushes", json!({"source": source}));
    assert_eq!(status, 422);
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("pymk"),
        "{answer}"
    );
    client.refused("POST", PUSHES, json!({"sauce": "x"}), 400, "invalid_request");
    client.refused("GET", "/v1/stores/pymk/push", Value::Null, 404, "push_not_found");
    // None of these used a version number.
    assert_eq!(client.push(&source), 1);
}

#[test]
fn a_dry_run_checks_everything_and_changes_nothing() {
    let node = TestNode::start();
    let client = &node.client;
    let builds = Builds::elsewhere(50);
    client.create(1);
    let source = builds.build(1);
    let (status, answer) = client.call("POST", PUSHES, json!({"source": source, "dry_run": true}));
    assert_eq!(
        (status, &answer["version"], &answer["records"]),
        (200, &json!(1), &json!(500)),
        "{answer}"
    );
    client.refused(
        "POST",
        PUSHES,
        json!({"source": "/nowhere", "dry_run": true}),
        422,
        "invalid_source",
    );
    assert_eq!(client.get("/v1/stores/pymk")["push"], Value::Null);
    assert_eq!(names(&node.dir.path().join("stores/pymk")), [""; 0]);
}

#[test]
fn only_files_that_were_given_away_are_linked() {
    let node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    let data = |dir: &std::path::Path| {
        let name = file_with(dir, ".data");
        fs::metadata(dir.join(name)).unwrap().ino()
    };
    for (build, gives_away) in [(1, false), (2, true)] {
        let source = builds.build(build);
        if gives_away {
            fs::write(source.join(GIVEN_AWAY_FILE), "").unwrap();
        }
        node.client.push(&source);
        let version = node.dir.path().join(format!("stores/pymk/version-{build}"));
        assert_eq!(data(&source) == data(&version), gives_away);
        assert!(!names(&version).contains(&GIVEN_AWAY_FILE.to_owned()));
        // The builder may delete its directory.
        fs::remove_dir_all(&source).unwrap();
        assert_eq!(node.client.served_build(50), build);
    }
    let node = node.restart();
    assert_eq!(node.client.served_build(50), 2);
}

#[test]
fn changing_a_source_does_not_change_the_served_version() {
    let node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    let source = builds.build(1);
    node.client.push(&source);
    // All pages are in memory, and mapped.
    assert_eq!((node.client.served_build(50), node.client.served_build(50)), (1, 1));
    for name in names(&source) {
        fs::File::create(source.join(name)).unwrap();
    }
    assert_eq!(node.client.served_build(50), 1);
    let node = node.restart();
    assert_eq!(node.client.served_build(50), 1);
}

#[test]
fn a_file_truncated_under_the_node_is_reported_and_repaired() {
    let node = TestNode::start();
    let builds = Builds::beside();
    let client = &node.client;
    client.create(1);
    let source = builds.build(1);
    client.push(&source);
    assert_eq!((client.served_build(50), client.served_build(50)), (1, 1));
    let away = source.with_extension("away");
    fs::rename(&source, &away).unwrap();
    let version = node.dir.path().join("stores/pymk/version-1");
    let data = file_with(&version, ".data");
    let file = fs::OpenOptions::new().write(true).open(version.join(&data)).unwrap();
    file.set_len(0).unwrap();

    let answers = || {
        (0..KEYS).map(|number| {
            client
                .raw("GET", &format!("/v1/stores/pymk/keys/{}", key(number)), b"")
                .unwrap()
        })
    };
    let (mut right, mut errors) = (0, 0);
    for (number, (status, _, body)) in answers().enumerate() {
        match status {
            200 => {
                assert_eq!(body, value(1, number, 50).as_bytes());
                right += 1;
            }
            _ => errors += 1,
        }
    }
    assert!(right > KEYS / 2 && errors > KEYS / 20, "{right} {errors}");
    until("the node to say so", || {
        let (status, answer) = client.call("GET", "/readyz", Value::Null);
        status == 503 && answer.to_string().contains(&data)
    });
    let (_, _, metrics) = client.raw("GET", "/metrics", b"").unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    let pages = metrics
        .lines()
        .find(|line| line.starts_with("fondaco_version_unreadable_pages_total "));
    assert!(pages.is_some_and(|line| !line.ends_with(" 0")), "{pages:?}");

    fs::rename(&away, &source).unwrap();
    node.wait_ready();
    assert_eq!(client.served_build(50), 1);
}

#[test]
fn pages_lost_by_a_power_cut_are_reported_and_repaired() {
    for extension in [".data", ".index"] {
        let mut node = TestNode::start();
        let builds = Builds::beside();
        node.client.create(1);
        let source = builds.build(1);
        node.client.push(&source);
        node.stop();
        let away = source.with_extension("away");
        fs::rename(&source, &away).unwrap();
        let version = node.dir.path().join("stores/pymk/version-1");
        let lost = file_with(&version, extension);
        // The file has its length, with zeros in place of its last pages.
        let file = fs::OpenOptions::new().write(true).open(version.join(&lost)).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(4096).unwrap();
        file.set_len(bytes).unwrap();

        let node = node.restart();
        let client = &node.client;
        let errors = || {
            (0..KEYS)
                .filter(|&number| {
                    let path = format!("/v1/stores/pymk/keys/{}", key(number));
                    let (status, _, body) = client.raw("GET", &path, b"").unwrap();
                    assert!(status != 200 || body == value(1, number, 50).as_bytes());
                    status != 200
                })
                .count()
        };
        until("the node to say so", || {
            let found = errors();
            assert!(found < KEYS / 2, "{found} of {KEYS}");
            let (status, answer) = client.call("GET", "/readyz", Value::Null);
            found > 0 && status == 503 && answer.to_string().contains(&lost)
        });
        until("the node to say why it cannot be repaired", || {
            let (_, answer) = client.call("GET", "/readyz", Value::Null);
            answer.to_string().contains("fetching it again failed: cannot read")
        });
        fs::rename(&away, &source).unwrap();
        node.wait_ready();
        assert_eq!(client.served_build(50), 1);
    }
}
