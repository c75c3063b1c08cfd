//! Followers of changes in clusters whose nodes are killed and replaced, and mirrors that are killed.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use fondaco_stream::{Change, KafkaCluster, Source};
use fondaco_testing::{Kafka, KafkaWriter, random};
use parking_lot::Mutex;
use redis::RedisResult;
use rustix::process::Signal;
use serde_json::Value;

use super::cluster::{Cluster, Shape};
use super::large_batches::send;
use super::node::{Dev, Node, of_csv, until, write_csv};

const KEYS: u64 = 2000;
const KILLS: u64 = 20;

/// A follower that keeps a copy of a store, and asks another process each time.
struct Follower {
    store: &'static str,
    /// Each change begins where the one before has ended, and is one.
    is_exact: bool,
    position: String,
    copy: BTreeMap<String, String>,
    changes: u64,
}

impl Follower {
    fn new(store: &'static str, is_exact: bool) -> Self {
        Self {
            store,
            is_exact,
            position: "beginning".to_owned(),
            copy: BTreeMap::new(),
            changes: 0,
        }
    }

    /// Follows at a process, which may have been killed. Returns whether there was nothing more.
    fn follow(&mut self, http: &str, limit: usize) -> bool {
        let (store, position) = (self.store, &self.position);
        let url = format!("http://{http}/v1/stores/{store}/changes?from={position}&limit={limit}&wait_ms=500");
        let Ok(mut answer) = ureq::get(url).config().http_status_as_error(false).build().call() else {
            return false;
        };
        let Ok(page) = serde_json::from_reader::<_, Value>(answer.body_mut().as_reader()) else {
            return false;
        };
        if !answer.status().is_success() {
            let code = page["error"]["code"].as_str().unwrap();
            assert!(
                ["unavailable", "overloaded", "request_timeout", "store_not_found"].contains(&code),
                "{page}"
            );
            return false;
        }
        let changes = page["changes"].as_array().unwrap();
        for change in changes {
            self.apply(change);
        }
        self.position = page["position"].as_str().unwrap().to_owned();
        changes.is_empty() && page["waits_for"].is_null()
    }

    fn apply(&mut self, change: &Value) {
        let key = change["key"]["utf8"].as_str().unwrap();
        let after = change["after"]["utf8"].as_str();
        let before = self.copy.get(key).map(String::as_str);
        if self.is_exact {
            assert_eq!(change["before"]["utf8"].as_str(), before, "{change}");
            assert_ne!(after, before, "{change}");
        }
        match after {
            Some(after) => self.copy.insert(key.to_owned(), after.to_owned()),
            None => self.copy.remove(key),
        };
        self.changes += 1;
    }
}

/// The rows of a version: most keys are the same as in the one before.
fn rows(version: u64) -> BTreeMap<String, String> {
    let keys = (0..KEYS).filter(|key| !(key + version).is_multiple_of(7));
    let changed = |key: u64| version - (key + version) % 5;
    keys.map(|key| (format!("k{key}"), format!("{}", changed(key))))
        .collect()
}

/// Pushes a version, whatever is killed meanwhile.
fn push(cluster: &Cluster, store: &str, version: u64, more: &[&str]) {
    let csv = cluster.dir.path().join(format!("{store}-{version}.csv"));
    write_csv(&csv, rows(version));
    until("the version to be pushed", || {
        cluster
            .any()
            .run(&of_csv("push", store, &csv, &[&["--quiet"], more].concat()))
            .status
            .success()
    });
}

/// The content of a store, as a router reads it.
fn content(node: &Node, store: &str) -> Option<BTreeMap<String, String>> {
    let keys: Vec<String> = (0..KEYS)
        .map(|key| format!("k{key}"))
        .chain((0..20).map(|key| format!("n{key}")))
        .collect();
    let wire_keys: Vec<String> = keys.iter().map(|key| format!("{store}:{key}")).collect();
    let values: RedisResult<Vec<Option<String>>> = redis::cmd("MGET").arg(&wire_keys).query(&mut node.redis());
    Some(
        keys.into_iter()
            .zip(values.ok()?)
            .filter_map(|(key, value)| Some((key, value?)))
            .collect(),
    )
}

/// Sends events until it is told to stop: values, deletions and increments, each key in a partition of its own.
fn send_events(topic: &KafkaWriter, stop: &AtomicBool, sent: &AtomicU64) {
    let mut random = random("events of followers");
    while !stop.load(SeqCst) {
        for _ in 0..20 {
            let number = sent.fetch_add(1, SeqCst);
            let (key, value, headers) = match random.u64(..10) {
                0..3 => (
                    format!("n{}", random.u64(..20)),
                    Some(r#"{"increment": 1}"#.to_owned()),
                    vec![("event-type", "update")],
                ),
                3 => (format!("k{}", random.u64(..KEYS)), None, vec![]),
                _ => (
                    format!("k{}", random.u64(..KEYS)),
                    Some(format!("event-{number}")),
                    vec![],
                ),
            };
            let partition = key.bytes().map(i32::from).sum::<i32>() % 3;
            topic.send(partition, Some(&key), value.as_deref(), headers);
        }
        topic.flush();
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_feed_followed_through_twenty_kills_and_a_drain_equals_the_differences_of_snapshots() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("follows", 3);
    let mut cluster = Cluster::start(Shape::default());
    let stream = format!("kafka://{}/follows", kafka.address());
    cluster.any().done(&["store", "create", "b", "--backups", "9"]);
    let create = [
        "store",
        "create",
        "h",
        "--kind",
        "hybrid",
        "--stream",
        &stream,
        "--backups",
        "9",
        "--max-lag",
        "1s",
    ];
    cluster.any().done(&create);
    for store in ["b", "h"] {
        push(&cluster, store, 5, &[]);
    }
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let sender = {
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        thread::spawn(move || send_events(&topic, &stop, &sent))
    };
    let names = ["node-1", "node-2", "node-3", "router-1"];
    let addresses: Vec<String> = names.iter().map(|name| cluster.http_of(name).to_owned()).collect();
    let followers =
        [Follower::new("b", true), Follower::new("h", false)].map(|follower| Arc::new(Mutex::new(follower)));
    let is_over = Arc::new(AtomicBool::new(false));
    let threads = followers.clone().map(|follower| {
        let (addresses, is_over) = (addresses.clone(), Arc::clone(&is_over));
        let mut random = random("followers");
        thread::spawn(move || {
            while !is_over.load(SeqCst) {
                let http = &addresses[random.usize(..addresses.len())];
                follower.lock().follow(http, random.usize(1..400));
            }
        })
    });
    for kill in 0..KILLS {
        let name = names[kill as usize % 3];
        thread::sleep(Duration::from_millis(300));
        cluster.kill(name);
        thread::sleep(Duration::from_millis(200));
        cluster.launch(name);
        if kill % 5 == 4 {
            let version = 6 + kill / 5;
            push(&cluster, "b", version, &[]);
            push(&cluster, "h", version, &[]);
        }
    }
    // A node gives up all its partitions while the followers go on.
    let drained = cluster.number("node-3").to_string();
    cluster.any().done(&["drain", &drained, "--quiet"]);
    stop.store(true, SeqCst);
    sender.join().unwrap();
    push(&cluster, "b", 10, &[]);
    cluster.any().done(&["rollback", "h"]);
    is_over.store(true, SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    for follower in followers {
        let follower = &mut *follower.lock();
        let mut found = None;
        until(&format!("the follower to have what {} has", follower.store), || {
            let is_at_end = follower.follow(&addresses[3], 10_000);
            found = content(cluster.get("router-1"), follower.store);
            is_at_end && found.as_ref() == Some(&follower.copy)
        });
        println!(
            "{}: {} changes, {} events",
            follower.store,
            follower.changes,
            sent.load(SeqCst)
        );
    }
    assert_eq!(followers_copy(&cluster, "b"), rows(10));
}

#[test]
fn a_versioned_store_followed_and_mirrored_through_a_drain_and_kills_is_what_reads_give() {
    let kafka = Kafka::shared();
    kafka.make_topic("follows-versioned", 3);
    let topic = format!("kafka://{}/follows-versioned", kafka.address());
    let mut cluster = Cluster::start(Shape {
        nodes: 4,
        replicas: 3,
        ..Shape::default()
    });
    let names = ["node-1", "node-2", "node-3", "node-4", "router-1"];
    let options = [
        "--kind",
        "versioned",
        "--replicas",
        "3",
        "--reads",
        "2",
        "--writes",
        "2",
    ];
    cluster.create(&options);
    cluster.until_written(&names);
    let () = redis::cmd("DEL")
        .arg("s:first")
        .query(&mut cluster.get("router-1").redis())
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers = ["node-4", "router-1"].map(|name| {
        let (stop, address) = (Arc::clone(&stop), cluster.get(name).resp.clone());
        thread::spawn(move || write_until(&stop, &address))
    });
    let addresses = names.map(|name| cluster.http_of(name).to_owned());
    let follower = {
        let (stop, addresses, mut random) = (Arc::clone(&stop), addresses.clone(), random("followers"));
        thread::spawn(move || {
            let mut follower = Follower::new("s", false);
            while !stop.load(SeqCst) {
                follower.follow(&addresses[random.usize(..addresses.len())], random.usize(1..400));
            }
            follower
        })
    };
    let mut mirrored = mirror(cluster.get("router-1"), "s", &topic);
    let drained = cluster.number("node-4").to_string();
    cluster.any().done(&["drain", &drained, "--quiet"]);
    for kill in 0..4 {
        let name = names[kill % 3];
        let number = cluster.number(name);
        cluster.kill(name);
        if kill == 1 {
            // The others are asked in its place, and it misses writes.
            cluster.until_live(number, false);
        }
        cluster.launch(name);
        cluster.until_live(number, true);
        if kill == 2 {
            mirrored.kill().unwrap();
            mirrored.wait().unwrap();
            mirrored = mirror(cluster.get("router-1"), "s", &topic);
        }
        thread::sleep(Duration::from_millis(300));
    }
    stop.store(true, SeqCst);
    let writes: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let mut follower = follower.join().unwrap();
    mirrored.kill().unwrap();
    mirrored.wait().unwrap();
    let mut found = None;
    until("the follower to have what reads give", || {
        let is_at_end = follower.follow(&addresses[4], 10_000);
        found = content(cluster.get("router-1"), "s");
        is_at_end && found.as_ref() == Some(&follower.copy)
    });
    println!("{} changes of {writes} writes", follower.changes);
    assert!(writes > 500 && follower.copy.len() > 100, "{writes}");
    let mut copy = BTreeMap::new();
    until("the mirror to have it, too", || {
        cluster.get("router-1").done(&["mirror", "s", &topic, "--until-now"]);
        copy.clear();
        for (key, value) in messages(kafka, "follows-versioned", 3) {
            match value {
                Some(value) => copy.insert(key, value),
                None => copy.remove(&key),
            };
        }
        found.as_ref() == Some(&copy)
    });
}

#[test]
fn a_node_that_answers_too_late_is_asked_again_and_repeats_nothing() {
    let cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::steady()
    });
    cluster.create(&[
        "--kind",
        "versioned",
        "--replicas",
        "3",
        "--reads",
        "2",
        "--writes",
        "2",
    ]);
    cluster.until_written(&["router-1"]);
    let http = cluster.http_of("router-1");
    let mut redis = cluster.get("router-1").redis();
    let mut write = |prefix: &str| {
        for key in 0..50 {
            let () = redis::cmd("SET")
                .arg(format!("s:{prefix}{key}"))
                .arg("x")
                .query(&mut redis)
                .unwrap();
        }
    };
    // Another replica would return these again, since they are not older than its clock may be wrong.
    write("before");
    let mut follower = Follower::new("s", false);
    follower.position = "now".to_owned();
    until("a position", || follower.follow(http, 1000));
    write("k");
    send(cluster.get("node-2"), Signal::STOP);
    // It is waited for, and its partitions are not read elsewhere.
    follower.follow(http, 1000);
    let meanwhile = follower.copy.len();
    send(cluster.get("node-2"), Signal::CONT);
    until("all changes", || {
        follower.follow(http, 1000) && follower.copy.len() >= 50
    });
    assert!((1..50).contains(&meanwhile), "{meanwhile}");
    assert_eq!(
        (follower.changes, follower.copy.len()),
        (50, 50),
        "{:?}",
        follower.copy.keys()
    );
}

/// Writes and deletes keys of store `s` until it is told to stop, whatever is killed meanwhile. Returns the number of acknowledged writes.
fn write_until(stop: &AtomicBool, address: &str) -> u64 {
    let (mut random, mut acknowledged) = (random("writes of followers"), 0);
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let mut redis = client.get_connection().unwrap();
    redis.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while !stop.load(SeqCst) {
        let key = format!("s:k{}", random.u64(..300));
        let written: RedisResult<()> = match random.u64(..5) {
            0 => redis::cmd("DEL").arg(key).query(&mut redis),
            _ => redis::cmd("SET").arg(key).arg(random.u64(..)).query(&mut redis),
        };
        acknowledged += u64::from(written.is_ok());
        // Followers are to have their share of the cores.
        thread::sleep(Duration::from_millis(2));
    }
    acknowledged
}

/// A copy that begins now.
fn followers_copy(cluster: &Cluster, store: &'static str) -> BTreeMap<String, String> {
    let mut follower = Follower::new(store, true);
    until("the store to be followed", || {
        follower.follow(cluster.http_of("node-1"), 10_000)
    });
    follower.copy
}

/// Starts a mirror, as a process.
fn mirror(node: &Node, store: &str, topic: &str) -> Child {
    let mut command = node.command(&["mirror", store, topic]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The messages of a topic that are committed.
fn messages(kafka: &Kafka, topic: &str, partitions: u32) -> Vec<(String, Option<String>)> {
    let cluster = Arc::new(KafkaCluster::new(&kafka.address(), &BTreeMap::new()));
    let source = cluster.topic(topic);
    let mut found = Vec::new();
    for partition in 0..partitions {
        let (mut next, end) = (0, source.offset_at(partition, u64::MAX).unwrap());
        let begun = Instant::now();
        while next < end && begun.elapsed() < Duration::from_secs(20) {
            let batch = source.read(1, partition, next, 1 << 20).unwrap();
            let is_end = batch.records.is_empty() && batch.next == batch.end;
            for record in batch.records {
                let event = record.event.unwrap();
                let value = match event.change {
                    Change::Put(value) => Some(String::from_utf8(value.to_vec()).unwrap()),
                    _ => None,
                };
                found.push((String::from_utf8(event.key.to_vec()).unwrap(), value));
            }
            next = batch.next;
            if is_end {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    found
}

#[test]
fn a_mirror_that_is_killed_continues_without_loss_or_repetition() {
    let kafka = Kafka::shared();
    kafka.make_topic("mirrored", 4);
    let address = format!("kafka://{}/mirrored", kafka.address());
    let dev = Dev::start();
    let mut random = random("mirrors");
    let mut expected = BTreeMap::<String, Vec<Option<String>>>::new();
    let mut before = BTreeMap::new();
    for version in 5..8 {
        let now = rows(version);
        let csv = dev.csv("rows.csv", now.clone());
        dev.done(&of_csv("push", "m", &csv, &["--create", "--quiet"]));
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            if now.get(&key) != before.get(&key) {
                expected.entry(key.clone()).or_default().push(now.get(&key).cloned());
            }
        }
        before = now;
        // Killed while it writes, as a rule; then it writes the rest.
        for _ in 0..2 {
            let mut killed = mirror(&dev, "m", &address);
            thread::sleep(Duration::from_millis(random.u64(200..1000)));
            killed.kill().unwrap();
            killed.wait().unwrap();
        }
        dev.done(&["mirror", "m", &address, "--until-now"]);
    }
    let mut found = BTreeMap::<String, Vec<Option<String>>>::new();
    for (key, value) in messages(kafka, "mirrored", 4) {
        found.entry(key).or_default().push(value);
    }
    assert_eq!(found, expected);
    // Nothing is left to be written, and a mirror that is replaced ends.
    let report = dev.json(&["mirror", "m", &address, "--until-now"]);
    assert_eq!(report["changes"], 0);
    // Topics that are none of a mirror's.
    kafka.make_topic("not-mirrored", 1).send(0, Some("k"), Some("v"), []);
    let address = |topic: &str| format!("kafka://{}/{topic}", kafka.address());
    until("the topic to have a message", || {
        !messages(kafka, "not-mirrored", 1).is_empty()
    });
    let error = dev.refused(1, &["mirror", "m", &address("not-mirrored")]);
    assert!(
        error.contains("no mirror has written") && error.contains("--restart"),
        "{error}"
    );
    let error = dev.refused(1, &["mirror", "m", &address("nosuch")]);
    assert!(error.contains("there is no topic"), "{error}");
    let error = dev.refused(2, &["mirror", "m", "kafka://nowhere"]);
    assert!(error.contains("kafka://HOST:PORT"), "{error}");
    dev.done(&["mirror", "m", &address("not-mirrored"), "--restart", "--until-now"]);
    assert_eq!(messages(kafka, "not-mirrored", 1).len(), 1 + rows(7).len());
}

#[test]
fn a_follower_whose_events_were_deleted_from_the_topic_is_too_far_behind() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("follows-deleted", 1);
    let dev = Dev::start();
    let stream = format!("kafka://{}/follows-deleted", kafka.address());
    dev.done(&["store", "create", "h", "--kind", "hybrid", "--stream", &stream]);
    dev.push("h", rows(5));
    let mut follower = Follower::new("h", true);
    until("the version to be followed", || follower.follow(&dev.http, 10_000));
    follower.is_exact = false;
    for event in 0..100 {
        topic.send(0, Some("k1"), Some(&event.to_string()), []);
    }
    topic.flush();
    let away = follower.position.clone();
    until("the events to be followed", || {
        follower.follow(&dev.http, 10_000);
        follower.copy.get("k1").is_some_and(|value| value == "99")
    });
    topic.delete_before(0, 60);
    let mut error = String::new();
    until("the events to be gone", || {
        let output = dev.run(&["follow", "h", "--from", &away, "--until-now"]);
        error = String::from_utf8(output.stderr).unwrap();
        !output.status.success()
    });
    assert!(
        error.contains("too far behind") && error.contains("offset 0"),
        "{error}"
    );
    assert!(follower.follow(&dev.http, 10));
}
