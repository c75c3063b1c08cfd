//! Backups of clusters during failures and changes: processes are killed, partitions move, nodes are absent.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use fondaco_testing::{Proxy, ZooKeeper};
use redis::Commands;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{Node, until, wait};

const KEYS: u32 = 600;

/// Slow enough to interfere with a backup: the store has some 200 kB on each node.
const BYTES_PER_SECOND: &str = "40000";

fn value(key: u32) -> String {
    format!("{key}: {}", "x".repeat(200))
}

fn write(node: &Node, store: &str) {
    let mut redis = node.redis();
    until("the store is known", || {
        redis.set::<_, _, ()>(format!("{store}:0"), value(0)).is_ok()
    });
    for key in 0..KEYS {
        redis.set::<_, _, ()>(format!("{store}:{key}"), value(key)).unwrap();
    }
}

fn check(node: &Node, store: &str) {
    let mut redis = node.redis();
    until("the store is known", || {
        redis.get::<_, Option<String>>(format!("{store}:0")).is_ok()
    });
    for key in 0..KEYS {
        let found: Option<String> = redis.get(format!("{store}:{key}")).unwrap();
        assert_eq!(found, Some(value(key)), "{key}");
    }
}

/// Starts a slow backup through a process, and waits until part of it is written.
fn begin(node: &Node, url: &str) -> Child {
    let arguments = ["backup", "s", "--output", url, "--bytes-per-second", BYTES_PER_SECOND];
    let child = node.command(&arguments).stderr(Stdio::inherit()).spawn().unwrap();
    until("some of the backup is there", || {
        fs::read_dir(url).is_ok_and(|files| files.count() >= 3)
    });
    child
}

/// A cluster with one replica per partition and a written store: a node that hands a partition over deletes its copy,
/// and no other replica has one.
fn with_one_replica() -> Cluster {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        ..Shape::steady()
    });
    cluster.any().done(&["store", "create", "s", "--kind", "versioned"]);
    write(cluster.get("router-1"), "s");
    cluster
}

/// Starts moving all partitions away from the second node.
fn begin_to_move(cluster: &Cluster) {
    let gone = cluster.number("node-2");
    cluster
        .any()
        .http_post("/v1/plans", json!({"remove": [gone], "run": true}));
}

fn until_moved(cluster: &Cluster) {
    until("the partitions have moved", || {
        let found = cluster.any().http_get("/v1/cluster");
        found["plan_under_way"] == json!(false)
    });
}

/// The files listed in the manifest of a backup.
fn files(backup: &Path) -> Vec<Value> {
    let manifest = fs::read(backup.join("backup.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest["backup"]["files"].as_array().unwrap().clone()
}

#[test]
fn a_backup_is_complete_after_node_and_controller_die() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    cluster.any().done(&["store", "create", "s", "--kind", "versioned"]);
    write(cluster.get("router-1"), "s");
    let url = cluster.data("backup");
    let url = url.to_str().unwrap();
    // The node named on the command line is one of those that are killed: the other nodes tell where the partitions
    // are.
    let mut backup = begin(cluster.get("node-3"), url);
    let number = cluster.number("node-3");
    cluster.kill("node-3");
    cluster.kill("controller-1");
    assert!(wait(&mut backup).success());

    // The node is still absent; the restore does not need it.
    let entry = cluster.get("node-1");
    let restored = entry.json(&["restore", "again", url, "--create"]);
    assert_eq!(restored["records"], KEYS);
    assert_eq!(restored["left_out"], json!([number]));
    check(cluster.get("router-1"), "again");
    // Other replicas send it the writes that it missed.
    cluster.launch("controller-1");
    cluster.launch("node-3");
    cluster.until_ready();
    cluster.kill("node-1");
    check(cluster.get("router-1"), "again");
}

#[test]
fn a_backup_is_complete_when_partitions_move_meanwhile() {
    let cluster = with_one_replica();
    let any = cluster.any();
    let url = cluster.data("backup");
    let url = url.to_str().unwrap();
    let mut backup = begin(any, url);
    begin_to_move(&cluster);
    until_moved(&cluster);
    assert!(wait(&mut backup).success());
    any.done(&["restore", "again", url, "--create"]);
    check(cluster.get("router-1"), "again");
}

#[test]
fn a_restore_is_complete_when_partitions_move_meanwhile() {
    let cluster = with_one_replica();
    let any = cluster.any();
    let url = cluster.data("backup");
    let url = url.to_str().unwrap();
    any.done(&["backup", "s", "--output", url]);
    let arguments = [
        "restore",
        "again",
        url,
        "--create",
        "--bytes-per-second",
        BYTES_PER_SECOND,
    ];
    let mut restore = any.command(&arguments).stderr(Stdio::inherit()).spawn().unwrap();
    until("the store is there", || {
        let stores = any.http_get("/v1/stores");
        stores["stores"].as_array().unwrap().len() == 2
    });
    begin_to_move(&cluster);
    assert!(wait(&mut restore).success());
    until_moved(&cluster);
    check(cluster.get("router-1"), "again");
}

#[test]
fn a_backup_takes_no_routes_from_nodes_without_zookeeper() {
    let zookeeper = ZooKeeper::start();
    let own_way = Proxy::to(zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    cluster.reroute("node-3", &own_way.address());
    cluster.launch_until_ready();
    cluster.any().done(&["store", "create", "s", "--kind", "versioned"]);
    write(cluster.get("router-1"), "s");
    own_way.cut();
    until("the silence is noticed", || {
        let status = cluster.get("node-3").http_get("/v1/status");
        status["coordination_silent_ms"].is_u64()
    });
    let path = cluster.data("backup");
    let url = path.to_str().unwrap();
    for arguments in [&["backup", "s", "--output", url][..], &["restore", "s", url]] {
        let refused = cluster.get("node-3").refused(1, arguments);
        assert!(refused.contains("has heard nothing of the cluster"), "{refused}");
        cluster.any().done(arguments);
    }
    // A node that starts now serves with its remembered state, and is not asked either.
    cluster.kill("node-3");
    cluster.launch("node-3");
    let refused = cluster.get("node-3").refused(1, &["restore", "s", url]);
    assert!(refused.contains("has heard nothing of the cluster"), "{refused}");
}

#[test]
fn a_backup_of_a_sloppy_store_includes_hints() {
    let mut cluster = Cluster::start(Shape::default());
    let options = ["--kind", "versioned", "--reads", "1", "--writes", "2", "--sloppy"];
    cluster.any().done(&[&["store", "create", "s"][..], &options].concat());
    let number = cluster.number("node-3");
    cluster.kill("node-3");
    cluster.until_live(number, false);
    write(cluster.get("router-1"), "s");
    let path = cluster.data("backup");
    let url = path.to_str().unwrap();
    cluster.any().done(&["backup", "s", "--output", url]);
    let kept = files(&path);
    let kept = kept
        .iter()
        .find(|file| file["name"].as_str().unwrap().starts_with("hints-"));
    let kept = kept.unwrap()["records"].as_u64().unwrap();
    // Two of three partitions have a replica on each node.
    assert!(kept > u64::from(KEYS / 3), "{kept}");
    cluster.launch("node-3");
    cluster.until_live(number, true);
    cluster.any().done(&["restore", "again", url, "--create"]);
    check(cluster.get("router-1"), "again");

    // With two nodes absent, these may hold a write alone.
    for name in ["node-2", "node-3"] {
        let number = cluster.number(name);
        cluster.kill(name);
        cluster.until_live(number, false);
    }
    let other = cluster.data("other");
    let refused = cluster
        .any()
        .refused(1, &["backup", "s", "--output", other.to_str().unwrap()]);
    assert!(
        refused.contains("sloppy") && refused.contains("start node"),
        "{refused}"
    );
    assert!(!other.exists());
}
