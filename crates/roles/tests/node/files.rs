//! The files of versions, requested as other nodes do.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::harness::{Builds, TestNode, names, until};
use crate::version_files::file_name;

#[test]
fn only_files_are_sent_whole_or_from_any_byte() {
    let node = TestNode::start();
    let client = &node.client;
    client.create(1);
    let builds = Builds::beside();
    client.push(&builds.build(1));
    let base = "/v1/stores/pymk/versions/1/files";
    let kept = node.dir.path().join("stores/pymk/version-1");
    for file in names(&kept) {
        let bytes = std::fs::read(kept.join(&file)).unwrap();
        let (status, _, found) = client.raw("GET", &format!("{base}/{file}"), b"").unwrap();
        assert_eq!((status, &found), (200, &bytes), "{file}");
        let middle = bytes.len() / 2;
        let (status, found) = client.range(&format!("{base}/{file}"), &format!("bytes={middle}-"));
        assert_eq!((status, &found[..]), (206, &bytes[middle..]), "{file}");
        let (status, found) = client.range(&format!("{base}/{file}"), "bytes=3-7");
        assert_eq!((status, &found[..]), (206, &bytes[3..8]), "{file}");
        let (status, _) = client.range(&format!("{base}/{file}"), &format!("bytes={}-", bytes.len()));
        assert_eq!(status, 416, "{file}");
    }
    for path in [
        format!("{base}/none.data"),
        format!("{base}/p00000-c0099.data"),
        format!("{base}/..%2Fversion-1%2Fmanifest.json"),
        format!("{base}/..%2F..%2F..%2Fnode.json"),
        "/v1/stores/pymk/versions/2/files/manifest.json".to_owned(),
        "/v1/stores/none/versions/1/files/manifest.json".to_owned(),
    ] {
        client.refused("GET", &path, Value::Null, 404, "file_not_found");
    }
    client.refused(
        "GET",
        "/v1/stores/..%2F../versions/1/files/lock",
        Value::Null,
        400,
        "invalid_request",
    );
}

#[test]
fn peers_beyond_the_limit_are_told_to_retry() {
    const SENT_AT_ONCE: usize = 8;
    let node = TestNode::start();
    let client = &node.client;
    client.create(1);
    // Files of about 18 MB: more than fits into the buffers below, and those of the sender.
    let builds = Builds::elsewhere(300_000);
    let build = builds.build(1);
    client.push(&build);
    let path = |kind| {
        let name = file_name(&build, "p00000-c0000", kind);
        format!("/v1/stores/pymk/versions/1/files/{name}")
    };
    let (file, index) = (path("data"), path("index"));
    let request = format!("GET {file} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let slow: Vec<TcpStream> = (0..SENT_AT_ONCE)
        .map(|_| {
            let socket = Socket::new(Domain::for_address(client.addr), Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(64 << 10).unwrap();
            socket.connect(&client.addr.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(request.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 200");
            stream
        })
        .collect();
    client.refused("GET", &index, Value::Null, 503, "busy");
    drop(slow);
    until("a place to be free again", || {
        let (status, ..) = client.raw("GET", &index, b"").unwrap();
        status == 200
    });
}
