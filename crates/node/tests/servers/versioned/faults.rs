//! Nodes with a full disk or unreadable sectors.

use std::sync::Arc;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_simulation::FaultyDisk;
use redis::Value;

use super::harness::Shape;
use crate::harness::{Cluster, bulk};

/// A cluster of nodes that each hold everything, and the engine of the first.
fn cluster(nodes: u32) -> (Cluster, Arc<FaultyDisk>) {
    let engine = Arc::new(FaultyDisk::cold());
    let of_first = Arc::clone(&engine);
    let cluster = Cluster::versioned(Shape {
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
    engine.set_full(true);
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
        assert_eq!(engine.spoil_where(|table, _| table.starts_with("store-")), 3);
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
