//! A ZooKeeper that loses its data, or is restored from an older copy: nodes keep their data and report it, and an
//! operator decides.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fondaco_testing::{ZooKeeper, copy_dir};
use serde_json::{Value, json};

use crate::harness::{TestCluster, zookeeper};
use crate::single::{Builds, eventually, names, until};

/// The data directory of a server.
fn data(server: &ZooKeeper) -> PathBuf {
    server.dir().join("data/version-2")
}

fn ask(cluster: &TestCluster, member: &str, command: &str) -> String {
    cluster.resp_of(member).ask(command)
}

/// A batch store and a versioned one, both with data.
fn fill(cluster: &TestCluster) {
    cluster.create(json!({}));
    cluster.client.push(&Builds::beside().build(1));
    let carts = json!({"name": "carts", "kind": "versioned"});
    cluster.client.done("POST", "/v1/stores", carts, 201);
    until("the write", || ask(cluster, "router-1", "SET carts:k v") == "+OK");
    cluster.all_serve(1, 50);
    for node in cluster.nodes() {
        eventually("the view to be remembered", || {
            let view = fs::read_to_string(cluster.data(&node).join("view.json")).ok()?;
            (view.contains("\"current\":1") && view.contains("carts")).then_some(())
        });
    }
}

/// Waits until the answer contains the text and the condition holds.
fn until_told(says: &str, mut ask: impl FnMut() -> (bool, String)) {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let (holds, answer) = ask();
        if holds && answer.contains(says) {
            return;
        }
        assert!(Instant::now() < deadline, "{says:?} is not in {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every node reports the problem, and keeps and serves its data.
fn all_keep(cluster: &TestCluster, says: &str) {
    for node in cluster.nodes() {
        let client = cluster.member(&node);
        until_told(says, || {
            let (status, readiness) = client.call("GET", "/readyz", Value::Null);
            (status == 503, readiness["reasons"].to_string())
        });
        assert!(client.get("/v1/cluster")["problems"].to_string().contains(says));
        assert_eq!(names(&cluster.data(&node).join("stores/pymk")), ["version-1"]);
        assert_eq!(client.served_build(50), 1, "{node}");
    }
    until_told("v", || (true, ask(cluster, "router-1", "GET carts:k")));
}

fn adopt(cluster: &TestCluster, node: &str) {
    until("the adoption", || {
        let (status, answer) = cluster.member(node).call("POST", "/v1/cluster/adopt", json!({}));
        // The service may have come back only just now.
        assert!(status == 200 || status == 503, "{answer}");
        status == 200
    });
}

/// Everything works as before.
fn all_requests_succeed(cluster: &TestCluster) {
    cluster.wait_ready();
    cluster.wait_no_node_late();
    cluster.all_serve(1, 50);
    assert_eq!(cluster.client.push(&Builds::beside().build(2)), 2);
    cluster.all_serve(2, 50);
    until_told("v", || (true, ask(cluster, "router-1", "GET carts:k")));
    until("a write", || ask(cluster, "router-1", "SET carts:k w") == "+OK");
}

#[test]
fn nothing_is_deleted_when_zookeeper_is_emptied_and_adopted() {
    let mut server = ZooKeeper::start();
    let servers = server.address();
    let cluster = TestCluster::start_with(|config| {
        config.zookeeper = Some(zookeeper(&servers, "/fondaco/emptied"));
    });
    fill(&cluster);
    let identity = cluster.client.get("/v1/cluster")["identity"].clone();
    server.kill();
    fs::remove_dir_all(data(&server)).unwrap();
    server.restart();
    all_keep(&cluster, "has no entries of cluster");
    // The same after a restart of a node, and with a controller that remembers nothing and makes another cluster.
    cluster.stop("node-2");
    cluster.start_again("node-2");
    for controller in ["controller-1", "controller-2"] {
        cluster.stop(controller);
        cluster.start_again(controller);
    }
    all_keep(&cluster, "another cluster was made");
    let founded = cluster.member("controller-1").get("/v1/cluster")["identity"].clone();
    assert_ne!(founded, identity, "each new cluster has its own");
    cluster.stop("node-3");
    cluster.start_again("node-3");
    all_keep(&cluster, "another cluster was made");
    adopt(&cluster, "node-3");
    all_requests_succeed(&cluster);
    assert_eq!(cluster.client.get("/v1/cluster")["identity"], identity);
}

#[test]
fn nothing_is_deleted_when_zookeeper_returns_to_an_older_copy() {
    let mut server = ZooKeeper::start();
    let servers = server.address();
    let cluster = TestCluster::start_with(|config| {
        config.zookeeper = Some(zookeeper(&servers, "/fondaco/put-back"));
    });
    server.kill();
    let copy = server.dir().join("copy");
    copy_dir(&data(&server), &copy);
    server.restart();
    cluster.wait_ready();
    fill(&cluster);
    server.kill();
    fs::remove_dir_all(data(&server)).unwrap();
    copy_dir(&copy, &data(&server));
    server.restart();
    all_keep(&cluster, "put back to an older copy");
    let other = json!({"name": "other"});
    let member = cluster.member("node-1");
    member.refused("POST", "/v1/stores", other, 503, "entries_lost");
    cluster.stop("node-2");
    cluster.start_again("node-2");
    all_keep(&cluster, "put back to an older copy");
    adopt(&cluster, "node-1");
    all_requests_succeed(&cluster);
}
