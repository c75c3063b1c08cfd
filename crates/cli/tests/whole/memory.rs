//! How much memory a process takes that may have little: long requests wait for one another, short ones for none.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::node::{Node, write_csv};

const MIB: usize = 1 << 20;

/// A node that may have 256 MiB, with a batch store `s`.
fn small_node(dir: &Path) -> Node {
    let config = dir.join("fondaco.toml");
    let data = dir.join("data");
    let text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmemory = \"256MiB\"\n");
    fs::write(&config, text).unwrap();
    let node = Node::server(&config);
    let csv = dir.join("input.csv");
    write_csv(&csv, [("k".to_owned(), "v".to_owned())]);
    let csv = csv.to_str().unwrap();
    node.done(&["push", "s", csv, "--key", "key", "--value", "value", "--create"]);
    node
}

/// The most memory that the process has ever had, in bytes.
fn peak_bytes(node: &Node) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

/// Sends as much as is taken: all of it, or until nothing more is for a while.
fn send_what_is_taken(socket: &mut TcpStream, bytes: &[u8]) -> usize {
    socket.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0, Instant::now());
    while sent < bytes.len() && last.elapsed() < Duration::from_millis(500) {
        match socket.write(&bytes[sent..]) {
            Ok(count) => (sent, last) = (sent + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
    }
    socket.set_nonblocking(false).unwrap();
    sent
}

#[test]
fn unfinished_requests_stay_within_the_budget_and_all_are_answered_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    // 12 MiB, of arguments as long as they may be.
    let value = "x".repeat(MIB / 2);
    let pair = format!("$3\r\ns:k\r\n${}\r\n{value}\r\n", value.len());
    let request = format!("*49\r\n$4\r\nMSET\r\n{}", pair.repeat(24));
    let request = request.as_bytes();
    let before = peak_bytes(&node);
    let mut clients: Vec<(TcpStream, usize)> = thread::scope(|scope| {
        let begin = || {
            let mut socket = TcpStream::connect(&node.resp).unwrap();
            let sent = send_what_is_taken(&mut socket, &request[..request.len() - 2]);
            (socket, sent)
        };
        let clients: Vec<_> = (0..40).map(|_| scope.spawn(begin)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    // 480 MiB were on their way. A short request waits for none of them.
    let mut redis = node.redis();
    assert_eq!(redis::cmd("GET").arg("s:k").query(&mut redis), Ok("v".to_owned()));
    thread::scope(|scope| {
        for (socket, sent) in &mut clients {
            scope.spawn(move || {
                socket.write_all(&request[*sent..]).unwrap();
                let mut answer = [0; 9];
                socket.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"-READONLY");
            });
        }
    });
    let grown = peak_bytes(&node) - before;
    assert!(grown < 120 * MIB, "grown by {} MiB", grown / MIB);
}

#[test]
fn bodies_of_http_requests_stay_within_the_budget_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let before = peak_bytes(&node);
    let key = "x".repeat(15 * MIB);
    let body = format!("{{\"keys\":[\"s:{key}\"]}}");
    let head = format!(
        "POST /v1/lookup HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        node.http,
        body.len()
    );
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let mut socket = TcpStream::connect(&node.http).unwrap();
                socket.write_all(head.as_bytes()).unwrap();
                // It may be refused before all of it is sent: so many at once take longer than a request may.
                let _ = socket.write_all(body.as_bytes());
                let _ = socket.read_to_end(&mut Vec::new());
            });
        }
    });
    let grown = peak_bytes(&node) - before;
    // The bodies of three requests, and a few copies of each: the text, the key. All of them at once take twice as much.
    assert!(grown < 320 * MIB, "grown by {} MiB", grown / MIB);
    assert_eq!(node.http_get("/v1/status")["role"], "single");
}
