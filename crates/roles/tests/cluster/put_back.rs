//! Data directories that are replaced by older copies of themselves: the node notices, and answers no read before it
//! has recovered the writes that it acknowledged since.

use std::fs;
use std::path::Path;

use fondaco_testing::{copy_dir, put_back_dir};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::TestCluster;
use crate::single::{eventually, until};
use crate::versioned::{Writer, create};

const NODE: &str = "node-2";
const OTHERS: [&str; 2] = ["node-1", "node-3"];

/// Three nodes that all have every acknowledged write; one node is enough for a read.
fn cluster() -> TestCluster {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    create(&cluster, json!({"reads": 1, "writes": 3}));
    cluster
}

/// The content of a node's incarnation file.
fn incarnation(dir: &Path) -> Value {
    let text = fs::read(dir.join("versioned/incarnation.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Restores the node from a copy: it refuses reads while it is alone, and recovers everything when the others are back.
fn is_noticed(cluster: &TestCluster, copy: &Path, writer: &Writer) {
    let data = cluster.data(NODE);
    let last = incarnation(&data);
    put_back_dir(copy, &data);
    OTHERS.iter().for_each(|other| cluster.stop(other));
    cluster.start_again(NODE);
    until("the older copy to be noticed", || {
        cluster.metric(NODE, "fondaco_partitions_behind") > 0
    });
    let losses = cluster.member(NODE).get("/v1/losses")["losses"].to_string();
    assert!(losses.contains("older copy"), "{losses}");
    let mut alone = cluster.resp_of(NODE);
    for key in 0..90 {
        let answer = alone.ask(&format!("GET cart:{key}"));
        assert!(answer.starts_with('-'), "{key}: {answer}");
    }
    let now = incarnation(&data);
    for known in [&last, &incarnation(copy)] {
        assert_ne!(now["durable"], known["durable"], "it begins a new count");
    }
    assert!(now["count"].as_u64() > last["count"].as_u64());
    OTHERS.iter().for_each(|other| cluster.start_again(other));
    until("the lost writes to be recovered", || {
        cluster.metric(NODE, "fondaco_partitions_behind") == 0
    });
    cluster.wait_ready();
    OTHERS.iter().for_each(|other| cluster.stop(other));
    writer.again(cluster.resp_of(NODE)).check();
    OTHERS.iter().for_each(|other| cluster.start_again(other));
    cluster.wait_ready();
}

#[test]
fn a_node_restored_from_a_copy_recovers_before_it_answers() {
    let cluster = cluster();
    let mut writer = Writer::new(&cluster);
    writer.write(0..60, "a");
    // Copied while it runs.
    let running = TempDir::new().unwrap();
    copy_dir(&cluster.data(NODE), running.path());
    writer.write(30..90, "b");
    cluster.stop(NODE);
    is_noticed(&cluster, running.path(), &writer);
    // Copied after an orderly stop.
    let stopped = TempDir::new().unwrap();
    cluster.stop(NODE);
    copy_dir(&cluster.data(NODE), stopped.path());
    cluster.start_again(NODE);
    cluster.wait_ready();
    let mut writer = writer.again(cluster.resp());
    until("the nodes to be reached again", || {
        writer.ask("SET cart:first y") == "+OK"
    });
    writer.write(60..90, "c");
    cluster.stop(NODE);
    is_noticed(&cluster, stopped.path(), &writer);
}

#[test]
fn repeated_restarts_are_not_taken_for_an_older_copy() {
    let cluster = cluster();
    let mut writer = Writer::new(&cluster);
    writer.write(0..20, "a");
    let count = || incarnation(&cluster.data(NODE))["count"].as_u64();
    for _ in 0..3 {
        let before = count();
        cluster.stop(NODE);
        cluster.start_again(NODE);
        cluster.wait_ready();
        assert!(count() > before);
        assert_eq!(cluster.member(NODE).get("/v1/losses")["losses"], json!([]));
    }
    OTHERS.iter().for_each(|other| cluster.stop(other));
    writer.again(cluster.resp_of(NODE)).check();
}

#[test]
fn the_count_rises_only_while_the_node_takes_writes() {
    let cluster = TestCluster::start_with(|config| {
        config.cluster.replicas = 3;
        config.versioned.count_period = Some(std::time::Duration::ZERO);
    });
    create(&cluster, json!({"reads": 1, "writes": 3}));
    let mut writer = Writer::new(&cluster);
    let count = || incarnation(&cluster.data(NODE))["count"].as_u64();
    for round in 0..2 {
        let before = count();
        writer.write(0..10, &round.to_string());
        until("another count", || count() > before);
    }
    let looks = || cluster.metric(NODE, "fondaco_agent_looks_total");
    eventually("a count that stays", || {
        let (before, begun) = (count(), looks());
        until("three looks", || looks() > begun + 3);
        (count() == before).then_some(())
    });
}
