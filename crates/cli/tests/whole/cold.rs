//! Data that is not in memory: read from the disk, whole and in order, and delaying nobody.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use super::node::{Dev, Node};

const KEYS: u64 = 3000;

fn value(key: u64) -> String {
    // Some longer than a page, and so than what one read brings.
    format!("value of {key} {}", "z".repeat((key * 37 % 9000) as usize))
}

/// Has the kernel forget what it holds of all data files below a directory.
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

/// A node that has just started, and has nothing of its data in memory.
fn cold_node(dev: Dev) -> (Node, tempfile::TempDir) {
    let (node, dir) = dev.into_parts();
    assert_eq!(node.terminate(), Some(0));
    forget(&dir.path().join("data"));
    (Node::dev(&dir.path().join("data")), dir)
}

fn counter(redis: &mut redis::Connection, name: &str) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(redis).unwrap();
    info.get(name).unwrap()
}

#[test]
fn keys_on_the_disk_are_all_found_one_by_one_and_together() {
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
    // Where the kernel tells what it holds, some of that came from the disk. On a memory file system
    // nothing is ever anywhere else.
    println!("{} look-ups read the disk", counter(&mut redis, "cold_lookups"));
    drop((node, dir));
}

#[test]
fn many_clients_read_the_disk_at_once_and_each_gets_its_own() {
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
