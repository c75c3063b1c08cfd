//! Nodes get their numbers, and the cluster its first routing table.

use fondaco_model::Identity;

use crate::fixture::{Cluster, announcement, node};

#[test]
fn nodes_are_numbered_as_they_come_and_keep_their_numbers() {
    let mut cluster = Cluster::of(3, 8, 2);
    let mut moved = announcement(2);
    moved.resp = "elsewhere:6500".to_owned();
    cluster.leave(2);
    cluster.wait(60_000);
    cluster.announce(announcement(9));
    cluster.announce(moved);
    cluster.settle();
    assert_eq!(cluster.view.nodes[&node(2)].record.resp, "elsewhere:6500");
    assert_eq!(cluster.view.nodes[&node(4)].record.identity, announcement(9).identity);
    assert_eq!(cluster.view.nodes.len(), 4);
}

#[test]
fn a_claimed_number_goes_to_its_owner_or_the_first() {
    let mut cluster = Cluster::of(1, 8, 1);
    let claims = |number: u32, id: u32| {
        let mut announcement = announcement(number);
        announcement.id = Some(node(id));
        announcement
    };
    cluster.announce(claims(10, 1));
    cluster.announce(claims(11, 7));
    cluster.announce(claims(12, 7));
    cluster.announce(announcement(13));
    cluster.settle();
    let identity = |number| {
        cluster
            .view
            .nodes
            .get(&node(number))
            .map(|node| node.record.identity.clone())
    };
    assert_eq!(identity(1), Some(Identity::of(1)), "the owner keeps it");
    assert_eq!(identity(7), Some(Identity::of(11)));
    assert_eq!(
        identity(8),
        Some(Identity::of(13)),
        "after all that were ever given or claimed"
    );
    assert_eq!(cluster.view.nodes.len(), 3);
}

#[test]
fn a_node_without_its_data_is_known_by_its_addresses() {
    let mut cluster = Cluster::of(3, 8, 2);
    let mut new = announcement(3);
    new.identity = Identity::of(99);
    cluster.announce(new.clone());
    cluster.settle();
    cluster.wait(60_000);
    assert_eq!(cluster.view.nodes.len(), 3, "it waits as long as the old one is there");
    let problems = cluster.controller.problems();
    assert!(problems[0].contains("host3:6500"), "{problems:?}");
    cluster.leave(3);
    cluster.wait(9_000);
    assert_eq!(cluster.view.nodes[&node(3)].record.identity, Identity::of(3));
    cluster.wait(2_000);
    assert_eq!(cluster.view.nodes[&node(3)].record.identity, Identity::of(99));
    assert_eq!(cluster.view.nodes.len(), 3);
}

#[test]
fn the_first_routing_table_waits_for_enough_live_nodes() {
    let mut cluster = Cluster::empty(3, 8, 2);
    (1..=2).for_each(|number| cluster.announce(announcement(number)));
    cluster.settle();
    cluster.leave(2);
    cluster.announce(announcement(3));
    cluster.settle();
    assert_eq!(cluster.view.nodes.len(), 3);
    assert!(cluster.view.routing.is_none(), "one of the three is away");
    cluster.announce(announcement(2));
    cluster.settle();
    let table = cluster.table();
    assert_eq!(table.epoch(), 1);
    assert!(table.all_owners().iter().all(|owners| owners.len() == 2));
}

#[test]
fn an_impossible_placement_is_reported() {
    let mut cluster = Cluster::empty(1, 8, 2);
    cluster.view.cluster.as_mut().unwrap().placement = fondaco_model::Placement::Grouped;
    cluster.announce(announcement(1));
    cluster.settle();
    assert!(cluster.view.routing.is_none());
    let problems = cluster.controller.problems();
    assert!(problems[0].contains("has no group"), "{problems:?}");
}

#[test]
fn nothing_is_decided_on_a_remembered_view() {
    let mut cluster = Cluster::empty(1, 8, 1);
    cluster.announce(announcement(1));
    cluster.view.remembered = true;
    assert_eq!(cluster.decide(), []);
}

#[test]
fn two_decisions_on_one_view_never_number_a_node_twice() {
    let mut cluster = Cluster::empty(9, 8, 1);
    [2, 3]
        .into_iter()
        .for_each(|number| cluster.announce(announcement(number)));
    let first = cluster.decide();
    cluster.announce(announcement(1));
    let second = cluster.decide();
    assert!(first.iter().all(|change| cluster.apply(change)));
    assert!(
        !second.iter().any(|change| cluster.apply(change)),
        "it has to look again"
    );
    cluster.settle();
    assert_eq!(cluster.view.nodes.len(), 3);
}

#[test]
fn hundreds_of_nodes_are_numbered_in_a_few_changes() {
    let mut cluster = Cluster::empty(1, 8, 1);
    (1..=600).for_each(|number| cluster.announce(announcement(number)));
    let changes = cluster.decide();
    assert!(changes.iter().all(|change| change.writes.len() <= 257));
    cluster.settle();
    assert_eq!(cluster.view.nodes.len(), 600);
}
