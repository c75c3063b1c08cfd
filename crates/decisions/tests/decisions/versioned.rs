//! Versioned stores of a cluster: created, altered, and moved.

use fondaco_decisions::operator::{self, OperatorError};
use fondaco_decisions::{Agent, AgentAction, LocalReplicas, LocalVersioned};
use fondaco_model::cluster::{NodeMark, PlanState, StoreRecord, Topology};
use fondaco_model::versioned::{EngineKind, SettingsError, VersionedChange, VersionedSettings};
use fondaco_model::{NodeId, PartitionId, PartitionSet, StoreChange, StoreDefinition, StoreKind};

use crate::fixture::{
    Cluster, add, announcement, at_a_time, detail, name, node, version, with_replicas, with_settings,
};

#[test]
fn a_majority_of_the_cluster_s_replicas_reads_and_writes() {
    let mut cluster = Cluster::of(3, 8, 3);
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let topology = Topology::of(&cluster.view).unwrap();
    let store = &topology.stores["v"];
    assert_eq!((store.kind, store.replicas), (StoreKind::Versioned, 3));
    assert_eq!(store.versioned, Some(VersionedSettings::of(3)));
}

#[test]
fn invalid_settings_are_refused() {
    let mut cluster = Cluster::of(3, 8, 3);
    let refused = cluster.define_versioned("v", &number_of_reads(4));
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
    let refused = cluster.define_versioned("v", &zones).unwrap_err().to_string();
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
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let one_read = with_settings(number_of_reads(1));
    cluster.alter("v", &one_read).unwrap();
    assert_eq!(cluster.store("v").definition.versioned.unwrap().reads, 1);
    let engine = with_settings(VersionedChange {
        engine: Some(EngineKind::Memory),
        ..VersionedChange::default()
    });
    let (store, what) = (name("v"), "engine");
    let refused = cluster.alter("v", &engine);
    assert_eq!(refused, Err(OperatorError::Unchangeable { store, what }));
    cluster.create("b");
    let refused = cluster.alter("b", &one_read);
    assert_eq!(refused, Err(OperatorError::NotVersioned { store: name("b") }));
}

#[test]
fn a_versioned_store_refuses_push_swap_and_rollback() {
    let mut cluster = Cluster::of(3, 8, 3);
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let (view, store) = (&cluster.view, name("v"));
    let refused = Some(OperatorError::Versioned { store: store.clone() });
    assert_eq!(
        operator::push(view, &store, detail("a"), operator::PushTerms::default(), 8).err(),
        refused
    );
    assert_eq!(operator::cancel_push(view, &store, None, 8).err(), refused);
    assert_eq!(operator::roll_back(view, &store, None).err(), refused);
    assert_eq!(operator::swap(view, &store, version(1)).err(), refused);
    cluster.drop_store("v");
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

fn alter(cluster: &mut Cluster, change: &StoreChange) -> Result<(), OperatorError> {
    cluster.alter("v", change)?;
    cluster.settle();
    Ok(())
}

fn number_of_reads(reads: u32) -> VersionedChange {
    VersionedChange {
        reads: Some(reads),
        ..VersionedChange::default()
    }
}

fn reads_and_writes(reads: u32, writes: u32) -> StoreChange {
    with_settings(VersionedChange {
        writes: Some(writes),
        ..number_of_reads(reads)
    })
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
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
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
    alter(&mut cluster, &with_settings(number_of_reads(1))).unwrap();
    let topology = Topology::of(&cluster.view).unwrap();
    assert_eq!(topology.stores["v"].versioned.unwrap().reads, 1);
}

#[test]
fn quorums_stay_until_a_plan_for_another_number_of_replicas_has_ended() {
    let mut cluster = Cluster::of(3, 16, 3);
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    cluster.alter("v", &with_replicas(2)).unwrap();
    let busy = cluster.alter("v", &reads_and_writes(3, 1)).unwrap_err();
    assert!(matches!(busy, OperatorError::PlanInProgress { .. }), "{busy:?}");
}

#[test]
fn a_number_of_replicas_with_which_reads_would_miss_writes_is_refused() {
    let mut cluster = Cluster::of(4, 16, 3);
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let refused = |cluster: &mut Cluster, change: &StoreChange| alter(cluster, change).unwrap_err().to_string();
    let text = refused(&mut cluster, &with_replicas(1));
    assert!(text.contains("fondaco store alter v --replicas 2"), "{text}");
    let few_reads = StoreChange {
        replicas: Some(Some(4)),
        ..reads_and_writes(1, 4)
    };
    let text = refused(&mut cluster, &few_reads);
    assert!(text.contains("--replicas 4 --reads 2 --writes 4"), "{text}");
    let text = refused(&mut cluster, &with_replicas(5));
    assert!(text.contains("fondaco rebalance run --add"), "{text}");
    alter(&mut cluster, &reads_and_writes(1, 3)).unwrap();
    let text = refused(&mut cluster, &with_replicas(4));
    assert!(text.contains("--reads R --writes W"), "{text}");
    let text = refused(&mut cluster, &with_replicas(2));
    assert!(text.contains("writes 3: use 1 to 2"), "{text}");
    cluster.leave(4);
    let all = StoreChange {
        replicas: Some(Some(4)),
        ..reads_and_writes(2, 3)
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
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
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
    cluster.run(&at_a_time(100, add(4)));
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
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let store = cluster.store("v").clone();
    move_after_reports(cluster, &store);
}

#[test]
fn moves_carry_dropped_stores_that_can_be_restored() {
    let mut cluster = Cluster::of(3, 16, 2);
    cluster.define_versioned("v", &VersionedChange::default()).unwrap();
    let store = cluster.store("v").clone();
    cluster
        .request(|view| operator::drop_store(view, &name("v"), 8, u64::MAX))
        .unwrap();
    move_after_reports(cluster, &store);
}

#[test]
fn moves_are_given_up_if_too_few_owners_can_be_compared() {
    for (absent, are_leaving, is_enough) in [(2..=2, false, true), (2..=3, false, false), (2..=3, true, true)] {
        let mut cluster = Cluster::of(3, 16, 3);
        // Each write is on two of three nodes: a fourth one needs the records of two of them.
        cluster.define_versioned("v", &VersionedChange::default()).unwrap();
        cluster.announce(announcement(4));
        cluster.settle();
        let number = cluster.run(&at_a_time(100, add(4)));
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
        cluster.define_versioned("v", &engine).unwrap();
        cluster
            .request(|view| operator::drop_store(view, &name("v"), 8, 100))
            .unwrap();
        if is_created_again {
            cluster.define_versioned("v", &engine).unwrap();
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
