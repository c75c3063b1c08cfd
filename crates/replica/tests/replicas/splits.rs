//! Each partition is split in two, while requests go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{DiskEngine, DiskOptions, Engine};
use fondaco_model::{PartitionId, slot_of_key};
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, STORE_ID, ask, merging, node, put, quiet, store, value};

const KEYS: usize = 300;

fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    }
}

/// The next routing table, which nodes are not told of yet.
fn split(cluster: &mut Cluster) {
    cluster.table = Arc::new(cluster.table.split().unwrap());
}

fn fill(cluster: &Cluster) {
    for key in 0..KEYS {
        let key = format!("k{key}");
        let record = put(cluster.node(1), &key, value("a"));
        // Some keys are only on one of the two.
        if key.len() < 4 {
            ask(cluster.node(2), merging(&key, record));
        }
    }
}

/// The keys that a node has of each partition.
fn keys(cluster: &Cluster, number: u32) -> BTreeMap<u32, usize> {
    let partitions = cluster.table.partitions();
    let listed = partitions.partitions().filter_map(|partition| {
        let (keys, _) = cluster
            .node(number)
            .keys_from(STORE_ID, (partitions, partition), 0, 10_000)
            .unwrap()?;
        let is_of_it = |key: &Bytes| partitions.partition_of(slot_of_key(&store(), key)) == partition;
        assert!(keys.iter().all(is_of_it));
        Some((partition.get(), keys.len()))
    });
    listed.collect()
}

fn tree(cluster: &Cluster, number: u32, partition: PartitionId) -> ReplicaReply {
    let operation = ReplicaOperation::Tree {
        partitions: cluster.table.partitions(),
        partition,
        depth: 0,
        nodes: vec![0],
    };
    ask(cluster.node(number), operation)
}

#[test]
fn writes_go_on_while_partitions_are_split() {
    let mut cluster = Cluster::in_memory(2, 2, &busy());
    fill(&cluster);
    let (is_over, writer) = (Arc::new(AtomicBool::new(false)), Arc::clone(cluster.node(1)));
    let seen = Arc::clone(&is_over);
    let writes = std::thread::spawn(move || {
        let mut written = 0;
        while !seen.load(Relaxed) {
            put(&writer, &format!("w{}", written % 500), value(&written.to_string()));
            written += 1;
        }
        written
    });
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(50));
        split(&mut cluster);
        cluster.tell();
    }
    is_over.store(true, Relaxed);
    let written = writes.join().unwrap();
    assert!(written > 10, "{written}");
    let last = |key: usize| (0..written).rev().find(|number| number % 500 == key);
    for key in 0..written.min(500) {
        let expected = Bytes::from(last(key).unwrap().to_string());
        assert_eq!(cluster.values(1, &format!("w{key}")), [expected]);
    }
    // Trees are built of what the tables have, and then both nodes have the same.
    let all = KEYS + written.min(500);
    until("the other replica", || keys(&cluster, 2).values().sum::<usize>() == all);
    assert_eq!(keys(&cluster, 1), keys(&cluster, 2));
    assert_eq!(keys(&cluster, 1).len(), 32);
    until("equal trees", || {
        let mut partitions = cluster.table.partitions().partitions();
        partitions.all(
            |partition| match [1, 2].map(|number| tree(&cluster, number, partition)) {
                [
                    ReplicaReply::Hashes { nodes: one, .. },
                    ReplicaReply::Hashes { nodes: two, .. },
                ] => one == two,
                _ => false,
            },
        )
    });
    let more_exchanges = || {
        let exchanges = cluster.node(1).counter(ReplicaCounter::Exchanges);
        until("more exchanges", || {
            cluster.node(1).counter(ReplicaCounter::Exchanges) > exchanges + 64
        });
    };
    // Those under way may still repair what differed before.
    more_exchanges();
    let repairs = cluster.node(1).counter(ReplicaCounter::RepairsOut);
    more_exchanges();
    assert_eq!(
        cluster.node(1).counter(ReplicaCounter::RepairsOut),
        repairs,
        "nothing differs"
    );
}

#[test]
fn nodes_that_know_different_numbers_compare_nothing() {
    let mut cluster = Cluster::in_memory(2, 2, &quiet());
    fill(&cluster);
    split(&mut cluster);
    cluster.node(1).set_view(&cluster.view(node(1))).unwrap();
    for partition in cluster.table.partitions().partitions() {
        match tree(&cluster, 2, partition) {
            ReplicaReply::Error(error) => assert_eq!(error.code, ReplicaErrorCode::OldTable),
            other => panic!("{other:?}"),
        }
    }
    // Keys are found by both.
    for key in 0..KEYS {
        let key = format!("k{key}");
        assert_eq!(cluster.values(1, &key), [Bytes::from("a")]);
        put(cluster.node(2), &key, value("b"));
    }
    cluster.tell();
    until("a tree", || {
        matches!(tree(&cluster, 2, PartitionId::new(3)), ReplicaReply::Hashes { .. })
    });
}

#[test]
fn one_half_moves_and_the_other_stays() {
    let mut cluster = Cluster::in_memory(3, 2, &busy());
    cluster.replicas = 2;
    cluster.tell();
    fill(&cluster);
    split(&mut cluster);
    cluster.tell();
    let before = keys(&cluster, 1);
    assert!(
        before.len() == 4 && before.values().all(|&keys| keys > 20),
        "{before:?}"
    );
    let mut next = cluster.table.all_owners().to_vec();
    next[3] = vec![node(3), node(2), node(1)];
    cluster.table = Arc::new(cluster.table.with_plan(next).unwrap());
    cluster.tell();
    until("synchronisation", || {
        let status = cluster.node(3).status(STORE_ID).unwrap();
        status.synchronised.contains(PartitionId::new(3))
    });
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    until("the end of the former replica", || {
        cluster.node(1).status(STORE_ID).unwrap().surplus == 0
    });
    assert_eq!(keys(&cluster, 3), BTreeMap::from([(3, before[&3])]));
    let left = before.iter().filter(|&(&partition, _)| partition < 3);
    assert_eq!(
        keys(&cluster, 1),
        left.map(|(&partition, &keys)| (partition, keys)).collect()
    );
}

#[test]
fn a_node_that_was_down_finds_its_halves() {
    let engine = |dir: &Path| -> Arc<dyn Engine> {
        Arc::new(DiskEngine::open(&dir.join("engine"), DiskOptions::default()).unwrap())
    };
    let mut cluster = Cluster::of(2, 2, &busy(), engine);
    fill(&cluster);
    until("the other replica", || {
        keys(&cluster, 2).values().sum::<usize>() == KEYS
    });
    cluster.stop(node(2));
    split(&mut cluster);
    split(&mut cluster);
    cluster.tell();
    cluster.start(node(2), &busy(), engine);
    cluster.tell();
    assert_eq!(keys(&cluster, 2), keys(&cluster, 1));
    assert_eq!(keys(&cluster, 2).len(), 8);
    put(cluster.node(1), "after", value("a"));
    until("a comparison", || cluster.values(2, "after") == [Bytes::from("a")]);
}
