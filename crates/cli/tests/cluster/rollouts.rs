//! One version for several clusters, as for data centers: in order, and together.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fondaco_testing::{Proxy, S3, free_port};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{Node, fondaco, of_csv, until, wait, write_csv};
use super::values::{KEYS, STORE, build, read_all, value};

fn small() -> Cluster {
    Cluster::start(Shape {
        nodes: 2,
        routers: 0,
        ..Shape::steady()
    })
}

/// A command that is given its clusters only by `--to`.
fn to(addresses: &[&str], arguments: &[&str]) -> Command {
    let mut command = fondaco();
    command
        .args(arguments)
        .args(["--json", "--quiet", "--to", &addresses.join(",")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether it succeeded, the outcome of each cluster, and its errors.
fn outcome(output: &Output) -> (bool, Vec<Value>, String) {
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let clusters = result["clusters"].as_array().cloned().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), clusters, errors)
}

fn states(clusters: &[Value]) -> Vec<&str> {
    clusters.iter().map(|one| one["state"].as_str().unwrap()).collect()
}

fn current(cluster: &Cluster) -> Value {
    cluster.any().http_get("/v1/stores/s")["current_version"].clone()
}

#[test]
fn a_version_goes_to_one_cluster_after_the_other() {
    let [east, west] = [small(), small()];
    west.create(&[]);
    west.deploy(&build(west.dir.path(), 7, 16));
    let addresses = [&*east.any().http, &*west.any().http];
    let csv = east.data("1.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let push = of_csv("push", STORE, &csv, &["--create"]);
    let (done, clusters, errors) = outcome(&to(&addresses, &push).output().unwrap());
    assert!(done, "{errors}");
    let versions: Vec<_> = clusters.iter().map(|one| &one["push"]["version"]).collect();
    assert_eq!(versions, [&json!(1), &json!(2)], "each counts by itself");
    for cluster in [&east, &west] {
        for node in cluster.nodes() {
            assert_eq!(read_all(&mut cluster.get(&node).redis()), Ok(1), "{node}");
        }
    }
    // A rollback during the pause ends it in all.
    let version = build(east.dir.path(), 2, 16);
    let deploy = ["deploy", STORE, version.to_str().unwrap(), "--pause", "1h"];
    let mut command = to(&addresses, &deploy).spawn().unwrap();
    until("the first cluster has swapped", || current(&east) == 2);
    assert_eq!(current(&west), 2);
    east.any().done(&["rollback", STORE]);
    wait(&mut command);
    let (done, clusters, errors) = outcome(&command.wait_with_output().unwrap());
    assert!(
        !done && errors.contains("does not serve version 2 any more"),
        "{errors}"
    );
    assert_eq!(states(&clusters), ["rolled_back", "dropped"]);
    assert_eq!((current(&east), current(&west)), (json!(1), json!(2)));
}

#[test]
fn clusters_that_are_down_are_left_out_if_allowed_and_failures_stop() {
    let [east, west] = [small(), small()];
    for cluster in [&east, &west] {
        cluster.create(&[]);
    }
    let nowhere = format!("127.0.0.1:{}", free_port());
    let addresses = [&*nowhere, &*east.any().http, &*west.any().http];
    let version = build(east.dir.path(), 1, 16);
    let place = version.to_str().unwrap();
    let (done, clusters, errors) = outcome(
        &to(&addresses, &["deploy", STORE, place, "--partial", "--retry-time", "1s"])
            .output()
            .unwrap(),
    );
    assert_eq!(states(&clusters), ["unreachable", "swapped", "swapped"], "{errors}");
    let advice = format!("fondaco deploy s {place} --to http://{nowhere},http://{}", addresses[1]);
    assert!(!done && errors.contains(&advice), "{errors}");
    assert!(errors.contains(&format!("fondaco rollback s --http http://{}", addresses[1])));

    let broken = build(east.dir.path(), 2, 16);
    let data = fs::read_dir(&broken).unwrap().map(|entry| entry.unwrap().path());
    let data = data
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "data"));
    fs::write(data.unwrap(), "cut short").unwrap();
    let arguments = ["deploy", STORE, broken.to_str().unwrap()];
    let (done, clusters, errors) = outcome(&to(&addresses[1..], &arguments).output().unwrap());
    assert!(!states(&clusters).contains(&"swapped"), "{errors}");
    assert!(states(&clusters).contains(&"failed"), "{errors}");
    assert!(
        !done && errors.contains(&format!("--to http://{},http://{}", addresses[1], addresses[2])),
        "{errors}"
    );
    assert_eq!((current(&east), current(&west)), (json!(1), json!(1)));
    let twice = to(&[addresses[1], addresses[1]], &arguments).output().unwrap();
    assert_eq!(twice.status.code(), Some(2));
}

#[test]
fn versions_of_all_clusters_read_the_same_events() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str| Node::dev(&dir.path().join(name));
    let clusters = [start("east"), start("west")];
    for cluster in &clusters {
        let create = [
            "store", "create", STORE, "--kind", "hybrid", "--stream", "log", "--rewind", "0s",
        ];
        cluster.done(&create);
    }
    let log = |cluster: &Node, key: &str| {
        let events = json!({"events": [{"key": key, "value": "event"}]});
        cluster.http_post("/v1/stores/s/events", events);
        std::thread::sleep(Duration::from_millis(20));
    };
    clusters.iter().for_each(|cluster| log(cluster, "before"));
    let version = build(dir.path(), 1, 16);
    let addresses = [&*clusters[0].http, &*clusters[1].http];
    let deploy = ["deploy", STORE, version.to_str().unwrap(), "--pause", "2s"];
    let mut command = to(&addresses, &deploy).spawn().unwrap();
    until("the first cluster has swapped", || {
        clusters[0].http_get("/v1/stores/s")["current_version"] == 1
    });
    // Only the start of the first push was before this.
    clusters.iter().for_each(|cluster| log(cluster, "meanwhile"));
    assert!(wait(&mut command).success());
    for cluster in &clusters {
        let mut redis = cluster.redis();
        let mut get = |key: &str| redis::Commands::get::<_, Option<String>>(&mut redis, format!("s:{key}")).unwrap();
        until("the event counts", || get("meanwhile").is_some());
        assert_eq!(get("before"), None);
    }
}

#[test]
fn a_link_carries_one_copy_of_a_version_for_all_replicas() {
    let server = S3::start();
    let (_, port) = server
        .endpoint()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .unwrap();
    let link = Proxy::to(port.parse().unwrap());
    let environment = |endpoint: String| {
        [
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_ACCESS_KEY.to_owned()),
        ]
    };
    let mut cluster = Cluster::prepare_shared(Shape {
        replicas: 3,
        ..Shape::steady()
    });
    cluster.set_environment(&environment(format!("http://{}", link.address())));
    cluster.launch_until_ready();
    cluster.create(&[]);
    let csv = cluster.data("1.csv");
    write_csv(
        &csv,
        (0..KEYS).map(|key| (key.to_string(), value(1, key) + &noise(key))),
    );
    let url = format!("s3://{}/once", S3::BUCKET);
    let built = fondaco()
        .args(of_csv("build", STORE, &csv, &["--partitions", "16", "--output", &url]))
        .envs(environment(server.endpoint()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let push = cluster.deploy(Path::new(&url));
    let (bytes, passed) = (push["bytes_total"].as_u64().unwrap(), link.reply_bytes());
    println!("a version of {bytes} bytes for 3 replicas: {passed} bytes came over the link");
    assert!(bytes < passed && passed < bytes * 3 / 2, "{passed} bytes for {bytes}");
    for node in cluster.nodes() {
        let found: Option<String> = redis::Commands::get(&mut cluster.get(&node).redis(), "s:7").unwrap();
        assert_eq!(found, Some(value(1, 7) + &noise(7)), "{node}");
    }
}

/// Bytes that do not get smaller by compression, many beside the manifest.
fn noise(key: u64) -> String {
    let mut random = fastrand::Rng::with_seed(key);
    (0..1000).map(|_| random.alphanumeric()).collect()
}

#[test]
fn a_run_is_known_in_each_cluster_and_to_the_next_leader() {
    let [mut east, west] = [small(), small()];
    east.add("controller-2", "");
    east.launch("controller-2");
    east.create(&[]);
    west.create(&[]);
    let addresses = [&*east.get("node-1").http, &*west.any().http].map(str::to_owned);
    let addresses = addresses.each_ref().map(|address| &**address);
    let csv = east.data("1.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let push = of_csv("push", STORE, &csv, &["--run", "daily-1"]);
    let (done, clusters, errors) = outcome(&to(&addresses, &push).output().unwrap());
    assert!(
        done && clusters.iter().all(|one| one["push"]["repeated"] == false),
        "{errors}"
    );
    west.deploy(&build(west.dir.path(), 2, 16));
    // Whichever controller leads is another one than before, or the same.
    east.kill("controller-1");
    let (done, clusters, errors) = outcome(&to(&addresses, &push).output().unwrap());
    assert!(done, "{errors}");
    for one in clusters {
        let push = &one["push"];
        assert_eq!((&push["version"], &push["repeated"]), (&json!(1), &json!(true)));
    }
    assert_eq!((current(&east), current(&west)), (json!(1), json!(2)));
}
