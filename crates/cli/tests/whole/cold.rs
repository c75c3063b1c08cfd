//! Data that is not in memory: reads from disk are complete and in order, and delay no other client.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use super::node::{Dev, Node};

const KEYS: u64 = 3000;

fn value(key: u64) -> String {
    // Some values are longer than a page, and so longer than one read.
    format!("value of {key} {}", "z".repeat((key * 37 % 9000) as usize))
}

/// Drops all data files below a directory from the page cache.
fn forget(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            forget(&path);
        } else if path.extension().is_some_and(|extension| extension == "data") {
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}

/// A node that has just started, with no data in memory.
fn cold_node(dev: Dev) -> (Node, tempfile::TempDir) {
    let (node, dir) = dev.into_parts();
    assert_eq!(node.terminate(), Some(0));
    forget(&dir.path().join("data"));
    (Node::dev(&dir.path().join("data")), dir)
}

pub fn counter(redis: &mut redis::Connection, name: &str) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(redis).unwrap();
    info.get(name).unwrap()
}

#[test]
fn keys_on_disk_are_found_singly_and_in_batches() {
    let dev = Dev::start();
    dev.push("s", (0..KEYS).map(|key| (key.to_string(), value(key))));
    let (node, dir) = cold_node(dev);
    let mut redis = node.redis();
    for key in 0..50 {
        let found: String = redis::cmd("GET").arg(format!("s:{key}")).query(&mut redis).unwrap();
        assert_eq!(found, value(key));
    }
    let keys: Vec<String> = (0..KEYS).map(|key| format!("s:{key}")).collect();
    let found: Vec<String> = redis::cmd("MGET").arg(keys).query(&mut redis).unwrap();
    for (key, found) in found.iter().enumerate() {
        assert_eq!(found, &value(key as u64));
    }
    assert_eq!(counter(&mut redis, "failed_lookups"), 0);
    // If the kernel reports page residency, some lookups read the disk. On a memory file system, data is always in
    // memory.
    println!("{} look-ups read the disk", counter(&mut redis, "cold_lookups"));
    drop((node, dir));
}

#[test]
fn many_clients_read_the_disk_at_once() {
    let dev = Dev::start();
    dev.push("s", (0..KEYS).map(|key| (key.to_string(), value(key))));
    let (node, dir) = cold_node(dev);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let node = &node;
            scope.spawn(move || {
                let mut redis = node.redis();
                for batch in 0..10 {
                    let keys: Vec<u64> = (0..32)
                        .map(|at| (client * 7919 + batch * 311 + at * 101) % KEYS)
                        .collect();
                    let mut pipeline = redis::pipe();
                    for key in &keys {
                        pipeline.cmd("GET").arg(format!("s:{key}"));
                    }
                    let found: Vec<String> = pipeline.query(&mut redis).unwrap();
                    for (key, found) in keys.iter().zip(&found) {
                        assert_eq!(found, &value(*key));
                    }
                }
            });
        }
    });
    assert_eq!(counter(&mut node.redis(), "failed_lookups"), 0);
    drop((node, dir));
}
