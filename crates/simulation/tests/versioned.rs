//! Thousands of versioned stores, each with its own trouble; and rules broken on purpose, which must be noticed.
//!
//! A seed that breaks a promise is printed, and runs again, with all that happened noted, by
//! `FONDACO_SIMULATION_SEED=SEED cargo test -p fondaco-simulation --test versioned`. How many seeds run can be set
//! by `FONDACO_SIMULATION_SEEDS`, and where they begin by `FONDACO_SIMULATION_FIRST`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_simulation::versioned::{Flaw, Outcome, Scenario, simulate, simulate_traced};

/// The most seeds tried for each flaw. Most are noticed at once.
const FLAW_SEEDS: u64 = 3_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")),
    )
}

fn replay(seed: u64) -> Outcome {
    simulate_traced(&Scenario::from_seed(seed)).unwrap_or_else(|violation| panic!("\n{violation}"))
}

#[test]
fn whatever_happens_replicas_become_equal_and_no_promise_is_broken() {
    if let Some(seed) = number("FONDACO_SIMULATION_SEED") {
        println!("{:#?}", replay(seed));
        return;
    }
    let seeds = number("FONDACO_SIMULATION_SEEDS").unwrap_or(1_000);
    let first = number("FONDACO_SIMULATION_FIRST").unwrap_or(0);
    let next = AtomicU64::new(first);
    let run = || {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + seeds {
                return Ok(outcomes);
            }
            outcomes.push(simulate(&Scenario::from_seed(seed)).map_err(|violation| violation.seed)?);
        }
    };
    let outcomes: Result<Vec<Outcome>, u64> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let results: Result<Vec<_>, u64> = results.into_iter().collect();
        results.map(|outcomes| outcomes.concat())
    });
    let outcomes = outcomes.unwrap_or_else(|seed| {
        replay(seed);
        panic!("seed {seed} broke a promise, and broke none when it ran again: the simulation is not deterministic");
    });
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
