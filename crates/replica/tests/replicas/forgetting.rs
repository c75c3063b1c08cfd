//! Tombstones and expired records are collected when all replicas have them, and deleted values never come back.

use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::{Update, VersionedSettings};
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, PATIENCE, STORE_ID, ask, merging, node, now_unix_ms, pair, put, quiet, request, value};

/// All background work, continuously.
fn busy() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(30),
        sweep_period: Duration::from_millis(30),
        ..quiet()
    }
}

/// A cluster whose store has this grace period.
fn with_grace(nodes: u32, grace_ms: u64) -> Cluster {
    let mut cluster = Cluster::in_memory(nodes, 2, &busy());
    cluster.settings = VersionedSettings {
        tombstone_grace_ms: grace_ms,
        // Swept as often as the options say, even with a long grace period.
        ttl_ms: Some(1),
        ..cluster.settings
    };
    cluster.tell();
    cluster
}

fn write_everywhere(cluster: &Cluster, key: &str, update: Update) -> Bytes {
    let record = put(cluster.node(1), key, update);
    for &id in cluster.nodes.keys().skip(1) {
        assert_eq!(
            ask(cluster.node(id.get()), merging(key, record.clone())),
            ReplicaReply::Done
        );
    }
    record
}

#[test]
fn all_replicas_collect_a_tombstone_once_all_have_it() {
    let cluster = with_grace(3, 50);
    write_everywhere(&cluster, "k", value("a"));
    write_everywhere(&cluster, "stays", value("b"));
    put(cluster.node(2), "k", Update::delete(now_unix_ms()));
    until("forgetting", || {
        (1..=3).all(|number| cluster.record(number, "k").is_none())
    });
    assert!((1..=3).all(|number| cluster.values(number, "stays") == ["b"]));
    assert!(cluster.node(1).counter(ReplicaCounter::Collected) >= 1);
}

#[test]
fn a_single_node_collects_tombstones_too() {
    let cluster = with_grace(1, 50);
    put(cluster.node(1), "k", value("a"));
    put(cluster.node(1), "k", Update::delete(now_unix_ms()));
    until("forgetting", || cluster.record(1, "k").is_none());
}

#[test]
fn an_expired_record_is_collected() {
    let cluster = with_grace(2, 50);
    let now = now_unix_ms();
    write_everywhere(&cluster, "k", Update::put("a".into(), now, Some(now + 100)));
    write_everywhere(&cluster, "later", Update::put("a".into(), now, Some(now + 3_600_000)));
    until("forgetting", || {
        (1..=2).all(|number| cluster.record(number, "k").is_none())
    });
    assert!((1..=2).all(|number| cluster.record(number, "later").is_some()));
    write_everywhere(&cluster, "endless", value("a"));
    let expiring = |number| cluster.node(number).status(STORE_ID).unwrap().expiring;
    until("the count of expiring keys", || {
        (1..=2).all(|number| expiring(number) == 1)
    });
}

#[test]
fn expired_records_are_kept_without_their_values() {
    let cluster = with_grace(2, 10 * 86_400_000);
    let now = now_unix_ms();
    let value_bytes = |number, key| cluster.record(number, key).unwrap().value_bytes();
    let long = Bytes::from(vec![7; 10_000]);
    write_everywhere(&cluster, "k", Update::put(long.clone(), now, Some(now - 7_200_000)));
    write_everywhere(&cluster, "just now", Update::put(long, now, Some(now)));
    until("the end of the value", || {
        (1..=2).all(|number| value_bytes(number, "k") == 0)
    });
    assert!((1..=2).all(|number| value_bytes(number, "just now") == 10_000));
    assert!(cluster.node(1).counter(ReplicaCounter::Expired) >= 1);
    // Nothing is exchanged back and forth: both have the same.
    until("the same", || cluster.record(1, "k") == cluster.record(2, "k"));
}

#[test]
fn tombstones_beyond_the_limit_are_collected_in_later_sweeps() {
    let options = ReplicaOptions {
        sweep_records_max: 8,
        ..busy()
    };
    let mut cluster = Cluster::in_memory(2, 2, &options);
    cluster.settings.tombstone_grace_ms = 1;
    cluster.tell();
    let keys: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
    for key in &keys {
        write_everywhere(&cluster, key, Update::delete(now_unix_ms()));
    }
    let collected = || cluster.node(1).counter(ReplicaCounter::Collected);
    let swept = || cluster.node(1).counter(ReplicaCounter::Sweeps);
    let mut before = (swept(), collected());
    until("forgetting", || {
        let now = (swept(), collected());
        // At most four of each partition, in each of its sweeps.
        assert!(now.1 - before.1 <= 4 * (now.0 - before.0 + 2), "{before:?} {now:?}");
        before = now;
        keys.iter().all(|key| cluster.record(1, key).is_none())
    });
}

#[test]
fn a_tombstone_is_kept_during_its_grace_period() {
    const GRACE_MS: u64 = 3000;
    let cluster = with_grace(2, GRACE_MS);
    write_everywhere(&cluster, "k", value("a"));
    let deleted_unix_ms = now_unix_ms();
    write_everywhere(&cluster, "k", Update::delete(deleted_unix_ms));
    until("the end of it", || {
        (1..=2).all(|number| cluster.record(number, "k").is_none())
    });
    assert!(now_unix_ms() >= deleted_unix_ms + GRACE_MS);
}

/// Asserts that node 1 collects nothing during many sweeps.
fn remembers(cluster: &Cluster, key: &str) {
    let swept = || cluster.node(1).counter(ReplicaCounter::Sweeps);
    let before = swept();
    until("sweeps", || swept() > before + 10);
    assert!(cluster.record(1, key).is_some());
}

#[test]
fn nothing_is_collected_while_a_replica_is_away() {
    let mut cluster = with_grace(3, 50);
    write_everywhere(&cluster, "k", value("a"));
    cluster.set_live(node(3), false);
    cluster.network.cut(node(3));
    let deleted = put(cluster.node(1), "k", Update::delete(now_unix_ms()));
    ask(cluster.node(2), merging("k", deleted));
    remembers(&cluster, "k");
    cluster.network.mend(node(3));
    cluster.set_live(node(3), true);
    until("forgetting", || {
        (1..=3).all(|number| cluster.record(number, "k").is_none())
    });
    remembered_nowhere(&cluster);
}

#[test]
fn nothing_is_collected_while_an_older_hint_waits() {
    let mut cluster = with_grace(3, 50);
    // It would outlive its tombstone.
    let now = now_unix_ms();
    let lasting = Update::put("a".into(), now, Some(now + 3_600_000));
    let old = write_everywhere(&cluster, "k", lasting);
    cluster.network.cut(node(3));
    let operation = ReplicaOperation::Hint {
        target: node(3),
        records: vec![pair("k", old)],
    };
    assert_eq!(ask(cluster.node(2), operation), ReplicaReply::Done);
    let deleted = put(cluster.node(1), "k", Update::delete(now_unix_ms()));
    ask(cluster.node(2), merging("k", deleted.clone()));
    ask(cluster.node(3), merging("k", deleted));
    remembers(&cluster, "k");
    cluster.network.mend(node(3));
    cluster.tell();
    until("forgetting", || {
        (1..=3).all(|number| cluster.record(number, "k").is_none())
    });
    remembered_nowhere(&cluster);
    cluster.stop(node(3));
}

#[test]
fn a_dead_node_blocks_collection_until_it_owns_nothing() {
    let mut cluster = with_grace(3, 50);
    write_everywhere(&cluster, "k", value("a"));
    cluster.network.cut(node(3));
    cluster.set_live(node(3), false);
    let delete = |cluster: &Cluster, key: &str| {
        let deleted = put(cluster.node(1), key, Update::delete(now_unix_ms()));
        ask(cluster.node(2), merging(key, deleted));
    };
    delete(&cluster, "k");
    remembers(&cluster, "k");
    // While a plan would remove the node, it still counts: the plan may be cancelled.
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(1), node(2)]; 2]).unwrap());
    cluster.tell();
    remembers(&cluster, "k");
    cluster.table = Arc::new(cluster.table.finished());
    cluster.replicas = 2;
    cluster.tell();
    let forgotten = |cluster: &Cluster, key: &str| (1..=2).all(|number| cluster.record(number, key).is_none());
    until("forgetting", || forgotten(&cluster, "k"));
    // It is live, and does not report its hints.
    delete(&cluster, "l");
    cluster.set_live(node(3), true);
    delete(&cluster, "m");
    remembers(&cluster, "m");
    cluster.set_live(node(3), false);
    until("forgetting", || forgotten(&cluster, "l") && forgotten(&cluster, "m"));
}

fn remembered_nowhere(cluster: &Cluster) {
    let exchanged = || cluster.node(1).counter(ReplicaCounter::Exchanges);
    let before = exchanged();
    until("exchanges", || exchanged() > before + 10);
    assert!(
        (1..=3).all(|number| cluster.record(number, "k").is_none()),
        "the deleted value came back"
    );
}

#[test]
fn an_old_tombstone_is_not_merged_into_an_absent_key() {
    let cluster = with_grace(2, 0);
    cluster.network.cut(node(1));
    let deleted = put(cluster.node(1), "k", Update::delete(1000));
    assert_eq!(ask(cluster.node(2), merging("k", deleted.clone())), ReplicaReply::Done);
    assert_eq!(cluster.record(2, "k"), None);
    // Except for a coordinator that counts on it: its clock may be right, and this one wrong.
    let counted = ReplicaRequest {
        epoch: NonZeroU64::new(cluster.table.epoch()),
        ..request(merging("k", deleted))
    };
    let (sender, receiver) = mpsc::channel();
    cluster.node(2).request(counted, move |reply| drop(sender.send(reply)));
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), ReplicaReply::Done);
    assert!(cluster.record(2, "k").is_some());
}

#[test]
fn a_fast_clock_drops_no_value_for_good() {
    let cluster = with_grace(2, 10 * 86_400_000);
    // Each node sees the other's clock so.
    cluster.network.set_behind_ms(3 * 3_600_000);
    let swept = |number| cluster.node(number).counter(ReplicaCounter::Sweeps);
    let sweeps = |more: u64| {
        let before = [swept(1), swept(2)];
        until("sweeps", || {
            swept(1) >= before[0] + more && swept(2) >= before[1] + more
        });
    };
    // Then those that had begun before are over: one of each partition.
    sweeps(2);
    let now = now_unix_ms();
    write_everywhere(&cluster, "k", Update::put("a".into(), now, Some(now - 7_200_000)));
    remembers(&cluster, "k");
    assert!((1..=2).all(|number| cluster.values(number, "k") == ["a"]));
    // A node that gets no reply knows no other clock.
    cluster.network.set_behind_ms(0);
    cluster.network.cut(node(2));
    sweeps(11);
    // Sweeps that had begun before may have dropped the value.
    write_everywhere(&cluster, "l", Update::put("a".into(), now, Some(now - 7_200_000)));
    remembers(&cluster, "l");
    assert!((1..=2).all(|number| cluster.values(number, "l") == ["a"]));
    cluster.network.mend(node(2));
    until("the end of the values", || {
        (1..=2).all(|number| cluster.values(number, "l").is_empty() && cluster.values(number, "k").is_empty())
    });
}
