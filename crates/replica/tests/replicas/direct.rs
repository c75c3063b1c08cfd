//! Direct writes: of keys that only one node owns, made without a coordinator.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::Engine;
use fondaco_model::versioned::{Durability, Record, Resolution, Update};
use fondaco_protocol::replica::ReplicaErrorCode;
use fondaco_replica::{DirectEnd, DirectPlace, DirectWrite, Replicas};
use fondaco_simulation::FaultyDisk;

use crate::cluster::{Cluster, PATIENCE, STORE_ID, node, now_unix_ms, put, quiet, value};
use crate::loops::in_one_turn;

/// A write that appends to the present value.
pub struct Appending(pub &'static str);

impl DirectWrite for Appending {
    fn looks(&self) -> bool {
        true
    }

    fn decide(&mut self, current: &Record, now_unix_ms: u64) -> Option<Update> {
        let before = current.siblings().last().and_then(|sibling| sibling.value.as_deref());
        let after = [before.unwrap_or_default(), self.0.as_bytes()].concat();
        (!self.0.is_empty()).then(|| Update::put(after.into(), now_unix_ms, None))
    }

    fn decide_damaged(&mut self, now_unix_ms: u64) -> Option<Update> {
        let tail = self.0.strip_prefix("whole:")?;
        Some(Update::put(tail.into(), now_unix_ms, None))
    }
}

pub fn place(replicas: &Replicas, key: &str) -> Option<DirectPlace> {
    let slot = fondaco_model::slot_of_key(&crate::cluster::store(), key.as_bytes());
    replicas.direct_place(STORE_ID, slot, Bytes::copy_from_slice(key.as_bytes()))
}

/// Appends to keys in one turn of a loop, and waits for the outcomes.
pub fn append(replicas: &Arc<Replicas>, writes: &[(&str, &'static str)]) -> Vec<DirectEnd> {
    let writes = writes.iter().map(|(key, tail)| (place(replicas, key).unwrap(), *tail));
    append_at(replicas, writes.collect(), PATIENCE)
}

fn append_at(replicas: &Arc<Replicas>, writes: Vec<(DirectPlace, &'static str)>, timeout: Duration) -> Vec<DirectEnd> {
    in_one_turn(replicas, Vec::new(), writes, timeout).1
}

#[test]
fn complete_values_replace_unreadable_records() {
    let unreadable = Arc::new(FaultyDisk::cold());
    let cluster = Cluster::of(1, 1, &quiet(), |_| Arc::clone(&unreadable) as Arc<dyn Engine>);
    put(cluster.node(1), "k", value("a"));
    assert_eq!(unreadable.spoil_where(|_, key| key.ends_with(b"k")), 1);
    let ends = append(cluster.node(1), &[("k", "b")]);
    assert!(
        matches!(&ends[..], [DirectEnd::Refused(error)] if error.code == ReplicaErrorCode::Corrupt),
        "{ends:?}"
    );
    assert_eq!(append(cluster.node(1), &[("k", "whole:c")]), [DirectEnd::Done]);
    assert_eq!(append(cluster.node(1), &[("k", "d")]), [DirectEnd::Done]);
    assert_eq!(cluster.values(1, "k"), ["cd"]);
}

#[test]
fn concurrent_writers_of_a_key_see_all_earlier_writes() {
    const WRITES: usize = 300;
    let cluster = Cluster::in_memory(1, 1, &quiet());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let ends = append(cluster.node(1), &[("k", "x"); WRITES]);
                assert!(ends.iter().all(|end| *end == DirectEnd::Done), "{ends:?}");
            });
        }
    });
    assert_eq!(cluster.values(1, "k"), ["x".repeat(4 * WRITES)]);
}

#[test]
fn each_write_replaces_the_earlier_ones() {
    let mut cluster = Cluster::in_memory(1, 1, &quiet());
    for durability in [Durability::Log, Durability::Fsync] {
        cluster.settings.durability = durability;
        cluster.settings.resolution = Resolution::All;
        cluster.tell();
        let key = durability.as_str();
        put(cluster.node(1), key, value("a"));
        let ends = append(cluster.node(1), &[(key, "b"), ("other", "x"), (key, ""), (key, "c")]);
        assert_eq!(ends, vec![DirectEnd::Done; 4]);
        assert_eq!(cluster.values(1, key), ["abc"], "there are no siblings");
        let record = cluster.record(1, key).unwrap();
        assert!(record.siblings()[0].written_unix_ms <= now_unix_ms() + 3);
    }
    assert_eq!(cluster.values(1, "other"), ["xx"]);
}

#[test]
fn keys_that_involve_other_nodes_are_left_to_coordinators() {
    let mut cluster = Cluster::in_memory(2, 1, &quiet());
    assert!(place(cluster.node(1), "k").is_none(), "both nodes own it");
    cluster.replicas = 1;
    cluster.settings.reads = 1;
    cluster.settings.writes = 1;
    cluster.tell();
    assert!(place(cluster.node(1), "k").is_some());
    assert!(place(cluster.node(1), "").is_none(), "no key");
    assert!(place(cluster.node(2), "k").is_none(), "the node does not own it");
    for settings in [(2, 1), (1, 2)] {
        (cluster.settings.reads, cluster.settings.writes) = settings;
        cluster.tell();
        assert!(place(cluster.node(1), "k").is_none(), "{settings:?}");
    }
    (cluster.settings.reads, cluster.settings.writes) = (1, 1);
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(2), node(1)]]).unwrap());
    cluster.tell();
    assert!(place(cluster.node(1), "k").is_none(), "it is being moved");
}

#[test]
fn a_write_is_refused_once_its_partition_moves() {
    let mut cluster = Cluster::in_memory(1, 1, &quiet());
    let place = place(cluster.node(1), "k").unwrap();
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(2)]]).unwrap());
    cluster.tell();
    let ends = append_at(cluster.node(1), vec![(place, "a")], PATIENCE);
    let [DirectEnd::Refused(error)] = &ends[..] else {
        panic!("{ends:?}")
    };
    assert_eq!(error.code, ReplicaErrorCode::NotHere);
    assert_eq!(cluster.record(1, "k"), None);
}

#[test]
fn a_write_that_does_not_begin_in_time_is_refused() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let writes = ["k", "l"].map(|key| (place(cluster.node(1), key).unwrap(), "a"));
    let ends = append_at(cluster.node(1), writes.into(), Duration::ZERO);
    let is_late = |end: &DirectEnd| matches!(end, DirectEnd::Refused(error) if error.code == ReplicaErrorCode::Timeout);
    assert!(ends.len() == 2 && ends.iter().all(is_late), "{ends:?}");
    assert_eq!(cluster.record(1, "k"), None);
}
