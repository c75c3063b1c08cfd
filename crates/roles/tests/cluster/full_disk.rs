//! A node whose disk is too small for a version.

use fondaco_testing::SmallDisk;
use serde_json::json;

use crate::harness::TestCluster;
use crate::single::Builds;

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
