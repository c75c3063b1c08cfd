//! After a swap, what readers had read of the version before is in memory, though the store is larger than that.

use std::path::{Path, PathBuf};

use super::cold::counter;
use super::node::{Node, fondaco, of_csv, write_csv};

const KEYS: u64 = 16_000;
/// One key of this many is read.
const HOT: usize = 80;
const VALUE_BYTES: usize = 2500;

/// Builds a version on another file system, from which it is copied: the node keeps none of it in memory.
fn build(dir: &Path, version: u64) -> PathBuf {
    let (csv, output) = (
        dir.join(format!("{version}.csv")),
        dir.join(format!("version-{version}")),
    );
    let value = |key: u64| format!("{version}-{key}-{}", "x".repeat(VALUE_BYTES + key as usize % 100));
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(key))));
    let more = ["--partitions", "16", "--output", output.to_str().unwrap()];
    let done = fondaco().args(of_csv("build", "s", &csv, &more)).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    output
}

/// Reads the hot keys, and returns how many of them were not in memory.
fn read(node: &Node, version: u64) -> u64 {
    let mut redis = node.redis();
    let before = counter(&mut redis, "cold_lookups");
    for key in (0..KEYS).step_by(HOT) {
        let found: String = redis::cmd("GET").arg(format!("s:{key}")).query(&mut redis).unwrap();
        assert!(found.starts_with(&format!("{version}-{key}-")));
    }
    counter(&mut redis, "cold_lookups") - before
}

fn warmed_bytes(node: &Node) -> u64 {
    let url = format!("http://{}/metrics", node.http);
    let metrics = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fondaco_warmed_bytes_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn after_a_swap_hot_keys_are_in_memory() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return println!("there is no second file system: nothing is tested");
    }
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in(shm).unwrap());
    let data = dir.path().join("data");
    let config = dir.path().join("node.toml");
    let text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n");
    std::fs::write(&config, text).unwrap();
    let node = Node::server(&config);
    node.done(&["store", "create", "s"]);
    let deploy = |version| {
        let built = build(elsewhere.path(), version);
        node.done(&["deploy", "s", built.to_str().unwrap()]);
        std::fs::remove_dir_all(built).unwrap();
    };
    deploy(1);
    let hot = KEYS / HOT as u64;
    if read(&node, 1) == 0 {
        return println!("files are always in memory here: nothing is tested");
    }
    assert_eq!(read(&node, 1), 0, "they are in memory now");
    assert_eq!(warmed_bytes(&node), 0, "there was no version before");
    deploy(2);
    let warmed = warmed_bytes(&node);
    // A bucket lies in one to three pages.
    assert!(warmed >= hot * 4096 && warmed < hot * 8 * 4096, "{warmed} bytes");
    let cold = read(&node, 2);
    assert!(cold <= hot / 20, "{cold} of {hot} hot keys were read from the disk");
    // Without.
    node.done(&["config", "set", "warm-time-ms=0"]);
    deploy(3);
    assert_eq!(warmed_bytes(&node), warmed);
    let cold = read(&node, 3);
    assert!(cold > hot / 2, "only {cold} of {hot} hot keys were read from the disk");
}
