//! Hybrid stores that count what a topic of a real Kafka says, while nodes are killed.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fondaco_testing::{Kafka, KafkaWriter, random};
use redis::Commands as _;

use super::cluster::{Cluster, Shape};
use super::node::{Node, until};
use super::values;

const COUNTERS: usize = 200;
const INCREMENTS: usize = 100_000;
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
        if sent % 2000 == 1999 {
            topic.flush();
            thread::sleep(Duration::from_millis(250));
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
    let kafka = Kafka::start();
    let topic = kafka.make_topic("counts", TOPIC_PARTITIONS);
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        ..Shape::default()
    });
    let stream = format!("kafka://{}/counts", kafka.address());
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
    cluster.until_nobody_is_late();
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
