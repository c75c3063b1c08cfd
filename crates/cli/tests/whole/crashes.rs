//! Processes killed at any moment: afterwards the old or the new version is complete, and no superfluous file is left.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::node::{Node, fondaco, of_csv, signal, until, wait, write_csv};

const KEYS: u64 = 1000;

fn value(version: u64, key: u64) -> String {
    format!("version-{version} key-{key} {}", "y".repeat(1500))
}

fn build(dir: &Path, version: u64) -> String {
    let csv = dir.join("input.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(version, key))));
    let output = dir.join(format!("built-{version}"));
    let output = output.to_str().unwrap();
    let done = fondaco()
        .args(of_csv("build", "s", &csv, &["--output", output]))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    output.to_owned()
}

/// Lets some time pass, in which the kill is to fall at a random moment. No condition to wait for: that
/// nothing is known of the moment is the point.
fn a_while(random: &mut fastrand::Rng, ms_max: u64) {
    let until = std::time::Instant::now() + Duration::from_millis(random.u64(..ms_max));
    while let Some(left) = until.checked_duration_since(std::time::Instant::now()) {
        std::thread::park_timeout(left);
    }
}

/// The version that is served; panics if a key has another one.
fn served_version(node: &Node) -> u64 {
    let mut redis = node.redis();
    let keys: Vec<String> = (0..KEYS).map(|key| format!("s:{key}")).collect();
    let values: Vec<String> = redis::cmd("MGET").arg(keys).query(&mut redis).unwrap();
    let of_first = values[0].strip_prefix("version-").unwrap();
    let version: u64 = of_first.split(' ').next().unwrap().parse().unwrap();
    for (key, text) in values.iter().enumerate() {
        assert_eq!(text, &value(version, key as u64), "key {key}");
    }
    version
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Waits until the data directory contains only the versions that the node lists, and dropped ones that can be
/// restored.
fn until_nothing_leaks(node: &Node, data: &Path) {
    let (mut expected, mut found) = Default::default();
    let mut trash = BTreeSet::new();
    until("all files are deleted that no version needs", || {
        let versions = node.http_get("/v1/stores/s/versions");
        expected = versions["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|version| format!("version-{}", version["version"]))
            .collect::<BTreeSet<_>>();
        found = names_in(&data.join("stores/s"));
        trash = names_in(&data.join("trash"));
        found == expected && trash.iter().all(|name| name.contains(".s.version-"))
    });
}

#[test]
fn a_node_killed_during_a_push_serves_a_complete_version() {
    const KILLS: u64 = 12;
    let mut random = fondaco_testing::random("kills during pushes");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let sources: Vec<String> = (0..3).map(|version| build(dir.path(), version)).collect();
    let node = Node::dev(&data);
    node.done(&["store", "create", "s", "--backups", "1"]);
    node.done(&["deploy", "s", &sources[0]]);
    // So slow that a push takes about a quarter of a second.
    node.done(&["config", "set", "fetch-rate-bytes-per-second=8000000"]);
    let mut node = node;
    let mut before = 0;
    let mut changed = 0;
    for kill in 1..=KILLS {
        let pushed = kill % 3;
        let mut push = node
            .command(&["deploy", "s", &sources[pushed as usize], "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        a_while(&mut random, 500);
        node.kill();
        wait(&mut push);
        node = Node::dev(&data);
        let after = served_version(&node);
        assert!(
            after == before || after == pushed,
            "kill {kill}: {before} or {pushed}, not {after}"
        );
        // A running push continues by itself.
        until("the push has ended", || {
            let push: Value = node.http_get("/v1/stores/s/push");
            !matches!(push["state"].as_str(), Some("fetching" | "ready"))
        });
        let ended = served_version(&node);
        assert!(
            ended == before || ended == pushed,
            "kill {kill}: {before} or {pushed}, not {ended}"
        );
        until_nothing_leaks(&node, &data);
        changed += u64::from(ended != before);
        before = ended;
    }
    println!("{changed} of {KILLS} pushes came through");
    assert!(
        node.json(&["status"])["process"]["not_ready"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_killed_build_never_looks_complete() {
    const KILLS: u64 = 10;
    let mut random = fondaco_testing::random("kills during builds");
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("input.csv");
    write_csv(&csv, (0..60_000).map(|key| (key.to_string(), "z".repeat(200))));
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut unfinished = 0;
    for kill in 0..KILLS {
        let output = dir.path().join(format!("version-{kill}"));
        let mut build = fondaco()
            .args(of_csv("build", "s", &csv, &["--memory", "2MiB", "--work"]))
            .arg(&work)
            .arg("--output")
            .arg(&output)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        a_while(&mut random, 1000);
        build.kill().unwrap();
        wait(&mut build);
        assert_eq!(
            names_in(&work),
            BTreeSet::new(),
            "kill {kill}: temporary files are left"
        );
        let inspected = fondaco()
            .args(["inspect", "--verify", "--json"])
            .arg(&output)
            .output()
            .unwrap();
        if output.join("manifest.json").exists() {
            // It finished before it was killed, so it is complete.
            assert!(
                inspected.status.success(),
                "kill {kill}: {}",
                String::from_utf8_lossy(&inspected.stderr)
            );
            let inspected: Value = serde_json::from_slice(&inspected.stdout).unwrap();
            assert_eq!(inspected["manifest"]["records"], 60_000);
        } else {
            unfinished += 1;
            assert_eq!(inspected.status.code(), Some(1));
        }
    }
    println!("{unfinished} of {KILLS} builds were killed before they finished");
}

#[test]
fn the_next_push_deletes_the_build_of_a_killed_one() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let csv = dir.path().join("input.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let node = Node::dev(&dir.path().join("data"));
    node.done(&["store", "create", "s"]);
    let push = of_csv("push", "s", &csv, &["--work", work.to_str().unwrap()]);
    node.done(&["config", "set", "fetch-rate-bytes-per-second=20000"]);
    let mut killed = node
        .command(&push)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the push is under way", || {
        node.http_get("/v1/stores/s")["push"]["state"] == "fetching"
    });
    killed.kill().unwrap();
    wait(&mut killed);
    assert_eq!(names_in(&work).len(), 1);
    // The node continues to fetch without the watching command.
    node.done(&["config", "set", "fetch-rate-bytes-per-second=0"]);
    until("the push has ended", || {
        node.http_get("/v1/stores/s/push")["state"] == "swapped"
    });
    node.done(&push);
    assert_eq!(names_in(&work), BTreeSet::new());
}

#[test]
fn an_interrupted_push_is_cancelled_and_leaves_the_store_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::dev(&data);
    let sources: Vec<String> = (0..2).map(|version| build(dir.path(), version)).collect();
    node.done(&["store", "create", "s"]);
    node.done(&["deploy", "s", &sources[0]]);
    node.done(&["config", "set", "fetch-rate-bytes-per-second=20000"]);
    let mut deploy = node
        .command(&["deploy", "s", &sources[1]])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the push is under way", || {
        node.http_get("/v1/stores/s/push")["state"] == "fetching"
    });
    // Another push waits; ending it does not harm the first one.
    let mut waiting = node
        .command(&["deploy", "s", &sources[1]])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut notes = BufReader::new(waiting.stderr.take().unwrap()).lines();
    assert!(notes.any(|note| note.unwrap().contains("in progress")));
    signal(&waiting, rustix::process::Signal::INT);
    assert_eq!(wait(&mut waiting).code(), Some(1));
    assert_eq!(node.http_get("/v1/stores/s/push")["state"], "fetching");
    signal(&deploy, rustix::process::Signal::INT);
    assert_eq!(wait(&mut deploy).code(), Some(1));
    assert_eq!(node.http_get("/v1/stores/s/push")["state"], "cancelled");
    assert_eq!(served_version(&node), 0);
    until_nothing_leaks(&node, &data);
}

#[test]
fn a_stopped_node_restarts_with_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::dev(&data);
    let source = build(dir.path(), 7);
    node.done(&["store", "create", "s"]);
    node.done(&["deploy", "s", &source]);
    // A pushed version does not depend on the directory of its build.
    fs::remove_dir_all(source).unwrap();
    assert_eq!(node.terminate(), Some(0));
    assert_eq!(served_version(&Node::dev(&data)), 7);
}
