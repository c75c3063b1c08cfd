//! Records that wait for another node.

use std::sync::{Arc, mpsc};

use fondaco_engine::{Engine, MemoryEngine, WriteBatch};
use fondaco_model::versioned::EngineKind;
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::ReplicaCounter;

use crate::cluster::{Cluster, ask, node, pair, put, quiet, request, store, until, value};
use crate::unreadable::UnreadableEngine;

/// A cluster of three, of which node 3 is away, and node 2 keeps so many hints for it.
fn with_hints(dir: &std::path::Path, count: usize) -> Cluster {
    let mut cluster = Cluster::in_memory(dir, 3, 4, &quiet());
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
fn hints_wait_until_their_node_is_there_and_are_gone_when_it_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 1000);
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
fn a_node_that_is_said_to_be_there_and_is_not_gets_its_hints_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 10);
    // The network is still cut.
    cluster.set_live(node(3), true);
    cluster.network.mend(node(3));
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(3, "k9"), ["a"]);
}

#[test]
fn hints_of_one_key_are_one_and_have_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 1);
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
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 0);
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    cluster.stop(node(2));
    cluster.start(dir.path(), node(2), &quiet(), |_| Arc::clone(&engine));
    let record = put(cluster.node(1), "k", value("a"));
    hint(&cluster, "k", record);
    cluster.stop(node(2));
    cluster.start(dir.path(), node(2), &quiet(), |_| Arc::clone(&engine));
    until("the book of hints", || cluster.node(2).hinted_nodes() == 1);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(3, "k"), ["a"]);
}

#[test]
fn a_hint_for_a_node_that_no_longer_owns_the_partition_goes_to_who_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 0);
    // Node 2 alone has this write, and for node 3.
    let record = put(cluster.node(2), "k", value("a"));
    hint(&cluster, "k", record);
    let next = vec![vec![node(1)]; 4];
    cluster.table = Arc::new(cluster.table.with_plan(next).unwrap().finished());
    cluster.tell();
    until("the delivery", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.values(1, "k"), ["a"]);
}

/// Two stores, and a node that keeps a hint for node 3 of each, which it could not deliver yet.
fn with_two_stores(dir: &std::path::Path) -> Cluster {
    let mut cluster = Cluster::in_memory(dir, 3, 4, &quiet());
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

/// While a node cannot open the first of two stores, hints of that wait, and those of the other do not.
fn waits_for_one_store(number: u32) {
    let dir = tempfile::tempdir().unwrap();
    let cluster = with_two_stores(dir.path());
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
fn hints_of_a_store_that_cannot_be_opened_wait_and_no_others() {
    waits_for_one_store(2);
}

#[test]
fn hints_of_a_store_that_their_node_cannot_open_wait_and_no_others() {
    waits_for_one_store(3);
}

#[test]
fn hints_of_a_store_that_was_dropped_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 10);
    cluster.stores.clear();
    cluster.tell();
    until("the purge", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 0);
}

#[test]
fn a_hint_that_is_refused_keeps_no_other_from_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 1000);
    cluster.network.refuse("k500", true);
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    let delivered = || cluster.node(2).counter(ReplicaCounter::HintsDelivered);
    until("the delivery of all others", || delivered() == 999);
    assert_eq!(cluster.node(2).hinted_nodes(), 1, "it is kept");
    cluster.network.refuse("k500", false);
    until("its delivery", || delivered() == 1000);
    assert_eq!(cluster.values(3, "k500"), ["a"]);
}

/// A cluster of three, in which node 2 keeps hints of keys `k0` to `k999` for node 3 by this engine, and has started since.
fn kept_by(dir: &std::path::Path, engine: &Arc<dyn Engine>, spoil: impl Fn(&Cluster)) -> Cluster {
    let mut cluster = with_hints(dir, 0);
    let start = |cluster: &mut Cluster| {
        cluster.stop(node(2));
        cluster.start(dir, node(2), &quiet(), |_| Arc::clone(engine));
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

/// Node 3 comes back, and gets all hints but those of so many keys, and those from node 1 by comparison.
fn all_but(mut cluster: Cluster, damaged: u64) {
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    // Then nothing keeps deletions from being forgotten either.
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
fn hints_that_rot_are_dropped_and_keep_no_others_from_their_way() {
    let dir = tempfile::tempdir().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let cluster = kept_by(dir.path(), &engine, |_| {
        let table = engine.open_table("hints-2").unwrap();
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
    // k77, k177, …, k977.
    let watched = Arc::clone(cluster.node(2));
    all_but(cluster, 10);
    assert_eq!(watched.counter(ReplicaCounter::HintsDamaged), 10);
}

#[test]
fn hints_that_cannot_be_read_are_dropped_and_keep_no_others_from_their_way() {
    let dir = tempfile::tempdir().unwrap();
    let unreadable = Arc::new(UnreadableEngine::default());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(dir.path(), &engine, |_| {
        assert_eq!(
            unreadable.spoil(|table, key| table == "hints-2" && key.ends_with(b"77")),
            10
        );
    });
    let watched = Arc::clone(cluster.node(2));
    all_but(cluster, 10);
    assert_eq!(watched.counter(ReplicaCounter::HintsDamaged), 10);
    assert_eq!(unreadable.bad(), 0);
}

#[test]
fn a_part_of_the_hints_that_cannot_be_read_keeps_no_others_from_their_way() {
    let dir = tempfile::tempdir().unwrap();
    let unreadable = Arc::new(UnreadableEngine::of_blocks());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(dir.path(), &engine, |_| {
        assert_eq!(
            unreadable.spoil(|table, key| table == "hints-2" && key.ends_with(b"k5")),
            1
        );
    });
    all_but(cluster, 1);
}

#[test]
fn a_hint_that_takes_the_place_of_a_damaged_one_is_taken_and_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let unreadable = Arc::new(UnreadableEngine::default());
    let engine: Arc<dyn Engine> = Arc::clone(&unreadable) as Arc<dyn Engine>;
    let cluster = kept_by(dir.path(), &engine, |cluster| {
        unreadable.spoil(|table, key| table == "hints-2" && key.ends_with(b"k5"));
        hint(cluster, "k5", put(cluster.node(1), "k5", value("a")));
    });
    all_but(cluster, 0);
}

#[test]
fn a_store_that_gets_the_number_and_name_of_one_that_was_dropped_gets_none_of_its_hints() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 10);
    // Node 2 never hears of a cluster without the store.
    cluster.created_unix_ms += 1;
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("the purge", || cluster.node(2).hinted_nodes() == 0);
    assert_eq!(cluster.node(2).counter(ReplicaCounter::HintsDelivered), 0);
    assert_eq!(cluster.record(3, "k0"), None);
    // It has hints of its own.
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
fn hints_that_are_for_others_now_do_not_wait_for_those_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = with_hints(dir.path(), 1000);
    // Of the last partition node 3 is no owner any more, and node 2 alone has what is in it.
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
