//! Examples from the literature: the version history of Dynamo, the anomaly that dotted version vectors fix, and how
//! Voldemort compares clocks.

use std::collections::BTreeSet;

use fondaco_model::versioned::{Causality, DotSource, Over, Record, VectorClock};

use crate::history::{clock, dot, put, replica, values, written};

const X: u32 = 1;
const Y: u32 = 2;
const Z: u32 = 3;

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| value.to_string()).collect()
}

/// DeCandia et al. 2007, figure 3, "version evolution of an object over time".
#[test]
fn the_history_of_d1_to_d5() {
    let [mut at_x, mut at_y, mut at_z] = [X, Y, Z].map(|number| DotSource::new(replica(number), 0));
    let d1 = written(&Record::default(), &mut at_x, &VectorClock::new(), put("D1", 0));
    assert_eq!(d1.context().compare(&clock(&[(X, 1)])), Causality::Equal);

    let d2 = written(&d1, &mut at_x, d1.context(), put("D2", 0));
    assert_eq!(d2.context().compare(&clock(&[(X, 2)])), Causality::Equal);
    assert_eq!(values(&d2), set(&["D2"]), "D1 is its ancestor, and obsolete");

    let d3 = written(&d2, &mut at_y, d2.context(), put("D3", 0));
    assert_eq!(d3.context().compare(&clock(&[(X, 2), (Y, 1)])), Causality::Equal);

    let d4 = written(&d2, &mut at_z, d2.context(), put("D4", 0));
    assert_eq!(d4.context().compare(&clock(&[(X, 2), (Z, 1)])), Causality::Equal);

    assert_eq!(d3.context().compare(d4.context()), Causality::Concurrent);
    assert_eq!(d2.context().compare(d3.context()), Causality::Before);
    let both = d3.merge(&d4);
    assert_eq!(
        values(&both),
        set(&["D3", "D4"]),
        "both are read, with the histories of both"
    );
    assert_eq!(both.merge(&d1).merge(&d2), both, "their ancestors never come back");

    let d5 = written(&both, &mut at_x, both.context(), put("D5", 0));
    assert_eq!(
        d5.context().compare(&clock(&[(X, 3), (Y, 1), (Z, 1)])),
        Causality::Equal
    );
    assert_eq!(values(&d5.merge(&d3).merge(&d4)), set(&["D5"]));
}

/// Almeida et al. 2012: two clients that write through one replica, over the same context. With a clock for each value,
/// the second client's, whose counter is higher, would make the first one's obsolete.
#[test]
fn two_writes_over_one_context_at_one_replica_both_stay() {
    let mut dots = DotSource::new(replica(X), 0);
    let first = written(&Record::default(), &mut dots, &VectorClock::new(), put("v", 0));
    let context = first.context().clone();
    let second = written(&first, &mut dots, &context, put("w", 0));
    let third = written(&second, &mut dots, &context, put("u", 0));
    assert_eq!(values(&third), set(&["w", "u"]));
    // A client that has read the second only makes that obsolete.
    let fourth = written(&third, &mut dots, second.context(), put("t", 0));
    assert_eq!(values(&fourth), set(&["u", "t"]));
}

/// Voldemort's table: a clock as the nodes that wrote, one entry for each write. Voldemort returns BEFORE for equal
/// clocks, which are equal here.
#[test]
fn clocks_compare_like_those_of_voldemort() {
    use Causality::{After, Before, Concurrent, Equal};
    let of = |writes: &str| {
        let mut clock = VectorClock::new();
        for writer in writes.chars().filter_map(|digit| digit.to_digit(10)) {
            let next = clock.counter(replica(writer)) + 1;
            clock.increment(dot(writer, next), 0);
        }
        clock
    };
    for (a, b, expected) in [
        ("", "", Equal),
        ("1", "1", Equal),
        ("112", "112", Equal),
        ("112", "1123", Before),
        ("1", "2", Concurrent),
        ("112", "113", Concurrent),
        ("1233", "1123", Concurrent),
        ("22", "1223", Before),
        ("1223", "22", After),
        ("", "1", Before),
        ("1", "", After),
    ] {
        assert_eq!(of(a).compare(&of(b)), expected, "{a} {b}");
    }
}

/// Voldemort's diamond: two values from one ancestor, each on its replica; a third replica still has the ancestor.
#[test]
fn a_diamond_is_repaired_to_both_values_and_no_ancestor() {
    let [mut at_x, mut at_y] = [X, Y].map(|number| DotSource::new(replica(number), 0));
    let old = written(&Record::default(), &mut at_x, &VectorClock::new(), put("old", 0));
    let left = written(&old, &mut at_x, old.context(), put("left", 0));
    let right = written(&old, &mut at_y, old.context(), put("right", 0));
    let repaired = old.merge(&left).merge(&right);
    assert_eq!(values(&repaired), set(&["left", "right"]));
    assert!(repaired.covers(&old) && repaired.covers(&left) && repaired.covers(&right));
    let bottom = Record::write(
        Some(&left),
        &mut at_x,
        Over::Context(repaired.context()),
        put("bottom", 0),
    );
    let bottom = bottom.unwrap();
    assert_eq!(
        values(&right.merge(&bottom)),
        set(&["bottom"]),
        "also where only one side was"
    );
}
