//! Partitions move while clients read and write; processes that have not heard of the move miss nothing.

use fondaco_testing::{Proxy, ZooKeeper};
use redis::Commands;
use serde_json::json;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::store::READ_ONE;
use super::values::{build, elsewhere, read_all};
use super::writers::Writers;

#[test]
fn moves_under_load_cause_no_error_and_no_stale_read() {
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&READ_ONE);
    let names = ["node-1", "node-2", "node-3", "router-1"];
    cluster.until_written(&names);
    let number = cluster.number("node-3").to_string();
    let writers = Writers::start(&names.map(|name| cluster.get(name).resp.clone()));
    writers.go_on(300);
    for change in ["--remove", "--add", "--remove"] {
        cluster.any().done(&["rebalance", "run", change, &number]);
        writers.go_on(300);
    }
    let acknowledged = writers.stop();
    cluster.assert_read(&names, &acknowledged);
}

#[test]
fn a_router_with_a_stale_table_reads_and_writes_correctly() {
    const KEYS: u64 = 200;
    let zookeeper = ZooKeeper::start();
    let own_way = Proxy::to(zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::steady(), &zookeeper.address());
    cluster.reroute("router-1", &own_way.address());
    cluster.launch_until_ready();
    cluster.create(&READ_ONE);
    cluster.until_written(&["node-1", "router-1"]);
    let mut router = cluster.get("router-1").redis();
    let write = |redis: &mut redis::Connection, key: u64, value: &str| {
        redis
            .set::<_, _, ()>(format!("s:{key}"), format!("{value} of {key}"))
            .unwrap();
    };
    (0..KEYS).for_each(|key| write(&mut router, key, "old"));
    own_way.cut();
    let number = cluster.number("node-3").to_string();
    cluster.get("node-1").done(&["rebalance", "run", "--remove", &number]);
    let mut node = cluster.get("node-1").redis();
    (0..KEYS).for_each(|key| write(&mut node, key, "new"));
    for key in 0..KEYS {
        let read: Option<String> = router.get(format!("s:{key}")).unwrap();
        assert_eq!(read, Some(format!("new of {key}")));
    }
    (0..KEYS).for_each(|key| write(&mut router, key, "last"));
    for key in 0..KEYS {
        let read: Option<String> = node.get(format!("s:{key}")).unwrap();
        assert_eq!(read, Some(format!("last of {key}")));
    }
    own_way.heal();
}

#[test]
fn a_low_rate_holds_a_move_and_not_a_push() {
    let sources = elsewhere();
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    let first = build(sources.path(), 1, 16);
    cluster.deploy(&first);
    std::fs::remove_dir_all(first).unwrap();
    let set_rate = |rate: u64| {
        let change = format!("move-rate-bytes-per-second={rate}");
        cluster.any().done(&["config", "set", &change]);
    };
    // Two nodes have to fetch some hundred kilobytes together.
    set_rate(2_000);
    let number = cluster.number("node-3");
    let plan = cluster
        .any()
        .http_post("/v1/plans", json!({"remove": [number], "run": true}));
    let path = format!("/v1/plans/{}", plan["number"]);
    let state = || cluster.any().http_get(&path)["state"].clone();
    until("partitions move", || {
        cluster.any().http_get(&path)["moves"].to_string().contains("moving")
    });
    assert_eq!(cluster.deploy(&build(sources.path(), 2, 16))["state"], "swapped");
    assert_eq!(state(), "running", "the move was as fast as the push");
    set_rate(0);
    until("the plan is done", || state() == "done");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
}
