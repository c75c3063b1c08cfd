//! One of several nodes has a full disk, or a slow one.

use fondaco_testing::{SlowDisk, SmallDisk};

use super::cluster::{Cluster, Shape, is_ready};
use super::node::until;
use super::values::{KEYS, STORE, build, elsewhere, read_all, value};

/// The size of the third node's disk, in bytes.
const LITTLE_BYTES: u64 = 2 << 20;

/// Gives the third node a disk with little room; the other nodes have enough.
fn with_little_room(cluster: &mut Cluster) -> Option<SmallDisk> {
    let disk = SmallDisk::mount(&cluster.data("node-3"), LITTLE_BYTES);
    // If no file system can be mounted: require more free space than any disk has.
    let more = if disk.is_some() {
        "disk-reserve = \"1800KiB\""
    } else {
        "disk-reserve = \"1000000GiB\""
    };
    cluster.add("node-3", more);
    disk
}

#[test]
fn a_full_disk_fails_a_push_naming_the_node() {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    let _disk = with_little_room(&mut cluster);
    cluster.launch_until_ready();
    cluster.create(&["--tolerate-failures", "0"]);
    cluster.begin(&cluster.build(1));
    let push = cluster.ended();
    assert_eq!(push["state"], "failed", "{push}");
    let number = cluster.number("node-3");
    let error = push["error"].as_str().unwrap();
    assert!(error.contains(&format!("node {number}")), "{error}");
    assert!(error.contains("free"), "{error}");
    for name in cluster.nodes() {
        until("nothing of it is left", || cluster.versions_on_disk(&name).is_empty());
    }
}

#[test]
fn a_push_tolerates_a_full_disk_if_the_store_allows() {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    let disk = with_little_room(&mut cluster);
    cluster.launch_until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    assert_eq!(cluster.deploy(&cluster.build(1))["state"], "swapped");
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
    }
    assert!(!is_ready(cluster.get("node-3")));
    cluster.kill("node-3");
    drop(disk);
    // The same path, now with room. Without the data of the small disk, the node has lost its data.
    cluster.widen("node-3");
    cluster.launch("node-3");
    cluster.until_no_node_is_late();
    cluster.until_holds("node-3", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
}

#[test]
fn another_replica_serves_keys_on_a_slow_disk() {
    const ENOUGH: usize = 5;
    let mut cluster = Cluster::start(Shape::steady());
    let Some(disk) = SlowDisk::of(cluster.dir.path()) else {
        return println!("skipped: no disk can be throttled here (it needs root and cgroup v1)");
    };
    cluster.create(&[]);
    // If several nodes had linked one file, all of them would wait for the one that reads it slowly.
    let sources = elsewhere();
    cluster.deploy(&build(sources.path(), 1, cluster.shape.partitions));
    cluster.kill("node-3");
    SlowDisk::forget_files(&cluster.data("node-3").join("stores/s/version-1"));
    cluster.launch("node-3");
    cluster.until_ready();
    disk.slow(cluster.get("node-3").pid(), 1);

    let mut redis = cluster.get("node-3").redis();
    let mut timed_out = 0;
    for key in 0..KEYS {
        let mut read = redis::cmd("FONDACO.READ");
        // Any store of this name, the current version, a timeout in milliseconds.
        read.arg("v1;timeout=100").arg(0).arg(0).arg(STORE).arg(key);
        match read.query::<Vec<Option<String>>>(&mut redis) {
            Ok(values) => assert_eq!(values, [Some(value(1, key))]),
            Err(error) if error.code() == Some("NOTHERE") => {}
            Err(error) => {
                assert_eq!(error.code(), Some("TIMEOUT"), "{error}");
                assert!(error.to_string().contains("longer than 100 ms"), "{error}");
                timed_out += 1;
                if timed_out == ENOUGH {
                    break;
                }
            }
        }
    }
    assert_eq!(timed_out, ENOUGH);
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));

    drop(disk);
    until("the disk is as fast as ever", || {
        read_all(&mut cluster.get("node-3").redis()) == Ok(1)
    });
}
