//! The partitions of a versioned store that have a quorum while nodes are absent.

use fondaco_decisions::{Agent, AgentAction, LocalReplicas, LocalVersioned, REPORT_PROGRESS_MS};
use fondaco_model::cluster::{LostQuorum, Topology};
use fondaco_model::versioned::VersionedChange;
use fondaco_model::{NodeId, PartitionSet};

use crate::fixture::{Cluster, add, announcement, at_a_time, name, node};

fn create(cluster: &mut Cluster, change: &VersionedChange) {
    cluster.define_versioned("v", change).unwrap();
}

fn lost(cluster: &Cluster) -> LostQuorum {
    let topology = Topology::of(&cluster.view).unwrap();
    topology.lost_quorum(&topology.stores["v"])
}

/// How many partitions are without a read quorum, and without a write quorum.
fn lost_counts(cluster: &Cluster) -> (usize, usize) {
    let lost = lost(cluster);
    (lost.reads.len(), lost.writes.len())
}

#[test]
fn a_partition_has_a_quorum_while_enough_replicas_are_live() {
    let mut cluster = Cluster::of(4, 16, 3);
    create(&mut cluster, &VersionedChange::default());
    assert!(lost(&cluster).is_empty());
    cluster.leave(1);
    assert!(lost(&cluster).is_empty(), "two of three are left of each");
    cluster.leave(2);
    let table = cluster.table();
    let both = |nodes: &&Vec<_>| nodes[..3].contains(&node(1)) && nodes[..3].contains(&node(2));
    let expected = table.all_owners().iter().filter(both).count();
    assert!(expected > 0 && expected < 16);
    assert_eq!(lost_counts(&cluster), (expected, expected));
    cluster.announce(announcement(1));
    assert!(lost(&cluster).is_empty(), "it came back");
}

#[test]
fn a_write_needs_a_read_quorum_unless_quorums_are_sloppy() {
    let mut cluster = Cluster::of(3, 8, 3);
    let change = VersionedChange {
        reads: Some(3),
        writes: Some(1),
        ..VersionedChange::default()
    };
    create(&mut cluster, &change);
    cluster.leave(3);
    assert_eq!(lost_counts(&cluster), (8, 8));
    cluster.change_store("v", |store| {
        store.definition.versioned.as_mut().unwrap().sloppy = true;
    });
    assert_eq!(lost_counts(&cluster), (8, 0));
}

#[test]
fn hints_count_for_sloppy_writes_after_one_live_replica() {
    let mut cluster = Cluster::of(5, 16, 3);
    let change = VersionedChange {
        sloppy: Some(true),
        ..VersionedChange::default()
    };
    create(&mut cluster, &change);
    cluster.leave(1);
    cluster.leave(2);
    let table = cluster.table().clone();
    let both = |nodes: &&Vec<_>| nodes[..3].contains(&node(1)) && nodes[..3].contains(&node(2));
    assert_eq!(
        lost_counts(&cluster),
        (table.all_owners().iter().filter(both).count(), 0)
    );
    cluster.leave(3);
    let all = |nodes: &&Vec<NodeId>| nodes[..3].iter().all(|owner| owner.get() <= 3);
    assert_eq!(lost_counts(&cluster).1, table.all_owners().iter().filter(all).count());
}

#[test]
fn zones_that_must_answer_are_part_of_a_quorum() {
    let mut cluster = Cluster::in_two_zones(4, 8, 4, 4);
    let change = VersionedChange {
        zone_writes: Some(1),
        ..VersionedChange::default()
    };
    create(&mut cluster, &change);
    assert!(lost(&cluster).is_empty());
    cluster.leave(4);
    assert_eq!(lost_counts(&cluster), (0, 8), "three of four, but none in another zone");
}

#[test]
fn the_next_owners_of_a_plan_need_a_write_quorum() {
    let mut cluster = Cluster::of(3, 16, 1);
    create(&mut cluster, &VersionedChange::default());
    cluster.announce(announcement(4));
    cluster.settle();
    cluster.run(&at_a_time(3, add(4)));
    assert!(lost(&cluster).is_empty());
    cluster.leave(4);
    assert_eq!(lost_counts(&cluster), (0, 3));
}

#[test]
fn a_batch_store_needs_a_live_replica_of_each_partition() {
    let mut cluster = Cluster::with_store(2, 8, 1, "v");
    cluster.create("empty");
    cluster.pushed(2, "v", "build");
    assert!(lost(&cluster).is_empty());
    cluster.leave(1);
    assert_eq!(lost_counts(&cluster), (4, 0));
    let topology = Topology::of(&cluster.view).unwrap();
    let stores: Vec<_> = topology.lost_quorums().into_iter().map(|(name, _)| name).collect();
    assert_eq!(stores, [&name("v")]);
}

#[test]
fn partitions_of_absent_or_late_nodes_have_too_few_ready_replicas() {
    let mut cluster = Cluster::with_store(4, 16, 2, "v");
    cluster.pushed(4, "v", "build");
    let short = |cluster: &Cluster| Topology::of(&cluster.view).unwrap().short_partitions();
    assert!(short(&cluster).is_empty());
    let owned = cluster.table().owned(2);
    cluster.change_store("v", |store| store.late = [node(1)].into());
    assert_eq!(short(&cluster), owned[&node(1)]);
    cluster.leave(2);
    assert_eq!(short(&cluster), owned[&node(1)].with(&owned[&node(2)]));
    cluster.change_store("v", |store| store.definition.everywhere = true);
    assert_eq!(short(&cluster).len(), 16);
}

#[test]
fn a_node_reports_its_number_of_keys_rounded() {
    let mut cluster = Cluster::of(1, 8, 1);
    create(&mut cluster, &VersionedChange::default());
    let id = cluster.store("v").id;
    let mut agent = Agent::new(node(1));
    let mut report = |keys: u64, at_ms: u64| {
        let mut local = LocalReplicas::default();
        let store = LocalVersioned {
            id,
            partitions: cluster.view.partitions().unwrap(),
            synchronised: PartitionSet::EMPTY,
            held: 8,
            keys,
            bytes: 0,
        };
        local.versioned.insert(name("v"), store);
        let actions = agent.decide(&cluster.view, &local, at_ms);
        let report = actions.into_iter().find_map(|action| match action {
            AgentAction::Report(report) => Some(report),
            _ => None,
        });
        report.map(|report| report.stores["v"].keys)
    };
    assert_eq!(report(0, 0), Some(0));
    assert_eq!(report(999, 1), None, "soon enough");
    assert_eq!(report(999, REPORT_PROGRESS_MS), Some(999));
    assert_eq!(report(123_456, 2 * REPORT_PROGRESS_MS), Some(123_000));
    assert_eq!(report(123_999, 3 * REPORT_PROGRESS_MS), None, "not even a hundredth");
    assert_eq!(report(124_000, 4 * REPORT_PROGRESS_MS), Some(124_000));
}
