//! Versions of the former format, and versions with files that no reader here knows, from the push to the peer.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::TestCluster;
use crate::single::{Builds, names, until};
use crate::version_files::{add_further, version_1};

/// Stops a node, deletes its versions, and starts it again, so that it has to fetch them from its peers.
fn lose_files(cluster: &TestCluster, node: &str) {
    cluster.stop(node);
    fs::remove_dir_all(cluster.data(node).join("stores")).unwrap();
    cluster.start_again(node);
    cluster.wait_ready();
}

#[test]
fn former_format_versions_are_served_and_fetched_from_peers() {
    let cluster = TestCluster::start_with(|config| config.partitions = 2.try_into().unwrap());
    cluster.create(json!({}));
    let source = TempDir::new().unwrap();
    for name in names(&version_1()) {
        fs::copy(version_1().join(&name), source.path().join(&name)).unwrap();
    }
    assert_eq!(cluster.client.push(source.path()), 1);
    drop(source);
    cluster.all_serve(1, 0);
    lose_files(&cluster, "node-2");
    cluster.all_serve(1, 0);
    let builds = Builds::elsewhere(50);
    assert_eq!(cluster.client.push(&builds.build_of(2, 2)), 2);
    cluster.all_serve(2, 50);
    let (status, store) = cluster
        .client
        .call("POST", "/v1/stores/pymk/swap", json!({"version": 1}));
    assert_eq!((status, &store["current_version"]), (200, &json!(1)), "{store}");
    cluster.all_serve(1, 0);
}

#[test]
fn unknown_files_of_a_version_reach_nodes_and_their_peers() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::elsewhere(50);
    let source = builds.build(1);
    add_further(&source, "inverted");
    let bytes = |dir: &Path, name: &String| fs::metadata(dir.join(name)).unwrap().len();
    let chunk_files = |dir: &Path| -> Vec<String> {
        let files = names(dir).into_iter();
        files.filter(|name| name.starts_with('p')).collect()
    };
    let all = chunk_files(&source);
    let all_bytes: u64 = all.iter().map(|name| bytes(&source, name)).sum();
    assert_eq!(cluster.client.push(&source), 1);
    fs::remove_dir_all(&source).unwrap();
    cluster.all_serve(1, 50);
    let store = cluster.client.get("/v1/stores/pymk");
    assert_eq!(store["versions"][0]["bytes"], all_bytes, "{store}");

    let version = |node: &str| cluster.data(node).join("stores/pymk/version-1");
    let held: Vec<Vec<String>> = cluster.nodes().iter().map(|node| chunk_files(&version(node))).collect();
    assert_eq!(
        held.iter().map(Vec::len).sum::<usize>(),
        2 * all.len(),
        "two replicas of each file"
    );
    for files in &held {
        let of_kind = |kind: &str| files.iter().filter(|name| name.ends_with(kind)).count();
        assert_eq!(of_kind(".inverted"), of_kind(".data"), "{files:?}");
    }
    lose_files(&cluster, "node-3");
    until("node 3 to have what it had", || {
        chunk_files(&version("node-3")) == held[2]
    });
    cluster.all_serve(1, 50);
}
