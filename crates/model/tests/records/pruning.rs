//! Clocks that have grown too long: which entries are forgotten, and which never are.

use fondaco_model::versioned::{DotSource, ENTRIES_MAX, Record, VectorClock};
use proptest::prelude::*;

use crate::history::{History, put, replica, steps, values, written};

/// The record after this number of replicas have written one after the other, each over the write before it.
fn chain(writers: u32) -> Record {
    (1..=writers).fold(Record::default(), |record, number| {
        let mut dots = DotSource::new(replica(number), 0);
        let value = format!("by {number}");
        written(&record, &mut dots, record.context(), put(&value, u64::from(number)))
    })
}

#[test]
fn the_oldest_entries_of_a_long_clock_are_forgotten() {
    let record = chain(ENTRIES_MAX as u32 + 10);
    let entries = record.context().entries();
    assert_eq!(entries.len(), ENTRIES_MAX);
    assert_eq!(entries[0].replica, replica(11), "the first ten wrote first");
    assert_eq!(values(&record).len(), 1);
}

#[test]
fn the_entry_of_a_sibling_is_never_forgotten() {
    let mut dots = DotSource::new(replica(99), 0);
    let old = written(&Record::default(), &mut dots, &VectorClock::new(), put("old", 0));
    let merged = old.merge(&chain(ENTRIES_MAX as u32 + 10));
    assert_eq!(values(&merged).len(), 2);
    assert_eq!(merged.context().entries().len(), ENTRIES_MAX + 1);
    assert_eq!(merged.merge(&old), merged);
}

#[test]
fn replicas_with_the_same_writes_forget_the_same_entries() {
    let part = |first: u32| {
        (first..first + 20).fold(Record::default(), |record, number| {
            let mut dots = DotSource::new(replica(number), 0);
            written(&record, &mut dots, record.context(), put("v", u64::from(number % 7)))
        })
    };
    let [a, b, c] = [part(1), part(21), part(41)];
    let merged = a.merge(&b).merge(&c);
    assert_eq!(merged.to_bytes(), c.merge(&b.merge(&a)).to_bytes());
    assert_eq!(merged.to_bytes(), b.merge(&a.merge(&c)).to_bytes());
    assert!(merged.context().entries().len() <= ENTRIES_MAX + 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn forgetting_loses_no_value_and_replicas_still_converge(steps in steps(ENTRIES_MAX + 4, 300)) {
        let mut history = History::run(ENTRIES_MAX + 4, &steps);
        let holds_all_that_lives = |history: &History| {
            history.replicas.iter().all(|replica| {
                replica.truth.live.iter().all(|dot| replica.record.siblings().iter().any(|sibling| sibling.dot == *dot))
            })
        };
        prop_assert!(holds_all_that_lives(&history));
        history.heal();
        prop_assert!(holds_all_that_lives(&history));
    }
}
