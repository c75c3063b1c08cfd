//! Updates of parts of values: their order, events that come again, and what is kept of them.

mod batches;
mod expiry;
mod sets;
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{CacheBudget, Engine, EngineError, LogEngine, LogOptions, MemoryEngine};
use fondaco_model::PartitionId;
use fondaco_simulation::FaultyDisk;
use fondaco_stream::{
    Batch, Below, Change, Event, Feed, FeedOptions, Found, Ingest, Logged, Overlay, OverlayOptions, Source, StreamError,
};
use fondaco_testing::{random, until};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::overlay::{feed, options, overlay_on, partitions, wait_until_read};

const START_MS: u64 = 1_000_000;
const GRACE_MS: u64 = 1000;
/// How far times may go back beside that.
const BACK_MS: u64 = 10_000;
const PARTITIONS: u32 = 4;

/// A topic whose events come in any partition.
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
}

impl Source for Topic {
    fn partitions(&self) -> Result<u32, StreamError> {
        Ok(PARTITIONS)
    }

    fn offset_at(&self, _: u32, _: u64) -> Result<u64, StreamError> {
        Ok(0)
    }

    fn first(&self, _: u32) -> Result<u64, StreamError> {
        Ok(0)
    }

    fn read(&self, _: u64, partition: u32, offset: u64, _: usize) -> Result<Batch, StreamError> {
        let all = &self.0.lock()[partition as usize];
        let records: Vec<_> = all.iter().skip(offset as usize).take(60).cloned().collect();
        Ok(Batch {
            next: offset + records.len() as u64,
            end: all.len() as u64,
            records,
        })
    }
}

/// The value in the version below.
fn below(key: &[u8]) -> Option<Bytes> {
    match key {
        b"k0" => Some(Bytes::from_static(br#"{"n": 5, "l": ["below"]}"#)),
        b"k1" => Some(Bytes::from_static(b"no object")),
        _ => None,
    }
}

fn open(engine: &Arc<dyn Engine>) -> Arc<Overlay> {
    open_on(engine, None, Arc::new(|key| Ok(below(key).map(|value| (value, None)))))
}

/// Opens an overlay of a version that contains all events up to a time.
fn open_on(engine: &Arc<dyn Engine>, as_of_ms: Option<u64>, base: Below) -> Arc<Overlay> {
    let options = OverlayOptions {
        as_of_ms,
        grace_ms: GRACE_MS,
        ..options(1)
    };
    overlay_on(engine, options, &partitions(0..8), base)
}

fn read_all(overlay: &Arc<Overlay>, topic: &Arc<Topic>) {
    let (feed, ingest) = (feed(overlay, topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_until_read(&feed);
}

/// How many records a table has.
fn records(engine: &Arc<dyn Engine>, table: &str) -> usize {
    engine.open_table(table).unwrap().scan(&[], None).unwrap().count()
}

fn event(key: &str, change: Change, time_ms: u64) -> Event {
    Event {
        key: key.to_owned().into(),
        change,
        time_ms: Some(time_ms),
        id: None,
    }
}

fn update(text: &Value) -> Change {
    Change::Update(text.to_string().into())
}

fn random_event(random: &mut fastrand::Rng, number: u32, time_ms: u64) -> Event {
    let key = format!("k{}", random.u32(..6));
    let change = match random.u32(..20) {
        0 => Change::Delete,
        1 => Change::Put(format!(r#"{{"l":["put {number}"]}}"#).into()),
        2 => Change::Put("text".into()),
        3..9 => update(&json!({"increment": {"n": random.u32(..100)}})),
        9..12 => update(&json!({"set": {"n": random.u32(..5)}})),
        _ => update(&json!({"append": {"l": [random.u32(..9)]}})),
    };
    event(&key, change, time_ms)
}

/// The value after an update, for the updates that are used here.
fn after(value: Option<Bytes>, text: &[u8]) -> Option<Bytes> {
    let operations: Value = serde_json::from_slice(text).unwrap();
    let mut object: Map<String, Value> = match &value {
        None => Map::new(),
        Some(bytes) => match serde_json::from_slice(bytes) {
            Ok(object) => object,
            Err(_) => return value,
        },
    };
    if let Some(by) = operations.pointer("/increment/n") {
        let known = object.get("n").map_or(0, |known| known.as_i64().unwrap());
        object.insert("n".to_owned(), json!(known + by.as_i64().unwrap()));
    } else if let Some(to) = operations.pointer("/set/n") {
        object.insert("n".to_owned(), to.clone());
    } else if let Some(element) = operations.pointer("/append/l/0") {
        let list = object.entry("l").or_insert(json!([]));
        list.as_array_mut().unwrap().push(element.clone());
    }
    Some(serde_json::to_vec(&object).unwrap().into())
}

/// The expected answer for a key after all its events, in order.
fn expected(key: &str, events: &[Event]) -> Option<Found> {
    let mut own: Vec<&Event> = events.iter().filter(|event| event.key == key.as_bytes()).collect();
    // At one time first values, then deletions, then updates.
    own.sort_by_key(|event| {
        let (rank, hash) = match &event.change {
            Change::Put(_) => (0, 0),
            Change::Delete => (1, 0),
            Change::Update(text) => (2, xxh3_128(text)),
        };
        let value = match &event.change {
            Change::Put(value) => value.clone(),
            _ => Bytes::new(),
        };
        (event.time_ms, rank, value, hash)
    });
    let mut value = below(key.as_bytes());
    for event in &own {
        value = match &event.change {
            Change::Put(value) => Some(value.clone()),
            Change::Delete => None,
            Change::Update(text) => after(value, text),
        };
    }
    (!own.is_empty()).then(|| value.map_or(Found::Deleted, Found::Value))
}

#[test]
fn updates_apply_in_the_order_of_their_times() {
    for seed in 0..8 {
        let mut random = random(&format!("updates {seed}"));
        let dir = tempfile::tempdir().unwrap();
        let engine: Arc<dyn Engine> = match seed % 2 {
            0 => Arc::new(MemoryEngine::new()),
            _ => {
                // Most values are only on the disk.
                let options = LogOptions {
                    cache: CacheBudget::new(256),
                    ..LogOptions::default()
                };
                Arc::new(LogEngine::open(dir.path(), options).unwrap())
            }
        };
        let mut overlay = open(&engine);
        let topic = Arc::new(Topic::default());
        let mut events = Vec::new();
        let spread = [1, 20, GRACE_MS][seed % 3];
        for round in 0..6 {
            let now_ms = START_MS + round * 700;
            for number in 0..400 {
                let time_ms = now_ms - random.u64(..spread);
                let mut event = random_event(&mut random, number, time_ms);
                let partition = random.u32(..PARTITIONS);
                if number % 5 == 0 {
                    event.id = Some(format!("{round} {number}").into());
                    topic.log(random.u32(..PARTITIONS), now_ms, event.clone());
                }
                topic.log(partition, now_ms, event.clone());
                events.push(event);
            }
            read_all(&overlay, &topic);
            if round == 3 {
                overlay = open(&engine);
            }
            for key in (0..6).map(|key| format!("k{key}")) {
                let found = Some(overlay.find(key.as_bytes()).unwrap());
                assert_eq!(found, expected(&key, &events), "seed {seed}, round {round}, {key}");
            }
        }
        assert_eq!(overlay.applied().late, 0);
    }
}

#[test]
fn updates_are_kept_until_no_earlier_event_may_come() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let overlay = open(&engine);
    let topic = Arc::new(Topic::default());
    let [table, _, kept] = overlay.options().tables();
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    let append = |key: &str, element: u32, time_ms: u64, partition: u32| {
        let change = update(&json!({"append": {"l": [element]}}));
        topic.log(partition, time_ms, event(key, change, time_ms));
    };
    for number in 0..1000 {
        append("k0", number, START_MS + u64::from(number), number % PARTITIONS);
        append("k2", number, START_MS, number % PARTITIONS);
    }
    wait_until_read(&feed);
    until("all to be applied", || overlay.applied().applied == 2000);
    assert_eq!(
        records(&engine, &kept),
        2000,
        "each, and no value but that of the version below"
    );
    let find = |key: &str| overlay.find(key.as_bytes()).unwrap();
    let before = [find("k0"), find("k2")];
    // One partition is enough: the others were read to their ends.
    append("k3", 0, START_MS + 400 + GRACE_MS + BACK_MS, 0);
    let expected = 599 + 1 + 1;
    until("updates to be forgotten", || records(&engine, &kept) == expected);
    assert_eq!([find("k0"), find("k2")], before);
    assert_eq!(records(&engine, &table), 3);
    // A later one counts, an earlier one than those that were forgotten does not.
    append("k0", 5000, START_MS + 500, 1);
    topic.log(
        1,
        START_MS + 900,
        event("k0", update(&json!({"append": {"l": ["late"]}})), START_MS + 400),
    );
    until("both to be read", || overlay.applied().late == 1);
    let Found::Value(value) = find("k0") else {
        panic!("k0 has a value")
    };
    let object: Value = serde_json::from_slice(&value).unwrap();
    let list = object["l"].as_array().unwrap();
    let mut numbers: Vec<u64> = list[1..].iter().filter_map(Value::as_u64).collect();
    // Its time is that of another one.
    let at = numbers.iter().position(|&number| number == 5000).unwrap();
    assert!(at == 500 || at == 501, "{at}");
    numbers.remove(at);
    assert_eq!(numbers, Vec::from_iter(0..1000));
    assert_eq!(list[0], "below");
    // A value that comes later replaces all of them.
    topic.log(
        1,
        START_MS + 1500,
        event("k0", Change::Put("new".into()), START_MS + 1500),
    );
    until("it to be read", || find("k0") == Found::Value("new".into()));
    assert_eq!(records(&engine, &kept), 1);
}

/// Reads the values as of a settled time, page by page.
fn settled(feed: &Feed, until_ms: u64) -> BTreeMap<Bytes, Option<Bytes>> {
    let mut changes = BTreeMap::new();
    for partition in partitions(0..8).iter() {
        let mut next = Some(0);
        while let Some(from) = next {
            let page = feed.settled(partition, from, until_ms, 1).unwrap().unwrap();
            assert!(page.changes.len() <= 1, "pages are short");
            let values = page.changes.into_iter();
            changes.extend(values.map(|(key, value)| (key, value.map(|(value, _)| value))));
            next = page.next;
        }
    }
    changes
}

#[test]
fn a_version_with_earlier_events_answers_the_same() {
    let mut with_changes = 0;
    for seed in 0..8 {
        let mut random = random(&format!("compaction {seed}"));
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let overlay = open(&engine);
        let topic = Arc::new(Topic::default());
        let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
        ingest.set_feeds(vec![Arc::clone(&feed)]);
        let mut events = Vec::new();
        for round in 0..20 {
            let now_ms = START_MS + round * 1500;
            for number in 0..random.u32(..5) {
                let time_ms = now_ms - random.u64(..GRACE_MS);
                let event = random_event(&mut random, number, time_ms);
                topic.log(random.u32(..PARTITIONS), now_ms, event.clone());
                events.push(event);
            }
            (0..PARTITIONS).for_each(|partition| topic.log(partition, now_ms, event("tick", Change::Delete, now_ms)));
        }
        wait_until_read(&feed);
        let until_ms = START_MS + 19 * 1500 - GRACE_MS - BACK_MS;
        until("all partitions to be known", || {
            feed.status().settled_ms == until_ms && *overlay.ready() == partitions(0..8)
        });
        let changes = settled(&feed, until_ms);
        with_changes += changes.len();
        assert!(matches!(
            feed.settled(PartitionId::new(0), 0, until_ms + 1, 1),
            Err(StreamError::NotSettled { .. })
        ));
        let base = move |key: &[u8]| changes.get(key).cloned().unwrap_or_else(|| below(key));
        let (engine, of_version): (Arc<dyn Engine>, _) = (Arc::new(MemoryEngine::new()), base.clone());
        let next = open_on(
            &engine,
            Some(until_ms),
            Arc::new(move |key| Ok(of_version(key).map(|value| (value, None)))),
        );
        read_all(&next, &topic);
        assert!(next.applied().cut > 0, "seed {seed}");
        for key in (0..6).map(|key| format!("k{key}")) {
            let found = match next.find(key.as_bytes()).unwrap() {
                Found::Nothing => base(key.as_bytes()).map_or(Found::Deleted, Found::Value),
                found => found,
            };
            let untouched = || below(key.as_bytes()).map_or(Found::Deleted, Found::Value);
            let expected = expected(&key, &events).unwrap_or_else(untouched);
            assert_eq!(found, expected, "seed {seed}, {key}");
        }
    }
    assert!(with_changes > 16, "{with_changes}");
}

#[test]
fn a_failed_write_repeats_no_increment() {
    let writes = Arc::new(AtomicU64::new(8));
    let counted = Arc::clone(&writes);
    // Some fail, before or after they take effect.
    let engine: Arc<dyn Engine> = Arc::new(FaultyDisk::writing(move |engine, batch| {
        match counted.fetch_add(1, Relaxed) % 7 {
            4 => {}
            6 => engine.write(batch)?,
            _ => return engine.write(batch),
        }
        Err(EngineError::DiskFull { dir: "full".into() })
    }));
    let overlay = open(&engine);
    let topic = Arc::new(Topic::default());
    for number in 0..1000 {
        let key = format!("k{}", 2 + number % 3);
        let change = update(&json!({"increment": 1}));
        topic.log(number % PARTITIONS, START_MS, event(&key, change, START_MS));
    }
    read_all(&overlay, &topic);
    assert!(writes.load(Relaxed) > 20, "some have failed");
    let sums = ["k2", "k3", "k4"].map(|key| match overlay.find(key.as_bytes()).unwrap() {
        Found::Value(sum) => str::from_utf8(&sum).unwrap().parse::<u32>().unwrap(),
        other => panic!("{other:?}"),
    });
    assert_eq!(sums, [334, 333, 333]);
}

#[test]
fn sums_near_their_limit_depend_on_times_alone() {
    let found = [[0, 1], [1, 0]].map(|order| {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let base = Bytes::from((i64::MAX - 7).to_string());
        let overlay = open_on(&engine, None, Arc::new(move |_| Ok(Some((base.clone(), None)))));
        let topic = Arc::new(Topic::default());
        // The first one does not fit, whichever is read first.
        let updates = [10, -10].map(|by| update(&json!({"increment": by})));
        for number in order {
            let time_ms = START_MS + number as u64;
            topic.log(0, START_MS, event("k", updates[number].clone(), time_ms));
            read_all(&overlay, &topic);
        }
        overlay.find(b"k").unwrap()
    });
    let expected = Found::Value((i64::MAX - 17).to_string().into());
    assert_eq!(found, [expected.clone(), expected]);
}

#[test]
fn a_time_far_ahead_settles_nothing() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let overlay = open(&engine);
    let topic = Arc::new(Topic::default());
    for number in 0..100 {
        // Each read ends with one that is ahead.
        let ahead_ms = if number % 60 == 59 || number == 99 { 1 << 42 } else { 0 };
        (0..PARTITIONS).for_each(|partition| {
            topic.log(
                partition,
                START_MS + 50_000 + ahead_ms,
                event("k2", Change::Delete, START_MS + 50_000),
            );
        });
    }
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_until_read(&feed);
    assert_eq!(feed.status().settled_ms, START_MS + 50_000 - GRACE_MS - BACK_MS);
}

#[test]
fn a_partition_that_cannot_be_read_keeps_updates() {
    /// A topic whose partition 1 fails as long as it is told to.
    #[derive(Default)]
    struct Half(Topic, AtomicU64);
    impl Source for Half {
        fn partitions(&self) -> Result<u32, StreamError> {
            self.0.partitions()
        }
        fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
            self.0.offset_at(partition, time_ms)
        }
        fn first(&self, partition: u32) -> Result<u64, StreamError> {
            self.0.first(partition)
        }
        fn read(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
            if partition == 1 && self.1.load(Relaxed) > 0 {
                let (topic, reason) = ("t".to_owned(), "its broker is away".to_owned());
                return Err(StreamError::Unavailable { topic, reason });
            }
            self.0.read(reader, partition, offset, bytes_max)
        }
    }
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let overlay = open(&engine);
    let topic = Arc::new(Half::default());
    let feed = Arc::new(Feed::new(
        Arc::clone(&overlay),
        Arc::clone(&topic) as _,
        FeedOptions::default(),
    ));
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    let add = |partition: u32, by: u64, time_ms: u64| {
        let change = update(&json!({"increment": by}));
        topic.0.log(partition, time_ms, event("k2", change, time_ms));
    };
    (0..PARTITIONS).for_each(|partition| add(partition, 1, START_MS));
    let is_sum = |sum: &str| {
        until(&format!("the sum to be {sum}"), || {
            let found = overlay.find(b"k2").unwrap();
            found == Found::Value(sum.to_owned().into())
        });
    };
    is_sum("4");
    topic.1.store(1, Relaxed);
    add(1, 100, START_MS + 1);
    add(0, 10, START_MS + 10 * BACK_MS);
    is_sum("14");
    // There is time for two looks.
    std::thread::sleep(Duration::from_millis(1200));
    topic.1.store(0, Relaxed);
    is_sum("114");
    assert_eq!(overlay.applied().late, 0);
}
