//! Counters of nodes that restart repeatedly: each start may count under a new incarnation, with its own sum.

use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{Engine, LogEngine, LogOptions, MemoryEngine};
use fondaco_model::versioned::{Resolution, Update, resolve};
use fondaco_protocol::replica::ReplicaReply;
use fondaco_testing::until;

use crate::cluster::{Cluster, ask, merging, node, now_unix_ms, put, quiet};

const STARTS: u32 = 200;

fn in_a_log(dir: &Path) -> Arc<dyn Engine> {
    let options = LogOptions {
        disk_reserve_bytes: 0,
        ..LogOptions::default()
    };
    Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap())
}

fn in_memory(_: &Path) -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

fn counting(mut cluster: Cluster) -> Cluster {
    cluster.settings.resolution = Resolution::Counter;
    cluster.tell();
    cluster
}

/// The value of the counter `k` on a node.
fn sum(cluster: &Cluster, number: u32) -> String {
    let resolved = resolve(
        &cluster.record(number, "k").unwrap(),
        Resolution::Counter,
        now_unix_ms(),
    );
    String::from_utf8(resolved.value().unwrap().to_vec()).unwrap()
}

#[test]
fn a_node_that_is_killed_repeatedly_continues_counting() {
    let mut cluster = counting(Cluster::of(1, 1, &quiet(), in_a_log));
    for _ in 1..STARTS {
        put(cluster.node(1), "k", Update::add(1, now_unix_ms(), None));
        cluster.stop(node(1));
        // As if it had been killed.
        let file = cluster.home.join("1/incarnation.json");
        let stored = std::fs::read_to_string(&file).unwrap();
        assert!(stored.contains(r#""ended":true"#), "{stored}");
        std::fs::write(&file, stored.replace(r#""ended":true"#, r#""ended":false"#)).unwrap();
        cluster.start(node(1), &quiet(), in_a_log);
    }
    put(cluster.node(1), "k", Update::add(1, now_unix_ms(), None));
    assert_eq!(sum(&cluster, 1), STARTS.to_string());
}

#[test]
fn three_replicas_in_memory_that_restart_repeatedly_continue_counting() {
    let mut cluster = counting(Cluster::of(3, 1, &quiet(), in_memory));
    for start in 0..STARTS {
        let at = 1 + start % 3;
        let record = put(cluster.node(at), "k", Update::add(1, now_unix_ms(), None));
        // Includes the node that restarted after the last increment, and lost the counter.
        for other in (1..=3).filter(|&other| other != at) {
            assert_eq!(
                ask(cluster.node(other), merging("k", record.clone())),
                ReplicaReply::Done
            );
        }
        cluster.stop(node(at));
        cluster.start(node(at), &quiet(), in_memory);
    }
    let last = 1 + (STARTS - 1) % 3;
    until("the counter of the others", || cluster.record(last, "k").is_some());
    for number in 1..=3 {
        assert_eq!(sum(&cluster, number), STARTS.to_string());
    }
}
