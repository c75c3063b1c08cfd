//! Partitions move to other nodes, and nothing is lost on the way.

use std::sync::Arc;
use std::time::Duration;

use fondaco_client::quorum::{RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::{NodeId, PartitionId};
use fondaco_replica::ReplicaOptions;

use crate::cluster::{Cluster, ask, merging, node, pair, put, quiet, until, value};

fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    }
}

/// Three nodes, of which 1 and 2 own both partitions.
fn of_two(dir: &std::path::Path) -> Cluster {
    let mut cluster = Cluster::in_memory(dir, 3, 2, &busy());
    cluster.replicas = 2;
    cluster.tell();
    for number in 0..200 {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        // Only one of both has some.
        if number % 3 > 0 {
            ask(cluster.node(2), merging(&key, record));
        }
    }
    cluster
}

fn plan(cluster: &mut Cluster, next: &[u32]) {
    let next: Vec<NodeId> = next.iter().map(|&number| node(number)).collect();
    cluster.table = Arc::new(cluster.table.with_plan(vec![next; 2]).unwrap());
    cluster.tell();
}

fn synchronised(cluster: &Cluster, number: u32) -> usize {
    let status = cluster.node(number).status(1).unwrap();
    status.synchronised.len()
}

fn keys(cluster: &Cluster, number: u32) -> usize {
    let key = |key: &usize| cluster.record(number, &format!("k{key}")).is_some();
    (0..200).filter(key).count()
}

#[test]
fn who_is_to_own_a_partition_has_all_of_it_before_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = of_two(dir.path());
    assert_eq!(synchronised(&cluster, 1), 2, "an owner is");
    plan(&mut cluster, &[3, 1]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    assert_eq!(keys(&cluster, 3), 200);
}

#[test]
fn a_plan_waits_for_owners_that_cannot_be_reached_but_are_said_to_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = of_two(dir.path());
    cluster.network.cut(node(1));
    plan(&mut cluster, &[3, 1]);
    until("failures", || {
        cluster
            .node(3)
            .counter(fondaco_replica::ReplicaCounter::ExchangeFailures)
            > 1
    });
    assert_eq!(synchronised(&cluster, 3), 0);
    cluster.network.mend(node(1));
    until("synchronisation", || synchronised(&cluster, 3) == 2);
}

#[test]
fn what_a_node_no_longer_owns_is_given_to_the_owners_and_then_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = of_two(dir.path());
    plan(&mut cluster, &[2, 3]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    // A write that only the one who leaves has.
    put(cluster.node(1), "last", value("a"));
    cluster.network.cut(node(3));
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    let read = ReplicaOperation::Get {
        part: RecordPart::Full,
        keys: vec!["last".into()],
    };
    match ask(cluster.node(1), read) {
        ReplicaReply::Records(found) => {
            assert!(
                matches!(&found[..], [Err(error)] if error.code == ReplicaErrorCode::NotHere),
                "{found:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let surplus = |cluster: &Cluster| cluster.node(1).status(1).unwrap().surplus;
    until("the gift to one owner", || cluster.values(2, "last") == ["a"]);
    assert_eq!(surplus(&cluster), 2, "the other owner has not got it");
    cluster.network.mend(node(3));
    until("deletion", || surplus(&cluster) == 0);
    assert_eq!(cluster.values(3, "last"), ["a"]);
    assert_eq!(keys(&cluster, 3), 200);
    // What comes back is empty, and is filled again.
    plan(&mut cluster, &[1, 2]);
    assert_eq!(cluster.record(1, "last"), None);
    until("synchronisation", || synchronised(&cluster, 1) == 2);
    assert_eq!(cluster.values(1, "last"), ["a"]);
}

#[test]
fn what_is_taken_back_while_it_is_deleted_is_filled_again() {
    const KEYS: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    // So slow that what is deleted at a time can be seen.
    let slow = ReplicaOptions {
        exchange_bytes_per_second: Some(50_000),
        ..busy()
    };
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let engine_of = |dir: &std::path::Path| match dir.ends_with("1") {
        true => Arc::clone(&engine),
        false => Arc::new(MemoryEngine::new()) as Arc<dyn Engine>,
    };
    let mut cluster = Cluster::of(dir.path(), 3, 1, &slow, engine_of);
    cluster.replicas = 2;
    cluster.tell();
    let written = |number| {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        pair(&key, record)
    };
    let records: Vec<_> = (0..KEYS).map(written).collect();
    ask(cluster.node(2), ReplicaOperation::Merge { records });
    let tables = engine.tables().unwrap();
    let name = tables.iter().find(|name| name.starts_with("store-")).unwrap();
    let table = engine.open_table(name).unwrap();
    let kept = || table.scan(b"", None).unwrap().count();
    let become_owners = |cluster: &mut Cluster, owners: &[u32]| {
        let next: Vec<NodeId> = owners.iter().map(|&number| node(number)).collect();
        cluster.table = Arc::new(cluster.table.with_plan(vec![next]).unwrap().finished());
        cluster.tell();
    };
    become_owners(&mut cluster, &[2, 3]);
    until("the first deletion", || kept() < KEYS);
    assert!(kept() > 0, "all went at once");
    become_owners(&mut cluster, &[1, 2]);
    until("all of it", || kept() == KEYS);
}

#[test]
fn a_cancelled_plan_leaves_the_owners_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = of_two(dir.path());
    plan(&mut cluster, &[3, 2]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    put(cluster.node(1), "more", value("a"));
    cluster.table = Arc::new(cluster.table.cancelled());
    cluster.tell();
    let status = || cluster.node(3).status(1).unwrap();
    until("deletion", || status().surplus == 0);
    assert!(status().held.is_empty());
    assert!(cluster.node(1).status(1).unwrap().held.contains(PartitionId::new(1)));
    assert_eq!(keys(&cluster, 1), 200);
}
