//! A node restores its data at start, whatever happened to the key files beside its log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redis::Commands;

use super::node::Node;

/// More than two segments.
const VALUES: u32 = 1500;

type Written = BTreeMap<u32, u32>;

fn value(number: u32) -> String {
    format!("{number:08}").repeat(12_500)
}

fn set(redis: &mut redis::Connection, written: &mut Written, key: u32, number: u32) {
    redis.set::<_, _, ()>(format!("carts:{key}"), value(number)).unwrap();
    written.insert(key, number);
}

fn check(node: &Node, written: &Written) {
    let mut redis = node.redis();
    for key in 0..VALUES {
        let found: Option<String> = redis.get(format!("carts:{key}")).unwrap();
        let expected = written.get(&key).map(|&number| value(number));
        assert!(found == expected, "key {key}");
    }
    assert!(node.done(&["repair", "losses"]).contains("nothing is lost"));
}

fn files_of_keys(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join("versioned/log"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut keys: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|name| name == "keys"))
        .collect();
    keys.sort();
    keys
}

#[test]
fn a_node_restores_its_data_without_intact_key_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut node = Node::dev(&data);
    node.done(&["store", "create", "carts", "--kind", "versioned", "--engine", "log"]);
    let (mut redis, mut written) = (node.redis(), Written::new());
    for key in 0..VALUES {
        set(&mut redis, &mut written, key, key);
    }
    let flip = |path: &PathBuf| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let remove = |path: &PathBuf| fs::remove_file(path).unwrap();
    let damages: [&dyn Fn(&PathBuf); 3] = [&|_| {}, &flip, &remove];
    for (round, damage) in damages.into_iter().enumerate() {
        // Keys of the newest segment and of older ones.
        for key in (0..VALUES).skip(round).step_by(200) {
            set(&mut redis, &mut written, key, key + VALUES);
            redis.del::<_, ()>(format!("carts:{}", key + 1)).unwrap();
            written.remove(&(key + 1));
        }
        assert_eq!(node.terminate(), Some(0));
        let keys = files_of_keys(&data);
        assert!(keys.len() > 2, "{keys:?}");
        keys.iter().for_each(damage);
        node = Node::dev(&data);
        check(&node, &written);
        redis = node.redis();
    }
    set(&mut redis, &mut written, 0, 7);
    node.kill();
    check(&Node::dev(&data), &written);
}
