//! The analyzer: what is moved when nodes struggle, and what is not.

use std::collections::BTreeSet;

use fondaco_decisions::balance::{
    BalanceInput, BalanceMode, BalancePolicy, BalanceSettings, Decision, Departure, HotKey, NodeLoad, Outcome,
    PartitionState, advise, decide,
};
use fondaco_model::{PartitionId, Placement};

use crate::fixture::{self, input, load, node, says};

/// A partition with one owner.
fn partition(owner: u32, cost: f64) -> PartitionState {
    fixture::partition(&[owner], cost, 1 << 20)
}

/// Node 1 at 95 %, with ten equal partitions, and a calm node 2 with two.
pub fn one_struggles() -> BalanceInput {
    let mut partitions = vec![partition(1, 95.0); 10];
    partitions.extend(vec![partition(2, 100.0); 2]);
    input(vec![load(1, 0.95), load(2, 0.2)], partitions)
}

pub fn moved(decision: &Decision) -> Vec<(u32, u32, u32)> {
    match &decision.outcome {
        Outcome::Nothing => Vec::new(),
        Outcome::Move { moves, .. } => {
            let moves = moves
                .iter()
                .map(|one| (one.partition.get(), one.from.get(), one.to.get()));
            moves.collect()
        }
    }
}

#[test]
fn a_struggling_node_gives_partitions_to_a_calm_one() {
    let mut input = one_struggles();
    for (policy, count) in [
        (BalancePolicy::One, 1),
        (BalancePolicy::Each, 1),
        (BalancePolicy::Enough, 2),
    ] {
        input.settings.policy = policy;
        let decision = decide(&input);
        let moves = moved(&decision);
        assert_eq!(moves.len(), count, "{policy:?}: {decision:#?}");
        assert!(moves.iter().all(|&(_, from, to)| (from, to) == (1, 2)));
        assert!(says(&decision, "node 1 struggles: 95 % of its CPU"), "{decision:#?}");
        let Outcome::Move { next, moves, .. } = &decision.outcome else {
            panic!("{decision:?}")
        };
        assert!(next.values().all(|owners| *owners == [node(2)]));
        assert!((moves[0].from_level.1 - 0.855).abs() < 1e-9 && (moves[0].to_level.1 - 0.295).abs() < 1e-9);
    }
}

#[test]
fn one_of_several_struggling_nodes_is_chosen_or_each() {
    let mut partitions = vec![partition(1, 95.0); 10];
    partitions.extend(vec![partition(2, 90.0); 10]);
    partitions.push(partition(3, 10.0));
    let mut input = input(vec![load(1, 0.95), load(2, 0.90), load(3, 0.01)], partitions);
    input.settings.policy = BalancePolicy::Each;
    let from = |input: &BalanceInput| {
        moved(&decide(input))
            .into_iter()
            .map(|(_, from, _)| from)
            .collect::<Vec<_>>()
    };
    assert_eq!(from(&input), [1, 2]);
    input.settings.policy = BalancePolicy::One;
    let chosen: BTreeSet<Vec<u32>> = (1..20)
        .map(|number| {
            input.number = number;
            from(&input)
        })
        .collect();
    assert_eq!(chosen, [vec![1], vec![2]].into());
}

#[test]
fn nothing_moves_without_a_reason() {
    let nothing = |change: fn(&mut BalanceInput), reason: &str| {
        let mut input = one_struggles();
        change(&mut input);
        let decision = decide(&input);
        assert_eq!(decision.outcome, Outcome::Nothing, "{reason}: {decision:#?}");
        assert!(says(&decision, reason), "{reason}: {decision:#?}");
    };
    nothing(|input| input.nodes[0].cpu.0 = 0.83, "none of 2 nodes struggles");
    nothing(|input| input.plan = Some(7), "plan 7 is under way");
    nothing(
        |input| input.moved_unix_ms = Some(input.at_unix_ms - 1_000),
        "a short time ago",
    );
    nothing(|input| input.settings.mode = BalanceMode::Off, "off");
    nothing(|input| input.nodes[1].live = false, "no move would help");
    nothing(|input| input.nodes[1].known = false, "no move would help");
    nothing(|input| input.nodes[1].maintenance = true, "no move would help");
    nothing(|input| input.nodes[1].backup = true, "no move would help");
    nothing(|input| input.nodes[1].cpu.0 = 0.75, "the whole cluster is at its limit");
    nothing(|input| input.nodes[1].disk = (79, 100), "no move would help");
    nothing(
        |input| input.nodes.iter_mut().for_each(|node| node.known = false),
        "no node has reported",
    );
}

#[test]
fn what_moving_cannot_change_is_reported() {
    // One partition has it all.
    let partitions = vec![partition(1, 950.0), partition(2, 10.0)];
    let mut input = input(vec![load(1, 0.95), load(2, 0.1)], partitions);
    let decision = decide(&input);
    assert_eq!(moved(&decision), []);
    assert!(
        says(
            &decision,
            "partition 0 alone makes up 100 % of what node 1 uses of its CPU"
        ) && says(&decision, "split"),
        "{decision:#?}"
    );
    // And one key of it has most.
    input.hot_keys.push(HotKey {
        store: "s".parse().unwrap(),
        key: "k".to_owned(),
        partition: PartitionId::new(0),
        requests: 900.0,
    });
    let decision = decide(&input);
    assert!(says(&decision, "s:k") && says(&decision, "routers"), "{decision:#?}");
}

#[test]
fn a_cluster_whose_nodes_are_all_over_their_limit_lacks_nodes() {
    // One partition of three makes up more than a third of the limit of each node.
    let partitions = (0..6).map(|at| partition(at % 2 + 1, if at < 2 { 500.0 } else { 230.0 }));
    let full = input(vec![load(1, 0.95), load(2, 0.9)], partitions.collect());
    let decision = decide(&full);
    assert_eq!(moved(&decision), []);
    let [advice] = &decision.advice[..] else {
        panic!("one problem: {decision:#?}")
    };
    let problem = "the whole cluster is at its limit: 92 % of its CPU are used, and 2 of 2 nodes use more than 84 %";
    assert_eq!(advice.problem, problem);
    assert!(advice.help.starts_with("add nodes: "), "{}", advice.help);
    assert!(!says(&decision, "partition 0"), "{decision:#?}");
    assert_eq!(advise(&full, &Default::default()).first(), Some(advice));
}

#[test]
fn a_new_node_gets_its_share_although_a_node_struggles() {
    let partitions = (0..12).map(|at| partition(at % 2 + 1, 80.0)).collect();
    let mut input = input(vec![load(1, 0.9), load(2, 0.5), load(3, 0.0)], partitions);
    input.partitions[0].costs = vec![500.0];
    let decision = decide(&input);
    let Outcome::Move { next, .. } = &decision.outcome else {
        panic!("{decision:#?}")
    };
    assert_eq!(
        next.values().filter(|owners| owners[..] == [node(3)]).count(),
        4,
        "{decision:#?}"
    );
    assert!(says(&decision, "node 3 is new"), "{decision:#?}");
}

#[test]
fn a_partition_does_not_go_back_within_a_day() {
    let mut input = one_struggles();
    let day = input.settings.stay_ms;
    let left = |partition: u32, ago_ms: u64| Departure {
        partition: PartitionId::new(partition),
        node: node(2),
        at_unix_ms: 1_000_000_000 - ago_ms,
    };
    input.departures = (0..9).map(|partition| left(partition, day - 1)).collect();
    let moves = moved(&decide(&input));
    assert!(
        !moves.is_empty() && moves.iter().all(|&(partition, ..)| partition == 9),
        "{moves:?}"
    );
    input.departures = (0..10).map(|partition| left(partition, day + 1)).collect();
    assert_eq!(moved(&decide(&input)).len(), 2);
}

#[test]
fn zones_groups_and_hosts_stay_apart() {
    // Both replicas of each partition are on nodes 1 and 2; nodes 3 and 4 are calm.
    let with = |placement: Placement, change: fn(&mut Vec<NodeLoad>)| {
        let mut state = fixture::partition(&[1, 2], 1.0, 1);
        (state.requests[0], state.costs[0]) = (95.0, 95.0);
        let mut nodes = vec![load(1, 0.95), load(2, 0.1), load(3, 0.1), load(4, 0.1)];
        change(&mut nodes);
        let mut input = input(nodes, vec![state; 10]);
        (input.placement, input.replicas) = (placement, 2);
        // Node 4 has something, so that no node is new.
        input.partitions.push(fixture::partition(&[4, 3], 1.0, 1));
        let moves = moved(&decide(&input));
        moves.into_iter().map(|(_, _, to)| to).collect::<BTreeSet<_>>()
    };
    assert_eq!(with(Placement::Ring, |_| {}), [3, 4].into());
    let on_hosts: fn(&mut Vec<NodeLoad>) = |nodes| {
        let hosts = ["a", "b", "b", "c"];
        nodes
            .iter_mut()
            .zip(hosts)
            .for_each(|(node, host)| node.host = Some(host.to_owned()));
    };
    assert_eq!(
        with(Placement::Ring, on_hosts),
        [4].into(),
        "node 3 is on the machine of node 2"
    );
    let in_zones: fn(&mut Vec<NodeLoad>) = |nodes| {
        let zones = ["a", "b", "a", "b"];
        nodes
            .iter_mut()
            .zip(zones)
            .for_each(|(node, zone)| node.zone = zone.to_owned());
    };
    assert_eq!(with(Placement::Zoned, in_zones), [3].into(), "zone b has its replica");
    let in_groups: fn(&mut Vec<NodeLoad>) = |nodes| {
        let groups = ["a", "b", "a", "b"];
        nodes
            .iter_mut()
            .zip(groups)
            .for_each(|(node, group)| node.group = Some(group.to_owned()));
    };
    assert_eq!(with(Placement::Grouped, in_groups), [3].into());
    assert!(with(Placement::All, |_| {}).is_empty());
}

#[test]
fn a_node_that_claims_to_use_nothing_gets_nothing() {
    let mut partitions = vec![partition(1, 95.0); 10];
    partitions.extend([partition(2, 90.0), partition(3, 500.0)]);
    let mut input = input(vec![load(1, 0.95), load(2, 0.6), load(3, 0.5)], partitions);
    input.nodes[2].cpu.0 = 0.0;
    let decision = decide(&input);
    assert!(moved(&decision).iter().all(|&(_, _, to)| to == 2), "{decision:#?}");
    assert!(says(&decision, "node 3 claims"), "{decision:#?}");
    // Claiming no requests either does not help: its partitions are busy.
    input.nodes[2].requests = 0.0;
    let decision = decide(&input);
    assert!(moved(&decision).iter().all(|&(_, _, to)| to == 2), "{decision:#?}");
    assert!(says(&decision, "node 3 claims"), "{decision:#?}");
}

#[test]
fn members_that_leave_die_or_come_are_seen_to() {
    let states = || (0..8).map(|at| partition(at % 2 + 1, 10.0)).collect::<Vec<_>>();
    let three = |change: fn(&mut NodeLoad, &mut NodeLoad)| {
        let mut nodes = vec![load(1, 0.3), load(2, 0.3), load(3, 0.0)];
        let (first, rest) = nodes.split_at_mut(1);
        change(&mut first[0], &mut rest[1]);
        decide(&input(nodes, states()))
    };
    let held = |decision: &Decision, of: u32| match &decision.outcome {
        Outcome::Move { next, .. } => next.values().filter(|owners| owners.contains(&node(of))).count(),
        Outcome::Nothing => 0,
    };
    let new = three(|_, _| {});
    assert!(
        (2..=3).contains(&held(&new, 3)) && says(&new, "node 3 is new"),
        "{new:#?}"
    );
    let leaving = three(|first, _| first.leaving = true);
    assert!(
        says(&leaving, "node 1 leaves") && held(&leaving, 1) == 0,
        "{leaving:#?}"
    );
    let dies: fn(&mut NodeLoad, &mut NodeLoad) = |first, third| {
        (first.live, first.absent_ms, third.backup) = (false, 600_000, true);
    };
    let replaced = three(dies);
    assert!(says(&replaced, "backup node 3 replaces it"), "{replaced:#?}");
    assert_eq!(held(&replaced, 3), 4);
    let blinks = three(|first, third| {
        (first.live, first.absent_ms, third.backup) = (false, 599_999, true);
    });
    assert_eq!(blinks.outcome, Outcome::Nothing, "it may come back");
    let alone = three(|first, third| {
        (first.live, first.absent_ms) = (false, 600_000);
        third.maintenance = true;
    });
    assert!(says(&alone, "--backup"), "{alone:#?}");
}

#[test]
fn plans_are_run_only_in_their_hours() {
    let minute = |minute: u64| minute * 60_000;
    let mut settings = BalanceSettings {
        mode: BalanceMode::Act,
        ..BalanceSettings::default()
    };
    assert_eq!(settings.mode_at(minute(0)), BalanceMode::Act);
    settings.hours = (22 * 60, 6 * 60);
    let at = |hour: u64| settings.mode_at(minute(hour * 60) + 3 * 86_400_000);
    assert_eq!([21, 22, 0, 5, 6].map(at), {
        use BalanceMode::{Act, Propose};
        [Propose, Act, Act, Act, Propose]
    });
}

#[test]
fn a_decision_is_made_again_from_what_was_kept() {
    let input = one_struggles();
    let kept = serde_json::to_string(&input).unwrap();
    let again: BalanceInput = serde_json::from_str(&kept).unwrap();
    assert_eq!(decide(&again), decide(&input));
}
