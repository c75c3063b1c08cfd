//! Counters with concurrent increments.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::NodeId;
use fondaco_model::versioned::{
    Dot, DotSource, Over, Record, ReplicaId, Resolution, SIBLINGS_MAX, SUMS_MAX, Update, VectorClock, WriteError,
    resolve,
};
use proptest::prelude::*;

use crate::history::{put, replica, written};

fn add(record: &Record, dots: &mut DotSource, by: i64) -> Record {
    written(record, dots, &VectorClock::new(), Update::add(by, 0, None))
}

fn set(record: &Record, dots: &mut DotSource, read: &Record, value: Option<i64>) -> Record {
    written(record, dots, read.context(), Update::set_counter(read, value, 0, None))
}

fn value_at(record: &Record, now_unix_ms: u64) -> Option<i64> {
    let resolved = resolve(record, Resolution::Counter, now_unix_ms);
    resolved
        .value()
        .map(|value| std::str::from_utf8(value).unwrap().parse().unwrap())
}

fn value(record: &Record) -> Option<i64> {
    value_at(record, 0)
}

#[test]
fn increments_through_one_replica_are_one_sum() {
    let mut dots = DotSource::new(replica(1), 0);
    let mut record = Record::default();
    for by in [5, -2, 4] {
        record = add(&record, &mut dots, by);
    }
    assert_eq!((value(&record), record.siblings().len()), (Some(7), 1));
    assert_eq!(value(&Record::default()), None);
}

#[test]
fn concurrent_increments_are_neither_lost_nor_doubled_by_a_set() {
    let [mut x, mut y] = [1, 2].map(|number| DotSource::new(replica(number), 0));
    let five = add(&Record::default(), &mut x, 5);
    // One client sets it to 100, having seen the five; meanwhile three are added at a replica that does not know of
    // that.
    let hundred = set(&Record::default(), &mut y, &five, Some(100));
    let eight = add(&five, &mut x, 3);
    let merged = hundred.merge(&eight);
    assert_eq!(value(&merged), Some(103));
    assert_eq!(value(&add(&merged, &mut x, 1)), Some(104));
    // And again, over the present record.
    let fifty = set(&merged, &mut y, &merged, Some(50));
    assert_eq!(value(&fifty.merge(&eight)), Some(50));
}

#[test]
fn only_concurrent_increments_are_left_after_a_deletion() {
    let [mut x, mut y] = [1, 2].map(|number| DotSource::new(replica(number), 0));
    let five = add(&Record::default(), &mut x, 5);
    let deleted = set(&five, &mut y, &five, None);
    assert_eq!(value(&deleted), None);
    assert!(deleted.is_deleted(0));
    let eight = add(&five, &mut x, 3);
    assert_eq!(value(&deleted.merge(&eight)), Some(3));
    assert_eq!(value(&add(&deleted, &mut y, 1)), Some(1));
}

#[test]
fn a_counter_continues_from_a_plain_value() {
    let mut dots = DotSource::new(replica(1), 0);
    let ten = written(&Record::default(), &mut dots, &VectorClock::new(), put("10", 0));
    assert_eq!(value(&add(&ten, &mut dots, 1)), Some(11));
    let words = written(&Record::default(), &mut dots, &VectorClock::new(), put("words", 0));
    let added = add(&words, &mut dots, 1);
    assert_eq!(resolve(&added, Resolution::Counter, 0).value().unwrap(), "words");
}

#[test]
fn a_full_sum_is_continued_by_another() {
    let mut dots = DotSource::new(replica(1), 0);
    let record = add(&Record::default(), &mut dots, i64::MAX);
    let record = add(&record, &mut dots, i64::MAX);
    assert_eq!(value(&record), Some(i64::MAX), "the maximum of a counter");
    let record = add(&record, &mut dots, -i64::MAX);
    assert_eq!(value(&record), Some(i64::MAX));
    assert_eq!(value(&add(&record, &mut dots, -1)), Some(i64::MAX - 1));
}

#[test]
fn a_counter_expires_with_its_increments() {
    let mut dots = DotSource::new(replica(1), 0);
    let nothing = VectorClock::new();
    let record = written(&Record::default(), &mut dots, &nothing, Update::add(5, 0, Some(100)));
    assert_eq!((value_at(&record, 99), value_at(&record, 100)), (Some(5), None));
    let record = written(&record, &mut dots, &nothing, Update::add(1, 100, None));
    assert_eq!((value_at(&record, 100), record.siblings().len()), (Some(1), 1));
}

#[test]
fn increments_do_not_change_the_expiry() {
    let [mut x, mut y] = [1, 2].map(|number| DotSource::new(replica(number), 0));
    let nothing = VectorClock::new();
    let ten = Update::set_counter(&Record::default(), Some(10), 0, Some(100));
    let ten = written(&Record::default(), &mut x, &nothing, ten);
    let added = written(&ten, &mut y, &nothing, Update::add(1, 5, None));
    let resolved = resolve(&added, Resolution::Counter, 99);
    assert_eq!((value_at(&added, 99), resolved.expires_unix_ms), (Some(11), Some(100)));
    assert_eq!(value_at(&added, 100), None);
    let lasting = Update::set_counter(&Record::default(), Some(10), 0, None);
    let lasting = written(&Record::default(), &mut x, &nothing, lasting);
    let added = written(&lasting, &mut y, &nothing, Update::add(1, 5, Some(50)));
    assert_eq!(value_at(&added, 1000), Some(11));
}

/// The dots of an incarnation of a node.
fn incarnation(node: u32, incarnation: u32) -> DotSource {
    let node = NodeId::new(node).unwrap();
    DotSource::new(ReplicaId { node, incarnation }, 0)
}

#[test]
fn sums_of_ended_incarnations_are_short_and_leave_room() {
    const INCARNATIONS: u32 = 1000;
    let mut record = Record::default();
    for number in 1..=INCARNATIONS {
        // A stand-in for a random number.
        let mut dots = incarnation(1, number.wrapping_mul(0x9E37_79B9));
        record = add(&add(&record, &mut dots, 1), &mut dots, 2);
    }
    assert_eq!(value(&record), Some(3 * i64::from(INCARNATIONS)));
    assert!(
        record.encoded_bytes() < 32 * INCARNATIONS as usize,
        "{}",
        record.encoded_bytes()
    );
    assert_eq!(Record::decode(record.to_bytes().into()), Ok(record));
}

#[test]
fn values_and_own_sums_keep_their_usual_limits() {
    let mut record = Record::default();
    for number in 1..=SIBLINGS_MAX as u32 + 1 {
        record = add(&record, &mut incarnation(1, number), 1);
    }
    let mut dots = incarnation(2, 1);
    for number in 0..SIBLINGS_MAX {
        // Each is a separate sum: the one before has no room for more.
        let by = i64::MAX - number as i64;
        record = written(&record, &mut dots, &VectorClock::new(), Update::add(by, 0, None));
    }
    let full = Record::write(
        Some(&record),
        &mut dots,
        Over::Context(&VectorClock::new()),
        put("v", 0),
    );
    assert!(matches!(full, Err(WriteError::TooManySiblings { .. })), "{full:?}");
}

#[test]
fn a_counter_with_too_many_sums_continues_after_a_set() {
    // As replicas that merge the records of others make it.
    let mut sums: Vec<Record> = (1..=SUMS_MAX as u32)
        .map(|number| add(&Record::default(), &mut incarnation(1, number), 1))
        .collect();
    while sums.len() > 1 {
        let merged = sums
            .chunks(2)
            .map(|pair| pair.iter().fold(Record::default(), |all, one| all.merge(one)));
        sums = merged.collect();
    }
    let full = sums.pop().unwrap();
    let mut dots = incarnation(1, u32::MAX);
    let over = VectorClock::new();
    let refused = Record::write(Some(&full), &mut dots, Over::Context(&over), Update::add(1, 0, None));
    assert_eq!(refused, Err(WriteError::TooManySums { sums: SUMS_MAX }));
    let set = set(&full, &mut dots, &full, value(&full));
    assert_eq!(value(&add(&set, &mut dots, 1)), Some(SUMS_MAX as i64 + 1));
}

#[test]
fn a_set_counter_knows_the_sums_of_all_incarnations() {
    let mut old = Record::default();
    for number in 1..=200 {
        old = add(&old, &mut incarnation(1 + number % 3, number), 1);
    }
    let mut last = incarnation(1, 200);
    old = add(&old, &mut last, 1);
    let mut dots = incarnation(2, 1000);
    let set = set(&old, &mut dots, &old, Some(7));
    // A replica that does not know of the setting adds to its sum, and is merged long after.
    let more = add(&old, &mut last, 5);
    let mut goes_on = set.clone();
    for number in 1001..1100 {
        goes_on = add(&goes_on, &mut incarnation(2, number), 1);
    }
    assert_eq!(value(&set.merge(&more)), Some(12));
    assert_eq!(value(&goes_on.merge(&more)), Some(7 + 99 + 5));
}

/// An event of a counter.
#[derive(Debug, Clone)]
enum Step {
    Add {
        at: usize,
        by: i64,
    },
    Set {
        at: usize,
        read: usize,
        value: Option<i64>,
        time: u64,
    },
    Merge {
        into: usize,
        from: usize,
    },
    /// The replica counts under another incarnation from now on.
    Restart {
        at: usize,
    },
}

fn steps(replicas: usize) -> impl Strategy<Value = Vec<Step>> {
    let all = 0..replicas;
    let step = prop_oneof![
        4 => (all.clone(), -9..10i64).prop_map(|(at, by)| Step::Add { at, by }),
        1 => (all.clone(), all.clone(), prop::option::of(0..100i64), 0..20u64)
            .prop_map(|(at, read, value, time)| Step::Set { at, read, value, time }),
        3 => (all.clone(), all.clone()).prop_map(|(into, from)| Step::Merge { into, from }),
        3 => all.prop_map(|at| Step::Restart { at }),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn a_counter_is_its_last_set_value_plus_unseen_increments(steps in steps(3)) {
        let mut sources: Vec<_> = (1..=3).map(|number| DotSource::new(replica(number), 0)).collect();
        let mut records = vec![Record::default(); 3];
        let mut incarnations = 1;
        // The increments that each replica has seen, by number.
        let mut heard = vec![BTreeSet::<usize>::new(); 3];
        let mut added = Vec::new();
        let mut overwritten = BTreeSet::new();
        let mut settings: BTreeMap<Dot, Option<i64>> = BTreeMap::new();
        for step in &steps {
            match *step {
                Step::Add { at, by } => {
                    records[at] = add(&records[at], &mut sources[at], by);
                    heard[at].insert(added.len());
                    added.push(by);
                }
                Step::Set { at, read, value, time } => {
                    let read_record = records[read].clone();
                    let update = Update::set_counter(&read_record, value, time, None);
                    let before: BTreeSet<Dot> = records[at].siblings().iter().map(|sibling| sibling.dot).collect();
                    let over = Over::Context(read_record.context());
                    records[at] = Record::write(Some(&records[at]), &mut sources[at], over, update).unwrap();
                    let new = records[at].siblings().iter().find(|sibling| !before.contains(&sibling.dot)).unwrap();
                    settings.insert(new.dot, value);
                    overwritten.extend(heard[read].iter().copied());
                    let known = heard[read].clone();
                    heard[at].extend(known);
                }
                Step::Restart { at } => {
                    incarnations += 1;
                    sources[at] = incarnation(at as u32 + 1, incarnations);
                }
                Step::Merge { into, from } => {
                    records[into] = records[into].merge(&records[from]);
                    let known = heard[from].clone();
                    heard[into].extend(known);
                }
            }
        }
        let merged = records.iter().fold(Record::default(), |all, record| all.merge(record));
        let of_settings = merged.siblings().iter().filter(|sibling| settings.contains_key(&sibling.dot));
        let newest = of_settings.max_by_key(|sibling| (sibling.written_unix_ms, sibling.value.is_none(), sibling.dot));
        let base = newest.and_then(|sibling| settings[&sibling.dot]);
        let counted: Vec<i64> =
            (0..added.len()).filter(|number| !overwritten.contains(number)).map(|number| added[number]).collect();
        let expected = (base.is_some() || !counted.is_empty()).then(|| base.unwrap_or(0) + counted.iter().sum::<i64>());
        prop_assert_eq!(value(&merged), expected, "{:?}", merged);
        prop_assert_eq!(Record::decode(merged.to_bytes().into()), Ok(merged));
    }
}
