//! Hybrid stores: a reader reads the topic itself, on top of the versions that it fetches, from a real Kafka.

mod equality;
mod fallback;
mod faults;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use fondaco_api::StoreResource;
use fondaco_embedded::{EmbeddedError, Reader, State};
use fondaco_model::VersionNumber;
use fondaco_testing::{Kafka, KafkaWriter, eventually, until};
use serde_json::{Value, json};

use crate::node::{KEYS, Node, PATIENCE, wait_for_state};
use crate::versions::{STORE, key, value};

const TOPIC_PARTITIONS: i32 = 3;

fn number(number: u64) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

/// A node with a hybrid store, which reads a topic of its own.
struct Hybrid {
    node: Node,
    topic: KafkaWriter,
}

impl Hybrid {
    fn start(kafka: &Kafka, topic: &str, stream: Value, options: Value) -> Self {
        let writer = kafka.make_topic(topic, TOPIC_PARTITIONS);
        let node = Node::start_empty(|_| {});
        let mut store = json!({"name": STORE, "kind": "hybrid", "stream": stream});
        store["stream"]["source"] = format!("kafka://{}/{topic}", kafka.address()).into();
        store
            .as_object_mut()
            .unwrap()
            .extend(options.as_object().unwrap().clone());
        let client = node.endpoint().client().unwrap();
        client.post::<StoreResource>("/v1/stores", &store).unwrap();
        Self { node, topic: writer }
    }

    /// In the shared Kafka, with a version whose values have the mark 1, and a reader that has it.
    fn with_version(topic: &str) -> (Self, Reader) {
        let hybrid = Self::start(Kafka::shared(), topic, json!({}), json!({}));
        hybrid.node.push(1);
        let reader = hybrid.node.reader();
        reader.wait_ready(PATIENCE).unwrap();
        (hybrid, reader)
    }

    /// Sends values, `None` for deletions, and waits for the broker.
    fn send<'a>(&self, events: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) {
        for (at, (key, value)) in events.into_iter().enumerate() {
            self.topic.send(at as i32 % TOPIC_PARTITIONS, Some(key), value, None);
        }
        self.topic.flush();
    }
}

/// Waits until a key has a value.
#[track_caller]
fn wait_for(reader: &Reader, key: &str, expected: Option<&str>) {
    until(&format!("{key} to be {expected:?}"), || {
        reader.get(key).unwrap().as_deref() == expected.map(str::as_bytes)
    });
}

/// Waits until the reader has read this number of records since it was opened.
#[track_caller]
fn wait_until_read(reader: &Reader, records: u64) {
    until(&format!("{records} records to be read"), || {
        reader
            .status()
            .stream
            .is_some_and(|stream| stream.records_read >= records)
    });
}

/// How many records the reader has read since it was opened, once it has all of them.
fn read_all(reader: &Reader) -> u64 {
    eventually("all records to be read", || {
        let stream = reader.status().stream?;
        (stream.lag_records == Some(0) && stream.error.is_none()).then_some(stream.records_read)
    })
}

fn scanned(reader: &Reader) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for piece in reader.scan(None).unwrap() {
        for (key, value) in piece.unwrap() {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let (key, value) = (text(key), text(value));
            assert_eq!(found.insert(key.clone(), value), None, "{key} twice");
        }
    }
    found
}

#[test]
fn events_are_read_on_top_of_the_version_and_a_restart_reads_only_new_ones() {
    let (hybrid, reader) = Hybrid::with_version("embedded-events");
    assert_eq!(reader.get(key(1)).unwrap(), Some(value(1, 1).into()));
    let mut lags = Vec::new();
    for round in 0..5 {
        let (text, began) = (format!("later-{round}"), Instant::now());
        hybrid.send([("key-1", Some(&*text))]);
        wait_for(&reader, "key-1", Some(&text));
        lags.push(began.elapsed());
    }
    println!("from sending an event to reading it: {lags:?}");
    hybrid.send([("key-2", None), ("new", Some("n")), ("gone", Some("x")), ("gone", None)]);
    wait_for(&reader, "key-2", None);
    wait_for(&reader, "new", Some("n"));
    read_all(&reader);
    let found = reader
        .get_many(&["key-1", "key-2", "key-3", "new", "gone", "none"])
        .unwrap();
    let three = value(3, 1);
    let expected = [Some("later-4"), None, Some(&*three), Some("n"), None, None];
    assert_eq!(
        found.iter().collect::<Vec<_>>(),
        expected.map(|text| text.map(str::as_bytes))
    );
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(&*snapshot.get("new").unwrap().unwrap(), b"n");
    assert_eq!(snapshot.get("key-2").unwrap().map(|value| value.to_vec()), None);

    // Many keys that the version lacks, and many of it that are deleted.
    let new: Vec<String> = (0..9000).map(|at| format!("new-{at}")).collect();
    let gone: Vec<String> = (100..1500).map(key).collect();
    let events = new.iter().map(|key| (&**key, Some("v")));
    hybrid.send(events.chain(gone.iter().map(|key| (&**key, None))));
    wait_until_read(&reader, 5 + 4 + 9000 + 1400);
    let mut expected: BTreeMap<String, String> = (0..KEYS).map(|at| (key(at), value(at, 1))).collect();
    gone.iter().for_each(|key| _ = expected.remove(key));
    expected.remove("key-2");
    expected.insert("key-1".into(), "later-4".into());
    expected.insert("new".into(), "n".into());
    expected.extend(new.iter().map(|key| (key.clone(), "v".to_owned())));
    assert_eq!(scanned(&reader), expected);
    assert_eq!(wait_for_state(&reader, State::Current), None);
    let status = reader.status().stream.unwrap();
    assert_eq!((status.keys, &status.lost[..]), (9000 + 1400 + 4, &[][..]));
    drop((reader, snapshot));

    hybrid.send([("key-1", Some("while it was away")), ("key-4", None)]);
    let reader = hybrid.node.reader();
    assert_eq!(
        reader.get("new").unwrap().as_deref(),
        Some(&b"n"[..]),
        "it is here at once"
    );
    wait_for(&reader, "key-1", Some("while it was away"));
    wait_for(&reader, "key-4", None);
    assert_eq!(read_all(&reader), 2);
}

#[test]
fn a_swap_changes_version_and_events_at_once_and_a_rollback_loses_no_event() {
    let (hybrid, reader) = Hybrid::with_version("embedded-swaps");
    hybrid.send([("key-3", Some("event")), ("key-5", None)]);
    wait_for(&reader, "key-3", Some("event"));
    wait_for(&reader, "key-5", None);
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let marks = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut marks, end) = (Vec::new(), Instant::now() + 3 * PATIENCE);
            while !is_over.load(Relaxed) && Instant::now() < end {
                let found = reader.get_many(&["key-3", "key-4", "key-5"]).unwrap();
                assert_eq!((found.get(0), found.get(2)), (Some(&b"event"[..]), None));
                let mark = std::str::from_utf8(found.get(1).unwrap())
                    .unwrap()
                    .split(':')
                    .nth(1)
                    .unwrap();
                assert_eq!(mark.parse(), Ok(found.version().unwrap().get()));
                if marks.last() != Some(&mark.to_owned()) {
                    marks.push(mark.to_owned());
                }
                assert_eq!(reader.get("key-5").unwrap(), None);
                rounds.fetch_add(1, Relaxed);
            }
            marks
        });
        // One round may be under way, and the next one reads the present version.
        let read_on = || {
            let read = rounds.load(Relaxed);
            until("the thread to read on", || rounds.load(Relaxed) > read + 1);
        };
        hybrid.node.push(2);
        let swapped = reader.wait_for(number(2), PATIENCE);
        read_on();
        hybrid.send([("key-6", Some("after the swap"))]);
        hybrid.node.rollback();
        let back = reader.wait_for(number(1), PATIENCE);
        read_on();
        is_over.store(true, Relaxed);
        swapped.unwrap();
        back.unwrap();
        reading.join().unwrap()
    });
    assert_eq!(marks.join(" "), "1 2 1");
    // The version that was kept has read on.
    wait_for(&reader, "key-6", Some("after the swap"));
    drop(reader);
    // The events of versions that are not kept are deleted.
    let mut options = hybrid.node.options();
    options.keep = 0;
    let reader = Reader::follow(options).unwrap();
    hybrid.node.push(3);
    reader.wait_for(number(3), PATIENCE).unwrap();
    wait_for(&reader, "key-3", Some("event"));
    wait_for(&reader, "key-6", Some("after the swap"));
    assert_eq!(reader.get("key-4").unwrap(), Some(value(4, 3).into()));
}

#[test]
fn stores_whose_events_cannot_be_read_here_are_refused_by_name() {
    let node = Node::start_empty(|_| {});
    let client = node.endpoint().client().unwrap();
    let store = json!({"name": STORE, "kind": "hybrid", "stream": {"source": "log:2"}});
    client.post::<StoreResource>("/v1/stores", &store).unwrap();
    node.push(1);
    let error = Reader::follow(node.options()).err().unwrap();
    assert!(matches!(error, EmbeddedError::LogStream { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("fondaco get cities:KEY") && error.contains("kafka://"),
        "{error}"
    );
}
