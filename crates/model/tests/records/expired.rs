//! Each replica drops expired values by itself, and none brings them back.

use std::collections::BTreeSet;

use fondaco_model::versioned::{DotSource, Record, Resolution, Update, VectorClock, resolve};
use proptest::prelude::*;

use crate::history::{put, replica, values, written};

/// Concurrent values of as many replicas; each expires at its time, if it has one.
fn concurrent(expiries: &[Option<u64>]) -> Record {
    let each = (1..).zip(expiries).map(|(number, &expires_unix_ms)| {
        let mut dots = DotSource::new(replica(number), 0);
        let update = Update {
            expires_unix_ms,
            ..put(&format!("v{number}"), 1)
        };
        written(&Record::default(), &mut dots, &VectorClock::new(), update)
    });
    each.fold(Record::default(), |all, record| all.merge(&record))
}

#[test]
fn only_expired_values_are_dropped() {
    let record = concurrent(&[Some(100), None, Some(200)]);
    assert_eq!(record.without_expired(99), None);
    let dropped = record.without_expired(100).unwrap();
    assert_eq!(values(&dropped), BTreeSet::from(["v2", "v3"].map(String::from)));
    assert_eq!(dropped.without_expired(100), None);
    assert_eq!(dropped.context(), record.context());
    assert_eq!(dropped.quiet_since_unix_ms(), record.quiet_since_unix_ms());
    assert_eq!(Record::decode(dropped.to_bytes().into()), Ok(dropped.clone()));
    for &resolution in Resolution::ALL {
        for now_unix_ms in [100, 200] {
            let [before, after] = [&record, &dropped].map(|record| resolve(record, resolution, now_unix_ms));
            assert_eq!(before, after, "{resolution} at {now_unix_ms}");
        }
    }
}

#[test]
fn sums_of_a_counter_stay() {
    let added = Update::add(1, 1, Some(100));
    let mut dots = DotSource::new(replica(1), 0);
    let record = written(&Record::default(), &mut dots, &VectorClock::new(), added);
    assert_eq!(record.without_expired(100), None);
}

proptest! {
    #[test]
    fn replicas_converge_whether_they_dropped_expired_values_or_not(
        expiries in prop::collection::vec(prop::option::of(1..10u64), 1..5),
        dropped_at in prop::collection::vec(0..12u64, 3),
        order in Just([0usize, 1, 2]).prop_shuffle(),
    ) {
        let record = concurrent(&expiries);
        let replicas: Vec<Record> = dropped_at
            .iter()
            .map(|&at| record.without_expired(at).unwrap_or_else(|| record.clone()))
            .collect();
        let merged = |order: [usize; 3]| order.iter().fold(Record::default(), |all, &at| all.merge(&replicas[at]));
        let newest = dropped_at.iter().copied().max().unwrap_or(0);
        let expected = record.without_expired(newest).unwrap_or_else(|| record.clone());
        prop_assert_eq!(merged(order), expected);
    }
}
