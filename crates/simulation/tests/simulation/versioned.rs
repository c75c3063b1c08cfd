//! Hundreds of versioned stores, each with different faults; and rules broken on purpose, which must be detected.
//!
//! If a seed breaks a guarantee, it is printed. Replay it with notes of all events by `FONDACO_SIMULATION_SEED=SEED
//! cargo test -p fondaco-simulation --test simulation versioned`. `FONDACO_SIMULATION_SEEDS` sets the number of seeds, and
//! `FONDACO_SIMULATION_FIRST` the first one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::every_seed;
use fondaco_simulation::versioned::{Flaw, Outcome, Scenario, simulate, simulate_traced};

/// The maximum number of seeds per flaw, among those that may show it. Most flaws are detected by the first ones.
const FLAW_SEEDS: usize = 500;

/// The first seed: shortly before one that is known to detect a rare effect.
fn first(flaw: Flaw) -> u64 {
    match flaw {
        Flaw::AnswersForWhatItLost => 140,
        Flaw::FinishesAtOnce => 330,
        Flaw::CollectsEarly => 9_900,
        Flaw::KeepsIncarnation | Flaw::TakesAnyTable => 90,
        Flaw::DropsHints => 440,
        _ => 0,
    }
}

fn replay(seed: u64) -> Outcome {
    simulate_traced(&Scenario::from_seed(seed)).unwrap_or_else(|violation| panic!("\n{violation}"))
}

#[test]
fn replicas_become_equal_and_no_guarantee_is_broken() {
    let run = |seed| simulate(&Scenario::from_seed(seed)).map_err(|violation| violation.seed);
    let Some((seeds, outcomes)) = every_seed::run(250, run, replay) else {
        return;
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds: {} operations answered, {} failed; {} writes acknowledged, {} groups of writes; {} exchanges, {} deletions \
         forgotten; {} orderly stops, {} disks lost, {} records unreadable; {} events",
        outcomes.len(),
        sum(|outcome| outcome.answered),
        sum(|outcome| outcome.failed),
        sum(|outcome| outcome.acknowledged),
        sum(|outcome| outcome.commits),
        sum(|outcome| outcome.exchanges),
        sum(|outcome| outcome.forgotten),
        sum(|outcome| outcome.stops),
        sum(|outcome| outcome.disks),
        sum(|outcome| outcome.unreadable),
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
    let damage: [fn(&Outcome) -> u64; 3] = [
        |outcome| outcome.stops,
        |outcome| outcome.disks,
        |outcome| outcome.unreadable,
    ];
    assert!(
        sum(|outcome| outcome.counts) > seeds / 20,
        "too seldom the number of replicas changes to show anything"
    );
    assert!(
        damage.into_iter().all(|of| sum(of) > seeds / 20),
        "too little happens to processes and disks to show anything"
    );
}

#[test]
fn counters_stay_exact_across_many_restarts() {
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
fn a_seed_always_runs_the_same() {
    for seed in 0..12 {
        let scenario = Scenario::from_seed(seed);
        let first = simulate(&scenario).unwrap();
        assert_eq!(simulate(&scenario).unwrap(), first, "seed {seed}");
        assert_eq!(simulate_traced(&scenario).unwrap(), first, "seed {seed}, traced");
    }
}

#[test]
fn every_rule_broken_on_purpose_is_detected() {
    let next = AtomicUsize::new(0);
    let notice = || {
        let mut unnoticed = Vec::new();
        while let Some(&flaw) = Flaw::ALL.get(next.fetch_add(1, Relaxed)) {
            let run = |scenario: Scenario| simulate(&scenario.with_flaw(flaw)).err();
            let scenarios = (first(flaw)..).map(Scenario::from_seed);
            let telling = scenarios.filter(|scenario| scenario.may_show(flaw));
            match telling.take(FLAW_SEEDS).find_map(run) {
                Some(violation) => println!(
                    "{flaw:?}: noticed by seed {}, after {} ms: {}",
                    violation.seed,
                    violation.at_ms,
                    violation.what.lines().next().unwrap_or_default()
                ),
                None => unnoticed.push(flaw),
            }
        }
        unnoticed
    };
    let unnoticed: Vec<Flaw> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(notice)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
