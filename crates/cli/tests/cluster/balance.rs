//! A cluster that evens out its load by itself.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fondaco_testing::CpuGroup;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::{Readers, none_since};

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

fn nodes(cluster: &Cluster) -> Vec<Value> {
    cluster.any().json(&["nodes"])["nodes"].as_array().unwrap().clone()
}

fn partitions(cluster: &Cluster) -> Vec<u64> {
    nodes(cluster)
        .iter()
        .map(|node| node["partitions"].as_u64().unwrap())
        .collect()
}

fn cpu(cluster: &Cluster) -> Vec<f64> {
    let nodes = nodes(cluster);
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
    assert_eq!(partitions(&cluster), [16, 16]);
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
        partitions(&cluster),
        cpu(&cluster)
    );
    let (small, large) = (
        cluster.number("node-1") as usize - 1,
        cluster.number("node-2") as usize - 1,
    );
    until("partitions have moved to the larger server", || {
        let held = partitions(&cluster);
        held[large] >= 2 * held[small]
    });
    let (made, cpu) = until_calm(&cluster);
    let held = partitions(&cluster);
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

/// A cluster with data, whose nodes have so many backups, and which acts by itself within seconds.
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
        partitions(&cluster).get(3).is_some_and(|&held| held == 8)
    });
    let readers = Readers::start(&["node-1", "router-1"].map(|name| cluster.get(name).resp.clone()));
    let before = Instant::now();

    cluster.add("node-5", "backup = true\n");
    cluster.launch("node-5");
    until("the backup is there", || nodes(&cluster).len() == 5);
    cluster
        .any()
        .done(&["config", "set", "balance-replace-after-seconds=5"]);
    let dead = cluster.number("node-3");
    cluster.kill("node-3");
    until("the backup has replaced it", || {
        let held = partitions(&cluster);
        held[dead as usize - 1] == 0 && held[4] == 8
    });
    let marked = nodes(&cluster);
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
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
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
        until("readers go on", || readers.answers() > answers + 200);
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
    until("it is there", || nodes(&cluster).len() == 4);
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
    assert_eq!(partitions(&cluster), [8; 4]);
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
