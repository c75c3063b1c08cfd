//! Rules broken on purpose are detected: a simulation that finds nothing must not be one that checks nothing.

use fondaco_simulation::{Flaw, Scenario, simulate};

/// The maximum number of seeds per flaw. Most flaws are detected by the first ones.
const SEEDS: u64 = 10_000;

/// The first seed: shortly before one that is known to detect a rare effect.
fn first(flaw: Flaw) -> u64 {
    match flaw {
        Flaw::TakesNamesForStores => 2_000,
        _ => 0,
    }
}

#[test]
fn every_rule_broken_on_purpose_is_detected() {
    let mut unnoticed = Vec::new();
    for flaw in Flaw::ALL {
        let run = |seed| simulate(&Scenario::from_seed(seed).with_flaw(flaw)).err();
        let first = first(flaw);
        match (first..first + SEEDS).find_map(run) {
            Some(violation) => println!(
                "{flaw:?}: noticed by seed {}, after {} ms: {}",
                violation.seed, violation.at_ms, violation.what
            ),
            None => unnoticed.push(flaw),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
