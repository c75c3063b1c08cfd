//! The leading controller carries out plans: in waves, until they are paused, cancelled or done.

use fondaco_decisions::RecordPath;
use fondaco_decisions::operator::{self, OperatorError, PlanRequest};
use fondaco_model::cluster::{PlanState, ReplicaReport, ReplicaState};
use fondaco_model::{EVERYWHERE, NodeId, PartitionId, PartitionSet, StoreName};

use crate::fixture::{Cluster, add, announcement, at_a_time, by_hand, node, one_move, version};

/// Node 4 gets its share, by this number of moves at a time.
pub fn add_four(moves_per_node: u32) -> PlanRequest {
    at_a_time(moves_per_node, add(4))
}

pub fn reported(cluster: &mut Cluster, numbers: impl IntoIterator<Item = u32>, number: u64, lacking: &PartitionSet) {
    for node in numbers {
        let replica = ReplicaReport {
            lacking: lacking.clone(),
            ..ReplicaReport::of(ReplicaState::Ready)
        };
        cluster.report(node, "s", version(number), replica);
    }
}

pub fn begun(cluster: &Cluster) -> PartitionSet {
    cluster.table().begun().map(|(partition, ..)| partition).collect()
}

pub fn switched(cluster: &Cluster) -> PartitionSet {
    let moving: PartitionSet = cluster.table().moves().keys().copied().collect();
    moving.without(&begun(cluster))
}

pub fn state(cluster: &Cluster, number: u64) -> PlanState {
    cluster.view.plans[&number].record.state
}

/// All nodes report under the present table, and have everything.
pub fn all_report(cluster: &mut Cluster) {
    for number in [1, 2] {
        reported(cluster, 1..=4, number, &PartitionSet::EMPTY);
    }
}

pub fn three_nodes_with_one_more() -> Cluster {
    let mut cluster = Cluster::with_store(3, 16, 2, "s");
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
    let other = others.find(|partition| !planned.contains_key(partition));
    let other = other.into_iter().collect();
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

    // A partition that no node has any more holds up no other, once the node owns any.
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
    assert_eq!(cluster.table().owned(2)[&node(4)].len(), 8);
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
    cluster
        .request(|view| operator::pause_plan(view, number, true))
        .unwrap();
    for _ in 0..3 {
        all_report(&mut cluster);
        cluster.settle();
    }
    assert!(!cluster.table().is_moving());
    assert_eq!(state(&cluster, number), PlanState::Paused);
    cluster
        .request(|view| operator::pause_plan(view, number, false))
        .unwrap();
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
    cluster.cancel_plan();
    assert_eq!(begun(&cluster), PartitionSet::EMPTY);
    all_report(&mut cluster);
    cluster.settle();
    assert!(!cluster.table().is_moving());
    assert_eq!(state(&cluster, number), PlanState::Cancelled);
    assert_eq!(
        operator::cancel_plan(&cluster.view, None, 10),
        Err(OperatorError::NoPlan)
    );
    assert_eq!(cluster.table().owned(2)[&node(4)].len(), 1);
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
    let by_hand = by_hand([one_move(partition, first, node(4))]);
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
