//! Events that expire: the value of a key after any order of events, the records that are deleted, and those that a compaction gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::Engine;
use fondaco_format::Lifetimes;
use fondaco_stream::{Below, Change, ClockReading, Event, Found, Ingest, Overlay, OverlayOptions};
use fondaco_testing::{random, until};
use serde_json::json;

use super::{BACK_MS, GRACE_MS, PARTITIONS, Topic, after, event, random_event, read_all, records, update};
use crate::overlay::{feed, memory, options, overlay_on, partitions, wait_until_read};

const HOUR_MS: u64 = 3_600_000;
const TTL_MS: u64 = HOUR_MS;

fn now_ms() -> u64 {
    ClockReading::now().unix_ms
}

fn lasting(grace_ms: u64, undated_unix_ms: u64) -> OverlayOptions {
    OverlayOptions {
        grace_ms,
        lifetimes: Some(Lifetimes {
            ttl_ms: TTL_MS,
            undated_unix_ms,
        }),
        ..options(1)
    }
}

fn open(engine: &Arc<dyn Engine>, options: OverlayOptions, below: Below) -> Arc<Overlay> {
    overlay_on(engine, options, &partitions(0..8), below)
}

/// The version's value of a key, whose record has a time of its own, or not.
fn below(own_ms: u64) -> Below {
    Arc::new(move |key| Ok(super::below(key).map(|value| (value, (key == b"k1").then_some(own_ms)))))
}

/// The expected answer for a key: each value ends at a time, and an update after it begins without one.
fn expected(key: &str, events: &[Event], (undated_ms, own_ms): (u64, u64), now_ms: u64) -> Option<Found> {
    let mut own: Vec<&Event> = events.iter().filter(|event| event.key == key.as_bytes()).collect();
    own.sort_by_key(|event| match &event.change {
        Change::Put(value) => (event.time_ms, 0, value.clone()),
        Change::Delete => (event.time_ms, 1, Bytes::new()),
        Change::Update(text) => (
            event.time_ms,
            2,
            xxhash_rust::xxh3::xxh3_128(text).to_be_bytes().to_vec().into(),
        ),
    });
    let mut value = super::below(key.as_bytes());
    let mut ends_ms = if key == "k1" { own_ms } else { undated_ms } + TTL_MS;
    for event in &own {
        let time_ms = event.time_ms.unwrap();
        value = match &event.change {
            Change::Put(value) => Some(value.clone()),
            Change::Delete => None,
            Change::Update(text) => after(value.filter(|_| time_ms < ends_ms), text),
        };
        ends_ms = time_ms + TTL_MS;
    }
    let value = value.filter(|_| now_ms < ends_ms);
    (!own.is_empty()).then(|| value.map_or(Found::Deleted, Found::Value))
}

#[test]
fn a_key_has_what_its_events_in_order_leave_until_it_expires_whatever_the_order_of_reading() {
    let mut random = random("events that expire");
    // No event is a minute from its end, so that the test does not depend on its own duration.
    let now_ms = now_ms();
    let begin_ms = now_ms - 6 * HOUR_MS;
    let times = (begin_ms + HOUR_MS / 2, begin_ms + 2 * HOUR_MS);
    let mut events: Vec<Event> = (0..800)
        .map(|number| {
            let time_ms = begin_ms + random.u64(0..350) * 60_000 + 30_000;
            random_event(&mut random, number, time_ms)
        })
        .collect();
    // Some keys have few events, so that there are gaps.
    events.retain(|event| match event.key.as_ref() {
        b"k0" | b"k1" => random.u32(..12) == 0,
        b"k2" | b"k3" => random.u32(..6) == 0,
        _ => true,
    });
    // Counters, whose increments are read in any order.
    for key in ["c0", "c1", "c2"] {
        for number in 0..20 {
            let time_ms = begin_ms + random.u64(0..350) * 60_000 + 30_000;
            let change = update(&json!({"increment": {"n": 1 << number}}));
            events.push(event(key, change, time_ms));
        }
    }
    let keys = ["k0", "k1", "k2", "k3", "k4", "k5", "c0", "c1", "c2"];
    for _ in 0..12 {
        random.shuffle(&mut events);
        let engine = memory();
        let topic = Arc::new(Topic::default());
        let options = lasting(10 * HOUR_MS, times.0);
        for some in events.chunks(90) {
            // The process starts anew each time.
            let overlay = open(&engine, options.clone(), below(times.1));
            for event in some {
                topic.log(random.u32(..PARTITIONS), now_ms, event.clone());
            }
            read_all(&overlay, &topic);
        }
        let overlay = open(&engine, options, below(times.1));
        read_all(&overlay, &topic);
        let listed: BTreeMap<_, _> = overlay.keys(start(), None, 100).unwrap().0.into_iter().collect();
        for key in keys {
            let found = overlay.find(key.as_bytes()).unwrap();
            let told = || {
                let mut own: Vec<_> = events.iter().filter(|event| event.key == key.as_bytes()).collect();
                own.sort_by_key(|event| event.time_ms);
                format!("{key}: {own:?}")
            };
            let expected = expected(key, &events, times, now_ms).unwrap_or(Found::Nothing);
            assert_eq!(found, expected, "{}", told());
            if expected != Found::Nothing {
                assert_eq!(listed[key.as_bytes()], matches!(expected, Found::Value(_)), "{key}");
                let ends_ms = overlay.expiry(key.as_bytes()).unwrap();
                assert!(ends_ms.is_some_and(|ends_ms| now_ms < ends_ms) == matches!(found, Found::Value(_)));
            }
        }
    }
}

fn start() -> (fondaco_model::PartitionId, u64) {
    (fondaco_model::PartitionId::new(0), 0)
}

#[test]
fn expired_events_are_deleted_once_none_is_expected_that_would_change_them_and_the_version_below_has_no_value_that_lives()
 {
    let (engine, topic) = (memory(), Arc::new(Topic::default()));
    let now_ms = now_ms();
    let event_ms = now_ms - 3 * HOUR_MS;
    let value = |text: &'static str| Change::Put(Bytes::from_static(text.as_bytes()));
    // k1 has a younger value in the version, which would be seen if the event did not hide it.
    let overlay = open(&engine, lasting(GRACE_MS, event_ms), below(now_ms - TTL_MS / 2));
    for key in ["k0", "k1", "a", "b"] {
        topic.log(0, event_ms, event(key, value("v"), event_ms));
    }
    topic.log(1, event_ms, event("deleted", Change::Delete, event_ms));
    let count = update(&json!({"increment": {"n": 1}}));
    topic.log(2, event_ms, event("counted", count.clone(), event_ms));
    read_all(&overlay, &topic);
    let [table, _, kept] = overlay.options().tables();
    assert_eq!((records(&engine, &table), overlay.size().0), (6, 6));
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    for partition in 0..PARTITIONS {
        topic.log(partition, now_ms, event("late", value("v"), now_ms));
    }
    until("expired events to be deleted", || records(&engine, &table) == 2);
    assert_eq!((overlay.size().0, records(&engine, &kept)), (2, 0));
    assert!(feed.status().settled_ms >= now_ms - GRACE_MS - BACK_MS - 1);
    assert_eq!(overlay.find(b"k1").unwrap(), Found::Deleted);
    for key in ["k0", "a", "deleted", "counted"] {
        assert_eq!(overlay.find(key.as_bytes()).unwrap(), Found::Nothing, "{key}");
    }
    // An update of a value that is gone begins without one, as if it were not gone yet.
    topic.log(0, now_ms, event("counted", count.clone(), now_ms));
    topic.log(0, now_ms, event("k0", count, now_ms));
    wait_until_read(&feed);
    let one = Found::Value(Bytes::from_static(br#"{"n":1}"#));
    until("the updates to be applied", || {
        overlay.find(b"k0").unwrap() != Found::Nothing
    });
    assert_eq!(overlay.find(b"counted").unwrap(), one);
    assert_eq!(overlay.find(b"k0").unwrap(), one);
    assert_eq!(overlay.size().0, 4);
    ingest.close();
    // The same after a restart.
    drop((feed, overlay));
    let overlay = open(&engine, lasting(GRACE_MS, event_ms), below(now_ms - TTL_MS / 2));
    assert_eq!(overlay.find(b"counted").unwrap(), one);
    assert_eq!(overlay.size().0, 4);
}

#[test]
fn a_compaction_gets_the_time_of_each_value_and_expired_ones_as_deletions() {
    let (engine, topic) = (memory(), Arc::new(Topic::default()));
    let now_ms = now_ms();
    let old_ms = now_ms - 3 * HOUR_MS;
    let (event_ms, later_ms) = (now_ms - TTL_MS / 2, now_ms - TTL_MS / 2 + 7);
    let overlay = open(&engine, lasting(GRACE_MS, old_ms), below(old_ms));
    let value = |text: &'static str| Change::Put(Bytes::from_static(text.as_bytes()));
    let count = update(&json!({"increment": {"n": 1}}));
    topic.log(0, old_ms, event("old", value("v"), old_ms));
    topic.log(0, event_ms, event("new", value("v"), event_ms));
    topic.log(1, event_ms, event("k0", count.clone(), event_ms));
    topic.log(1, later_ms, event("k0", count, later_ms));
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_until_read(&feed);
    for partition in 0..PARTITIONS {
        topic.log(partition, now_ms, event("last", value("v"), now_ms));
    }
    let until_ms = later_ms + 1;
    until("the events to be settled", || feed.status().settled_ms >= until_ms);
    let mut changes = BTreeMap::new();
    for partition in partitions(0..8).iter() {
        let page = feed.settled(partition, 0, until_ms, usize::MAX).unwrap().unwrap();
        changes.extend(page.changes);
    }
    ingest.close();
    let settled = |key: &'static str| changes.get(key.as_bytes()).cloned();
    assert!(settled("old").is_none_or(|old| old.is_none()), "{changes:?}");
    assert_eq!(settled("new"), Some(Some((Bytes::from_static(b"v"), event_ms))));
    let counted = Bytes::from_static(br#"{"n":2}"#);
    assert_eq!(settled("k0"), Some(Some((counted, later_ms))));
    assert_eq!(settled("last"), None);
}
