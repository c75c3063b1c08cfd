//! Clients that are too many, too slow or too silent, or ask for too much: each is refused or dropped, without effect
//! on other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::node::Dev;

const MIB: u64 = 1 << 20;

/// All that the server sends until the connection ends.
fn rest(mut socket: TcpStream) -> String {
    let mut text = Vec::new();
    match socket.read_to_end(&mut text) {
        Ok(_) => {}
        // The connection ended with some of our data unread.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn set(dev: &Dev, name: &str, value: u64) {
    let mut redis = dev.redis();
    let done: String = redis::cmd("CONFIG")
        .arg("SET")
        .arg(name)
        .arg(value)
        .query(&mut redis)
        .unwrap();
    assert_eq!(done, "OK");
}

#[test]
fn a_client_over_the_limit_gets_an_error() {
    let dev = Dev::start();
    let mut first = dev.redis();
    dev.done(&["config", "set", "clients-max=3"]);
    let others = [dev.redis(), dev.redis()];
    assert_eq!(rest(dev.socket()), "-ERR max number of clients reached\r\n");
    assert_eq!(redis::cmd("PING").query(&mut first), Ok("PONG".to_owned()));
    drop(others);
    // When one client has left, there is room again.
    super::node::until("there is room", || {
        let mut socket = dev.socket_saying(b"PING\r\n");
        let mut answer = [0; 5];
        socket.read_exact(&mut answer).is_ok() && &answer == b"+PONG"
    });
}

#[test]
fn requests_over_the_limits_are_refused_and_the_connection_ends() {
    let dev = Dev::start();
    let cases: [(&[u8], &str); 5] = [
        (
            b"*2\r\n$3\r\nGET\r\n$999999999\r\n",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (
            b"*2\r\n$3\r\nGET\r\n$-5\r\n",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (b"*99999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        (&[b'x'; 70_000], "-ERR Protocol error: too big inline request\r\n"),
    ];
    for (request, expected) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert_eq!(rest(dev.socket_saying(request)), expected, "{shown:?}");
    }
}

#[test]
fn a_client_that_stops_within_a_request_is_dropped() {
    let dev = Dev::start();
    let idle = dev.socket();
    set(&dev, "client-stall-seconds", 1);
    assert_eq!(rest(dev.socket_saying(b"*2\r\n$3\r\nGE")), "");
    // A client that is between requests is not dropped.
    let mut idle = idle;
    idle.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn a_silent_client_is_dropped_after_its_timeout() {
    let dev = Dev::start();
    set(&dev, "timeout", 1);
    assert_eq!(rest(dev.socket_saying(b"PING\r\n")), "+PONG\r\n");
}

#[test]
fn a_client_that_does_not_read_replies_is_dropped() {
    let dev = Dev::start();
    dev.push("s", [("big".to_owned(), "x".repeat(MIB as usize / 4))]);
    let resident = || dev.http_get("/v1/status")["resident_bytes"].as_u64().unwrap();
    let before = resident();
    // Ten thousand requests for a quarter of a mebibyte each: 2.5 GiB of replies.
    let request = b"*2\r\n$3\r\nGET\r\n$5\r\ns:big\r\n".repeat(10_000);
    let slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut socket = dev.socket();
            socket.set_nonblocking(true).unwrap();
            let mut sent = 0;
            super::node::until("everything is sent, or the server accepts no more", || {
                match socket.write(&request[sent..]) {
                    Ok(count) => {
                        sent += count;
                        sent == request.len()
                    }
                    Err(error) => error.kind() == ErrorKind::WouldBlock && sent > 0,
                }
            });
            socket
        })
        .collect();
    // Another client is served meanwhile; after a thousand answers, the slow ones have had their time.
    let mut redis = dev.redis();
    for _ in 0..1000 {
        let length: u64 = redis::cmd("STRLEN").arg("s:big").query(&mut redis).unwrap();
        assert_eq!(length, MIB / 4);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 160 * MIB, "grown by {} MiB", grown / MIB);
    set(&dev, "client-stall-seconds", 1);
    super::node::until("the slow ones are dropped", || {
        dev.http_get("/v1/status")["clients"].as_u64().unwrap() <= 1
    });
    drop(slow);
}

#[test]
fn an_answer_larger_than_any_buffer_is_sent_in_pieces() {
    const VALUES: usize = 500;
    let dev = Dev::start();
    dev.push("s", [("big".to_owned(), "x".repeat(MIB as usize))]);
    let resident = || dev.http_get("/v1/status")["resident_bytes"].as_u64().unwrap();
    let before = resident();
    let mut request = format!("*{}\r\n$4\r\nMGET\r\n", VALUES + 1).into_bytes();
    request.extend_from_slice(&b"$5\r\ns:big\r\n".repeat(VALUES));
    let mut socket = dev.socket_saying(&request);
    let mut left = format!("*{VALUES}\r\n").len() + VALUES * (MIB as usize + "$1048576\r\n\r\n".len());
    let mut buffer = vec![0; MIB as usize];
    let mut most = 0;
    while left > 0 {
        let count = socket.read(&mut buffer).unwrap();
        assert!(0 < count && count <= left, "{count} bytes where {left} were left");
        if left / (32 * MIB as usize) != (left - count) / (32 * MIB as usize) {
            most = most.max(resident().saturating_sub(before));
        }
        left -= count;
    }
    assert!(most < 100 * MIB, "grown by {} MiB", most / MIB);
}

#[test]
fn a_cross_site_post_of_a_browser_gets_no_answer() {
    let dev = Dev::start();
    let request = b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n";
    assert_eq!(rest(dev.socket_saying(request)), "");
}

#[test]
fn a_query_of_many_steps_does_not_end_the_process() {
    let dev = Dev::start();
    let edges = dev.path("edges.csv");
    std::fs::write(&edges, "from,to\nann,ann\nann,bob\nbob,ann\n").unwrap();
    let edges = edges.to_str().unwrap();
    dev.done(&["push", "social", edges, "--edges", "from,to", "--create"]);
    let mut redis = dev.redis();
    // Each step gives its rows to the next one within its own call, so that the stack bounds their number.
    for steps in [1, 5, 20, 100, 400] {
        for (first, step) in [
            ("MATCH (a {name: 'ann'})", " WITH a"),
            ("MATCH (a {name: 'ann'})", " OPTIONAL MATCH (a)-[:NOTHING]->()"),
            ("MATCH (a {name: 'ann'})", " MATCH (a)-[:EDGE]->({name: 'bob'})"),
            ("MATCH (a {name: 'ann'})", "-[:EDGE]->()"),
        ] {
            let query = format!("{first}{} RETURN count(*)", step.repeat(steps));
            let answer = redis::cmd("GRAPH.QUERY")
                .arg("social")
                .arg(query)
                .query::<redis::Value>(&mut redis);
            let refused = |error: redis::RedisError| error.to_string().contains("LIMIT");
            assert!(answer.map_or_else(refused, |_| true), "{steps} times {step:?}");
            assert_eq!(redis::cmd("PING").query(&mut redis), Ok("PONG".to_owned()));
        }
    }
    let many = format!("MATCH (a {{name: 'ann'}}){} RETURN 1", " WITH a".repeat(400));
    let code = dev.http_refused("/v1/graphs/social/query", serde_json::json!({ "query": many }));
    assert_eq!(code, "query_limit");
}
