//! Writes of keys that one node alone has, made without a coordinator.

use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use fondaco_client::quorum::ReplicaErrorCode;
use fondaco_engine::{Engine, EngineError, Hot, MemoryEngine, Scan, Table, WriteBatch};
use fondaco_model::PartitionId;
use fondaco_model::versioned::{Durability, Record, Resolution, Update};
use fondaco_replica::{DirectEnd, DirectPlace, DirectWrites, Replicas};

use crate::cluster::{Cluster, PATIENCE, STORE_ID, node, now_unix_ms, put, quiet, until, value};
use crate::unreadable::UnreadableEngine;

/// Writes that append to what is there, and say when they are done what came of them.
struct Appending {
    tails: Vec<&'static str>,
    ended: mpsc::Sender<(Vec<DirectEnd>, ThreadId)>,
}

impl DirectWrites for Appending {
    fn looks(&self, _: usize) -> bool {
        true
    }

    fn decide(&mut self, at: usize, current: &Record, now_unix_ms: u64) -> Option<Update> {
        let tail = self.tails[at];
        let before = current.siblings().last().and_then(|sibling| sibling.value.as_deref());
        let after = [before.unwrap_or_default(), tail.as_bytes()].concat();
        (!tail.is_empty()).then(|| Update::put(after.into(), now_unix_ms, None))
    }

    fn decide_damaged(&mut self, at: usize, now_unix_ms: u64) -> Option<Update> {
        let tail = self.tails[at].strip_prefix("whole:")?;
        Some(Update::put(tail.into(), now_unix_ms, None))
    }

    fn end(self: Box<Self>, ends: Vec<DirectEnd>) {
        self.ended.send((ends, thread::current().id())).unwrap();
    }
}

fn place(replicas: &Replicas, key: &str) -> Option<DirectPlace> {
    replicas.direct_place(STORE_ID, PartitionId::new(0), Bytes::copy_from_slice(key.as_bytes()))
}

/// Appends to keys, and waits until that has ended.
pub fn append(replicas: &Replicas, writes: &[(&str, &'static str)]) -> Vec<DirectEnd> {
    let places = writes.iter().map(|(key, _)| place(replicas, key).unwrap()).collect();
    append_at(replicas, places, writes.iter().map(|(_, tail)| *tail).collect())
}

fn append_at(replicas: &Replicas, places: Vec<DirectPlace>, tails: Vec<&'static str>) -> Vec<DirectEnd> {
    let (ended, receiver) = mpsc::channel();
    replicas.write_directly(places, 100, PATIENCE, Box::new(Appending { tails, ended }));
    receiver.recv_timeout(PATIENCE).unwrap().0
}

/// Whether this thread itself appends to a key.
fn appends_itself(replicas: &Replicas, key: &str) -> bool {
    appends_bytes_itself(replicas, key, 100)
}

/// The same of a write that is said to bring so many bytes.
fn appends_bytes_itself(replicas: &Replicas, key: &str, bytes: usize) -> bool {
    let (ended, receiver) = mpsc::channel();
    let (places, tails) = (vec![place(replicas, key).unwrap()], vec!["x"]);
    replicas.write_directly(places, bytes, PATIENCE, Box::new(Appending { tails, ended }));
    let (ends, thread) = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(ends, [DirectEnd::Done]);
    thread == thread::current().id()
}

/// An engine that takes writes at once, and that has nothing in memory that can be asked for without waiting.
struct Cold(MemoryEngine);

struct ColdTable(Arc<dyn Table>);

impl Engine for Cold {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        Ok(Arc::new(ColdTable(self.0.open_table(name)?)))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.0.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.0.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        self.0.write(batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.0.sync()
    }

    fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }
}

impl Table for ColdTable {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.0.get(key)
    }

    fn get_hot(&self, _: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        Ok(Hot::Cold)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        self.0.scan(from, to)
    }

    fn approximate_len(&self) -> u64 {
        self.0.approximate_len()
    }
}

#[test]
fn who_asks_writes_itself_what_need_not_wait_and_leaves_to_the_shard_what_is_to_be_synced() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    cluster.settings.durability = Durability::Log;
    cluster.tell();
    until("the shard to be idle", || appends_itself(cluster.node(1), "k"));
    cluster.settings.durability = Durability::Fsync;
    cluster.tell();
    assert!(!appends_itself(cluster.node(1), "k"));
}

#[test]
fn what_is_long_is_left_to_the_shard() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    cluster.settings.durability = Durability::Log;
    cluster.tell();
    put(cluster.node(1), "long", value(&"x".repeat(1 << 20)));
    until("the shard to be idle", || appends_itself(cluster.node(1), "k"));
    for _ in 0..100 {
        assert!(!appends_bytes_itself(cluster.node(1), "k", 1 << 20));
        assert!(!appends_itself(cluster.node(1), "long"));
    }
}

#[test]
fn what_is_not_in_memory_is_left_to_the_shard() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of(dir.path(), 1, 1, &quiet(), |_| {
        Arc::new(Cold(MemoryEngine::new())) as Arc<dyn Engine>
    });
    cluster.settings.durability = Durability::Log;
    cluster.tell();
    assert!((0..100).all(|_| !appends_itself(cluster.node(1), "k")));
    assert_eq!(cluster.values(1, "k"), ["x".repeat(100)]);
}

#[test]
fn what_is_whole_by_itself_takes_the_place_of_what_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let unreadable = Arc::new(UnreadableEngine::default());
    let cluster = Cluster::of(dir.path(), 1, 1, &quiet(), |_| {
        Arc::clone(&unreadable) as Arc<dyn Engine>
    });
    put(cluster.node(1), "k", value("a"));
    assert_eq!(unreadable.spoil(|_, key| key.ends_with(b"k")), 1);
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
fn of_many_who_write_a_key_at_once_each_sees_what_the_others_wrote() {
    const WRITES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    cluster.settings.durability = Durability::Log;
    cluster.tell();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..WRITES).for_each(|_| {
                    appends_itself(cluster.node(1), "k");
                });
            });
        }
    });
    assert_eq!(cluster.values(1, "k"), ["x".repeat(4 * WRITES)]);
}

#[test]
fn each_sees_those_before_it_and_takes_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    for durability in [Durability::Log, Durability::Fsync] {
        cluster.settings.durability = durability;
        cluster.settings.resolution = Resolution::All;
        cluster.tell();
        let key = durability.as_str();
        put(cluster.node(1), key, value("a"));
        let ends = append(cluster.node(1), &[(key, "b"), ("other", "x"), (key, ""), (key, "c")]);
        assert_eq!(ends, vec![DirectEnd::Done; 4]);
        assert_eq!(
            cluster.values(1, key),
            ["abc"],
            "one value, of which no other is a sibling"
        );
        let record = cluster.record(1, key).unwrap();
        assert!(record.siblings()[0].written_unix_ms <= now_unix_ms() + 3);
    }
    assert_eq!(cluster.values(1, "other"), ["xx"]);
}

#[test]
fn what_another_node_has_or_is_to_have_or_may_be_asked_for_is_left_to_coordinators() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 2, 1, &quiet());
    assert!(place(cluster.node(1), "k").is_none(), "both have it");
    cluster.replicas = 1;
    cluster.settings.reads = 1;
    cluster.settings.writes = 1;
    cluster.tell();
    assert!(place(cluster.node(1), "k").is_some());
    assert!(place(cluster.node(1), "").is_none(), "no key");
    assert!(place(cluster.node(2), "k").is_none(), "it has no part of it");
    for settings in [(2, 1), (1, 2)] {
        (cluster.settings.reads, cluster.settings.writes) = settings;
        cluster.tell();
        assert!(place(cluster.node(1), "k").is_none(), "{settings:?}");
    }
    (cluster.settings.reads, cluster.settings.writes) = (1, 1);
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(2), node(1)]]).unwrap());
    cluster.tell();
    assert!(place(cluster.node(1), "k").is_none(), "it is on its way");
}

#[test]
fn what_has_begun_to_move_since_the_place_was_found_is_refused_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    let places = vec![place(cluster.node(1), "k").unwrap()];
    cluster.table = Arc::new(cluster.table.with_plan(vec![vec![node(2)]]).unwrap());
    cluster.tell();
    let ends = append_at(cluster.node(1), places, vec!["a"]);
    let [DirectEnd::Refused(error)] = &ends[..] else {
        panic!("{ends:?}")
    };
    assert_eq!(error.code, ReplicaErrorCode::NotHere);
    assert_eq!(cluster.record(1, "k"), None);
}

#[test]
fn what_is_not_begun_in_time_is_refused_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::in_memory(dir.path(), 1, 1, &quiet());
    let places = ["k", "l"].map(|key| place(cluster.node(1), key).unwrap()).into();
    let (ended, receiver) = mpsc::channel();
    let tails = vec!["a", "b"];
    cluster
        .node(1)
        .write_directly(places, 100, Duration::ZERO, Box::new(Appending { tails, ended }));
    let (ends, _) = receiver.recv_timeout(PATIENCE).unwrap();
    let is_late = |end: &DirectEnd| matches!(end, DirectEnd::Refused(error) if error.code == ReplicaErrorCode::Timeout);
    assert!(ends.len() == 2 && ends.iter().all(is_late), "{ends:?}");
    assert_eq!(cluster.record(1, "k"), None);
}
