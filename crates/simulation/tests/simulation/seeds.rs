//! Thousands of clusters, each with different faults.
//!
//! If a seed breaks a rule, it is printed. Replay it with notes of all events by `FONDACO_SIMULATION_SEED=SEED cargo
//! test -p fondaco-simulation --test simulation seeds`. `FONDACO_SIMULATION_SEEDS` sets the number of seeds, and
//! `FONDACO_SIMULATION_FIRST` the first one.

use crate::every_seed;
use fondaco_simulation::{Outcome, Scenario, simulate, simulate_traced};

fn replay(seed: u64) -> Outcome {
    simulate_traced(&Scenario::from_seed(seed)).unwrap_or_else(|violation| panic!("\n{violation}"))
}

#[test]
fn whatever_happens_no_rule_is_broken() {
    let run = |seed| simulate(&Scenario::from_seed(seed)).map_err(|violation| violation.seed);
    let Some((seeds, outcomes)) = every_seed::run(1_000, run, replay) else {
        return;
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds: {} pushes went live, {} did not; {} keys read, {} not; {} events",
        outcomes.len(),
        sum(|outcome| outcome.pushes_swapped as u64),
        sum(|outcome| outcome.pushes_given_up as u64),
        sum(|outcome| outcome.keys_read),
        sum(|outcome| outcome.keys_failed),
        sum(|outcome| outcome.events),
    );
    assert!(
        sum(|outcome| outcome.pushes_swapped as u64) > seeds,
        "too little happens to show anything"
    );
    assert!(
        sum(|outcome| outcome.keys_read) > seeds * 100,
        "too little is read to show anything"
    );
}
