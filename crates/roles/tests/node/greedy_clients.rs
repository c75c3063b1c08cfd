//! Slow and greedy clients of the control port do not keep others out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Client, TestNode, config, until};
use crate::security::exchange;

const TOKEN: &str = "a token of some length";

/// The next bytes that the server sends; empty if it closes the connection.
fn next_bytes(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = vec![0; 1024];
    let count = stream.read(&mut bytes).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

#[test]
fn the_oldest_half_sent_requests_give_way_to_health_checks() {
    let node = TestNode::start();
    // As many as the limit allows.
    let idle = |request: &[u8]| {
        let mut stream = TcpStream::connect(node.client.addr).unwrap();
        stream.write_all(request).unwrap();
        stream
    };
    let mut silent: Vec<_> = (0..256).map(|_| idle(b"GET /healthz HTTP/1.1\r\nhost: ")).collect();
    // They keep their connections.
    let clients: Vec<_> = (0..3).map(|_| Client::new(node.client.addr)).collect();
    for client in &clients {
        assert_eq!(client.call("GET", "/healthz", Value::Null).0, 200);
    }
    // The oldest connections were dropped; the newest is served.
    assert!(silent[..3].iter_mut().all(|stream| next_bytes(stream).is_empty()));
    let youngest = silent.last_mut().unwrap();
    youngest.write_all(b"localhost\r\n\r\n").unwrap();
    assert!(next_bytes(youngest).starts_with(b"HTTP/1.1 200"));
    let metrics = node.client.raw("GET", "/metrics", &[]).unwrap().2;
    let metrics = String::from_utf8(metrics).unwrap();
    let evicted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fondaco_http_connections_evicted_total "));
    assert!(evicted.unwrap().parse::<u64>().unwrap() >= 3, "{metrics}");
}

#[test]
fn the_oldest_half_sent_bodies_give_way_to_other_requests() {
    let node = TestNode::start();
    let body = r#"{"keys":[]}"#;
    let head = format!(
        "POST /v1/lookup HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let half_sent = |_| {
        let mut stream = TcpStream::connect(node.client.addr).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body.as_bytes()[..5]).unwrap();
        stream
    };
    // These are the oldest: all other requests are sent after them.
    let mut oldest: Vec<_> = (0..3).map(half_sent).collect();
    until("half-sent requests to be taken", || {
        node.client.get("/v1/status")["role"] == "single"
    });
    // As many as the limit allows, together with those.
    let mut others: Vec<_> = (0..61).map(half_sent).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(node.client.call("GET", "/v1/status", Value::Null).0, 200);
                }
            });
        }
    });
    let youngest = others.last_mut().unwrap();
    youngest.write_all(&body.as_bytes()[5..]).unwrap();
    let answer = String::from_utf8(next_bytes(youngest)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = String::from_utf8(next_bytes(&mut oldest[0])).unwrap();
    assert!(
        answer.contains("overloaded") && answer.contains("rest of its body"),
        "{answer}"
    );
}

#[test]
fn half_sent_sign_ins_keep_no_client_out() {
    let node = TestNode::start();
    let half_sent = |_| {
        let mut stream = TcpStream::connect(node.client.addr).unwrap();
        stream
            .write_all(
                b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                  transfer-encoding: chunked\r\n\r\n",
            )
            .unwrap();
        stream
    };
    // As many as there may be connections.
    let _open: Vec<_> = (0..256).map(half_sent).collect();
    for path in ["/healthz", "/v1/status"] {
        for _ in 0..3 {
            assert_eq!(Client::new(node.client.addr).call("GET", path, Value::Null).0, 200);
        }
    }
    let long = vec![b' '; 100_000];
    let (status, ..) = node.client.raw("POST", "/v1/session", &long).unwrap();
    assert!((400..500).contains(&status), "{status}");
}

#[test]
fn wrong_sign_ins_keep_no_client_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.token = Some(TOKEN.to_owned());
    let node = TestNode::start_with(dir, config);
    let mut client = Client::new(node.client.addr);
    client.token = Some(TOKEN.to_owned());
    let wrong = |_| {
        let mut stream = TcpStream::connect(node.client.addr).unwrap();
        let request = b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                        content-length: 13\r\n\r\n{\"token\":\"x\"}";
        stream.write_all(request).unwrap();
        stream
    };
    // Each is answered after a pause.
    let _open: Vec<_> = (0..100).map(wrong).collect();
    for _ in 0..20 {
        assert_eq!(client.call("GET", "/v1/status", Value::Null).0, 200);
    }
}

#[test]
fn a_header_has_at_most_the_documented_64_kib() {
    let node = TestNode::start();
    let header = |bytes: usize| {
        let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        let lengths = "x: \r\n\r\n".len() + head.len();
        format!("{head}x: {}\r\n\r\n", "x".repeat(bytes - lengths))
    };
    let answer = exchange(node.client.addr, header(64 << 10).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for bytes in [(64 << 10) + 1, 100 << 10] {
        let answer = exchange(node.client.addr, header(bytes).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 431"), "{bytes}: {answer}");
    }
}
