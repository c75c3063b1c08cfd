//! Hinted handoff: records that wait for another node.

use std::sync::{Arc, mpsc};

use fondaco_engine::{Engine, MemoryEngine, WriteBatch};
use fondaco_model::versioned::EngineKind;
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::ReplicaCounter;
use fondaco_simulation::FaultyDisk;
use fondaco_testing::until;

use crate::cluster::{Cluster, ask, node, pair, put, quiet, request, store, value};

/// A cluster of three nodes; node 3 is away, and node 2 keeps this many hints for it.
fn with_hints(count: usize) -> Cluster {
    let mut cluster = Cluster::in_memory(3, 4, &quiet());
    cluster.set_live(node(3), false);
    cluster.network.cut(node(3));
    for number in 0..count {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        hint(&cluster, &key, record);
    }
    cluster
}

fn hint(cluster: &Cluster, key: &str, record: bytes::Bytes) {
    let operation = ReplicaOperation::Hint {
        target: node(3),
        records: vec![pair(key, record)],
    };
    assert_eq!(ask(cluster.node(2), operation), ReplicaReply::Done);
}

#[test]
fn hints_wait_for_their_node_and_are_deleted_after_delivery() {
    let mut cluster = with_hints(1000);
    assert_eq!(cluster.node(2).hinted_nodes(), 1);
    assert!(cluster.node(2).oldest_hint_unix_ms().is_some());
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 0);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.node(2).oldest_hint_unix_ms(), None);
    for number in 0..1000 {
        assert_eq!(cluster.values(3, &format!("k{number}")), ["a"]);
    }
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 1000);
}

#[test]
fn an_unreachable_node_gets_its_hints_later() {
    let mut cluster = with_hints(10);
    // The network is still cut.
    cluster.set_live(node(3), true);
    cluster.network.mend(node(3));
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(3, "k9"), ["a"]);
}

#[test]
fn hints_of_one_key_are_merged_into_one() {
    let mut cluster = with_hints(1);
    let other = put(cluster.node(2), "k0", value("b"));
    hint(&cluster, "k0", other);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    let mut values = cluster.values(3, "k0");
    values.sort();
    assert_eq!(values, ["a", "b"]);
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 1);
}

#[test]
fn hints_outlive_the_process_that_keeps_them() {
    let mut cluster = with_hints(0);
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    cluster.stop(node(2));
    cluster.start(node(2), &quiet(), |_| Arc::clone(&engine));
    let record = put(cluster.node(1), "k", value("a"));
    hint(&cluster, "k", record);
    cluster.stop(node(2));
    cluster.start(node(2), &quiet(), |_| Arc::clone(&engine));
    until("the book of hints", || cluster.node(2).hinted_nodes() == 1);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(3, "k"), ["a"]);
}

#[test]
fn a_hint_for_a_former_owner_goes_to_the_owners() {
    let mut cluster = with_hints(0);
    // Only node 2 has this write, as a hint for node 3.
    let record = put(cluster.node(2), "k", value("a"));
    hint(&cluster, "k", record);
    let next = vec![vec![node(1)]; 4];
    cluster.table = Arc::new(cluster.table.with_plan(next).unwrap().finished());
    cluster.tell();
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(1, "k"), ["a"]);
}

/// Two stores, and a node with a hint of each for node 3 that it could not deliver yet.
fn with_two_stores() -> Cluster {
    let mut cluster = Cluster::in_memory(3, 4, &quiet());
    cluster.stores.push((2, "other"));
    cluster.tell();
    cluster.network.cut(node(3));
    let record = put(cluster.node(1), "k", value("a"));
    hint(&cluster, "k", record.clone());
    let (sender, receiver) = mpsc::channel();
    let of_other = ReplicaRequest {
        store_id: 2,
        store: "other".parse().unwrap(),
        ..request(ReplicaOperation::Hint {
            target: node(3),
            records: vec![pair("k", record)],
        })
    };
    cluster.node(2).request(of_other, move |reply| drop(sender.send(reply)));
    assert_eq!(receiver.recv().unwrap(), ReplicaReply::Done);
    cluster
}

/// While a node cannot open the first of two stores, hints of that store wait, and those of the other do not.
fn waits_for_one_store(number: u32) {
    let cluster = with_two_stores();
    let mut view = cluster.view(node(number));
    view.stores[0].settings.engine = EngineKind::Mysql;
    assert!(cluster.node(number).set_view(&view).is_err(), "there is no such engine");
    let delivered = || cluster.node(2).counter(ReplicaCounter::HintsDelivered);
    cluster.network.mend(node(3));
    until("the delivery", || delivered() == 1);
    assert_eq!(cluster.node(2).hinted_nodes(), 1);
    cluster.tell();
    until("the other delivery", || delivered() == 2);
    assert_eq!(cluster.values(3, "k"), ["a"]);
}

#[test]
fn only_hints_of_an_unopened_store_wait() {
    waits_for_one_store(2);
}

#[test]
fn only_hints_of_a_store_unopened_at_their_node_wait() {
    waits_for_one_store(3);
}

#[test]
fn hints_of_a_dropped_store_are_dropped() {
    let mut cluster = with_hints(10);
    cluster.stores.clear();
    cluster.tell();
    until("the purge", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 0);
}

#[test]
fn a_refused_hint_does_not_block_others() {
    let mut cluster = with_hints(1000);
    cluster.network.refuse("k500", true);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    let delivered = || cluster.node(2).counter(ReplicaCounter::HintsDelivered);
    until("the delivery of all others", || delivered() == 999);
    assert_eq!(cluster.node(2).hinted_nodes(), 1, "the refused hint is kept");
    cluster.network.refuse("k500", false);
    until("its delivery", || delivered() == 1000);
    assert_eq!(cluster.values(3, "k500"), ["a"]);
}

/// A cluster of three nodes, in which node 2 keeps hints of keys `k0` to `k999` for node 3 in this engine, and has
/// restarted since.
fn kept_by(engine: &Arc<dyn Engine>, spoil: impl Fn(&Cluster)) -> Cluster {
    let mut cluster = with_hints(0);
    let start = |cluster: &mut Cluster| {
        cluster.stop(node(2));
        cluster.start(node(2), &quiet(), |_| Arc::clone(engine));
    };
    start(&mut cluster);
    for number in 0..1000 {
        let key = format!("k{number}");
        let record = put(cluster.node(1), &key, value("a"));
        hint(&cluster, &key, record);
    }
    spoil(&cluster);
    start(&mut cluster);
    cluster
}

/// Node 3 comes back, and gets all hints except `damaged` ones, whose records it gets from node 1 by comparison.
fn all_but(mut cluster: Cluster, damaged: u64) {
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    // Then nothing blocks tombstone collection either.
    until("the delivery", || {
        cluster.node(2).hinted_nodes() == 0 && cluster.node(2).oldest_hint_unix_ms().is_none()
    });
    let delivered = cluster.node(2).counter(ReplicaCounter::HintsDelivered);
    assert_eq!(delivered, 1000 - damaged);
    until("the comparison", || {
        (0..1000).all(|number| cluster.values(3, &format!("k{number}")) == ["a"])
    });
}

#[test]
fn corrupt_hints_are_dropped_and_do_not_block_others() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let cluster = kept_by(&engine, |_| {
        let table = engine.open_table("hints-3").unwrap();
        let mut batch = WriteBatch::new();
        for entry in table.scan(&[], None).unwrap() {
            let (key, record) = entry.unwrap();
            if key.ends_with(b"77") {
                let mut rotten = record.to_vec();
                *rotten.last_mut().unwrap() ^= 1;
                batch.put(&*table, key, rotten.into());
            }
        }
        engine.write(batch).unwrap();
    });
    // The keys are k77, k177, …, k977.
    let watched = Arc::clone(cluster.node(2));
    all_but(cluster, 10);
    assert_eq!(watched.counter(ReplicaCounter::HintsDamaged), 10);
}

#[test]
fn unreadable_hints_are_dropped_and_do_not_block_others() {
    let unreadable = Arc::new(FaultyDisk::cold());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(&engine, |_| {
        assert_eq!(
            unreadable.spoil_where(|table, key| table == "hints-3" && key.ends_with(b"77")),
            10
        );
    });
    let watched = Arc::clone(cluster.node(2));
    all_but(cluster, 10);
    assert_eq!(watched.counter(ReplicaCounter::HintsDamaged), 10);
    assert_eq!(unreadable.unreadable().len(), 0);
}

#[test]
fn an_unreadable_range_of_hints_does_not_block_others() {
    let unreadable = Arc::new(FaultyDisk::in_blocks());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(&engine, |_| {
        assert_eq!(
            unreadable.spoil_where(|table, key| table == "hints-3" && key.ends_with(b"k5")),
            1
        );
    });
    all_but(cluster, 1);
}

#[test]
fn a_hint_that_replaces_a_damaged_one_is_delivered() {
    let unreadable = Arc::new(FaultyDisk::cold());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(&engine, |cluster| {
        unreadable.spoil_where(|table, key| table == "hints-3" && key.ends_with(b"k5"));
        hint(cluster, "k5", put(cluster.node(1), "k5", value("a")));
    });
    all_but(cluster, 0);
}

#[test]
fn a_recreated_store_gets_no_hints_of_the_dropped_one() {
    let mut cluster = with_hints(10);
    // Node 2 never gets a cluster state without the store.
    cluster.created_unix_ms += 1;
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the purge", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 0);
    assert_eq!(cluster.record(3, "k0"), None);
    // The new store has hints of its own.
    cluster.set_live(node(3), false);
    cluster.network.cut(node(3));
    let record = put(cluster.node(1), "k0", value("b"));
    hint(&cluster, "k0", record);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(3, "k0"), ["b"]);
}

#[test]
fn hints_with_a_new_owner_overtake_those_that_wait() {
    let mut cluster = with_hints(1000);
    // Node 3 no longer owns the last partition, and only node 2 has its record.
    let partition_of = |key: &String| {
        let slot = fondaco_model::slot_of_key(&store(), key.as_bytes());
        cluster.table.partitions().partition_of(slot).get()
    };
    let mut keys = (0..).map(|number| format!("only{number}"));
    let last = &keys.find(|key| partition_of(key) == 3).unwrap();
    let record = put(cluster.node(2), last, value("a"));
    hint(&cluster, last, record);
    let mut next = vec![vec![node(1), node(2), node(3)]; 4];
    next[3] = vec![node(1), node(2)];
    cluster.table = Arc::new(cluster.table.with_plan(next).unwrap().finished());
    cluster.tell();
    until("the delivery", || {
        cluster.node(2).counter(ReplicaCounter::HintsDelivered) > 0
    });
    until("the record", || cluster.values(1, last) == ["a"]);
    assert_eq!(cluster.node(2).hinted_nodes(), 1, "all others wait");
}
