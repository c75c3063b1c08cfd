//! Canaries on real clusters: a good version is promoted by itself, one that lost keys is rolled back, and no request mixes versions.

use std::path::Path;
use std::time::{Duration, Instant};

use redis::Commands;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{fondaco, of_csv, until, write_csv};
use super::readers::{Readers, none_since};
use super::values::{KEYS, STORE, read_all, value, version_of};

const ALL: [&str; 4] = ["node-1", "node-2", "node-3", "router-1"];

/// Begins to push a version with a canary of these reads.
fn begin(cluster: &Cluster, source: &Path, reads: &str, time_ms: u64) {
    // The machine of the tests may be busy: latency is not what they are about.
    let bounds = json!({"reads_min": 50, "latency_percent": 1_000_000});
    let canary = json!({"reads": reads, "time_ms": time_ms, "bounds": bounds});
    let push = cluster
        .any()
        .http_post("/v1/stores/s/pushes", json!({"source": source, "canary": canary}));
    assert_eq!(push["canary"]["state"], "waiting", "{push}");
}

fn push(cluster: &Cluster) -> Value {
    cluster.any().http_get("/v1/stores/s/push")
}

fn until_state(cluster: &Cluster, state: &str) {
    until(&format!("the canary is {state}"), || {
        push(cluster)["canary"]["state"] == state
    });
}

/// The versions that a process answers the keys 0 to 199 from, each asked for alone; 0 for a key that is not there.
fn versions_at(cluster: &Cluster, name: &str) -> Vec<u64> {
    let mut redis = cluster.get(name).redis();
    let mut version_at = |key: u64| {
        let text: Option<String> = redis.get(format!("{STORE}:{key}")).unwrap();
        text.map_or(0, |text| version_of(&text, key).unwrap())
    };
    (0..200).map(&mut version_at).collect()
}

#[test]
fn a_good_version_is_promoted_by_itself_and_no_request_mixes_versions() {
    let cluster = Cluster::serving(Shape::steady());
    let began = Instant::now();
    let readers = Readers::start(&cluster.resp_addresses());
    begin(&cluster, &cluster.build(2), "20%", 20_000);
    until_state(&cluster, "running");
    let expected = |versions: &Vec<u64>| {
        let of_canary = versions.iter().filter(|&&version| version == 2).count();
        (20..60).contains(&of_canary)
    };
    let mut seen = Vec::new();
    until("every process gives the same keys from the new version", || {
        seen = ALL.map(|name| versions_at(&cluster, name)).to_vec();
        seen.iter().all(|versions| *versions == seen[0]) && expected(&seen[0])
    });
    let pipelined: Vec<String> = {
        let mut pipeline = redis::pipe();
        (0..200).for_each(|key| _ = pipeline.get(format!("{STORE}:{key}")));
        pipeline.query(&mut cluster.get("router-1").redis()).unwrap()
    };
    let versions = (0..).zip(&pipelined).map(|(key, text)| version_of(text, key).unwrap());
    assert_eq!(
        versions.collect::<Vec<_>>(),
        seen[0],
        "each request of a pipeline has a version of its own"
    );
    let shown = cluster.get("node-1").done(&["canary", STORE]);
    assert!(shown.contains("canary of version 2 (20%) runs"), "{shown}");
    let metrics = format!("http://{}/metrics", cluster.get("node-1").http);
    let metrics = ureq::get(metrics).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(metrics.contains("fondaco_canary_reads{store=\"s\"}"), "{metrics}");
    let ended = cluster.ended();
    assert_eq!(ended["state"], "swapped", "{ended}");
    let canary = &ended["canary"];
    assert_eq!(
        (&canary["state"], &canary["against"]),
        (&json!("promoted"), &json!(1)),
        "{ended}"
    );
    let count = |field: &str| canary["counts"][field].as_u64().unwrap();
    assert!(
        count("compared") >= 50 && count("changed") > 0 && count("reads") > 0,
        "{ended}"
    );
    assert!(count("current_reads") > count("reads"), "{ended}");
    assert_eq!((count("missing"), count("errors")), (0, 0), "{ended}");
    for name in ALL {
        until("every process serves it", || {
            read_all(&mut cluster.get(name).redis()) == Ok(2)
        });
    }
    none_since(&readers.stop(), began);
}

#[test]
fn a_version_that_lost_keys_is_rolled_back_by_itself_with_the_reason() {
    let cluster = Cluster::serving(Shape::steady());
    let csv = cluster.dir.path().join("lossy.csv");
    let rows = (0..KEYS).filter(|key| key % 10 >= 3);
    write_csv(&csv, rows.map(|key| (key.to_string(), value(2, key))));
    let lossy = cluster.dir.path().join("lossy");
    let build = of_csv("build", STORE, &csv, &["--partitions", "16", "--output"]);
    assert!(fondaco().args(build).arg(&lossy).status().unwrap().success());
    begin(&cluster, &lossy, "30%", 600_000);
    until_state(&cluster, "running");
    let mut redis = ALL.map(|name| cluster.get(name).redis());
    let mut ended = Value::Null;
    until("it is rolled back", || {
        for redis in &mut redis {
            for key in 0..100 {
                let _: Option<String> = redis.get(format!("{STORE}:{key}")).unwrap();
            }
        }
        ended = push(&cluster);
        ended["state"] == "failed"
    });
    assert_eq!(ended["canary"]["state"], "rolled-back", "{ended}");
    let counts = &ended["canary"]["counts"];
    assert!(counts["missing"].as_u64() > Some(0), "{ended}");
    assert!(
        ended["error"]
            .as_str()
            .unwrap()
            .contains("compared keys are missing in it, more than 1%"),
        "{ended}"
    );
    let why = cluster.get("router-1").done(&["why", "--store", STORE]);
    assert!(
        why.contains("was rolled back") && why.contains("missing in it"),
        "{why}"
    );
    for name in ALL {
        until("every process reads the former version alone", || {
            read_all(&mut cluster.get(name).redis()) == Ok(1)
                && versions_at(&cluster, name).iter().all(|&version| version == 1)
        });
    }
    until("nodes delete it", || {
        ALL[..3]
            .iter()
            .all(|name| cluster.versions_on_disk(name) == ["version-1"])
    });
}

#[test]
fn a_paused_canary_outlives_its_leader_and_goes_on_where_it_was() {
    let mut cluster = Cluster::serving(Shape {
        controllers: 2,
        ..Shape::default()
    });
    begin(&cluster, &cluster.build(2), "50%", 6_000);
    until_state(&cluster, "running");
    cluster.any().done(&["canary", STORE, "pause"]);
    let paused = push(&cluster);
    assert_eq!(paused["canary"]["state"], "paused", "{paused}");
    let leader = cluster.any().http_get("/v1/cluster")["leader"]
        .as_str()
        .unwrap()
        .to_owned();
    let killed = ["controller-1", "controller-2"]
        .into_iter()
        .find(|name| cluster.get(name).http == leader);
    cluster.kill(killed.unwrap());
    until("another one leads", || {
        let now = cluster.any().http_get("/v1/cluster");
        now["leader"].as_str().is_some_and(|now| now != leader)
    });
    let now = push(&cluster);
    assert_eq!(
        now["canary"]["elapsed_ms"], paused["canary"]["elapsed_ms"],
        "its clock stands still"
    );
    let versions = versions_at(&cluster, "router-1");
    assert!(
        versions.contains(&1) && versions.contains(&2),
        "it keeps its share: {versions:?}"
    );
    let resumed = Instant::now();
    cluster.any().done(&["canary", STORE, "resume"]);
    assert_eq!(cluster.ended()["state"], "swapped");
    let left = 6_000 - paused["canary"]["elapsed_ms"].as_u64().unwrap();
    assert!(
        resumed.elapsed() > Duration::from_millis(left.saturating_sub(500)),
        "it ended too early"
    );
}

#[test]
fn a_canary_whose_leader_is_killed_is_promoted_by_the_next_one() {
    let mut cluster = Cluster::serving(Shape {
        controllers: 2,
        ..Shape::default()
    });
    let readers = Readers::start(&cluster.resp_addresses());
    begin(&cluster, &cluster.build(2), "50%", 10_000);
    until_state(&cluster, "running");
    let leader = cluster.any().http_get("/v1/cluster")["leader"]
        .as_str()
        .unwrap()
        .to_owned();
    let killed = ["controller-1", "controller-2"]
        .into_iter()
        .find(|name| cluster.get(name).http == leader);
    cluster.kill(killed.unwrap());
    let ended = cluster.ended();
    assert_eq!(
        (&ended["state"], &ended["canary"]["state"]),
        (&json!("swapped"), &json!("promoted")),
        "{ended}"
    );
    assert!(ended["canary"]["counts"]["compared"].as_u64() >= Some(50), "{ended}");
    readers.stop();
}

#[test]
fn by_zone_nodes_and_routers_of_the_zone_read_the_new_version_until_it_is_aborted() {
    let mut cluster = Cluster::prepare_shared(Shape::steady());
    for (name, zone) in [
        ("node-1", "east"),
        ("node-2", "west"),
        ("node-3", "west"),
        ("router-1", "east"),
    ] {
        cluster.add(name, &format!("zone = {zone:?}\n"));
    }
    cluster.add("router-2", "zone = \"west\"\n");
    cluster.launch_until_ready();
    cluster.create(&[]);
    cluster.deploy(&cluster.build(1));
    let began = Instant::now();
    let readers = Readers::start(&cluster.resp_addresses());
    begin(&cluster, &cluster.build(2), "zone:east", 600_000);
    until_state(&cluster, "running");
    for (name, version) in [
        ("node-1", 2),
        ("router-1", 2),
        ("node-2", 1),
        ("node-3", 1),
        ("router-2", 1),
    ] {
        until(&format!("{name} reads version {version}"), || {
            read_all(&mut cluster.get(name).redis()) == Ok(version)
        });
        assert!(
            versions_at(&cluster, name).iter().all(|&read| read == version),
            "{name}"
        );
    }
    let refused = cluster
        .any()
        .http_refused("/v1/stores/s/pushes", json!({"source": cluster.build(3)}));
    assert!(refused.contains("push_in_progress"), "{refused}");
    cluster.get("router-2").done(&["canary", STORE, "abort"]);
    let ended = push(&cluster);
    assert_eq!(
        (&ended["state"], &ended["canary"]["state"]),
        (&json!("cancelled"), &json!("aborted")),
        "{ended}"
    );
    for name in ["node-1", "router-1"] {
        until(&format!("{name} reads version 1"), || {
            read_all(&mut cluster.get(name).redis()) == Ok(1)
        });
    }
    none_since(&readers.stop(), began);
    let none = cluster.any().refused(1, &["canary", STORE, "promote"]);
    assert!(none.contains("no canary"), "{none}");
}
