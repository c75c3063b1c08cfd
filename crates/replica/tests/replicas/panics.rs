//! A panic in a write fails that write, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};
use fondaco_simulation::FaultyDisk;
use fondaco_testing::until;

use crate::cluster::{Cluster, ask, put, putting, quiet, value};

#[test]
fn a_panicking_write_fails_and_later_ones_succeed() {
    let panics_next = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&panics_next);
    let engine = FaultyDisk::writing(move |memory, batch| {
        memory.write(batch)?;
        assert!(!panics.swap(false, SeqCst), "told to");
        Ok(())
    });
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let cluster = Cluster::of(2, 1, &options, |dir| match dir.ends_with("1") {
        true => Arc::new(engine.clone()),
        false => Arc::new(MemoryEngine::new()),
    });
    put(cluster.node(1), "before", value("a"));
    panics_next.store(true, SeqCst);
    match ask(cluster.node(1), putting("k", value("a"))) {
        ReplicaReply::Error(error) => assert_eq!(error.code, ReplicaErrorCode::Other),
        other => panic!("{other:?}"),
    }
    until("the count", || cluster.node(1).counter(ReplicaCounter::Panics) == 1);
    put(cluster.node(1), "after", value("a"));
    // It was written nevertheless: the hash tree is built from the table, not from what was known.
    until("the other replica to have it", || cluster.values(2, "k") == ["a"]);
    assert_eq!(cluster.values(1, "before"), ["a"]);
    assert_eq!(cluster.values(1, "after"), ["a"]);
}
