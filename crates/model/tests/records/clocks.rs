//! The order of vector clocks.

use fondaco_model::versioned::{AHEAD_MS_MAX, COUNTER_GIVEN_MAX, Causality, ContextError, VectorClock};
use proptest::prelude::*;

use crate::history::{clock, dot};

/// Clocks of few replicas and low counters, so that many are comparable.
fn clocks() -> impl Strategy<Value = VectorClock> {
    prop::collection::btree_map(1..5u32, 1..4u64, 0..4).prop_map(|seen| clock(&seen.into_iter().collect::<Vec<_>>()))
}

fn is_at_most(a: &VectorClock, b: &VectorClock) -> bool {
    matches!(a.compare(b), Causality::Before | Causality::Equal)
}

proptest! {
    #[test]
    fn the_order_is_reflexive(a in clocks()) {
        prop_assert_eq!(a.compare(&a), Causality::Equal);
    }

    #[test]
    fn the_order_is_antisymmetric(a in clocks(), b in clocks()) {
        let turned = match a.compare(&b) {
            Causality::Before => Causality::After,
            Causality::After => Causality::Before,
            same => same,
        };
        prop_assert_eq!(b.compare(&a), turned);
        prop_assert_eq!(a.compare(&b) == Causality::Equal, a == b);
    }

    #[test]
    fn the_order_is_transitive(a in clocks(), more in clocks(), any in clocks()) {
        let b = a.merge(&more);
        for c in [b.merge(&any), any] {
            if is_at_most(&a, &b) && is_at_most(&b, &c) {
                prop_assert!(is_at_most(&a, &c));
            }
        }
    }

    #[test]
    fn a_merge_is_the_least_upper_bound(a in clocks(), b in clocks(), c in clocks()) {
        let merged = a.merge(&b);
        prop_assert!(is_at_most(&a, &merged) && is_at_most(&b, &merged));
        // Every other bound is above it.
        let bound = merged.merge(&c);
        prop_assert!(is_at_most(&merged, &bound));
        if is_at_most(&a, &c) && is_at_most(&b, &c) {
            prop_assert!(is_at_most(&merged, &c));
        }
        prop_assert_eq!(&merged, &b.merge(&a));
        prop_assert_eq!(a.merge(&b.merge(&c)), merged.merge(&c));
        prop_assert_eq!(a.merge(&a), a);
    }

    #[test]
    fn an_incremented_clock_has_seen_more(a in clocks(), replica in 1..5u32) {
        let mut after = a.clone();
        let next = a.counter(dot(replica, 1).replica) + 1;
        after.increment(dot(replica, next), 9);
        prop_assert_eq!(after.compare(&a), Causality::After);
        prop_assert!(after.covers(dot(replica, next)) && !a.covers(dot(replica, next)));
    }
}

#[test]
fn an_impossible_clock_from_a_client_is_refused() {
    const NOW: u64 = 1_700_000_000_000;
    let seen = |counter, written_unix_ms| {
        let mut clock = VectorClock::new();
        clock.increment(dot(1, 5), 5);
        clock.increment(dot(2, counter), written_unix_ms);
        clock.check_given(NOW)
    };
    assert_eq!(VectorClock::new().check_given(0), Ok(()));
    // Counters run ahead of the time if there is more than one write in a millisecond.
    assert_eq!(seen(1000 * NOW, NOW + AHEAD_MS_MAX), Ok(()));
    assert_eq!(
        seen(NOW, NOW + AHEAD_MS_MAX + 1),
        Err(ContextError::Ahead {
            ahead_ms: AHEAD_MS_MAX + 1
        })
    );
    let dot = dot(2, COUNTER_GIVEN_MAX + 1);
    assert_eq!(seen(dot.counter, NOW), Err(ContextError::NoSuchWrite { dot }));
}
