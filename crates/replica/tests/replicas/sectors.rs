//! Bad sectors: unreadable records and ranges of tables. They block nothing else, and are repaired from the other
//! replicas.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::versioned::{Record, Resolution, Update};
use fondaco_protocol::replica::{Held, RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_simulation::FaultyDisk;
use fondaco_testing::until;

use crate::cluster::{Cluster, STORE_ID, ask, merging, node, now_unix_ms, put, putting, quiet, value};

const KEYS: usize = 200;

fn key(number: usize) -> String {
    format!("k{number}")
}

/// Whether the sector with the record of this key of a table is bad.
fn is_bad(table: &str, key: &[u8]) -> bool {
    // About twenty keys.
    table.starts_with("store-") && key.ends_with(b"7")
}

/// A cluster of two nodes that both have all keys; then node 1, with this engine, restarts and cannot read some.
fn cluster(engine: &Arc<FaultyDisk>, options: &ReplicaOptions) -> Cluster {
    let of_first = |dir: &Path| match dir.ends_with("1") {
        true => Arc::clone(engine) as Arc<dyn Engine>,
        false => Arc::new(MemoryEngine::new()),
    };
    let mut cluster = Cluster::of(2, 1, options, of_first);
    for number in 0..KEYS {
        let record = put(cluster.node(2), &key(number), value("a"));
        assert_eq!(ask(cluster.node(1), merging(&key(number), record)), ReplicaReply::Done);
    }
    cluster.network.cut(node(2));
    cluster.stop(node(1));
    assert!(engine.spoil_where(is_bad) > 10);
    cluster.start(node(1), options, of_first);
    cluster
}

fn read(cluster: &Cluster, key: &str) -> Result<Held, ReplicaErrorCode> {
    let operation = ReplicaOperation::Get {
        part: RecordPart::Full,
        keys: vec![key.to_owned().into()],
    };
    match ask(cluster.node(1), operation) {
        ReplicaReply::Records(mut found) => found.pop().unwrap().map_err(|error| error.code),
        other => panic!("{other:?}"),
    }
}

fn is_read(cluster: &Cluster, key: &str) -> bool {
    matches!(read(cluster, key), Ok(Held::Record(_)))
}

fn are_no_obstacle(engine: FaultyDisk) {
    let engine = Arc::new(engine);
    let busy = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        sweep_period: Duration::from_millis(20),
        ..quiet()
    };
    let cluster = cluster(&engine, &busy);
    until("the hash tree", || {
        cluster.node(1).status(STORE_ID).unwrap().trees_missing == 0
    });
    until("a sweep", || cluster.node(1).counter(ReplicaCounter::Sweeps) > 0);
    assert_eq!(read(&cluster, "k7"), Err(ReplicaErrorCode::Corrupt));
    assert!(cluster.node(1).records_damaged() > 0);
    let damage = cluster.node(1).damaged_stores(true);
    assert_eq!(cluster.node(1).damaged_stores(false), [""; 0]);
    assert!(
        matches!(&damage[..], [one] if one.contains("of store \"s\"") && one.contains("from other replicas")),
        "{damage:?}"
    );
    assert!(cluster.node(1).counter(ReplicaCounter::Corruptions) > 0);
    // Readable records are read, and new ones are sent to others.
    assert!(is_read(&cluster, "k8"));
    put(cluster.node(1), "new", value("b"));
    cluster.network.mend(node(2));
    until("the new record", || cluster.values(2, "new") == ["b"]);
    until("healing", || (0..KEYS).all(|number| is_read(&cluster, &key(number))));
    assert_eq!(engine.unreadable().len(), 0);
    assert!((0..KEYS).all(|number| cluster.record(1, &key(number)) == cluster.record(2, &key(number))));
    until("the count of damaged records", || {
        cluster.node(1).records_damaged() == 0
    });
}

#[test]
fn unreadable_records_block_nothing_and_are_repaired() {
    are_no_obstacle(FaultyDisk::cold());
}

#[test]
fn unreadable_ranges_of_a_table_block_nothing_and_are_repaired() {
    are_no_obstacle(FaultyDisk::in_blocks());
}

fn move_away(engine: FaultyDisk) {
    let engine = Arc::new(engine);
    let mut cluster = cluster(&engine, &quiet());
    cluster.network.mend(node(2));
    cluster.replicas = 1;
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(2)]]).unwrap().finished());
    cluster.tell();
    until("the partition to be given away", || {
        let status = cluster.node(1).status(STORE_ID).unwrap();
        status.held.is_empty() && status.surplus == 0
    });
    assert_eq!(cluster.values(2, "k7"), ["a"]);
}

#[test]
fn a_partition_with_unreadable_records_can_be_moved() {
    move_away(FaultyDisk::cold());
}

#[test]
fn a_partition_with_unreadable_ranges_can_be_moved() {
    move_away(FaultyDisk::in_blocks());
}

fn alone(engine: FaultyDisk) {
    let engine = Arc::new(engine);
    let mut cluster = Cluster::of(1, 1, &quiet(), |_| Arc::clone(&engine) as Arc<dyn Engine>);
    for key in ["set", "deleted", "added"] {
        put(cluster.node(1), key, value("1"));
    }
    assert_eq!(engine.spoil_where(|table, _| table.starts_with("store-")), 3);
    let refused = |key: &str, update: Update| match ask(cluster.node(1), putting(key, update)) {
        ReplicaReply::Error(error) => error.code,
        other => panic!("{other:?}"),
    };
    let now = now_unix_ms();
    // An update that depends on the old value fails.
    assert_eq!(refused("added", Update::add(1, now, None)), ReplicaErrorCode::Corrupt);
    let damage = cluster.node(1).damaged_stores(false);
    assert_eq!(cluster.node(1).damaged_stores(true), [""; 0]);
    assert!(
        matches!(&damage[..], [one] if one.contains("set or delete them")),
        "{damage:?}"
    );
    put(cluster.node(1), "set", value("2"));
    let deleted = put(cluster.node(1), "deleted", Update::delete(now));
    assert!(Record::decode(deleted).unwrap().is_deleted(now));
    assert_eq!(cluster.values(1, "set"), ["2"]);
    put(cluster.node(1), "added", value("5"));
    cluster.settings.resolution = Resolution::Counter;
    cluster.tell();
    put(cluster.node(1), "added", Update::add(1, now, None));
    assert_eq!(engine.unreadable().len(), 0);
    assert_eq!(cluster.node(1).damaged_stores(false), [""; 0]);
}

#[test]
fn a_sole_replica_sets_and_deletes_an_unreadable_key() {
    alone(FaultyDisk::cold());
}

#[test]
fn a_sole_replica_sets_and_deletes_keys_in_unreadable_ranges() {
    alone(FaultyDisk::in_blocks());
}
