//! A storage that hangs: dropping a store does not wait for it.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

use fondaco_engine::Engine;
use fondaco_replica::Replicas;
use fondaco_simulation::FaultyDisk;
use fondaco_testing::until;

use crate::cluster::{Cluster, PATIENCE, dropped, node, put, putting, quiet, request, value};

/// A gate at which the operations of an engine wait while it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    /// How many operations wait.
    waiting: usize,
}

impl Gate {
    fn set_shut(&self, is_shut: bool) {
        self.state.lock().unwrap().is_shut = is_shut;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state = self.changed.wait_while(state, |state| state.is_shut).unwrap();
        state.waiting -= 1;
    }
}

fn has_store(engine: &FaultyDisk) -> bool {
    let tables = engine.tables().unwrap();
    tables.iter().any(|table| table.starts_with("store-"))
}

fn cluster() -> (Cluster, FaultyDisk, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let of_engine = Arc::clone(&gate);
    let engine = FaultyDisk::waiting(move || of_engine.pass());
    let cluster = Cluster::of(1, 1, &quiet(), |_| Arc::new(engine.clone()));
    put(cluster.node(1), "k", value("a"));
    (cluster, engine, gate)
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
    let (mut cluster, engine, gate) = cluster();
    gate.set_shut(true);
    cluster.node(1).request(request(putting("k", value("b"))), drop);
    until("a write that waits", || gate.waiting() == 1);
    cluster.dropped = vec![dropped(&cluster.view(node(1)), false)];
    let stores = std::mem::take(&mut cluster.stores);
    tell(&cluster).unwrap();
    assert!(has_store(&engine), "a write is in progress");
    gate.set_shut(false);
    until("the deletion", || !has_store(&engine));
    cluster.stores = stores;
    tell(&cluster).unwrap();
    assert_eq!(cluster.record(1, "k"), None);
}

#[test]
fn a_restored_store_is_opened_after_its_deletion() {
    let (mut cluster, _, gate) = cluster();
    cluster.dropped = vec![dropped(&cluster.view(node(1)), false)];
    let stores = std::mem::take(&mut cluster.stores);
    gate.set_shut(true);
    tell(&cluster).unwrap();
    until("a deletion that waits", || gate.waiting() == 1);
    cluster.stores = stores;
    let refused = tell(&cluster).unwrap_err();
    assert!(refused.contains("is being deleted"), "{refused}");
    gate.set_shut(false);
    until("the store", || tell(&cluster).is_ok());
    assert_eq!(cluster.record(1, "k"), None);
    put(cluster.node(1), "k", value("b"));
    assert_eq!(cluster.values(1, "k"), ["b"]);
}
