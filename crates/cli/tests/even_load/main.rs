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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fondaco_testing::CpuGroup;
use serde_json::{Value, json};

use cluster::{Cluster, Shape};
use node::until;

/// The cores of the two servers: one has four times as many as the other.
const CORES: [f64; 2] = [0.05, 0.2];

/// For how long it is measured how many reads the servers can bear at first.
const CALIBRATION: Duration = Duration::from_secs(3);
/// With how much of that the load begins. Reads that come one by one take several times the processor time of those that
/// have waited together: on most machines this load is too much for the smaller server, and little for both together.
const DEMAND: f64 = 0.7;
/// By how much the load rises each second as long as the smaller server does not struggle: how much it bears depends on the
/// machine, and both together bear more than twice of that.
const RISE: f64 = 1.05;
/// How long nothing must move at the end.
const CALM: Duration = Duration::from_secs(12);

/// How many threads read, each over a connection of its own, one key at a time.
const READERS: usize = 8;

/// Threads that read random keys, as fast as they can or at a rate: then the load does not rise with what the
/// servers can bear. They end with the test.
struct Load {
    shared: Arc<LoadState>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    is_ended: AtomicBool,
    /// 0 for as many as can be.
    reads_per_second: AtomicU64,
    done: AtomicU64,
}

impl Load {
    fn start(address: &str) -> Self {
        let shared = Arc::<LoadState>::default();
        let client = redis::Client::open(format!("redis://{address}")).unwrap();
        let reader = |seed: usize| {
            let (client, state) = (client.clone(), Arc::clone(&shared));
            thread::spawn(move || read(&client, &state, seed as u64))
        };
        let readers = (0..READERS).map(reader).collect();
        Self { shared, readers }
    }

    fn limit(&self, reads_per_second: u64) {
        self.shared.reads_per_second.store(reads_per_second, Relaxed);
    }

    fn done(&self) -> u64 {
        self.shared.done.load(Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Relaxed);
        for reader in self.readers.drain(..) {
            // It has said what it failed with.
            let _ = reader.join();
        }
    }
}

fn read(client: &redis::Client, state: &LoadState, seed: u64) {
    let mut connection = client.get_connection().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut due = Instant::now();
    while !state.is_ended.load(Relaxed) {
        let limit = state.reads_per_second.load(Relaxed);
        if limit > 0 {
            // Requests that could not be sent in time are not made up for.
            due = Instant::now().max(due + Duration::from_secs_f64(READERS as f64 / limit as f64));
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let key = format!("s:{}", random.u32(..));
        let _: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
        state.done.fetch_add(1, Relaxed);
    }
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

/// The last decisions with their reasons.
fn decisions(cluster: &Cluster, last: usize) -> Vec<Value> {
    cluster.any().json(&["why", "--last", &last.to_string()])["decisions"]
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
    // Child processes inherit the priority. Without it, other work on a busy machine keeps the load from the servers.
    if let Err(error) = rustix::process::setpriority_process(None, -10) {
        println!("the load has no priority: {error}");
    }
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 1,
        partitions: 32,
        ..Shape::steady()
    });
    cluster.enter("node-1", small.command());
    cluster.enter("node-2", large.command());
    cluster.launch_until_ready();
    // The disk of the machine is not what is measured, however full it is.
    let disk = ["balance-disk-percent=100", "balance-disk-calm-percent=100"];
    disk.iter()
        .for_each(|setting| _ = cluster.any().done(&["config", "set", setting]));
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    assert_eq!(cluster.partitions(), [16, 16]);
    let load = Load::start(&cluster.get("router-1").resp);
    until("the smaller server is at its limit", || {
        cpu(&cluster).iter().any(|cpu| *cpu > 90.0)
    });
    let (done, since) = (load.done(), Instant::now());
    thread::sleep(CALIBRATION);
    let borne = (load.done() - done) as f64 / since.elapsed().as_secs_f64();
    load.limit((borne * DEMAND) as u64);
    cluster
        .any()
        .done(&["balance", "--mode", "act", "--window", "3s", "--cool-down", "3s"]);
    println!(
        "before: {:?} partitions, {:?} % CPU",
        cluster.partitions(),
        cpu(&cluster)
    );
    let (small, large) = (
        cluster.number("node-1") as usize - 1,
        cluster.number("node-2") as usize - 1,
    );
    let (mut demand, mut raised) = (borne * DEMAND, Instant::now());
    let mut uneven: f64 = 0.0;
    until("the smaller server struggles", || {
        let cpu = cpu(&cluster);
        uneven = uneven.max(cpu[small] - cpu[large]);
        if raised.elapsed() >= Duration::from_secs(1) {
            (demand, raised) = (demand * RISE, Instant::now());
            load.limit(demand as u64);
            println!(
                "{demand:.0} reads a second, {cpu:?} % CPU, {:?}",
                decisions(&cluster, 1).last()
            );
        }
        !plans(&cluster).is_empty()
    });
    println!(
        "the load is {:.2} of the {borne:.0} reads a second at first",
        demand / borne
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
    // How even they become depends on the load that the smaller one struggled with: nothing moves once none struggles.
    let now = (cpu[small] - cpu[large]).abs();
    assert!(now < uneven * 0.75, "{now} after {uneven}: {cpu:?}");
    assert!(cpu.iter().all(|cpu| *cpu < 90.0), "{cpu:?}");

    // Every decision has its reasons, also those that nothing moves, and can be made again.
    let decisions = decisions(&cluster, 200);
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
