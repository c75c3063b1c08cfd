//! Stores that partitions move without, since only lost nodes have them.

use fondaco_decisions::operator::{self, PLANS_KEPT};
use fondaco_model::PartitionSet;
use fondaco_model::cluster::{ReplicaReport, ReplicaState};

use crate::fixture::{Cluster, announcement, at_a_time, by_hand, name, node, one_move, version};
use crate::plans::begun;

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
    let moves = lost.iter().map(|partition| one_move(partition, node(3), node(4)));
    let number = cluster.run(&at_a_time(100, by_hand(moves)));
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
            cluster.run(&by_hand([one_move(partition, node(4), node(1))]));
            cluster.cancel_plan();
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
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 1, 500))
        .unwrap();
    forget(&mut cluster);
    assert!(!cluster.view.plans.contains_key(&number));
}
