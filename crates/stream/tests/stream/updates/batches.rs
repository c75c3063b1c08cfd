//! How much is written at once, whatever the events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use fondaco_engine::Engine;
use fondaco_simulation::FaultyDisk;
use fondaco_stream::{Change, Found, Ingest};
use fondaco_testing::until;
use serde_json::json;

use super::{BACK_MS, GRACE_MS, PARTITIONS, START_MS, Topic, event, open, open_on, read_all, records, update};
use crate::overlay::{feed, wait_until_read};

/// An engine that notes how many changes its longest batch has, and how many bytes another one.
fn measured() -> (Arc<dyn Engine>, Arc<[AtomicUsize; 2]>) {
    let longest = Arc::<[AtomicUsize; 2]>::default();
    let noted = Arc::clone(&longest);
    let engine = FaultyDisk::writing(move |engine, batch| {
        noted[0].fetch_max(batch.len(), Relaxed);
        noted[1].fetch_max(batch.bytes(), Relaxed);
        engine.write(batch)
    });
    (Arc::new(engine), longest)
}

#[test]
fn a_value_replaces_thousands_of_updates_little_by_little() {
    const UPDATES: u64 = 6_000;
    let (engine, longest) = measured();
    let overlay = open(&engine);
    let topic = Arc::new(Topic::default());
    let [table, _, kept] = overlay.options().tables();
    let append = |element: u64, time_ms: u64| {
        let change = update(&json!({"append": {"l": [element]}}));
        topic.log(element as u32 % PARTITIONS, time_ms, event("k", change, time_ms));
    };
    (0..UPDATES).for_each(|number| append(number, START_MS + number / 100));
    read_all(&overlay, &topic);
    assert_eq!(records(&engine, &kept) as u64, UPDATES);
    let put_ms = START_MS + 200;
    topic.log(0, put_ms, event("k", Change::Put(r#"{"l":[]}"#.into()), put_ms));
    read_all(&overlay, &topic);
    let left = records(&engine, &kept) as u64;
    assert!((1..UPDATES).contains(&left), "{left}");
    // Those that are left have no effect: not on later updates, not on those that come in another order.
    let list = |numbers: &str| Found::Value(format!(r#"{{"l":[{numbers}]}}"#).into());
    for (element, time_ms, numbers) in [(7, 300, "7"), (8, 250, "8,7"), (9, 150, "8,7"), (6, 200, "6,8,7")] {
        append(element, START_MS + time_ms);
        read_all(&overlay, &topic);
        assert_eq!(overlay.find(b"k").unwrap(), list(numbers));
    }
    let (feed, ingest) = (feed(&overlay, &topic), Ingest::start(2).unwrap());
    ingest.set_feeds(vec![Arc::clone(&feed)]);
    wait_until_read(&feed);
    let changes = |until_ms: u64| super::settled(&feed, until_ms).remove(&Bytes::from_static(b"k"));
    let later_ms = START_MS + 500 + GRACE_MS + BACK_MS;
    topic.log(0, later_ms, event("other", Change::Delete, later_ms));
    until("the events to be settled", || {
        feed.status().settled_ms >= START_MS + 500
    });
    assert_eq!(changes(START_MS + 500), Some(Some(r#"{"l":[6,8,7]}"#.into())));
    until("all updates to be deleted", || records(&engine, &kept) == 0);
    assert_eq!(
        (overlay.find(b"k").unwrap(), records(&engine, &table)),
        (list("6,8,7"), 2)
    );
    let changes = longest[0].load(Relaxed);
    assert!(changes < 5_000, "a batch of {changes} changes");
}

#[test]
fn updates_of_long_values_are_written_a_few_at_a_time() {
    const KEYS: u32 = 40;
    let (engine, longest) = measured();
    let value = Bytes::from(format!(r#"{{"text":"{}"}}"#, "x".repeat(900_000)));
    let base = value.clone();
    let overlay = open_on(&engine, None, Arc::new(move |_| Ok(Some((base.clone(), None)))));
    let topic = Arc::new(Topic::default());
    for key in 0..KEYS {
        let change = update(&json!({"increment": {"n": 1}}));
        topic.log(0, START_MS, event(&format!("k{key}"), change, START_MS));
    }
    read_all(&overlay, &topic);
    for key in 0..KEYS {
        let Found::Value(made) = overlay.find(format!("k{key}").as_bytes()).unwrap() else {
            panic!("k{key} has a value");
        };
        assert!(made.starts_with(br#"{"n":1,"text""#) && made.len() > value.len());
    }
    let bytes = longest[1].load(Relaxed);
    assert!((900_000..8_000_000).contains(&bytes), "a batch of {bytes} bytes");
    // One look does not copy all of them.
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let found = overlay.find_hot(&keys, usize::MAX);
    let known = found.iter().filter(|found| **found != Found::Unknown).count();
    assert_eq!(known, 1);
}
