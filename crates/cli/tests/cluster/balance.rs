//! A cluster that acts by itself: new nodes are filled, dead ones replaced, and plans survive the death of processes.

use std::time::Instant;

use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};

/// A cluster with data on this number of replicas, which acts by itself within seconds.
fn acting(nodes: u32, replicas: u32) -> Cluster {
    let cluster = Cluster::start(Shape {
        nodes,
        replicas,
        ..Shape::default()
    });
    cluster.create(&["--tolerate-failures", "any"]);
    cluster.deploy(&cluster.build(1));
    cluster
        .any()
        .done(&["balance", "--mode", "act", "--window", "2s", "--cool-down", "2s"]);
    cluster
}

#[test]
fn a_new_node_is_filled_and_a_dead_one_replaced() {
    let mut cluster = acting(3, 2);
    cluster.add("node-4", "");
    cluster.launch("node-4");
    until("the new node is filled", || {
        cluster.partitions().get(3).is_some_and(|&held| held == 8)
    });
    let readers = Readers::start(&["node-1", "router-1"].map(|name| cluster.get(name).resp.clone()));
    let before = Instant::now();

    cluster.add("node-5", "backup = true\n");
    cluster.launch("node-5");
    until("the backup is there", || cluster.listed().len() == 5);
    cluster
        .any()
        .done(&["config", "set", "balance-replace-after-seconds=5"]);
    let dead = cluster.number("node-3");
    cluster.kill("node-3");
    until("the backup has replaced it", || {
        let held = cluster.partitions();
        held[dead as usize - 1] == 0 && held[4] == 8
    });
    let marked = cluster.listed();
    assert_eq!(marked[dead as usize - 1]["mark"], "leaving");
    let why = cluster.any().done(&["why", "--moves"]);
    assert!(
        why.contains("is new") && why.contains("backup node 5 replaces it"),
        "{why}"
    );
    until("readers have gone on", || readers.answers() > 500);
    none_since(&readers.stop(), before);
}

#[test]
fn a_controller_that_starts_again_has_its_decisions() {
    let mut cluster = acting(1, 1);
    let file = cluster.data("controller-1").join("decisions.jsonl");
    let numbers = || -> Vec<u64> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|kept| kept["decision"]["number"].as_u64()).collect()
    };
    until("there are decisions", || numbers().len() >= 2);
    cluster.kill("controller-1");
    let before = numbers();
    cluster.launch("controller-1");
    until("it decides again", || numbers().len() > before.len());
    // Without the file it would count from 1 again.
    let after = numbers();
    assert!(after.is_sorted_by(|one, next| one < next), "{after:?}");
}

#[test]
fn requests_leave_a_node_in_maintenance() {
    let cluster = Cluster::serving(Shape::steady());
    let number = cluster.number("node-2");
    let readers = Readers::start(&[cluster.get("node-1").resp.clone()]);
    let asked = || {
        let url = format!("http://{}/metrics", cluster.get("node-2").http);
        let text = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        let line = text
            .lines()
            .find(|line| line.contains("_count{") && line.contains("fondaco.read"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or(0.0) as u64
    };
    until("it is asked", || asked() > 100);
    cluster.any().done(&["maintenance", &number.to_string()]);
    let mut last = asked();
    until("it is not asked any more", || {
        let before = std::mem::replace(&mut last, asked());
        let answers = readers.answers();
        until("readers continue", || readers.answers() > answers + 200);
        asked() == last && last == before
    });
    // It still gets what is pushed.
    cluster.deploy(&cluster.build(2));
    cluster.any().done(&["maintenance", &number.to_string(), "--end"]);
    until("it is asked again", || asked() > last + 100);
    none_since(&readers.stop(), Instant::now());
}

/// The leader and the node that gets partitions die while a plan runs, and come back.
#[test]
fn a_plan_survives_the_death_of_leader_and_receiver() {
    let mut cluster = Cluster::start(Shape {
        controllers: 2,
        ..Shape::default()
    });
    cluster.create(&["--tolerate-failures", "any"]);
    cluster.deploy(&cluster.build(1));
    let readers = Readers::start(&["node-1", "router-1"].map(|name| cluster.get(name).resp.clone()));
    let began = Instant::now();
    let donors: u64 = ["node-1", "node-2", "node-3"]
        .iter()
        .map(|name| data_bytes(&cluster, name))
        .sum();
    cluster.add("node-4", "");
    cluster.launch("node-4");
    until("it is there", || cluster.listed().len() == 4);
    // Slowly, so that there is time for it to die.
    cluster.any().done(&[
        "config",
        "set",
        "fetch-rate-floor-bytes-per-second=1KiB",
        "fetch-rate-bytes-per-second=1KiB",
    ]);
    cluster.any().done(&["rebalance", "run", "--add", "4", "--no-wait"]);
    until("partitions move", || {
        let routing = cluster.any().http_get("/v1/routing");
        routing["next"] != Value::Null
    });
    cluster.kill("node-4");
    let leader = cluster.any().http_get("/v1/cluster")["leader"].clone();
    let names = ["controller-1", "controller-2"];
    let leader = names
        .into_iter()
        .find(|name| leader == json!(cluster.get(name).http))
        .expect("one leads");
    cluster.kill(leader);
    cluster.get("node-1").done(&[
        "config",
        "set",
        "fetch-rate-bytes-per-second=0",
        "fetch-rate-floor-bytes-per-second=16MiB",
    ]);
    cluster.launch("node-4");
    cluster.launch(leader);
    until("the plan is done", || {
        let plan = cluster.get("node-1").json(&["rebalance", "status", "1"]);
        plan["plan"]["state"] == "done"
    });
    assert_eq!(cluster.partitions(), [8; 4]);
    let answers = readers.answers();
    until("readers have gone on", || readers.answers() > answers + 500);
    none_since(&readers.stop(), began);
    until("the donors have deleted what moved", || {
        let held: u64 = ["node-1", "node-2", "node-3"]
            .iter()
            .map(|name| data_bytes(&cluster, name))
            .sum();
        held * 10 < donors * 9
    });
}

/// The bytes of the files of versions on a node, without what it has thrown away.
fn data_bytes(cluster: &Cluster, name: &str) -> u64 {
    fn bytes(dir: &std::path::Path) -> u64 {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let each = entries.map(|entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => bytes(&entry.path()),
            false => entry.metadata().map_or(0, |metadata| metadata.len()),
        });
        each.sum()
    }
    bytes(&cluster.data(name).join("stores"))
}
