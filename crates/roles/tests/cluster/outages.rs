//! A cluster on a real ZooKeeper that goes away and comes back.

use serde_json::{Value, json};

use fondaco_testing::ZooKeeper;

use crate::harness::{TestCluster, zookeeper};
use crate::single::{Builds, eventually, until};

#[test]
fn without_zookeeper_nodes_serve_the_known_versions_also_after_restart() {
    let mut server = ZooKeeper::start();
    let servers = server.address();
    let cluster = TestCluster::start_with(|config| {
        config.zookeeper = Some(zookeeper(&servers, "/fondaco/outage"));
    });
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    cluster.all_serve(1, 50);
    // Nodes remember the view a moment after they have served it.
    for node in cluster.nodes() {
        eventually("the view to be remembered", || {
            let view = std::fs::read_to_string(cluster.data(&node).join("view.json")).ok()?;
            view.contains("\"current\":1").then_some(())
        });
    }

    server.kill();
    until("the silence to be noticed", || {
        let status = cluster.member("node-1").get("/v1/status");
        status["coordination_silent_ms"].is_u64()
    });
    cluster.all_serve(1, 50);
    let other = json!({"name": "other"});
    cluster.client.refused("POST", "/v1/stores", other, 503, "unavailable");
    cluster.stop("node-2");
    cluster.start_again("node-2");
    assert_eq!(cluster.member("node-2").call("GET", "/readyz", Value::Null).0, 200);
    // Keys that it does not hold it asks of its peers, from the remembered view.
    cluster.all_serve(1, 50);

    server.restart();
    until("the cluster to be whole again", || {
        let nodes = cluster.client.get("/v1/nodes");
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.iter().all(|node| node["live"] == json!(true))
    });
    assert_eq!(cluster.client.push(&builds.build(2)), 2);
    cluster.all_serve(2, 50);
}
