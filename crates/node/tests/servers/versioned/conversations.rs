//! Whole conversations get the replies of a real Redis 7.0: random requests in RESP2 and RESP3, in transactions, with invalid
//! options, many in one write and cut at any byte. A node, a router and a cluster answer, with keys that name their store and
//! without; stores of ids answer as Redis's sets.
//!
//! Each test runs for a few seconds, or for `FONDACO_TEST_SECONDS`. `FONDACO_TEST_SEED` repeats a run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fastrand::Rng;
use fondaco_model::ValueType;
use fondaco_node::Setting;
use fondaco_testing::random;
use redis::{Parser, Value};

use super::harness::Shape;
use super::like_redis::{BULK_BYTES_MAX, Requests, redis_server};
use crate::harness::{Cluster, PATIENCE};

const SECONDS: &str = "FONDACO_TEST_SECONDS";
const SECONDS_DEFAULT: u64 = 5;

/// Text that is no option, no name and no number.
const ODD: [&str; 9] = [
    "",
    "x",
    " x ",
    "a\r\nb",
    "x\r\n",
    "a\0b",
    "ä",
    "-1",
    "99999999999999999999",
];

/// Requests about the connection; the last words may be odd text.
const OF_CONNECTION: [&str; 44] = [
    "PING",
    "PING hello",
    "PING a b",
    "ECHO hello",
    "ECHO",
    "SELECT 0",
    "SELECT abc",
    "SELECT 16",
    "SELECT -1",
    "SELECT 99999999999",
    "SELECT ?",
    "CLIENT GETNAME",
    "CLIENT SETNAME me",
    "CLIENT SETNAME ?",
    "CLIENT ?",
    "CLIENT",
    "CLIENT LIST TYPE ?",
    "CLIENT LIST ?",
    "CLIENT LIST ID ?",
    "SLOWLOG GET -2",
    "CLIENT NO-EVICT ?",
    "CLIENT KILL ID 1 ?",
    "SLOWLOG GET x",
    "SLOWLOG GET 1 2",
    "SLOWLOG ?",
    "ACL CAT ?",
    "ACL CAT a b",
    "ACL WHOAMI",
    "CONFIG SET a",
    "CONFIG SET a b ?",
    "CONFIG ?",
    "HELLO ?",
    "HELLO 2 ?",
    "HELLO 9",
    "COMMAND COUNT ?",
    "COMMAND GETKEYS SET a",
    "SCAN x",
    "SCAN 0 COUNT ?",
    "SCAN 0 ?",
    "WAIT x 0",
    "WAIT 0 ?",
    "? ?",
    "NOSUCH ? ? ?",
    "DBSIZE ?",
];

/// Requests about transactions, and those that end them.
const OF_TRANSACTIONS: [&str; 10] = [
    "MULTI",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "EXEC a",
    "DISCARD",
    "DISCARD a",
    "RESET",
];

fn duration() -> Duration {
    let given = std::env::var(SECONDS).ok();
    Duration::from_secs(given.map_or(SECONDS_DEFAULT, |text| text.parse().expect("a number of seconds")))
}

fn encoded(words: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

struct Peer {
    stream: TcpStream,
    parser: Parser,
}

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            parser: Parser::new(),
        }
    }

    /// Sends bytes in pieces that end anywhere.
    fn send(&mut self, bytes: &[u8], cuts: usize, random: &mut Rng) {
        let mut ends: Vec<usize> = (0..cuts).map(|_| random.usize(..=bytes.len())).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut from = 0;
        for end in ends {
            self.stream.write_all(&bytes[from..end]).unwrap();
            from = end;
        }
    }

    fn reply(&mut self) -> Value {
        self.parser.parse_value(&mut self.stream).unwrap()
    }

    /// Whether the server has closed the connection.
    fn is_at_end(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A conversation: the requests in order.
fn conversation(requests: &mut Requests, strip: &str) -> Vec<Vec<String>> {
    let version = requests.one(&["2", "3"]).to_owned();
    let mut all = vec![vec!["HELLO".to_owned(), version]];
    for _ in 0..requests.random.usize(3..40) {
        let words: Vec<String> = match requests.random.u64(..10) {
            0..3 => requests.one(&OF_CONNECTION).split(' ').map(str::to_owned).collect(),
            3 => requests.one(&OF_TRANSACTIONS).split(' ').map(str::to_owned).collect(),
            4 => requests
                .one(&[
                    "OBJECT ENCODING s:a",
                    "EXPIRE s:a 5000 ?",
                    "MSETNX s:a",
                    "MSETNX s:a b s:b",
                    "GET ? ?",
                ])
                .split(' ')
                .map(str::to_owned)
                .collect(),
            5 => vec![
                "SET".into(),
                requests.key(),
                "long ".repeat(requests.random.usize(..6_000)),
            ],
            _ => {
                let request = requests.next();
                match request.is_time_left {
                    // The two are not asked at the same time.
                    true => vec!["GET".into(), requests.key()],
                    false => request.words,
                }
            }
        };
        let words = words.into_iter().map(|word| match word.as_str() {
            "?" => requests.one(&ODD).to_owned(),
            key if key.starts_with("s:") => key[strip.len()..].to_owned(),
            _ => word,
        });
        all.push(words.collect());
    }
    all
}

/// Whether replies are alike: all but what is known to differ, see `docs/commands.md`.
fn are_alike(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| are_alike(ours, theirs))
        }
        // Redis keeps a string that it has changed in another encoding than one that it was given.
        (Value::BulkString(ours), Value::BulkString(theirs)) if theirs == b"raw" => {
            [&b"raw"[..], b"embstr", b"int"].contains(&&ours[..])
        }
        (Value::ServerError(ours), Value::ServerError(theirs)) => {
            let (ours, theirs) = (ours.details().unwrap_or_default(), theirs.details().unwrap_or_default());
            // The names of options and settings are other ones.
            ours == theirs || theirs.starts_with("Unknown option or number of arguments for CONFIG SET")
        }
        (ours, theirs) => ours == theirs,
    }
}

/// Compares conversations with the server at an address until the time is over.
fn compare(what: &str, address: SocketAddr, strip: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some((server, _)) = redis_server(dir.path()) else {
        return;
    };
    let mut requests = Requests { random: random(what) };
    let end = Instant::now() + duration();
    let mut count = 0;
    while Instant::now() < end {
        let said = conversation(&mut requests, strip);
        let bytes = said.iter().flat_map(|words| encoded(words)).collect::<Vec<u8>>();
        let cuts = requests.random.usize(..12);
        let (mut ours, mut theirs) = (Peer::connect(address), Peer::connect(server.address));
        theirs.send(&bytes, 0, &mut requests.random);
        ours.send(&bytes, cuts, &mut requests.random);
        for (at, words) in said.iter().enumerate() {
            let (our, their) = (ours.reply(), theirs.reply());
            let is_hello = matches!(their, Value::Map(_)) || words[0] == "HELLO";
            let is_alike = match is_hello {
                true => std::mem::discriminant(&our) == std::mem::discriminant(&their),
                false => are_alike(&our, &their),
            };
            assert!(
                is_alike,
                "{words:?}: {our:?}, and Redis: {their:?}, after\n{:?}",
                &said[at.saturating_sub(12)..at]
            );
            count += 1;
        }
        // A request that cannot be parsed ends the connection.
        let nonsense = requests
            .one(&["*x\r\n", "*1\r\n$x\r\n", "ECHO \"x\r\n", "*1\r\nfoo\r\n"])
            .as_bytes();
        ours.send(nonsense, 1, &mut requests.random);
        theirs.send(nonsense, 0, &mut requests.random);
        assert_eq!(ours.reply(), theirs.reply(), "{nonsense:?}");
        assert!(ours.is_at_end());
    }
    println!("{what}: {count} requests");
    assert!(count > 0);
}

fn three_nodes() -> Cluster {
    started(Shape {
        nodes: 3,
        replicas: 3,
        ..Shape::default()
    })
}

fn started(shape: Shape) -> Cluster {
    let cluster = Cluster::versioned(shape);
    let nodes = cluster.nodes.iter();
    nodes.for_each(|node| node.settings.set(Setting::BulkBytesMax, BULK_BYTES_MAX).unwrap());
    cluster
}

#[test]
fn a_node_converses_like_redis() {
    let cluster = started(Shape::default());
    compare("a node beside Redis", cluster.nodes[0].address(), "");
}

#[test]
fn a_cluster_converses_like_redis() {
    let cluster = three_nodes();
    compare("a cluster beside Redis", cluster.nodes[1].address(), "");
}

#[test]
fn a_router_converses_like_redis() {
    let cluster = three_nodes();
    let router = cluster.router();
    router.settings.set(Setting::BulkBytesMax, BULK_BYTES_MAX).unwrap();
    compare("a router beside Redis", router.address(), "");
}

#[test]
fn a_default_store_converses_like_redis() {
    let cluster = started(Shape {
        default_store: Some("s".parse().unwrap()),
        ..Shape::default()
    });
    compare("a default store beside Redis", cluster.nodes[0].address(), "s:");
}

#[test]
fn a_set_command_on_text_is_of_the_wrong_type() {
    let cluster = started(Shape::default());
    let mut connection = cluster.nodes[0].connect();
    connection.send("SET s:a text").unwrap();
    for request in [
        "SISMEMBER s:a x",
        "SISMEMBER s:a 1",
        "SMISMEMBER s:a 1 x",
        "SMEMBERS s:a",
        "SUNION s:a s:b",
    ] {
        assert_eq!(connection.code(request), "WRONGTYPE", "{request}");
    }
}

#[test]
fn a_store_of_ids_answers_like_sets_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let Some((server, _)) = redis_server(dir.path()) else {
        return;
    };
    let cluster = started(Shape {
        nodes: 3,
        replicas: 3,
        value_type: ValueType::Ids,
        ..Shape::default()
    });
    let mut requests = Requests {
        random: random("ids beside sets of Redis"),
    };
    let end = Instant::now() + duration();
    let ask = |peer: &mut Peer, words: &[String]| {
        peer.send(&encoded(words), 0, &mut Rng::new());
        peer.reply()
    };
    let (mut ours, mut theirs) = (Peer::connect(cluster.nodes[0].address()), Peer::connect(server.address));
    while Instant::now() < end {
        let version = requests.one(&["2", "3"]).to_owned();
        let hello = ["HELLO".to_owned(), version];
        ask(&mut ours, &hello);
        ask(&mut theirs, &hello);
        let key = format!("s:{}", requests.random.u64(..4));
        let ids: Vec<String> = (0..requests.random.usize(1..20))
            .map(|_| requests.random.u64(..30).to_string())
            .collect();
        ask(&mut ours, &["SET".into(), key.clone(), ids.join(" ")]);
        ask(&mut theirs, &["DEL".into(), key.clone()]);
        ask(&mut theirs, &[&["SADD".to_owned(), key][..], &ids].concat());
        for _ in 0..10 {
            let command = requests.one(&[
                "SMEMBERS",
                "SCARD",
                "SISMEMBER",
                "SMISMEMBER",
                "SUNION",
                "SINTER",
                "SDIFF",
            ]);
            let keys = match command {
                "SUNION" | "SINTER" | "SDIFF" => requests.random.usize(0..4),
                _ => 1,
            };
            let mut words = vec![command.to_owned()];
            words.extend((0..keys).map(|_| format!("s:{}", requests.random.u64(..6))));
            if command.ends_with("MEMBER") {
                let members = requests.random.usize(0..4);
                words.extend((0..members).map(|_| {
                    match requests.sometimes(7) {
                        true => requests.random.u64(..30).to_string(),
                        false => requests
                            .one(&["x", "", "-1", "007", "+5", "18446744073709551615", "1.0"])
                            .to_owned(),
                    }
                }));
            }
            let (our, their) = (sorted(ask(&mut ours, &words)), sorted(ask(&mut theirs, &words)));
            assert_eq!(our, their, "{words:?}");
        }
    }
}

/// Redis returns the members of a set in any order.
fn sorted(value: Value) -> Value {
    let by_bytes = |mut members: Vec<Value>| {
        members.sort_by_key(|member| match member {
            Value::BulkString(bytes) => bytes.clone(),
            // Flags, whose order counts.
            _ => Vec::new(),
        });
        members
    };
    match value {
        Value::Set(members) => Value::Set(by_bytes(members)),
        Value::Array(members) => Value::Array(by_bytes(members)),
        other => other,
    }
}
