//! A store that every node holds whole.

use serde_json::Value;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::Readers;
use super::values::read_all;

/// How many nodes would answer for a key.
pub fn places(cluster: &Cluster) -> usize {
    let found = cluster.try_get(cluster.any(), "/v1/where?key=s:1");
    found.map_or(0, |place| place["owners"].as_array().map_or(0, Vec::len))
}

pub fn replicas(cluster: &Cluster) -> Value {
    cluster.any().json(&["store", "show", "s"])["replicas"].clone()
}

#[test]
fn one_node_alone_answers_for_all_partitions() {
    let mut cluster = Cluster::start(Shape::steady());
    let both = ["store", "create", "t", "--everywhere", "--replicas", "2"];
    let refused = cluster.any().refused(2, &both);
    assert!(refused.contains("--everywhere"), "{refused}");
    let versioned = ["store", "create", "t", "--everywhere", "--kind", "versioned"];
    let refused = cluster.any().refused(1, &versioned);
    assert!(refused.contains("only batch and hybrid stores have it"), "{refused}");
    cluster.create(&["--everywhere"]);
    cluster.deploy(&cluster.build(1));
    assert_eq!((places(&cluster), replicas(&cluster)), (3, 3.into()));
    // A push comes to all of them, and so does the way back.
    cluster.deploy(&cluster.build(2));
    cluster.any().done(&["rollback", "s"]);
    cluster.kill("node-1");
    cluster.kill("node-2");
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
    until("the router asks the one that is left", || {
        read_all(&mut cluster.get("router-1").redis()) == Ok(1)
    });
}

#[test]
fn stores_become_everywhere_and_follow_new_nodes() {
    let mut cluster = Cluster::start(Shape::steady());
    cluster.create(&["--replicas", "1"]);
    cluster.deploy(&cluster.build(1));
    let readers = Readers::start(&cluster.resp_addresses());
    cluster.any().done(&["store", "alter", "s", "--everywhere", "true"]);
    cluster.add("node-4", "");
    cluster.launch("node-4");
    cluster.until_ready();
    let number = cluster.number("node-4").to_string();
    assert_eq!(places(&cluster), 3, "it has no partitions yet");
    cluster.any().done(&["rebalance", "run", "--add", &number]);
    assert_eq!((places(&cluster), replicas(&cluster)), (4, 4.into()));
    cluster.any().done(&["rebalance", "run", "--remove", &number]);
    assert_eq!(places(&cluster), 3);
    cluster.any().done(&["rebalance", "run", "--add", &number]);
    let failures = readers.stop();
    assert!(failures.is_empty(), "{failures:?}");

    for name in ["node-1", "node-2", "node-3"] {
        cluster.kill(name);
    }
    assert_eq!(read_all(&mut cluster.get("node-4").redis()), Ok(1));
    for name in ["node-1", "node-2", "node-3"] {
        cluster.launch(name);
    }
    cluster.until_ready();
    let readers = Readers::start(&cluster.resp_addresses());
    cluster.any().done(&["store", "alter", "s", "--replicas", "1"]);
    assert_eq!((places(&cluster), replicas(&cluster)), (1, 1.into()));
    readers_go_on(&readers);
    let failures = readers.stop();
    assert!(failures.is_empty(), "{failures:?}");
}

pub fn readers_go_on(readers: &Readers) {
    let before = readers.answers();
    until("reads continue", || readers.answers() > before + 1000);
}
