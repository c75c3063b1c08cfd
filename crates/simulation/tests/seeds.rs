//! Thousands of clusters, each with its own trouble.
//!
//! A seed that breaks a rule is printed, and runs again, with all that happened noted, by
//! `FONDACO_SIMULATION_SEED=SEED cargo test -p fondaco-simulation --test seeds`. How many seeds run can
//! be set by `FONDACO_SIMULATION_SEEDS`, and where they begin by `FONDACO_SIMULATION_FIRST`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_simulation::{Outcome, Scenario, simulate, simulate_traced};

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
fn whatever_happens_no_rule_is_broken() {
    if let Some(seed) = number("FONDACO_SIMULATION_SEED") {
        println!("{:#?}", replay(seed));
        return;
    }
    let seeds = number("FONDACO_SIMULATION_SEEDS").unwrap_or(2_000);
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
    match outcomes {
        Err(seed) => {
            replay(seed);
            panic!("seed {seed} broke a rule, and broke none when it ran again: the simulation is not deterministic");
        }
        Ok(outcomes) => {
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
    }
}
