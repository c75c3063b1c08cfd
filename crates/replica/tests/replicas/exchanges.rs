//! Replicas that missed writes receive them, with little other traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::Update;
use fondaco_model::{PROTOCOL, PartitionCount, PartitionId};
use fondaco_protocol::replica::{KeyRecord, LeafDigests, ReplicaOperation, ReplicaReply, Splices};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_resp::{Protocol, Reply};
use fondaco_testing::until;

use crate::cluster::{Cluster, Message, Network, ask, merging, node, now_unix_ms, put, quiet, value};

/// Options for continuous comparisons.
fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    }
}

fn kib(seed: usize) -> Update {
    let value: Vec<u8> = (0..1024).map(|at| (seed.wrapping_mul(31) + at * 7) as u8).collect();
    Update::put(Bytes::from(value), now_unix_ms(), None)
}

/// Makes a node merge records, many at a time.
fn merge_all(cluster: &Cluster, number: u32, records: &[KeyRecord]) {
    for records in records.chunks(512) {
        let operation = ReplicaOperation::Merge {
            records: records.to_vec(),
        };
        assert_eq!(ask(cluster.node(number), operation), ReplicaReply::Done);
    }
}

fn write(cluster: &Cluster, number: u32, keys: impl Iterator<Item = usize>, seed: usize) -> Vec<KeyRecord> {
    let written = keys.map(|key| {
        let name = format!("key-{key}");
        let record = put(cluster.node(number), &name, kib(key + seed));
        KeyRecord {
            key: name.into(),
            record,
        }
    });
    written.collect()
}

#[test]
fn replicas_that_missed_writes_of_each_other_converge() {
    let cluster = Cluster::in_memory(3, 4, &busy());
    for number in 0..300 {
        let key = format!("k{number}");
        let record = put(cluster.node(number % 3 + 1), &key, value("a"));
        if number % 2 == 0 {
            ask(cluster.node((number + 1) % 3 + 1), merging(&key, record));
        }
        if number % 5 == 0 {
            // Concurrent with the other write.
            put(cluster.node((number + 2) % 3 + 1), &key, value("b"));
        }
    }
    until("the same on all", || {
        (0..300).all(|number| {
            let key = format!("k{number}");
            let first = cluster.record(1, &key);
            first.is_some() && cluster.record(2, &key) == first && cluster.record(3, &key) == first
        })
    });
    assert_eq!(cluster.values(1, "k0").len(), 2);
    assert_eq!(cluster.values(1, "k1").len(), 1);
}

/// If this machine stalls for seconds, both sides may compare at once, and send each other everything.
const ATTEMPTS: usize = 3;

/// A node receives the one percent of its keys that it missed, with little more traffic than that.
fn gets_one_percent(missed_has_older: bool) {
    let is_little = (0..ATTEMPTS).any(|_| one_percent(missed_has_older) <= 1.5);
    assert!(is_little, "more than one and a half times the bytes, in every attempt");
}

/// The traffic for the one percent of a node's keys that it missed, as a multiple of their bytes.
fn one_percent(missed_has_older: bool) -> f64 {
    const KEYS: usize = 20_000;
    let cluster = Cluster::in_memory(2, 4, &quiet());
    // Nothing is compared before both sides are prepared.
    cluster.network.cut(node(2));
    let records = write(&cluster, 1, 0..KEYS, 0);
    let (missed, had): (Vec<_>, Vec<_>) = records
        .into_iter()
        .enumerate()
        .partition(|(at, _)| at % 100 == 0 && !missed_has_older);
    drop(missed);
    let had: Vec<KeyRecord> = had.into_iter().map(|(_, record)| record).collect();
    merge_all(&cluster, 2, &had);
    if missed_has_older {
        write(&cluster, 1, (0..KEYS).step_by(100), 1);
    }
    for number in [1, 2] {
        until("trees", || trees_are_made(&cluster, number));
    }
    let (bytes, repairs) = (count_bytes(&cluster.network), repaired(&cluster));
    cluster.network.mend(node(2));
    until("the same on both", || {
        (0..KEYS)
            .step_by(100)
            .all(|key| cluster.record(1, &format!("key-{key}")) == cluster.record(2, &format!("key-{key}")))
    });
    let bytes = bytes.load(Relaxed);
    let differing = (KEYS / 100) as u64 * 1024;
    assert!(bytes >= differing);
    assert!(
        repaired(&cluster) - repairs <= 2 * (KEYS / 100) as u64,
        "equal records were sent"
    );
    println!("{bytes} bytes for {differing} that differ");
    bytes as f64 / differing as f64
}

/// Counts the bytes of all requests and replies from now on, as they would be on the wire, without their framing.
fn count_bytes(network: &Network) -> Arc<AtomicU64> {
    let bytes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&bytes);
    network.observe(move |message| {
        let mut wire = Vec::new();
        let mut writer = Reply::new(&mut wire, Protocol::Resp2);
        match message {
            Message::Request(request) => {
                // Records here are short.
                request.write(PROTOCOL, request.timeout_ms, None, &mut writer, &mut Splices::default())
            }
            Message::Reply(reply) => reply.write(&mut writer),
        }
        counter.fetch_add(wire.len() as u64, Relaxed);
    });
    bytes
}

/// How many records node 2 got from node 1 in exchanges.
fn repaired(cluster: &Cluster) -> u64 {
    let sent = cluster.node(1).counter(ReplicaCounter::RepairsOut);
    sent + cluster.node(2).counter(ReplicaCounter::RepairsIn)
}

fn trees_are_made(cluster: &Cluster, number: u32) -> bool {
    let status = cluster.node(number).status(1).unwrap();
    status.trees_missing == 0
}

#[test]
fn one_percent_of_missing_records_causes_little_other_traffic() {
    gets_one_percent(false);
}

#[test]
fn one_percent_of_older_records_causes_little_other_traffic() {
    gets_one_percent(true);
}

#[test]
fn equal_replicas_exchange_one_message_per_partition() {
    let mut cluster = Cluster::in_memory(2, 4, &quiet());
    let records = write(&cluster, 1, 0..2000, 0);
    merge_all(&cluster, 2, &records);
    until("the first exchanges", || exchanges(&cluster) >= 4);
    let (before, bytes) = (exchanges(&cluster), count_bytes(&cluster.network));
    cluster.set_live(node(2), false);
    cluster.set_live(node(2), true);
    until("the exchanges of the one that saw the other return", || {
        exchanges(&cluster) >= before + 4
    });
    let (done, bytes) = (exchanges(&cluster) - before, bytes.load(Relaxed));
    assert!(bytes < done * 400, "{bytes} bytes for {done} exchanges");
}

fn exchanges(cluster: &Cluster) -> u64 {
    let of = |number| cluster.node(number).counter(ReplicaCounter::Exchanges);
    of(1) + of(2)
}

#[test]
fn a_node_that_lost_everything_gets_it_back() {
    let mut cluster = Cluster::in_memory(2, 2, &busy());
    write(&cluster, 1, 0..3000, 0);
    until("the copy", || cluster.values(2, "key-2999").len() == 1);
    cluster.stop(node(2));
    std::fs::remove_dir_all(cluster.home.join("2")).unwrap();
    cluster.start(node(2), &busy(), |_| {
        std::sync::Arc::new(fondaco_engine::MemoryEngine::new())
    });
    until("all of it", || {
        (0..3000).all(|key| cluster.record(2, &format!("key-{key}")) == cluster.record(1, &format!("key-{key}")))
    });
}

#[test]
fn a_node_compares_after_an_unnoticed_restart() {
    for number in [1, 2] {
        let mut cluster = Cluster::in_memory(2, 2, &quiet());
        until("the first exchanges", || exchanges(&cluster) >= 4);
        write(&cluster, 3 - number, 0..100, 0);
        // The other node is not told.
        cluster.stop(node(number));
        cluster.start(node(number), &quiet(), |_| {
            std::sync::Arc::new(fondaco_engine::MemoryEngine::new())
        });
        until("all of it", || {
            (0..100).all(|key| cluster.values(number, &format!("key-{key}")).len() == 1)
        });
    }
}

#[test]
fn a_failed_exchange_is_repeated_when_the_network_is_back() {
    let cluster = Cluster::in_memory(2, 2, &busy());
    cluster.network.cut(node(2));
    write(&cluster, 1, 0..100, 0);
    until("failures", || {
        cluster.node(1).counter(ReplicaCounter::ExchangeFailures) > 2
    });
    assert_eq!(cluster.record(2, "key-1"), None);
    cluster.network.mend(node(2));
    until("the copy", || {
        (0..100).all(|key| cluster.values(2, &format!("key-{key}")).len() == 1)
    });
}

#[test]
fn requests_that_cost_more_than_a_comparison_are_refused() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    write(&cluster, 1, 0..3000, 0);
    // Its leaves are deeper now than at the start.
    until("the tree", || {
        let status = cluster.node(1).status(1).unwrap();
        status.trees_missing == 0 && status.keys == 3000
    });
    let partition = PartitionId::new(0);
    let tree = |depth, nodes: &[u32]| ReplicaOperation::Tree {
        partitions: PartitionCount::ONE,
        partition,
        depth,
        nodes: nodes.to_vec(),
    };
    let sync = |depth, leaves: &[(u64, usize)]| {
        let leaf = |&(leaf, count)| LeafDigests {
            leaf,
            digests: vec![7; count],
        };
        let leaves = leaves.iter().map(leaf).collect();
        ReplicaOperation::Sync {
            partitions: PartitionCount::ONE,
            partition,
            depth,
            leaves,
        }
    };
    let of_two = ReplicaOperation::Tree {
        partitions: PartitionCount::try_from(2).unwrap(),
        partition,
        depth: 0,
        nodes: vec![0],
    };
    let is_refused = |operation| matches!(ask(cluster.node(1), operation), ReplicaReply::Error(_));
    assert!(!is_refused(tree(4, &[0, 1])));
    assert!(is_refused(tree(0, &[0; 128])), "the same node repeatedly");
    assert!(is_refused(tree(24, &[0])), "deeper than any tree");
    assert!(is_refused(of_two), "another number of partitions");
    assert!(!is_refused(sync(12, &[(0, 1), (1, 1)])));
    assert!(is_refused(sync(12, &[(1, 1), (1, 1)])), "the same leaf again");
    assert!(is_refused(sync(4, &[(0, 0)])), "a sixteenth of the partition");
    assert!(
        is_refused(sync(12, &[(0, (1 << 17) + 1)])),
        "more digests than a leaf can have"
    );
}
