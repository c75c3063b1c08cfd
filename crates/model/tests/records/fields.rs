//! Concurrent writes of single fields.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::versioned::{
    Change, Count, DotSource, FIELDS_MAX, FieldTimes, Record, Resolution, Update, VectorClock, resolve, resolve_with,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::history::{put, replica, written};

fn dots(number: u32) -> DotSource {
    DotSource::new(replica(number), 0)
}

fn shown(record: &Record) -> Option<Value> {
    let resolved = resolve(record, Resolution::Fields, 0);
    resolved.value().map(|value| serde_json::from_slice(value).unwrap())
}

/// The record after a client has read it, and sets or removes fields.
fn with_fields(record: &Record, dots: &mut DotSource, fields: &Value, at_ms: u64) -> Record {
    let mut value = shown(record).unwrap_or_else(|| json!({}));
    for (name, new) in fields.as_object().unwrap() {
        match new {
            Value::Null => _ = value.as_object_mut().unwrap().remove(name),
            new => value[name] = new.clone(),
        }
    }
    let names: Vec<Box<str>> = fields
        .as_object()
        .unwrap()
        .keys()
        .map(|name| name.as_str().into())
        .collect();
    let update = Update::put_fields(record, value.to_string().into(), &names, at_ms, None);
    written(record, dots, record.context(), update)
}

/// The merge of two records, which is the same in both directions.
fn merged(a: &Record, b: &Record) -> Option<Value> {
    let (one, other) = (shown(&a.merge(b)), shown(&b.merge(a)));
    assert_eq!(one, other);
    one
}

fn base() -> Record {
    written(
        &Record::default(),
        &mut dots(1),
        &VectorClock::new(),
        put(r#"{"x":0,"y":0}"#, 1),
    )
}

#[test]
fn both_sides_of_a_partition_keep_the_fields_that_they_wrote() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let b = with_fields(&base(), &mut dots(2), &json!({"y": 2, "z": 3}), 4);
    assert_eq!(merged(&a, &b), Some(json!({"x": 1, "y": 2, "z": 3})));
}

#[test]
fn the_latest_write_of_a_field_counts() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let a = with_fields(&a, &mut dots(1), &json!({"y": 1}), 9);
    let b = with_fields(&base(), &mut dots(2), &json!({"x": 2, "y": 2}), 7);
    assert_eq!(merged(&a, &b), Some(json!({"x": 2, "y": 1})));
    // Of the same millisecond, one of the two, on both sides.
    let b = with_fields(&base(), &mut dots(2), &json!({"x": 3}), 5);
    assert!(merged(&a, &b).is_some());
}

#[test]
fn a_removed_field_stays_removed() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": null}), 5);
    let b = with_fields(&base(), &mut dots(2), &json!({"y": 2}), 6);
    assert_eq!(merged(&a, &b), Some(json!({"y": 2})));
    let b = with_fields(&base(), &mut dots(2), &json!({"x": 2}), 6);
    assert_eq!(merged(&a, &b), Some(json!({"x": 2, "y": 0})));
}

#[test]
fn a_whole_write_counts_as_one_of_every_field() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let a = with_fields(&a, &mut dots(1), &json!({"y": 1}), 9);
    let b = written(&base(), &mut dots(2), base().context(), put(r#"{"x":7,"w":7}"#, 7));
    assert_eq!(merged(&a, &b), Some(json!({"x": 7, "w": 7, "y": 1})));
}

#[test]
fn a_deletion_takes_the_fields_that_were_written_before_it() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let a = with_fields(&a, &mut dots(1), &json!({"y": 1}), 9);
    for (time, expected) in [
        (10, None),
        (7, Some(json!({"y": 1}))),
        (3, Some(json!({"x": 1, "y": 1}))),
    ] {
        let b = written(&base(), &mut dots(2), base().context(), Update::delete(time));
        assert_eq!(merged(&a, &b), expected, "{time}");
    }
}

#[test]
fn fields_keep_their_times_when_siblings_become_one_value() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let b = with_fields(&base(), &mut dots(2), &json!({"y": 2}), 8);
    let both = with_fields(&a.merge(&b), &mut dots(1), &json!({"z": 3}), 20);
    assert_eq!(both.siblings().len(), 1);
    let Count::Fields(times) = &both.siblings()[0].count else {
        panic!("{both:?}")
    };
    let expected = [("x", 5), ("y", 8), ("z", 20)].map(|(name, time)| (Box::from(name), time));
    assert_eq!((times.whole_unix_ms, &times.fields[..]), (1, &expected[..]));
    // A write that was under way meanwhile counts by its time.
    let late = with_fields(&base(), &mut dots(3), &json!({"x": 6, "y": 6}), 6);
    assert_eq!(merged(&both, &late), Some(json!({"x": 6, "y": 2, "z": 3})));
    assert_eq!(Record::decode(both.to_bytes().into()), Ok(both));
}

#[test]
fn a_value_expires_with_its_latest_write() {
    let a = with_fields(&base(), &mut dots(1), &json!({"x": 1}), 5);
    let value = json!({"x": 0, "y": 2}).to_string().into();
    let update = Update::put_fields(&base(), value, &["y".into()], 6, Some(100));
    let b = written(&base(), &mut dots(2), base().context(), update);
    let record = a.merge(&b);
    let at = |now| resolve(&record, Resolution::Fields, now);
    assert_eq!(at(99).expires_unix_ms, Some(100));
    assert_eq!(at(99).values.len(), 1);
    assert_eq!(at(100).values.len(), 0);
    assert_eq!(
        record
            .without_expired(100)
            .map(|dropped| resolve(&dropped, Resolution::Fields, 100)),
        Some(at(100))
    );
}

#[test]
fn values_that_cannot_be_merged_are_as_the_latest() {
    let base = written(&Record::default(), &mut dots(1), &VectorClock::new(), put("text", 1));
    let a = Update::put_fields(&base, "one".into(), &["x".into()], 5, None);
    let b = Update::put_fields(&base, "two".into(), &["y".into()], 6, None);
    let a = written(&base, &mut dots(1), base.context(), a);
    let b = written(&base, &mut dots(2), base.context(), b);
    let resolved = resolve(&a.merge(&b), Resolution::Fields, 0);
    assert_eq!(resolved.value().unwrap(), "two");
    // A caller that knows the type merges them.
    let merge = |_: Option<&_>, fields: &[(&str, Option<&_>)]| Some(format!("{}", fields.len()).into());
    let resolved = resolve_with(&a.merge(&b), Resolution::Fields, 0, &merge);
    assert_eq!(resolved.value().unwrap(), "1");
}

#[test]
fn the_times_of_many_fields_are_bounded() {
    let fields: Map<String, Value> = (0..2 * FIELDS_MAX)
        .map(|number| (format!("f{number:04}"), json!(1)))
        .collect();
    let mut record = base();
    for (name, value) in fields {
        record = with_fields(&record, &mut dots(1), &json!({name: value}), 5);
    }
    let Count::Fields(FieldTimes { whole_unix_ms, fields }) = &record.siblings()[0].count else {
        panic!()
    };
    assert_eq!(fields.len(), FIELDS_MAX);
    assert_eq!(&*fields[0].0, format!("f{FIELDS_MAX:04}"));
    assert_eq!(*whole_unix_ms + 1, fields[0].1);
}

/// A write at one of three replicas: fields that are set or removed, or a whole value, or a deletion.
#[derive(Debug, Clone)]
enum Step {
    Fields(usize, BTreeMap<u8, Option<u8>>, u64),
    Whole(usize, BTreeMap<u8, u8>, u64),
    Delete(usize, u64),
    Merge(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (at, time) = (0..3usize, 0..1_000u64);
    let fields = prop::collection::btree_map(0..4u8, any::<Option<u8>>(), 1..3);
    let whole = prop::collection::btree_map(0..4u8, any::<u8>(), 0..4);
    let step = prop_oneof![
        6 => (at.clone(), fields, time.clone()).prop_map(|(at, fields, time)| Step::Fields(at, fields, time)),
        1 => (at.clone(), whole, time.clone()).prop_map(|(at, whole, time)| Step::Whole(at, whole, time)),
        1 => (at.clone(), time).prop_map(|(at, time)| Step::Delete(at, time)),
        4 => (at.clone(), at).prop_map(|(into, from)| Step::Merge(into, from)),
    ];
    prop::collection::vec(step, 0..30)
}

/// The latest write of each field: its time, and its value.
type Truth = BTreeMap<u8, (u64, Option<u8>)>;

proptest! {
    #[test]
    fn replicas_that_have_merged_have_the_latest_write_of_each_field(steps in steps()) {
        let mut replicas: [Record; 3] = Default::default();
        let mut sources = [1, 2, 3].map(dots);
        let mut truth = Truth::new();
        let mut times = BTreeSet::new();
        let mut all_differ = true;
        for (number, step) in steps.iter().enumerate() {
            // No two writes have one time, unless the clock of one is behind what it has seen.
            let given = |time: &u64| time * 1_000 + number as u64 * 10;
            let (at, changes) = match step {
                Step::Merge(into, from) => {
                    replicas[*into] = replicas[*into].merge(&replicas[*from]);
                    continue;
                }
                Step::Fields(at, fields, time) => {
                    let update = fields.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
                    replicas[*at] = with_fields(&replicas[*at], &mut sources[*at], &Value::Object(update), given(time));
                    (*at, fields.clone())
                }
                Step::Whole(at, whole, time) => {
                    let value: Map<String, Value> = whole.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
                    let update = put(&Value::Object(value).to_string(), given(time));
                    let context = replicas[*at].context().clone();
                    replicas[*at] = written(&replicas[*at], &mut sources[*at], &context, update);
                    (*at, (0..4).map(|name| (name, whole.get(&name).copied())).collect())
                }
                Step::Delete(at, time) => {
                    let context = replicas[*at].context().clone();
                    replicas[*at] = written(&replicas[*at], &mut sources[*at], &context, Update::delete(given(time)));
                    (*at, (0..4).map(|name| (name, None)).collect())
                }
            };
            let time = replicas[at].siblings().iter().map(|sibling| sibling.written_unix_ms).max().unwrap();
            all_differ &= times.insert(time);
            for (name, value) in changes {
                let known = truth.entry(name).or_insert((time, value));
                if known.0 < time {
                    *known = (time, value);
                }
            }
        }
        let [a, b, c] = &replicas;
        let healed = a.merge(b).merge(c);
        prop_assert_eq!(&c.merge(&b.merge(a)).to_bytes(), &healed.to_bytes());
        prop_assert_eq!(Record::decode(healed.to_bytes().into()), Ok(healed.clone()));
        prop_assert_eq!(shown(&c.merge(a).merge(b)), shown(&healed));
        if all_differ {
            let expected: Map<String, Value> = truth
                .into_iter()
                .filter_map(|(name, (_, value))| Some((name.to_string(), json!(value?))))
                .collect();
            prop_assert_eq!(shown(&healed).unwrap_or_else(|| json!({})), Value::Object(expected));
        }
        // One more write over all of them changes nothing else.
        let last = with_fields(&healed, &mut dots(4), &json!({"last": 1}), 0);
        prop_assert_eq!(last.siblings().len(), 1);
        let mut expected = shown(&healed).unwrap_or_else(|| json!({}));
        expected["last"] = json!(1);
        prop_assert_eq!(shown(&last), Some(expected.clone()));
        prop_assert_eq!(shown(&healed.merge(&last).merge(a)), Some(expected));
    }

    #[test]
    fn times_that_no_write_has_are_refused(whole in 0..20u64, times in prop::collection::vec(("[a-c]", 0..20u64), 0..4)) {
        let times: Vec<(Box<str>, u64)> = times.into_iter().map(|(name, time)| (name.into(), time)).collect();
        let is_valid = times.iter().all(|(_, time)| *time > whole && *time <= 10)
            && times.is_sorted_by(|a, b| a.0 < b.0)
            && whole <= 10;
        prop_assume!(whole <= 10 && times.iter().all(|(_, time)| *time <= 10));
        let change = Change::PutFields {
            value: "{}".into(),
            times: FieldTimes { whole_unix_ms: whole, fields: times.into() },
        };
        let update = Update { written_unix_ms: 10, expires_unix_ms: None, change };
        let decoded = Update::decode(update.to_bytes().into());
        prop_assert_eq!(decoded.is_ok(), is_valid);
        prop_assert!(decoded.is_err() || decoded == Ok(update));
    }
}
