//! Versioned stores of a cluster: created, altered, moved, and the nodes that store hints for an absent node.

use fondaco_model::cluster::operator::{self, OperatorError, PlanRequest, StoreChange, versioned_settings};
use fondaco_model::cluster::{
    Agent, AgentAction, LocalReplicas, LocalVersioned, NodeMark, PlanState, StoreRecord, Topology,
};
use fondaco_model::versioned::{
    EngineKind, Handoff, KEEPERS_MAX, SettingsError, VersionedChange, VersionedSettings, hint_keepers,
};
use fondaco_model::{NodeId, PartitionId, PartitionSet, StoreDefinition, StoreKind};

use super::fixture::{Cluster, announcement, detail, name, node};

fn create(cluster: &mut Cluster, store: &str, change: &VersionedChange) -> Result<(), OperatorError> {
    let settings = versioned_settings(&cluster.view, None, change)?;
    let definition = StoreDefinition::versioned(name(store), settings);
    let change = operator::create_store(&cluster.view, definition, 7)?;
    assert!(cluster.apply(&change));
    Ok(())
}

/// Nodes 1 to `nodes`, of which those from `remote` on are in another zone, with a versioned store of 3 replicas.
fn zoned(nodes: u32, remote: u32, handoff: Handoff) -> Cluster {
    let mut cluster = Cluster::empty(nodes, 16, 3);
    for number in 1..=nodes {
        let mut announcement = announcement(number);
        announcement.zone = if number < remote { "near" } else { "remote" }.to_owned();
        cluster.announce(announcement);
    }
    cluster.settle();
    let change = VersionedChange {
        handoff: Some(handoff),
        ..VersionedChange::default()
    };
    create(&mut cluster, "v", &change).unwrap();
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
    let table = &cluster.view.routing.as_ref().unwrap().record;
    table
        .owners(PartitionId::new(partition))
        .iter()
        .map(|node| node.get())
        .collect()
}

#[test]
fn a_majority_of_the_cluster_s_replicas_reads_and_writes() {
    let mut cluster = Cluster::of(3, 8, 3);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let topology = Topology::of(&cluster.view).unwrap();
    let store = &topology.stores["v"];
    assert_eq!((store.kind, store.replicas), (StoreKind::Versioned, 3));
    assert_eq!(store.versioned, Some(VersionedSettings::of(3)));
}

#[test]
fn invalid_settings_are_refused() {
    let mut cluster = Cluster::of(3, 8, 3);
    let refused = create(
        &mut cluster,
        "v",
        &VersionedChange {
            reads: Some(4),
            ..VersionedChange::default()
        },
    );
    let error = SettingsError::Quorum {
        what: "reads",
        given: 4,
        replicas: 3,
    };
    let store = name("v");
    assert_eq!(refused, Err(OperatorError::InvalidSettings { store, error }));
    let zones = VersionedChange {
        zone_writes: Some(1),
        ..VersionedChange::default()
    };
    let refused = create(&mut cluster, "v", &zones).unwrap_err().to_string();
    assert!(
        refused.contains("zone writes 1: use 0 to 0"),
        "all nodes are in one zone: {refused}"
    );
    let mut batch = StoreDefinition::batch(name("v"));
    batch.versioned = Some(VersionedSettings::of(3));
    let refused = operator::create_store(&cluster.view, batch, 7);
    assert_eq!(refused, Err(OperatorError::NotVersioned { store: name("v") }));
    let mut bare = StoreDefinition::versioned(name("v"), VersionedSettings::of(3));
    bare.versioned = None;
    assert!(operator::create_store(&cluster.view, bare, 7).is_err());
}

#[test]
fn only_settings_that_move_no_data_can_be_altered() {
    let mut cluster = Cluster::of(3, 8, 3);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let alter = |cluster: &Cluster, change: StoreChange| operator::alter_store(&cluster.view, &name("v"), &change, 9);
    let versioned = |change: VersionedChange| StoreChange {
        versioned: Some(change),
        ..StoreChange::default()
    };
    let one_read = versioned(VersionedChange {
        reads: Some(1),
        ..VersionedChange::default()
    });
    let change = alter(&cluster, one_read.clone()).unwrap();
    assert!(cluster.apply(&change));
    assert_eq!(cluster.store("v").definition.versioned.unwrap().reads, 1);
    let engine = versioned(VersionedChange {
        engine: Some(EngineKind::Memory),
        ..VersionedChange::default()
    });
    let (store, what) = (name("v"), "engine");
    assert_eq!(
        alter(&cluster, engine),
        Err(OperatorError::Unchangeable { store, what })
    );
    cluster.create("b");
    let refused = operator::alter_store(&cluster.view, &name("b"), &one_read, 9);
    assert_eq!(refused, Err(OperatorError::NotVersioned { store: name("b") }));
}

#[test]
fn a_versioned_store_refuses_push_swap_and_rollback() {
    let mut cluster = Cluster::of(3, 8, 3);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let (view, store) = (&cluster.view, name("v"));
    let refused = Some(OperatorError::Versioned { store: store.clone() });
    assert_eq!(
        operator::push(view, &store, detail("a"), operator::PushTerms::default(), 8).err(),
        refused
    );
    assert_eq!(operator::cancel_push(view, &store, None, 8).err(), refused);
    assert_eq!(operator::roll_back(view, &store, None).err(), refused);
    assert_eq!(operator::swap(view, &store, super::fixture::version(1)).err(), refused);
    let change = operator::drop_store(view, &store, 8, 0).unwrap();
    assert!(cluster.apply(&change));
    assert!(!cluster.view.stores.contains_key("v"));
}

/// The partitions of these clusters.
fn all() -> PartitionSet {
    (0..16).map(PartitionId::new).collect()
}

/// A node that has these partitions of the store reports.
fn report(cluster: &mut Cluster, store: u16, number: u32, synchronised: PartitionSet) {
    let mut local = LocalReplicas::default();
    local.versioned.insert(
        name("v"),
        LocalVersioned {
            id: store,
            partitions: cluster.view.partitions().unwrap(),
            synchronised,
            held: 0,
            keys: 0,
            bytes: 0,
        },
    );
    let actions = Agent::new(node(number)).decide(&cluster.view, &local, 0);
    let report = actions.into_iter().find_map(|action| match action {
        AgentAction::Report(report) => Some(report),
        _ => None,
    });
    cluster.view.reports.insert(node(number), report.unwrap());
}

fn with_replicas(replicas: u32) -> StoreChange {
    StoreChange {
        replicas: Some(Some(replicas)),
        ..StoreChange::default()
    }
}

fn alter(cluster: &mut Cluster, change: &StoreChange) -> Result<(), OperatorError> {
    let change = operator::alter_store(&cluster.view, &name("v"), change, 9)?;
    assert!(cluster.apply(&change));
    cluster.settle();
    Ok(())
}

/// N of the owners, and of the other nodes that take writes, as coordinators know them; and the number in the store's record.
fn numbers(cluster: &Cluster) -> (u32, u32, u32) {
    let topology = Topology::of(&cluster.view).unwrap();
    let store = &topology.stores["v"];
    let count = |nodes: Vec<NodeId>| nodes.len() as u32;
    let partition = PartitionId::new(3);
    let owners = count(topology.replicas(store, partition).collect());
    assert_eq!(owners, store.replicas);
    let joint = count(topology.joint_replicas(store, partition).collect());
    let defined = cluster.store("v").definition.replicas.unwrap_or(2);
    (owners, joint, defined)
}

#[test]
fn a_versioned_store_gets_and_gives_up_a_replica_once_the_next_owners_have_all_writes() {
    let mut cluster = Cluster::of(3, 16, 2);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let id = cluster.store("v").id;
    for (before, after) in [(2, 3), (3, 2)] {
        assert_eq!(numbers(&cluster), (before, 0, before));
        alter(&mut cluster, &with_replicas(after)).unwrap();
        assert_eq!(numbers(&cluster), (before, after, before), "writes go to both");
        let busy = alter(&mut cluster, &with_replicas(1));
        assert!(matches!(busy, Err(OperatorError::PlanInProgress { .. })), "{busy:?}");
        for number in 1..=3 {
            // A node that gets a partition has nothing of it yet.
            let has = match after > before {
                true => cluster.table().owned(before as usize)[&node(number)].clone(),
                false => PartitionSet::EMPTY,
            };
            report(&mut cluster, id, number, has);
        }
        cluster.wait(60_000);
        assert_eq!(numbers(&cluster), (before, after, before), "not all have all");
        for number in 1..=3 {
            report(&mut cluster, id, number, all());
        }
        cluster.settle();
        assert_eq!(
            numbers(&cluster),
            (after, before, after),
            "former owners may not know yet"
        );
        for number in 1..=3 {
            report(&mut cluster, id, number, all());
        }
        cluster.settle();
        assert_eq!(numbers(&cluster), (after, 0, after));
        let plan = &cluster.view.plans.values().last().unwrap().record;
        assert_eq!((plan.state, plan.moves().len()), (PlanState::Done, 16));
        assert!(plan.given_up.is_empty());
    }
    // A change of quorums alone takes effect at once.
    let one_read = StoreChange {
        versioned: Some(VersionedChange {
            reads: Some(1),
            ..VersionedChange::default()
        }),
        ..StoreChange::default()
    };
    alter(&mut cluster, &one_read).unwrap();
    let topology = Topology::of(&cluster.view).unwrap();
    assert_eq!(topology.stores["v"].versioned.unwrap().reads, 1);
}

#[test]
fn quorums_stay_until_a_plan_for_another_number_of_replicas_has_ended() {
    let mut cluster = Cluster::of(3, 16, 3);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let change = operator::alter_store(&cluster.view, &name("v"), &with_replicas(2), 9).unwrap();
    assert!(cluster.apply(&change));
    let one_write = StoreChange {
        versioned: Some(VersionedChange {
            reads: Some(3),
            writes: Some(1),
            ..VersionedChange::default()
        }),
        ..StoreChange::default()
    };
    let busy = operator::alter_store(&cluster.view, &name("v"), &one_write, 9).unwrap_err();
    assert!(matches!(busy, OperatorError::PlanInProgress { .. }), "{busy:?}");
}

#[test]
fn a_number_of_replicas_with_which_reads_would_miss_writes_is_refused() {
    let mut cluster = Cluster::of(4, 16, 3);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let refused = |cluster: &mut Cluster, change: &StoreChange| alter(cluster, change).unwrap_err().to_string();
    let text = refused(&mut cluster, &with_replicas(1));
    assert!(text.contains("fondaco store alter v --replicas 2"), "{text}");
    let few_reads = StoreChange {
        versioned: Some(VersionedChange {
            reads: Some(1),
            writes: Some(4),
            ..VersionedChange::default()
        }),
        ..with_replicas(4)
    };
    let text = refused(&mut cluster, &few_reads);
    assert!(text.contains("--replicas 4 --reads 2 --writes 4"), "{text}");
    let text = refused(&mut cluster, &with_replicas(5));
    assert!(text.contains("fondaco rebalance run --add"), "{text}");
    let quorums = |reads, writes| StoreChange {
        versioned: Some(VersionedChange {
            reads: Some(reads),
            writes: Some(writes),
            ..VersionedChange::default()
        }),
        ..StoreChange::default()
    };
    alter(&mut cluster, &quorums(1, 3)).unwrap();
    let text = refused(&mut cluster, &with_replicas(4));
    assert!(text.contains("--reads R --writes W"), "{text}");
    let text = refused(&mut cluster, &with_replicas(2));
    assert!(text.contains("writes 3: use 1 to 2"), "{text}");
    cluster.leave(4);
    let all = StoreChange {
        replicas: Some(Some(4)),
        ..quorums(2, 3)
    };
    let absent = alter(&mut cluster, &all);
    assert_eq!(absent, Err(OperatorError::NodeAbsent { node: node(4) }));
    cluster.announce(announcement(4));
    alter(&mut cluster, &all).unwrap();
    assert_eq!(numbers(&cluster), (3, 4, 2));
}

#[test]
fn a_number_of_replicas_stays_if_a_next_owner_stays_away() {
    let mut cluster = Cluster::of(3, 16, 2);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    alter(&mut cluster, &with_replicas(3)).unwrap();
    cluster.leave(3);
    cluster.wait(610_000);
    assert_eq!(numbers(&cluster), (2, 0, 2));
    let plan = &cluster.view.plans.values().last().unwrap().record;
    assert_eq!((plan.state, plan.given_up.len()), (PlanState::Done, 16));
}

/// A plan gives partitions of a store to a node, which reports that it has nothing of it yet, and then that it has all.
fn move_after_reports(mut cluster: Cluster, store: &StoreRecord) {
    cluster.announce(announcement(4));
    cluster.settle();
    cluster.run(&PlanRequest {
        add: [node(4)].into(),
        moves_per_node: Some(100),
        ..PlanRequest::default()
    });
    for number in 1..=3 {
        report(&mut cluster, store.id, number, all());
    }
    report(&mut cluster, store.id, 4, PartitionSet::EMPTY);
    cluster.wait(60_000);
    assert!(cluster.table().begun().next().is_some(), "node 4 has nothing yet");
    report(&mut cluster, store.id, 4, all());
    cluster.settle();
    let table = cluster.table();
    assert!(table.begun().next().is_none());
    assert!(table.all_owners().iter().flatten().any(|&owner| owner == node(4)));
}

#[test]
fn a_plan_finishes_when_new_owners_have_their_data() {
    let mut cluster = Cluster::of(3, 16, 2);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let store = cluster.store("v").clone();
    move_after_reports(cluster, &store);
}

#[test]
fn moves_carry_dropped_stores_that_can_be_restored() {
    let mut cluster = Cluster::of(3, 16, 2);
    create(&mut cluster, "v", &VersionedChange::default()).unwrap();
    let store = cluster.store("v").clone();
    let change = operator::drop_store(&cluster.view, &name("v"), 8, u64::MAX).unwrap();
    assert!(cluster.apply(&change));
    move_after_reports(cluster, &store);
}

#[test]
fn moves_are_given_up_if_too_few_owners_can_be_compared() {
    for (absent, are_leaving, is_enough) in [(2..=2, false, true), (2..=3, false, false), (2..=3, true, true)] {
        let mut cluster = Cluster::of(3, 16, 3);
        // Each write is on two of three nodes: a fourth one needs the records of two of them.
        create(&mut cluster, "v", &VersionedChange::default()).unwrap();
        cluster.announce(announcement(4));
        cluster.settle();
        let number = cluster.run(&PlanRequest {
            add: [node(4)].into(),
            moves_per_node: Some(100),
            ..PlanRequest::default()
        });
        let moves = cluster.table().begun().count();
        for number in absent {
            cluster.leave(number);
            if are_leaving {
                let record = cluster.view.nodes.get_mut(&node(number)).unwrap();
                record.record.mark = Some(NodeMark::Leaving);
            }
        }
        cluster.wait(610_000);
        let plan = &cluster.view.plans[&number].record;
        let given_up = if is_enough { 0 } else { moves };
        assert_eq!(plan.given_up.len(), given_up, "{plan:?}");
        let reasons = plan.given_up.values();
        assert!(
            reasons.clone().all(|reason| reason.contains("of store v: its owners")),
            "{plan:?}"
        );
    }
}

#[test]
fn only_what_can_be_restored_is_carried() {
    let carried = |engine: EngineKind, is_created_again: bool, now_unix_ms: u64| {
        let mut cluster = Cluster::of(3, 16, 2);
        let engine = VersionedChange {
            engine: Some(engine),
            ..VersionedChange::default()
        };
        create(&mut cluster, "v", &engine).unwrap();
        let change = operator::drop_store(&cluster.view, &name("v"), 8, 100).unwrap();
        assert!(cluster.apply(&change));
        if is_created_again {
            create(&mut cluster, "v", &engine).unwrap();
        }
        let can_be_restored = operator::restore_store(&cluster.view, &name("v"), now_unix_ms).is_ok();
        let carried = cluster.view.restorable(now_unix_ms).count() == 1;
        assert_eq!(can_be_restored, carried);
        carried
    };
    assert!(carried(EngineKind::Log, false, 107));
    assert!(!carried(EngineKind::Log, false, 108), "it is deleted");
    assert!(!carried(EngineKind::Log, true, 107), "another store has its name");
    assert!(!carried(EngineKind::Memory, false, 107));
    assert!(!carried(EngineKind::Cache, false, 107));
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
