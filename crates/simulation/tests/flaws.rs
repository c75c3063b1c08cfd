//! What is broken on purpose is noticed: a simulation that finds nothing must not be one that looks at
//! nothing.

use fondaco_simulation::{Flaw, Scenario, simulate};

/// The most seeds tried for each flaw. Most are noticed at once.
const SEEDS: u64 = 10_000;

/// The first seed tried: shortly before one that is known to notice what seldom matters.
fn first(flaw: Flaw) -> u64 {
    match flaw {
        Flaw::TakesNamesForStores => 2_000,
        _ => 0,
    }
}

#[test]
fn every_rule_that_is_broken_on_purpose_is_noticed() {
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
