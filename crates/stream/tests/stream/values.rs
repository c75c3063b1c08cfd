//! Values of a declared type: those that fit are kept, the others are poison, and schemas that a node hears of late.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::ValueType;
use fondaco_schema::{Schema, Schemas, ValueRules, put_id};
use fondaco_stream::{
    Change, Event, EventLog, Feed, FeedOptions, Foreign, Found, Ingest, LiveRules, LogTopic, Overlay, SchemaFinder,
    Source,
};
use fondaco_testing::until;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::overlay::{memory, options, partitions, wait_until_read};

/// The registry of the cluster, as one node reaches it.
#[derive(Default)]
struct Registry {
    schemas: Mutex<Schemas>,
    /// Why it does not answer.
    failure: Mutex<Option<String>>,
    /// How many times it was asked.
    asked: Mutex<u32>,
}

impl SchemaFinder for Registry {
    fn present(&self) -> Result<Arc<Schemas>, String> {
        *self.asked.lock() += 1;
        match &*self.failure.lock() {
            Some(reason) => Err(reason.clone()),
            None => Ok(Arc::new(self.schemas.lock().clone())),
        }
    }

    fn foreign(&self, id: u32, message: &[u32]) -> Result<Foreign, String> {
        assert!(message.is_empty(), "only Protobuf has several messages in a schema");
        *self.asked.lock() += 1;
        if let Some(reason) = &*self.failure.lock() {
            return Err(reason.clone());
        }
        Ok(match id {
            // Numbers of the registry outside are others than those of the store.
            100 | 200 => {
                let id = (id / 100) as u16;
                Foreign::Schema(id, schemas()[usize::from(id) - 1].clone())
            }
            300 => Foreign::Json,
            _ => Foreign::Refused(format!("the registry has no schema {id}")),
        })
    }
}

fn user(fields: &Value) -> Schema {
    let text = json!({"type": "record", "name": "User", "fields": fields}).to_string();
    Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap()
}

/// Schemas 1 and 2: the second has a field more.
fn schemas() -> [Schema; 2] {
    let age = json!({"name": "age", "type": "int"});
    let city = json!({"name": "city", "type": "string", "default": ""});
    [user(&json!([age])), user(&json!([age, city]))]
}

fn known(count: usize) -> Schemas {
    (1..).zip(schemas().into_iter().take(count)).collect()
}

fn encoded(id: u16, json: &Value) -> Bytes {
    let mut value = Vec::new();
    put_id(id, &mut value);
    value.extend(schemas()[usize::from(id) - 1].of_json(json).unwrap());
    value.into()
}

fn put(key: &str, value: impl Into<Bytes>) -> Event {
    Event {
        key: key.to_owned().into(),
        change: Change::Put(value.into()),
        time_ms: None,
        id: None,
    }
}

/// An overlay on a node that knows these schemas.
fn node(rules: LiveRules, topic: &Arc<LogTopic>) -> (Arc<Overlay>, Arc<Feed>) {
    let overlay = Overlay::open(memory(), options(1), Arc::new(|_| Ok(None)), Arc::new(rules)).unwrap();
    overlay.set_held(&partitions(0..8)).unwrap();
    let overlay = Arc::new(overlay);
    let source: Arc<dyn Source> = Arc::clone(topic) as _;
    let feed = Feed::new(Arc::clone(&overlay), source, FeedOptions::default());
    (overlay, Arc::new(feed))
}

fn avro(known_schemas: usize, registry: &Arc<Registry>) -> LiveRules {
    let rules = ValueRules::new(ValueType::Avro, Arc::new(known(known_schemas)));
    LiveRules::new(rules, Some(Arc::clone(registry) as _))
}

fn read_all(feed: &Arc<Feed>) {
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(feed)]);
    wait_until_read(feed);
}

fn one_partition() -> Arc<LogTopic> {
    EventLog::new(memory()).topic("t", 1).unwrap()
}

#[test]
fn values_that_describe_themselves_are_kept_or_poison() {
    for (value_type, fits, does_not, reason) in [
        (
            ValueType::String,
            &b"caf\xc3\xa9"[..],
            &b"caf\xe9"[..],
            "byte 3: the text is not UTF-8",
        ),
        (ValueType::Integer, b"-12", b"1.5", "the value is no integer of 64 bits"),
        (
            ValueType::Json,
            b"{\"a\": [1]}",
            b"{\"a\": [1}",
            "the value is no JSON: expected",
        ),
        (
            ValueType::Messagepack,
            b"\x93\x01\x02\x03",
            b"\x01\x02",
            "byte 1: 1 bytes follow the value",
        ),
        (ValueType::Bytes, b"\xff", b"", ""),
    ] {
        let topic = one_partition();
        topic
            .append(
                &[put("fits", fits), put("does not", does_not), put("after", fits)],
                1000,
            )
            .unwrap();
        let rules = LiveRules::new(ValueRules::new(value_type, Arc::default()), None);
        let (overlay, feed) = node(rules, &topic);
        read_all(&feed);
        for key in ["fits", "after"] {
            assert_eq!(
                overlay.find(key.as_bytes()).unwrap(),
                Found::Value(fits.into()),
                "{value_type}"
            );
        }
        let poison = overlay.poisoned().unwrap();
        if reason.is_empty() {
            assert_eq!(poison, []);
            continue;
        }
        assert_eq!(overlay.find(b"does not").unwrap(), Found::Nothing);
        let [(0, 1, found)] = &poison[..] else {
            panic!("{poison:?}")
        };
        let expected = format!("the values of the store are of type {value_type}: invalid value");
        assert!(found.starts_with(&expected) && found.contains(reason), "{found}");
    }
}

#[test]
fn a_value_that_does_not_fit_its_schema_is_poison_with_field_and_byte() {
    let topic = one_partition();
    let (registry, fits) = (Arc::default(), encoded(2, &json!({"age": 3, "city": "Venice"})));
    let cut = fits.slice(..fits.len() - 1);
    topic
        .append(
            &[
                put("cut", cut),
                put("no id", &b"\x00\x01"[..]),
                put("fits", fits.clone()),
            ],
            1000,
        )
        .unwrap();
    let (overlay, feed) = node(avro(2, &registry), &topic);
    read_all(&feed);
    assert_eq!(overlay.find(b"fits").unwrap(), Found::Value(fits));
    assert_eq!(overlay.find(b"cut").unwrap(), Found::Nothing);
    let reasons: Vec<String> = overlay
        .poisoned()
        .unwrap()
        .into_iter()
        .map(|(_, _, reason)| reason)
        .collect();
    assert!(reasons[0].contains("field \"city\", byte "), "{reasons:?}");
    assert!(
        reasons[1].contains("does not begin with a schema id from 1 to 16383"),
        "{reasons:?}"
    );
    assert_eq!(*registry.asked.lock(), 0, "no schema was missing");
}

#[test]
fn a_node_that_hears_of_a_schema_late_takes_the_events_that_another_one_took() {
    let topic = one_partition();
    let registry = Arc::<Registry>::default();
    *registry.schemas.lock() = known(2);
    let (old, new) = (
        encoded(1, &json!({"age": 1})),
        encoded(2, &json!({"age": 2, "city": "x"})),
    );
    topic
        .append(
            &[
                put("old", old.clone()),
                put("new", new.clone()),
                put("unknown", &b"\x03\x02"[..]),
            ],
            1000,
        )
        .unwrap();
    // They know both schemas, the first, none.
    for known_schemas in [2, 1, 0] {
        let rules = avro(known_schemas, &registry);
        let (overlay, feed) = node(rules, &topic);
        read_all(&feed);
        assert_eq!(overlay.find(b"old").unwrap(), Found::Value(old.clone()));
        assert_eq!(overlay.find(b"new").unwrap(), Found::Value(new.clone()));
        let [(0, 2, reason)] = &overlay.poisoned().unwrap()[..] else {
            panic!()
        };
        assert!(reason.ends_with("no schema has the id 3"), "{reason}");
        // The mirror's older list of schemas takes none away.
        overlay
            .rules()
            .set(ValueRules::new(ValueType::Avro, Arc::new(known(known_schemas))));
        assert_eq!(overlay.rules().load().schemas().newest().map(|(id, _)| id), Some(2));
    }
}

#[test]
fn a_schema_that_was_missing_before_is_looked_for_again_for_later_events() {
    let topic = one_partition();
    let registry = Arc::<Registry>::default();
    *registry.schemas.lock() = known(1);
    let (overlay, feed) = node(avro(1, &registry), &topic);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    let value = encoded(2, &json!({"age": 2, "city": "x"}));
    topic.append(&[put("early", value.clone())], 1000).unwrap();
    until("the event to be poison", || overlay.applied().poison == 1);
    *registry.schemas.lock() = known(2);
    topic.append(&[put("later", value.clone())], 1001).unwrap();
    until("the later event to count", || {
        overlay.find(b"later").unwrap() == Found::Value(value.clone())
    });
    assert_eq!(overlay.find(b"early").unwrap(), Found::Nothing);
    assert_eq!(overlay.applied().poison, 1);
}

#[test]
fn events_wait_with_a_visible_reason_while_the_registry_does_not_answer() {
    let topic = one_partition();
    let registry = Arc::<Registry>::default();
    *registry.schemas.lock() = known(2);
    *registry.failure.lock() = Some("ZooKeeper is away".to_owned());
    let (before, value) = (
        encoded(1, &json!({"age": 1})),
        encoded(2, &json!({"age": 2, "city": "x"})),
    );
    topic
        .append(
            &[
                put("before", before.clone()),
                put("waits", value.clone()),
                put("after", before.clone()),
            ],
            1000,
        )
        .unwrap();
    let (overlay, feed) = node(avro(1, &registry), &topic);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    until("the reason to be visible", || {
        feed.status()
            .error
            .is_some_and(|error| error.contains("ZooKeeper is away"))
    });
    // The events before it count, and no offset is passed over.
    assert_eq!(overlay.find(b"before").unwrap(), Found::Behind);
    let status = &feed.status().partitions[0];
    assert_eq!((status.next, status.lag_records), (Some(1), Some(2)));
    assert_eq!((overlay.applied().applied, overlay.applied().poison), (1, 0));
    assert!(overlay.ready().is_empty());
    *registry.failure.lock() = None;
    wait_until_read(&feed);
    until("it to answer", || !overlay.ready().is_empty());
    for (key, value) in [("before", &before), ("waits", &value), ("after", &before)] {
        assert_eq!(
            overlay.find(key.as_bytes()).unwrap(),
            Found::Value(value.clone()),
            "{key}"
        );
    }
    assert_eq!((overlay.applied().applied, overlay.applied().poison), (3, 0));
    until("the reason to be gone", || feed.status().error.is_none());
}

#[test]
fn a_registry_that_never_answers_keeps_no_thread_for_long() {
    /// It answers when the test ends.
    struct Hanging(Mutex<std::sync::mpsc::Receiver<()>>);

    impl SchemaFinder for Hanging {
        fn present(&self) -> Result<Arc<Schemas>, String> {
            let _ = self.0.lock().recv_timeout(Duration::from_secs(60));
            Err("it hangs".to_owned())
        }

        fn foreign(&self, _: u32, _: &[u32]) -> Result<Foreign, String> {
            Err("there is none".to_owned())
        }
    }

    let (end, ended) = std::sync::mpsc::channel();
    let (stalled, free) = (one_partition(), one_partition());
    stalled
        .append(&[put("k", encoded(2, &json!({"age": 2, "city": "x"})))], 1000)
        .unwrap();
    let rules = ValueRules::new(ValueType::Avro, Arc::default());
    let (_, waiting) = node(
        LiveRules::new(rules, Some(Arc::new(Hanging(Mutex::new(ended))))),
        &stalled,
    );
    let (other, feed) = node(LiveRules::default(), &free);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&waiting), feed]);
    until("the reason to be visible", || {
        waiting
            .status()
            .error
            .is_some_and(|error| error.contains("the answer is late"))
    });
    free.append(&[put("k", &b"v"[..])], 1000).unwrap();
    until("another store to be read", || other.applied().applied == 1);
    drop(end);
}

/// A value as Confluent's serializers write it.
fn foreign(number: u32, payload: &[u8]) -> Bytes {
    [&[0][..], &number.to_be_bytes(), payload].concat().into()
}

#[test]
fn values_with_numbers_of_a_registry_outside_are_stored_with_the_ids_of_the_store() {
    let (topic, registry) = (one_partition(), Arc::<Registry>::default());
    let stored = encoded(2, &json!({"age": 2, "city": "x"}));
    let cut = foreign(200, &stored[1..stored.len() - 1]);
    let events = [
        put("fits", foreign(200, &stored[1..])),
        put("cut", cut),
        put("no number", &b"{}"[..]),
        put("unknown", foreign(7, b"x")),
        put("also unknown", foreign(7, b"y")),
        put("older", foreign(100, &encoded(1, &json!({"age": 1}))[1..])),
    ];
    topic.append(&events, 1000).unwrap();
    let rules = ValueRules::new(ValueType::Avro, Arc::default());
    let (overlay, feed) = node(
        LiveRules::with_foreign_values(rules, Arc::clone(&registry) as _),
        &topic,
    );
    read_all(&feed);
    assert_eq!(overlay.find(b"fits").unwrap(), Found::Value(stored));
    assert_eq!(
        overlay.find(b"older").unwrap(),
        Found::Value(encoded(1, &json!({"age": 1})))
    );
    let poison = overlay.poisoned().unwrap();
    let reasons: Vec<&str> = poison.iter().map(|(_, _, reason)| &**reason).collect();
    let [cut, number, unknown, again] = reasons[..] else {
        panic!("{reasons:?}")
    };
    assert!(cut.contains("field \"city\", byte "), "{cut}");
    assert!(number.contains("the value begins with 0x7b, not with 0x00"), "{number}");
    assert_eq!((unknown, again), ("the registry has no schema 7", unknown));
    assert_eq!(*registry.asked.lock(), 3, "each number once");
}

#[test]
fn json_with_numbers_of_a_registry_outside_is_stored_as_text() {
    let (topic, registry) = (one_partition(), Arc::<Registry>::default());
    let events = [
        put("fits", foreign(300, b"{\"a\": 1}")),
        put("cut", foreign(300, b"{\"a\": ")),
    ];
    topic.append(&events, 1000).unwrap();
    let rules = ValueRules::new(ValueType::Json, Arc::default());
    let (overlay, feed) = node(LiveRules::with_foreign_values(rules, registry), &topic);
    read_all(&feed);
    assert_eq!(overlay.find(b"fits").unwrap(), Found::Value("{\"a\": 1}".into()));
    let [(0, 1, reason)] = &overlay.poisoned().unwrap()[..] else {
        panic!()
    };
    assert!(reason.contains("the value is no JSON"), "{reason}");
}

#[test]
fn events_wait_while_the_registry_outside_is_away() {
    let (topic, registry) = (one_partition(), Arc::<Registry>::default());
    *registry.failure.lock() = Some("connection refused".to_owned());
    let stored = encoded(1, &json!({"age": 1}));
    topic.append(&[put("k", foreign(100, &stored[1..]))], 1000).unwrap();
    let rules = ValueRules::new(ValueType::Avro, Arc::default());
    let (overlay, feed) = node(
        LiveRules::with_foreign_values(rules, Arc::clone(&registry) as _),
        &topic,
    );
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    until("the reason to be visible", || {
        feed.status()
            .error
            .is_some_and(|error| error.contains("connection refused"))
    });
    assert_eq!(
        (feed.status().partitions[0].lag_records, overlay.applied().poison),
        (Some(1), 0)
    );
    *registry.failure.lock() = None;
    until("the event to count", || {
        overlay.find(b"k").unwrap() == Found::Value(stored.clone())
    });
}
