//! Operators make plans, and mark and forget nodes.

use fondaco_decisions::operator::{self, MoveCosts, OperatorError, PlanRequest};
use fondaco_model::cluster::{NodeMark, PlanState};
use fondaco_model::{PartitionId, PartitionSet};

use crate::fixture::{Cluster, add, announcement, at_a_time, by_hand, node, one_move, remove};
use crate::plans::{add_four, all_report, begun, reported, state, three_nodes_with_one_more};

#[test]
fn a_partition_is_moved_by_hand_and_stays_there() {
    let mut cluster = three_nodes_with_one_more();
    let partition = PartitionId::new(5);
    let from = cluster.table().owners(partition)[0];
    let one = one_move(partition, from, node(4));
    let by_hand = by_hand([one]);
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
    let partition = PartitionId::new(5);
    let request = by_hand([one_move(partition, cluster.table().owners(partition)[0], node(4))]);
    let cost = |cluster: &Cluster, rates: [u64; 2]| {
        let costs = MoveCosts {
            bytes: &|_| 1_000,
            rates,
        };
        let proposed = operator::propose_plan(&cluster.view, &request, &costs, 9);
        proposed.unwrap().0.cost
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
    let remove = remove(1);
    cluster.run(&remove);
    let mark = |cluster: &Cluster| cluster.view.nodes[&node(1)].record.mark;
    assert_eq!(mark(&cluster), Some(NodeMark::Leaving));
    cluster.cancel_plan();
    assert_eq!(mark(&cluster), None);
}

#[test]
fn plans_run_one_at_a_time_and_must_be_possible() {
    let mut cluster = three_nodes_with_one_more();
    assert_eq!(
        cluster.propose(&add(9)),
        Err(OperatorError::NodeNotFound { node: node(9) })
    );
    cluster.leave(4);
    assert_eq!(
        cluster.propose(&add(4)),
        Err(OperatorError::NodeAbsent { node: node(4) })
    );
    cluster.announce(announcement(4));
    let all = PlanRequest {
        remove: (1..=4).map(node).collect(),
        ..PlanRequest::default()
    };
    assert!(matches!(cluster.propose(&all), Err(OperatorError::Placement(_))));
    let number = cluster.run(&add_four(1));
    let second = cluster.propose(&add(4)).unwrap();
    let refused = operator::run_plan(&cluster.view, second);
    assert_eq!(refused, Err(OperatorError::PlanInProgress { number }));
    cluster
        .request(|view| operator::cancel_plan(view, Some(number), 10))
        .unwrap();
    cluster.run(&add_four(1));
    all_report(&mut cluster);
    cluster.settle();
    cluster.cancel_plan();
    let refused = operator::run_plan(&cluster.view, number);
    assert!(
        matches!(refused, Err(OperatorError::PlanState { state: "cancelled", .. })),
        "{refused:?}"
    );
}

/// Node 3 has left, and its partitions with it.
fn three_nodes_with_one_drained() -> Cluster {
    let mut cluster = Cluster::of(3, 16, 1);
    let remove = at_a_time(100, remove(3));
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
    let mut cluster = three_nodes_with_one_drained();
    assert_eq!(mark(&cluster, 3), Some(NodeMark::Leaving));
    cluster.run(&add(3));
    assert_eq!(mark(&cluster, 3), None);
}

#[test]
fn the_drain_of_a_node_is_cancelled_with_its_plan() {
    let mut cluster = Cluster::with_store(3, 16, 1, "s");
    cluster.pushed(3, "s", "a");
    let number = cluster.run(&remove(3));
    assert!(!begun(&cluster).is_empty());
    cluster
        .request(|view| operator::mark_node(view, node(3), None, 10))
        .unwrap();
    cluster.settle();
    assert_eq!(
        (state(&cluster, number), mark(&cluster, 3)),
        (PlanState::Cancelled, None)
    );
    assert!(!cluster.table().is_moving());

    let mut drained = three_nodes_with_one_drained();
    drained
        .request(|view| operator::mark_node(view, node(3), None, 10))
        .unwrap();
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
    let mut cluster = three_nodes_with_one_drained();
    let refused = |cluster: &Cluster, number| operator::forget_node(&cluster.view, node(number)).unwrap_err();
    let listed = |cluster: &Cluster| cluster.view.listed_nodes().count();
    assert!(refused(&cluster, 3).to_string().contains("is live"));
    cluster.leave(3);
    cluster.leave(2);
    assert!(refused(&cluster, 2).to_string().contains("has partitions"));
    cluster.request(|view| operator::forget_node(view, node(3))).unwrap();
    assert_eq!(listed(&cluster), 2);
    // Its number is not given to another node, and it is listed when it comes back.
    cluster.announce(announcement(3));
    cluster.settle();
    assert_eq!((listed(&cluster), mark(&cluster, 3)), (3, Some(NodeMark::Leaving)));
}
