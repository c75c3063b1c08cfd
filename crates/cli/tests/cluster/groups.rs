//! Groups of nodes that each hold a complete copy: one is added, and the other taken out.

use redis::Commands;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::Readers;
use super::values::read_all;

const KEYS: u64 = 300;

/// The keys of the versioned store that a process does not answer with their values.
fn missing(cluster: &Cluster, name: &str) -> Vec<u64> {
    let mut redis = cluster.get(name).redis();
    let is_there = |key: u64| redis.get::<_, Option<u64>>(format!("t:{key}")) == Ok(Some(key));
    let mut is_there = is_there;
    (0..KEYS).filter(|&key| !is_there(key)).collect()
}

#[test]
fn a_group_is_added_by_copying_and_replaces_another() {
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 1,
        ..Shape::steady()
    });
    cluster.protect("", "placement = \"grouped\"\n");
    for name in ["node-1", "node-2"] {
        cluster.add(name, "group = \"blue\"");
    }
    cluster.launch_until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    let create = "store create t --kind versioned --reads 1 --writes 1";
    cluster.any().done(&create.split(' ').collect::<Vec<_>>());
    let mut router = cluster.get("router-1").redis();
    until("the router knows the store", || {
        router.set::<_, _, ()>("t:0", 0).is_ok()
    });
    for key in 0..KEYS {
        router.set::<_, _, ()>(format!("t:{key}"), key).unwrap();
    }
    let readers = Readers::start(&cluster.resp_addresses());

    for name in ["node-3", "node-4"] {
        cluster.add(name, "group = \"green\"");
        cluster.launch(name);
    }
    cluster.until_ready();
    let numbers = ["node-1", "node-2", "node-3", "node-4"].map(|name| cluster.number(name).to_string());
    let [first, second, third, fourth] = numbers.each_ref().map(String::as_str);
    cluster
        .any()
        .done(&["rebalance", "run", "--add", third, "--add", fourth]);
    let place = cluster.try_get(cluster.any(), "/v1/where?key=s:1").unwrap();
    assert_eq!(place["owners"].as_array().unwrap().len(), 2, "{place}");

    // The old group rests, and the new one answers; then the old one leaves.
    cluster.any().done(&["maintenance", "--group", "blue"]);
    cluster.any().done(&["maintenance", "--group", "blue", "--end"]);
    cluster
        .any()
        .done(&["rebalance", "run", "--remove", first, "--remove", second]);
    let failures = readers.stop();
    assert!(failures.is_empty(), "{failures:?}");
    for name in ["node-1", "node-2"] {
        cluster.kill(name);
    }
    for name in ["node-3", "node-4"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
        assert_eq!(missing(&cluster, name), [0_u64; 0], "{name}");
    }
}
