//! A panic in a write fails that write, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fondaco_engine::{Engine, EngineError, MemoryEngine, Table, WriteBatch};
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};

use crate::cluster::{Cluster, ask, put, putting, quiet, until, value};

/// An engine that panics on demand.
#[derive(Default)]
struct Defective {
    engine: MemoryEngine,
    panics_next: AtomicBool,
}

impl Engine for Defective {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        self.engine.open_table(name)
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.engine.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.engine.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        self.engine.write(batch)?;
        assert!(!self.panics_next.swap(false, SeqCst), "told to");
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn disk_bytes(&self) -> u64 {
        self.engine.disk_bytes()
    }

    fn is_durable(&self) -> bool {
        self.engine.is_durable()
    }
}

#[test]
fn a_panicking_write_fails_and_later_ones_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Defective::default());
    let of_first = Arc::clone(&engine);
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let cluster = Cluster::of(dir.path(), 2, 1, &options, |dir| match dir.ends_with("1") {
        true => Arc::clone(&of_first) as Arc<dyn Engine>,
        false => Arc::new(MemoryEngine::new()),
    });
    put(cluster.node(1), "before", value("a"));
    engine.panics_next.store(true, SeqCst);
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
