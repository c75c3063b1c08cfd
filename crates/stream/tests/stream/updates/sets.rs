//! Updates of sets of ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Engine, MemoryEngine};
use fondaco_ids::{IdSet, encode};
use fondaco_model::ValueType;
use fondaco_schema::ValueRules;
use fondaco_stream::{Change, Found, Overlay};
use fondaco_testing::random;
use serde_json::json;

use super::{START_MS, Topic, event, open_on, read_all, update};

/// An overlay of a version in which "below" has some ids.
fn open(engine: &Arc<dyn Engine>, value_type: ValueType) -> Arc<Overlay> {
    let value = Bytes::from(encode(&[1, 2, 300]).unwrap());
    let base = move |key: &[u8]| Ok((key == b"below").then(|| (value.clone(), None)));
    let overlay = open_on(engine, None, Arc::new(base));
    overlay.rules().set(ValueRules::new(value_type, Arc::default()));
    overlay
}

fn ids(overlay: &Overlay, key: &str) -> BTreeSet<u64> {
    match overlay.find(key.as_bytes()).unwrap() {
        Found::Value(value) => IdSet::parse(&value).unwrap().iter().collect(),
        Found::Deleted => BTreeSet::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_are_added_and_removed_in_the_order_of_times() {
    for seed in 0..20 {
        let mut random = random(&format!("sets {seed}"));
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let (overlay, topic) = (open(&engine, ValueType::Ids), Arc::new(Topic::default()));
        let (mut below, mut new) = (BTreeSet::from([1, 2, 300]), BTreeSet::new());
        let some =
            |random: &mut fastrand::Rng| -> Vec<u64> { (0..random.u64(1..5)).map(|_| random.u64(..8)).collect() };
        let mut events = Vec::new();
        for time_ms in 1..40 {
            let (remove, add) = (some(&mut random), some(&mut random));
            for set in [&mut below, &mut new] {
                set.retain(|id| !remove.contains(id));
                set.extend(&add);
            }
            let mut change = update(&json!({"add": add, "remove": remove}));
            if time_ms == 20 && random.bool() {
                change = Change::Put(Bytes::from_static(b"5 3,4"));
                (below, new) = ([3, 4, 5].into(), [3, 4, 5].into());
            }
            events.push((time_ms, change));
        }
        random.shuffle(&mut events);
        for (time_ms, change) in events {
            for key in ["below", "new"] {
                topic.log(
                    random.u32(..4),
                    START_MS + 100,
                    event(key, change.clone(), START_MS + time_ms),
                );
            }
        }
        read_all(&overlay, &topic);
        assert_eq!(
            (ids(&overlay, "below"), ids(&overlay, "new")),
            (below.clone(), new),
            "seed {seed}"
        );
        assert_eq!(overlay.applied().unfit + overlay.applied().poison, 0);
        assert_eq!(ids(&open(&engine, ValueType::Ids), "below"), below, "after a restart");
    }
}

#[test]
fn a_set_that_loses_its_last_member_is_absent_and_what_is_no_set_is_refused() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let (overlay, topic) = (open(&engine, ValueType::Ids), Arc::new(Topic::default()));
    let log = |key, change, time_ms| topic.log(0, START_MS, event(key, change, START_MS + time_ms));
    log("below", update(&json!({"remove": [300, 2, 1]})), 1);
    log("absent", update(&json!({"remove": [1]})), 1);
    log("new", Change::Put(Bytes::from_static(b"\x01\xff\xff\xff\xff\xff")), 1);
    log("new", update(&json!({"add": [7]})), 2);
    log("new", update(&json!({"increment": 1})), 3);
    log("new", update(&json!({"set": {"a": 1}})), 4);
    read_all(&overlay, &topic);
    assert_eq!(overlay.find(b"below").unwrap(), Found::Deleted);
    assert_eq!(overlay.find(b"absent").unwrap(), Found::Deleted);
    assert_eq!(ids(&overlay, "new"), [7].into());
    assert_eq!((overlay.applied().poison, overlay.applied().unfit), (1, 2));
}

#[test]
fn records_of_graphs_are_sets_or_objects() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let (overlay, topic) = (open(&engine, ValueType::Graph), Arc::new(Topic::default()));
    let log = |key, change, time_ms| topic.log(0, START_MS, event(key, change, START_MS + time_ms));
    log("below", update(&json!({"add": [9]})), 1);
    log(
        "vertex",
        update(&json!({"add": {"labels": ["A"], "properties": {"name": "ann"}}})),
        1,
    );
    log("vertex", update(&json!({"add": [9]})), 2);
    log("hostile", Change::Put(Bytes::from_static(b"\xff{")), 2);
    read_all(&overlay, &topic);
    assert_eq!(ids(&overlay, "below"), [1, 2, 9, 300].into());
    let Found::Value(vertex) = overlay.find(b"vertex").unwrap() else {
        panic!()
    };
    let vertex: serde_json::Value = serde_json::from_slice(&vertex).unwrap();
    assert_eq!(vertex, json!({"labels": ["A"], "properties": {"name": "ann"}}));
    assert_eq!((overlay.applied().poison, overlay.applied().unfit), (1, 1));
}
