//! Partitions are split while clients read, write, scan and push.

use std::collections::BTreeSet;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::Readers;
use super::store::READ_ONE;
use super::values::{self, KEYS};
use super::writers::Writers;

/// The names of all processes that answer clients.
const NAMES: [&str; 4] = ["node-1", "node-2", "node-3", "router-1"];

fn split(cluster: &Cluster) -> u64 {
    let routing = cluster.any().json(&["rebalance", "split"]);
    routing["partitions"].as_u64().unwrap()
}

/// One step of a scan; it ends with cursor 0.
fn scan(redis: &mut redis::Connection, cursor: u64, found: &mut BTreeSet<String>) -> u64 {
    let mut scan = redis::cmd("SCAN");
    let scan = scan.arg(cursor).arg("MATCH").arg("s:*").arg("COUNT").arg(100);
    let (next, keys): (u64, Vec<String>) = scan.query(redis).unwrap();
    found.extend(keys);
    next
}

fn scan_all(redis: &mut redis::Connection) -> usize {
    let (mut found, mut cursor) = (BTreeSet::new(), scan(redis, 0, &mut BTreeSet::new()));
    scan(redis, 0, &mut found);
    while cursor != 0 {
        cursor = scan(redis, cursor, &mut found);
    }
    found.len()
}

#[test]
fn versions_of_before_and_after_a_split_are_served() {
    let mut cluster = Cluster::start(Shape::steady());
    cluster.create(&["--backups", "3"]);
    cluster.deploy(&cluster.build(1));
    let readers = Readers::start(&cluster.resp_addresses());
    // A scan that is under way.
    let mut router = cluster.get("router-1").redis();
    let mut found = BTreeSet::new();
    let mut cursor = 0;
    while found.len() < KEYS as usize / 3 {
        cursor = scan(&mut router, cursor, &mut found);
    }
    assert_eq!(split(&cluster), 32);
    while cursor != 0 {
        cursor = scan(&mut router, cursor, &mut found);
    }
    assert_eq!(found.len(), KEYS as usize, "a scan leaves out keys");

    // One built for the number before, and one for the number now.
    cluster.deploy(&cluster.build(2));
    cluster.deploy(&values::build(cluster.dir.path(), 3, 32));
    let many = values::build(cluster.dir.path(), 9, 64);
    let refused = cluster
        .any()
        .refused(1, &["deploy", "s", many.to_str().unwrap(), "--quiet"]);
    assert!(refused.contains("64") && refused.contains("32"), "{refused}");
    cluster.any().done(&["rollback", "s"]);

    // Halves move, and a new process has what it needs of the version before.
    let number = cluster.number("node-3").to_string();
    cluster.any().done(&["rebalance", "run", "--remove", &number]);
    let redis = |name: &str| cluster.get(name).redis();
    assert_eq!(
        NAMES.map(|name| values::read_all(&mut redis(name))),
        [const { Ok(2) }; 4]
    );
    assert_eq!(NAMES.map(|name| scan_all(&mut redis(name))), [KEYS as usize; 4]);
    cluster.any().done(&["rebalance", "run", "--add", &number]);
    let one = cluster.any().json(&["rebalance", "status"]);
    assert_eq!(one["plan"]["state"], "done", "{one}");
    assert_eq!(
        NAMES.map(|name| values::read_all(&mut redis(name))),
        [const { Ok(2) }; 4]
    );
    assert_eq!(split(&cluster), 64);
    cluster.any().done(&["rollback", "s", "--to", "1"]);
    let failures = readers.stop();
    assert!(failures.is_empty(), "{failures:?}");

    cluster.kill("node-2");
    cluster.launch("node-2");
    cluster.until_ready();
    let redis = |name: &str| cluster.get(name).redis();
    assert_eq!(
        NAMES.map(|name| values::read_all(&mut redis(name))),
        [const { Ok(1) }; 4]
    );
}

#[test]
fn splits_under_writes_lose_none() {
    let mut cluster = Cluster::start(Shape::steady());
    cluster.create(&READ_ONE);
    cluster.until_written(&NAMES);
    let writers = Writers::start(&NAMES.map(|name| cluster.get(name).resp.clone()));
    writers.go_on(300);
    let number = cluster.number("node-3").to_string();
    for change in ["--remove", "--add"] {
        split(&cluster);
        writers.go_on(300);
        cluster.any().done(&["rebalance", "run", change, &number]);
        writers.go_on(300);
    }
    let acknowledged = writers.stop();
    cluster.kill("node-1");
    cluster.launch("node-1");
    cluster.until_ready();
    cluster.assert_read(&NAMES, &acknowledged);
    for name in NAMES {
        assert_eq!(
            scan_all(&mut cluster.get(name).redis()),
            acknowledged.len() + 1,
            "{name}"
        );
    }
}

#[test]
fn a_split_waits_for_plans_and_ends_at_slots() {
    let cluster = Cluster::start(Shape {
        partitions: 8192,
        ..Shape::steady()
    });
    cluster.create(&[]);
    let number = cluster.number("node-3").to_string();
    cluster
        .any()
        .done(&["rebalance", "run", "--remove", &number, "--no-wait"]);
    let refused = cluster.any().refused(1, &["rebalance", "split"]);
    assert!(refused.contains("is under way"), "{refused}");
    cluster.any().done(&["rebalance", "cancel"]);
    until("the plan ends", || {
        !cluster.any().http_get("/v1/cluster")["plan_under_way"]
            .as_bool()
            .unwrap()
    });
    cluster.any().done(&["rebalance", "plan", "--even"]);
    assert_eq!(split(&cluster), 16384);
    let plans = cluster.any().json(&["rebalance", "list"]);
    let is_proposed = |plan: &serde_json::Value| plan["state"] == "proposed";
    assert!(!plans["plans"].as_array().unwrap().iter().any(is_proposed), "{plans}");
    let refused = cluster.any().refused(1, &["rebalance", "split"]);
    assert!(refused.contains("one for each slot"), "{refused}");
}
