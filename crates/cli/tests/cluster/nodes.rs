//! Nodes that are killed and return, with or without their data.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde_json::json;

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};
use super::sets::requests;
use super::values::read_all;

#[test]
fn a_detected_dead_node_fails_no_read_and_catches_up() {
    let mut cluster = Cluster::serving(Shape::default());
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
    cluster.until_no_node_is_late();
    // It was killed when its second version arrived: the first one is a backup, and it has both.
    cluster.until_holds("node-3", &["version-1", "version-2"]);
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(2), "{name}");
    }
    let failures = readers.stop();
    none_since(&failures, detected);
    println!(
        "{} requests failed in the {:?} until the node was known to be gone",
        failures.len(),
        detected - killed
    );
}

/// The vertices of a graph that is one ring.
const RING: u64 = 60;

#[test]
fn a_graph_is_whole_at_survivors_of_a_killed_node() {
    let mut cluster = Cluster::start(Shape {
        nodes: 4,
        ..Shape::default()
    });
    let edges = cluster.dir.path().join("ring.csv");
    let rows: String = (0..RING).map(|at| format!("v{at},v{}\n", (at + 1) % RING)).collect();
    fs::write(&edges, format!("from,to\n{rows}")).unwrap();
    let edges = edges.to_str().unwrap();
    let push = ["push", "ring", edges, "--edges", "from,to", "--create"];
    cluster.get("router-1").done(&push);
    let lost = cluster.number("node-4");
    cluster.kill("node-4");
    cluster.until_live(lost, false);

    let two_edges = "MATCH (a)-[:EDGE]->(b)-[:EDGE]->(c) RETURN count(*), count(DISTINCT c)";
    let count = |redis: &mut redis::Connection| -> redis::RedisResult<Vec<Vec<u64>>> {
        let asked = redis::cmd("GRAPH.QUERY").arg("ring").arg(two_edges).query(redis);
        asked.map(|(_, rows, _): (Vec<String>, Vec<Vec<u64>>, Vec<String>)| rows)
    };
    let others = BTreeMap::from(["node-2", "node-3"].map(|name| (name.to_owned(), cluster.get(name).resp.clone())));
    let asked = || requests(&others, "fondaco.read") + requests(&others, "fondaco.compute");
    for name in ["node-1", "router-1"] {
        let mut redis = cluster.get(name).redis();
        until("it answers without the node", || count(&mut redis).is_ok());
        let before = asked();
        for _ in 0..20 {
            assert_eq!(count(&mut redis), Ok(vec![vec![RING, RING]]), "{name}");
        }
        assert!(asked() > before, "{name} asked no other node");
        for at in 0..RING {
            let mut neighbours = redis::cmd("FONDACO.GRAPH");
            neighbours.arg(&["NEIGHBOURS", "ring", "EDGE"]).arg(format!("v{at}"));
            let next = vec![format!("v{}", (at + 1) % RING)];
            assert_eq!(neighbours.query(&mut redis), Ok(next), "{name}");
        }
    }
}

#[test]
fn killing_and_restarting_every_node_in_turn_loses_no_data() {
    let mut cluster = Cluster::serving(Shape::default());
    let until_told = |cluster: &Cluster, summary: &str| {
        until(summary, || {
            let status = cluster.get("router-1").done(&["status"]);
            status.lines().next() == Some(summary)
        });
    };
    for name in cluster.nodes() {
        let number = cluster.number(&name);
        cluster.kill(&name);
        cluster.until_live(number, false);
        assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1), "without {name}");
        let routing = cluster.any().http_get("/v1/routing");
        let owners = routing["owners"].as_array().unwrap();
        let short = owners
            .iter()
            .filter(|owners| owners.as_array().unwrap().contains(&json!(number)));
        let (short, all) = (short.count(), owners.len());
        until_told(
            &cluster,
            &format!("2 of 3 nodes live; {short} of {all} partitions have fewer ready replicas than wanted"),
        );
        cluster.launch(&name);
        cluster.until_ready();
        assert_eq!(cluster.number(&name), number);
    }
    until_told(&cluster, "3 of 3 nodes live");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_node_that_lost_its_data_fetches_it_from_peers() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    for version in [1, 2] {
        let source = cluster.build(version);
        cluster.deploy(&source);
        // The source of the push may be gone by then.
        fs::remove_dir_all(&source).unwrap();
    }
    let versions = ["version-1", "version-2"];
    let number = cluster.number("node-2");
    let stores = cluster.data("node-2").join("stores");
    let files = |version: &&str| fs::read_dir(stores.join("s").join(version)).unwrap().count();
    let before: Vec<_> = versions.iter().map(files).collect();
    cluster.kill("node-2");
    fs::remove_dir_all(&stores).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &versions);
    until("both versions have all their files", || {
        versions.iter().map(files).eq(before.iter().copied())
    });
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(2), "{name}");
    }

    // Deletes the whole directory, including the identity of the node: it is recognised by its address.
    cluster.kill("node-2");
    cluster.until_live(number, false);
    fs::remove_dir_all(cluster.data("node-2")).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &versions);
    cluster.until_ready();
    assert_eq!(cluster.number("node-2"), number);
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(2));
    let nodes = cluster.any().http_get("/v1/nodes");
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn a_new_node_gets_a_number_and_waits_for_partitions() {
    let mut cluster = Cluster::serving(Shape::default());
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

#[test]
fn a_drain_is_cancelled_and_a_drained_node_is_forgotten() {
    let mut cluster = Cluster::serving(Shape::default());
    let number = cluster.number("node-3");
    let drained = number.to_string();
    let told = |arguments: &[&str]| cluster.get("node-1").done(arguments);
    told(&["drain", &drained, "--quiet"]);
    assert!(told(&["nodes"]).contains("leaving"));
    told(&["drain", &drained, "--cancel"]);
    assert!(!told(&["nodes"]).contains("leaving"));
    let refused = cluster.get("node-1").refused(1, &["drain", &drained, "--cancel"]);
    assert!(refused.contains("does not leave"), "{refused}");
    let refused = cluster.get("node-1").refused(1, &["nodes", "forget", &drained]);
    assert!(refused.contains("is live"), "{refused}");
    cluster.kill("node-3");
    let mut told = String::new();
    until("it is forgotten, once node 1 knows that it is gone", || {
        let output = cluster.get("node-1").run(&["nodes", "forget", &drained]);
        told = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    assert_eq!(told.lines().count(), 3, "a header and two nodes: {told}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    // It is a node like any other when it comes back, but leaves.
    cluster.launch("node-3");
    until("it is listed again", || {
        cluster.get("node-1").done(&["nodes"]).contains("leaving")
    });
}
