//! The process that the tests of kills start and kill: `fondaco-replica-writer DIR DURABILITY ENGINE` writes to a node
//! without end, and prints each write that is acknowledged: its key, its value, and its dot.

#[expect(dead_code, reason = "of the cluster of the tests, one node is used")]
mod cluster;
mod one_node;

use std::path::Path;

use fondaco_model::versioned::Record;

use cluster::{put, value};
use one_node::open_on;

/// How many threads write, each to keys of its own.
const WRITERS: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, durability, engine] = &arguments[..] else {
        panic!("not for people: a test starts it with a directory, a durability and an engine")
    };
    let cluster = open_on(Path::new(dir), durability, engine);
    let replicas = cluster.node(1);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for write in 0u64.. {
                    let key = format!("{writer}-{}", write % 50);
                    let record = Record::decode(put(replicas, &key, value(&write.to_string()))).unwrap();
                    let dot = record.siblings()[0].dot;
                    println!("{key} {write} {} {}", dot.replica.incarnation, dot.counter);
                }
            });
        }
    });
}
