//! Topology commands, redirects and slots as clients of Redis Cluster see them.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use fondaco_node::Counter;
use fondaco_testing::free_port;
use fondaco_testing::{eventually, until};
use redis::Value;

use super::harness::{value, wire_key};
use crate::harness::{Cluster, Connection, connect, elements, text};

/// The ranges of `CLUSTER SLOTS`: first, last, ports of the nodes.
fn slots(connection: &mut Connection) -> Vec<(i64, i64, Vec<i64>)> {
    let int = |value: &Value| match value {
        Value::Int(number) => *number,
        other => panic!("no number: {other:?}"),
    };
    let ranges = elements(connection.send("CLUSTER SLOTS").unwrap());
    let range = |range| {
        let parts = elements(range);
        let nodes = parts[2..].iter().cloned().map(elements);
        let ports = nodes.map(|node| int(&node[1])).collect();
        (int(&parts[0]), int(&parts[1]), ports)
    };
    ranges.into_iter().map(range).collect()
}

#[test]
fn slots_are_listed_with_all_their_nodes_in_order() {
    let mut cluster = Cluster::batch(3, 2, 8, 10);
    let ports: Vec<i64> = cluster.nodes.iter().map(|node| node.address().port().into()).collect();
    let ranges = slots(&mut cluster.nodes[2].connect());
    // Each node is shown as a master before it is shown as a replica, since some clients remember the first role for
    // ever.
    let alone = [
        (0, 0, vec![ports[0]]),
        (2048, 2048, vec![ports[1]]),
        (4096, 4096, vec![ports[2]]),
    ];
    assert_eq!(ranges[..3], alone);
    assert_eq!(ranges.len(), 3 + 8);
    assert_eq!(ranges[3], (1, 2047, vec![ports[0], ports[1]]));
    assert_eq!(ranges[10], (14336, 16383, vec![ports[1], ports[2]]));
    let covered: i64 = ranges.iter().map(|(first, last, _)| last - first + 1).sum();
    assert_eq!(covered, 16384);
    cluster.mark_gone(0);
    cluster.publish();
    let ranges = slots(&mut cluster.nodes[2].connect());
    let first = ranges.iter().find(|(first, ..)| *first == 0).unwrap();
    assert_eq!(
        *first,
        (0, 2047, vec![ports[1]]),
        "clients are not redirected to a dead node"
    );
    let lines = cluster.nodes[2].connect().text("CLUSTER NODES").unwrap();
    let gone = lines
        .lines()
        .find(|line| line.starts_with(&format!("{:040x} ", 1)))
        .unwrap();
    assert!(
        gone.contains(" master,fail ") && gone.ends_with(" disconnected"),
        "{gone}"
    );
    let info = cluster.nodes[2].connect().text("CLUSTER INFO").unwrap();
    assert!(
        info.contains("cluster_state:ok\r\n") && info.contains("cluster_size:2\r\n"),
        "{info}"
    );
    cluster.mark_gone(1);
    cluster.publish();
    let info = cluster.nodes[2].connect().text("CLUSTER INFO").unwrap();
    assert!(info.contains("cluster_state:fail\r\n"), "{info}");
}

#[test]
fn a_router_shows_itself_as_the_owner_of_all_slots() {
    let cluster = Cluster::batch(3, 2, 8, 10);
    let router = cluster.router();
    let mut connection = router.connect();
    assert_eq!(
        slots(&mut connection),
        [(0, 16383, vec![router.address().port().into()])]
    );
    let key = wire_key(3);
    assert_eq!(
        connection.text(&format!("GET {key}")),
        Some(value(1, 3)),
        "a router does not redirect"
    );
    let me = connection.text("CLUSTER MYID").unwrap();
    let lines = connection.text("CLUSTER NODES").unwrap();
    assert_eq!(me.len(), 40);
    assert!(lines.starts_with(&me) && lines.ends_with(" 0-16383\n"), "{lines}");
}

#[test]
fn a_cluster_client_is_redirected_to_an_owner() {
    let cluster = Cluster::batch(3, 1, 8, 100);
    let addresses: BTreeMap<String, usize> = (0..3).map(|at| (cluster.nodes[at].address().to_string(), at)).collect();
    let mut connection = cluster.nodes[0].connect();
    connection.send("READONLY").unwrap();
    let mut moved = 0;
    for key in 0..100 {
        let answer = connection.send(&format!("GET {}", wire_key(key)));
        if cluster.owners_of(key) == [0] {
            assert_eq!(answer.map(text), Ok(Some(value(1, key))));
            continue;
        }
        moved += 1;
        let error = answer.unwrap_err();
        let words: Vec<&str> = error.split(' ').collect();
        let slot = connection.send(&format!("CLUSTER KEYSLOT {}", wire_key(key))).unwrap();
        assert_eq!((words[0], Value::Int(words[1].parse().unwrap())), ("MOVED", slot));
        assert_eq!(cluster.owners_of(key), [addresses[words[2]]]);
    }
    assert_eq!(cluster.nodes[0].count(Counter::Moved), moved);
    assert_eq!(cluster.nodes[0].count(Counter::ForwardedLookups), 0);
}

#[test]
fn asking_is_answered_once_and_an_mget_over_slots_always() {
    let cluster = Cluster::batch(3, 1, 8, 100);
    let key = cluster.key(0, false);
    let get = format!("GET {}", wire_key(key));
    let mut connection = cluster.nodes[0].connect();
    connection.send("CLUSTER SHARDS").unwrap();
    assert!(connection.send(&get).unwrap_err().starts_with("MOVED"));
    connection.send("ASKING").unwrap();
    assert_eq!(connection.text(&get), Some(value(1, key)));
    assert!(connection.send(&get).unwrap_err().starts_with("MOVED"));
    let values = connection.mget(0..100);
    assert!(values.into_iter().eq((0..100).map(|key| Some(value(1, key)))));
    let same = connection.send(&format!("MGET {0} {0}", wire_key(key)));
    assert!(same.unwrap_err().starts_with("MOVED"), "keys of one slot are all there");
}

#[test]
fn a_slot_without_a_node_is_down() {
    let mut cluster = Cluster::batch(2, 1, 2, 50);
    let key = cluster.key(0, false);
    cluster.mark_gone(1);
    cluster.publish();
    let mut connection = cluster.nodes[0].connect();
    connection.send("READONLY").unwrap();
    let error = connection.send(&format!("GET {}", wire_key(key))).unwrap_err();
    assert!(error.starts_with("CLUSTERDOWN"), "{error}");
}

#[test]
fn a_node_without_a_cluster_owns_all_slots() {
    let cluster = Cluster::batch(1, 1, 4, 10);
    let mut connection = cluster.nodes[0].connect();
    let port = cluster.nodes[0].address().port().into();
    assert_eq!(slots(&mut connection), [(0, 16383, vec![port])]);
    assert_eq!(connection.text(&format!("GET {}", wire_key(5))), Some(value(1, 5)));
    assert!(
        connection
            .text("INFO cluster")
            .unwrap()
            .contains("cluster_enabled:1\r\n")
    );
    let key = wire_key(5);
    let mut number = |command: &str| match connection.send(command) {
        Ok(Value::Int(number)) => number,
        other => panic!("{command}: {other:?}"),
    };
    let slot = number(&format!("CLUSTER KEYSLOT {key}"));
    assert!(number(&format!("CLUSTER COUNTKEYSINSLOT {slot}")) >= 1);
    assert_eq!(number(&format!("TOUCH {key} {key} pymk:none")), 2);
    assert_eq!(number(&format!("EXPIRETIME {key}")), -1);
    assert_eq!(number("PEXPIRETIME pymk:none"), -2);
    let bytes = (key.len() + value(1, 5).len()) as i64;
    assert_eq!(number(&format!("MEMORY USAGE {key}")), bytes);
    let Ok(Value::Array(listed)) = connection.send(&format!("CLUSTER GETKEYSINSLOT {slot} 10")) else {
        panic!("no keys");
    };
    assert!(
        listed.contains(&Value::BulkString(key.clone().into_bytes())),
        "{listed:?}"
    );
    assert_eq!(
        connection.text(&format!("OBJECT ENCODING {key}")).as_deref(),
        Some("embstr")
    );
    assert!(connection.text("RANDOMKEY").unwrap().starts_with("pymk:"));
    let refused = connection.send("CLUSTER COUNTKEYSINSLOT 16384").unwrap_err();
    assert!(refused.contains("Invalid slot"), "{refused}");
    assert!(
        connection
            .send("CLUSTER REPLICAS x")
            .unwrap_err()
            .contains("Unknown node x")
    );
}

/// A `redis-server` that is a cluster by itself, with all slots.
struct RedisCluster {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl RedisCluster {
    /// `None` if there is no such server; prints why.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (port, bus_port) = (free_port(), free_port());
        let spawned = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--cluster-enabled",
                "yes",
                "--port",
            ])
            .arg(port.to_string())
            .arg("--cluster-port")
            .arg(bus_port.to_string())
            .arg("--dir")
            .arg(folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = match spawned {
            Ok(process) => process,
            Err(error) => {
                eprintln!("skipped: no redis-server to compare with: {error}");
                return None;
            }
        };
        let server = Self {
            process,
            port,
            _folder: folder,
        };
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        eventually("redis-server answers", || std::net::TcpStream::connect(address).ok());
        let mut connection = connect(address);
        connection.send("CLUSTER ADDSLOTSRANGE 0 16383").unwrap();
        until("redis-server is a cluster", || {
            let info = connection.text("CLUSTER INFO").unwrap();
            info.contains("cluster_state:ok")
        });
        Some(server)
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        // It may have exited already; then there is nothing left to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A reply without the details that differ from server to server: numbers, and texts with digits in them.
fn shape(value: Value) -> Value {
    let blank = |text: &str| {
        let digits = text.chars().map(|c| if c.is_ascii_hexdigit() { '#' } else { c });
        let mut text: String = digits.collect();
        while text.contains("##") {
            text = text.replace("##", "#");
        }
        text
    };
    match value {
        Value::Int(_) => Value::Int(0),
        Value::BulkString(bytes) => match std::str::from_utf8(&bytes).unwrap() {
            text if text.contains(|c: char| c.is_ascii_digit()) => Value::SimpleString(blank(text)),
            // The address of a server that does not know its own address.
            "" => Value::SimpleString("#.#.#.#".into()),
            _ => Value::BulkString(bytes),
        },
        Value::VerbatimString { text, .. } => Value::SimpleString(blank(&text)),
        Value::Array(elements) => Value::Array(elements.into_iter().map(shape).collect()),
        Value::Map(pairs) => Value::Map(pairs.into_iter().map(|(k, v)| (shape(k), shape(v))).collect()),
        other => other,
    }
}

#[test]
fn cluster_replies_have_the_same_shape_as_those_of_redis() {
    let Some(redis) = RedisCluster::start() else { return };
    let cluster = Cluster::batch(1, 1, 4, 10);
    for version in ["2", "3"] {
        let mut theirs = connect(([127, 0, 0, 1], redis.port).into());
        let mut ours = cluster.nodes[0].connect();
        for connection in [&mut theirs, &mut ours] {
            connection.send(&format!("HELLO {version}")).unwrap();
        }
        for command in [
            "CLUSTER SLOTS",
            "CLUSTER INFO",
            "CLUSTER LINKS",
            "CLUSTER MYID",
            "READONLY",
            "READWRITE",
            "ASKING",
            "INFO cluster",
        ] {
            let (theirs, ours) = (theirs.send(command), ours.send(command));
            if command == "INFO cluster" {
                let told = format!("{ours:?}");
                assert!(told.contains("cluster_enabled:1"), "{told}");
                continue;
            }
            assert_eq!(ours.map(shape), theirs.map(shape), "{command} in version {version}");
        }
        let same = [
            "CLUSTER KEYSLOT a{b}c",
            "CLUSTER COUNTKEYSINSLOT x",
            "CLUSTER COUNTKEYSINSLOT -1",
            "CLUSTER",
        ];
        for command in same {
            assert_eq!(
                ours.send(command),
                theirs.send(command),
                "{command} in version {version}"
            );
        }
        let fields = |lines: String| lines.split([' ', '\n']).count();
        assert_eq!(
            fields(lines(ours.send("CLUSTER NODES").unwrap())),
            fields(lines(theirs.send("CLUSTER NODES").unwrap()))
        );
        let names = |connection: &mut Connection| {
            let shards = elements(connection.send("CLUSTER SHARDS").unwrap());
            let mut names = Vec::new();
            names_in(shards, &mut names);
            names
        };
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(names(&mut ours)), sorted(names(&mut theirs)));
    }
}

fn lines(value: Value) -> String {
    match value {
        Value::VerbatimString { text, .. } => text,
        other => text(other).unwrap(),
    }
}

/// All words in a reply, at any depth.
fn names_in(values: Vec<Value>, names: &mut Vec<String>) {
    for value in values {
        match value {
            Value::Array(elements) => names_in(elements, names),
            Value::Map(pairs) => names_in(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect(), names),
            Value::BulkString(bytes) => {
                let word = String::from_utf8(bytes).unwrap();
                if !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()) {
                    names.push(word);
                }
            }
            _ => {}
        }
    }
}
