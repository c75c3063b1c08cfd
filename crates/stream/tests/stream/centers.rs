//! One store that is written in two data centers: each reads its own topic, and a copy of the other one's, as MirrorMaker makes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::ValueType;
use fondaco_schema::{Schema, Schemas, ValueRules, put_id};
use fondaco_stream::{
    Batch, Change, Event, Feed, FeedOptions, Found, Ingest, Logged, Overlay, OverlayOptions, Source, SourceStatus,
    StreamError,
};
use fondaco_testing::{random, until};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::overlay::{options, overlay_on, partitions};

const START_MS: u64 = 1_000_000;
const GRACE_MS: u64 = 1000;
const HOUR_MS: u64 = 60 * 60 * 1000;
const PARTITIONS: u32 = 2;
const KEYS: u32 = 5;

/// The schema of records, if values have one.
const SCHEMA: &str = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long","default":0},{"name":"b","type":"long","default":0},{"name":"n","type":"long","default":0},{"name":"put","type":"long","default":0},{"name":"version","type":"long","default":0}]}"#;

/// The form of values: JSON, or records of the schema.
#[derive(Clone)]
struct Form(Option<ValueRules>);

impl Form {
    fn of(is_typed: bool) -> Self {
        let rules = || {
            let schema = Schema::parse(ValueType::Avro, SCHEMA.as_bytes(), None).unwrap();
            let schemas: Schemas = [(1, schema)].into_iter().collect();
            ValueRules::new(ValueType::Avro, Arc::new(schemas))
        };
        Self(is_typed.then(rules))
    }

    fn stored(&self, value: &Value) -> Bytes {
        let Some(rules) = &self.0 else {
            return value.to_string().into();
        };
        let mut bytes = Vec::new();
        put_id(1, &mut bytes);
        bytes.extend(rules.schemas().get(1).unwrap().of_json(value).unwrap());
        bytes.into()
    }

    fn shown(&self, value: &[u8]) -> Value {
        match &self.0 {
            None => serde_json::from_slice(value).unwrap(),
            Some(rules) => rules.schemas().decode(value).unwrap().1,
        }
    }
}

/// A topic. A copy has its records in the same order of each partition, some of them repeatedly.
#[derive(Default)]
struct Topic(Mutex<[Vec<Logged>; PARTITIONS as usize]>);

impl Topic {
    fn log(&self, partition: u32, logged_ms: u64, event: Event) {
        let records = &mut self.0.lock()[partition as usize];
        let offset = records.len() as u64;
        let event = Ok(event);
        records.push(Logged {
            offset,
            logged_ms,
            event,
        });
    }

    fn len(&self, partition: u32) -> usize {
        self.0.lock()[partition as usize].len()
    }
}

impl Source for Topic {
    fn partitions(&self) -> Result<u32, StreamError> {
        Ok(PARTITIONS)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        let records = &self.0.lock()[partition as usize];
        let found = records.iter().position(|record| record.logged_ms >= time_ms);
        Ok(found.unwrap_or(records.len()) as u64)
    }

    fn first(&self, _: u32) -> Result<u64, StreamError> {
        Ok(0)
    }

    fn read(&self, _: u64, partition: u32, offset: u64, _: usize) -> Result<Batch, StreamError> {
        let all = &self.0.lock()[partition as usize];
        let records: Vec<_> = all.iter().skip(offset as usize).take(40).cloned().collect();
        Ok(Batch {
            next: offset + records.len() as u64,
            end: all.len() as u64,
            records,
        })
    }
}

/// A data center.
struct Center {
    name: &'static str,
    /// Of its name among all: the greater one counts at equal times.
    rank: u8,
    own: Arc<Topic>,
    /// The other one's topic, and how far each partition was copied.
    copy: Arc<Topic>,
    copied: [usize; PARTITIONS as usize],
    overlays: BTreeMap<u64, (Arc<Overlay>, Arc<Feed>)>,
    ingest: Ingest,
    /// How far its clock is ahead.
    ahead_ms: u64,
    form: Form,
}

/// An event that was acknowledged: the time of its record, the rank of its data center, and the event.
type Acknowledged = (u64, u8, Event);

impl Center {
    fn new(name: &'static str, rank: u8, ahead_ms: u64, form: &Form) -> Self {
        Self {
            name,
            rank,
            own: Arc::default(),
            copy: Arc::default(),
            copied: [0; PARTITIONS as usize],
            overlays: BTreeMap::new(),
            ingest: Ingest::start(2).unwrap(),
            ahead_ms,
            form: form.clone(),
        }
    }

    /// A version, whose stream begins at a time.
    fn push(&mut self, version: u64, start_ms: u64) {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let options = OverlayOptions {
            grace_ms: GRACE_MS,
            ..options(version)
        };
        let overlay = overlay_on(&engine, options, &partitions(0..8), {
            let form = self.form.clone();
            Arc::new(move |key| Ok(below(&form, version, key).map(|value| (value, None))))
        });
        if let Some(rules) = &self.form.0 {
            overlay.rules().set(rules.clone());
        }
        let feed = Feed::of_topics(
            Arc::clone(&overlay),
            vec![Arc::clone(&self.own) as _, Arc::clone(&self.copy) as _],
            FeedOptions {
                start_ms,
                center_ranks: vec![self.rank, 3 - self.rank],
                ..FeedOptions::default()
            },
        );
        self.overlays.insert(version, (overlay, Arc::new(feed)));
        self.ingest
            .set_feeds(self.overlays.values().map(|(_, feed)| Arc::clone(feed)).collect());
    }

    fn write(&self, random: &mut fastrand::Rng, now_ms: u64, number: u32, change: Change) -> Acknowledged {
        let logged_ms = now_ms + self.ahead_ms;
        let is_update = matches!(change, Change::Update(_));
        let event = Event {
            key: format!("k{}", random.u32(..KEYS)).into(),
            change,
            time_ms: Some(logged_ms - random.u64(..5)),
            id: is_update.then(|| format!("{} {number}", self.name).into()),
        };
        self.own.log(random.u32(..PARTITIONS), logged_ms, event.clone());
        (logged_ms, self.rank, event)
    }

    /// MirrorMaker: copies some of the other one's records, or all. It repeats some if it was killed.
    fn mirror(&mut self, random: &mut fastrand::Rng, other: &Topic, is_all: bool, was_killed: bool) {
        for partition in 0..PARTITIONS {
            let copied = &mut self.copied[partition as usize];
            if was_killed {
                *copied -= random.usize(..=(*copied).min(60));
            }
            let left = other.len(partition) - *copied;
            let to = *copied + if is_all { left } else { random.usize(..=left) };
            for at in *copied..to {
                let record = other.0.lock()[partition as usize][at].clone();
                self.copy.log(partition, record.logged_ms, record.event.unwrap());
            }
            *copied = to;
        }
    }

    fn read_all(&self) {
        for (overlay, feed) in self.overlays.values() {
            let is_read = |status: &SourceStatus| {
                let topic = [&self.own, &self.copy][status.topic as usize];
                status.next == Some(topic.len(status.partition) as u64)
            };
            until("all events to be read", || {
                let partitions = feed.status().partitions;
                partitions.len() == 2 * PARTITIONS as usize && partitions.iter().all(is_read)
            });
            until("all partitions to answer", || *overlay.ready() == partitions(0..8));
        }
    }
}

/// The value in a version.
fn below(form: &Form, version: u64, key: &[u8]) -> Option<Bytes> {
    (key == b"k0").then(|| form.stored(&json!({"n": 5, "version": version})))
}

fn random_change(form: &Form, random: &mut fastrand::Rng, number: u32) -> Change {
    let update = |text: Value| Change::Update(text.to_string().into());
    match random.u32(..12) {
        0 => Change::Delete,
        1 => Change::Put(form.stored(&json!({"put": number}))),
        2..5 => update(json!({"set": {"a": random.u32(..9)}})),
        5..8 => update(json!({"set": {"b": number}, "increment": {"n": 1}})),
        _ => update(json!({"increment": {"n": random.u32(..100)}})),
    }
}

fn after(object: &mut Map<String, Value>, text: &[u8]) {
    let operations: Value = serde_json::from_slice(text).unwrap();
    for (field, value) in operations["set"].as_object().into_iter().flatten() {
        object.insert(field.clone(), value.clone());
    }
    for (field, by) in operations["increment"].as_object().into_iter().flatten() {
        let known = object.get(field).map_or(0, |known| known.as_i64().unwrap());
        object.insert(field.clone(), json!(known + by.as_i64().unwrap()));
    }
}

/// The value of a key after some events on top of a version: the last whole value by time, data center, deletion and value, and
/// the updates from that time on, by time, data center and hash.
fn expected<'a>(form: &Form, version: u64, key: &str, events: impl Iterator<Item = &'a Acknowledged>) -> Option<Value> {
    let own: Vec<_> = events.filter(|(_, _, event)| event.key == key.as_bytes()).collect();
    let whole = own.iter().filter_map(|(_, rank, event)| match &event.change {
        Change::Put(value) => Some((event.time_ms, *rank, false, Some(value.clone()))),
        Change::Delete => Some((event.time_ms, *rank, true, None)),
        Change::Update(_) => None,
    });
    let (from_ms, value) = match whole.max() {
        Some((time_ms, _, _, value)) => (time_ms, value),
        None => (None, below(form, version, key.as_bytes())),
    };
    let mut updates: Vec<_> = own
        .iter()
        .filter_map(|(_, rank, event)| match &event.change {
            Change::Update(text) if event.time_ms >= from_ms => Some((event.time_ms, *rank, xxh3_128(text) >> 4, text)),
            _ => None,
        })
        .collect();
    updates.sort();
    if value.is_none() && updates.is_empty() {
        return None;
    }
    // A record has its defaults.
    let start = value.unwrap_or_else(|| form.stored(&json!({})));
    let mut object: Map<String, Value> = serde_json::from_value(form.shown(&start)).unwrap();
    updates.iter().for_each(|(_, _, _, text)| after(&mut object, text));
    Some(Value::Object(object))
}

fn value_of(form: &Form, overlay: &Overlay, version: u64, key: &str) -> Option<Value> {
    let value = match overlay.find(key.as_bytes()).unwrap() {
        Found::Value(value) => Some(value),
        Found::Deleted => None,
        Found::Nothing => below(form, version, key.as_bytes()),
        other => panic!("{other:?}"),
    };
    value.map(|value| form.shown(&value))
}

/// Checks that data centers that have read all events answer alike, and as they should.
fn all_agree(centers: &[Center; 2], starts: &BTreeMap<u64, u64>, acknowledged: &[Acknowledged], what: &str) {
    for center in centers {
        for (version, (overlay, _)) in &center.overlays {
            for key in (0..KEYS).map(|key| format!("k{key}")) {
                let counted = acknowledged
                    .iter()
                    .filter(|(logged_ms, ..)| *logged_ms >= starts[version]);
                let found = value_of(&center.form, overlay, *version, &key);
                assert_eq!(
                    found,
                    expected(&center.form, *version, &key, counted),
                    "{what}: {}, version {version}, {key}",
                    center.name
                );
            }
        }
    }
}

/// How many events came too late.
fn late(centers: &[Center; 2]) -> u64 {
    let overlays = centers.iter().flat_map(|center| center.overlays.values());
    overlays.map(|(overlay, _)| overlay.applied().late).sum()
}

#[test]
fn data_centers_agree_after_any_order_of_arrival() {
    for seed in 0..12 {
        let mut random = random(&format!("centers {seed}"));
        // Two writers whose clocks are an hour apart.
        let ahead_ms = [0, HOUR_MS][seed % 2];
        let form = Form::of(seed % 3 == 0);
        let mut centers = [
            Center::new("east", 1, 0, &form),
            Center::new("west", 2, ahead_ms, &form),
        ];
        let mut starts = BTreeMap::from([(1, 0)]);
        centers.iter_mut().for_each(|center| center.push(1, 0));
        let mut acknowledged = Vec::new();
        let mut number = 0;
        for round in 0..8 {
            let now_ms = START_MS + round * 50;
            for center in &centers {
                for _ in 0..random.u32(..60) {
                    number += 1;
                    let change = random_change(&form, &mut random, number);
                    let at_ms = now_ms + random.u64(..40);
                    acknowledged.push(center.write(&mut random, at_ms, number, change));
                }
            }
            if round == 4 {
                // One of them has the next version sooner. It begins in the midst of what mirrors repeat.
                starts.insert(2, now_ms);
                centers[0].push(2, now_ms);
            }
            let topics = centers.each_ref().map(|center| Arc::clone(&center.own));
            for (center, other) in centers.iter_mut().zip(topics.iter().rev()) {
                // Cut off for a while, at times.
                if random.u32(..3) > 0 {
                    let was_killed = random.bool();
                    center.mirror(&mut random, other, false, was_killed);
                }
            }
        }
        centers[1].push(2, starts[&2]);
        let topics = centers.each_ref().map(|center| Arc::clone(&center.own));
        for (center, other) in centers.iter_mut().zip(topics.iter().rev()) {
            center.mirror(&mut random, other, true, seed % 4 == 0);
            center.read_all();
        }
        all_agree(&centers, &starts, &acknowledged, &format!("seed {seed}"));
        assert_eq!(late(&centers), 0, "seed {seed}");
    }
}

#[test]
fn nothing_is_lost_however_long_the_mirror_is_away() {
    let mut random = random("cut mirror");
    let form = Form::of(true);
    let mut centers = [Center::new("east", 1, 0, &form), Center::new("west", 2, 0, &form)];
    centers.iter_mut().for_each(|center| center.push(1, 0));
    let mut acknowledged = Vec::new();
    let mut write = |centers: &[Center; 2], random: &mut fastrand::Rng, now_ms: u64| {
        for center in centers {
            for _ in 0..40 {
                let number = acknowledged.len() as u32;
                let change = random_change(&form, random, number);
                acknowledged.push(center.write(random, now_ms, number, change));
            }
        }
        acknowledged.clone()
    };
    write(&centers, &mut random, START_MS);
    let topics = centers.each_ref().map(|center| Arc::clone(&center.own));
    for (center, other) in centers.iter_mut().zip(topics.iter().rev()) {
        center.mirror(&mut random, other, true, false);
        center.read_all();
    }
    // They are apart for a thousand times the grace, and write the same keys: what is read of one's own topic alone settles nothing.
    let mut all = Vec::new();
    for minute in 1..=20 {
        all = write(&centers, &mut random, START_MS + minute * 60_000);
        centers.iter().for_each(Center::read_all);
    }
    // The threads have folded what they could.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for center in &centers {
        let settled_ms = center.overlays[&1].1.status().settled_ms;
        assert!(settled_ms <= START_MS, "{settled_ms}");
    }
    for (center, other) in centers.iter_mut().zip(topics.iter().rev()) {
        center.mirror(&mut random, other, true, true);
        center.read_all();
    }
    let starts = BTreeMap::from([(1, 0)]);
    all_agree(&centers, &starts, &all, "together again");
    assert_eq!(late(&centers), 0);
    let last_ms = START_MS + 20 * 60_000;
    for center in &centers {
        until("updates to settle", || {
            center.overlays[&1].1.status().settled_ms > last_ms - 60_000
        });
    }
    // Old values that come once more bring nothing back.
    for (center, other) in centers.iter_mut().zip(topics.iter().rev()) {
        center.copied = [0; PARTITIONS as usize];
        center.mirror(&mut random, other, true, false);
        center.read_all();
    }
    all_agree(&centers, &starts, &all, "after repeats");
}
