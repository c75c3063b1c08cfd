//! Nodes that are killed and return, with or without their data.

use std::fs;
use std::time::Instant;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};
use super::values::read_all;

#[test]
fn a_detected_dead_node_fails_no_read_and_catches_up() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.deploy(&cluster.build(1));
    let survivors = ["node-1", "node-2", "router-1"].map(|name| cluster.get(name).resp.clone());
    let lost = cluster.number("node-3");
    let readers = Readers::start(&survivors);
    until("readers are at work", || readers.answers() > 100);
    cluster.kill("node-3");
    let killed = Instant::now();
    cluster.until_live(lost, false);
    let detected = Instant::now();
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    // A push continues without it.
    cluster.deploy(&cluster.build(2));
    let store = cluster.any().http_get("/v1/stores/s");
    assert_eq!(store["late"], serde_json::json!([lost]));
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);

    cluster.launch("node-3");
    cluster.until_nobody_is_late();
    // It was killed when its second version arrived: the first one is a backup, and it has both.
    cluster.until_holds("node-3", &["version-1", "version-2"]);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(2));
    let failures = readers.stop();
    none_since(&failures, detected);
    println!(
        "{} requests failed in the {:?} until the node was known to be gone",
        failures.len(),
        detected - killed
    );
}

#[test]
fn killing_and_restarting_every_node_in_turn_loses_no_data() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    for name in cluster.nodes() {
        let number = cluster.number(&name);
        cluster.kill(&name);
        cluster.until_live(number, false);
        assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1), "without {name}");
        cluster.launch(&name);
        cluster.until_ready();
        assert_eq!(cluster.number(&name), number);
    }
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_node_that_lost_its_data_fetches_it_from_peers() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    let source = cluster.build(1);
    cluster.deploy(&source);
    // The source of the push may be gone by then.
    fs::remove_dir_all(&source).unwrap();
    let number = cluster.number("node-2");
    cluster.kill("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(1));

    // Deletes the whole directory, including the identity of the node: it is recognised by its address.
    cluster.kill("node-2");
    cluster.until_live(number, false);
    fs::remove_dir_all(cluster.data("node-2")).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &["version-1"]);
    cluster.until_ready();
    assert_eq!(cluster.number("node-2"), number);
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(1));
    let nodes = cluster.any().http_get("/v1/nodes");
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn a_new_node_gets_a_number_and_waits_for_partitions() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    cluster.add("node-4", "zone = \"other\"");
    cluster.launch("node-4");
    cluster.until_live(4, true);
    until("it knows its number", || {
        cluster.get("node-4").http_get("/v1/status")["node"] == 4
    });
    // It holds no data, and answers for all keys.
    assert_eq!(cluster.versions_on_disk("node-4"), [""; 0]);
    until("it knows the cluster", || {
        read_all(&mut cluster.get("node-4").redis()) == Ok(1)
    });
    cluster.any().done(&["rebalance", "run", "--add", "4", "--quiet"]);
    cluster.until_holds("node-4", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-4").redis()), Ok(1));
}
