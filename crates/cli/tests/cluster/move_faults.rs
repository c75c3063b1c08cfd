//! Plans under way while their nodes, their controller, ZooKeeper or a disk fail: readers of all values see no error, and
//! the plan ends.

use std::path::PathBuf;

use fondaco_testing::{SmallDisk, ZooKeeper};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::until;
use super::readers::Readers;
use super::values::{build, elsewhere, read_all};

/// So slow that there is time to interfere: all moves of a plan take more than a minute.
const SLOWLY: u64 = 2_000;

/// A cluster with a version that only its nodes have, which moves from the third node to the others.
struct Moving {
    cluster: Cluster,
    plan: String,
    readers: Readers,
    /// Those whose clients must see no error.
    stay: Vec<&'static str>,
}

/// Sets the rate by the router, which no test stops.
fn set_rate(cluster: &Cluster, bytes_per_second: u64) {
    let change = format!("move-rate-bytes-per-second={bytes_per_second}");
    cluster.get("router-1").done(&["config", "set", &change]);
}

/// Pushes a version, and deletes its source.
fn pushed(cluster: &Cluster) {
    let sources = elsewhere();
    cluster.create(&["--backups", "0"]);
    let source: PathBuf = build(sources.path(), 1, cluster.shape.partitions);
    cluster.deploy(&source);
}

impl Moving {
    /// Begins to move all partitions of the third node; these members stay.
    fn begin(cluster: Cluster, stay: &[&'static str]) -> Self {
        pushed(&cluster);
        set_rate(&cluster, SLOWLY);
        let addresses: Vec<String> = stay.iter().map(|name| cluster.get(name).resp.clone()).collect();
        let readers = Readers::start(&addresses);
        let leaving = cluster.number("node-3");
        let plan = json!({"remove": [leaving], "run": true});
        let plan = cluster.get("node-1").http_post("/v1/plans", plan);
        let moving = Self {
            cluster,
            plan: format!("/v1/plans/{}", plan["number"]),
            readers,
            stay: stay.to_vec(),
        };
        until("a partition moves", || moving.moves("moving") > 0);
        moving
    }

    /// The plan, as the router sees it; nothing while no answer comes.
    fn plan(&self) -> Value {
        let router = self.cluster.get("router-1");
        self.cluster.try_get(router, &self.plan).unwrap_or_default()
    }

    fn moves(&self, state: &str) -> usize {
        let plan = self.plan();
        let moves = plan["moves"].as_array().into_iter().flatten();
        moves.filter(|one| one["state"] == state).count()
    }

    /// Lets the plan continue at full speed. All its moves succeed, and no reader saw an error.
    fn succeeds(self) {
        let rate = ["config", "set", "move-rate-bytes-per-second=0"];
        until("settings can be changed", || {
            self.cluster.get("router-1").run(&rate).status.success()
        });
        until("the plan is done", || self.plan()["state"] == "done");
        let plan = self.plan();
        assert_eq!(self.moves("given-up"), 0, "{plan}");
        assert_eq!(plan["partitions"], plan["partitions_done"], "{plan}");
        for name in &self.stay {
            assert_eq!(read_all(&mut self.cluster.get(name).redis()), Ok(1), "{name}");
        }
        let failures = self.readers.stop();
        assert!(
            failures.is_empty(),
            "{} failures, such as {:?}",
            failures.len(),
            failures[0]
        );
        let routing = self.cluster.get("router-1").http_get("/v1/routing");
        for nodes in routing["owners"].as_array().unwrap() {
            let nodes = nodes.as_array().unwrap();
            assert!(nodes.len() == 2 && !nodes.contains(&plan["leaving"][0]), "{routing}");
        }
    }
}

fn leads(cluster: &Cluster, name: &str) -> bool {
    cluster.get("router-1").http_get("/v1/cluster")["leader"] == cluster.get(name).http.as_str()
}

fn until_leads(cluster: &Cluster, name: &str) {
    until("the other one leads", || leads(cluster, name));
}

/// The name of the leading controller, and of the other one.
fn controllers(cluster: &Cluster) -> [&'static str; 2] {
    match leads(cluster, "controller-1") {
        true => ["controller-1", "controller-2"],
        false => ["controller-2", "controller-1"],
    }
}

fn two_controllers() -> Shape {
    Shape {
        controllers: 2,
        ..Shape::default()
    }
}

fn signal(cluster: &Cluster, name: &str, signal: Signal) {
    let pid = Pid::from_raw(cluster.get(name).pid() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_donor_killed_during_a_move_causes_no_error() {
    let cluster = Cluster::start(Shape::default());
    let mut moving = Moving::begin(cluster, &["node-1", "node-2", "router-1"]);
    moving.cluster.kill("node-3");
    moving.succeeds();
}

#[test]
fn a_receiver_killed_during_a_move_continues_when_back() {
    let cluster = Cluster::start(Shape::default());
    let mut moving = Moving::begin(cluster, &["node-2", "node-3", "router-1"]);
    let receiver = moving.cluster.number("node-1");
    moving.cluster.kill("node-1");
    moving.cluster.until_live(receiver, false);
    moving.cluster.launch("node-1");
    moving.cluster.until_live(receiver, true);
    moving.succeeds();
}

#[test]
fn the_next_controller_continues_the_plan_of_a_killed_one() {
    let cluster = Cluster::start(two_controllers());
    let mut moving = Moving::begin(cluster, &["node-1", "node-2", "router-1"]);
    let [leader, other] = controllers(&moving.cluster);
    moving.cluster.kill(leader);
    until_leads(&moving.cluster, other);
    moving.succeeds();
}

#[test]
fn two_leaders_for_a_moment_do_no_harm() {
    let cluster = Cluster::start(two_controllers());
    let moving = Moving::begin(cluster, &["node-1", "node-2", "router-1"]);
    let [leader, other] = controllers(&moving.cluster);
    signal(&moving.cluster, leader, Signal::STOP);
    until_leads(&moving.cluster, other);
    let done = moving.moves("done");
    set_rate(&moving.cluster, 20 * SLOWLY);
    until("the other one continues", || moving.moves("done") > done);
    // It still takes itself for the leader.
    signal(&moving.cluster, leader, Signal::CONT);
    moving.succeeds();
}

#[test]
fn a_plan_continues_after_zookeeper_was_silent() {
    let mut zookeeper = ZooKeeper::start();
    let cluster = Cluster::start_at(Shape::default(), &zookeeper.address());
    let moving = Moving::begin(cluster, &["node-1", "node-2", "node-3", "router-1"]);
    zookeeper.pause();
    until("it has been silent for ten seconds", || {
        let status = moving.cluster.get("router-1").http_get("/v1/status");
        status["coordination_silent_ms"].as_u64() > Some(10_000)
    });
    zookeeper.resume();
    moving.succeeds();
}

#[test]
fn a_move_to_a_full_disk_is_given_up_and_others_go_on() {
    const DISK_BYTES: u64 = 16 << 20;
    let mut cluster = Cluster::prepare_shared(Shape::default());
    cluster.add("node-4", "disk-reserve = \"2MiB\"\n");
    let Some(disk) = SmallDisk::mount(&cluster.data("node-4"), DISK_BYTES) else {
        return println!("skipped: this process may not mount a file system (it needs root)");
    };
    cluster.launch_until_ready();
    pushed(&cluster);
    let [third, full] = ["node-3", "node-4"].map(|name| cluster.number(name));
    // Less is left than the reserve, which nodes need for themselves.
    disk.fill_up_to(1 << 20);
    let routing = cluster.any().http_get("/v1/routing");
    let lists: Vec<&Vec<Value>> = routing["owners"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(Value::as_array)
        .collect();
    let to_full = lists.iter().position(|nodes| nodes.contains(&json!(third))).unwrap();
    let to_third = lists.iter().position(|nodes| !nodes.contains(&json!(third))).unwrap();
    let plan = json!({
        "moves": [
            {"partition": to_full, "from": third, "to": full},
            {"partition": to_third, "from": lists[to_third][0], "to": third},
        ],
        "run": true
    });
    let readers = Readers::start(&cluster.resp_addresses());
    let plan = cluster.any().http_post("/v1/plans", plan);
    let path = format!("/v1/plans/{}", plan["number"]);
    let mut plan = Value::Null;
    until("the plan is done", || {
        plan = cluster.any().http_get(&path);
        plan["state"] == "done"
    });
    let state = |partition: usize| {
        let mut moves = plan["moves"].as_array().unwrap().iter();
        moves.find(|one| one["partition"] == partition).unwrap().clone()
    };
    let given_up = state(to_full);
    assert_eq!(given_up["state"], "given-up", "{plan}");
    let reason = given_up["error"].as_str().unwrap();
    assert!(
        reason.contains(&format!("node {full}")) && reason.contains("free"),
        "{reason}"
    );
    assert_eq!(state(to_third)["state"], "done", "{plan}");
    let failures = readers.stop();
    assert!(
        failures.is_empty(),
        "{} failures, such as {:?}",
        failures.len(),
        failures[0]
    );
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    drop((cluster, disk));
}
