//! Versioned stores in a cluster: written values survive moves, stops and lost disks.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use fondaco_coordination::{Coordination, EntryPath, ZooKeeperCoordination, ZooKeeperSettings};
use fondaco_testing::ZooKeeper;
use serde_json::{Value, json};

use crate::harness::{TestCluster, zookeeper};
use crate::resp::Resp;
use crate::single::{eventually, until};

/// A client that writes and reads over one connection.
pub struct Writer {
    resp: Resp,
    written: BTreeMap<String, String>,
}

impl Writer {
    pub fn new(cluster: &TestCluster) -> Self {
        Self::over(cluster.resp())
    }

    fn over(resp: Resp) -> Self {
        Self {
            resp,
            written: BTreeMap::new(),
        }
    }

    /// The same client over another connection.
    pub fn again(&self, resp: Resp) -> Self {
        Self {
            written: self.written.clone(),
            ..Self::over(resp)
        }
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.resp.ask(command)
    }

    /// Writes some keys again.
    pub fn write(&mut self, keys: std::ops::Range<usize>, value: &str) {
        for key in keys {
            let (key, value) = (format!("cart:{key}"), format!("{value}-{key}"));
            let answer = self.ask(&format!("SET {key} {value}"));
            assert_eq!(answer, "+OK", "SET {key}");
            self.written.insert(key, value);
        }
    }

    /// Reads all written keys. A restarted node is reached a little later than it is ready, since other nodes still
    /// have its old address.
    pub fn check(&mut self) {
        for (key, value) in self.written.clone() {
            let answer = eventually("the nodes to be reached again", || {
                let answer = self.ask(&format!("GET {key}"));
                (!answer.contains("there is no connection")).then_some(answer)
            });
            assert_eq!(answer, value, "{key}");
        }
    }
}

pub fn create(cluster: &TestCluster, settings: Value) {
    let store = json!({"name": "cart", "kind": "versioned", "versioned": settings});
    cluster.client.done("POST", "/v1/stores", store, 201);
    until("the store to be known", || {
        let mut writer = Writer::new(cluster);
        writer.ask("SET cart:first x") == "+OK"
    });
}

#[test]
fn partitions_move_between_nodes_while_they_are_written_to() {
    let cluster = TestCluster::start_with(|config| config.cluster.nodes_initial = 2);
    create(&cluster, json!({"reads": 1, "writes": 2}));
    let mut writer = Writer::new(&cluster);
    writer.write(0..100, "a");
    for (number, plan) in [
        (1, json!({"add": [3], "run": true})),
        (2, json!({"remove": [1], "run": true})),
    ] {
        cluster.client.done("POST", "/v1/plans", plan, 202);
        writer.write(70..130, &format!("b{number}"));
        until("the plan to be done", || {
            let plan = cluster.client.get(&format!("/v1/plans/{number}"));
            plan["state"] == json!("done")
        });
        // At once, and from one replica: each has every acknowledged write.
        writer.check();
        cluster.wait_ready();
        writer.check();
    }
    cluster.stop("node-1");
    writer.check();
}

#[test]
fn a_dropped_store_is_restored_whole_after_its_partitions_moved() {
    let cluster = TestCluster::start_with(|config| {
        config.cluster.nodes_initial = 2;
        config.cluster.replicas = 1;
        config.keep_deleted = Duration::from_secs(3600);
    });
    create(&cluster, json!({}));
    let mut writer = Writer::new(&cluster);
    writer.write(0..200, "a");
    assert_eq!(cluster.client.call("DELETE", "/v1/stores/cart", Value::Null).0, 204);
    let plan = json!({"add": [3], "remove": [1, 2], "run": true});
    let answer = cluster.client.done("POST", "/v1/plans", plan, 202);
    let path = format!("/v1/plans/{}", answer["number"]);
    until("the plan to be done", || {
        let plan = cluster.client.get(&path);
        plan["state"] == json!("done")
    });
    // The nodes that had the records when the store was dropped are not needed any more.
    cluster.stop("node-1");
    cluster.stop("node-2");
    let path = "/v1/stores/cart/restore";
    assert_eq!(cluster.client.call("POST", path, Value::Null).0, 200);
    until("the store to be known", || writer.ask("SET cart:first x") == "+OK");
    writer.check();
}

#[test]
fn nodes_recover_writes_after_an_absence_or_a_lost_disk() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    create(&cluster, json!({}));
    let mut writer = Writer::new(&cluster);
    writer.write(0..60, "a");
    cluster.stop("node-3");
    writer.write(30..90, "b");
    cluster.start_again("node-3");
    writer.check();
    cluster.stop("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("versioned")).unwrap();
    cluster.start_again("node-2");
    // Until it has recovered, coordinators count on the other replicas.
    writer.check();
    writer.write(80..110, "c");
    until("the lost writes to be recovered", || {
        cluster.metric("node-2", "fondaco_partitions_behind") == 0
    });
    // Any two of the three have every write.
    for away in ["node-1", "node-2", "node-3"] {
        until("hints to be delivered", || {
            let hinted = |node: &String| cluster.metric(node, "fondaco_hinted_nodes") > 0;
            !cluster.nodes().iter().any(hinted)
        });
        cluster.stop(away);
        writer.check();
        cluster.start_again(away);
        cluster.wait_ready();
    }
}

#[test]
fn the_longest_value_and_long_siblings_reach_all_replicas() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    create(&cluster, json!({"writes": 3, "reads": 1, "resolution": "all"}));
    let mut writer = Writer::new(&cluster);
    // As long as an argument may be: its record is longer.
    let longest = "v".repeat(512 * 1024);
    assert_eq!(writer.resp.ask_long(&["SET", "cart:longest", &longest]), ["+OK"]);
    assert_eq!(writer.resp.ask_long(&["GET", "cart:longest"]), [longest]);
    // Written by clients without a context.
    let values: Vec<String> = (0..5).map(|number| number.to_string().repeat(400 * 1024)).collect();
    for value in &values {
        let answer = writer.resp.ask_long(&["FONDACO.PUT", "cart:many", "", value]);
        assert!(!answer[0].starts_with('-'), "{}", answer[0]);
    }
    let mut found = writer.resp.ask_long(&["FONDACO.GET", "cart:many"]).split_off(1);
    found.sort();
    assert!(found == values, "{} of {} values", found.len(), values.len());
}

#[test]
fn a_router_counts_its_operations_on_versioned_stores() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    create(&cluster, json!({"reads": 3, "writes": 3, "handoff": "none"}));
    let mut writer = Writer::new(&cluster);
    let metered_coordination = |name: &str| cluster.metric("router-1", &format!("fondaco_quorum_{name}_total"));
    // Until the store was known, writes may have failed.
    let [reads, writes, siblings, no_quorum] = ["reads", "writes", "siblings", "no_quorum"].map(metered_coordination);
    for value in ["a", "b"] {
        writer.resp.ask_long(&["FONDACO.PUT", "cart:k", "", value]);
    }
    assert_eq!(writer.ask("GET cart:k"), "b");
    assert!(metered_coordination("reads") > reads && metered_coordination("writes") >= writes + 2);
    assert_eq!(metered_coordination("siblings"), siblings + 1);
    assert_eq!(metered_coordination("no_quorum"), no_quorum);
    cluster.stop("node-3");
    assert!(writer.ask("SET cart:k c").starts_with("-NOQUORUM"));
    assert_eq!(metered_coordination("no_quorum"), no_quorum + 1);
}

#[test]
fn a_store_with_an_unreadable_record_is_not_dropped() {
    let server = ZooKeeper::start();
    let (servers, root) = (server.address(), "/fondaco/later");
    let cluster = TestCluster::start_with(|config| {
        config.cluster.replicas = 3;
        config.zookeeper = Some(zookeeper(&servers, root));
    });
    create(&cluster, json!({"reads": 1, "writes": 3}));
    let mut writer = Writer::new(&cluster);
    writer.write(0..20, "a");
    let coordination = ZooKeeperCoordination::connect(ZooKeeperSettings::new(&servers, root)).unwrap();
    let path: EntryPath = "stores/cart".parse().unwrap();
    let entry = coordination.read(&path).unwrap().unwrap();
    let mut later: Value = serde_json::from_slice(&entry.bytes).unwrap();
    later["of_a_later_release"] = json!(1);
    let later = serde_json::to_vec(&later).unwrap();
    let revision = coordination.write(&path, &later, Some(entry.revision)).unwrap();
    // It remembers no record of the store, and has its data.
    cluster.stop("node-1");
    fs::remove_file(cluster.data("node-1").join("view.json")).unwrap();
    cluster.start_again("node-1");
    until("the entry to be noticed", || {
        let problems = cluster.member("node-1").get("/v1/cluster")["problems"].to_string();
        problems.contains("of_a_later_release")
    });
    let looks = || cluster.metric("node-1", "fondaco_agent_looks_total");
    let begun = looks();
    until("three looks at the unreadable record", || looks() > begun + 3);
    // The other nodes cannot help.
    cluster.stop("node-2");
    cluster.stop("node-3");
    coordination.write(&path, &entry.bytes, Some(revision)).unwrap();
    let mut of_one = writer.again(cluster.resp_of("node-1"));
    until("the store to be known again", || {
        of_one.ask("GET cart:0").starts_with("a-")
    });
    of_one.check();
}
