//! One store that is written in two data centers: a cluster and a Kafka in each, and a real MirrorMaker that copies both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fondaco_testing::{Clock, Kafka, MirrorMaker, wait_for};
use redis::Commands;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{until, write_csv};

const TOPIC: &str = "active";
/// MirrorMaker waits until its former process counts as gone, and then starts.
const MIRRORED_MAX: Duration = Duration::from_secs(120);
/// How many keys there are of each kind.
const KEYS: u32 = 6;
/// How far the clock of the west is ahead, in seconds. Kafka refuses records that are an hour ahead.
const AHEAD_S: i64 = 50 * 60;

/// A cluster of one node, which has this clock.
fn single(clock: &Clock) -> Cluster {
    let mut cluster = Cluster::prepare_shared(Shape {
        nodes: 1,
        replicas: 1,
        routers: 0,
        partitions: 4,
        ..Shape::steady()
    });
    cluster.enter("node-1", clock.command());
    cluster.launch_until_ready();
    cluster
}

/// Pushes `both-0` to `both-5`.
fn push(cluster: &Cluster) {
    let csv = cluster.dir.path().join("base.csv");
    write_csv(&csv, (0..KEYS).map(|key| (format!("both-{key}"), format!("{key}"))));
    let csv = csv.to_str().unwrap();
    let push = ["push", "s", csv, "--key", "key", "--value", "value", "--quiet"];
    cluster.any().done(&push);
    let mut redis = cluster.get("node-1").redis();
    until("the version to be served", || {
        redis.get::<_, Option<String>>("s:both-1") == Ok(Some("1".to_owned()))
    });
}

/// The counts of the node's events.
fn stream_of(cluster: &Cluster) -> Value {
    cluster.any().http_get("/v1/stores/s/stream")["versions"][0].clone()
}

/// A data center.
struct Center {
    name: &'static str,
    cluster: Cluster,
    redis: redis::Connection,
    random: fastrand::Rng,
    /// Events that were acknowledged.
    written: u64,
}

/// The values that both data centers have to answer in the end.
#[derive(Default)]
struct Expected {
    /// `None` of a deleted key.
    values: BTreeMap<String, Option<Value>>,
    /// Keys whose value the west has written. Its clock is ahead, so that no write of the east to them counts.
    of_west: BTreeSet<String>,
}

impl Expected {
    fn set(&mut self, is_west: bool, key: String, value: Option<Value>) {
        if is_west {
            self.of_west.insert(key.clone());
        }
        if is_west || !self.of_west.contains(&key) {
            self.values.insert(key, value);
        }
    }
}

impl Center {
    fn start(name: &'static str, kafka: &Kafka, other: &str, clock: &Clock) -> Self {
        let cluster = single(clock);
        let stream = format!("kafka://{}/{TOPIC},{other}.{TOPIC}", kafka.address());
        let create = [
            "store",
            "create",
            "s",
            "--kind",
            "hybrid",
            "--stream",
            &stream,
            "--data-center",
            name,
        ];
        cluster.any().done(&create);
        let redis = cluster.get("node-1").redis();
        Self {
            name,
            cluster,
            redis,
            random: fastrand::Rng::with_seed(name.len() as u64 + u64::from(name.as_bytes()[0])),
            written: 0,
        }
    }

    /// Writes to keys that the other one writes, too, and to some that it does not.
    fn write(&mut self, count: u32, expected: &mut Expected) {
        let is_west = self.name == "west";
        for _ in 0..count {
            let number = self.random.u32(..1000);
            let key = self.random.u32(..KEYS);
            let redis = &mut self.redis;
            match self.random.u32(..10) {
                0..3 => {
                    let key = format!("s:both-{key}");
                    redis.set::<_, _, ()>(&key, number).unwrap();
                    expected.set(is_west, key, Some(number.into()));
                }
                3 => {
                    let key = format!("s:both-{key}");
                    redis.del::<_, ()>(&key).unwrap();
                    expected.set(is_west, key, None);
                }
                4..7 => {
                    let key = format!("s:count-{key}");
                    redis.incr::<_, _, i64>(&key, number).unwrap();
                    let sum = expected.values.entry(key).or_default().get_or_insert(0.into());
                    *sum = (sum.as_u64().unwrap() + u64::from(number)).into();
                }
                7 => {
                    let key = format!("s:{}-{key}", self.name);
                    redis.set::<_, _, ()>(&key, number).unwrap();
                    expected.set(is_west, key, Some(number.into()));
                }
                _ => {
                    let key = format!("s:object-{key}");
                    let update = json!({"set": {self.name: number, "both": number}, "increment": {"n": 1}});
                    let mut command = redis::cmd("FONDACO.UPDATE");
                    command.arg(&key).arg(update.to_string()).exec(redis).unwrap();
                    let object = expected.values.entry(key).or_default().get_or_insert(json!({}));
                    object[self.name] = number.into();
                    object["n"] = (object["n"].as_u64().unwrap_or(0) + 1).into();
                    if is_west || object["west"].is_null() {
                        object["both"] = number.into();
                    }
                }
            }
            self.written += 1;
        }
    }

    fn answers(&mut self, key: &str) -> Option<Value> {
        let value: Option<String> = self.redis.get(key).unwrap();
        value.map(|value| serde_json::from_str(&value).unwrap())
    }
}

/// Waits until both data centers answer as expected.
fn agree(centers: &mut [Center; 2], expected: &Expected) {
    for center in centers {
        for (key, value) in &expected.values {
            let mut found = None;
            wait_for(
                &format!("{} to answer {value:?} for {key}", center.name),
                MIRRORED_MAX,
                || {
                    found = center.answers(key);
                    (found == *value).then_some(())
                },
            );
        }
    }
}

#[test]
fn a_store_written_in_two_data_centers_agrees_after_they_were_apart() {
    let Some(clocks) = (0..2).map(|_| Clock::right()).collect::<Option<Vec<_>>>() else {
        return println!("skipped: there is no C compiler");
    };
    clocks[1].set_ahead_s(AHEAD_S);
    let (east_kafka, west_kafka) = (Kafka::shared(), Kafka::start());
    for kafka in [east_kafka, &west_kafka] {
        kafka.make_topic(TOPIC, 2);
    }
    let mut mirror = MirrorMaker::prepare_both_ways(&east_kafka.address(), &west_kafka.address(), TOPIC);
    mirror.start();
    let mut centers = [
        Center::start("east", east_kafka, "west", &clocks[0]),
        Center::start("west", &west_kafka, "east", &clocks[1]),
    ];
    // Versions wait until the copies are there.
    centers.iter().for_each(|center| push(&center.cluster));
    let mut expected = Expected::default();
    (0..KEYS).for_each(|key| expected.set(false, format!("s:both-{key}"), Some(key.into())));
    centers.iter_mut().for_each(|center| center.write(80, &mut expected));
    agree(&mut centers, &expected);

    // They are apart, and write the same keys.
    mirror.kill();
    for _ in 0..20 {
        centers.iter_mut().for_each(|center| center.write(10, &mut expected));
    }
    let (key, value) = expected.values.iter().find(|(key, _)| key.contains("west")).unwrap();
    assert_eq!(centers[1].answers(key), *value);
    assert_ne!(centers[0].answers(key), *value, "nothing is copied");

    // It copies all once more. One node is killed meanwhile.
    mirror.start();
    centers.iter_mut().for_each(|center| center.write(40, &mut expected));
    centers[1].cluster.kill("node-1");
    centers[1].cluster.launch("node-1");
    centers[1].redis = centers[1].cluster.get("node-1").redis();
    agree(&mut centers, &expected);
    let written: u64 = centers.iter().map(|center| center.written).sum();
    let stream = stream_of(&centers[0].cluster);
    let count = |name: &str| stream[name].as_u64().unwrap();
    assert_eq!((count("poison"), count("late"), count("unfit")), (0, 0, 0), "{stream}");
    assert!(count("repeated") > 0, "{stream}");
    assert!(
        count("applied") + count("superseded") + count("repeated") > written,
        "{stream}"
    );
}

#[test]
fn a_write_by_a_clock_that_is_ahead_is_not_acknowledged() {
    let Some(clock) = Clock::right() else {
        return println!("skipped: there is no C compiler");
    };
    clock.set_ahead_s(600);
    let kafka = Kafka::shared();
    // The broker gives records times of its own.
    kafka.make_topic_with("ahead", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let cluster = single(&clock);
    let stream = format!("kafka://{}/ahead", kafka.address());
    let create = ["store", "create", "s", "--kind", "hybrid", "--stream", &stream];
    cluster
        .any()
        .done(&[&create[..], &["--max-clock-ahead", "1min"]].concat());
    push(&cluster);
    let mut redis = cluster.get("node-1").redis();
    for _ in 0..2 {
        let error = redis.set::<_, _, ()>("s:k", 1).unwrap_err().to_string();
        assert!(
            error.contains("CLOCK") && error.contains("--max-clock-ahead"),
            "{error}"
        );
    }
    until("both to be read", || stream_of(&cluster)["poison"] == 2);
    assert_eq!(redis.get::<_, Option<String>>("s:k"), Ok(None));
    clock.set_ahead_s(0);
    redis.set::<_, _, ()>("s:k", 2).unwrap();
    until("the right clock's write to be read", || {
        redis.get::<_, Option<u64>>("s:k") == Ok(Some(2))
    });
}
