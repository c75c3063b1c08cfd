//! A disk that is full on one node of several.

use std::path::Path;
use std::process::Command;

use super::cluster::{Cluster, Shape, is_ready};
use super::node::until;
use super::values::read_all;

/// A small file system in a directory. It goes with this.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// `None` where this process may not mount.
    fn mount(dir: &'a Path) -> Option<Self> {
        std::fs::create_dir_all(dir).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "fondaco-test"]).arg(dir);
        mount.output().ok()?.status.success().then_some(Self(dir))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: what is still open there goes when it is closed.
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// Nodes but for the third have room.
fn with_little_room(cluster: &mut Cluster) -> Option<SmallDisk<'static>> {
    let data: &'static Path = Box::leak(cluster.data("node-3").into_boxed_path());
    let disk = SmallDisk::mount(data);
    // Where nothing can be mounted: more has to stay free than any disk has.
    let more = if disk.is_some() {
        "disk-reserve = \"1800KiB\""
    } else {
        "disk-reserve = \"1000000GiB\""
    };
    cluster.add("node-3", more);
    disk
}

#[test]
fn a_full_disk_on_one_node_fails_a_push_with_the_name_of_the_node() {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    let _disk = with_little_room(&mut cluster);
    cluster.launch_all();
    cluster.until_ready();
    cluster.create(&[]);
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
fn a_full_disk_on_one_node_is_tolerated_where_that_was_allowed_until_it_has_room() {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    let disk = with_little_room(&mut cluster);
    cluster.launch_all();
    cluster.until_ready();
    cluster.create(&["--tolerate-failures", "1"]);
    assert_eq!(cluster.deploy(&cluster.build(1))["state"], "swapped");
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
    }
    assert!(!is_ready(cluster.get("node-3")));
    cluster.kill("node-3");
    drop(disk);
    // The same place, with room: without what was on the small disk, it is a node that lost its data.
    cluster.widen("node-3");
    cluster.launch("node-3");
    cluster.until_nobody_is_late();
    cluster.until_holds("node-3", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
}
