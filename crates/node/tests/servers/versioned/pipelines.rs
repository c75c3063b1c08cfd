//! Pipelines of arbitrary requests, split at arbitrary bytes: the replies are the same as if each request came alone,
//! after the reply to the one before it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use fondaco_node::{Counter, Setting};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::harness::Shape;
use crate::harness::{Cluster, PATIENCE};

/// A request of a pipeline, on one of a few keys.
#[derive(Debug, Clone)]
enum Asked {
    Get(u8),
    GetMany(Vec<u8>),
    Length(u8),
    Set(u8, usize),
    SetToEnd(u8),
    Delete(u8),
    Echo,
    SkipReply,
}

/// The request's bytes and the expected reply, at this index of a pipeline whose keys have this prefix.
fn exchange_of(
    asked: &Asked,
    values: &mut BTreeMap<u8, String>,
    at: usize,
    prefix: usize,
) -> (Vec<u8>, Option<String>) {
    let bulk = |text: &String| format!("${}\r\n{text}\r\n", text.len());
    let name = |key: &u8| format!("s:{prefix}-{key}");
    let (words, reply) = match asked {
        Asked::Get(key) => {
            let reply = values.get(key).map_or("$-1\r\n".into(), bulk);
            (vec!["GET".into(), name(key)], reply)
        }
        Asked::GetMany(keys) => {
            let value = |key| values.get(key).map_or("$-1\r\n".into(), bulk);
            let reply: String = keys.iter().map(value).collect();
            let words = std::iter::once("MGET".into()).chain(keys.iter().map(name));
            (words.collect(), format!("*{}\r\n{reply}", keys.len()))
        }
        Asked::Length(key) => {
            let length = values.get(key).map_or(0, String::len);
            (vec!["STRLEN".into(), name(key)], format!(":{length}\r\n"))
        }
        Asked::Set(key, length) => {
            let value = format!("{at:0length$}");
            values.insert(*key, value.clone());
            (vec!["SET".into(), name(key), value], "+OK\r\n".into())
        }
        Asked::SetToEnd(key) => {
            values.insert(*key, "ends".into());
            let words = ["SET", &name(key), "ends", "EX", "1000"].map(String::from);
            (words.into(), "+OK\r\n".into())
        }
        Asked::Delete(key) => {
            let was_there = i32::from(values.remove(key).is_some());
            (vec!["DEL".into(), name(key)], format!(":{was_there}\r\n"))
        }
        Asked::Echo => (vec!["ECHO".into(), "said".into()], bulk(&"said".into())),
        Asked::SkipReply => {
            let words = ["CLIENT", "REPLY", "SKIP"].map(String::from);
            return (packed(&words), None);
        }
    };
    (packed(&words), Some(reply))
}

fn packed(words: &[String]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.get_packed_command()
}

#[test]
fn pipelined_look_ups_are_answered_as_if_sent_alone() {
    let cluster = Cluster::versioned(Shape::default());
    let (key, length) = (
        0..8_u8,
        prop_oneof![10 => 1..9_usize, 10 => Just(1_200_usize), 1 => Just(60_000_usize)],
    );
    let asked = prop_oneof![
        20 => key.clone().prop_map(Asked::Get),
        4 => vec(key.clone(), 1..12).prop_map(Asked::GetMany),
        1 => key.clone().prop_map(Asked::Length),
        4 => (key.clone(), length).prop_map(|(key, length)| Asked::Set(key, length)),
        1 => key.clone().prop_map(Asked::SetToEnd),
        1 => key.prop_map(Asked::Delete),
        1 => Just(Asked::Echo),
        1 => Just(Asked::SkipReply),
    ];
    let pipelines = (vec(asked, 1..150), vec(1..4_000_usize, 0..8));
    let prefix = Cell::new(0);
    let config = Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&pipelines, |(pipeline, pieces)| {
        prefix.set(prefix.get() + 1);
        let (mut values, mut requests, mut expected) = (BTreeMap::new(), Vec::new(), String::new());
        let mut skips = false;
        for (at, asked) in pipeline.iter().enumerate() {
            let (request, reply) = exchange_of(asked, &mut values, at, prefix.get());
            requests.extend(request);
            match reply {
                None => skips = true,
                Some(_) if skips => skips = false,
                Some(reply) => expected.push_str(&reply),
            }
        }
        // The reply to the last PING shows that all others have arrived; a final `CLIENT REPLY SKIP` skips the first
        // PING.
        for _ in 0..1 + usize::from(skips) {
            requests.extend(packed(&["PING".into()]));
        }
        expected.push_str("+PONG\r\n");
        let mut socket = TcpStream::connect(cluster.nodes[0].address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writer = socket.try_clone().unwrap();
        let sent = std::thread::spawn(move || {
            let mut rest = &requests[..];
            for piece in pieces {
                let (first, behind) = rest.split_at(piece.min(rest.len()));
                writer.write_all(first).unwrap();
                rest = behind;
                std::thread::yield_now();
            }
            writer.write_all(rest).unwrap();
        });
        let (mut answered, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        while !answered.ends_with(b"+PONG\r\n") {
            let count = socket.read(&mut piece).unwrap();
            assert!(count > 0, "{pipeline:?}");
            answered.extend(&piece[..count]);
        }
        sent.join().unwrap();
        prop_assert!(
            answered == expected.as_bytes(),
            "{}",
            String::from_utf8_lossy(&answered)
        );
        Ok(())
    });
    outcome.unwrap();
    assert!(cluster.nodes[0].count(Counter::HotLookups) > 0);
}

/// All replies of a node to these requests, as text; the last request must be `QUIT`.
fn exchanged(address: std::net::SocketAddr, requests: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.replace("\r\n", " ")
}

#[test]
fn requests_behind_multi_run_at_exec_in_order() {
    let cluster = Cluster::versioned(Shape::default());
    for node in [cluster.nodes[0].address(), cluster.router().address()] {
        let prefix = node.port();
        let requests = format!(
            "SET s:{prefix}a 1\r\nMULTI\r\nSET s:{prefix}a 2\r\nINCR s:{prefix}a\r\nPING\r\nMGET s:{prefix}a s:{prefix}b\r\n\
             INCR nowhere:a\r\nGET s:{prefix}a\r\nEXEC\r\nGET s:{prefix}a\r\nQUIT\r\n"
        );
        let answer = exchanged(node, &requests);
        let expected = format!(
            "{}*6 +OK :3 +PONG *2 $1 3 $-1 -NOSTORE ",
            "+OK +OK ".to_owned() + &"+QUEUED ".repeat(6)
        );
        assert!(answer.starts_with(&expected), "{answer}");
        assert!(answer.ends_with("$1 3 $1 3 +OK "), "{answer}");
    }
}

#[test]
fn a_transaction_with_a_bad_request_is_discarded() {
    let cluster = Cluster::versioned(Shape::default());
    let node = cluster.nodes[0].address();
    for bad in ["NOSUCH", "GET", "WATCH s:t", "CLIENT REPLY OFF"] {
        let answer = exchanged(
            node,
            &format!("MULTI\r\nSET s:t 1\r\n{bad}\r\nSET s:t 2\r\nEXEC\r\nGET s:t\r\nQUIT\r\n"),
        );
        assert!(answer.starts_with("+OK +QUEUED -ERR "), "{answer}");
        assert!(
            answer.ends_with("+QUEUED -EXECABORT Transaction discarded because of previous errors. $-1 +OK "),
            "{answer}"
        );
    }
    let nested = "EXEC\r\nDISCARD\r\nMULTI\r\nMULTI\r\nSET s:t 1\r\nDISCARD\r\nMULTI\r\nEXEC\r\nGET s:t\r\nQUIT\r\n";
    assert_eq!(
        exchanged(node, nested),
        "-ERR EXEC without MULTI -ERR DISCARD without MULTI +OK -ERR MULTI calls can not be nested +QUEUED +OK +OK *0 $-1 +OK "
    );
    let muted = "CLIENT REPLY SKIP\r\nMULTI\r\nSET s:t 1\r\nCLIENT REPLY OFF\r\nRESET\r\nMULTI\r\nSET s:t 3\r\nEXEC\r\nGET s:t\r\nQUIT\r\n";
    assert!(
        exchanged(node, muted).ends_with("+RESET +OK +QUEUED *1 +OK $1 3 +OK "),
        "{}",
        exchanged(node, muted)
    );
}

#[test]
fn a_transaction_is_limited_like_one_request() {
    let cluster = Cluster::versioned(Shape::default());
    let node = cluster.nodes[0].address();
    let set = format!("SET s:long {}\r\n", "x".repeat(60_000));
    let answer = exchanged(
        node,
        &format!("MULTI\r\n{}EXEC\r\nGET s:long\r\nQUIT\r\n", set.repeat(1200)),
    );
    assert!(
        answer.contains("-OVERLOADED requests between MULTI and EXEC"),
        "{}",
        answer.len()
    );
    assert!(answer.ends_with("-EXECABORT Transaction discarded because of previous errors. $-1 +OK "));
}

#[test]
fn a_value_over_the_limit_is_refused_without_closing() {
    let cluster = Cluster::versioned(Shape::default());
    let node = &cluster.nodes[0];
    node.settings.set(Setting::BulkBytesMax, 100_000).unwrap();
    let bulk = |bytes: usize| format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
    let set = |bytes: usize| format!("*3\r\n$3\r\nSET\r\n$3\r\ns:k\r\n{}", bulk(bytes));
    let requests = format!(
        "{}*3\r\n$4\r\nMGET\r\n{}$3\r\ns:k\r\n{}STRLEN s:k\r\nMULTI\r\n{}EXEC\r\nPING\r\nQUIT\r\n",
        set(100_000),
        bulk(3_000_000),
        set(100_001),
        set(200_000),
    );
    let refused = |bytes: usize| {
        format!("-ERR an argument has {bytes} bytes, and may have 100000: the setting bulk-bytes-max says so ")
    };
    let expected = format!(
        "+OK {}{}:100000 +OK {}-EXECABORT Transaction discarded because of previous errors. +PONG +OK ",
        refused(3_000_000),
        refused(100_001),
        refused(200_000),
    );
    assert_eq!(exchanged(node.address(), &requests), expected);
}

#[test]
fn keys_without_a_store_go_to_the_default_store() {
    let cluster = Cluster::versioned(Shape {
        default_store: Some("s".parse().unwrap()),
        ..Shape::default()
    });
    let node = &cluster.nodes[0];
    let long = "v".repeat(40_000);
    let requests = format!(
        "SET plain 1\r\nINCR plain\r\nSET app:1:user {long}\r\nMSET a 1 s:b 2 :c 3\r\nMGET a b c s:c :c s:app:1:user\r\n\
         MULTI\r\nDEL plain\r\nEXISTS plain a s:a\r\nEXEC\r\nGET s:plain\r\nSCAN 0 MATCH s:a\r\nQUIT\r\n"
    );
    let expected = format!(
        "+OK :2 +OK +OK *6 $1 1 $1 2 $-1 $-1 $1 3 $40000 {long} +OK +QUEUED +QUEUED *2 :1 :2 $-1 *2 $1 0 *1 $3 s:a +OK "
    );
    assert_eq!(exchanged(node.address(), &requests), expected);
    let mut connection = node.connect();
    let mut found = |pattern: &str| {
        let scan = connection.send(&format!("SCAN 0 COUNT 1000 MATCH {pattern}")).unwrap();
        let (_, mut keys): (u64, Vec<String>) = redis::from_redis_value(scan).unwrap();
        keys.sort();
        keys
    };
    assert_eq!(found("app:*"), ["s:app:1:user"]);
    assert_eq!(found("s:app:*"), ["s:app:1:user"]);
    assert_eq!(found("ap?:*"), ["s:app:1:user"]);
    assert_eq!(found("nosuch:*"), [""; 0]);
    assert_eq!(found("*"), ["s::c", "s:a", "s:app:1:user", "s:b"]);
    // The same behind a request that is skipped.
    node.settings.set(Setting::BulkBytesMax, 100_000).unwrap();
    let skipped = format!(
        "SET plain 1\r\n*2\r\n$3\r\nGET\r\n$100001\r\n{}\r\nINCR plain\r\nQUIT\r\n",
        "x".repeat(100_001)
    );
    let answer = exchanged(node.address(), &skipped);
    assert!(
        answer.starts_with("+OK -ERR an argument has 100001 bytes") && answer.ends_with(" :2 +OK "),
        "{answer}"
    );
    // Split at any byte.
    let mut stream = TcpStream::connect(node.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = b"*3\r\n$3\r\nSET\r\n$3\r\ncut\r\n$5\r\nvalue\r\nGET cut\r\n*2\r\n$3\r\nGET\r\n$5\r\ns:cut\r\n";
    for byte in request {
        stream.write_all(std::slice::from_ref(byte)).unwrap();
    }
    let mut answer = [0; 5 + 2 * 11];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n$5\r\nvalue\r\n$5\r\nvalue\r\n");
}
