//! Two clusters, as in two data centers: each reads its own Kafka, and MirrorMaker copies the topic of the first to the second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use fondaco_testing::{Kafka, KafkaWriter, MirrorMaker, wait_for};
use serde_json::{Value, json};

use crate::harness::TestCluster;
use crate::hybrid::{create, now_ms, push};
use crate::single::{Builds, KEYS, key, until, value};

const PARTITIONS: i32 = 3;
const PADDING: usize = 50;

/// How many events each round has, besides those that end it.
const EVENTS: u32 = 2000;

/// How long the mirror may take: it waits until its former process counts as gone, and then starts.
const MIRRORED_MAX: Duration = Duration::from_secs(240);

/// The latest event of each key: its time, whether it deletes, and its value.
type Latest = BTreeMap<String, (u64, bool, String)>;

/// Events in random order and partitions, many of them more than once.
struct Events {
    topic: KafkaWriter,
    random: fastrand::Rng,
    began_ms: u64,
    latest: Latest,
    rounds: AtomicU32,
}

impl Events {
    fn send(&mut self, name: &str, ms: u64, value: Option<&str>) {
        let time = ms.to_string();
        for _ in 0..self.random.u32(1..=3) {
            let partition = self.random.i32(0..PARTITIONS);
            self.topic.send(partition, Some(name), value, [("event-time", &*time)]);
        }
        let event = (ms, value.is_none(), value.unwrap_or_default().to_owned());
        let known = self.latest.entry(name.to_owned()).or_insert_with(|| event.clone());
        *known = known.clone().max(event);
    }

    /// Sends a round of events. Returns the keys whose events are the last of each partition.
    fn send_round(&mut self) -> Vec<String> {
        let round = self.rounds.fetch_add(1, Relaxed);
        for number in 0..EVENTS {
            // Some keys are in the version, some are not; some events have equal times.
            let name = key(self.random.usize(0..KEYS + 100));
            let ms = self.began_ms - self.random.u64(0..1000);
            let value = format!("{round}-{number}");
            let value = (self.random.u32(0..10) > 0).then_some(&*value);
            self.send(&name, ms, value);
        }
        let last = |partition: i32| {
            let name = format!("end-{round}-{partition}");
            self.topic.send(partition, Some(&name), Some("x"), None);
            name
        };
        let names = (0..PARTITIONS).map(last).collect();
        self.topic.flush();
        names
    }
}

/// Waits until every member has read the ends of a round, and checks all keys.
fn all_answer(cluster: &TestCluster, ends: &[String], build: u64, latest: &Latest) {
    for member in cluster.nodes().into_iter().chain(["router-1".to_owned()]) {
        let mut client = cluster.resp_of(&member);
        for end in ends {
            wait_for("the end of the round", MIRRORED_MAX, || {
                (client.ask(&format!("GET pymk:{end}")) == "x").then_some(())
            });
        }
        for number in 0..KEYS + 100 {
            let name = key(number);
            let expected = match latest.get(&name) {
                Some((_, true, _)) => "$-1".to_owned(),
                Some((_, false, value)) => value.clone(),
                None if number < KEYS => value(build, number, PADDING),
                None => "$-1".to_owned(),
            };
            // Other partitions of the store may read the stream later.
            until(&format!("{member} to answer {expected} for {name}"), || {
                client.ask(&format!("GET pymk:{name}")) == expected
            });
        }
    }
}

/// How many records a node has read for its version: those of other nodes, too.
fn records_read(cluster: &TestCluster) -> u64 {
    let stream = cluster.member("node-1").get("/v1/stores/pymk/stream");
    let version = &stream["versions"][0];
    ["applied", "superseded", "elsewhere"]
        .iter()
        .map(|count| version[count].as_u64().unwrap())
        .sum()
}

fn two_nodes() -> TestCluster {
    TestCluster::start_of(2, 1, |_| {})
}

#[test]
fn clusters_fed_through_a_mirror_answer_the_same() {
    let (mut near, far) = (Kafka::start(), Kafka::start());
    let mut events = Events {
        topic: near.make_topic("views", PARTITIONS),
        random: fastrand::Rng::with_seed(7),
        began_ms: now_ms(),
        latest: BTreeMap::new(),
        rounds: AtomicU32::new(0),
    };
    // It never notes how far it is.
    let more = "target.offset.flush.interval.ms=3600000";
    let mut mirror = MirrorMaker::prepare(&near.address(), &far.address(), "views", more);
    mirror.start();
    let (mut east, west) = (two_nodes(), two_nodes());
    create(&east, json!({"source": format!("kafka://{}/views", near.address())}));
    create(
        &west,
        json!({"source": format!("kafka://{}/source.views", far.address())}),
    );
    let builds = Builds::beside();
    let first = events.send_round();
    wait_for("the mirror to make the topic", MIRRORED_MAX, || {
        far.has_topic("source.views").then_some(())
    });
    let build = builds.build(1);
    push(&east, json!({"source": build}));
    let started = east.client.get("/v1/stores/pymk/push")["started_unix_ms"].clone();
    push(&west, json!({"source": build, "started_unix_ms": started}));
    for cluster in [&east, &west] {
        all_answer(cluster, &first, 1, &events.latest);
    }

    // A mirror that is killed has not noted what it copied, and copies it again.
    mirror.kill();
    let second = events.send_round();
    mirror.start();
    for cluster in [&east, &west] {
        all_answer(cluster, &second, 1, &events.latest);
    }
    let (sent, mirrored) = (records_read(&east), records_read(&west));
    assert!(
        mirrored > sent,
        "{mirrored} of {sent} records: none was repeated; {}",
        mirror.log_end()
    );

    // The first data center is gone.
    near.kill();
    east.shutdown();
    all_answer(&west, &second, 1, &events.latest);
    assert_eq!(push(&west, json!({"source": builds.build(2)})), 2);
    all_answer(&west, &second, 2, &events.latest);
    assert_eq!(west.client.call("GET", "/readyz", Value::Null).0, 200);
}
