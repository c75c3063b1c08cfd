//! Uploads: a version is sent to the node over its control port, and pushed from there.

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Builds, Client, KEYS, NodeProcess, PARTITIONS, TestNode, config, eventually, names, until};
use crate::version_files::{add_further, version_1};

const UPLOADS: &str = "/v1/stores/pymk/uploads";

/// Sends the manifest. Returns the node's state of the upload.
fn begin(client: &Client, build: &Path) -> Value {
    let (status, answer) = post(client, UPLOADS, &manifest(build));
    assert_eq!(status, 200, "{answer}");
    answer
}

fn manifest(build: &Path) -> Vec<u8> {
    fs::read(build.join("manifest.json")).unwrap()
}

/// Sends a manifest; returns the status and the answer.
fn post(client: &Client, path: &str, manifest: &[u8]) -> (u16, Value) {
    let (status, _, answer) = client.raw("POST", path, manifest).unwrap();
    (status, serde_json::from_slice(&answer).unwrap())
}

fn path_of(upload: &Value) -> String {
    format!("{UPLOADS}/{}", upload["id"].as_str().unwrap())
}

/// Sends bytes of a file; returns the status and the answer.
fn put(client: &Client, upload: &Value, file: &str, offset: usize, bytes: &[u8]) -> (u16, Value) {
    let path = format!("{}/files/{file}?offset={offset}", path_of(upload));
    let (status, _, answer) = client.raw("PUT", &path, bytes).unwrap();
    (status, serde_json::from_slice(&answer).unwrap())
}

/// A node with the store of the tests, and a build beside it.
fn with_build(padding: usize) -> (TestNode, Builds, PathBuf) {
    let node = TestNode::start();
    node.client.create(1);
    let builds = Builds::elsewhere(padding);
    let build = builds.build(1);
    (node, builds, build)
}

/// Sends the missing bytes. Returns how many they were.
fn send_rest(client: &Client, build: &Path) -> usize {
    let upload = begin(client, build);
    let mut sent = 0;
    for file in upload["files"].as_array().unwrap() {
        let name = file["name"].as_str().unwrap();
        let offset = file["bytes_arrived"].as_u64().unwrap() as usize;
        if file["complete"] == false {
            let bytes = fs::read(build.join(name)).unwrap();
            let (status, answer) = put(client, &upload, name, offset, &bytes[offset..]);
            assert_eq!((status, &answer["complete"]), (200, &json!(true)), "{answer}");
            sent += bytes.len() - offset;
        }
    }
    sent
}

/// The longest file of a version, and its content.
fn longest(build: &Path) -> (String, Vec<u8>) {
    let files = names(build).into_iter().filter(|name| name.starts_with('p'));
    let files = files.map(|name| (fs::read(build.join(&name)).unwrap(), name));
    let (bytes, name) = files.max_by_key(|(bytes, _)| bytes.len()).unwrap();
    (name, bytes)
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

fn push(client: &Client, upload: &Value) {
    client.done(
        "POST",
        "/v1/stores/pymk/pushes",
        json!({"source": upload["source"]}),
        202,
    );
    assert_eq!(client.ended_push()["state"], "swapped");
}

#[test]
fn an_upload_is_sent_in_parts_pushed_and_then_deleted() {
    let (node, _builds, build) = with_build(50);
    let client = &node.client;
    add_further(&build, "inverted");
    let upload = begin(client, &build);
    assert_eq!(
        (&upload["complete"], &upload["bytes_arrived"]),
        (&json!(false), &json!(0))
    );
    let (name, bytes) = longest(&build);
    let half = bytes.len() / 2;
    let (status, answer) = put(client, &upload, &name, 0, &bytes[..half]);
    assert_eq!((status, &answer["bytes_arrived"]), (200, &json!(half)), "{answer}");
    assert_eq!(answer["complete"], false);
    let source = json!({"source": upload["source"]});
    client.refused("POST", "/v1/stores/pymk/pushes", source, 409, "upload_incomplete");

    let total = upload["bytes_total"].as_u64().unwrap() as usize;
    assert_eq!(send_rest(client, &build), total - half);
    // Other nodes fetch it from here.
    let (status, _, found) = client
        .raw("GET", &format!("{}/files/{name}", path_of(&upload)), b"")
        .unwrap();
    assert!(status == 200 && found == bytes);
    // Only the uploaded files are needed.
    fs::remove_dir_all(&build).unwrap();
    push(client, &upload);
    assert_eq!(client.served_build(50), 1);
    until("the upload to be deleted", || {
        names(&node.dir.path().join("uploads")).is_empty()
    });
    client.refused("GET", &path_of(&upload), Value::Null, 404, "upload_not_found");
    node.wait_for_dirs(&["version-1"]);
    let further = names(&node.dir.path().join("stores/pymk/version-1"));
    let further = further.iter().filter(|name| name.ends_with(".inverted"));
    assert_eq!(further.count(), 8, "of each chunk");
}

#[test]
fn a_version_of_the_former_format_is_sent_and_pushed() {
    let dir = TempDir::new().unwrap();
    let mut two_partitions = config(dir.path());
    two_partitions.partitions = 2.try_into().unwrap();
    let node = TestNode::start_with(dir, two_partitions);
    let client = &node.client;
    client.create(1);
    send_rest(client, &version_1());
    push(client, &begin(client, &version_1()));
    assert_eq!(client.served_build(0), 1);
}

#[test]
fn names_offsets_and_lengths_outside_the_manifest_are_refused() {
    let (node, builds, build) = with_build(50);
    let client = &node.client;
    let upload = begin(client, &build);
    for name in [
        "..%2Fmanifest.json",
        "..%2F..%2Fnode.json",
        "%2Fetc%2Fpasswd",
        "manifest.json",
        "given-away",
        "p00000-c0099.data",
        "p00000-c0000-0123456789abcdef.data.part",
    ] {
        let (status, answer) = put(client, &upload, name, 0, b"x");
        assert_eq!((status, code(&answer)), (404, "file_not_found"), "{name}");
    }
    let (name, bytes) = longest(&build);
    for offset in [1, bytes.len(), bytes.len() + 1, usize::MAX] {
        let (status, answer) = put(client, &upload, &name, offset, b"x");
        assert_eq!((status, code(&answer)), (409, "wrong_offset"), "{offset}");
    }
    let path = format!("{}/files/{name}", path_of(&upload));
    for query in ["", "?offset=-1", "?offset=x"] {
        client.refused("PUT", &format!("{path}{query}"), Value::Null, 400, "invalid_request");
    }
    let long = vec![0; bytes.len() + 1];
    let (status, answer) = put(client, &upload, &name, 0, &long);
    assert_eq!((status, code(&answer)), (413, "body_too_large"));
    // The same without a length.
    let mut chunked = format!(
        "PUT {path}?offset=0 HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        long.len()
    )
    .into_bytes();
    chunked.extend(&long);
    chunked.extend(b"\r\n0\r\n\r\n");
    let mut stream = TcpStream::connect(client.addr).unwrap();
    stream.write_all(&chunked).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
    let shown = client.get(&path_of(&upload));
    assert_eq!(shown["bytes_arrived"], 0, "{shown}");

    for (manifest, path, status, expected) in [
        (b"{}".to_vec(), UPLOADS, 422, "invalid_source"),
        (vec![0; 1000], UPLOADS, 422, "invalid_source"),
        (
            manifest(&builds.build_of(2, PARTITIONS * 2)),
            UPLOADS,
            422,
            "invalid_source",
        ),
        (manifest(&build), "/v1/stores/none/uploads", 404, "store_not_found"),
    ] {
        let (found, answer) = post(client, path, &manifest);
        assert_eq!((found, code(&answer)), (status, expected), "{answer}");
    }
    for id in ["..%2F..", "0123456789ABCDEF", "0123456789abcde"] {
        let path = format!("{UPLOADS}/{id}/files/{name}?offset=0");
        client.refused("PUT", &path, Value::Null, 400, "invalid_request");
    }
    client.done("DELETE", &path_of(&upload), Value::Null, 204);
    assert!(names(&node.dir.path().join("uploads")).is_empty());
}

#[test]
fn a_cut_body_counts_and_a_file_has_one_sender() {
    let (node, _builds, build) = with_build(20_000);
    let client = &node.client;
    let upload = begin(client, &build);
    let (name, bytes) = longest(&build);
    let half = bytes.len() / 2;
    let head = format!(
        "PUT {}/files/{name}?offset=0 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        path_of(&upload),
        bytes.len()
    );
    let mut stream = TcpStream::connect(client.addr).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&bytes[..half]).unwrap();
    until("the first bytes to have arrived", || {
        client.get(&path_of(&upload))["bytes_arrived"] != 0
    });
    let (status, answer) = put(client, &upload, &name, 0, &bytes);
    assert_eq!((status, code(&answer)), (409, "upload_busy"));
    stream.shutdown(Shutdown::Write).unwrap();
    until("the beginning to have arrived", || {
        let shown = client.get(&path_of(&upload));
        shown["bytes_arrived"] == half
    });
    eventually("the first request to end", || {
        let (status, answer) = put(client, &upload, &name, half, &bytes[half..]);
        (status == 200).then(|| assert_eq!(answer["complete"], true, "{answer}"))
    });
}

#[test]
fn a_file_with_a_wrong_bit_is_named_and_resent() {
    let (node, _builds, build) = with_build(50);
    let client = &node.client;
    let upload = begin(client, &build);
    let (name, bytes) = longest(&build);
    let mut wrong = bytes.clone();
    wrong[bytes.len() / 3] ^= 4;
    let half = bytes.len() / 2;
    assert_eq!(put(client, &upload, &name, 0, &wrong[..half]).0, 200);
    let (status, answer) = put(client, &upload, &name, half, &wrong[half..]);
    assert_eq!((status, code(&answer)), (422, "upload_corrupt"));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(&name), "{message}");
    assert_eq!(client.get(&path_of(&upload))["bytes_arrived"], 0);
    send_rest(client, &build);
    push(client, &upload);
    assert_eq!(client.served_build(50), 1);
}

#[test]
fn bytes_that_arrived_before_a_kill_are_not_sent_again() {
    let dir = TempDir::new().unwrap();
    let node = NodeProcess::start(dir.path());
    node.client.create(1);
    let builds = Builds::elsewhere(50);
    let build = builds.build(1);
    let upload = begin(&node.client, &build);
    let files = upload["files"].as_array().unwrap();
    let first = files[0]["name"].as_str().unwrap();
    let whole = fs::read(build.join(first)).unwrap();
    assert_eq!(put(&node.client, &upload, first, 0, &whole).0, 200);
    let second = files[1]["name"].as_str().unwrap();
    let part = &fs::read(build.join(second)).unwrap()[..100];
    assert_eq!(put(&node.client, &upload, second, 0, part).0, 200);
    node.kill();

    let node = NodeProcess::start(dir.path());
    let total = upload["bytes_total"].as_u64().unwrap() as usize;
    assert_eq!(send_rest(&node.client, &build), total - whole.len() - part.len());
    node.kill();
    let node = NodeProcess::start(dir.path());
    push(&node.client, &upload);
    let (status, answer) = node.client.call("GET", "/v1/stores/pymk/push", Value::Null);
    assert_eq!((status, &answer["records"]), (200, &json!(KEYS)));
    assert_eq!(node.client.served_build(50), 1);
}

#[test]
fn a_version_that_needs_the_disk_reserve_is_refused_first() {
    let dir = TempDir::new().unwrap();
    let mut config = config(dir.path());
    let space = rustix::fs::statvfs(dir.path()).unwrap();
    config.disk_reserve_bytes = space.f_blocks * space.f_frsize;
    let running = fondaco_roles::Fondaco::start(config).unwrap();
    let client = Client::new(running.http_addr());
    client.create(1);
    let builds = Builds::elsewhere(50);
    let (status, answer) = post(&client, UPLOADS, &manifest(&builds.build(1)));
    assert_eq!((status, code(&answer)), (507, "not_enough_space"));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("bytes are needed and"), "{message}");
    assert!(names(&dir.path().join("uploads")).is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(running.shutdown());
}

#[test]
fn an_abandoned_upload_is_deleted_after_its_idle_time() {
    let node = TestNode::start();
    node.client.create(1);
    let builds = Builds::elsewhere(50);
    let (abandoned, fresh) = (builds.build(1), builds.build(2));
    for build in [&abandoned, &fresh] {
        let upload = begin(&node.client, build);
        let (name, bytes) = longest(build);
        assert_eq!(put(&node.client, &upload, &name, 0, &bytes[..10]).0, 200);
    }
    let id = |build: &Path| begin(&node.client, build)["id"].as_str().unwrap().to_owned();
    let (abandoned, fresh) = (id(&abandoned), id(&fresh));
    let dir = node.end();
    let uploads = dir.path().join("uploads");
    assert_eq!(names(&uploads).len(), 2);
    for file in names(&uploads.join(&abandoned)) {
        let file = File::options()
            .write(true)
            .open(uploads.join(&abandoned).join(file))
            .unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    }
    let node = TestNode::start_in(dir);
    let uploads = node.dir.path().join("uploads");
    until("the abandoned upload to be deleted", || {
        names(&uploads) == [fresh.clone()]
    });
}
