//! Pushes during which nodes, controllers and sources fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use fondaco_testing::{Ensemble, wait_for};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{until, wait};
use super::readers::{Readers, none_since};
use super::values::{build, elsewhere, read_all};

/// So slow that there is time to interfere: a version takes some ten seconds.
const SLOWLY: u64 = 40_000;

/// The file of a version whose name has this ending.
fn file_of(version: &Path, ending: &str) -> PathBuf {
    let mut files: Vec<_> = fs::read_dir(version)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort_unstable();
    let found = files.into_iter().find(|path| path.to_str().unwrap().ends_with(ending));
    found.unwrap_or_else(|| panic!("{version:?} has no {ending}"))
}

fn flip_a_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    // Write a new file, since a node may have linked the old one.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn without_tolerance_an_absent_node_fails_a_push() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&["--tolerate-failures", "0"]);
    cluster.deploy(&cluster.build(1));
    let lost = cluster.number("node-3");
    cluster.kill("node-3");
    let source = cluster.build(2);
    let deploy = ["deploy", "s", source.to_str().unwrap(), "--quiet"];
    let mut deploy = cluster.any().command(&deploy);
    let deploy = deploy.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let push = || cluster.any().http_get("/v1/stores/s/push");
    let mut absent = Value::Null;
    until("the push waits for the node by its number", || {
        absent = push()["absent"][0].clone();
        absent["node"] == lost
    });
    assert!(absent["since_unix_ms"].as_u64() > Some(1_700_000_000_000), "{absent}");
    let failed = deploy.wait_with_output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(error.contains(&format!("node {lost}")), "{error}");
    let push = push();
    assert_eq!(
        (&push["state"], &push["absent"]),
        (&json!("failed"), &json!([])),
        "{push}"
    );
    let reason = push["error"].as_str().unwrap();
    assert!(reason.contains(&format!("node {lost}")), "{push}");
    // The remaining nodes serve on: each partition has another replica.
    for name in ["node-1", "node-2", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
    }
    until("what was fetched of it is deleted", || {
        cluster.versions_on_disk("node-1") == ["version-1"]
    });
    cluster.launch("node-3");
    cluster.until_ready();
    assert_eq!(cluster.deploy(&cluster.build(3))["state"], "swapped");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(3));
}

#[test]
fn the_next_controller_continues_the_push_of_a_killed_one() {
    let sources = elsewhere();
    let mut cluster = Cluster::start(Shape {
        controllers: 2,
        ..Shape::default()
    });
    cluster.create(&[]);
    cluster.set_rate(SLOWLY);
    cluster.begin(&build(sources.path(), 1, 16));
    until("bytes arrive", || {
        cluster.any().http_get("/v1/stores/s/push")["bytes_done"].as_u64() > Some(0)
    });
    let leader = cluster.any().http_get("/v1/cluster")["leader"]
        .as_str()
        .unwrap()
        .to_owned();
    let leads = |name: &str| cluster.get(name).http == leader;
    let name = if leads("controller-1") {
        "controller-1"
    } else {
        "controller-2"
    };
    cluster.kill(name);
    assert_eq!(cluster.any().http_get("/v1/stores/s/push")["state"], "fetching");
    cluster.set_rate(0);
    assert_eq!(cluster.ended()["state"], "swapped");
    until("another one leads", || {
        let now = cluster.any().http_get("/v1/cluster");
        now["leader"].as_str().is_some_and(|now| now != leader)
    });
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_push_says_that_no_controller_leads_and_ends_when_one_does() {
    let mut cluster = Cluster::start(Shape {
        session_timeout_ms: 10_000,
        ..Shape::default()
    });
    cluster.create(&[]);
    let source = cluster.build(1);
    cluster.kill("controller-1");
    // Its entry is still there.
    let told = cluster.get("node-1").done(&["status"]);
    assert!(told.contains("leader     none"), "{told}");
    let notes = cluster.dir.path().join("notes");
    let mut push = cluster
        .get("node-1")
        .command(&["deploy", "s", source.to_str().unwrap()]);
    let mut push = push.stderr(fs::File::create(&notes).unwrap()).spawn().unwrap();
    until("the push says what it waits for", || {
        fs::read_to_string(&notes).unwrap().contains("no controller leads")
    });
    cluster.launch("controller-1");
    assert!(wait(&mut push).success());
    let told = fs::read_to_string(&notes).unwrap();
    assert_eq!(told.matches("no controller leads").count(), 1, "{told}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_push_survives_the_death_of_the_zookeeper_leader() {
    let sources = elsewhere();
    let mut ensemble = Ensemble::start(3);
    let cluster = Cluster::start_at(Shape::steady(), &ensemble.addresses());
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    cluster.set_rate(SLOWLY);
    let readers = Readers::start(&cluster.resp_addresses());
    let began = Instant::now();
    cluster.begin(&build(sources.path(), 2, 16));
    let bytes = || cluster.any().http_get("/v1/stores/s/push")["bytes_done"].as_u64();
    until("bytes arrive", || bytes() > Some(0));
    let leader = wait_for("a leader", Duration::from_secs(60), || ensemble.leader());
    ensemble.server(leader).kill();
    let at_death = bytes();
    until("more bytes arrive", || bytes() > at_death);
    cluster.set_rate(0);
    assert_eq!(cluster.ended()["state"], "swapped");
    assert_ne!(ensemble.leader(), Some(leader));
    for address in cluster.resp_addresses() {
        let mut redis = redis::Client::open(format!("redis://{address}"))
            .unwrap()
            .get_connection()
            .unwrap();
        until("the swap is seen", || read_all(&mut redis) == Ok(2));
    }
    ensemble.server(leader).restart();
    cluster.deploy(&cluster.build(3));
    none_since(&readers.stop(), began);
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(3));
}

#[test]
fn a_push_is_cancelled_on_all_nodes() {
    let sources = elsewhere();
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    cluster.set_rate(SLOWLY);
    cluster.begin(&build(sources.path(), 1, 16));
    until("bytes arrive at every node", || {
        let push = cluster.any().http_get("/v1/stores/s/push");
        let nodes = push["nodes"].as_array().unwrap();
        nodes.len() == 3 && nodes.iter().all(|node| node["bytes_done"].as_u64() > Some(0))
    });
    let url = format!("http://{}/v1/stores/s/push", cluster.get("router-1").http);
    ureq::delete(url).call().unwrap();
    assert_eq!(cluster.ended()["state"], "cancelled");
    for name in cluster.nodes() {
        let trash = cluster.data(&name).join("trash");
        until("nothing of it is left", || {
            cluster.versions_on_disk(&name).is_empty() && fs::read_dir(&trash).unwrap().next().is_none()
        });
    }
    cluster.set_rate(0);
    assert_eq!(cluster.deploy(&cluster.build(2))["version"], 2);
}

#[test]
fn a_corrupt_source_fails_the_push_naming_the_file() {
    let cluster = Cluster::serving(Shape::steady());
    for ending in [".data", ".index"] {
        let source = cluster.build(if ending == ".data" { 2 } else { 3 });
        let file = file_of(&source, ending);
        flip_a_bit(&file);
        cluster.begin(&source);
        let push = cluster.ended();
        assert_eq!(push["state"], "failed", "{push}");
        let error = push["error"].as_str().unwrap();
        assert!(error.contains(file.file_name().unwrap().to_str().unwrap()), "{error}");
        assert!(error.contains("checksum"), "{error}");
        for name in ["node-1", "node-2", "node-3", "router-1"] {
            assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
        }
    }
}

#[test]
fn a_corrupt_chunk_of_a_peer_is_rejected() {
    // Each partition is on every node, so a node that fetches from peers has two to choose from.
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    cluster.create(&[]);
    let source = cluster.build(1);
    cluster.deploy(&source);
    fs::remove_dir_all(&source).unwrap();
    cluster.kill("node-3");
    fs::remove_dir_all(cluster.data("node-3").join("stores")).unwrap();
    let rotten = cluster.data("node-1").join("stores/s/version-1");
    let entries = fs::read_dir(&rotten).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.filter(|path| path.extension().is_some_and(|ending| ending == "data")) {
        flip_a_bit(&path);
    }
    cluster.launch("node-3");
    cluster.until_holds("node-3", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
    let held = cluster.data("node-3").join("stores/s/version-1");
    cluster.any().done(&["inspect", held.to_str().unwrap(), "--verify"]);
}

#[test]
fn a_version_directory_replaced_during_a_push_is_noticed() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.kill("node-3");
    let source = cluster.build(1);
    cluster.begin(&source);
    assert_eq!(cluster.ended()["state"], "swapped");
    // Put another valid version in the place of the one that node-3 still has to fetch.
    fs::remove_dir_all(&source).unwrap();
    fs::rename(cluster.build(2), &source).unwrap();
    cluster.launch("node-3");
    cluster.until_no_node_is_late();
    cluster.until_ready();
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
    }
}
