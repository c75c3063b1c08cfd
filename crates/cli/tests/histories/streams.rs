//! A hybrid store that reads a topic of a real Kafka, while nodes and the broker are killed: each answer of a node is
//! compared with its earlier answers, with what it says that it has read, and in the end with all events.
//!
//! The value of a key is the number of its event. An event with a greater number is later, in whatever order they are
//! logged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use fondaco_testing::{Kafka, KafkaWriter};
use parking_lot::{Mutex, RwLock};
use redis::{Connection, Value};

use super::cluster::{Cluster, Shape};
use super::node::{of_csv, until, write_csv};
use super::promises::{End, given};

const NODES: u32 = 3;
const KEYS: usize = 40;
const COUNTERS: usize = 20;
const TOPIC_PARTITIONS: i32 = 3;
/// How many events are logged together.
const EVENTS: usize = 40;
/// The time between them.
const REST: Duration = Duration::from_millis(60);
/// The time between two faults, in milliseconds.
const FAULTS_MS: std::ops::Range<u64> = 300..2500;
/// How long faults occur, unless `FONDACO_CHECKER_SECONDS` is set.
const SECONDS: u64 = 20;
/// How long a request may take: some nodes are killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least number of answers that are compared in each way, so that the test proves something.
const ANSWERS_MIN: u64 = 500;
/// How long before they are logged events happen, in milliseconds.
const BACK_MS: u64 = 3_600_000;
const BROKER: &str = "the broker";
/// One of this number of events deletes its key.
const DELETIONS: u64 = 7;

/// The key and the number of a record of the topic; `None` of an increment.
type Record = Option<(usize, u64)>;

/// The events that are known to be in the topic.
#[derive(Default)]
struct Topic {
    /// The number of the latest event of each key.
    latest: BTreeMap<usize, u64>,
    /// The sum of each counter.
    sums: BTreeMap<usize, u64>,
    /// The records of each partition, by their offsets.
    records: BTreeMap<u64, Vec<Record>>,
}

#[derive(Default)]
struct History {
    topic: RwLock<Topic>,
    /// The number of the last event that was sent.
    sent: AtomicU64,
    /// How many answers were compared with earlier ones.
    followed: AtomicU64,
    /// How many answers were compared with what the node said that it had read.
    included: AtomicU64,
    broken: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl History {
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// How many answers of either kind were compared: the smaller number.
    fn answers(&self) -> u64 {
        self.followed.load(SeqCst).min(self.included.load(SeqCst))
    }

    fn break_by(&self, what: String) {
        self.broken.lock().push(what);
        self.is_over.store(true, SeqCst);
    }

    /// The values of keys, and then those of counters, in the end.
    fn expected(&self) -> Vec<Option<u64>> {
        let topic = self.topic.read();
        let latest = (0..KEYS).map(|key| topic.latest.get(&key).copied());
        let keys = latest.map(|number| number.filter(|number| number % DELETIONS != 0));
        keys.chain((0..COUNTERS).map(|counter| topic.sums.get(&counter).copied()))
            .collect()
    }
}

fn name(key: usize) -> String {
    format!("key-{key}")
}

fn counter_name(counter: usize) -> String {
    format!("counter-{counter}")
}

/// Logs events until the end: not in the order of their times, and some increments twice.
fn log(history: &History, writer: &KafkaWriter, mut rng: Rng) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let began_ms = now.as_millis() as u64 - BACK_MS;
    while !history.is_over() {
        let first = history.sent.fetch_add(EVENTS as u64, SeqCst) + 1;
        let mut numbers: Vec<u64> = (first..first + EVENTS as u64).collect();
        rng.shuffle(&mut numbers);
        let mut sent = Vec::<(i32, Record)>::new();
        let (mut counted, mut latest) = (BTreeMap::<usize, u64>::new(), BTreeMap::<usize, u64>::new());
        for number in numbers {
            let (key, partition) = (rng.usize(..KEYS), rng.i32(0..TOPIC_PARTITIONS));
            let time_ms = (began_ms + number).to_string();
            let value = (number % DELETIONS != 0).then(|| number.to_string());
            let headers = [("event-time", &*time_ms)];
            writer.send(partition, Some(&name(key)), value.as_deref(), headers);
            sent.push((partition, Some((key, number))));
            let known = latest.entry(key).or_default();
            *known = number.max(*known);
            if rng.u8(..4) == 0 {
                let counter = rng.usize(..COUNTERS);
                let id = number.to_string();
                let headers = [("event-time", &*time_ms), ("event-type", "update"), ("event-id", &id)];
                for _ in 0..rng.usize(1..=2) {
                    let partition = rng.i32(0..TOPIC_PARTITIONS);
                    writer.send(
                        partition,
                        Some(&counter_name(counter)),
                        Some(r#"{"increment":1}"#),
                        headers,
                    );
                    sent.push((partition, None));
                }
                *counted.entry(counter).or_default() += 1;
            }
        }
        writer.flush();
        let mut topic = history.topic.write();
        topic.latest.append(&mut latest);
        for (counter, count) in counted {
            *topic.sums.entry(counter).or_default() += count;
        }
        for (partition, record) in sent {
            topic.records.entry(partition as u64).or_default().push(record);
        }
        drop(topic);
        thread::park_timeout(REST);
    }
}

fn connect(address: &str) -> Option<Connection> {
    let client = redis::Client::open(format!("redis://{address}")).ok()?;
    let connection = client.get_connection_with_timeout(PATIENCE).ok()?;
    connection.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(connection)
}

/// The number that a version has on a node alone, if the node answers.
fn read(connection: &mut Connection, version: u64, key: &str) -> Option<Option<u64>> {
    let mut request = redis::cmd("FONDACO.READ");
    request.arg("v1;timeout=2000").arg(0).arg(version).arg("h").arg(key);
    match request.query::<Vec<Value>>(connection).ok()?.pop()? {
        Value::Nil => Some(None),
        Value::BulkString(text) => Some(Some(number(key, &text))),
        _ => None,
    }
}

fn number(key: &str, text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    text.parse()
        .unwrap_or_else(|error| panic!("{key} is {text:?}: {error}"))
}

/// Reads from a node until the end: it must not answer with an earlier event than before, across its restarts, too.
fn follow(history: &History, address: &str, mut rng: Rng) {
    let mut seen = BTreeMap::new();
    let mut connection = None;
    while !history.is_over() {
        let Some(open) = connection.as_mut() else {
            connection = connect(address);
            thread::park_timeout(Duration::from_millis(20));
            continue;
        };
        let key = rng.usize(..KEYS);
        let Some(found) = read(open, 1, &name(key)) else {
            connection = None;
            continue;
        };
        // It is unknown by which event a key was deleted.
        let Some(found) = found else { continue };
        let last = seen.entry(key).or_insert(0);
        history.followed.fetch_add(1, SeqCst);
        if found < *last {
            history.break_by(format!("{address} had event {last} of {}, and then {found}", name(key)));
        }
        *last = found;
    }
}

/// Reads through a router until the end: it answers with events, whichever nodes are killed.
fn read_through(history: &History, address: &str, mut rng: Rng) {
    let mut connection = None;
    while !history.is_over() {
        let Some(open) = connection.as_mut() else {
            connection = connect(address);
            continue;
        };
        let key = name(rng.usize(..KEYS));
        match redis::cmd("GET").arg(format!("h:{key}")).query::<Option<Vec<u8>>>(open) {
            Ok(Some(text)) if number(&key, &text) > history.sent.load(SeqCst) => {
                history.break_by(format!("the router has {text:?} of {key}, which was never sent"));
            }
            Err(error) if error.code().is_none() => connection = None,
            _ => {}
        }
    }
}

/// Asks a node until the end how far it has read the topic: from then on, it has the events before.
fn include(history: &History, http: &str, address: &str, mut rng: Rng) {
    let url = format!("http://{http}/v1/stores/h/stream?own=true");
    while !history.is_over() {
        thread::park_timeout(Duration::from_millis(rng.u64(5..50)));
        let (Some(status), Some(mut connection)) = (get(&url), connect(address)) else {
            continue;
        };
        let versions = status["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| version["partitions_ready"] == 16) {
            let number = version["version"].as_u64().unwrap();
            for (key, least) in latest_read(history, version) {
                let Some(found) = read(&mut connection, number, &name(key)) else {
                    break;
                };
                // A later event may have deleted it.
                let Some(found) = found else { continue };
                history.included.fetch_add(1, SeqCst);
                if found < least {
                    let what = format!(
                        "version {number} at {http} has read event {least} of {}, and has {found}",
                        name(key)
                    );
                    history.break_by(format!("{what}: {version}"));
                }
            }
        }
    }
}

/// The latest events of keys that a node says it has read.
fn latest_read(history: &History, version: &serde_json::Value) -> BTreeMap<usize, u64> {
    let mut latest = BTreeMap::new();
    let topic = history.topic.read();
    for partition in version["partitions"].as_array().into_iter().flatten() {
        let next = partition["next_offset"].as_u64().unwrap_or(0) as usize;
        let records = topic.records.get(&partition["partition"].as_u64().unwrap());
        for (key, number) in records.into_iter().flatten().take(next).flatten() {
            let known = latest.entry(*key).or_default();
            *known = *number.max(known);
        }
    }
    latest
}

fn get(url: &str) -> Option<serde_json::Value> {
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    let mut response = ureq::Agent::new_with_config(config).get(url).call().ok()?;
    serde_json::from_reader(response.body_mut().as_reader()).ok()
}

/// The processes to kill and start again: each once before any a second time.
struct Faults {
    rng: Rng,
    bag: Vec<String>,
    killed: BTreeSet<String>,
}

impl Faults {
    fn make(&mut self, cluster: &mut Cluster, kafka: &mut Kafka, history: &History, until: Instant) {
        while Instant::now() < until && !history.is_over() {
            if self.bag.is_empty() {
                self.bag = (1..=NODES).map(|number| format!("node-{number}")).collect();
                self.bag.push(BROKER.to_owned());
                self.rng.shuffle(&mut self.bag);
            }
            let name = self.bag.pop().expect("it was filled");
            self.rest();
            if name == BROKER {
                kafka.kill();
                self.rest();
                kafka.restart();
            } else {
                cluster.kill(&name);
                self.rest();
                cluster.launch(&name);
            }
            self.killed.insert(name);
        }
    }

    /// Kills processes for about this time, with a push meanwhile, and continues until all were killed and enough was answered: a busy
    /// machine takes longer to start processes again, and to answer.
    fn make_around_a_push(
        &mut self,
        cluster: &mut Cluster,
        kafka: &mut Kafka,
        history: &History,
        push: &[&str],
        lasts: Duration,
    ) {
        let begun = Instant::now();
        self.make(cluster, kafka, history, begun + lasts / 3);
        // A second version reads the topic from the beginning, while the first one continues.
        cluster.until_ready();
        cluster.any().done(push);
        let mut end = begun + lasts;
        self.make(cluster, kafka, history, end);
        while !(self.have_killed_all() && history.answers() >= ANSWERS_MIN) && end < begun + 4 * lasts {
            end += lasts / 2;
            self.make(cluster, kafka, history, end);
        }
    }

    /// Whether each node, and the broker, was killed.
    fn have_killed_all(&self) -> bool {
        self.killed.len() == NODES as usize + 1
    }

    fn rest(&mut self) {
        thread::park_timeout(Duration::from_millis(self.rng.u64(FAULTS_MS)));
    }
}

/// Waits until a node alone has what all events make, for each version.
fn settle(cluster: &Cluster, name: &str, expected: &[Option<u64>]) {
    for version in [1, 2] {
        let mut found = Vec::new();
        until(&format!("{name} has all events on top of version {version}"), || {
            let mut connection = cluster.get(name).redis();
            let keys = (0..KEYS).map(self::name).chain((0..COUNTERS).map(counter_name));
            found = keys.map(|key| read(&mut connection, version, &key)).collect();
            found
                .iter()
                .map(|found| found.unwrap_or(Some(0)))
                .eq(expected.iter().copied())
        });
    }
}

#[test]
fn replicas_keep_all_events_while_nodes_and_brokers_are_killed() {
    let seed = given("FONDACO_CHECKER_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = given("FONDACO_CHECKER_SECONDS").unwrap_or(SECONDS);
    println!("FONDACO_CHECKER_SEED={seed} FONDACO_CHECKER_SECONDS={seconds}");
    let mut kafka = Kafka::start();
    let writer = kafka.make_topic("events", TOPIC_PARTITIONS);
    let mut cluster = Cluster::start(Shape {
        replicas: NODES,
        nodes: NODES,
        ..Shape::default()
    });
    let stream = format!("kafka://{}/events", kafka.address());
    let engine = ["disk", "log"][seed as usize % 2];
    let options = [
        "--kind",
        "hybrid",
        "--stream",
        &stream,
        "--max-lag",
        "1s",
        "--engine",
        engine,
    ];
    cluster.any().done(&[&["store", "create", "h"][..], &options].concat());
    let csv = cluster.dir.path().join("empty.csv");
    write_csv(&csv, []);
    let push = of_csv("push", "h", &csv, &["--allow-empty"]);
    cluster.any().done(&push);

    let history = History::default();
    let members: Vec<(String, String)> = cluster
        .nodes()
        .iter()
        .map(|name| (cluster.get(name).http.clone(), cluster.get(name).resp.clone()))
        .collect();
    let router = cluster.get("router-1").resp.clone();
    let rng = |number: u64| Rng::with_seed(seed.wrapping_add(number));
    let mut faults = Faults {
        rng: rng(3),
        bag: Vec::new(),
        killed: BTreeSet::new(),
    };
    thread::scope(|scope| {
        let _end = End(&history.is_over);
        let history = &history;
        scope.spawn(|| log(history, &writer, rng(1)));
        scope.spawn(|| read_through(history, &router, rng(2)));
        for (number, (http, resp)) in members.iter().enumerate() {
            scope.spawn(move || follow(history, resp, rng(10 + number as u64)));
            scope.spawn(move || include(history, http, resp, rng(20 + number as u64)));
        }
        faults.make_around_a_push(&mut cluster, &mut kafka, history, &push, Duration::from_secs(seconds));
    });
    let broken = history.broken.lock().join("\n");
    assert!(broken.is_empty(), "{broken}");
    let killed = &faults.killed;
    let (followed, included) = (history.followed.load(SeqCst), history.included.load(SeqCst));
    println!("killed {killed:?}; {followed} answers compared with earlier ones, {included} with what was read");
    cluster.until_ready();
    for name in cluster.nodes() {
        settle(&cluster, &name, &history.expected());
    }
    assert!(history.answers() >= ANSWERS_MIN, "too few answers");
    assert!(faults.have_killed_all(), "too little was killed: {killed:?}");
}
