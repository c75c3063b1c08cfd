//! Network partitions: one node runs in its own network namespace, and is cut off from ZooKeeper and from all other
//! processes by dropping packets silently.

use std::collections::BTreeSet;
use std::time::Instant;

use fondaco_testing::{End, Lan, Proxy, ZooKeeper};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};
use super::values::{KEYS, read_all, value};

#[test]
fn the_cluster_serves_without_a_node_that_is_cut_off() {
    let Some(mut lan) = Lan::of(1) else {
        return println!("skipped: no network namespace can be made here (it needs root, and the ip command)");
    };
    let (host, here) = (
        lan.address(End::Host(0)).to_string(),
        lan.address(End::Here).to_string(),
    );
    let zookeeper = ZooKeeper::start();
    let outside = Proxy::listening_on(&here, zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    for name in ["node-1", "node-2", "router-1", "controller-1"] {
        cluster.listen_on(name, &here);
    }
    cluster.listen_on("node-3", &host);
    cluster.reroute("node-3", &outside.address());
    cluster.enter("node-3", lan.command(0));
    cluster.launch_until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.deploy(&cluster.build(1));
    let number = cluster.number("node-3");

    let readers = Readers::start(&["node-1", "node-2", "router-1"].map(|name| cluster.get(name).resp.clone()));
    until("readers are at work", || readers.answers() > 100);
    lan.set_cuts(Lan::both_ways(End::Host(0), [End::Here]));
    cluster.until_live(number, false);
    let detected = Instant::now();
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    cluster.deploy(&cluster.build(2));
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    // The node serves its state to clients on its side of the partition.
    let held = (0..KEYS).find(|key| {
        let port = cluster.get("node-3").resp.rsplit(':').next().unwrap().to_owned();
        let asked = lan
            .command(0)
            .args(["redis-cli", "-h", &host, "-p", &port, "GET", &format!("s:{key}")])
            .output();
        asked.is_ok_and(|asked| String::from_utf8_lossy(&asked.stdout).trim_end() == value(1, *key))
    });
    println!("cut off, it served key {held:?}");
    assert!(held.is_some());

    lan.set_cuts(BTreeSet::new());
    cluster.until_no_node_is_late();
    cluster.until_ready();
    none_since(&readers.stop(), detected);
    let mut redis = cluster.get("node-3").redis();
    // It tries to connect to them once a second.
    until("it reaches the others again", || read_all(&mut redis) == Ok(2));
}

#[test]
fn a_node_without_zookeeper_serves_and_forwards_to_other_nodes() {
    let zookeeper = ZooKeeper::start();
    let own_way = Proxy::to(zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    cluster.reroute("node-3", &own_way.address());
    cluster.launch_until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    cluster.deploy(&cluster.build(1));
    let number = cluster.number("node-3");
    own_way.cut();
    cluster.until_live(number, false);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    // The other nodes swap to a version that this node does not fetch; it hears of it from them.
    cluster.deploy(&cluster.build(2));
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
    let mut redis = cluster.get("node-3").redis();
    until("it hears of the swap", || read_all(&mut redis) == Ok(2));
    own_way.heal();
    cluster.until_no_node_is_late();
    cluster.until_live(number, true);
    cluster.until_ready();
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(2));
}
