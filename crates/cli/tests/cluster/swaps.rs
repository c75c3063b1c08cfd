//! One request never sees two versions: readers on every node and on the router run through hundreds of swaps and
//! rollbacks, which the nodes learn of at different times.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cluster::{Cluster, Shape};
use super::readers::{Readers, none_since};
use super::values::{STORE, read_all};

const VERSIONS: u64 = 3;
const SWAPS: u64 = 300;
/// How long a request waits for nodes to serve the version that is current now.
const WAIT_TIME_MAX: Duration = Duration::from_secs(10);

#[test]
fn no_mget_mixes_versions_through_hundreds_of_swaps_and_rollbacks() {
    let cluster = Cluster::start(Shape {
        routers: 2,
        ..Shape::steady()
    });
    cluster.create(&["--backups", "5"]);
    for version in 1..=VERSIONS {
        cluster.deploy(&cluster.build(version));
    }
    let began = Instant::now();
    let addresses = cluster.resp_addresses();
    let readers = Readers::start(&addresses);
    let mut connections: Vec<_> = ["node-1", "node-2", "node-3", "router-1", "router-2"]
        .iter()
        .map(|name| cluster.get(name).redis())
        .collect();
    let mut awaited = 0;
    for swap in 0..SWAPS {
        // Ask a different process each time: all of them can swap.
        let asked = cluster.get(["node-1", "node-2", "node-3", "router-1", "router-2"][swap as usize % 5]);
        let waits = swap % 3 == 0;
        let asked_at = Instant::now();
        let current = match swap % 2 {
            0 => {
                // Never the oldest version, since the next step is a rollback from it.
                let version = swap / 2 % (VERSIONS - 1) + 2;
                let path = format!("/v1/stores/{STORE}/swap?wait={waits}");
                asked.http_post(&path, json!({ "version": version }));
                version
            }
            _ => {
                let path = format!("/v1/stores/{STORE}/rollback?wait={waits}");
                let store = asked.http_post(&path, json!({}));
                store["current_version"].as_u64().unwrap()
            }
        };
        // A process does not wait for ever for others, which may be slow.
        if waits && asked_at.elapsed() < WAIT_TIME_MAX {
            awaited += 1;
            // A request to a node after the answer gets the new version, even if the key is on other nodes.
            for redis in &mut connections[..3] {
                assert_eq!(read_all(redis), Ok(current), "after swap {swap}");
            }
        }
    }
    let answers = readers.answers();
    let failures = readers.stop();
    none_since(&failures, began);
    assert!(
        awaited > SWAPS / 6,
        "only {awaited} swaps were known everywhere in time"
    );
    println!(
        "{answers} answers of {} addresses during {SWAPS} swaps, all right",
        addresses.len()
    );
    assert!(answers > SWAPS);
}

#[test]
fn scan_and_dbsize_cover_the_whole_cluster_from_every_process() {
    let cluster = Cluster::serving(Shape::steady());
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        let mut redis = cluster.get(name).redis();
        assert_eq!(read_all(&mut redis), Ok(1), "{name}");
        let count: u64 = redis::cmd("DBSIZE").query(&mut redis).unwrap();
        assert_eq!(count, super::values::KEYS, "{name}");
    }
    let printed = cluster.get("router-1").done(&["scan", STORE]);
    let keys: BTreeSet<&str> = printed.lines().collect();
    assert_eq!(keys.len() as u64, super::values::KEYS);
    // The command line may ask any process.
    assert_eq!(
        cluster.get("router-1").done(&["get", "s:7"]),
        super::values::value(1, 7)
    );
}
