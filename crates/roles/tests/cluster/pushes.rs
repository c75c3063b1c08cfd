//! Pushes to three nodes: what each node fetches, when it swaps, and a change of the leader.

use serde_json::{Value, json};

use crate::harness::{TestCluster, chunk_files};
use crate::single::{Builds, names, until};

#[test]
fn nodes_fetch_their_partitions_and_members_serve_all_keys() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::elsewhere(50);
    let source = builds.build(1);
    assert_eq!(cluster.client.push(&source), 1);
    cluster.all_serve(1, 50);
    let source_files = names(&source);
    // Two replicas of each file, and no node has all files.
    let all = chunk_files(&source).len();
    let held: Vec<usize> = cluster
        .nodes()
        .iter()
        .map(|node| chunk_files(&cluster.data(node).join("stores/pymk/version-1")).len())
        .collect();
    assert_eq!(held.iter().sum::<usize>(), 2 * all, "{held:?} of {all}");
    assert!(held.iter().all(|&files| 0 < files && files < all), "{held:?} of {all}");
    for node in cluster.nodes() {
        let files = names(&cluster.data(&node).join("stores/pymk/version-1"));
        assert!(
            files.iter().all(|file| source_files.contains(file)),
            "{node}: {files:?}"
        );
    }

    let store = cluster.client.get("/v1/stores/pymk");
    let nodes = store["versions"][0]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node["state"] == "serving"), "{store}");
}

#[test]
fn nodes_make_chunks_from_patches_and_give_them_to_peers() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    // The source has no chunks: nodes make them from those that they have.
    let source = builds.patches_only(2);
    assert_eq!(chunk_files(&source), Vec::<String>::new());
    assert_eq!(cluster.client.push(&source), 2);
    cluster.all_serve(2, 50);
    let held = || chunk_files(&cluster.data("node-2").join("stores/pymk/version-2"));
    let before = held();
    assert!(!before.is_empty());
    cluster.stop("node-2");
    std::fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.start_again("node-2");
    until("the node has its chunks from peers", || held() == before);
    cluster.all_serve(2, 50);
}

#[test]
fn swaps_and_rollbacks_are_visible_everywhere_when_they_return() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    cluster.client.push(&builds.build(2));
    cluster.all_serve(2, 50);
    for (member, current) in [("node-1", 1), ("controller-1", 2), ("node-3", 1), ("controller-2", 2)] {
        let client = cluster.member(member);
        let begun = std::time::Instant::now();
        let (status, store) = client.call("POST", "/v1/stores/pymk/swap", json!({"version": current}));
        assert_eq!((status, &store["current_version"]), (200, &json!(current)), "{store}");
        println!("swapped through {member} in {:?}", begun.elapsed());
        for node in cluster.nodes() {
            assert_eq!(cluster.member(&node).served_build(50), current, "{node} after {member}");
        }
    }
}

#[test]
fn a_push_continues_when_the_leading_controller_stops() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::elsewhere(1000);
    cluster.client.set_rate(64 << 10);
    cluster.client.begin_push(&builds.build(1));
    until("bytes to arrive", || {
        let push = cluster.client.get("/v1/stores/pymk/push");
        push["bytes_done"].as_u64() > Some(0)
    });
    let leader = cluster.leader();
    cluster.stop(&leader);
    assert_ne!(cluster.leader(), leader);
    cluster.client.set_rate(0);
    assert_eq!(cluster.client.ended_push()["state"], "swapped");
    cluster.all_serve(1, 1000);
}

#[test]
fn dropping_a_store_frees_its_name_for_another_store() {
    let cluster = TestCluster::start();
    let builds = Builds::beside();
    cluster.create(json!({}));
    cluster.client.push(&builds.build(1));
    assert_eq!(cluster.client.call("DELETE", "/v1/stores/pymk", Value::Null).0, 204);
    cluster.create(json!({}));
    assert_eq!(cluster.client.push(&builds.build(2)), 1);
    cluster.all_serve(2, 50);
}
