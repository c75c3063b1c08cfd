//! A thousand nodes: the load of the coordination service during a push, after the loss of the leader, and while partitions
//! move.
//!
//! The figures are printed, and bounded: no step may make all processes read data that they do not need.

use fondaco_decisions::Patience;
use fondaco_model::Placement;
use fondaco_simulation::{CoordinationCounts, Outcome, Scenario, Step, simulate};

const NODES: u64 = 1_000;

/// Steps, each with what happened before it: that is what its line of figures is about.
type Steps<'a> = [(u64, Step, &'a str)];

/// Runs these steps; prints and returns what the coordination service was asked for.
fn run(steps: &Steps<'_>, busy_ms: u64) -> (Outcome, Vec<CoordinationCounts>) {
    let scenario = Scenario {
        seed: 1,
        nodes: NODES as usize,
        nodes_later: 0,
        partitions: 4_096,
        replicas: 3,
        placement: Placement::Ring,
        controllers: 3,
        readers: 1,
        stores: 1,
        busy_ms,
        fault_every_ms: 0,
        operate_every_ms: 0,
        settle_ms: 60_000,
        snapshots: true,
        patience: Patience::default(),
        script: steps.iter().map(|&(at_ms, step, _)| (at_ms, step)).collect(),
        flaw: None,
    };
    let outcome = simulate(&scenario).unwrap_or_else(|violation| panic!("{violation}"));
    let mut before = CoordinationCounts::default();
    println!(
        "{:<52} {:>9} {:>8} {:>8} {:>13}",
        "", "reads", "writes", "watches", "notifications"
    );
    let mut of_steps = Vec::new();
    for ((_, _, what), &counts) in steps.iter().zip(&outcome.at_steps) {
        let since = counts.since(before);
        println!(
            "{what:<52} {:>9} {:>8} {:>8} {:>13}",
            since.reads, since.writes, since.watches, since.notifications
        );
        of_steps.push(since);
        before = counts;
    }
    println!("{} events, {} keys read", outcome.events, outcome.keys_read);
    (outcome, of_steps)
}

#[test]
fn a_thousand_nodes_get_a_version_and_lose_their_leader() {
    let steps = [
        (30_000, Step::Create, "1000 nodes start, and get numbers and partitions"),
        (35_000, Step::Push, "a store is created"),
        (65_000, Step::Push, "a version is pushed, and goes live"),
        (66_000, Step::EndLeader, "another push begins"),
        (
            110_000,
            Step::EndNode,
            "the leader is lost, and the next one ends the push",
        ),
        (130_000, Step::Count, "a node is lost"),
    ];
    let (outcome, of_steps) = run(&steps, 135_000);
    assert_eq!(outcome.pushes_swapped, 2);
    assert!(
        outcome.last_swap_ms > 66_000,
        "the second push was not finished when the leader ended"
    );
    let push = of_steps[2];
    assert!(push.writes < 10 * NODES, "{push:?}");
    assert!(push.reads < 40 * NODES, "{push:?}");
    let fail_over = of_steps[4];
    assert!(fail_over.watches < 10, "only one candidate is notified: {fail_over:?}");
}

/// A plan writes the routing table, which every process reads, in each wave.
#[test]
#[ignore = "takes a quarter of an hour"]
fn fifty_partitions_of_a_thousand_nodes_move() {
    let steps = [
        (30_000, Step::Create, "1000 nodes start, and get numbers and partitions"),
        (35_000, Step::Push, "a store is created"),
        (65_000, Step::Move(50), "a version is pushed, and goes live"),
        (125_000, Step::Count, "50 partitions move"),
    ];
    let (_, of_steps) = run(&steps, 130_000);
    let plan = of_steps[3];
    assert!(plan.writes < 20 * 50 + NODES, "{plan:?}");
    assert!(plan.reads < 100 * NODES, "{plan:?}");
}
