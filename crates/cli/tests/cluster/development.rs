//! `fondaco dev --nodes`: a cluster in one process, whose members can be stopped and started by hand.

use std::collections::BTreeSet;
use std::path::Path;

use fondaco_testing::ZooKeeper;
use serde_json::{Value, json};

use super::cluster::is_ready;
use super::node::{Node, fondaco, until};
use super::readers::{Readers, none_since};
use super::values::{STORE, build, read_all};

const PARTITIONS: u32 = 16;

fn dev(data: &Path, more: &[&str]) -> Node {
    Node::dev_with(data, &[more, &["--loops", "1"]].concat())
}

fn members(dev: &Node) -> Vec<Value> {
    dev.http_get("/v1/dev/members")["members"].as_array().unwrap().clone()
}

fn resp_addresses(dev: &Node) -> Vec<String> {
    let members = members(dev);
    let addresses = members.iter().filter_map(|member| member["resp"].as_str());
    addresses.map(str::to_owned).collect()
}

fn redis(address: &str) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    client.get_connection().unwrap()
}

fn deploy(dev: &Node, source: &Path) {
    dev.done(&["deploy", STORE, source.to_str().unwrap()]);
}

#[test]
fn three_nodes_in_one_process_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let cluster = dev(&data, &["--nodes", "3"]);
    let names: BTreeSet<String> = members(&cluster)
        .iter()
        .map(|member| member["name"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["controller-1", "controller-2", "node-1", "node-2", "node-3", "router-1"];
    assert_eq!(names, expected.map(str::to_owned).into());
    cluster.done(&["store", "create", STORE]);
    deploy(&cluster, &build(dir.path(), 1, PARTITIONS));
    let mut addresses = resp_addresses(&cluster);
    assert_eq!(addresses.len(), 4);
    for address in &addresses {
        assert_eq!(read_all(&mut redis(address)), Ok(1), "{address}");
    }
    assert_eq!(cluster.terminate(), Some(0));

    for (other, advice) in [
        (["--nodes", "2", "--partitions", "16"], "start it with --nodes 3"),
        (["--nodes", "3", "--partitions", "32"], "start it with --partitions 16"),
    ] {
        let refused = fondaco()
            .args(["dev", "--data"])
            .arg(&data)
            .args(other)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(error.contains(advice), "{error}");
    }

    // The ports of the router are new, as asked for; those of all others are as before, unless another program has
    // taken one meanwhile.
    let again = (0..3).find_map(|_| {
        let cluster = dev(&data, &["--nodes", "3"]);
        let before = std::mem::replace(&mut addresses, resp_addresses(&cluster));
        if before[..3] == addresses[..3] {
            return Some(cluster);
        }
        println!("{before:?} became {addresses:?}");
        assert_eq!(cluster.terminate(), Some(0));
        None
    });
    let cluster = again.expect("the ports are as before");
    until("the state is as before", || {
        let served = |address: &String| read_all(&mut redis(address)) == Ok(1);
        resp_addresses(&cluster).iter().all(served)
    });
    // A single node cannot use this directory.
    let error = fondaco().args(["dev", "--data"]).arg(&data).output().unwrap();
    assert_eq!(error.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&error.stderr).contains("--nodes"));
}

#[test]
fn members_are_stopped_and_started_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dev(&dir.path().join("data"), &["--nodes", "3"]);
    cluster.done(&["store", "create", STORE, "--tolerate-failures", "1"]);
    deploy(&cluster, &build(dir.path(), 1, PARTITIONS));
    cluster.http_post("/v1/dev/members/node-2/stop", json!({}));
    let stopped = |name: &str| {
        let members = members(&cluster);
        let member = members.iter().find(|member| member["name"] == name).unwrap().clone();
        member["running"] == false
    };
    assert!(stopped("node-2"));
    assert_eq!(read_all(&mut cluster.redis()), Ok(1));
    deploy(&cluster, &build(dir.path(), 2, PARTITIONS));
    assert_eq!(read_all(&mut cluster.redis()), Ok(2));
    let absent = cluster.done(&["nodes"]);
    assert!(absent.contains("absent"), "{absent}");

    // When a leader stops, the other controller takes over.
    for name in ["controller-1", "controller-2"] {
        cluster.http_post(&format!("/v1/dev/members/{name}/stop"), json!({}));
        until("a controller leads", || {
            cluster.http_get("/v1/cluster")["leader"].is_string()
        });
        cluster.http_post(&format!("/v1/dev/members/{name}/start"), json!({}));
    }
    cluster.http_post("/v1/dev/members/node-2/start", json!({}));
    until("node-2 has caught up", || {
        let store = cluster.http_get("/v1/stores/s");
        store["late"].as_array().unwrap().is_empty()
    });
    for address in resp_addresses(&cluster) {
        assert_eq!(read_all(&mut redis(&address)), Ok(2), "{address}");
    }
}

#[test]
fn status_and_nodes_show_the_cluster_as_text_and_json() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dev(&dir.path().join("data"), &["--nodes", "3", "--replicas", "2"]);
    cluster.done(&["store", "create", STORE]);
    deploy(&cluster, &build(dir.path(), 1, PARTITIONS));
    let status = cluster.json(&["status"]);
    assert_eq!(status["process"]["role"], "router");
    assert_eq!(status["cluster"]["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(status["cluster"]["replicas"], 2);
    assert!(status["cluster"]["leader"].is_string(), "{status}");
    assert_eq!(status["stores"][0]["current_version"], 1);
    let text = cluster.done(&["status"]);
    assert!(text.contains("3 of 3 ready"), "{text}");
    assert!(text.contains("leader"), "{text}");
    let nodes = cluster.json(&["nodes"]);
    let partitions = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["partitions"].as_u64().unwrap());
    assert_eq!(partitions.sum::<u64>(), u64::from(PARTITIONS) * 2);
    assert_eq!(cluster.done(&["nodes"]).lines().count(), 4);
    let shown = cluster.json(&["store", "show", STORE]);
    assert_eq!(shown["replicas"], 2);
    let altered = cluster.json(&["store", "alter", STORE, "--read-keys-per-second", "1000"]);
    assert_eq!(altered["read_keys_per_second"], 1000);
    assert_eq!(altered["backups"], 1);
    cluster.refused(2, &["store", "alter", STORE]);
}

#[test]
fn a_node_joins_and_another_leaves_under_reads() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let cluster = dev(&data, &["--nodes", "3"]);
    cluster.done(&["store", "create", STORE]);
    deploy(&cluster, &build(dir.path(), 1, PARTITIONS));
    assert_eq!(cluster.terminate(), Some(0));
    let cluster = dev(&data, &["--nodes", "4"]);
    until("all four are there", || {
        let nodes = cluster.http_get("/v1/nodes");
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.len() == 4 && nodes.iter().all(|node| node["live"] == true) && is_ready(&cluster)
    });
    let held = || -> Vec<u64> {
        let nodes = cluster.json(&["nodes"]);
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["partitions"].as_u64().unwrap()).collect()
    };
    assert_eq!(held()[3], 0, "a new node waits");
    let plan = cluster.json(&["rebalance", "plan"]);
    let moves = plan["moves"].as_array().unwrap().len();
    assert!((7..=9).contains(&moves), "a quarter of 32 replicas moves, not {moves}");
    assert_eq!(held()[3], 0, "viewing a plan changes nothing");

    let readers = Readers::start(&resp_addresses(&cluster));
    let began = std::time::Instant::now();
    cluster.done(&["rebalance", "run", "--quiet"]);
    assert_eq!(held(), [8; 4]);
    cluster.done(&["rebalance", "run", "--remove", "1", "--quiet"]);
    assert_eq!(held()[0], 0);
    let answers = readers.answers();
    until("they have read some more", || readers.answers() > answers + 20);
    none_since(&readers.stop(), began);
    let error = cluster.refused(1, &["rebalance", "run", "--remove", "1"]);
    assert!(!error.is_empty());
    assert!(cluster.done(&["rebalance", "status"]).contains("is done"));
    cluster.refused(1, &["rebalance", "cancel"]);
}

#[test]
fn the_cluster_can_be_coordinated_by_zookeeper() {
    let zookeeper = ZooKeeper::start();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let cluster = dev(&data, &["--nodes", "2", "--zookeeper", &zookeeper.address()]);
    until("it is ready", || is_ready(&cluster));
    cluster.done(&["store", "create", STORE]);
    deploy(&cluster, &build(dir.path(), 1, PARTITIONS));
    for address in resp_addresses(&cluster) {
        assert_eq!(read_all(&mut redis(&address)), Ok(1), "{address}");
    }
}

#[test]
fn an_impossible_cluster_is_wrong_usage() {
    let output = fondaco()
        .args(["dev", "--nodes", "2", "--replicas", "3"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("3 replicas"), "{error}");
}
