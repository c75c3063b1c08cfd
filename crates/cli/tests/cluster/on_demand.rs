//! Versions that answer while nodes copy them: from a real object store that is slow, refuses requests, and is asked by nodes
//! that are killed.

use std::fs;
use std::time::{Duration, Instant};

use fondaco_testing::{Proxy, S3};

use super::cluster::{Cluster, Shape};
use super::node::{Node, fondaco, of_csv, until, write_csv};

const STORE: &str = "s";
const KEYS: u64 = 24_000;

/// So slow that copying the version takes a minute.
const SLOW: &str = "200000";

fn value(key: u64) -> String {
    format!("value {key} {}", "x".repeat(900))
}

/// How many of these keys have their value; the others must have an error. No key may be reported as absent.
fn right(node: &Node, keys: impl Iterator<Item = u64>) -> (u64, Option<String>) {
    let (mut redis, mut right, mut error) = (node.redis(), 0, None);
    for key in keys {
        let found: redis::RedisResult<Option<String>> =
            redis::cmd("GET").arg(format!("{STORE}:{key}")).query(&mut redis);
        match found {
            Ok(Some(found)) => {
                assert_eq!(found, value(key));
                right += 1;
            }
            Ok(None) => panic!("key {key} is reported as absent"),
            Err(refused) => error = Some(refused.to_string()),
        }
    }
    (right, error)
}

/// Keys in an order that is not that of anything else.
fn some_keys(from: u64, count: u64) -> impl Iterator<Item = u64> {
    (from..from + count).map(|at| at * 7919 % KEYS)
}

fn metric(node: &Node, name: &str) -> u64 {
    let url = format!("http://{}/metrics", node.http);
    let text = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("fondaco_{name}")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {text}"))
}

fn is_on_demand(cluster: &Cluster, node: u64) -> bool {
    let store = cluster.any().http_get(&format!("/v1/stores/{STORE}"));
    let versions = store["versions"].as_array().unwrap();
    let replicas = versions.iter().flat_map(|version| version["nodes"].as_array().unwrap());
    let of_node: Vec<_> = replicas.filter(|replica| replica["node"] == node).collect();
    of_node.iter().any(|replica| replica["on_demand"] == true)
}

#[test]
fn a_version_in_an_object_store_answers_while_nodes_copy_it() {
    let server = S3::start();
    let link = Proxy::to(server.port());
    let environment = |endpoint: String| {
        [
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_ACCESS_KEY.to_owned()),
        ]
    };
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 1,
        partitions: 4,
        ..Shape::default()
    });
    cluster.set_environment(&environment(format!("http://{}", link.address())));
    cluster.launch_until_ready();
    let (csv, url) = (cluster.data("1.csv"), format!("s3://{}/v-1", S3::BUCKET));
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(key))));
    let arguments = of_csv("build", STORE, &csv, &["--partitions", "4", "--output", &url]);
    let built = fondaco()
        .args(arguments)
        .envs(environment(server.endpoint()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let bytes: u64 = fs::read_dir(server.objects().join("v-1"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let any = || cluster.any();
    any().done(&["config", "set", &format!("fetch-rate-bytes-per-second={SLOW}")]);
    any().done(&["store", "create", STORE, "--kind", "batch"]);
    link.delay_replies(Duration::from_millis(10));

    // A push goes live before it is copied.
    let began = Instant::now();
    let mut deploy = any().command(&["deploy", STORE, &url, "--serve-while-copying"]);
    let deployed = deploy.envs(environment(server.endpoint())).output().unwrap();
    assert!(
        deployed.status.success(),
        "{}",
        String::from_utf8_lossy(&deployed.stderr)
    );
    for name in ["node-1", "node-2", "router-1"] {
        assert_eq!(right(cluster.get(name), some_keys(0, 40)), (40, None), "{name}");
    }
    let took = began.elapsed();
    assert!(
        is_on_demand(&cluster, 1) && is_on_demand(&cluster, 2),
        "it is copied already, after {took:?}"
    );
    assert!(metric(cluster.get("node-1"), "on_demand_reads_total") > 0);
    let mut redis = cluster.get("node-1").redis();
    let absent: Option<String> = redis::cmd("GET")
        .arg(format!("{STORE}:absent"))
        .query(&mut redis)
        .unwrap();
    assert_eq!(absent, None);

    // The store refuses requests in the middle: errors in time, and right answers for what was read before.
    link.refuse();
    let began = Instant::now();
    assert_eq!(right(cluster.get("node-1"), some_keys(0, 40)), (40, None));
    let mut refused = (500..900).filter_map(|at| right(cluster.get("node-1"), some_keys(at, 1)).1);
    // Of keys of the other node, the first to give up is this one.
    let refused = refused.find(|error| error.contains("still being fetched"));
    assert!(refused.is_some(), "no key was missing");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    link.heal();
    link.delay_replies(Duration::from_millis(10));
    until("the store answers again", || {
        right(cluster.get("node-1"), some_keys(500, 3)).0 == 3
    });

    // A node is killed, and goes on with what it has.
    cluster.kill("node-1");
    cluster.launch("node-1");
    let first = Instant::now();
    let mut answers = (0, None);
    until("node-1 answers", || {
        answers = right(cluster.get("node-1"), some_keys(0, 40));
        answers.0 == 40
    });
    assert!(first.elapsed() < Duration::from_secs(10), "{:?}", first.elapsed());
    until("node-1 reads on demand", || is_on_demand(&cluster, 1));

    // A node loses its disk.
    cluster.kill("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.launch("node-2");
    until("node-2 answers", || {
        right(cluster.get("node-2"), some_keys(100, 40)).0 == 40
    });
    until("node-2 reads on demand", || is_on_demand(&cluster, 2));

    // The copies end, and little was read twice.
    let before = link.reply_bytes();
    cluster.any().done(&["config", "set", "fetch-rate-bytes-per-second=0"]);
    link.delay_replies(Duration::ZERO);
    for (name, number) in [("node-1", 1), ("node-2", 2)] {
        cluster.until_holds(name, &["version-1"]);
        until("it is complete", || !is_on_demand(&cluster, number));
    }
    let copied = link.reply_bytes() - before;
    assert!(
        copied < bytes + bytes / 10,
        "{copied} bytes were read for a version of {bytes}"
    );
    link.cut();
    assert_eq!(right(cluster.get("router-1"), 0..KEYS), (KEYS, None));
}

#[test]
fn a_version_is_dropped_while_it_is_copied() {
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 2,
        replicas: 2,
        partitions: 4,
        ..Shape::default()
    });
    cluster.launch_until_ready();
    let dir = super::values::elsewhere();
    let csv = cluster.data("1.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(key))));
    let built = dir.path().join("v-1");
    let arguments = of_csv(
        "build",
        STORE,
        &csv,
        &["--partitions", "4", "--output", built.to_str().unwrap()],
    );
    assert!(fondaco().args(arguments).status().unwrap().success());
    let any = || cluster.any();
    any().done(&["config", "set", &format!("fetch-rate-bytes-per-second={SLOW}")]);
    any().done(&["store", "create", STORE, "--kind", "batch"]);
    let deploy = ["deploy", STORE, built.to_str().unwrap(), "--serve-while-copying"];
    any().done(&deploy);
    assert_eq!(right(cluster.get("node-1"), some_keys(0, 40)), (40, None));
    // Another version replaces it, and the first one comes back: each while it is copied.
    any().done(&[&deploy[..], &["--again"]].concat());
    assert_eq!(right(cluster.get("node-2"), some_keys(0, 40)), (40, None));
    // A gate needs whole versions.
    let refused = any().refused(2, &[&deploy[..], &["--again", "--gate", "gone <= 5%"]].concat());
    assert!(refused.contains("--serve-while-copying"), "{refused}");
    any().done(&["store", "drop", STORE, "--yes"]);
    for name in ["node-1", "node-2"] {
        let mut redis = cluster.get(name).redis();
        until("it is gone", || {
            let found: redis::RedisResult<Option<String>> = redis::cmd("GET").arg("s:1").query(&mut redis);
            found.is_err()
        });
        let stores = cluster.data(name).join("stores").join(STORE);
        until("its files are gone", || !stores.exists());
    }
}
