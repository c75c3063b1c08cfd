//! Hundreds of hybrid stores, each with different faults; and rules broken on purpose, which must be detected.
//!
//! If a seed breaks a rule, it is printed. Replay it with notes of all that happened by `FONDACO_SIMULATION_SEED=SEED
//! cargo test -p fondaco-simulation --test simulation streams`. `FONDACO_SIMULATION_SEEDS` sets the number of seeds, and
//! `FONDACO_SIMULATION_FIRST` the first one.

use crate::every_seed;
use fondaco_simulation::streams::{Flaw, Outcome, Scenario, simulate, simulate_traced};

/// The maximum number of seeds per flaw.
const FLAW_SEEDS: u64 = 300;

fn replay(seed: u64) -> Outcome {
    simulate_traced(&Scenario::from_seed(seed)).unwrap_or_else(|violation| panic!("\n{violation}"))
}

#[test]
fn all_nodes_answer_as_the_events_in_order() {
    let run = |seed| simulate(&Scenario::from_seed(seed)).map_err(|violation| violation.seed);
    let Some((seeds, outcomes)) = every_seed::run(200, run, replay) else {
        return;
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds: {} records, {} applied, {} cut, {} late, {} repeated; {} of {} updates kept; {} answers compared, {} of them \
         after losses, {} expired; {} keys deleted; {} looked at; {} kills, {} losses of power, {} failed writes, {} moves, {} pushes, {} losses of records",
        outcomes.len(),
        sum(|outcome| outcome.records),
        sum(|outcome| outcome.applied),
        sum(|outcome| outcome.cut),
        sum(|outcome| outcome.late),
        sum(|outcome| outcome.repeated),
        sum(|outcome| outcome.updates_kept),
        sum(|outcome| outcome.updates),
        sum(|outcome| outcome.compared),
        sum(|outcome| outcome.compared_after_losses),
        sum(|outcome| outcome.expired),
        sum(|outcome| outcome.deleted),
        sum(|outcome| outcome.peeked),
        sum(|outcome| outcome.kills),
        sum(|outcome| outcome.power_losses),
        sum(|outcome| outcome.failures),
        sum(|outcome| outcome.moves),
        sum(|outcome| outcome.pushes),
        sum(|outcome| outcome.losses),
    );
    let often: [fn(&Outcome) -> u64; 8] = [
        |outcome| outcome.applied,
        |outcome| outcome.cut,
        |outcome| outcome.late,
        |outcome| outcome.kills,
        |outcome| outcome.failures,
        |outcome| outcome.moves,
        |outcome| outcome.compared,
        |outcome| outcome.peeked,
    ];
    assert!(
        often.into_iter().all(|of| sum(of) > seeds),
        "too little happens to show anything"
    );
    let seldom: [fn(&Outcome) -> u64; 7] = [
        |outcome| outcome.expired,
        |outcome| outcome.deleted,
        |outcome| outcome.compared_after_losses,
        |outcome| outcome.repeated,
        |outcome| outcome.power_losses,
        |outcome| outcome.losses,
        |outcome| outcome.updates - outcome.updates_kept.min(outcome.updates),
    ];
    assert!(
        seldom.into_iter().all(|of| sum(of) > seeds / 10),
        "too little of what is rare happens to show anything"
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
    for flaw in Flaw::ALL {
        let run = |seed| simulate(&Scenario::from_seed(seed).with_flaw(flaw)).err();
        let violation = (0..FLAW_SEEDS).find_map(run);
        let violation = violation.unwrap_or_else(|| panic!("{flaw:?} goes unnoticed"));
        println!(
            "{flaw:?}: noticed by seed {}, after {} ms: {}",
            violation.seed,
            violation.at_ms,
            violation.what.lines().next().unwrap_or_default()
        );
    }
}
