//! Processes that are killed, brokers and clusters that are away, and topics that forget.

use std::time::Duration;

use fondaco_embedded::{Reader, State};
use fondaco_testing::{Kafka, eventually, random, until};
use serde_json::json;

use super::{Hybrid, TOPIC_PARTITIONS, number, read_all, wait_for};
use crate::faults::Program;
use crate::node::{PATIENCE, wait_for_state};
use crate::versions::{key, value};

const KILLS: usize = 6;
const INCREMENTS: usize = 3000;

#[test]
fn a_reader_that_is_killed_again_and_again_applies_each_event_once() {
    let hybrid = Hybrid::start(Kafka::shared(), "embedded-kills", json!({}), json!({}));
    hybrid.node.push(1);
    let mut random = random("kills");
    let mut sum = 0;
    let mut program = Program::start(&hybrid.node, None);
    assert_eq!(program.line(), "swapped to 1");
    for _ in 0..KILLS {
        for _ in 0..INCREMENTS {
            let by = random.i64(1..10);
            sum += by;
            let text = format!(r#"{{"increment": {by}}}"#);
            let partition = random.i32(0..TOPIC_PARTITIONS);
            hybrid
                .topic
                .send(partition, Some("sum"), Some(&text), [("event-type", "update")]);
        }
        hybrid.topic.flush();
        // Somewhere in the middle of reading these.
        std::thread::sleep(Duration::from_millis(random.u64(..300)));
        program.kill();
        program = Program::start(&hybrid.node, None);
        assert_eq!(program.line(), "opened 1");
    }
    let expected = format!("1: {sum}");
    until("all increments", || program.ask("sum") == expected);
    program.kill();
    let reader = hybrid.node.reader();
    assert_eq!(reader.get("sum").unwrap(), Some(sum.to_string().into()));
    assert_eq!(read_all(&reader), 0);
}

#[test]
fn reads_go_on_while_the_broker_or_the_cluster_is_away() {
    let mut kafka = Kafka::start();
    let mut hybrid = Hybrid::start(&kafka, "embedded-absences", json!({}), json!({}));
    hybrid.node.push(1);
    let reader = hybrid.node.reader();
    reader.wait_ready(PATIENCE).unwrap();
    hybrid.send([("key-1", Some("before"))]);
    wait_for(&reader, "key-1", Some("before"));
    read_all(&reader);

    kafka.kill();
    let (lag, error) = eventually("the error of the broker", || {
        let stream = reader.status().stream?;
        Some((stream.lag, stream.error?)).filter(|(lag, _)| *lag > Duration::from_secs(1))
    });
    println!("without the broker: {lag:?} behind, {error}");
    assert!(error.contains("embedded-absences"), "{error}");
    assert_eq!(reader.get("key-1").unwrap().as_deref(), Some(&b"before"[..]));
    assert_eq!(reader.get(key(2)).unwrap(), Some(value(2, 1).into()));
    kafka.restart();
    hybrid.send([("key-1", Some("after"))]);
    wait_for(&reader, "key-1", Some("after"));
    until("the error to pass", || reader.status().stream.unwrap().error.is_none());

    hybrid.node.stop();
    wait_for_state(&reader, State::Unreachable).unwrap();
    hybrid.send([("key-1", Some("without the cluster"))]);
    wait_for(&reader, "key-1", Some("without the cluster"));
    drop(reader);
    hybrid.send([("key-2", None)]);
    let reader = hybrid.node.reader();
    assert_eq!(
        reader.get("key-1").unwrap().as_deref(),
        Some(&b"without the cluster"[..])
    );
    wait_for(&reader, "key-2", None);
    assert_eq!(read_all(&reader), 1);
    assert_eq!(reader.status().state, State::Unreachable);
}

#[test]
fn events_that_the_topic_has_deleted_meanwhile_are_reported_and_the_cluster_has_them() {
    let (hybrid, reader) = Hybrid::with_version("embedded-retention");
    hybrid.send([("key-0", Some("read"))]);
    wait_for(&reader, "key-0", Some("read"));
    drop(reader);
    // All are in partition 0, where the reader has read one.
    for round in 0..3 {
        hybrid.topic.send(0, Some(&format!("lost-{round}")), Some("x"), None);
    }
    hybrid.topic.flush();
    let mut redis = hybrid.node.redis();
    until("the node to read them", || {
        let found: Option<String> = redis::cmd("GET").arg("cities:lost-2").query(&mut redis).unwrap();
        found.is_some()
    });
    hybrid.topic.delete_before(0, 3);
    let reader = hybrid.node.reader();
    wait_for(&reader, "lost-2", Some("x"));
    assert_eq!(wait_for_state(&reader, State::EventsLost), None);
    let lost = reader.status().stream.unwrap().lost;
    assert_eq!(
        lost.iter()
            .map(|lost| (lost.partition, lost.from, lost.to))
            .collect::<Vec<_>>(),
        [(0, 1, 3)]
    );
    assert_eq!(reader.get("lost-0").unwrap(), None);
    assert_eq!(reader.get("key-0").unwrap().as_deref(), Some(&b"read"[..]));
    drop(reader);
    // The nodes have read them in time.
    let mut options = hybrid.node.options();
    options.fallback = true;
    let reader = Reader::follow(options).unwrap();
    wait_for_state(&reader, State::EventsLost);
    for name in ["lost-0", "lost-1", "lost-2"] {
        assert_eq!(reader.get(name).unwrap().as_deref(), Some(&b"x"[..]), "{name}");
    }
    let values = reader.get_many(&["lost-1", "key-0", "none"]).unwrap();
    assert_eq!(
        values.iter().collect::<Vec<_>>(),
        [Some(&b"x"[..]), Some(b"read"), None]
    );

    hybrid.node.push(2);
    reader.wait_for(number(2), PATIENCE).unwrap();
    assert_eq!(wait_for_state(&reader, State::Current), None);
    assert_eq!(reader.get("lost-0").unwrap(), None);
    assert_eq!(reader.get("lost-2").unwrap().as_deref(), Some(&b"x"[..]));
}
