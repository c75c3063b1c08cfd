//! Partitions move to other nodes without losing writes.

use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::replica::{RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{Recalled, ReplicaCounter, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, PATIENCE, STORE_ID, ask, merging, node, pair, put, putting, quiet, request, value};

fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    }
}

/// Three nodes; 1 and 2 own both partitions.
fn of_two() -> Cluster {
    let mut cluster = Cluster::in_memory(3, 2, &busy());
    cluster.replicas = 2;
    cluster.tell();
    for number in 0..200 {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        // Some keys are only on one of the two.
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
fn a_next_owner_is_complete_before_it_is_synchronised() {
    let mut cluster = of_two();
    assert_eq!(synchronised(&cluster, 1), 2, "an owner is synchronised");
    let lists = |cluster: &Cluster, number: u32| {
        let count = cluster.table.partitions();
        let partitions = (0..2).map(|number| (count, PartitionId::new(number)));
        let listed = partitions.map(|partition| cluster.node(number).keys_from(STORE_ID, partition, 0, 1000).unwrap());
        listed
            .map(|listed| listed.map(|(keys, _)| keys.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(lists(&cluster, 1).into_iter().flatten().sum::<usize>(), 200);
    plan(&mut cluster, &[3, 1]);
    assert_eq!(
        lists(&cluster, 3),
        [None, None],
        "a next owner may lack keys, and lists none"
    );
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    assert_eq!(keys(&cluster, 3), 200);
}

#[test]
fn a_next_owner_is_complete_with_long_records() {
    let mut cluster = Cluster::in_memory(3, 2, &busy());
    cluster.replicas = 1;
    cluster.tell();
    let long = "v".repeat(300_000);
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    for key in &keys {
        put(cluster.node(1), key, value(&long));
    }
    plan(&mut cluster, &[3]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    assert!(keys.iter().all(|key| cluster.record(3, key).is_some()));
}

#[test]
fn a_plan_waits_for_unreachable_owners_that_count_as_live() {
    let mut cluster = of_two();
    cluster.network.cut(node(1));
    plan(&mut cluster, &[3, 1]);
    until("failures", || {
        cluster.node(3).counter(ReplicaCounter::ExchangeFailures) > 1
    });
    assert_eq!(synchronised(&cluster, 3), 0);
    cluster.network.mend(node(1));
    until("synchronisation", || synchronised(&cluster, 3) == 2);
}

#[test]
fn a_former_partition_is_given_to_its_owners_and_deleted() {
    let mut cluster = of_two();
    plan(&mut cluster, &[2, 3]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    // A write that only the leaving node has.
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
    assert_eq!(surplus(&cluster), 2, "the other owner does not have it yet");
    cluster.network.mend(node(3));
    until("deletion", || surplus(&cluster) == 0);
    assert_eq!(cluster.values(3, "last"), ["a"]);
    assert_eq!(keys(&cluster, 3), 200);
    // A partition that comes back is empty, and is filled again.
    cluster.network.cut(node(1));
    plan(&mut cluster, &[1, 2]);
    assert_eq!(cluster.record(1, "last"), None);
    cluster.network.mend(node(1));
    until("synchronisation", || synchronised(&cluster, 1) == 2);
    assert_eq!(cluster.values(1, "last"), ["a"]);
}

#[test]
fn a_partition_taken_back_during_deletion_is_filled_again() {
    const KEYS: usize = 3000;
    // So slow that each batch of deletions can be observed.
    let slow = ReplicaOptions {
        exchange_bytes_per_second: Some(50_000),
        ..busy()
    };
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let engine_of = |dir: &std::path::Path| match dir.ends_with("1") {
        true => Arc::clone(&engine),
        false => Arc::new(MemoryEngine::new()) as Arc<dyn Engine>,
    };
    let mut cluster = Cluster::of(3, 1, &slow, engine_of);
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
    assert!(kept() > 0, "all were deleted at once");
    become_owners(&mut cluster, &[1, 2]);
    until("all of it", || kept() == KEYS);
}

#[test]
fn a_next_owner_compares_with_its_zone_first() {
    for near in [1, 2] {
        let mut cluster = of_two();
        cluster.near = [node(near)].into();
        // It was an owner before, and compares until it has given away what it had.
        until("deletion", || cluster.node(3).status(1).unwrap().surplus == 0);
        cluster.network.forget_compared();
        plan(&mut cluster, &[3, 1]);
        until("synchronisation", || synchronised(&cluster, 3) == 2);
        assert_eq!(cluster.network.first_compared(node(3)), Some(node(near)));
    }
}

#[test]
fn a_low_rate_holds_moves_and_nothing_else() {
    let mut cluster = Cluster::in_memory(3, 2, &busy());
    cluster.replicas = 2;
    cluster.tell();
    let write = |cluster: &Cluster, numbers: std::ops::Range<usize>| {
        for number in numbers {
            put(cluster.node(1), &format!("k{number}"), value(&"v".repeat(10_000)));
        }
    };
    write(&cluster, 0..100);
    until("the other owner", || keys(&cluster, 2) == 100);
    // A record a second: without a limit the move is over in milliseconds.
    cluster.node(3).set_move_rate(10_000);
    plan(&mut cluster, &[3, 1]);
    until("the first records", || keys(&cluster, 3) > 0);
    // The owners are compared meanwhile, and do not send the partition to its next owner.
    write(&cluster, 100..200);
    until("the other owner", || keys(&cluster, 2) == 200);
    assert_eq!(synchronised(&cluster, 3), 0);
    assert!(keys(&cluster, 3) < 200);
    cluster.node(3).set_move_rate(0);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    assert_eq!(keys(&cluster, 3), 200);
}

#[test]
fn a_cancelled_plan_leaves_the_owners_as_they_were() {
    let mut cluster = of_two();
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

#[test]
fn next_owners_compare_only_with_owners_that_know_the_plan() {
    let mut cluster = of_two();
    let table = cluster.table.with_plan(vec![vec![node(3), node(1)]; 2]).unwrap();
    cluster.table = Arc::new(table);
    cluster.node(3).set_view(&cluster.view(node(3))).unwrap();
    let failures = || cluster.node(3).counter(ReplicaCounter::ExchangeFailures);
    until("failures", || failures() > 3);
    assert_eq!(synchronised(&cluster, 3), 0);
    cluster.tell();
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    assert_eq!(keys(&cluster, 3), 200);
}

#[test]
fn comparisons_for_a_cancelled_plan_do_not_count() {
    let mut cluster = of_two();
    plan(&mut cluster, &[3, 1]);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    cluster.network.cut(node(3));
    // Node 3 gets both changes at once.
    let next = vec![vec![node(3), node(1)]; 2];
    cluster.table = Arc::new(cluster.table.cancelled().with_plan(next).unwrap());
    cluster.tell();
    assert_eq!(synchronised(&cluster, 3), 0);
    cluster.network.mend(node(3));
    until("synchronisation", || synchronised(&cluster, 3) == 2);
}

#[test]
fn requests_with_an_outdated_table_are_refused() {
    let mut cluster = of_two();
    let refused = |cluster: &Cluster, number: u32, operation: ReplicaOperation, epoch: u64| {
        let (sender, receiver) = mpsc::channel();
        let epoch = NonZeroU64::new(epoch);
        let request = ReplicaRequest {
            epoch,
            ..request(operation)
        };
        cluster
            .node(number)
            .request(request, move |reply| drop(sender.send(reply)));
        let error = match receiver.recv_timeout(PATIENCE).unwrap() {
            ReplicaReply::Error(error) => Some(error),
            ReplicaReply::Records(mut records) => records.pop().unwrap().err(),
            _ => None,
        };
        error.map(|error| error.code)
    };
    let read = || ReplicaOperation::Get {
        part: RecordPart::Full,
        keys: vec!["k1".into()],
    };
    let write = || putting("k1", value("b"));
    let old = Some(ReplicaErrorCode::OldTable);
    assert_eq!(refused(&cluster, 1, write(), 1), None);
    plan(&mut cluster, &[3, 1]);
    assert_eq!(refused(&cluster, 1, read(), 1), None);
    assert_eq!(refused(&cluster, 1, write(), 1), old);
    let record = put(cluster.node(2), "k1", value("c"));
    assert_eq!(refused(&cluster, 1, merging("k1", record.clone()), 1), old);
    assert_eq!(
        refused(&cluster, 1, merging("k1", record), 0),
        None,
        "a merge without an epoch is not counted"
    );
    assert_eq!(refused(&cluster, 3, write(), 2), None);
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    cluster.table = Arc::new(cluster.table.switched());
    cluster.tell();
    for number in [1, 2, 3] {
        assert_eq!(refused(&cluster, number, read(), 2), old);
        assert_eq!(refused(&cluster, number, write(), 2), None);
        assert_eq!(refused(&cluster, number, read(), 3), None);
    }
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    assert_eq!(refused(&cluster, 3, read(), 3), None);
    assert_eq!(refused(&cluster, 2, read(), 3), Some(ReplicaErrorCode::NotHere));
    let counted = |number| cluster.node(number).counter(ReplicaCounter::OldTables);
    assert_eq!([counted(1), counted(2)], [3, 1]);
}

#[test]
fn memory_answers_only_owners_with_the_same_table() {
    let mut cluster = of_two();
    let slot = fondaco_model::slot_of_key(&crate::cluster::store(), b"k1");
    let tells = |cluster: &Cluster, number: u32, epoch: u64| {
        let (mut is_told, keys) = (false, std::iter::once((slot, &b"k1"[..])));
        let node = cluster.node(number);
        node.recall(STORE_ID, keys, epoch, |_, state| {
            is_told = !matches!(state, Recalled::Unknown);
            true
        });
        is_told
    };
    assert!(tells(&cluster, 1, 1));
    plan(&mut cluster, &[3, 1]);
    assert!(tells(&cluster, 2, 1) && !tells(&cluster, 3, 2));
    until("synchronisation", || synchronised(&cluster, 3) == 2);
    cluster.table = Arc::new(cluster.table.switched());
    cluster.tell();
    assert!(tells(&cluster, 3, 3) && !tells(&cluster, 3, 2) && !tells(&cluster, 2, 3));
}

#[test]
fn a_store_that_evicts_moves_without_comparison() {
    let mut cluster = Cluster::forgetting(3, 2, &busy());
    cluster.replicas = 2;
    cluster.tell();
    let long = "v".repeat(4096);
    for round in 0..3 {
        for number in 0..200 {
            let key = format!("k{number}");
            let record = put(cluster.node(1), &key, value(&format!("{long}{round}")));
            ask(cluster.node(2), merging(&key, record));
        }
    }
    let status = cluster.node(1).status(STORE_ID).unwrap();
    assert!(status.trees_missing == 0 && status.keys < 100, "{status:?}");
    plan(&mut cluster, &[3, 1]);
    assert_eq!(synchronised(&cluster, 3), 2);
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    until("clearing", || cluster.node(2).status(STORE_ID).unwrap().surplus == 0);
    assert_eq!(cluster.node(1).counter(ReplicaCounter::Exchanges), 0);
}
