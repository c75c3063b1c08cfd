//! Plans for the routing table: a waiting node is given its share, another node gives up its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use fondaco_format::Compression;
use serde_json::{Value, json};

use crate::harness::TestCluster;
use crate::single::{Builds, KEYS, PARTITIONS, eventually, key, names, until};
use crate::written::{self, Shape};

fn partitions(cluster: &TestCluster) -> Vec<u64> {
    let nodes = cluster.client.get("/v1/nodes");
    let nodes = nodes["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["partitions"].as_u64().unwrap()).collect()
}

/// Makes a plan and runs it to its end.
fn run(cluster: &TestCluster, request: Value) {
    let number = begin(cluster, request);
    until("the plan to be done", || {
        let plan = cluster.client.get(&format!("/v1/plans/{number}"));
        plan["state"] == json!("done")
    });
    cluster.wait_ready();
}

/// Makes a plan and begins it.
fn begin(cluster: &TestCluster, mut request: Value) -> u64 {
    request["run"] = json!(true);
    let plan = cluster.client.done("POST", "/v1/plans", request, 202);
    plan["number"].as_u64().unwrap()
}

#[test]
fn a_drained_node_is_kept_or_forgotten() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    let mark = |number: usize| cluster.client.get("/v1/nodes")["nodes"][number - 1]["mark"].clone();
    run(&cluster, json!({"remove": [3]}));
    assert_eq!(mark(3), json!("leaving"));
    let (_, plan) = cluster
        .client
        .call("POST", "/v1/plans", json!({"add": [3], "dry_run": true}));
    assert!(plan["bytes"].as_u64().unwrap() > 0, "{plan}");
    run(&cluster, json!({"add": [3]}));
    assert_eq!(mark(3), json!(null));
    assert!(partitions(&cluster)[2] > 0);

    let (status, refused) = cluster.client.call("DELETE", "/v1/nodes/3", json!({}));
    assert_eq!(
        (status, &refused["error"]["code"]),
        (409, &json!("node_in_use")),
        "{refused}"
    );
    run(&cluster, json!({"remove": [3]}));
    cluster.stop("node-3");
    until("the node to be forgotten", || {
        let (status, _) = cluster.client.call("DELETE", "/v1/nodes/3", json!({}));
        status == 200
    });
    assert_eq!(partitions(&cluster).len(), 2);
    cluster.all_serve(1, 50);
}

#[test]
fn plans_fill_a_new_node_and_empty_a_removed_one() {
    // The table is made when two nodes are live; the third comes later.
    let cluster = TestCluster::start_with(|config| config.cluster.nodes_initial = 2);
    cluster.create(json!({}));
    let builds = Builds::beside();
    cluster.client.push(&builds.build(1));
    assert_eq!(partitions(&cluster), [4, 4, 0]);

    let (status, plan) = cluster
        .client
        .call("POST", "/v1/plans", json!({"add": [3], "dry_run": true}));
    assert_eq!(status, 200, "{plan}");
    assert!((2..=3).contains(&plan["fetches"].as_u64().unwrap()), "{plan}");
    assert_eq!(partitions(&cluster), [4, 4, 0], "nothing was changed");
    assert_eq!(cluster.client.get("/v1/plans")["plans"], json!([]), "nor saved");

    run(&cluster, json!({"add": [3]}));
    let spread = partitions(&cluster);
    assert_eq!(spread.iter().sum::<u64>(), 8);
    assert!(spread.iter().all(|&count| (2..=3).contains(&count)), "{spread:?}");
    cluster.all_serve(1, 50);

    run(&cluster, json!({"remove": [1], "even": true}));
    assert_eq!(partitions(&cluster), [0, 4, 4]);
    cluster.all_serve(1, 50);
    cluster.client.push(&builds.build(2));
    cluster.all_serve(2, 50);
    let routing = cluster.client.get("/v1/routing");
    let owners = routing["owners"].as_array().unwrap();
    assert!(
        owners
            .iter()
            .all(|nodes| !nodes.as_array().unwrap().contains(&json!(1))),
        "{routing}"
    );
    assert_eq!(routing["next"], Value::Null);
}

#[test]
fn partitions_that_moved_away_are_restored_when_they_return() {
    let cluster = TestCluster::start_with(|config| {
        config.cluster.nodes_initial = 2;
        config.keep_deleted = Duration::from_secs(3600);
    });
    cluster.create(json!({}));
    cluster.client.push(&Builds::elsewhere(1000).build(1));
    let inodes = |node: &str| -> BTreeMap<String, u64> {
        let dir = cluster.data(node).join("stores/pymk/version-1");
        let inode = |name: &String| fs::metadata(dir.join(name)).unwrap().ino();
        names(&dir)
            .into_iter()
            .map(|name| (name.clone(), inode(&name)))
            .collect()
    };
    let both = ["node-1", "node-2"];
    let before = both.map(inodes);

    run(&cluster, json!({"add": [3]}));
    let moved = partitions(&cluster)[2] as usize;
    until("the moved partitions to be in the trash", || {
        let first_chunks = |node: &&str| {
            let trash = cluster.data(node).join("trash");
            let files = names(&trash).into_iter().flat_map(|item| names(&trash.join(item)));
            files
                .filter(|name| name.contains("-c0000-") && name.ends_with(".data"))
                .count()
        };
        both.iter().map(first_chunks).sum::<usize>() == moved
    });
    cluster.all_serve(1, 1000);

    run(&cluster, json!({"remove": [3], "even": true}));
    assert_eq!(partitions(&cluster), [4, 4, 0]);
    assert_eq!(both.map(inodes), before, "the same files, not fetched again");
    cluster.all_serve(1, 1000);
}

#[test]
fn a_cancelled_plan_leaves_no_files() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let builds = Builds::elsewhere(1000);
    cluster.client.push(&builds.build(1));
    let files = |node: &str| names(&cluster.data(node).join("stores/pymk/version-1"));
    let others = ["node-2", "node-3"];
    let before = others.map(files);

    cluster.client.set_rate(8 << 10);
    let number = begin(&cluster, json!({"remove": [1]}));
    until("both to fetch", || {
        others.iter().zip(&before).all(|(node, before)| files(node) != *before)
    });
    let (status, plan) = cluster
        .client
        .call("DELETE", &format!("/v1/plans/{number}"), Value::Null);
    assert_eq!((status, &plan["state"]), (200, &json!("cancelled")), "{plan}");
    for (node, before) in others.iter().zip(&before) {
        until("the fetched files to be gone", || files(node) == *before);
    }
    cluster.client.set_rate(0);
    assert_eq!(others.map(files), before);
    cluster.all_serve(1, 1000);
}

#[test]
fn a_plan_is_saved_run_paused_and_resumed() {
    let cluster = TestCluster::start_with(|config| config.cluster.nodes_initial = 2);
    cluster.create(json!({}));
    cluster.client.push(&Builds::elsewhere(1000).build(1));
    let plans = "/v1/plans";
    let plan = cluster.client.done(
        "POST",
        plans,
        json!({"add": [3], "moves_per_node": 1, "reason": "more room"}),
        201,
    );
    assert_eq!(
        (&plan["state"], &plan["reason"]),
        (&json!("proposed"), &json!("more room"))
    );
    assert!(
        plan["bytes"].as_u64().unwrap() > 0 && plan["bytes_between_zones"] == json!(0),
        "{plan}"
    );
    assert_eq!(partitions(&cluster), [4, 4, 0], "it does not run yet");

    // One after the other, slowly enough to be paused.
    cluster.client.set_rate(8 << 10);
    let (status, plan) = cluster.client.call("POST", "/v1/plans/1/run", Value::Null);
    assert_eq!((status, &plan["state"]), (202, &json!("running")), "{plan}");
    let (status, refused) = cluster.client.call("POST", "/v1/plans/1/run", Value::Null);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("plan_state")));
    let (status, plan) = cluster.client.call("POST", "/v1/plans/1/pause", Value::Null);
    assert_eq!((status, &plan["state"]), (200, &json!("paused")), "{plan}");
    cluster.client.set_rate(0);
    until("what has begun to be completed", || {
        let found = cluster.client.get("/v1/routing");
        found["next"] == Value::Null
    });
    let paused = cluster.client.get("/v1/plans/1");
    let left = paused["partitions"].as_u64().unwrap() - paused["partitions_done"].as_u64().unwrap();
    assert!(left > 0, "{paused}");
    let (status, plan) = cluster.client.call("POST", "/v1/plans/1/resume", Value::Null);
    assert_eq!((status, &plan["state"]), (200, &json!("running")), "{plan}");
    until("the plan to be done", || {
        cluster.client.get("/v1/plans/1")["state"] == json!("done")
    });
    cluster.all_serve(1, 1000);
}

#[test]
fn a_replica_is_moved_by_hand() {
    let cluster = TestCluster::start_with(|config| config.cluster.nodes_initial = 2);
    cluster.create(json!({}));
    cluster.client.push(&Builds::beside().build(1));
    let from = cluster.client.get("/v1/routing")["owners"][1][0].clone();
    let request = json!({"moves": [{"partition": 1, "from": from, "to": 3}]});
    run(&cluster, request.clone());
    let owners = cluster.client.get("/v1/routing")["owners"].clone();
    assert_eq!(owners[1][0], json!(3));
    assert_eq!(partitions(&cluster)[2], 1);
    cluster.all_serve(1, 50);
    let (status, refused) = cluster.client.call("POST", "/v1/plans", request);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("impossible_move")));
}

#[test]
fn a_store_that_only_a_lost_node_had_holds_up_no_other() {
    let cluster = TestCluster::start_of(4, 1, |config| {
        config.cluster.nodes_initial = 3;
        config.cluster.replicas = 1;
    });
    let client = &cluster.client;
    cluster.create(json!({}));
    let builds = Builds::beside();
    client.push(&builds.build(1));
    client.done("POST", "/v1/stores", json!({"name": "gone"}), 201);
    let source = tempfile::tempdir().unwrap();
    let records = (0..KEYS).map(|number| (key(number).into_bytes(), b"x".to_vec()));
    let shape = Shape {
        partitions: PARTITIONS,
        chunks: 1,
        compression: Compression::None,
    };
    written::write_for("gone", source.path(), &records.collect(), &shape);
    client.done("POST", "/v1/stores/gone/pushes", json!({"source": source.path()}), 202);
    until("the other store to be served", || {
        client.get("/v1/stores/gone/push")["state"] == json!("swapped")
    });
    drop(source);
    let is_whole = |store: &str| {
        let keys: Vec<_> = (0..KEYS).map(|number| format!("{store}:{}", key(number))).collect();
        let (status, answer) = client.call("POST", "/v1/lookup", json!({"keys": keys}));
        let values = answer["values"].as_array().cloned().unwrap_or_default();
        status == 200 && values.iter().all(|value| value["utf8"].is_string())
    };
    assert!(is_whole("pymk") && is_whole("gone"));

    let owners = client.get("/v1/routing")["owners"].clone();
    let owners = owners.as_array().unwrap().iter().enumerate();
    let lost: Vec<usize> = owners
        .filter(|(_, nodes)| **nodes == json!([3]))
        .map(|(at, _)| at)
        .collect();
    cluster.stop("node-3");
    until("keys to be missing", || !is_whole("pymk"));
    let moves: Vec<_> = lost
        .iter()
        .map(|at| json!({"partition": at, "from": 3, "to": 4}))
        .collect();
    let number = begin(&cluster, json!({"moves": moves}));
    until("the store whose source is there to be available", || is_whole("pymk"));
    let plan = eventually("the plan to be done", || {
        let plan = client.get(&format!("/v1/plans/{number}"));
        (plan["state"] == json!("done")).then_some(plan)
    });
    let stuck = &plan["stuck"][0];
    assert_eq!(
        (&stuck["store"], &stuck["partitions"]),
        (&json!("gone"), &json!(lost)),
        "{plan}"
    );
    assert!(
        stuck["error"].as_str().unwrap().contains("node 4 could not fetch it"),
        "{plan}"
    );
    assert!(!is_whole("gone"));

    // It has kept the last copy of what it does not own any more.
    cluster.start_again("node-3");
    until("the last copy to be fetched", || is_whole("gone"));
    until("nothing to be missing", || is_whole("pymk"));
}
