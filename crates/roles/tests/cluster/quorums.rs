//! A versioned store without a quorum: every port reports it, and the remaining nodes stay ready.

use serde_json::{Value, json};

use crate::harness::TestCluster;
use crate::single::until;
use crate::versioned::{Writer, create};

/// The value of a field of `CLUSTER INFO`.
fn cluster_info(cluster: &TestCluster, member: &str, name: &str) -> String {
    let answer = cluster.resp_of(member).ask_long(&["CLUSTER", "INFO"]);
    let line = answer[0]
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().to_owned()
}

fn warnings(cluster: &TestCluster, member: &str) -> String {
    let (status, readiness) = cluster.member(member).call("GET", "/readyz", Value::Null);
    assert_eq!(status, 200, "{member} does its own part: {readiness}");
    readiness["warnings"].to_string()
}

#[test]
fn every_port_reports_a_lost_quorum_and_nodes_stay_ready() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 3);
    create(&cluster, json!({"reads": 2, "writes": 2}));
    Writer::new(&cluster).write(0..100, "v");
    for member in ["node-1", "router-1"] {
        assert_eq!(warnings(&cluster, member), "[]");
        assert_eq!(cluster_info(&cluster, member, "cluster_state"), "ok");
    }
    let store = cluster.client.get("/v1/stores/cart");
    assert_eq!(store["without_quorum"], json!({"reads": 0, "writes": 0}), "{store}");
    until("the nodes to report their keys", || {
        cluster.client.get("/v1/stores/cart")["keys"] == json!(101)
    });

    cluster.stop("node-2");
    cluster.stop("node-3");
    for member in ["node-1", "router-1"] {
        until("the others to be seen as absent", || {
            cluster_info(&cluster, member, "cluster_state") == "fail"
        });
        let warnings = warnings(&cluster, member);
        let expected =
            "4 of 4 partitions have no read quorum and 4 no write quorum (N 3, R 2, W 2): reads 0-3, writes 0-3";
        assert!(warnings.contains(expected), "{member}: {warnings}");
        assert!(warnings.contains("start node 2, node 3"), "{member}: {warnings}");
        assert_eq!(cluster_info(&cluster, member, "cluster_slots_ok"), "0");
        let client = cluster.member(member);
        assert_eq!(client.get("/v1/status")["warnings"].to_string(), warnings);
        let problems = client.get("/v1/cluster")["problems"].to_string();
        assert!(problems.contains(expected), "{problems}");
        let store = client.get("/v1/stores/cart");
        assert_eq!(store["without_quorum"], json!({"reads": 4, "writes": 4}), "{store}");
        for operation in ["read", "write"] {
            let name = format!("fondaco_store_partitions_without_quorum{{store=\"cart\",operation=\"{operation}\"}}");
            assert_eq!(cluster.metric(member, &name), 4);
        }
        // The other two do not answer: the remaining replica counts, wherever the coordinator is.
        let error = cluster.resp_of(member).ask("GET cart:1");
        assert!(error.starts_with("-NOQUORUM 1 of 2 reads: node "), "{member}: {error}");
    }

    cluster.start_again("node-2");
    cluster.wait_ready();
    for member in ["node-1", "router-1"] {
        until("there to be a quorum again", || {
            cluster_info(&cluster, member, "cluster_state") == "ok"
        });
        assert_eq!(warnings(&cluster, member), "[]");
    }
}
