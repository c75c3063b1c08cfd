//! Plans are made, run in waves, paused, cancelled and ended.

use fondaco_model::cluster::operator::{self, MoveCosts, OperatorError, PlanRequest};
use fondaco_model::cluster::{NodeMark, PLANS_KEPT, PlanState, RecordPath, ReplicaReport, ReplicaState};
use fondaco_model::{EVERYWHERE, Move, NodeId, PartitionId, PartitionSet, StoreName};

use super::fixture::{Cluster, announcement, name, node, version};

/// Node 4 gets its share, by so many moves at a time.
fn add_four(moves_per_node: u32) -> PlanRequest {
    PlanRequest {
        add: [node(4)].into(),
        moves_per_node: Some(moves_per_node),
        ..PlanRequest::default()
    }
}

fn reported(cluster: &mut Cluster, numbers: impl IntoIterator<Item = u32>, number: u64, lacking: &PartitionSet) {
    for node in numbers {
        let replica = ReplicaReport {
            lacking: lacking.clone(),
            ..ReplicaReport::of(ReplicaState::Ready)
        };
        cluster.report(node, "s", version(number), replica);
    }
}

fn begun(cluster: &Cluster) -> PartitionSet {
    cluster.table().begun().map(|(partition, ..)| partition).collect()
}

fn switched(cluster: &Cluster) -> PartitionSet {
    let moving: PartitionSet = cluster.table().moves().keys().copied().collect();
    moving.without(&begun(cluster))
}

fn state(cluster: &Cluster, number: u64) -> PlanState {
    cluster.view.plans[&number].record.state
}

/// All nodes report under the present table, and have everything.
fn all_report(cluster: &mut Cluster) {
    for number in [1, 2] {
        reported(cluster, 1..=4, number, &PartitionSet::EMPTY);
    }
}

fn three_nodes_with_one_more() -> Cluster {
    let mut cluster = Cluster::with_store(3, 16, 2);
    cluster.pushed(3, "s", "a");
    cluster.pushed(3, "s", "b");
    cluster.announce(announcement(4));
    cluster.settle();
    cluster
}

#[test]
fn each_partition_switches_when_its_own_data_is_there() {
    let mut cluster = three_nodes_with_one_more();
    cluster.run(&add_four(100));
    let all = begun(&cluster);
    assert_eq!(all.len(), 8);
    let (first, others) = (all.iter().next().unwrap(), all.iter().skip(1).collect::<PartitionSet>());
    for number in [1, 2] {
        reported(&mut cluster, 1..=3, number, &PartitionSet::EMPTY);
    }
    reported(&mut cluster, [4], 2, &others);
    cluster.wait(60_000);
    assert_eq!(begun(&cluster), all, "the version for rollback is missing");
    reported(&mut cluster, [4], 1, &others);
    cluster.settle();
    assert_eq!(
        (begun(&cluster), switched(&cluster)),
        (others, [first].into_iter().collect())
    );
    assert!(cluster.table().owners(first).contains(&node(4)));
}

#[test]
fn a_node_has_a_store_everywhere_whole_before_it_owns() {
    let mut cluster = three_nodes_with_one_more();
    cluster.change_store("s", |store| store.definition.everywhere = true);
    let plan = cluster.run(&add_four(1));
    let moving = begun(&cluster);
    let planned = cluster.view.plans[&plan].record.next.clone();
    let mut others = cluster.table().partitions().partitions();
    let other = others
        .find(|partition| !planned.contains_key(partition))
        .into_iter()
        .collect();
    for number in [1, 2] {
        reported(&mut cluster, 1..=3, number, &PartitionSet::EMPTY);
        reported(&mut cluster, [4], number, &other);
    }
    cluster.wait(60_000);
    assert_eq!(begun(&cluster), moving, "a partition that does not move is missing");
    let [owned, planned] = [
        cluster.table().owned(EVERYWHERE as usize),
        cluster.table().to_be_owned(EVERYWHERE as usize),
    ];
    assert_eq!(
        (owned.len(), owned[&node(1)].len(), planned[&node(4)].len()),
        (3, 16, 16)
    );
    all_report(&mut cluster);
    cluster.settle();
    assert!(cluster.table().owned(EVERYWHERE as usize).contains_key(&node(4)));

    // A partition that nobody has any more holds up no other, once the node owns any.
    while state(&cluster, plan) == PlanState::Running {
        let before = (cluster.table().epoch(), begun(&cluster));
        for number in [1, 2] {
            reported(&mut cluster, 1..=4, number, &other);
        }
        cluster.settle();
        let after = (cluster.table().epoch(), begun(&cluster));
        assert!(
            after != before || state(&cluster, plan) == PlanState::Done,
            "the plan stands still"
        );
    }
}

#[test]
fn moves_of_a_plan_are_made_in_waves() {
    let mut cluster = three_nodes_with_one_more();
    let number = cluster.run(&add_four(2));
    let mut waves = 0;
    while state(&cluster, number) == PlanState::Running {
        let moving = begun(&cluster);
        assert!(moving.len() <= 2, "{moving}");
        all_report(&mut cluster);
        // It switches, is finished once all know of it, and the next wave begins.
        cluster.settle();
        waves += usize::from(!moving.is_empty());
    }
    assert_eq!(state(&cluster, number), PlanState::Done);
    assert_eq!(waves, 4, "8 partitions, 2 at a time");
    let held = cluster
        .table()
        .all_owners()
        .iter()
        .flatten()
        .filter(|&&owner| owner == node(4));
    assert_eq!(held.count(), 8);
    assert!(!cluster.table().is_moving());
}

#[test]
fn a_move_ends_when_live_former_owners_know_the_switch() {
    let mut cluster = three_nodes_with_one_more();
    cluster.run(&add_four(1));
    all_report(&mut cluster);
    cluster.settle();
    let (partition, former) = cluster
        .table()
        .changes()
        .next()
        .map(|(id, former)| (id, former.to_vec()))
        .unwrap();
    let owners = cluster.table().owners(partition).to_vec();
    let gone: Vec<NodeId> = former.iter().copied().filter(|node| !owners.contains(node)).collect();
    assert_eq!(gone.len(), 1);
    let epoch = cluster.table().epoch();
    for other in former.iter().filter(|node| **node != gone[0]) {
        reported(&mut cluster, [other.get()], 2, &PartitionSet::EMPTY);
    }
    cluster.wait(60_000);
    assert_eq!(
        cluster.table().epoch(),
        epoch,
        "{gone:?} may answer readers with an earlier table"
    );
    cluster.leave(gone[0].get());
    cluster.settle();
    assert!(cluster.table().joint(partition).is_none());
}

#[test]
fn a_switch_depends_on_all_stores() {
    let mut cluster = three_nodes_with_one_more();
    cluster.create("t");
    cluster.run(&add_four(1));
    all_report(&mut cluster);
    let changes = cluster.decide();
    let stores = ["s", "t"].map(|name| RecordPath::Store(name.parse::<StoreName>().unwrap()));
    let unchanged: Vec<_> = changes[0].unchanged.iter().map(|(path, _)| path.clone()).collect();
    assert!(stores.iter().all(|store| unchanged.contains(store)), "{changes:?}");
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(1));
    assert!(!cluster.apply(&changes[0]), "a store has changed since");
}

#[test]
fn a_plan_does_not_make_complete_nodes_late() {
    let mut cluster = three_nodes_with_one_more();
    cluster.run(&add_four(1));
    cluster.ready(1..=3, "s", version(2));
    cluster.settle();
    assert!(cluster.store("s").late.is_empty());
}

#[test]
fn a_paused_plan_begins_nothing_and_completes_what_it_began() {
    let mut cluster = three_nodes_with_one_more();
    let number = cluster.run(&add_four(1));
    let change = operator::pause_plan(&cluster.view, number, true).unwrap();
    assert!(cluster.apply(&change));
    for _ in 0..3 {
        all_report(&mut cluster);
        cluster.settle();
    }
    assert!(!cluster.table().is_moving());
    assert_eq!(state(&cluster, number), PlanState::Paused);
    let change = operator::pause_plan(&cluster.view, number, false).unwrap();
    assert!(cluster.apply(&change));
    cluster.settle();
    assert_eq!(begun(&cluster).len(), 1);
}

#[test]
fn a_cancelled_plan_ends_what_began_and_finishes_what_switched() {
    let mut cluster = three_nodes_with_one_more();
    let number = cluster.run(&add_four(2));
    let all = begun(&cluster);
    let second = all.iter().nth(1).into_iter().collect();
    for number in [1, 2] {
        reported(&mut cluster, 1..=3, number, &PartitionSet::EMPTY);
        reported(&mut cluster, [4], number, &second);
    }
    cluster.settle();
    assert_eq!(switched(&cluster).len(), 1);
    let cancel = operator::cancel_plan(&cluster.view, None, 10).unwrap();
    assert!(cluster.apply(&cancel));
    assert_eq!(begun(&cluster), PartitionSet::EMPTY);
    all_report(&mut cluster);
    cluster.settle();
    assert!(!cluster.table().is_moving());
    assert_eq!(state(&cluster, number), PlanState::Cancelled);
    assert_eq!(
        operator::cancel_plan(&cluster.view, None, 10),
        Err(OperatorError::NoPlan)
    );
    let held = cluster
        .table()
        .all_owners()
        .iter()
        .flatten()
        .filter(|&&owner| owner == node(4));
    assert_eq!(held.count(), 1);
}

#[test]
fn moves_to_absent_or_failing_nodes_are_given_up() {
    for is_absent in [true, false] {
        let mut cluster = three_nodes_with_one_more();
        let number = cluster.run(&add_four(2));
        let first = begun(&cluster);
        if is_absent {
            cluster.leave(4);
            cluster.wait(610_000);
        } else {
            let replica = ReplicaReport {
                lacking: first.clone(),
                gave_up: true,
                error: Some("the disk is full".to_owned()),
                ..ReplicaReport::of(ReplicaState::Ready)
            };
            cluster.report(4, "s", version(2), replica);
            cluster.settle();
        }
        let plan = &cluster.view.plans[&number].record;
        let given_up: PartitionSet = plan.given_up.keys().copied().collect();
        assert!(given_up.covers(&first), "{plan:?}");
        let reason = plan.given_up.values().next().unwrap();
        let expected = if is_absent { "absent" } else { "the disk is full" };
        assert!(reason.contains(expected), "{reason}");
        assert!(!begun(&cluster).iter().any(|partition| first.contains(partition)));
    }
}

#[test]
fn a_plan_whose_only_receiver_is_absent_ends() {
    let mut cluster = three_nodes_with_one_more();
    let number = cluster.run(&add_four(1));
    cluster.leave(4);
    cluster.wait(610_000);
    let plan = &cluster.view.plans[&number].record;
    assert_eq!((plan.state, plan.given_up.len()), (PlanState::Done, 8), "{plan:?}");
    assert!(!cluster.table().is_moving());
}

#[test]
fn a_plan_does_not_wait_for_an_absent_owner_that_stays() {
    let mut cluster = three_nodes_with_one_more();
    let number = cluster.run(&add_four(100));
    let moves = begun(&cluster);
    cluster.leave(3);
    let goes_on = |cluster: &mut Cluster| {
        for number in [1, 2] {
            reported(cluster, [1, 2, 4], number, &PartitionSet::EMPTY);
        }
        cluster.settle();
    };
    goes_on(&mut cluster);
    assert!(!begun(&cluster).is_empty(), "it may come back");
    cluster.wait(610_000);
    (0..3).for_each(|_| goes_on(&mut cluster));
    let plan = &cluster.view.plans[&number].record;
    assert_eq!((plan.state, plan.given_up.len()), (PlanState::Done, 0), "{plan:?}");
    assert!(
        moves
            .iter()
            .all(|partition| cluster.table().owners(partition).contains(&node(4)))
    );
}

#[test]
fn a_store_with_fewer_replicas_does_not_go_to_an_absent_node() {
    let mut cluster = three_nodes_with_one_more();
    cluster.change_store("s", |store| store.definition.replicas = Some(1));
    let partition = PartitionId::new(5);
    let [first, second] = cluster.table().owners(partition)[..] else {
        panic!("two replicas");
    };
    // The second owner becomes the first one, which has the store.
    let by_hand = PlanRequest {
        moves: vec![Move {
            partition,
            from: Some(first),
            to: Some(node(4)),
        }],
        ..PlanRequest::default()
    };
    let number = cluster.run(&by_hand);
    let plan = cluster.view.plans.get_mut(&number).unwrap();
    plan.record.next.insert(partition, vec![second, node(4)]);
    cluster.settle();
    cluster.leave(second.get());
    cluster.wait(610_000);
    for _ in 0..3 {
        let there = (1..=4).filter(|&number| node(number) != second);
        for version in [1, 2] {
            reported(&mut cluster, there.clone(), version, &PartitionSet::EMPTY);
        }
        cluster.settle();
    }
    assert_eq!(cluster.table().owners(partition)[0], first);
    let plan = &cluster.view.plans[&number].record;
    assert_eq!(plan.state, PlanState::Done);
    assert!(plan.given_up[&partition].contains("absent"), "{plan:?}");
}

#[test]
fn a_partition_is_moved_by_hand_and_stays_there() {
    let mut cluster = three_nodes_with_one_more();
    let partition = PartitionId::new(5);
    let from = cluster.table().owners(partition)[0];
    let one = Move {
        partition,
        from: Some(from),
        to: Some(node(4)),
    };
    let by_hand = PlanRequest {
        moves: vec![one],
        ..PlanRequest::default()
    };
    let number = cluster.run(&by_hand);
    assert_eq!(cluster.view.plans[&number].record.cost.bytes, 100);
    for _ in 0..3 {
        all_report(&mut cluster);
        cluster.settle();
    }
    assert_eq!(state(&cluster, number), PlanState::Done);
    assert_eq!(cluster.table().owners(partition)[0], node(4));
    assert_eq!(
        cluster.propose(&by_hand),
        Err(OperatorError::ImpossibleMove { one }),
        "it has moved already"
    );
    assert_eq!(
        cluster.propose(&PlanRequest::default()),
        Err(OperatorError::NothingToMove)
    );
}

#[test]
fn a_plan_costs_time_by_the_lower_rate_and_bytes_between_zones() {
    let mut cluster = three_nodes_with_one_more();
    let by_hand = |partition: u32| PlanRequest {
        moves: vec![Move {
            partition: PartitionId::new(partition),
            from: Some(cluster.table().owners(PartitionId::new(partition))[0]),
            to: Some(node(4)),
        }],
        ..PlanRequest::default()
    };
    let request = by_hand(5);
    let cost = |cluster: &Cluster, rates: [u64; 2]| {
        let costs = MoveCosts {
            bytes: &|_| 1_000,
            rates,
        };
        operator::propose_plan(&cluster.view, &request, &costs, 9)
            .unwrap()
            .0
            .cost
    };
    for (rates, seconds) in [
        ([0, 0], 1),
        ([100, 0], 10),
        ([0, 50], 20),
        ([100, 50], 20),
        ([10, 50], 100),
    ] {
        assert_eq!(cost(&cluster, rates).seconds, seconds, "{rates:?}");
    }
    assert_eq!(cost(&cluster, [0, 0]).bytes_between_zones, 0);
    cluster.view.nodes.get_mut(&node(4)).unwrap().record.zone = "far".to_owned();
    assert_eq!(cost(&cluster, [0, 0]).bytes_between_zones, 1_000);
}

#[test]
fn nodes_that_are_removed_leave_unless_the_plan_is_cancelled() {
    let mut cluster = Cluster::of(3, 16, 2);
    let remove = PlanRequest {
        remove: [node(1)].into(),
        ..PlanRequest::default()
    };
    cluster.run(&remove);
    let mark = |cluster: &Cluster| cluster.view.nodes[&node(1)].record.mark;
    assert_eq!(mark(&cluster), Some(NodeMark::Leaving));
    let cancel = operator::cancel_plan(&cluster.view, None, 10).unwrap();
    assert!(cluster.apply(&cancel));
    assert_eq!(mark(&cluster), None);
}

#[test]
fn plans_run_one_at_a_time_and_must_be_possible() {
    let mut cluster = three_nodes_with_one_more();
    let request = |number: u32| PlanRequest {
        add: [node(number)].into(),
        ..PlanRequest::default()
    };
    assert_eq!(
        cluster.propose(&request(9)),
        Err(OperatorError::NodeNotFound { node: node(9) })
    );
    cluster.leave(4);
    assert_eq!(
        cluster.propose(&request(4)),
        Err(OperatorError::NodeAbsent { node: node(4) })
    );
    cluster.announce(announcement(4));
    let everybody = PlanRequest {
        remove: (1..=4).map(node).collect(),
        ..PlanRequest::default()
    };
    assert!(matches!(cluster.propose(&everybody), Err(OperatorError::Placement(_))));
    let number = cluster.run(&add_four(1));
    let second = cluster.propose(&request(4)).unwrap();
    let refused = operator::run_plan(&cluster.view, second);
    assert_eq!(refused, Err(OperatorError::PlanInProgress { number }));
    let cancel = operator::cancel_plan(&cluster.view, Some(number), 10).unwrap();
    assert!(cluster.apply(&cancel));
    cluster.run(&add_four(1));
    all_report(&mut cluster);
    cluster.settle();
    let cancel = operator::cancel_plan(&cluster.view, None, 10).unwrap();
    assert!(cluster.apply(&cancel));
    let refused = operator::run_plan(&cluster.view, number);
    assert!(
        matches!(refused, Err(OperatorError::PlanState { state: "cancelled", .. })),
        "{refused:?}"
    );
}

/// Node 3 has left, and its partitions with it.
fn three_nodes_of_which_one_was_drained() -> Cluster {
    let mut cluster = Cluster::of(3, 16, 1);
    let remove = PlanRequest {
        remove: [node(3)].into(),
        moves_per_node: Some(100),
        ..PlanRequest::default()
    };
    let number = cluster.run(&remove);
    (1..=3).for_each(|number| cluster.knows(number));
    cluster.settle();
    assert_eq!(state(&cluster, number), PlanState::Done);
    cluster
}

fn mark(cluster: &Cluster, number: u32) -> Option<NodeMark> {
    cluster.view.nodes[&node(number)].record.mark
}

#[test]
fn a_drained_node_that_gets_partitions_stays() {
    let mut cluster = three_nodes_of_which_one_was_drained();
    assert_eq!(mark(&cluster, 3), Some(NodeMark::Leaving));
    cluster.run(&PlanRequest {
        add: [node(3)].into(),
        ..PlanRequest::default()
    });
    assert_eq!(mark(&cluster, 3), None);
}

#[test]
fn the_drain_of_a_node_is_cancelled_with_its_plan() {
    let mut cluster = Cluster::with_store(3, 16, 1);
    cluster.pushed(3, "s", "a");
    let number = cluster.run(&PlanRequest {
        remove: [node(3)].into(),
        ..PlanRequest::default()
    });
    assert!(!begun(&cluster).is_empty());
    let change = operator::mark_node(&cluster.view, node(3), None, 10).unwrap();
    assert!(cluster.apply(&change));
    cluster.settle();
    assert_eq!(
        (state(&cluster, number), mark(&cluster, 3)),
        (PlanState::Cancelled, None)
    );
    assert!(!cluster.table().is_moving());

    let mut drained = three_nodes_of_which_one_was_drained();
    let change = operator::mark_node(&drained.view, node(3), None, 10).unwrap();
    assert!(drained.apply(&change));
    assert_eq!(mark(&drained, 3), None);
}

#[test]
fn a_node_that_returns_before_anything_has_moved_is_not_replaced() {
    let replaced = |returns_after_a_move: bool| {
        let mut cluster = three_nodes_with_one_more();
        cluster.leave(3);
        let lost = PlanRequest {
            add: [node(4)].into(),
            remove: [node(3)].into(),
            ..PlanRequest::default()
        };
        let costs = MoveCosts {
            bytes: &|_| 0,
            rates: [0, 0],
        };
        let next = operator::propose_plan(&cluster.view, &lost, &costs, 9).unwrap().0.next;
        let wanted = operator::AnalyzerPlan {
            next: &next,
            leaving: &lost.remove,
            reason: "node 3 is absent".to_owned(),
            runs: true,
        };
        let change = operator::analyzer_plan(&cluster.view, &wanted, &costs, 10).unwrap();
        assert!(cluster.apply(&change));
        cluster.settle();
        assert!(!begun(&cluster).is_empty());
        assert_eq!(mark(&cluster, 3), Some(NodeMark::Leaving));
        if returns_after_a_move {
            for number in [1, 2] {
                reported(&mut cluster, [1, 2, 4], number, &PartitionSet::EMPTY);
            }
            cluster.settle();
        }
        cluster.announce(announcement(3));
        cluster.settle();
        let plan = cluster.view.plans.keys().last().copied().unwrap();
        (state(&cluster, plan), mark(&cluster, 3))
    };
    assert_eq!(replaced(false), (PlanState::Cancelled, None));
    assert_eq!(replaced(true), (PlanState::Running, Some(NodeMark::Leaving)));
}

#[test]
fn a_replaced_proposal_stays_in_the_list_for_a_while() {
    let mut cluster = three_nodes_with_one_more();
    let first = cluster.propose(&add_four(1)).unwrap();
    let second = cluster.propose(&add_four(2)).unwrap();
    assert_eq!(state(&cluster, first), PlanState::Replaced);
    assert_eq!(state(&cluster, second), PlanState::Proposed);
    let refused = operator::run_plan(&cluster.view, first).unwrap_err();
    assert!(matches!(refused, OperatorError::PlanState { state: "replaced", .. }));
    for _ in 0..30 {
        cluster.propose(&add_four(1)).unwrap();
    }
    assert!(!cluster.view.plans.contains_key(&first), "they are not kept for ever");
    let kept = cluster.view.plans.values();
    let replaced = kept.filter(|plan| plan.record.state == PlanState::Replaced).count();
    assert_eq!(replaced, 8);
}

#[test]
fn a_node_is_forgotten_when_it_is_drained_and_stopped() {
    let mut cluster = three_nodes_of_which_one_was_drained();
    let refused = |cluster: &Cluster, number| operator::forget_node(&cluster.view, node(number)).unwrap_err();
    let listed = |cluster: &Cluster| cluster.view.listed_nodes().count();
    assert!(refused(&cluster, 3).to_string().contains("is live"));
    cluster.leave(3);
    cluster.leave(2);
    assert!(refused(&cluster, 2).to_string().contains("has partitions"));
    let change = operator::forget_node(&cluster.view, node(3)).unwrap();
    assert!(cluster.apply(&change));
    assert_eq!(listed(&cluster), 2);
    // Its number is not given to another node, and it is listed when it comes back.
    cluster.announce(announcement(3));
    cluster.settle();
    assert_eq!((listed(&cluster), mark(&cluster, 3)), (3, Some(NodeMark::Leaving)));
}

/// Node 4 replaces node 3, which is absent. Node 4 has store `t`, and could not fetch `s`.
pub fn replaced_without_a_store(replicas: u32, gave_up: bool) -> (Cluster, u64, PartitionSet) {
    let mut cluster = Cluster::of(3, 16, replicas);
    for store in ["s", "t"] {
        cluster.create(store);
        cluster.pushed(3, store, store);
    }
    cluster.announce(announcement(4));
    cluster.leave(3);
    cluster.wait(20_000);
    let table = cluster.table();
    let lost = table.owned(replicas as usize)[&node(3)].clone();
    let moves = lost.iter().map(|partition| Move {
        partition,
        from: Some(node(3)),
        to: Some(node(4)),
    });
    let number = cluster.run(&PlanRequest {
        moves: moves.collect(),
        moves_per_node: Some(100),
        ..PlanRequest::default()
    });
    assert_eq!(begun(&cluster), lost);
    let replica = |lacking: &PartitionSet, error: Option<&str>| ReplicaReport {
        lacking: lacking.clone(),
        gave_up: gave_up && error.is_some(),
        error: error.map(str::to_owned),
        ..ReplicaReport::of(ReplicaState::Ready)
    };
    for store in ["s", "t"] {
        cluster.ready([1, 2], store, version(1));
    }
    cluster.report(4, "t", version(1), replica(&PartitionSet::EMPTY, None));
    cluster.report(4, "s", version(1), replica(&lost, None));
    cluster.settle();
    assert_eq!(begun(&cluster), lost, "it may still be fetching");
    cluster.report(4, "s", version(1), replica(&lost, Some("the source is gone")));
    cluster.settle();
    (cluster, number, lost)
}

#[test]
fn a_store_that_only_a_lost_node_had_holds_up_no_other() {
    let (cluster, number, lost) = replaced_without_a_store(1, false);
    assert!(
        lost.iter()
            .all(|partition| cluster.table().owners(partition) == [node(4)])
    );
    let plan = &cluster.view.plans[&number].record;
    assert!(plan.given_up.is_empty(), "{plan:?}");
    let stuck: Vec<_> = plan.stuck.iter().collect();
    assert_eq!((stuck.len(), stuck[0].0.as_str()), (1, "s"));
    assert_eq!(stuck[0].1.partitions, lost);
    assert!(stuck[0].1.error.contains("the source is gone"), "{stuck:?}");
}

#[test]
fn a_store_that_a_live_owner_has_is_left_behind_after_all_attempts_only() {
    let (cluster, number, lost) = replaced_without_a_store(2, false);
    assert_eq!(begun(&cluster), lost);
    assert!(cluster.view.plans[&number].record.stuck.is_empty());
    let (cluster, number, lost) = replaced_without_a_store(2, true);
    assert_eq!(begun(&cluster), PartitionSet::EMPTY);
    assert!(
        lost.iter()
            .all(|partition| cluster.table().owners(partition).contains(&node(4)))
    );
    assert_eq!(cluster.view.plans[&number].record.stuck.len(), 1);
}

#[test]
fn a_plan_is_kept_as_long_as_a_store_misses_what_partitions_moved_without() {
    let (mut cluster, number, lost) = replaced_without_a_store(1, false);
    let partition = lost.iter().next().unwrap();
    let forget = |cluster: &mut Cluster| {
        for _ in 0..PLANS_KEPT + 2 {
            cluster.run(&PlanRequest {
                moves: vec![Move {
                    partition,
                    from: Some(node(4)),
                    to: Some(node(1)),
                }],
                ..PlanRequest::default()
            });
            let cancel = operator::cancel_plan(&cluster.view, None, 0).unwrap();
            assert!(cluster.apply(&cancel));
            cluster.settle();
            let plans = cluster.view.plans.values_mut();
            plans.for_each(|plan| plan.record.ended_unix_ms = Some(0));
        }
    };
    forget(&mut cluster);
    assert!(cluster.view.plans.contains_key(&number));
    assert!(
        cluster.view.plans.len() <= PLANS_KEPT + 2,
        "{}",
        cluster.view.plans.len()
    );
    assert!(cluster.apply(&operator::drop_store(&cluster.view, &name("s"), 1, 500).unwrap()));
    forget(&mut cluster);
    assert!(!cluster.view.plans.contains_key(&number));
}
