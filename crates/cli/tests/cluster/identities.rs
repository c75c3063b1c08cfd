//! Nodes with a wrong identity: each is refused, reports why, and serves nothing.

use std::fs;
use std::path::Path;

use super::cluster::{Cluster, Shape, new_root};
use super::node::until;
use super::values::read_all;

/// Copies a directory recursively.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            // The node runs, and replaces its small files: a temporary one may be gone by now.
            false => match fs::copy(entry.path(), target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            },
        }
    }
}

#[test]
fn a_node_that_claims_the_number_of_another_is_refused() {
    let mut cluster = Cluster::serving(Shape::default());
    cluster.add("node-4", "node = 2");
    let (code, error) = cluster.launch_in_vain("node-4");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("number 2") && error.contains("another node"), "{error}");
    let nodes = cluster.any().http_get("/v1/nodes");
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_node_with_a_copied_data_directory_is_refused() {
    let mut cluster = Cluster::serving(Shape::default());
    cluster.add("node-4", "");
    copy(&cluster.data("node-2"), &cluster.data("node-4"));
    let (code, error) = cluster.launch_in_vain("node-4");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(&cluster.get("node-2").http), "{error}");
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(1));
}

#[test]
fn a_data_directory_of_another_cluster_stays_unchanged() {
    let mut cluster = Cluster::serving(Shape::default());
    cluster.kill("node-3");
    // The other cluster has the same nodes, at another root.
    let own = std::mem::replace(&mut cluster.root, new_root());
    let mut other = Cluster::prepare(
        Shape {
            nodes: 1,
            replicas: 1,
            ..Shape::default()
        },
        &cluster.zookeeper,
    );
    other.root.clone_from(&cluster.root);
    other.launch_all();
    other.until_ready();
    // It serves the state that it remembers, reports that this is another cluster, and waits.
    cluster.launch("node-3");
    let node = cluster.get("node-3").http.clone();
    until("the node says so", || {
        let status = cluster.get("node-3").http_get("/v1/status");
        status["not_ready"].to_string().contains("belongs to cluster")
    });
    assert_eq!(cluster.versions_on_disk("node-3"), ["version-1"]);
    assert!(!other.get("node-1").http_get("/v1/nodes").to_string().contains(&node));
    cluster.kill("node-3");
    cluster.root = own;
    cluster.launch("node-3");
    cluster.until_ready();
    assert_eq!(read_all(&mut cluster.get("node-3").redis()), Ok(1));
}
