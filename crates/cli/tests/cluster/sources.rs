//! Versions in a real object store and in a real HDFS: built once, fetched by every node, and not needed there any more
//! after the push.

use std::fs;

use fondaco_testing::{Hdfs, S3};

use super::cluster::{Cluster, Shape};
use super::values::{KEYS, STORE, read_all, value};

/// Pushes to three nodes through a URL, then deletes the data of one node after the URL is gone.
fn push_by_way_of(url: &str, environment: &[(&str, String)], end: impl FnOnce()) {
    let mut cluster = Cluster::prepare_shared(Shape::default());
    cluster.set_environment(environment);
    cluster.launch_until_ready();
    let csv = cluster.data("1.csv");
    super::node::write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let csv = csv.to_str().unwrap();
    let arguments = [
        "push", STORE, csv, "--key", "key", "--value", "value", "--create", "--output", url,
    ];
    let mut push = cluster.any().command(&arguments);
    let pushed = push.envs(environment.iter().cloned()).output().unwrap();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(1), "{name}");
    }
    end();
    cluster.kill("node-2");
    fs::remove_dir_all(cluster.data("node-2").join("stores")).unwrap();
    cluster.launch("node-2");
    cluster.until_holds("node-2", &["version-1"]);
    assert_eq!(read_all(&mut cluster.get("node-2").redis()), Ok(1));
}

#[test]
fn nodes_fetch_from_an_object_store_and_then_from_peers() {
    let mut server = S3::start();
    let environment = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY_ID.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_ACCESS_KEY.to_owned()),
    ];
    let url = format!("s3://{}/s-1", S3::BUCKET);
    push_by_way_of(&url, &environment, || server.kill());
}

#[test]
fn nodes_fetch_from_hdfs_and_then_from_peers() {
    let mut server = Hdfs::start();
    let url = format!("{}/versions/s-1", server.url());
    push_by_way_of(&url, &[], || server.kill());
}
