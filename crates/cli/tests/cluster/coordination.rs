//! ZooKeeper is down: serving continues, decisions wait.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use fondaco_cluster::layout::ENTRIES;
use fondaco_coordination::{Coordination, ZooKeeperCoordination, ZooKeeperSettings};
use fondaco_testing::{Proxy, ZooKeeper, free_port};
use serde_json::json;

use super::cluster::{Cluster, Shape, is_ready};
use super::node::{fondaco, signal, until, wait};
use super::readers::{Readers, none_since};
use super::values::read_all;

#[test]
fn without_zookeeper_nodes_serve_and_even_start() {
    let mut zookeeper = ZooKeeper::start();
    let mut cluster = Cluster::start_at(Shape::default(), &zookeeper.address());
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    let stay = ["node-1", "node-2", "router-1"].map(|name| cluster.get(name).resp.clone());
    let readers = Readers::start(&stay);
    let began = std::time::Instant::now();
    zookeeper.kill();
    // Longer than any session lasts.
    until("the silence is noticed", || {
        let status = cluster.get("router-1").http_get("/v1/status");
        status["coordination_silent_ms"].as_u64() > Some(5_000)
    });
    none_since(&readers.stop(), began);
    for name in ["node-1", "router-1"] {
        // They do their own part.
        let readiness = cluster.get(name).http_get("/readyz");
        let warnings = readiness["warnings"].to_string();
        assert!(
            warnings.contains("ZooKeeper has been silent for"),
            "{name}: {readiness}"
        );
    }
    let refused = cluster.get("node-1").refused(1, &["store", "create", "other"]);
    assert!(refused.contains("no answer from ZooKeeper"), "{refused}");
    let told = cluster.get("router-1").done(&["status"]);
    assert!(told.contains("ZooKeeper") && told.contains("silent"), "{told}");

    // A node serves the state that it remembers.
    cluster.kill("node-2");
    cluster.launch("node-2");
    until("it serves", || read_all(&mut cluster.get("node-2").redis()) == Ok(1));
    assert_eq!(read_all(&mut cluster.get("node-1").redis()), Ok(1));

    zookeeper.restart();
    cluster.until_ready();
    cluster.deploy(&cluster.build(2));
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(2), "{name}");
    }
}

#[test]
fn processes_started_before_zookeeper_join_when_it_is_up() {
    let mut zookeeper = ZooKeeper::start();
    zookeeper.kill();
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    // Each process waits for a while, and then continues without ZooKeeper.
    cluster.launch_all_at_once();
    assert!(!is_ready(cluster.get("node-1")) && !is_ready(cluster.get("router-1")));
    let refused = cluster.get("node-1").refused(1, &["store", "create", "s"]);
    assert!(refused.contains("no answer from ZooKeeper"), "{refused}");
    zookeeper.restart();
    cluster.until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_router_without_zookeeper_learns_changes_from_nodes() {
    let zookeeper = ZooKeeper::start();
    let own_way = Proxy::to(zookeeper.port());
    let mut cluster = Cluster::prepare(Shape::default(), &zookeeper.address());
    cluster.reroute("router-1", &own_way.address());
    cluster.launch_until_ready();
    cluster.add("node-4", "");
    cluster.launch("node-4");
    cluster.until_live(4, true);
    cluster.create(&["--backups", "1"]);
    let mut redis = cluster.get("router-1").redis();
    // It would answer from its cache without asking any node.
    cluster.any().done(&["config", "set", "router-cache-bytes=0"]);
    until("the router has no cache", || {
        let setting = redis::cmd("CONFIG")
            .arg("GET")
            .arg("router-cache-bytes")
            .query(&mut redis);
        setting == Ok(vec!["router-cache-bytes".to_owned(), "0".to_owned()])
    });
    cluster.deploy(&cluster.build(1));
    assert_eq!(read_all(&mut redis), Ok(1));

    // From here on it learns nothing from ZooKeeper.
    let readers = Readers::start(&[cluster.get("router-1").resp.clone()]);
    own_way.cut();
    let began = std::time::Instant::now();
    cluster.deploy(&cluster.build(2));
    // Nodes keep version 1: the router could serve it for ever without noticing that it is old.
    until("it hears of the swap", || read_all(&mut redis) == Ok(2));
    let leaving = cluster.number("node-1").to_string();
    cluster
        .any()
        .done(&["rebalance", "run", "--quiet", "--remove", &leaving, "--add", "4"]);
    cluster.deploy(&cluster.build(3));
    until("the version that the router knows is deleted everywhere", || {
        let nodes = (1..=4).map(|at| cluster.versions_on_disk(&format!("node-{at}")));
        nodes.flatten().all(|version| version != "version-1")
    });
    // A node that it knew from ZooKeeper holds nothing any more, either.
    until("it hears of the swap", || read_all(&mut redis) == Ok(3));
    let status = cluster.get("router-1").http_get("/v1/status");
    assert!(status["coordination_silent_ms"].is_u64(), "{status}");
    own_way.heal();
    until("ZooKeeper answers it again", || {
        let status = cluster.get("router-1").http_get("/v1/status");
        status["coordination_silent_ms"].is_null()
    });
    assert_eq!(read_all(&mut redis), Ok(3));
    none_since(&readers.stop(), began);
}

#[test]
fn a_process_that_waits_for_its_cluster_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let configuration = dir.path().join("fondaco.toml");
    let resp = format!("127.0.0.1:{}", free_port());
    // No server listens at this address.
    let text = format!(
        "data = {:?}\nresp = {resp:?}\nhttp = \"127.0.0.1:0\"\n[zookeeper]\nconnect = \"127.0.0.1:1\"\n",
        dir.path().join("data")
    );
    std::fs::write(&configuration, text).unwrap();
    let mut child = fondaco()
        .args(["server", "--log", "info", "--config"])
        .arg(&configuration)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it listens", || TcpStream::connect(&resp).is_ok());
    signal(&child, rustix::process::Signal::TERM);
    let status = wait(&mut child);
    let output = child.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(status.success(), "{log}");
    assert!(output.stdout.is_empty(), "it had not begun to serve");
    assert!(log.contains("stopped before it could serve"), "{log}");
}

#[test]
fn every_entry_in_zookeeper_is_documented() {
    let cluster = Cluster::serving(Shape::steady());
    let node = cluster.get("node-1");
    node.done(&["store", "create", "gone", "--kind", "versioned"]);
    node.done(&["store", "drop", "gone", "--yes"]);
    node.done(&["store", "create", "typed", "--value-type", "avro"]);
    node.http_post(
        "/v1/stores/typed/schemas",
        serde_json::json!({"schema": {"type": "long"}}),
    );
    node.done(&["config", "set", "maxclients=5000"]);
    node.done(&["rebalance", "plan", "--move", &a_move(&cluster)]);
    let mut user = node.command(&["user", "put", "ann", "--stores", "*"]);
    let mut user = user.stdin(Stdio::piped()).spawn().unwrap();
    user.stdin.take().unwrap().write_all(b"a long password\n").unwrap();
    assert!(wait(&mut user).success());

    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coordination.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let documented: BTreeSet<&str> = rows
        .map(|(entry, _)| entry)
        .filter(|entry| *entry != "session-timeout-ms")
        .collect();
    assert_eq!(documented, ENTRIES.into_iter().collect());

    let (above, root) = cluster.root.rsplit_once('/').unwrap();
    let session = ZooKeeperCoordination::connect(ZooKeeperSettings::new(&cluster.zookeeper, above)).unwrap();
    let below = |path: &str| session.children(&path.parse().unwrap()).unwrap();
    let mut found = BTreeSet::new();
    for first in below(root) {
        let is_folder = !below(&format!("{root}/{first}")).is_empty();
        let is_this = |entry: &&&str| match entry.split_once('/') {
            Some((folder, _)) => is_folder && folder == first,
            None => !is_folder && **entry == first,
        };
        let entry = documented.iter().find(is_this);
        found.insert(*entry.unwrap_or_else(|| panic!("{first} is not documented")));
    }
    // All of them, but for that of a hook, which this cluster does not have.
    let missing: Vec<_> = documented.difference(&found).collect();
    assert_eq!(missing, [&"machines"]);
}

#[test]
fn a_store_that_one_process_has_created_is_known_to_all_at_once() {
    let cluster = Cluster::start(Shape::steady());
    let names = ["node-1", "node-2", "node-3", "router-1"];
    for (at, name) in names.iter().cycle().take(12).enumerate() {
        for kind in ["batch", "versioned"] {
            let store = format!("{kind}{at}");
            let new = json!({ "name": store, "kind": kind });
            cluster.get(name).http_post("/v1/stores", new);
            for other in names {
                let mut redis = cluster.get(other).redis();
                let found: redis::RedisResult<Option<String>> =
                    redis::cmd("GET").arg(format!("{store}:k")).query(&mut redis);
                let code = found.as_ref().map_err(|error| error.code().unwrap_or_default());
                match kind {
                    "batch" => assert_eq!(code, Err("NOVERSION"), "{other}: {found:?}"),
                    _ => assert_eq!(code, Ok(&None), "{other}: {found:?}"),
                }
            }
        }
    }
    // A store that does not exist is refused.
    let refused: redis::RedisResult<()> = redis::cmd("GET")
        .arg("none:k")
        .query(&mut cluster.get("node-1").redis());
    assert_eq!(refused.unwrap_err().code(), Some("NOSTORE"));
}

/// A move of a replica of a partition to the node that has none.
fn a_move(cluster: &Cluster) -> String {
    let routing = cluster.any().http_get("/v1/routing");
    let owners: Vec<u64> = serde_json::from_value(routing["owners"][0].clone()).unwrap();
    let other = (1..=3).find(|node| !owners.contains(node)).unwrap();
    format!("0:{}:{other}", owners[0])
}
