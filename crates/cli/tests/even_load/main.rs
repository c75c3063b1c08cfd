//! A cluster that evens out the load of two unequal servers, which takes all of the processors of a small machine. It is a program of
//! its own, since cargo runs those of tests one after the other: beside others, the load would not reach what the servers can bear.

#[allow(dead_code, reason = "shared with the tests of whole clusters, which need all of it")]
#[path = "../cluster/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "shared with the tests of single nodes, which need all of it")]
#[path = "../whole/node.rs"]
mod node;
#[allow(dead_code, reason = "shared with the tests of whole clusters, which need all of it")]
#[path = "../cluster/store.rs"]
mod store;
#[allow(dead_code, reason = "shared with the tests of whole clusters, which need all of it")]
#[path = "../cluster/values.rs"]
mod values;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fondaco_testing::CpuGroup;
use serde_json::{Value, json};

use cluster::{Cluster, Shape};
use node::until;

/// The cores of the two servers: one has four times as many as the other.
const CORES: [f64; 2] = [0.05, 0.2];

/// How long nothing must move at the end.
const CALM: Duration = Duration::from_secs(12);

/// A load generator, which ends with the test.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `redis-benchmark` reads random keys until it is stopped; `None` where it is not installed.
fn benchmark(address: &str) -> Option<Load> {
    let port = address.rsplit(':').next()?;
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", port, "-c", "50", "-n", "1000000000", "-r", "1000000", "-q"]);
    command.args(["GET", "s:__rand_int__"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    Some(Load(child))
}

fn cpu(cluster: &Cluster) -> Vec<f64> {
    let nodes = cluster.listed();
    nodes
        .iter()
        .map(|node| node["load"]["cpu_percent"].as_f64().unwrap_or(0.0))
        .collect()
}

fn plans(cluster: &Cluster) -> Vec<Value> {
    cluster.any().json(&["rebalance", "list"])["plans"]
        .as_array()
        .unwrap()
        .clone()
}

/// Waits until no plan was made and none ran for a while. Returns how many there were, and the mean of what each node used
/// of its processors in that while.
fn until_calm(cluster: &Cluster) -> (usize, Vec<f64>) {
    let (mut seen, mut since) = (plans(cluster), Instant::now());
    let mut measured = Vec::new();
    until("nothing moves any more", || {
        let now = plans(cluster);
        let is_running = now.iter().any(|plan| plan["state"] == "running");
        if is_running || now.len() != seen.len() {
            (seen, since) = (now, Instant::now());
            measured.clear();
        }
        measured.push(cpu(cluster));
        since.elapsed() >= CALM
    });
    let mean = |node: usize| measured.iter().map(|cpu| cpu[node]).sum::<f64>() / measured.len() as f64;
    (seen.len(), (0..measured[0].len()).map(mean).collect())
}

#[test]
fn two_unequal_servers_even_out_their_load() {
    let groups = CORES.map(|cores| CpuGroup::new(&format!("balance-{}", cores * 100.0), cores));
    let [Ok(small), Ok(large)] = &groups else {
        return println!("skipped: no control group can be made here (it needs root, and the controller cpu)");
    };
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 1,
        partitions: 32,
        ..Shape::steady()
    });
    cluster.enter("node-1", small.command());
    cluster.enter("node-2", large.command());
    cluster.launch_all();
    cluster.until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    assert_eq!(cluster.partitions(), [16, 16]);
    cluster
        .any()
        .done(&["balance", "--mode", "act", "--window", "2s", "--cool-down", "2s"]);
    let Some(load) = benchmark(&cluster.get("router-1").resp) else {
        return println!("skipped: there is no redis-benchmark (apt-get install redis-tools)");
    };
    until("the load is uneven", || {
        let cpu = cpu(&cluster);
        cpu.iter().all(|cpu| *cpu > 1.0)
    });
    println!(
        "before: {:?} partitions, {:?} % CPU",
        cluster.partitions(),
        cpu(&cluster)
    );
    let (small, large) = (
        cluster.number("node-1") as usize - 1,
        cluster.number("node-2") as usize - 1,
    );
    until("partitions have moved to the larger server", || {
        let held = cluster.partitions();
        held[large] >= 2 * held[small]
    });
    let (made, cpu) = until_calm(&cluster);
    let held = cluster.partitions();
    println!("after {made} plans: {held:?} partitions, {cpu:?} % CPU");
    drop(load);
    assert!(held[large] >= 2 * held[small], "{held:?}");
    assert!((cpu[0] - cpu[1]).abs() < 35.0, "{cpu:?}");
    assert!(cpu.iter().all(|cpu| *cpu < 90.0), "{cpu:?}");

    // Every decision has its reasons, also those that nothing moves, and can be made again.
    let decisions = cluster.any().json(&["why", "--last", "200"])["decisions"]
        .as_array()
        .unwrap()
        .clone();
    let moved = decisions
        .iter()
        .find(|one| one["moves"] == true)
        .expect("something was moved");
    let reasons = moved["reasons"].to_string();
    assert!(
        reasons.contains("struggles") && reasons.contains("% of its CPU"),
        "{reasons}"
    );
    assert!(
        decisions
            .iter()
            .any(|one| one["moves"] == false && one["reasons"] != json!([]))
    );
    let number = moved["number"].to_string();
    let replayed = cluster.any().done(&["why", &number, "--replay"]);
    assert!(replayed.contains("made again: the same"), "{replayed}");
}
