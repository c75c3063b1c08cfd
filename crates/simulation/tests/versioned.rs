//! Thousands of versioned stores, each with its own trouble; and rules broken on purpose, which must be noticed.
//!
//! A seed that breaks a promise is printed, and runs again, with all that happened noted, by
//! `FONDACO_SIMULATION_SEED=SEED cargo test -p fondaco-simulation --test versioned`. How many seeds run can be set
//! by `FONDACO_SIMULATION_SEEDS`, and where they begin by `FONDACO_SIMULATION_FIRST`.

mod every_seed;

use fondaco_simulation::versioned::{Flaw, Outcome, Scenario, simulate, simulate_traced};

/// The most seeds tried for each flaw. Most are noticed at once.
const FLAW_SEEDS: u64 = 3_000;

fn replay(seed: u64) -> Outcome {
    simulate_traced(&Scenario::from_seed(seed)).unwrap_or_else(|violation| panic!("\n{violation}"))
}

#[test]
fn whatever_happens_replicas_become_equal_and_no_promise_is_broken() {
    let run = |seed| simulate(&Scenario::from_seed(seed)).map_err(|violation| violation.seed);
    let Some((seeds, outcomes)) = every_seed::run(1_000, run, replay) else {
        return;
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds: {} operations answered, {} failed; {} writes acknowledged; {} exchanges, {} deletions forgotten; {} \
         events",
        outcomes.len(),
        sum(|outcome| outcome.answered),
        sum(|outcome| outcome.failed),
        sum(|outcome| outcome.acknowledged),
        sum(|outcome| outcome.exchanges),
        sum(|outcome| outcome.forgotten),
        sum(|outcome| outcome.events),
    );
    assert!(
        sum(|outcome| outcome.acknowledged) > seeds * 30,
        "too little is written to show anything"
    );
    assert!(
        sum(|outcome| outcome.failed) > seeds,
        "too little goes wrong to show anything"
    );
    assert!(
        sum(|outcome| outcome.forgotten) > seeds / 10,
        "too little is forgotten to show anything"
    );
}

#[test]
fn counters_lose_nothing_and_count_nothing_twice_however_often_nodes_start() {
    let run = |seed| simulate(&Scenario::counter_from_seed(seed)).map_err(|violation| violation.seed);
    let replay = |seed| {
        let traced = simulate_traced(&Scenario::counter_from_seed(seed));
        traced.unwrap_or_else(|violation| panic!("\n{violation}"))
    };
    let Some((_, outcomes)) = every_seed::run(30, run, replay) else {
        return;
    };
    let most = outcomes.iter().map(|outcome| outcome.deaths).max();
    assert!(
        most.is_some_and(|most| most > 300),
        "too few starts to show anything: {most:?}"
    );
}

#[test]
fn every_rule_that_is_broken_on_purpose_is_noticed() {
    let mut unnoticed = Vec::new();
    for flaw in Flaw::ALL {
        let run = |seed| simulate(&Scenario::from_seed(seed).with_flaw(flaw)).err();
        match (0..FLAW_SEEDS).find_map(run) {
            Some(violation) => println!(
                "{flaw:?}: noticed by seed {}, after {} ms: {}",
                violation.seed,
                violation.at_ms,
                violation.what.lines().next().unwrap_or_default()
            ),
            None => unnoticed.push(flaw),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
