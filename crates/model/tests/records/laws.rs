//! Records form a join semilattice, and know exactly which writes were seen and which are obsolete.

use proptest::prelude::*;

use crate::history::{History, steps};

proptest! {
    #[test]
    fn merging_is_commutative_associative_and_idempotent(steps in steps(3, 40)) {
        let [a, b, c] = [0, 1, 2].map(|at| History::run(3, &steps).replicas[at].record.clone());
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
        prop_assert_eq!(a.merge(&a), a.clone());
        prop_assert_eq!(a.merge(&b).to_bytes(), b.merge(&a).to_bytes());
        prop_assert!(a.merge(&b).covers(&a) && a.merge(&b).covers(&b));
    }

    #[test]
    fn a_record_covers_seen_writes_and_holds_those_not_obsolete(steps in steps(4, 60)) {
        let history = History::run(4, &steps);
        for replica in &history.replicas {
            let siblings = replica.record.siblings().iter().map(|sibling| sibling.dot);
            prop_assert_eq!(siblings.collect::<std::collections::BTreeSet<_>>(), replica.truth.live.clone());
            for write in &history.writes {
                let is_seen = replica.truth.seen.contains(&write.dot);
                prop_assert_eq!(replica.record.context().covers(write.dot), is_seen, "{}", write.dot);
            }
        }
    }

    #[test]
    fn merged_replicas_have_equal_bytes(steps in steps(4, 60)) {
        let mut history = History::run(4, &steps);
        history.heal();
        let bytes = history.replicas[0].record.to_bytes();
        for replica in &history.replicas {
            prop_assert_eq!(&replica.record.to_bytes(), &bytes);
        }
    }

    #[test]
    fn every_write_survives_or_was_seen_by_a_later_one(steps in steps(4, 60)) {
        let mut history = History::run(4, &steps);
        history.heal();
        let record = &history.replicas[0].record;
        for write in &history.writes {
            let is_there = record.siblings().iter().any(|sibling| sibling.dot == write.dot);
            let is_known = history.writes.iter().any(|other| other.knew.contains(&write.dot));
            prop_assert_eq!(is_there, !is_known, "{}", write.dot);
        }
    }

    #[test]
    fn no_dot_is_given_twice(steps in steps(3, 60)) {
        let history = History::run(3, &steps);
        let dots: std::collections::BTreeSet<_> = history.writes.iter().map(|write| write.dot).collect();
        prop_assert_eq!(dots.len(), history.writes.len());
    }

    #[test]
    fn a_write_is_later_than_all_that_it_saw(steps in steps(3, 60)) {
        let history = History::run(3, &steps);
        for write in &history.writes {
            for known in history.writes.iter().filter(|known| write.knew.contains(&known.dot)) {
                prop_assert!(known.written_unix_ms < write.written_unix_ms, "{} {}", known.dot, write.dot);
            }
        }
    }
}
