//! A storage that hangs: dropping a store does not wait for it.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

use fondaco_engine::{Engine, EngineError, MemoryEngine, Table, WriteBatch};
use fondaco_replica::Replicas;

use crate::cluster::{Cluster, PATIENCE, dropped, node, put, putting, quiet, request, until, value};

/// An engine in memory whose operations hang while it is stuck.
#[derive(Default)]
struct StuckEngine {
    inner: MemoryEngine,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stuck: bool,
    /// How many operations hang.
    waiting: usize,
}

impl StuckEngine {
    fn set_stuck(&self, is_stuck: bool) {
        self.state.lock().unwrap().is_stuck = is_stuck;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state = self.changed.wait_while(state, |state| state.is_stuck).unwrap();
        state.waiting -= 1;
    }

    fn has_store(&self) -> bool {
        self.inner
            .tables()
            .unwrap()
            .iter()
            .any(|table| table.starts_with("store-"))
    }
}

impl Engine for StuckEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        self.inner.open_table(name)
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.wait();
        self.inner.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.inner.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        self.wait();
        self.inner.write(batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    fn is_durable(&self) -> bool {
        true
    }
}

fn cluster(dir: &std::path::Path) -> (Cluster, Arc<StuckEngine>) {
    let engine = Arc::new(StuckEngine::default());
    let cluster = Cluster::of(dir, 1, 1, &quiet(), |_| Arc::clone(&engine) as Arc<dyn Engine>);
    put(cluster.node(1), "k", value("a"));
    (cluster, engine)
}

/// Sends the cluster state to a node, and waits for it like for anything else.
fn tell(cluster: &Cluster) -> Result<(), String> {
    let (replicas, view): (Arc<Replicas>, _) = (Arc::clone(cluster.node(1)), cluster.view(node(1)));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || drop(sender.send(replicas.set_view(&view).map_err(|error| error.to_string()))));
    receiver
        .recv_timeout(PATIENCE)
        .expect("set_view must not wait for the storage")
}

#[test]
fn a_dropped_store_is_deleted_after_its_pending_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, engine) = cluster(dir.path());
    engine.set_stuck(true);
    cluster.node(1).request(request(putting("k", value("b"))), drop);
    until("a write that waits", || engine.waiting() == 1);
    cluster.dropped = vec![dropped(&cluster.view(node(1)), false)];
    let stores = std::mem::take(&mut cluster.stores);
    tell(&cluster).unwrap();
    assert!(engine.has_store(), "a write is in progress");
    engine.set_stuck(false);
    until("the deletion", || !engine.has_store());
    cluster.stores = stores;
    tell(&cluster).unwrap();
    assert_eq!(cluster.record(1, "k"), None);
}

#[test]
fn a_restored_store_is_opened_after_its_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, engine) = cluster(dir.path());
    cluster.dropped = vec![dropped(&cluster.view(node(1)), false)];
    let stores = std::mem::take(&mut cluster.stores);
    engine.set_stuck(true);
    tell(&cluster).unwrap();
    until("a deletion that waits", || engine.waiting() == 1);
    cluster.stores = stores;
    let refused = tell(&cluster).unwrap_err();
    assert!(refused.contains("is being deleted"), "{refused}");
    engine.set_stuck(false);
    until("the store", || tell(&cluster).is_ok());
    assert_eq!(cluster.record(1, "k"), None);
    put(cluster.node(1), "k", value("b"));
    assert_eq!(cluster.values(1, "k"), ["b"]);
}
