//! Overlays that are fed from logs: what they say of keys, across restarts and changes of partitions.

mod engines;
mod partitioned;
mod quota;
mod trimmed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, LogEngine, LogOptions};
use fondaco_model::slot_of_key;
use fondaco_stream::{Change, Event, EventLog, Feed, FeedOptions, Found, Ingest, Overlay, OverlayOptions, Source};
use fondaco_testing::{eventually, random, until};

use crate::overlay::{count, feed, memory, options, overlay_in, partitions, value, wait_until_read};

const START_MS: u64 = 1_000_000;

fn event(key: &str, value: Option<&str>, time_ms: Option<u64>) -> Event {
    Event {
        key: key.to_owned().into(),
        change: Change::of(value.map(|value| value.to_owned().into())),
        time_ms,
        id: None,
    }
}

/// Feeds overlays until they have all of their topics.
fn feed_all(feeds: &[Arc<Feed>]) {
    let ingest = Ingest::start(2).unwrap();
    ingest.set_feeds(feeds.to_vec());
    feeds.iter().for_each(|feed| wait_until_read(feed));
    ingest.close();
}

fn value_of(overlay: &Overlay, key: &str) -> Found {
    let found = overlay.find(key.as_bytes()).unwrap();
    let hot = &overlay.find_hot(&[b"other", key.as_bytes()], usize::MAX)[1];
    assert!(*hot == found || *hot == Found::Unknown, "{key}: {hot:?}, {found:?}");
    found
}

#[test]
fn the_latest_event_of_a_key_counts_in_any_order() {
    let mut random = random("order of events");
    let mut events: Vec<Event> = (0..3000)
        .map(|_| {
            let text = format!("v{}", random.u32(..5));
            let value = (random.u32(..4) > 0).then_some(text.as_str());
            event(
                &format!("k{}", random.u32(..300)),
                value,
                Some(START_MS + random.u64(..20)),
            )
        })
        .collect();
    let mut expected = BTreeMap::new();
    for event in &events {
        let (found, value) = match &event.change {
            Change::Put(value) => (Found::Value(value.clone()), Some(value.clone())),
            _ => (Found::Deleted, None),
        };
        let rank = (event.time_ms, value.is_none(), value);
        let known = expected
            .entry(event.key.clone())
            .or_insert((rank.clone(), found.clone()));
        if rank > known.0 {
            *known = (rank, found);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let log = LogOptions {
        // Most values are only on the disk.
        cache: CacheBudget::new(512),
        ..LogOptions::default()
    };
    let log: Arc<dyn Engine> = Arc::new(LogEngine::open(dir.path(), log).unwrap());
    for (topic_partitions, engine) in [(1, memory()), (3, log), (8, memory())] {
        random.shuffle(&mut events);
        let topic = EventLog::new(memory()).topic("t", topic_partitions).unwrap();
        let overlay = overlay_in(&engine, options(1), &partitions(0..8));
        for some in events.chunks(700) {
            topic.append(some, START_MS + 20).unwrap();
            // Some are read twice.
            topic.append(&some[..100], START_MS + 21).unwrap();
        }
        feed_all(&[feed(&overlay, &topic)]);
        for (key, (_, found)) in &expected {
            assert_eq!(value_of(&overlay, str::from_utf8(key).unwrap()), *found);
        }
        assert_eq!(value_of(&overlay, "another"), Found::Nothing);
        assert_eq!(overlay.size().0, expected.len() as u64);
    }
}

#[test]
fn a_restart_continues_at_the_offset_that_was_reached() {
    let dir = tempfile::tempdir().unwrap();
    let topic = EventLog::new(memory()).topic("t", 3).unwrap();
    let mut applied = 0;
    for round in 0..3 {
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(dir.path(), DiskOptions::default()).unwrap());
        let overlay = overlay_in(&engine, options(1), &partitions(0..8));
        let text = format!("r{round}");
        let events: Vec<Event> = (0..500)
            .map(|key| event(&format!("k{key}"), Some(&text), None))
            .collect();
        topic.append(&events, START_MS + round).unwrap();
        feed_all(&[feed(&overlay, &topic)]);
        assert_eq!(value_of(&overlay, "k77"), value(&text));
        let counts = overlay.applied();
        assert_eq!((counts.applied, counts.superseded), (500, 0), "none is read again");
        applied += counts.applied;
    }
    assert_eq!(applied, 1500);
}

#[test]
fn a_partition_that_is_gained_later_catches_up() {
    let engine = memory();
    let topic = EventLog::new(memory()).topic("t", 3).unwrap();
    let all = overlay_in(&engine, options(1), &partitions(0..8));
    let part = overlay_in(&engine, options(2), &partitions(0..4));
    let append = |text: &str, from: u32| {
        let events: Vec<Event> = (from..from + 400)
            .map(|key| event(&format!("k{key}"), Some(text), None))
            .collect();
        topic.append(&events, START_MS).unwrap();
    };
    let partition_of = |key: u32| {
        let key = format!("k{key}");
        count()
            .partition_of(slot_of_key(&"s".parse().unwrap(), key.as_bytes()))
            .get()
    };
    append("first", 0);
    feed_all(&[feed(&all, &topic), feed(&part, &topic)]);
    assert!((0..400).any(|key| partition_of(key) >= 4));
    for key in 0..400 {
        let expected = if partition_of(key) < 4 {
            value("first")
        } else {
            Found::Behind
        };
        assert_eq!(value_of(&part, &format!("k{key}")), expected);
    }
    // Two are lost, and others gained, while there are new events.
    append("second", 200);
    part.set_held(&partitions(2..7)).unwrap();
    feed_all(&[feed(&all, &topic), feed(&part, &topic)]);
    append("third", 300);
    feed_all(&[feed(&all, &topic), feed(&part, &topic)]);
    for key in 0..700 {
        let expected = match partition_of(key) {
            2..7 => value_of(&all, &format!("k{key}")),
            _ => Found::Behind,
        };
        assert_eq!(value_of(&part, &format!("k{key}")), expected);
    }
    // The records of a lost partition are not found again when it is gained back.
    part.set_held(&partitions(0..8)).unwrap();
    feed_all(&[feed(&part, &topic)]);
    assert!((0..700).all(|key| value_of(&part, &format!("k{key}")) == value_of(&all, &format!("k{key}"))));
    assert_eq!(part.size().0, 700);
}

#[test]
fn events_that_do_not_count_are_counted() {
    let engine = memory();
    let topic = EventLog::new(memory()).topic("t", 1).unwrap();
    let held = OverlayOptions {
        as_of_ms: Some(START_MS - 10),
        ..options(1)
    };
    let overlay = overlay_in(&engine, held, &partitions(0..8));
    let events = [
        event("cut", Some("x"), Some(START_MS - 10)),
        event("new", Some("x"), Some(START_MS - 9)),
        event("ahead", Some("x"), Some(START_MS + 25 * 60 * 60 * 1000)),
        event("", Some("x"), None),
        event(&"k".repeat(70_000), Some("x"), None),
    ];
    topic.append(&events, START_MS).unwrap();
    topic
        .append(&[event("late", Some("x"), Some(START_MS))], START_MS + 60_001)
        .unwrap();
    feed_all(&[feed(&overlay, &topic)]);
    let counts = overlay.applied();
    assert_eq!((counts.applied, counts.cut, counts.late, counts.poison), (1, 1, 1, 3));
    assert_eq!(value_of(&overlay, "new"), value("x"));
    for key in ["cut", "ahead", "late"] {
        assert_eq!(value_of(&overlay, key), Found::Nothing);
    }
    let poisoned = overlay.poisoned().unwrap();
    let offsets: Vec<u64> = poisoned.iter().map(|(_, offset, _)| *offset).collect();
    assert_eq!(offsets, [2, 3, 4]);
    assert!(
        poisoned[0].2.contains("clock") && poisoned[1].2.contains("0 bytes"),
        "{poisoned:?}"
    );
}

#[test]
fn a_log_that_lost_its_end_is_read_again() {
    let engine = memory();
    let overlay = overlay_in(&engine, options(1), &partitions(0..8));
    let before = EventLog::new(memory()).topic("t", 1).unwrap();
    let mut events: Vec<Event> = (0..10).map(|key| event(&format!("k{key}"), Some("x"), None)).collect();
    events[1].change = Change::Update(r#"{"increment": 5}"#.into());
    before.append(&events, START_MS).unwrap();
    feed_all(&[feed(&overlay, &before)]);
    // As after a loss of power: the offsets of the lost events are given to others.
    let after = EventLog::new(memory()).topic("t", 1).unwrap();
    after.append(&events[..3], START_MS).unwrap();
    after.append(&[event("new", Some("y"), None)], START_MS + 1).unwrap();
    feed_all(&[feed(&overlay, &after)]);
    assert_eq!(value_of(&overlay, "new"), value("y"));
    assert_eq!(value_of(&overlay, "k9"), value("x"), "it was read before");
    assert_eq!(value_of(&overlay, "k1"), value("5"), "it is the same update");
    let lost: Vec<_> = overlay.lost().iter().map(|lost| (lost.from, lost.to)).collect();
    assert_eq!(lost, [(4, 10)]);
}

#[test]
fn a_deleted_overlay_starts_from_the_beginning() {
    let engine = memory();
    let topic = EventLog::new(memory()).topic("t", 1).unwrap();
    topic.append(&[event("k", Some("x"), None)], START_MS).unwrap();
    for _ in 0..2 {
        let overlay = overlay_in(&engine, options(1), &partitions(0..8));
        assert_eq!(overlay.applied().applied, 0);
        feed_all(&[feed(&overlay, &topic)]);
        assert_eq!(overlay.applied().applied, 1);
        drop(overlay);
        options(1)
            .tables()
            .iter()
            .for_each(|table| engine.drop_table(table).unwrap());
        assert!(engine.tables().unwrap().is_empty());
    }
}

#[test]
fn a_failing_source_delays_no_other_store() {
    /// A topic that is never there.
    struct Broken;
    impl Source for Broken {
        fn partitions(&self) -> Result<u32, fondaco_stream::StreamError> {
            Ok(4)
        }
        fn offset_at(&self, _: u32, _: u64) -> Result<u64, fondaco_stream::StreamError> {
            self.read(0, 0, 0, 0).map(|_| 0)
        }
        fn first(&self, _: u32) -> Result<u64, fondaco_stream::StreamError> {
            Ok(0)
        }
        fn read(&self, _: u64, _: u32, _: u64, _: usize) -> Result<fondaco_stream::Batch, fondaco_stream::StreamError> {
            Err(fondaco_stream::StreamError::Unavailable {
                topic: "t".to_owned(),
                reason: "it is gone".to_owned(),
            })
        }
    }
    let engine = memory();
    let topic = EventLog::new(memory()).topic("t", 2).unwrap();
    let overlays: Vec<_> = (1..=4)
        .map(|version| overlay_in(&engine, options(version), &partitions(0..8)))
        .collect();
    let broken =
        |overlay: &Arc<Overlay>| Arc::new(Feed::new(Arc::clone(overlay), Arc::new(Broken), FeedOptions::default()));
    let good = feed(&overlays[3], &topic);
    let ingest = Ingest::start(1).unwrap();
    let failing: Vec<_> = overlays[..3].iter().map(broken).collect();
    ingest.set_feeds(failing.iter().cloned().chain([Arc::clone(&good)]).collect());
    let found = |key: &[u8]| overlays[3].find(key).unwrap();
    for number in 0..20 {
        let text = format!("v{number}");
        topic
            .append(&[event("k", Some(&text), None)], START_MS + number)
            .unwrap();
        until("the event", || found(b"k") == value(&text));
    }
    assert!(!overlays[3].ready().is_empty() && overlays[0].ready().is_empty());
    let error = failing[0].status().error;
    assert!(
        error.as_ref().is_some_and(|error| error.contains("it is gone")),
        "{error:?}"
    );
    // A paused one stands still.
    good.set(0, true);
    let append = |text: &str, ms: u64| topic.append(&[event("k", Some(text), None)], START_MS + ms).unwrap();
    // A step that had begun before may still read this one.
    append("late", 100);
    std::thread::sleep(Duration::from_secs(2));
    append("paused", 101);
    std::thread::sleep(Duration::from_millis(200));
    let seen = found(b"k");
    assert!(seen == value("v19") || seen == value("late"), "{seen:?}");
    good.set(0, false);
    until("the paused feed to resume", || found(b"k") == value("paused"));
}

#[test]
fn an_error_holds_until_something_is_read() {
    /// A topic with a record that cannot be read: it fails now and then, and gives nothing in between, as Kafka does.
    struct Unreadable {
        asked: AtomicU64,
        is_well: AtomicBool,
    }
    impl Source for Unreadable {
        fn partitions(&self) -> Result<u32, fondaco_stream::StreamError> {
            Ok(1)
        }
        fn offset_at(&self, _: u32, _: u64) -> Result<u64, fondaco_stream::StreamError> {
            Ok(0)
        }
        fn first(&self, _: u32) -> Result<u64, fondaco_stream::StreamError> {
            Ok(0)
        }
        fn read(
            &self,
            _: u64,
            _: u32,
            offset: u64,
            _: usize,
        ) -> Result<fondaco_stream::Batch, fondaco_stream::StreamError> {
            let (is_well, asked) = (self.is_well.load(Relaxed), self.asked.fetch_add(1, Relaxed));
            let batch = fondaco_stream::Batch {
                records: Vec::new(),
                next: if is_well { 1 } else { offset },
                end: 1,
            };
            match is_well || asked % 3 > 0 {
                true => Ok(batch),
                false => Err(fondaco_stream::StreamError::Unavailable {
                    topic: "t".to_owned(),
                    reason: "it is damaged".to_owned(),
                }),
            }
        }
    }
    let overlay = overlay_in(&memory(), options(1), &partitions(0..8));
    let source = Arc::new(Unreadable {
        asked: AtomicU64::new(0),
        is_well: AtomicBool::new(false),
    });
    let feed = Feed::new(Arc::clone(&overlay), Arc::clone(&source) as _, FeedOptions::default());
    let feed = Arc::new(feed);
    let ingest = Ingest::start(1).unwrap();
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    eventually("the first error", || feed.status().error);
    assert_eq!(feed.lasting_error(), None);
    let asked = || source.asked.load(Relaxed);
    let lasting = eventually("it to last", || {
        assert!(feed.status().error.is_some(), "after {} reads", asked());
        feed.lasting_error()
    });
    assert!(
        lasting.contains("it is damaged") && asked() > 5,
        "{lasting} after {} reads",
        asked()
    );
    source.is_well.store(true, Relaxed);
    until("it to be over", || feed.status().error.is_none());
    assert_eq!(feed.lasting_error(), None);
}

#[test]
fn a_log_is_read_from_any_offset_and_time() {
    let engine = memory();
    let log = EventLog::new(Arc::clone(&engine));
    let topic = log.topic("t", 1).unwrap();
    for number in 0..100 {
        topic
            .append(&[event("k", Some(&number.to_string()), None)], START_MS + number * 10)
            .unwrap();
    }
    // Another process.
    let topic = EventLog::new(engine).topic("t", 1).unwrap();
    assert_eq!(topic.read(9, 0, 100, 1).unwrap().end, 100);
    for (time_ms, offset) in [
        (0, 0),
        (START_MS, 0),
        (START_MS + 1, 1),
        (START_MS + 990, 99),
        (START_MS + 991, 100),
    ] {
        assert_eq!(topic.offset_at(0, time_ms).unwrap(), offset);
    }
    let batch = topic.read(9, 0, 40, 1).unwrap();
    assert_eq!((batch.records.len(), batch.next), (1, 41));
    assert_eq!(batch.records[0].logged_ms, START_MS + 400);
    assert_eq!(topic.read(9, 0, 40, 1 << 20).unwrap().next, 100);
    assert!(topic.read(9, 1, 0, 1).unwrap_err().to_string().contains("1 partitions"));
}
