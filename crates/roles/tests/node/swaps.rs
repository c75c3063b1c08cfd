//! Readers hammer a store while it is swapped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde_json::{Value, json};

use crate::harness::{Builds, Client, PARTITIONS, TestNode, names, until};

#[test]
fn readers_see_no_wrong_answer_through_a_hundred_swaps() {
    let node = TestNode::start();
    let client = &node.client;
    client.create(1);
    let builds = Builds::beside();
    client.push(&builds.build(1));

    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (stop, reads) = (&stop, &reads);
            scope.spawn(move || {
                let client = Client::new(client.addr);
                while !stop.load(Relaxed) {
                    // All keys, of one version.
                    client.served_build(50);
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        for build in 2..=35 {
            assert_eq!(client.push(&builds.build(build)), build);
            let before = reads.load(Relaxed);
            until("readers to read on", || reads.load(Relaxed) > before + 2);
            // Back and forth: a request after the answer gets that version.
            for current in [build - 1, build] {
                let (status, store) = client.call("POST", "/v1/stores/pymk/swap", json!({"version": current}));
                assert_eq!((status, &store["current_version"]), (200, &json!(current)), "{store}");
                assert_eq!(client.served_build(50), current);
            }
        }
        stop.store(true, Relaxed);
    });
    let (_, _, metrics) = client.raw("GET", "/metrics", b"").unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    let swaps = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fondaco_swaps_total "));
    assert!(swaps.unwrap().parse::<u64>().unwrap() > 100, "{swaps:?} swaps");
    // Dropped versions are freed and deleted, whichever thread read them.
    let left = || names(&node.dir.path().join("stores/pymk"));
    until("old versions to be deleted", || left().len() == 2);
    assert_eq!(client.call("POST", "/v1/stores/pymk/rollback", Value::Null).0, 200);
}

#[test]
fn each_chunk_takes_one_open_file_after_push_and_restart() {
    let node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    node.client.push(&builds.build(1));
    let open = |node: &TestNode, extension: &str| {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let ours = targets.filter(|path| path.starts_with(node.dir.path()));
        ours.filter(|path| path.extension().is_some_and(|found| found == extension))
            .count()
    };
    let chunks = PARTITIONS as usize * 2;
    let wait = |node: &TestNode| {
        until("the indexes to be closed", || open(node, "index") == 0);
        assert_eq!(open(node, "data"), chunks);
        assert_eq!(node.client.served_build(50), 1);
    };
    wait(&node);
    wait(&node.restart());
}
