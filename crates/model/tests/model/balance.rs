//! The analyzer: what is moved when nodes struggle, and what is not.

use fondaco_model::balance::{
    BalanceInput, BalanceMode, BalancePolicy, BalanceSettings, Decision, Departure, HotKey, LoadReport, LoadWindow,
    MeanLoad, NodeLoad, Outcome, PartitionState, ResourceUse, advise, decide,
};
use fondaco_model::{PartitionCount, PartitionId, Placement};

use crate::load::{input, load, node, partition, says};

/// Node 1 at 95 %, with ten equal partitions, and a calm node 2 with two.
fn one_struggles() -> BalanceInput {
    let mut partitions = vec![partition(1, 95.0); 10];
    partitions.extend(vec![partition(2, 100.0); 2]);
    input(vec![load(1, 0.95), load(2, 0.2)], partitions)
}

fn moved(decision: &Decision) -> Vec<(u32, u32, u32)> {
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
    let chosen: std::collections::BTreeSet<Vec<u32>> = (1..20)
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
        let states = vec![
            PartitionState {
                owners: vec![node(1), node(2)],
                requests: vec![95.0, 1.0],
                costs: vec![95.0, 1.0],
                bytes: 1,
            };
            10
        ];
        let mut nodes = vec![load(1, 0.95), load(2, 0.1), load(3, 0.1), load(4, 0.1)];
        change(&mut nodes);
        let mut input = input(nodes, states);
        (input.placement, input.replicas) = (placement, 2);
        // Node 4 has something, so that no node is new.
        input.partitions.push(PartitionState {
            owners: vec![node(4), node(3)],
            requests: vec![1.0, 1.0],
            costs: vec![1.0, 1.0],
            bytes: 1,
        });
        let moves = moved(&decide(&input));
        moves
            .into_iter()
            .map(|(_, _, to)| to)
            .collect::<std::collections::BTreeSet<_>>()
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
fn reports_in_any_order_and_number_lead_to_one_decision() {
    let decided = |order: &[u64]| {
        let mut window = LoadWindow::default();
        for &number in order {
            // They arrive at the times when they would have in order: what differs is which of them are late.
            window.take(report(1, number, 1.9), 20_000 + number);
        }
        let mean = window.mean(node(1), 20_100, 50_000)?;
        let mut input = one_struggles();
        input.nodes[0].cpu = (mean.resources.cpu, mean.resources.cpu_max);
        Some(moved(&decide(&input)))
    };
    let in_order = decided(&[1, 2, 3, 4, 5, 6]).expect("it can be judged");
    assert!(!in_order.is_empty());
    assert_eq!(
        decided(&[1, 1, 2, 2, 3, 1, 4, 4, 5, 2, 6]),
        Some(in_order.clone()),
        "twice and late"
    );
    assert_eq!(decided(&[1, 2, 4, 3, 5, 6, 7]), Some(in_order), "one is left out");
    assert_eq!(
        decided(&[6, 5, 4, 3, 2, 1]),
        None,
        "one report is too little to judge by"
    );
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

fn report(started: u64, number: u64, cpu: f64) -> LoadReport {
    LoadReport {
        divided: PartitionCount::ONE,
        node: node(1),
        started_unix_ms: started,
        number,
        interval_ms: 5_000,
        resources: ResourceUse {
            cpu,
            cpu_max: 2.0,
            ..ResourceUse::default()
        },
        partitions: Vec::new(),
        sizes: Vec::new(),
        stores: Vec::new(),
        hot_keys: Vec::new(),
    }
}

#[test]
fn late_repeated_and_impossible_reports_do_not_count() {
    let mut window = LoadWindow::default();
    for number in 1..=4 {
        assert!(window.take(report(1, number, 1.0), number * 5_000));
        assert!(window.mean(node(1), number * 5_000, 50_000).is_none(), "too few");
    }
    assert!(!window.take(report(1, 4, 9.0), 21_000), "sent twice");
    assert!(!window.take(report(1, 2, 9.0), 21_000), "late");
    assert!(!window.take(report(1, 5, f64::NAN), 21_000));
    assert!(!window.take(report(1, 5, -1.0), 21_000));
    assert!(window.take(report(1, 5, 2.0), 25_000));
    let mean = |window: &LoadWindow, at_ms| window.mean(node(1), at_ms, 50_000).map(|mean| mean.resources.cpu);
    assert_eq!(mean(&window, 25_000), Some(1.2));
    assert_eq!(mean(&window, 80_000), None, "they are old");
    assert!(window.take(report(2, 1, 1.0), 30_000), "its process has started again");
    assert_eq!(mean(&window, 30_000), None);
    assert!(!window.take(report(1, 6, 1.0), 31_000), "from the former process");
    assert!(
        window.take(report(1, 7, 1.0), 90_000),
        "of a process whose clock was set back"
    );
    assert!(window.take(report(1, 8, 1.0), 95_000));
}

#[test]
fn reports_of_before_a_move_are_only_shown() {
    let mut window = LoadWindow::default();
    for number in 1..=5 {
        assert!(window.take(report(1, number, 1.0), number * 5_000));
    }
    window.settle(25_000);
    assert!(window.mean(node(1), 25_000, 50_000).is_none());
    assert!(window.mean_shown(node(1), 25_000, 50_000).is_some());
    for number in 6..=10 {
        assert!(window.take(report(1, number, 2.0), number * 5_000));
    }
    let cpu = |mean: Option<MeanLoad>| mean.map(|mean| mean.resources.cpu);
    assert_eq!(cpu(window.mean(node(1), 50_000, 50_000)), Some(2.0));
    assert_eq!(cpu(window.mean_shown(node(1), 50_000, 50_000)), Some(1.5));
}
