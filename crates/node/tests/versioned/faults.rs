//! Nodes with a full disk or unreadable sectors.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, Hot, MemoryEngine, Scan, Table, WriteBatch};
use parking_lot::Mutex;
use redis::Value;

use crate::harness::{Cluster, Shape, bulk};

/// An engine in memory whose disk is full, or has bad sectors.
#[derive(Default)]
struct FaultyEngine {
    inner: MemoryEngine,
    is_full: AtomicBool,
    /// The keys of tables that cannot be read until they are overwritten.
    unreadable: Arc<Mutex<HashSet<Bytes>>>,
}

struct FaultyTable {
    inner: Arc<dyn Table>,
    unreadable: Arc<Mutex<HashSet<Bytes>>>,
}

impl FaultyEngine {
    /// Makes all records of stores unreadable. Returns how many they are.
    fn spoil(&self) -> usize {
        let mut unreadable = self.unreadable.lock();
        for name in self.inner.tables().unwrap() {
            let table = self.inner.open_table(&name).unwrap();
            let keys = table.scan(&[], None).unwrap().map(|entry| entry.unwrap().0);
            unreadable.extend(keys.filter(|_| name.starts_with("store-")));
        }
        unreadable.len()
    }
}

impl Engine for FaultyEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        Ok(Arc::new(FaultyTable {
            inner: self.inner.open_table(name)?,
            unreadable: Arc::clone(&self.unreadable),
        }))
    }

    fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        self.inner.drop_table(name)
    }

    fn tables(&self) -> Result<Vec<String>, EngineError> {
        self.inner.tables()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), EngineError> {
        if self.is_full.load(Relaxed) {
            return Err(EngineError::DiskFull { dir: "full".into() });
        }
        let mut unreadable = self.unreadable.lock();
        for name in self.inner.tables()? {
            let table = self.inner.open_table(&name)?;
            unreadable.retain(|key| batch.change_of(&*table, key).is_none());
        }
        self.inner.write(batch)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    fn is_durable(&self) -> bool {
        true
    }
}

impl FaultyTable {
    fn check(&self, key: &[u8]) -> Result<(), EngineError> {
        match self.unreadable.lock().contains(key) {
            true => Err(EngineError::Corrupt {
                place: "a bad sector".to_owned(),
                reason: "it cannot be read: Input/output error (os error 5)".to_owned(),
                key: Some(key.into()),
            }),
            false => Ok(()),
        }
    }
}

impl Table for FaultyTable {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.check(key).and_then(|()| self.inner.get(key))
    }

    fn get_hot(&self, _: &[u8]) -> Result<Hot<Bytes>, EngineError> {
        Ok(Hot::Cold)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<Scan, EngineError> {
        let entries = self.inner.scan(from, to)?.map(|entry| {
            let (key, value) = entry?;
            self.check(&key).map(|()| (key, value))
        });
        Ok(Box::new(entries.collect::<Vec<_>>().into_iter()))
    }

    fn approximate_len(&self) -> u64 {
        self.inner.approximate_len()
    }
}

/// A cluster of nodes that each hold everything, and the engine of the first.
fn cluster(nodes: u32) -> (Cluster, Arc<FaultyEngine>) {
    let engine = Arc::new(FaultyEngine::default());
    let of_first = Arc::clone(&engine);
    let cluster = Cluster::start(Shape {
        nodes,
        replicas: nodes,
        engine: Box::new(move |node| match node.get() {
            1 => Arc::clone(&of_first) as Arc<dyn Engine>,
            _ => Arc::new(MemoryEngine::new()),
        }),
        ..Shape::default()
    });
    (cluster, engine)
}

#[test]
fn with_a_full_disk_the_other_nodes_take_the_writes() {
    // More than the budget for retries.
    const WRITES: i64 = 2000;
    let (cluster, engine) = cluster(3);
    engine.is_full.store(true, Relaxed);
    let mut connection = cluster.nodes[0].connect();
    for number in 0..WRITES {
        assert_eq!(connection.send(&format!("SET s:{number} {number}")), Ok(Value::Okay));
    }
    for number in 0..10 {
        assert_eq!(connection.send("INCR s:n"), Ok(Value::Int(number + 1)));
        assert_eq!(
            connection.send(&format!("GET s:{number}")),
            Ok(bulk(&number.to_string()))
        );
        assert_eq!(connection.send(&format!("DEL s:{number}")), Ok(Value::Int(1)));
    }
}

#[test]
fn unreadable_keys_can_be_set_and_deleted() {
    for nodes in [1, 3] {
        let (cluster, engine) = cluster(nodes);
        let mut connection = cluster.nodes[0].connect();
        for key in ["set", "deleted", "added"] {
            assert_eq!(connection.send(&format!("SET s:{key} 1")), Ok(Value::Okay));
        }
        assert_eq!(engine.spoil(), 3);
        let others_have_it = nodes > 1;
        assert_eq!(connection.send("GET s:set").is_ok(), others_have_it);
        assert_eq!(connection.send("INCR s:added").is_ok(), others_have_it);
        assert_eq!(connection.send("SET s:set 2"), Ok(Value::Okay));
        assert_eq!(connection.send("GET s:set"), Ok(bulk("2")));
        assert_eq!(connection.send("DEL s:deleted"), Ok(Value::Int(1)));
        assert_eq!(connection.send("GET s:deleted"), Ok(Value::Nil));
        assert_eq!(connection.send("SET s:added 5"), Ok(Value::Okay));
        assert_eq!(connection.send("INCR s:added"), Ok(Value::Int(6)));
    }
}
