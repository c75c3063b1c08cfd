//! The nodes that store hints for an absent node.

use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Handoff, KEEPERS_MAX, VersionedChange, hint_keepers};
use fondaco_model::{NodeId, PartitionId};

use crate::fixture::{Cluster, node};

/// Nodes 1 to `nodes`, those from `remote` on in another zone, with a versioned store of 3 replicas.
fn zoned(nodes: u32, remote: u32, handoff: Handoff) -> Cluster {
    let mut cluster = Cluster::in_two_zones(nodes, 16, 3, remote);
    let change = VersionedChange {
        handoff: Some(handoff),
        ..VersionedChange::default()
    };
    cluster.define_versioned("v", &change).unwrap();
    cluster
}

fn keepers(cluster: &Cluster, partition: u32, replica: u32, home: &str, hash: u64) -> Vec<u32> {
    keepers_beyond(cluster, partition, replica, home, hash, None)
}

/// The nodes for a hint that must count for another zone than these.
fn keepers_beyond(
    cluster: &Cluster,
    partition: u32,
    replica: u32,
    home: &str,
    hash: u64,
    covered: Option<&[&str]>,
) -> Vec<u32> {
    let topology = Topology::of(&cluster.view).unwrap();
    let store = &topology.stores["v"];
    let keepers = hint_keepers(
        &topology,
        store,
        PartitionId::new(partition),
        node(replica),
        Some(home),
        hash,
        covered,
    );
    keepers.into_iter().map(NodeId::get).collect()
}

fn owners(cluster: &Cluster, partition: u32) -> Vec<u32> {
    let table = cluster.table();
    table
        .owners(PartitionId::new(partition))
        .iter()
        .map(|node| node.get())
        .collect()
}

#[test]
fn hints_go_to_other_live_nodes_without_the_partition_first() {
    for handoff in [Handoff::Consistent, Handoff::Any, Handoff::Proximity] {
        let mut cluster = zoned(6, 4, handoff);
        cluster.leave(6);
        for partition in 0..16 {
            let owners = owners(&cluster, partition);
            let keepers = keepers(&cluster, partition, owners[0], "near", u64::from(partition) * 77);
            assert!(
                !keepers.contains(&owners[0]) && !keepers.contains(&6),
                "{handoff} {keepers:?}"
            );
            let others = (1..6).filter(|number| !owners.contains(number)).count();
            assert!(
                keepers[..others].iter().all(|keeper| !owners.contains(keeper)),
                "{handoff} {keepers:?}"
            );
            assert!(
                keepers[others..].iter().all(|keeper| owners.contains(keeper)),
                "{handoff} {keepers:?}"
            );
            assert_eq!(keepers.len(), if owners[0] == 6 { 5 } else { 4 });
        }
    }
}

#[test]
fn other_replicas_keep_hints_if_all_nodes_are_replicas() {
    let cluster = zoned(3, 9, Handoff::Consistent);
    assert_eq!(keepers(&cluster, 0, 1, "near", 0), [2, 3]);
    assert_eq!(keepers(&cluster, 0, 2, "near", 0), [3, 1]);
}

#[test]
fn consistent_hints_are_on_the_nodes_after_the_replica() {
    let cluster = zoned(9, 99, Handoff::Consistent);
    let owners = owners(&cluster, 0);
    let following: Vec<u32> = (1..9).map(|step| (owners[0] - 1 + step) % 9 + 1).collect();
    let expected = following
        .iter()
        .copied()
        .find(|number| !owners.contains(number))
        .unwrap();
    for hash in 0..50 {
        assert_eq!(keepers(&cluster, 0, owners[0], "near", hash)[0], expected);
    }
}

#[test]
fn any_hints_are_spread_over_all_nodes() {
    let cluster = zoned(9, 99, Handoff::Any);
    let owners = owners(&cluster, 0);
    let mut first: Vec<u32> = (0..50)
        .map(|hash| keepers(&cluster, 0, owners[0], "near", hash)[0])
        .collect();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 6, "all nodes without the partition: {first:?}");
}

/// A lost zone: the hints for its replicas go to the zone of the coordinator, and not to the lost zone.
#[test]
fn proximity_hints_are_near_and_avoid_the_lost_zone() {
    let cluster = zoned(12, 7, Handoff::Proximity);
    let remote = |number: &u32| *number >= 7;
    for partition in 0..16 {
        let owners = owners(&cluster, partition);
        for &owner in &owners {
            let keepers = keepers(&cluster, partition, owner, "near", u64::from(partition) << 20);
            let free: Vec<u32> = keepers
                .iter()
                .copied()
                .filter(|keeper| !owners.contains(keeper))
                .collect();
            let (near, far): (Vec<u32>, Vec<u32>) = free.iter().partition(|number| !remote(number));
            assert_eq!(free, [near.clone(), far].concat(), "first near, then remote");
            assert!(near.len() >= 3);
        }
    }
}

#[test]
fn a_hint_that_counts_for_a_zone_is_kept_there() {
    for handoff in [Handoff::Consistent, Handoff::Any, Handoff::Proximity] {
        let cluster = zoned(30, 26, handoff);
        let owners = owners(&cluster, 0);
        let near = *owners.iter().find(|owner| **owner < 26).unwrap();
        for hash in 0..20 {
            let keepers = keepers_beyond(&cluster, 0, near, "near", hash, Some(&["near"]));
            let far = (26..=30).filter(|number| !owners.contains(number)).count();
            assert!(
                keepers[..far].iter().all(|keeper| *keeper >= 26),
                "{handoff} {keepers:?}"
            );
            assert!(
                keepers[far..].iter().all(|keeper| *keeper < 26),
                "{handoff} {keepers:?}"
            );
            assert_eq!(keepers.len(), KEEPERS_MAX);
        }
    }
}

#[test]
fn no_more_hint_keepers_are_named_than_requested() {
    let cluster = zoned(40, 20, Handoff::Proximity);
    assert_eq!(
        keepers(&cluster, 0, owners(&cluster, 0)[0], "near", 3).len(),
        KEEPERS_MAX
    );
    let cluster = zoned(9, 99, Handoff::None);
    assert!(keepers(&cluster, 0, owners(&cluster, 0)[0], "near", 3).is_empty());
}
