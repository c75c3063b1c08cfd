//! Operators create, alter and drop stores.

use fondaco_decisions::operator::{self, OperatorError, PlanRequest};
use fondaco_model::cluster::{Announcement, ClusterView, ReplicaReport, ReplicaState};
use fondaco_model::{
    Acknowledge, Copies, PROTOCOL_OF_TYPES, PartitionId, Placement, RoutingTable, STORES_MAX, StoreChange,
    StoreDefinition, StoreKind, StreamChange, StreamSettings, StreamSource, ValueType,
};

use crate::fixture::{Cluster, announcement, name, node, version, with_replicas};

fn definition(store: &str) -> StoreDefinition {
    StoreDefinition::batch(name(store))
}

fn everywhere(is_everywhere: bool) -> StoreChange {
    StoreChange {
        everywhere: Some(is_everywhere),
        ..StoreChange::default()
    }
}

fn assert_not_ready(refused: &Result<(), OperatorError>) {
    assert!(
        matches!(refused, Err(OperatorError::VersionNotReady { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_store_is_created_once() {
    let mut cluster = Cluster::of(1, 8, 1);
    let refused = operator::create_store(&ClusterView::default(), definition("s"), 7);
    assert_eq!(refused, Err(OperatorError::NoCluster));
    cluster.create("s");
    assert_eq!(cluster.store("s").created_unix_ms, 7);
    let again = operator::create_store(&cluster.view, definition("s"), 7);
    assert_eq!(again, Err(OperatorError::StoreExists { store: name("s") }));
}

#[test]
fn limits_of_a_hybrid_store_wait_until_all_members_know_them() {
    let mut cluster = Cluster::of(2, 8, 1);
    let speak = |cluster: &mut Cluster, protocol: u32| {
        cluster.announce(Announcement {
            protocol,
            ..announcement(2)
        });
    };
    let hybrid = |ttl_ms: Option<u64>, write_keys_per_second: Option<u64>| StoreDefinition {
        kind: StoreKind::Hybrid,
        stream: Some(StreamSettings {
            ttl_ms,
            write_keys_per_second,
            ..StreamSettings::of(StreamSource::Log(1))
        }),
        ..definition("s")
    };
    speak(&mut cluster, PROTOCOL_OF_TYPES - 1);
    let old = |created: Result<_, OperatorError>| matches!(created, Err(OperatorError::NotYetSpoken { .. }));
    assert!(old(operator::create_store(&cluster.view, hybrid(Some(5), None), 7)));
    assert!(old(operator::create_store(&cluster.view, hybrid(None, Some(5)), 7)));
    let mut applied = hybrid(None, None);
    if let Some(stream) = &mut applied.stream {
        stream.acknowledge = Acknowledge::Applied;
    }
    assert!(old(operator::create_store(&cluster.view, applied, 7)));
    let mut bounded = hybrid(None, None);
    if let Some(stream) = &mut bounded.stream {
        stream.clock_ahead_ms = 5;
    }
    assert!(old(operator::create_store(&cluster.view, bounded, 7)));
    let mut several = hybrid(None, None);
    several.stream = Some(StreamSettings {
        data_center: Some("east".parse().unwrap()),
        ..StreamSettings::of("kafka://b:1/a,west.a".parse().unwrap())
    });
    assert!(old(operator::create_store(&cluster.view, several, 7)));
    let sets = StoreDefinition {
        value_type: ValueType::Ids,
        ..hybrid(None, None)
    };
    assert!(old(operator::create_store(&cluster.view, sets, 7)));
    let created = operator::create_store(&cluster.view, hybrid(None, None), 7).unwrap();
    assert!(cluster.apply(&created));
    let limited = StoreChange {
        stream: Some(StreamChange {
            ttl_ms: Some(Some(5)),
            ..StreamChange::default()
        }),
        ..StoreChange::default()
    };
    assert!(old(operator::alter_store(&cluster.view, &name("s"), &limited, 9)));
    speak(&mut cluster, PROTOCOL_OF_TYPES);
    assert!(operator::alter_store(&cluster.view, &name("s"), &limited, 9).is_ok());
}

#[test]
fn stores_created_at_once_never_get_the_same_number() {
    let mut cluster = Cluster::of(1, 8, 1);
    let [a, b] = ["a", "b"].map(|store| operator::create_store(&cluster.view, definition(store), 7).unwrap());
    assert!(cluster.apply(&a));
    assert!(!cluster.apply(&b), "it has to look again");
    cluster.create("b");
    assert_ne!(cluster.store("a").id, cluster.store("b").id);
}

#[test]
fn the_number_of_a_dropped_store_is_reused_last() {
    let mut cluster = Cluster::of(1, 8, 1);
    for store in ["a", "b"] {
        cluster.create(store);
    }
    cluster.drop_store("b");
    cluster.create("c");
    assert_eq!(cluster.store("c").id, 3, "not that of b");
    cluster.view.numbers.as_mut().unwrap().record.last_store = STORES_MAX as u16;
    cluster.create("d");
    assert_eq!(cluster.store("d").id, 4, "b is remembered");
    let free = (1..=STORES_MAX as u16).filter(|id| *id > 4);
    let remembered: Vec<u16> = free.collect();
    let b = cluster.view.dropped[&2].clone();
    cluster
        .view
        .dropped
        .extend(remembered.into_iter().map(|id| (id, b.clone())));
    cluster.create("e");
    assert_eq!(cluster.store("e").id, 5, "all others are remembered, too");
}

#[test]
fn the_number_of_stores_is_bounded() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let one = cluster.view.stores["s"].clone();
    for id in 2..=STORES_MAX as u16 {
        let mut store = one.clone();
        store.record.id = id;
        cluster.view.stores.insert(name(&format!("s{id}")), store);
    }
    let refused = operator::create_store(&cluster.view, definition("t"), 7);
    assert_eq!(refused, Err(OperatorError::TooManyStores { max: STORES_MAX }));
}

#[test]
fn invalid_definitions_are_refused() {
    let cluster = Cluster::of(3, 8, 2);
    let spoil: [fn(&mut StoreDefinition); 4] = [
        |store| store.backups = 101,
        |store| store.replicas = Some(0),
        |store| store.replicas = Some(4),
        |store| store.read_keys_per_second = Some(0),
    ];
    for spoil in spoil {
        let mut definition = definition("s");
        spoil(&mut definition);
        let refused = operator::create_store(&cluster.view, definition, 7);
        assert!(
            matches!(refused, Err(OperatorError::InvalidDefinition { .. })),
            "{refused:?}"
        );
    }
}

/// The owners of all partitions, and those that they had before at the beginning of each list.
fn assert_longer(before: &RoutingTable, after: &RoutingTable, length: usize) {
    for partition in before.partitions().partitions() {
        let (was, is) = (before.owners(partition), after.owners(partition));
        assert_eq!((is.len(), &is[..was.len()]), (length, was));
    }
    assert!(!after.is_moving() && after.epoch() > before.epoch());
}

#[test]
fn lists_become_longer_for_a_store_with_more_replicas_than_the_cluster() {
    let mut cluster = Cluster::with_store(4, 8, 2, "s");
    let before = cluster.table().clone();
    let three = StoreDefinition {
        replicas: Some(3),
        ..definition("t")
    };
    cluster.define(three).unwrap();
    assert_longer(&before, cluster.table(), 3);
    assert_eq!(
        cluster.view.replicas(cluster.store("s")),
        2,
        "other stores stay as they are"
    );

    let (before, current) = (cluster.table().clone(), cluster.pushed(4, "s", "a"));
    cluster.alter("s", &with_replicas(4)).unwrap();
    assert_longer(&before, cluster.table(), 4);
    let lowered = cluster.alter("s", &with_replicas(1));
    // The reports are of before.
    assert_not_ready(&lowered);
    cluster.ready(1..=4, "s", current);
    cluster.alter("s", &with_replicas(1)).unwrap();
    // Plans keep what stores need: now three again.
    let even = PlanRequest {
        even: true,
        ..PlanRequest::default()
    };
    let plan = cluster.propose(&even).unwrap();
    let next = &cluster.view.plans[&plan].record.next;
    assert!(next.len() == 8 && next.values().all(|list| list.len() == 3));
}

#[test]
fn lists_do_not_become_longer_while_partitions_move_or_versioned_stores_would_get_owners() {
    let mut cluster = Cluster::of(3, 8, 2);
    cluster.define_versioned("v", &Default::default()).unwrap();
    let three = || StoreDefinition {
        replicas: Some(3),
        ..definition("t")
    };
    let still = cluster.table().clone();
    let mut lists = still.all_owners().to_vec();
    lists[0].reverse();
    cluster.change_table(|table| table.with_plan(lists.clone()).unwrap());
    let refused = operator::create_store(&cluster.view, three(), 7);
    assert!(
        matches!(refused, Err(OperatorError::PlanInProgress { .. })),
        "{refused:?}"
    );
    // Its lists have one node less than it should have.
    lists.iter_mut().for_each(|list| list.truncate(1));
    cluster.change_table(|table| table.with_plan(lists).unwrap().finished());
    let refused = operator::create_store(&cluster.view, three(), 7);
    assert_eq!(refused, Err(OperatorError::ShortLists { store: name("v") }));
}

#[test]
fn an_alteration_changes_named_settings_and_drops_surplus_versions() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    for build in ["a", "b"] {
        cluster.pushed(2, "s", build);
    }
    let change = StoreChange {
        backups: Some(0),
        ..StoreChange::default()
    };
    cluster.alter("s", &change).unwrap();
    let store = cluster.store("s");
    assert_eq!(store.versions.backups(), []);
    assert!(store.details.keys().eq(&[version(2)]));
    assert_eq!(
        (store.definition.replicas, store.definition.tolerate_failures),
        (None, None)
    );
}

#[test]
fn a_store_leaves_other_nodes_only_if_its_owners_have_it() {
    for placement in [Placement::Ring, Placement::All] {
        let mut cluster = Cluster::of(2, 8, 2);
        cluster.view.cluster.as_mut().unwrap().placement = placement;
        cluster.create("s");
        let current = cluster.pushed(2, "s", "a");
        cluster.change_store("s", |store| store.definition.everywhere = true);
        let back = everywhere(false);
        // The reports are of before.
        let refused = cluster.alter("s", &back);
        assert_not_ready(&refused);
        cluster.ready([1, 2], "s", current);
        cluster.alter("s", &back).unwrap();
    }
}

#[test]
fn a_store_that_does_not_fit_everywhere_is_made_smaller() {
    let mut cluster = Cluster::with_store(4, 16, 2, "s");
    let current = cluster.pushed(4, "s", "a");
    cluster.change_store("s", |store| store.definition.everywhere = true);
    let table = cluster.table().clone();
    let lacks = |number: u32, also: Option<PartitionId>| {
        let all = table.partitions().partitions();
        let lacking = all.filter(|&one| Some(one) == also || !table.holds(node(number), one, Copies::of(2)));
        ReplicaReport {
            lacking: lacking.collect(),
            ..ReplicaReport::of(ReplicaState::Failed)
        }
    };
    let lost = PartitionId::new(5);
    let owners = table.owners(lost)[..2].to_vec();
    for number in 1..=4 {
        let is_owner = owners.contains(&node(number));
        cluster.report(number, "s", current, lacks(number, is_owner.then_some(lost)));
    }
    let back = everywhere(false);
    let refused = cluster.alter("s", &back);
    assert!(
        matches!(refused, Err(OperatorError::VersionNotReady { partition, .. }) if partition == lost),
        "{refused:?}"
    );
    // One of its owners has it after all; the other one stays late.
    let [has, lacking] = owners[..] else {
        panic!("{owners:?}")
    };
    cluster.report(has.get(), "s", current, lacks(has.get(), None));
    cluster.change_store("s", |store| store.late = (1..=4).map(node).collect());
    cluster.alter("s", &back).unwrap();
    assert_eq!(cluster.store("s").late, [lacking].into());
}

#[test]
fn a_late_node_is_asked_for_what_only_it_has() {
    let mut cluster = Cluster::with_store(4, 16, 2, "s");
    let current = cluster.pushed(4, "s", "a");
    let only = PartitionId::new(3);
    let small = cluster.table().owners(only).to_vec();
    let table = cluster.table().clone();
    cluster.change_store("s", |store| {
        store.definition.everywhere = true;
        store.late = small.iter().copied().collect();
    });
    for number in 1..=4 {
        // The small nodes have no room for more than what they had as the first owners.
        let lacking = |one: &PartitionId| !table.holds(node(number), *one, Copies::of(1));
        let report = match small.contains(&node(number)) {
            true => ReplicaReport {
                lacking: table.partitions().partitions().filter(lacking).collect(),
                ..ReplicaReport::of(ReplicaState::Failed)
            },
            false => ReplicaReport::of(ReplicaState::Ready),
        };
        cluster.report(number, "s", current, report);
    }
    let back = with_replicas(2);
    cluster.alter("s", &back).unwrap();
    assert!(
        !cluster.store("s").late.contains(&small[0]),
        "no other node has partition 3"
    );
}

#[test]
fn a_number_of_replicas_stays_unless_a_change_is_about_it() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.change_store("s", |store| store.definition.replicas = Some(1));
    let mut altered = |replicas, everywhere| {
        let change = StoreChange {
            replicas,
            everywhere,
            ..StoreChange::default()
        };
        cluster.alter("s", &change)?;
        let definition = &cluster.store("s").definition;
        Ok((definition.replicas, definition.everywhere))
    };
    assert_eq!(altered(None, Some(false)), Ok((Some(1), false)));
    assert_eq!(altered(None, Some(true)), Ok((None, true)));
    assert_eq!(altered(Some(Some(1)), None), Ok((Some(1), false)));
    let both: Result<_, OperatorError> = altered(Some(Some(1)), Some(true));
    assert!(both.unwrap_err().to_string().contains("on all nodes"));
}

#[test]
fn fewer_replicas_must_have_all_kept_versions() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    cluster.pushed(2, "s", "a");
    cluster.report(1, "s", version(1), ReplicaReport::of(ReplicaState::Fetching));
    let change = with_replicas(1);
    let refused = cluster.alter("s", &change);
    assert_not_ready(&refused);
    cluster.ready([1], "s", version(1));
    assert!(cluster.alter("s", &change).is_ok());
}
