//! Redis's own programs with support for Redis Cluster, unmodified, against three nodes.

use std::process::Command;

use super::cluster::{Cluster, Shape};
use super::values::{KEYS, value};

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

/// The output of a program; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text} {errors}");
    Some(text)
}

fn with_data() -> Cluster {
    Cluster::serving(Shape::steady())
}

#[test]
fn redis_cli_follows_the_cluster_to_each_key() {
    let cluster = with_data();
    let node = cluster.get("node-1").resp.clone();
    for key in (0..KEYS).step_by(97) {
        let wire_key = format!("s:{key}");
        let Some(found) = run("redis-cli", &["-c", "-p", port(&node), "GET", &wire_key]) else {
            return println!("skipped: there is no redis-cli (apt-get install redis-tools)");
        };
        assert_eq!(found, value(1, key) + "\n");
    }
    let info = run("redis-cli", &["-p", port(&node), "CLUSTER", "INFO"]).unwrap();
    assert!(
        info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384"),
        "{info}"
    );
    let nodes = run("redis-cli", &["-p", port(&node), "CLUSTER", "NODES"]).unwrap();
    assert_eq!(nodes.lines().filter(|line| !line.is_empty()).count(), 3, "{nodes}");
    assert!(nodes.contains("myself"), "{nodes}");
    let checked = run("redis-cli", &["--cluster", "check", &node]).unwrap();
    assert!(checked.contains("All 16384 slots covered"), "{checked}");
    let told = run("redis-cli", &["--cluster", "info", &node]).unwrap();
    assert!(told.contains("masters"), "{told}");
}

#[test]
fn redis_benchmark_drives_all_nodes_of_the_cluster() {
    let cluster = with_data();
    let node = cluster.get("node-2").resp.clone();
    // Its own GET test would read keys without a store; this one uses its tag for keys of every slot.
    let arguments = [
        "--cluster",
        "-p",
        port(&node),
        "-n",
        "20000",
        "-P",
        "8",
        "-q",
        "GET",
        "s:{tag}:__rand_int__",
    ];
    let Some(text) = run("redis-benchmark", &arguments) else {
        return println!("skipped: there is no redis-benchmark (apt-get install redis-tools)");
    };
    assert!(text.contains("requests per second"), "{text}");
    assert!(!text.contains("ERR"), "{text}");
}
