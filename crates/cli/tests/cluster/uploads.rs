//! Pushes from a machine that shares no storage with the nodes: to one node, over its control port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fondaco_format::Manifest;
use fondaco_testing::Proxy;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{fondaco, until, wait, write_csv};
use super::values::{KEYS, STORE, read_all, value};

/// So slow that a node needs some seconds for a version.
const SLOWLY: u64 = 40_000;

/// A delay of each answer, at which a version of some dozens of files takes tens of seconds.
const LATE: Duration = Duration::from_secs(1);

/// A node's state of the upload of a build; `None` if it has no part of it.
fn upload(cluster: &Cluster, name: &str, build: &Path) -> Option<Value> {
    let (_, id) = Manifest::read_identified(build).unwrap();
    let path = format!("/v1/stores/{STORE}/uploads/{id}");
    cluster.try_get(cluster.get(name), &path)
}

fn arrived(cluster: &Cluster, name: &str, build: &Path) -> u64 {
    upload(cluster, name, build).map_or(0, |upload| upload["bytes_arrived"].as_u64().unwrap())
}

fn uploads_on_disk(cluster: &Cluster, name: &str) -> usize {
    fs::read_dir(cluster.data(name).join("uploads")).unwrap().count()
}

fn proxy_to(cluster: &Cluster, name: &str) -> Proxy {
    let (_, port) = cluster.get(name).http.rsplit_once(':').unwrap();
    Proxy::to(port.parse().unwrap())
}

/// `fondaco deploy --upload` to this address.
fn deploy(address: &str, build: &Path) -> Command {
    let mut command = fondaco();
    command.args(["deploy", STORE, build.to_str().unwrap()]);
    command.args(["--upload", "--json", "--http", address]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(mut child: Child) -> (bool, Value, String) {
    wait(&mut child);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.success(), result, text)
}

fn read_everywhere(cluster: &Cluster, version: u64) {
    for name in ["node-1", "node-2", "node-3", "router-1"] {
        assert_eq!(read_all(&mut cluster.get(name).redis()), Ok(version), "{name}");
    }
}

#[test]
fn a_push_by_upload_reaches_all_nodes() {
    let cluster = Cluster::start(Shape::steady());
    let csv = cluster.data("1.csv");
    write_csv(&csv, (0..KEYS).map(|key| (key.to_string(), value(1, key))));
    let work = tempfile::tempdir().unwrap();
    let push = |process: &str| {
        let mut command = cluster.get(process).command(&["push", STORE, csv.to_str().unwrap()]);
        command.args([
            "--key", "key", "--value", "value", "--create", "--upload", "--json", "--work",
        ]);
        command.arg(work.path()).output().unwrap()
    };
    // A router has no disk, and reports that before anything is built.
    let refused = push("router-1");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains(&cluster.get("node-2").http),
        "{error}"
    );

    let pushed = push("node-2");
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let result: Value = serde_json::from_slice(&pushed.stdout).unwrap();
    let sent = &result["upload"];
    assert_eq!(
        (&sent["bytes_sent"], &sent["bytes_resumed"]),
        (&sent["bytes_total"], &json!(0))
    );
    let source = result["push"]["source"].as_str().unwrap();
    assert!(
        source.starts_with(&format!("upload://{}/", cluster.number("node-2"))),
        "{source}"
    );
    read_everywhere(&cluster, 1);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    until("the upload is deleted", || uploads_on_disk(&cluster, "node-2") == 0);
}

#[test]
fn an_unreadable_directory_is_refused_with_advice_to_upload() {
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    let error = cluster.get("node-1").refused(1, &["deploy", STORE, "/nowhere/s-1"]);
    assert!(error.contains("fondaco deploy s DIRECTORY --upload"), "{error}");
}

#[test]
fn an_upload_resumes_after_the_client_or_node_was_killed() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    let build = cluster.build(1);
    let proxy = proxy_to(&cluster, "node-2");
    proxy.delay_replies(LATE);
    let mut client = deploy(&proxy.address(), &build).spawn().unwrap();
    until("a part has arrived", || arrived(&cluster, "node-2", &build) > 0);
    client.kill().unwrap();
    client.wait().unwrap();
    let before = arrived(&cluster, "node-2", &build);
    let total = upload(&cluster, "node-2", &build).unwrap()["bytes_total"]
        .as_u64()
        .unwrap();
    assert!(
        before < total,
        "all {total} bytes had arrived: the client was not killed midway"
    );

    cluster.kill("node-2");
    cluster.launch("node-2");
    cluster.until_ready();
    assert_eq!(arrived(&cluster, "node-2", &build), before);
    let client = deploy(&proxy.address(), &build).spawn().unwrap();
    until("more has arrived", || arrived(&cluster, "node-2", &build) > before);
    // This time the client survives and waits for the node to return.
    cluster.kill("node-2");
    cluster.launch("node-2");
    proxy.heal();
    let (done, result, errors) = ended(client);
    assert!(done, "{errors}");
    let sent = &result["upload"];
    assert_eq!(sent["bytes_resumed"], before, "{result}");
    // If the kill loses an answer, this client does not know that those bytes were sent.
    assert!(sent["bytes_sent"].as_u64().unwrap() <= total - before, "{result}");
    read_everywhere(&cluster, 1);
}

#[test]
fn a_push_fails_if_the_node_with_the_upload_dies() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.create(&[]);
    let build = cluster.build(1);
    cluster.set_rate(SLOWLY);
    let client = deploy(&cluster.get("node-2").http, &build).spawn().unwrap();
    let own = cluster.number("node-2");
    until("another node has a part", || {
        let push = cluster.try_get(cluster.any(), "/v1/stores/s/push").unwrap_or_default();
        let nodes = push["nodes"].as_array().cloned().unwrap_or_default();
        nodes
            .iter()
            .any(|node| node["node"] != own && node["bytes_done"].as_u64() > Some(0))
    });
    cluster.kill("node-2");
    // It watched through the node that died.
    let (done, _, errors) = ended(client);
    assert!(!done, "{errors}");
    cluster.set_rate(0);
    let push = cluster.ended();
    assert_eq!(push["state"], "failed", "{push}");
    let error = push["error"].as_str().unwrap();
    assert!(error.contains(&format!("it was uploaded to node {own}")), "{error}");
    assert!(error.contains("fondaco deploy s DIRECTORY --upload"), "{error}");

    // Any other node accepts it.
    let (done, result, errors) = ended(deploy(&cluster.get("node-1").http, &build).spawn().unwrap());
    assert!(done, "{errors}");
    assert_eq!(result["upload"]["bytes_resumed"], 0, "{result}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

#[test]
fn a_file_that_contradicts_its_manifest_prevents_the_push() {
    let cluster = Cluster::start(Shape::steady());
    cluster.create(&[]);
    let build = cluster.build(1);
    let file = data_file(&build);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&file, bytes).unwrap();
    let (done, _, errors) = ended(deploy(&cluster.get("node-1").http, &build).spawn().unwrap());
    assert!(!done, "{errors}");
    let error: Value = serde_json::from_str(errors.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "upload_corrupt", "{errors}");
    assert!(errors.contains(file.file_name().unwrap().to_str().unwrap()), "{errors}");
    assert!(cluster.try_get(cluster.any(), "/v1/stores/s/push").is_none());
}

fn data_file(build: &Path) -> PathBuf {
    let mut paths = fs::read_dir(build).unwrap().map(|entry| entry.unwrap().path());
    paths
        .find(|path| path.extension().is_some_and(|ending| ending == "data"))
        .unwrap()
}
