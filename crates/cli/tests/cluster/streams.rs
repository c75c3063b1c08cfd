//! Hybrid stores that count what a topic of a real Kafka says, while nodes are killed.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fondaco_testing::{Answer, Kafka, KafkaWriter, random, relay};
use parking_lot::Mutex;
use redis::Commands as _;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{Node, until, write_csv};
use super::values;

const COUNTERS: usize = 200;
const INCREMENTS: usize = 15_000;
const TOPIC_PARTITIONS: i32 = 5;

/// Sends increments in any partition, some of them with earlier times, and returns what they add up to.
fn count(topic: &KafkaWriter) -> Vec<i64> {
    let mut random = random("increments");
    let mut sums = vec![0; COUNTERS];
    for sent in 0..INCREMENTS {
        let counter = random.usize(..COUNTERS);
        let by = random.i64(-2..10);
        sums[counter] += by;
        let text = match counter % 2 {
            0 => format!(r#"{{"increment": {by}}}"#),
            _ => format!(r#"{{"increment": {{"sum": {by}}}}}"#),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let before_ms = (now.as_millis() as u64 - random.u64(..60_000)).to_string();
        let mut headers = vec![("event-type", "update")];
        if random.bool() {
            headers.push(("event-time", &before_ms));
        }
        let partition = random.i32(0..TOPIC_PARTITIONS);
        topic.send(partition, Some(&format!("counter-{counter}")), Some(&text), headers);
        if sent % 300 == 299 {
            topic.flush();
            thread::sleep(Duration::from_millis(220));
        }
    }
    topic.flush();
    sums
}

/// The sums that a node alone has.
fn sums(node: &Node) -> Vec<Option<i64>> {
    let keys: Vec<String> = (0..COUNTERS).map(|counter| format!("s:counter-{counter}")).collect();
    let values: redis::RedisResult<Vec<Option<String>>> = node.redis().mget(&keys);
    let sum = |value: Option<String>| {
        let text = value?;
        let digits = text.strip_prefix(r#"{"sum":"#).and_then(|rest| rest.strip_suffix('}'));
        digits.unwrap_or(&text).parse().ok()
    };
    values.unwrap_or_default().into_iter().map(sum).collect()
}

#[test]
fn increments_are_exact_although_nodes_are_killed() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("counts-of-kills", TOPIC_PARTITIONS);
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    let stream = format!("kafka://{}/counts-of-kills", kafka.address());
    cluster.create(&["--kind", "hybrid", "--stream", &stream, "--max-lag", "1s"]);
    cluster.deploy(&cluster.build(1));
    let counting = thread::spawn(move || count(&topic));
    for kill in 0..5 {
        thread::sleep(Duration::from_millis(1500));
        let name = format!("node-{}", kill % 3 + 1);
        cluster.kill(&name);
        thread::sleep(Duration::from_millis(500));
        cluster.launch(&name);
        if kill == 2 {
            // A new version reads all of it again, through the kills that follow.
            cluster.begin(&cluster.build(2));
        }
    }
    let expected: Vec<Option<i64>> = counting.join().unwrap().into_iter().map(Some).collect();
    let push = cluster.ended();
    assert_eq!(push["state"], "swapped", "{push}");
    cluster.until_no_node_is_late();
    let names = ["node-1", "node-2", "node-3"];
    let check = |cluster: &Cluster, name: &str, version: u64| {
        let mut found = Vec::new();
        until(&format!("{name} has all increments on version {version}"), || {
            found = sums(cluster.get(name));
            found == expected
        });
        let of_version = values::read_all(&mut cluster.get(name).redis());
        assert_eq!(of_version, Ok(version));
    };
    names.iter().for_each(|name| check(&cluster, name, 2));
    cluster.any().done(&["rollback", "s"]);
    // Each of them alone: none asks another one.
    for name in names {
        let others = names.into_iter().filter(|other| *other != name);
        others.clone().for_each(|other| cluster.kill(other));
        check(&cluster, name, 1);
        others.for_each(|other| cluster.launch(other));
    }
}

#[test]
fn times_to_live_are_the_same_at_the_node_with_the_key_and_at_one_that_forwards() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("times-to-live", 1);
    let cluster = Cluster::start(Shape {
        nodes: 2,
        replicas: 1,
        ..Shape::steady()
    });
    let stream = format!("kafka://{}/times-to-live", kafka.address());
    cluster.create(&["--kind", "hybrid", "--stream", &stream, "--ttl", "1h"]);
    cluster.deploy(&cluster.build(1));
    let nodes = ["node-1", "node-2"].map(|name| cluster.get(name));
    const EVENTS: u64 = 20;
    for key in 0..EVENTS {
        topic.send(0, Some(&format!("event-{key}")), Some("x"), []);
    }
    topic.flush();
    let asked = |node: &Node, words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(word));
        command.query::<i64>(&mut node.redis())
    };
    let mut held = [0, 0];
    // Of events, of the version, and absent.
    let keys = (0..EVENTS).map(|key| format!("event-{key}"));
    let keys = keys
        .chain((0..20).map(|key| key.to_string()))
        .chain(["absent".to_owned()]);
    for key in keys {
        let wire_key = format!("s:{key}");
        if key.starts_with("event") {
            until("the event is read", || {
                asked(nodes[0], &["TTL", &wire_key]).is_ok_and(|left| left > 0)
            });
        }
        let [ends, left] =
            ["PEXPIRETIME", "TTL"].map(|word| nodes.map(|node| asked(node, &[word, &wire_key]).unwrap()));
        assert_eq!(ends[0], ends[1], "{key}");
        assert!((left[0] - left[1]).abs() <= 1, "{key}: {left:?}");
        assert_eq!(
            (left[0] > 0, left[0] == -2),
            (key != "absent", key == "absent"),
            "{key}: {left:?}"
        );
        let own = nodes.map(|node| asked(node, &["FONDACO.EXPIRY", "s", &key]));
        let holder = usize::from(own[0].is_err());
        assert_eq!(own[holder].as_ref().ok(), Some(&ends[0]), "{key}: {own:?}");
        assert!(own[1 - holder].is_err(), "only one node has {key}: {own:?}");
        held[holder] += 1;
    }
    assert!(held.iter().all(|&keys| keys > 0), "both nodes forward: {held:?}");
}

/// A topic whose records get times of their own, and what they make of a store.
struct Story {
    topic: KafkaWriter,
    sent: Vec<i64>,
    values: BTreeMap<usize, Option<Value>>,
}

impl Story {
    const KEYS: usize = 400;
    const PARTITIONS: usize = 3;

    fn begin(topic: KafkaWriter) -> Self {
        let base = |key| (key, Some(json!({"value": format!("base {key}")})));
        Self {
            topic,
            sent: vec![0; Self::PARTITIONS],
            values: (0..Self::KEYS).map(base).collect(),
        }
    }

    fn send(&mut self, time_ms: u64, key: usize, value: Option<&Value>, is_update: bool) {
        let partition = key % Self::PARTITIONS;
        self.sent[partition] += 1;
        let headers = is_update.then_some(("event-type", "update"));
        let (key, value) = (key.to_string(), value.map(Value::to_string));
        let time_ms = Some(time_ms as i64);
        self.topic
            .send_at(time_ms, partition as i32, Some(&key), value.as_deref(), headers);
    }

    /// Half of the keys are changed, each in one of four ways.
    fn tell(&mut self, time_ms: u64, round: usize) {
        for key in (0..Self::KEYS).filter(|key| (key / 8 + round).is_multiple_of(2)) {
            let value = match key % 4 {
                0 => Some(json!({"value": format!("put {round}")})),
                1 => None,
                2 => {
                    let mut value = self.values[&key].clone().unwrap_or(json!({}));
                    value["n"] = json!(value["n"].as_u64().unwrap_or(0) + 1);
                    self.send(time_ms, key, Some(&json!({"increment": {"n": 1}})), true);
                    self.values.insert(key, Some(value));
                    continue;
                }
                _ => {
                    let mut value = self.values[&key].clone().unwrap_or(json!({}));
                    value["value"] = json!(format!("set {round}"));
                    self.send(time_ms, key, Some(&json!({"set": {"value": value["value"]}})), true);
                    self.values.insert(key, Some(value));
                    continue;
                }
            };
            self.send(time_ms, key, value.as_ref(), false);
            self.values.insert(key, value);
        }
        self.topic.flush();
    }

    /// Sends an event of a new key in each partition.
    fn tick(&mut self, time_ms: u64) {
        let value = json!({"value": "tick"});
        let first = self.values.len();
        for key in first..first + Self::PARTITIONS {
            self.send(time_ms, key, Some(&value), false);
            self.values.insert(key, Some(value.clone()));
        }
        self.topic.flush();
    }

    fn check(&self, cluster: &Cluster) {
        let keys: Vec<String> = self.values.keys().map(|key| format!("s:{key}")).collect();
        for name in cluster.nodes() {
            until(&format!("{name} answers all values"), || {
                let values: redis::RedisResult<Vec<Option<String>>> = cluster.get(&name).redis().mget(&keys);
                let parsed = |value: Option<String>| value.map(|value| serde_json::from_str(&value).unwrap());
                values
                    .unwrap_or_default()
                    .into_iter()
                    .map(parsed)
                    .eq(self.values.values().cloned())
            });
        }
    }
}

/// The overlays of a version on all nodes.
fn overlays(cluster: &Cluster, version: u64) -> Vec<Value> {
    let on_node = |name: String| {
        let stream = cluster.get(&name).http_get("/v1/stores/s/stream?own=true");
        let versions = stream["versions"].as_array().unwrap().clone();
        versions.into_iter().filter(move |stream| stream["version"] == version)
    };
    cluster.nodes().into_iter().flat_map(on_node).collect()
}

/// The version of the store is pushed again while its events are put into a new one: that is given up.
fn a_compaction_gives_way_to_the_same_content(cluster: &Cluster, csv: &str) {
    let mut again = cluster
        .any()
        .command(&["push", "s", csv, "--key", "key", "--quiet", "--again"]);
    again.stdout(Stdio::null());
    let again = Mutex::new(Some(again));
    let way = relay(&cluster.any().http, move |request| {
        if request.starts_with(b"POST /v1/stores/s/pushes ")
            && let Some(mut again) = again.lock().take()
        {
            assert!(again.status().unwrap().success());
        }
        Answer::Arrives
    });
    let refused = cluster.any().refused(1, &["store", "compact", "s", "--http", &way]);
    assert!(refused.contains("is not the current one any more"), "{refused}");
}

#[test]
fn events_outlive_their_topic_in_compacted_versions() {
    let kafka = Kafka::shared();
    let mut story = Story::begin(kafka.make_topic("counts-of-compaction", Story::PARTITIONS as i32));
    let cluster = Cluster::start(Shape::steady());
    let stream = format!("kafka://{}/counts-of-compaction", kafka.address());
    cluster.create(&[
        "--kind", "hybrid", "--stream", &stream, "--grace", "1s", "--rewind", "1h",
    ]);
    let csv = cluster.dir.path().join("base.csv");
    write_csv(
        &csv,
        (0..Story::KEYS).map(|key| (key.to_string(), format!("base {key}"))),
    );
    // Its values are objects, and are not made again of those that events have made.
    cluster
        .any()
        .done(&["push", "s", csv.to_str().unwrap(), "--key", "key", "--quiet"]);
    let refused = cluster.any().refused(1, &["store", "compact", "s"]);
    assert!(refused.contains("too few events"), "{refused}");
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let now = now_ms();
    story.tell(now - 100_000, 0);
    story.tell(now - 90_000, 1);
    let old = story.sent.clone();
    story.tell(now - 5_000, 2);
    story.check(&cluster);
    a_compaction_gives_way_to_the_same_content(&cluster, csv.to_str().unwrap());
    story.check(&cluster);
    let compact = || cluster.any().json(&["store", "compact", "s", "--quiet"]);
    let compacted = compact();
    assert_eq!(compacted["push"]["state"], "swapped", "{compacted}");
    let version = compacted["push"]["version"].as_u64().unwrap();
    story.check(&cluster);
    for overlay in overlays(&cluster, version) {
        let changed = Story::KEYS as u64 / 2;
        assert!(overlay["keys"].as_u64() <= Some(changed), "{overlay}");
    }
    assert_eq!(compact(), json!({"changes": 0}));
    // The topic forgets what is in the version, and a node that has nothing answers all.
    for (partition, &offset) in old.iter().enumerate() {
        story.topic.delete_before(partition as i32, offset);
    }
    story.tell(now - 4_000, 3);
    // A clock that is ahead settles nothing.
    story.tell(now + 600_000, 4);
    story.check(&cluster);
    let settled = |overlay: &Value| overlay["settled_unix_ms"].as_u64().unwrap();
    let ahead = overlays(&cluster, version).iter().map(settled).max().unwrap();
    assert!(ahead <= now_ms() - 11_000, "{ahead}");
    until("the events of round 3 to be settled", || {
        story.tick(now_ms());
        overlays(&cluster, version)
            .iter()
            .all(|overlay| settled(overlay) >= now - 4_000)
    });
    story.check(&cluster);
    let again = compact();
    assert_eq!(again["push"]["state"], "swapped", "{again}");
    story.check(&cluster);
    let version = again["push"]["version"].as_u64().unwrap();
    let found = overlays(&cluster, version);
    assert!(found.iter().all(|overlay| overlay["lost"] == json!([])), "{found:?}");
    // A node does it by itself.
    cluster.any().done(&["store", "alter", "s", "--compact-every", "1s"]);
    until("a node to make a version with the ticks", || {
        story.tick(now_ms());
        let store = cluster.any().http_get("/v1/stores/s");
        let versions = store["versions"].as_array().unwrap();
        versions
            .iter()
            .any(|found| found["current"] == true && found["version"].as_u64() > Some(version))
    });
    story.check(&cluster);
}

#[test]
fn a_node_that_comes_after_deleted_events_says_so() {
    let kafka = Kafka::shared();
    let mut story = Story::begin(kafka.make_topic("counts-of-late-nodes", Story::PARTITIONS as i32));
    let mut cluster = Cluster::start(Shape {
        nodes: 2,
        replicas: 2,
        ..Shape::default()
    });
    let stream = format!("kafka://{}/counts-of-late-nodes", kafka.address());
    cluster.create(&["--kind", "hybrid", "--stream", &stream]);
    let csv = cluster.dir.path().join("base.csv");
    write_csv(
        &csv,
        (0..Story::KEYS).map(|key| (key.to_string(), format!("base {key}"))),
    );
    let push = ["push", "s", csv.to_str().unwrap(), "--key", "key", "--quiet"];
    cluster.any().done(&push);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    story.tell(now_ms, 0);
    let deleted = story.sent.clone();
    story.tell(now_ms + 1, 1);
    story.check(&cluster);
    for (partition, &offset) in deleted.iter().enumerate() {
        story.topic.delete_before(partition as i32, offset);
    }
    let number = cluster.number("node-2");
    cluster.kill("node-2");
    cluster.until_live(number, false);
    std::fs::remove_dir_all(cluster.data("node-2")).unwrap();
    cluster.launch("node-2");
    let lost = |cluster: &Cluster, name: &str| {
        let stream = cluster.get(name).http_get("/v1/stores/s/stream?own=true");
        stream["versions"][0]["lost"].as_array().cloned().unwrap_or_default()
    };
    let expected = |partition: usize| json!({"topic": 0, "partition": partition, "from": 0, "to": deleted[partition]});
    let expected: Vec<Value> = (0..Story::PARTITIONS).map(expected).collect();
    until("the node to say which events were deleted before it read them", || {
        let mut lost = lost(&cluster, "node-2");
        lost.sort_by_key(|range| range["partition"].as_u64());
        lost == expected
    });
    assert_eq!(lost(&cluster, "node-1"), Vec::<Value>::new());
}
