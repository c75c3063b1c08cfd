//! Nodes that are down, late, empty, full or corrupt.

use std::fs;

use fondaco_testing::SmallDisk;
use serde_json::json;

use crate::harness::{TestCluster, chunk_files, corrupt};
use crate::single::{Builds, eventually, names};

#[test]
fn a_push_fails_when_an_absent_node_is_not_tolerated() {
    let cluster = TestCluster::start();
    cluster.create(json!({"tolerate_failures": 0}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    cluster.stop("node-3");
    cluster.client.begin_push(&builds.build(2));
    let push = eventually("the push to wait for node 3 by name", || {
        let push = cluster.client.get("/v1/stores/pymk/push");
        (push["absent"] != json!([])).then_some(push)
    });
    assert_eq!(push["absent"][0]["node"], 3, "{push}");
    assert!(
        push["absent"][0]["since_unix_ms"].as_u64().unwrap() > 1_700_000_000_000,
        "{push}"
    );
    let push = cluster.client.ended_push();
    assert_eq!(push["absent"], json!([]), "{push}");
    assert_eq!(push["state"], "failed", "{push}");
    assert!(push["error"].as_str().unwrap().contains("node 3"), "{push}");
    // The remaining nodes serve on: each partition has another replica.
    for name in ["node-1", "node-2", "router-1"] {
        assert_eq!(cluster.member(name).served_build(50), 1, "{name}");
    }
}

#[test]
fn a_node_absent_from_a_tolerated_push_catches_up_itself() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    cluster.stop("node-3");
    cluster.client.push(&builds.build(2));
    let store = cluster.client.get("/v1/stores/pymk");
    assert_eq!(store["late"], json!([3]), "{store}");
    assert_eq!(cluster.client.served_build(50), 2);

    cluster.start_again("node-3");
    cluster.wait_no_node_late();
    cluster.wait_ready();
    cluster.all_serve(2, 50);
}

#[test]
fn a_node_that_lost_its_files_fetches_versions_from_peers() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    for build in [1, 2] {
        let source = builds.build(build);
        cluster.client.push(&source);
        fs::remove_dir_all(source).unwrap();
    }
    let versions = |node: &str| {
        let stores = cluster.data(node).join("stores/pymk");
        names(&stores)
            .into_iter()
            .map(|version| chunk_files(&stores.join(version)).len())
            .collect::<Vec<_>>()
    };
    let before = versions("node-2");
    cluster.stop("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.start_again("node-2");
    cluster.wait_ready();
    eventually("the older version to be there too", || {
        (versions("node-2") == before).then_some(())
    });
    cluster.all_serve(2, 50);
}

#[test]
fn a_corrupt_file_of_a_peer_is_fetched_from_another() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    cluster.create(json!({}));
    let builds = Builds::beside();
    let source = builds.build(1);
    cluster.client.push(&source);
    fs::remove_dir_all(source).unwrap();
    cluster.stop("node-1");
    fs::remove_dir_all(cluster.data("node-1").join("stores")).unwrap();
    // The first peer that node 1 asks.
    let peer = cluster.data("node-2").join("stores/pymk/version-1");
    let file = chunk_files(&peer)
        .into_iter()
        .find(|name| name.ends_with(".data"))
        .unwrap();
    corrupt(&peer.join(&file));
    cluster.start_again("node-1");
    cluster.wait_ready();
    assert_eq!(cluster.member("node-1").served_build(50), 1);
}

#[test]
fn a_corrupt_file_at_the_source_fails_the_push_everywhere() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    let source = builds.build(2);
    let file = chunk_files(&source)
        .into_iter()
        .find(|name| name.ends_with(".data"))
        .unwrap();
    corrupt(&source.join(&file));
    cluster.client.begin_push(&source);
    let push = cluster.client.ended_push();
    assert_eq!(push["state"], "failed", "{push}");
    let error = push["error"].as_str().unwrap();
    assert!(error.contains(&file) && error.contains("checksum"), "{error}");
    cluster.all_serve(1, 50);
}

#[test]
fn a_changed_directory_does_not_pass_for_the_pushed_version() {
    let cluster = TestCluster::start();
    cluster.create(json!({"tolerate_failures": 1}));
    let builds = Builds::beside();
    let (source, other) = (builds.build(1), builds.build(2));
    cluster.stop("node-3");
    cluster.client.push(&source);
    // Another build under the name of the first.
    fs::remove_dir_all(&source).unwrap();
    fs::rename(other, &source).unwrap();
    cluster.start_again("node-3");
    cluster.wait_no_node_late();
    cluster.wait_ready();
    cluster.all_serve(1, 50);
}

#[test]
fn a_full_disk_fails_the_push_or_delays_the_node() {
    let mut mounted = None;
    let cluster = TestCluster::start_with(|config| {
        mounted = SmallDisk::mount(&config.data_dir.join("node-3"), 600 << 10);
    });
    let Some(_disk) = mounted else {
        println!("skipped: this process may not mount a file system");
        return;
    };
    cluster.create(json!({"tolerate_failures": 0}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    // About two megabytes.
    let large = Builds::elsewhere(4000);
    let source = large.build(2);
    cluster.client.begin_push(&source);
    let push = cluster.client.ended_push();
    assert_eq!(push["state"], "failed", "{push}");
    let error = push["error"].as_str().unwrap();
    assert!(error.contains("node 3") && error.contains("space"), "{error}");
    cluster.all_serve(1, 50);

    let (status, _) = cluster
        .client
        .call("PATCH", "/v1/stores/pymk", json!({"tolerate_failures": null}));
    assert_eq!(status, 200);
    cluster.client.push(&source);
    assert_eq!(cluster.client.get("/v1/stores/pymk")["late"], json!([3]));
    // Also through node 3, which has no file of it.
    cluster.all_serve(2, 4000);
}
