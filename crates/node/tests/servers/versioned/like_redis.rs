//! Commands on one key of a versioned store return what a real Redis 7.0 returns: random requests, sent to both, with
//! random options, many of them invalid.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use fondaco_node::Setting;
use fondaco_testing::until;
use fondaco_testing::{ServerProcess, free_port, random};
use redis::Value;

use super::harness::Shape;
use crate::harness::{Cluster, Connection};

/// How many requests are compared.
const REQUESTS: usize = 4_000;
/// By how much the remaining time of a key may differ, in milliseconds: the two are not asked at the same time.
const TIME_LEFT_TOLERANCE_MS: i64 = 10_000;

/// The longest argument and value: the lowest limit that Redis accepts.
pub const BULK_BYTES_MAX: u64 = 1024 * 1024;

const VALUES: [&str; 11] = [
    "",
    "1",
    "-3",
    "10",
    "abc",
    " 1",
    "007",
    "+5",
    "9223372036854775807",
    "-9223372036854775808",
    "a longer value",
];
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "5",
    "x",
    "",
    "1.5",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];

/// Invalid times to live, or times that have passed.
const NO_SPANS: [&str; 7] = ["0", "-1", "x", "", "1.5", "9223372036854775807", "9223372036854775808"];

/// A Redis to compare with.
pub struct RedisServer {
    pub address: SocketAddr,
    _process: ServerProcess,
}

/// A Redis to compare with; `None` if this version is not installed, after printing why.
pub fn redis_server(dir: &Path) -> Option<(RedisServer, Connection)> {
    let version = Command::new("redis-server").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.as_ref().is_ok_and(|version| version.contains("v=7.0.")) {
        eprintln!("skipped: no redis-server of version 7.0 to compare with: {version:?}");
        return None;
    }
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    // Settings that both must share.
    command
        .args(["--proto-max-bulk-len", &BULK_BYTES_MAX.to_string(), "--dir"])
        .arg(dir);
    let process = ServerProcess::start("redis-server", &mut command, &dir.join("redis.log"));
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let mut connection = None;
    until("redis-server answers", || {
        connection = client.get_connection().ok();
        connection.is_some()
    });
    let server = RedisServer {
        address: ([127, 0, 0, 1], port).into(),
        _process: process,
    };
    Some((server, Connection(connection?)))
}

/// A request, and how the two replies may differ.
pub struct Request {
    pub words: Vec<String>,
    pub is_time_left: bool,
}

/// Makes requests.
pub struct Requests {
    pub random: Rng,
}

impl Requests {
    pub fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(..of.len())]
    }

    pub fn sometimes(&mut self, times_in_ten: u64) -> bool {
        self.random.u64(..10) < times_in_ten
    }

    pub fn key(&mut self) -> String {
        self.one(&["s:a", "s:a", "s:a", "s:b"]).to_owned()
    }

    fn value(&mut self) -> String {
        self.one(&VALUES).to_owned()
    }

    fn number(&mut self) -> String {
        match self.sometimes(7) {
            true => self.random.u64(..100).to_string(),
            false => self.one(&NUMBERS).to_owned(),
        }
    }

    /// A time to live: long enough that nothing expires during the test, and hardly ever the same twice.
    fn span(&mut self, per_second: u64) -> String {
        match self.sometimes(8) {
            true => ((1_000 + self.random.u64(..10_000_000)) * per_second).to_string(),
            false => self.one(&NO_SPANS).to_owned(),
        }
    }

    /// A Unix time, far in the future or in the past.
    fn moment(&mut self, per_second: u64) -> String {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        match self.random.u64(..4) {
            0 => self.one(&NUMBERS).to_owned(),
            1 => ((now_s - 1_000) * per_second).to_string(),
            _ => ((now_s + 1_000 + self.random.u64(..10_000_000)) * per_second).to_string(),
        }
    }

    fn end_option(&mut self, words: &mut Vec<String>) {
        let option = self.one(&["EX", "PX", "EXAT", "PXAT", "px", "KEEPTTL", "PERSIST"]);
        words.push(option.to_owned());
        match option {
            "EX" => words.push(self.span(1)),
            "PX" | "px" => words.push(self.span(1000)),
            "EXAT" => words.push(self.moment(1)),
            "PXAT" => words.push(self.moment(1000)),
            _ => {}
        }
    }

    pub fn next(&mut self) -> Request {
        let command = self.one(&[
            "GET",
            "GET",
            "SET",
            "SET",
            "SET",
            "SETNX",
            "SETEX",
            "PSETEX",
            "GETSET",
            "GETDEL",
            "GETEX",
            "APPEND",
            "SETRANGE",
            "GETRANGE",
            "STRLEN",
            "INCR",
            "DECR",
            "INCRBY",
            "DECRBY",
            "EXPIRE",
            "PEXPIRE",
            "EXPIREAT",
            "PEXPIREAT",
            "PERSIST",
            "TTL",
            "PTTL",
            "EXISTS",
            "TYPE",
            "DEL",
            "UNLINK",
            "MSET",
            "MGET",
            "incr",
        ]);
        let mut words = vec![command.to_owned(), self.key()];
        match command {
            "SET" => {
                words.push(self.value());
                for _ in 0..self.random.u64(..3) {
                    match self.random.u64(..4) {
                        0 => words.push(self.one(&["NX", "XX", "nx", "xx"]).to_owned()),
                        1 => words.push("GET".to_owned()),
                        _ => self.end_option(&mut words),
                    }
                }
            }
            "GETEX" => (0..self.random.u64(..2)).for_each(|_| self.end_option(&mut words)),
            "SETNX" | "GETSET" | "APPEND" => words.push(self.value()),
            "SETEX" => words.extend([self.span(1), self.value()]),
            "PSETEX" => words.extend([self.span(1000), self.value()]),
            "SETRANGE" => words.extend([self.number(), self.value()]),
            "GETRANGE" => words.extend([self.number(), self.number()]),
            "INCRBY" | "DECRBY" => words.push(self.number()),
            "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
                words.push(match command {
                    "EXPIRE" => self.span(1),
                    "PEXPIRE" => self.span(1000),
                    "EXPIREAT" => self.moment(1),
                    _ => self.moment(1000),
                });
                for _ in 0..self.random.u64(..3) {
                    words.push(self.one(&["NX", "XX", "GT", "LT", "gt", "ZZ"]).to_owned());
                }
            }
            "EXISTS" | "DEL" | "UNLINK" | "MGET" if self.sometimes(3) => words.push(self.key()),
            "MSET" => {
                words.push(self.value());
                if self.sometimes(5) {
                    words.extend([self.key(), self.value()]);
                }
            }
            _ => {}
        }
        // Now and then an argument too few or too many.
        if self.random.u64(..40) == 0 {
            words.pop();
        } else if self.random.u64(..40) == 0 {
            words.push(match command {
                "EXISTS" | "DEL" | "UNLINK" | "MGET" => self.key(),
                _ => self.value(),
            });
        }
        Request {
            is_time_left: command == "TTL" || command == "PTTL",
            words,
        }
    }
}

fn are_alike(request: &Request, ours: &Result<Value, String>, theirs: &Result<Value, String>) -> bool {
    match (ours, theirs) {
        (Ok(Value::Int(ours)), Ok(Value::Int(theirs))) if request.is_time_left => {
            let per_unit = if request.words[0] == "TTL" { 1000 } else { 1 };
            (*ours < 0) == (*theirs < 0) && (ours - theirs).abs() * per_unit <= TIME_LEFT_TOLERANCE_MS
        }
        (ours, theirs) => ours == theirs,
    }
}

fn compare(cluster: &Cluster) {
    let dir = tempfile::tempdir().unwrap();
    let Some((_server, mut theirs)) = redis_server(dir.path()) else {
        return;
    };
    cluster
        .nodes
        .iter()
        .for_each(|node| node.settings.set(Setting::BulkBytesMax, BULK_BYTES_MAX).unwrap());
    let mut ours = cluster.nodes[0].connect();
    let mut requests = Requests {
        random: random("commands compared with Redis"),
    };
    let mut last: Vec<String> = Vec::new();
    for _ in 0..REQUESTS {
        let request = requests.next();
        let (our, their) = (ours.ask(&request.words), theirs.ask(&request.words));
        last.push(format!("{:?} -> {their:?}", request.words));
        if !are_alike(&request, &our, &their) {
            let shown = &last[last.len().saturating_sub(12)..];
            panic!(
                "{:?}: {our:?}, and Redis: {their:?}, after\n{}",
                request.words,
                shown.join("\n")
            );
        }
    }
}

#[test]
fn one_node_replies_to_random_commands_like_redis() {
    compare(&Cluster::versioned(Shape::default()));
}

#[test]
fn three_replicas_reply_to_random_commands_like_redis() {
    compare(&Cluster::versioned(Shape {
        nodes: 3,
        replicas: 3,
        ..Shape::default()
    }));
}
