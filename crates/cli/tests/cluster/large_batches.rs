//! Large batches: their values are sent in the order of their keys as they come, before all of them are there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cluster::{Cluster, Shape};
use super::node::{Node, until};
use super::values::{KEYS, read_all, value, version_of};

/// The processes that are asked: a node, which holds some of the keys, and a router, which holds no key.
pub(super) const ASKERS: [&str; 2] = ["node-1", "router-1"];

/// How often each key is asked for: the batch has ten thousand keys.
const TIMES: usize = 5;

/// A cluster of two nodes, whose second one hangs when a test wishes so.
pub(super) struct Halves {
    pub(super) cluster: Cluster,
    /// The keys that are with the first node, and those that are with the second one.
    keys: [Vec<u64>; 2],
}

impl Halves {
    pub(super) fn start() -> Self {
        let cluster = Cluster::start(Shape {
            nodes: 2,
            replicas: 1,
            ..Shape::steady()
        });
        // A router would answer from its cache what it has asked for before.
        for setting in ["forward-timeout-ms=20000", "router-cache-bytes=0"] {
            cluster.any().done(&["config", "set", setting]);
        }
        cluster.create(&[]);
        cluster.deploy(&cluster.build(1));
        let mut halves = Self {
            cluster,
            keys: Default::default(),
        };
        let all: Vec<u64> = (0..KEYS).collect();
        let mut keys = None;
        halves.while_it_hangs("node-1", |node| {
            let mut batch = Batch::ask(node, &["DEADLINE", "300", "PARTIAL"], &all);
            batch.begin();
            let values: Vec<_> = all.iter().map(|_| batch.value()).collect();
            let is_here = |key: &u64| values[*key as usize].is_some();
            let found: [Vec<u64>; 2] = all.iter().partition(|key| is_here(key)).into();
            let late = batch.late().map_or(0, |(_, late)| late.len());
            keys = (late == found[1].len()).then_some(found);
            keys.is_some()
        });
        halves.keys = keys.unwrap();
        halves
    }

    /// The keys of a large batch: all those of the first node, and then those of the second one.
    fn batch(&self) -> Vec<u64> {
        self.keys.iter().flat_map(|keys| keys.repeat(TIMES)).collect()
    }

    fn first_keys(&self) -> usize {
        self.keys[0].len() * TIMES
    }

    /// Tries something with the second node stopped, and again if it took so long that the node was given up: with a connection
    /// that is silent for half a second, keys that only this node has cannot be read.
    pub(super) fn while_it_hangs(&self, asker: &str, mut is_done: impl FnMut(&Node) -> bool) {
        const TRIES: usize = 20;
        let node = self.cluster.get(asker);
        for _ in 0..TRIES {
            until("all keys can be read", || read_all(&mut node.redis()).is_ok());
            self.signal(Signal::STOP);
            let is_done = is_done(node);
            self.signal(Signal::CONT);
            if is_done {
                return;
            }
        }
        panic!("{asker}: the node was given up each time");
    }

    fn signal(&self, signal: Signal) {
        send(self.cluster.get("node-2"), signal);
    }
}

/// Sends a signal to a process.
pub(super) fn send(node: &Node, signal: Signal) {
    let pid = i32::try_from(node.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), signal).unwrap();
}

/// A request under way, whose reply is read one element after the other.
struct Batch {
    reply: BufReader<TcpStream>,
    /// The length of the reply.
    elements: usize,
}

impl Batch {
    fn ask(node: &Node, options: &[&str], keys: &[u64]) -> Self {
        let keys = keys.iter().map(|key| format!("s:{key}"));
        let words = ["FONDACO.MGET"].iter().chain(options).map(|word| (*word).to_owned());
        let words: Vec<String> = words.chain(keys).collect();
        let mut request = format!("*{}\r\n", words.len());
        words
            .iter()
            .for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        let mut socket = node.socket();
        socket.write_all(request.as_bytes()).unwrap();
        Self {
            reply: BufReader::new(socket),
            elements: 0,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reply.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for the beginning of the reply.
    fn begin(&mut self) {
        let line = self.line();
        self.elements = line.strip_prefix('*').expect(&line).parse().unwrap();
    }

    /// Waits for the next value; `None` if it is null, or an error.
    fn value(&mut self) -> Option<String> {
        let line = self.line();
        if line.starts_with("-UNAVAILABLE") {
            return None;
        }
        let length = line.strip_prefix('$').expect(&line);
        if length == "-1" {
            return None;
        }
        let mut value = vec![0; length.parse::<usize>().unwrap() + 2];
        self.reply.read_exact(&mut value).unwrap();
        value.truncate(value.len() - 2);
        Some(String::from_utf8(value).unwrap())
    }

    /// Waits for the next values, which must be those of these keys in this version.
    fn expect(&mut self, version: u64, keys: &[u64]) {
        assert!(self.is_whole(version, keys), "a key has no value");
    }

    /// The same; false if keys could not be read.
    fn is_whole(&mut self, version: u64, keys: &[u64]) -> bool {
        let mut is_there = |&key: &u64| match self.value() {
            Some(found) => {
                assert_eq!(found, value(version, key), "key {key}");
                true
            }
            None => false,
        };
        keys.iter().filter(|key| is_there(key)).count() == keys.len()
    }

    /// Waits for the list of keys without an answer: the reason, and their places.
    fn late(&mut self) -> Option<(String, Vec<usize>)> {
        let line = self.line();
        if line == "$-1" {
            return None;
        }
        let length: usize = line.strip_prefix('*').expect(&line).parse().unwrap();
        let reason = self.value().unwrap();
        let places = (1..length).map(|_| self.line().strip_prefix(':').unwrap().parse().unwrap());
        Some((reason, places.collect()))
    }
}

#[test]
fn the_first_values_of_a_large_batch_are_there_before_a_node_that_hangs_has_answered() {
    let halves = Halves::start();
    let (keys, early) = (halves.batch(), halves.first_keys());
    for asker in ASKERS {
        halves.while_it_hangs(asker, |node| {
            let mut batch = Batch::ask(node, &["DEADLINE", "50000", "PARTIAL"], &keys);
            batch.begin();
            assert_eq!(batch.elements, keys.len() + 1);
            batch.expect(1, &keys[..early]);
            halves.signal(Signal::CONT);
            let is_whole = batch.is_whole(1, &keys[early..]);
            assert_eq!(batch.late().is_none(), is_whole);
            is_whole
        });
    }
}

#[test]
fn a_large_batch_ends_at_its_deadline_with_the_values_that_came() {
    let halves = Halves::start();
    let (keys, early) = (halves.batch(), halves.first_keys());
    for asker in ASKERS {
        halves.while_it_hangs(asker, |node| {
            let begun = Instant::now();
            let mut batch = Batch::ask(node, &["DEADLINE", "300", "PARTIAL"], &keys);
            batch.begin();
            // On a busy machine, the other node can be late, too.
            if !batch.is_whole(1, &keys[..early]) {
                return false;
            }
            (early..keys.len()).for_each(|at| assert_eq!(batch.value(), None, "key {}", keys[at]));
            let Some((reason, late)) = batch.late() else {
                return false;
            };
            assert!(reason.starts_with("TIMEOUT"), "{reason}");
            // Far less than the 20 s that a request may take here, and far more than a busy machine delays it.
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            late == (early..keys.len()).collect::<Vec<_>>()
        });
    }
}

#[test]
fn a_large_batch_under_way_is_completed_from_the_version_that_it_began_with() {
    let halves = Halves::start();
    halves.cluster.deploy(&halves.cluster.build(2));
    let (keys, early) = (halves.batch(), halves.first_keys());
    for asker in ASKERS {
        halves.while_it_hangs(asker, |node| {
            let mut batch = Batch::ask(node, &[], &keys);
            batch.begin();
            batch.expect(2, &keys[..early]);
            let is_whole = std::thread::scope(|scope| {
                let rollback = scope.spawn(|| halves.cluster.any().run(&["rollback", "s"]));
                let mut redis = node.redis();
                until("the rollback is known", || {
                    let key = halves.keys[0][0];
                    let found: String = redis::cmd("GET").arg(format!("s:{key}")).query(&mut redis).unwrap();
                    version_of(&found, key) == Ok(1)
                });
                halves.signal(Signal::CONT);
                assert!(rollback.join().unwrap().status.success());
                batch.is_whole(2, &keys[early..])
            });
            halves.cluster.any().done(&["swap", "s", "--to", "2"]);
            is_whole
        });
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_large_batch_ends_it() {
    let halves = Halves::start();
    let (keys, early) = (halves.batch(), halves.first_keys());
    let under_way = |node: &Node| -> u64 {
        let url = format!("http://{}/metrics", node.http);
        let text = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("fondaco_forwards "));
        line.unwrap().parse().unwrap()
    };
    for asker in ASKERS {
        halves.while_it_hangs(asker, |node| {
            let mut batch = Batch::ask(node, &["DEADLINE", "3600000"], &keys);
            batch.begin();
            batch.expect(1, &keys[..early]);
            let was_under_way = under_way(node) > 0;
            drop(batch);
            until("its keys are given up", || under_way(node) == 0);
            was_under_way
        });
    }
}

#[test]
fn a_client_that_is_slow_to_receive_a_large_batch_gets_it_whole_and_delays_no_other_one() {
    let halves = Halves::start();
    let keys = halves.batch().repeat(8);
    for asker in ASKERS {
        // Far more than the buffers of sockets hold.
        let mut batch = Batch::ask(halves.cluster.get(asker), &["DEADLINE", "50000", "PARTIAL"], &keys);
        batch.begin();
        batch.expect(1, &keys[..1]);
        let mut other = Batch::ask(halves.cluster.get(asker), &[], &keys[..5000]);
        other.begin();
        other.expect(1, &keys[..5000]);
        batch.expect(1, &keys[1..]);
        assert_eq!(batch.late(), None);
    }
}
