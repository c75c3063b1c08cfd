//! Memory for keys is full: a replica refuses new keys, and carries out all other requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::{Engine, LogEngine, LogOptions, MemoryEngine};
use fondaco_model::versioned::Update;
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_replica::{DirectEnd, ReplicaCounter, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, ask, node, now_unix_ms, pair, put, putting, quiet, value};
use crate::direct::append;

/// The first node has a log with little memory for keys, the others have no limit.
fn engine_with(key_bytes_max: u64) -> impl Fn(&Path) -> Arc<dyn Engine> {
    move |dir| match dir.ends_with("1") {
        true => {
            let options = LogOptions {
                key_bytes_max,
                segment_bytes: 1 << 20,
                disk_reserve_bytes: 0,
                ..LogOptions::default()
            };
            Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap())
        }
        false => Arc::new(MemoryEngine::new()),
    }
}

fn refusal(reply: &ReplicaReply) -> Option<ReplicaErrorCode> {
    match reply {
        ReplicaReply::Error(error) => Some(error.code),
        _ => None,
    }
}

/// Writes new keys to the first node until it refuses one. Returns how many were written.
fn fill(cluster: &Cluster) -> usize {
    for number in 0.. {
        match ask(cluster.node(1), putting(&format!("k{number}"), value("a"))) {
            ReplicaReply::Written(_) => {}
            reply => {
                assert_eq!(refusal(&reply), Some(ReplicaErrorCode::KeysFull));
                return number;
            }
        }
    }
    unreachable!("memory for keys is limited")
}

#[test]
fn only_new_keys_are_refused_while_key_memory_is_full() {
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let mut cluster = Cluster::of(2, 1, &options, engine_with(50_000));
    cluster.network.cut(node(2));
    let count = fill(&cluster);
    assert!(count > 100, "{count}");
    let said = cluster.node(1).keys_refused().unwrap();
    assert!(said.contains("keys take") && said.contains("--engine disk"), "{said}");
    assert!(cluster.node(1).counter(ReplicaCounter::FullKeys) > 0);
    put(cluster.node(1), "k0", value("b"));
    put(cluster.node(1), "k1", Update::delete(now_unix_ms()));
    assert!(cluster.values(1, "k1").is_empty());
    // Writes of another node: the new key is refused, and the old ones in the same request are merged.
    let records = ["new", "k2", "k3"].map(|key| pair(key, put(cluster.node(2), key, value("c"))));
    let operation = ReplicaOperation::Merge {
        records: records.into(),
    };
    let merged = ask(cluster.node(1), operation);
    assert_eq!(refusal(&merged), Some(ReplicaErrorCode::KeysFull));
    for key in ["k2", "k3"] {
        assert_eq!(cluster.values(1, key).len(), 2, "concurrent values of {key}");
    }
    assert_eq!(cluster.record(1, "new"), None);
    // The same holds for comparisons, which are completed when there is room.
    put(cluster.node(2), "k4", value("c"));
    put(cluster.node(2), "newer", value("c"));
    cluster.network.mend(node(2));
    until("the comparison of a key that both have", || {
        cluster.values(1, "k4").len() == 2
    });
    until("the other way", || cluster.values(2, "k5").len() == 1);
    assert_eq!((cluster.record(1, "new"), cluster.record(1, "newer")), (None, None));
    cluster.stop(node(1));
    cluster.start(node(1), &options, engine_with(100_000));
    assert_eq!(cluster.node(1).keys_refused(), None);
    until("all keys", || {
        cluster.record(1, "new").is_some() && cluster.record(1, "newer").is_some()
    });
}

#[test]
fn only_the_new_key_of_a_batch_is_refused() {
    let cluster = Cluster::of(1, 1, &quiet(), engine_with(50_000));
    let count = fill(&cluster);
    let ends = append(cluster.node(1), &[("k0", "b"), ("new", "b"), ("k1", "b")]);
    assert_eq!((&ends[0], &ends[2]), (&DirectEnd::Done, &DirectEnd::Done));
    assert!(
        matches!(&ends[1], DirectEnd::Refused(error) if error.code == ReplicaErrorCode::KeysFull),
        "{ends:?}"
    );
    assert_eq!(cluster.values(1, "k0"), ["ab"]);
    assert_eq!(cluster.record(1, "new"), None);
    assert_eq!(cluster.node(1).key_memory().unwrap().keys, count as u64);
}
