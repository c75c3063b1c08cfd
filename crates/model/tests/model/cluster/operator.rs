//! Requests of operators, and their refusals.

use fondaco_model::cluster::operator::{self, OperatorError, PUSHES_MAX, PlanRequest, PushTerms, StoreChange};
use fondaco_model::cluster::{ClusterView, ReplicaReport, ReplicaState, VersionEvents};
use fondaco_model::{
    Copies, PartitionId, Placement, PushState, RoutingTable, STORES_MAX, StoreDefinition, StoreKind, StreamSettings,
    StreamSource,
};

use super::fixture::{Cluster, detail, name, node, version};

fn definition(store: &str) -> StoreDefinition {
    StoreDefinition::batch(name(store))
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
    let drop = operator::drop_store(&cluster.view, &name("b"), 8, 0).unwrap();
    assert!(cluster.apply(&drop));
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
    let mut cluster = Cluster::with_store(1, 8, 1);
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
    let mut cluster = Cluster::with_store(4, 8, 2);
    let before = cluster.table().clone();
    let three = StoreDefinition {
        replicas: Some(3),
        ..definition("t")
    };
    let create = operator::create_store(&cluster.view, three, 7).unwrap();
    assert!(cluster.apply(&create));
    assert_longer(&before, cluster.table(), 3);
    assert_eq!(
        cluster.view.replicas(cluster.store("s")),
        2,
        "other stores stay as they are"
    );

    let (before, current) = (cluster.table().clone(), cluster.pushed(4, "s", "a"));
    let replicas = |replicas| StoreChange {
        replicas: Some(Some(replicas)),
        ..StoreChange::default()
    };
    let raised = operator::alter_store(&cluster.view, &name("s"), &replicas(4), 9).unwrap();
    assert!(cluster.apply(&raised));
    assert_longer(&before, cluster.table(), 4);
    let lowered = operator::alter_store(&cluster.view, &name("s"), &replicas(1), 9);
    assert!(
        matches!(lowered, Err(OperatorError::VersionNotReady { .. })),
        "the reports are of before: {lowered:?}"
    );
    cluster.ready(1..=4, "s", current);
    let lowered = operator::alter_store(&cluster.view, &name("s"), &replicas(1), 9).unwrap();
    assert!(cluster.apply(&lowered));
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
    let versioned = StoreDefinition {
        kind: StoreKind::Versioned,
        versioned: Some(operator::versioned_settings(&cluster.view, None, &Default::default()).unwrap()),
        ..definition("v")
    };
    let create = operator::create_store(&cluster.view, versioned, 7).unwrap();
    assert!(cluster.apply(&create));
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
    let mut cluster = Cluster::with_store(2, 8, 2);
    for build in ["a", "b"] {
        cluster.pushed(2, "s", build);
    }
    let change = StoreChange {
        backups: Some(0),
        ..StoreChange::default()
    };
    let change = operator::alter_store(&cluster.view, &name("s"), &change, 9).unwrap();
    assert!(cluster.apply(&change));
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
        let back = StoreChange {
            everywhere: Some(false),
            ..StoreChange::default()
        };
        // The reports are of before.
        let refused = operator::alter_store(&cluster.view, &name("s"), &back, 9);
        assert!(
            matches!(refused, Err(OperatorError::VersionNotReady { .. })),
            "{refused:?}"
        );
        cluster.ready([1, 2], "s", current);
        let change = operator::alter_store(&cluster.view, &name("s"), &back, 9).unwrap();
        assert!(cluster.apply(&change));
    }
}

#[test]
fn a_store_that_does_not_fit_everywhere_is_made_smaller() {
    let mut cluster = Cluster::with_store(4, 16, 2);
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
    let back = StoreChange {
        everywhere: Some(false),
        ..StoreChange::default()
    };
    let refused = operator::alter_store(&cluster.view, &name("s"), &back, 9);
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
    let change = operator::alter_store(&cluster.view, &name("s"), &back, 9).unwrap();
    assert!(cluster.apply(&change));
    assert_eq!(cluster.store("s").late, [lacking].into());
}

#[test]
fn a_late_node_is_asked_for_what_only_it_has() {
    let mut cluster = Cluster::with_store(4, 16, 2);
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
    let back = StoreChange {
        replicas: Some(Some(2)),
        ..StoreChange::default()
    };
    let change = operator::alter_store(&cluster.view, &name("s"), &back, 9).unwrap();
    assert!(cluster.apply(&change));
    assert!(
        !cluster.store("s").late.contains(&small[0]),
        "nobody else has partition 3"
    );
}

#[test]
fn a_number_of_replicas_stays_unless_a_change_is_about_it() {
    let mut cluster = Cluster::with_store(3, 8, 2);
    cluster.change_store("s", |store| store.definition.replicas = Some(1));
    let mut altered = |replicas, everywhere| {
        let change = StoreChange {
            replicas,
            everywhere,
            ..StoreChange::default()
        };
        let change = operator::alter_store(&cluster.view, &name("s"), &change, 9)?;
        assert!(cluster.apply(&change));
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
fn a_rollback_asks_the_nodes_that_have_the_version() {
    let mut cluster = Cluster::with_store(2, 8, 2);
    let first = cluster.pushed(2, "s", "a");
    cluster.pushed(2, "s", "b");
    cluster.change_store("s", |store| store.late = [node(1), node(2)].into());
    cluster.report(1, "s", first, ReplicaReport::of(ReplicaState::Failed));
    let change = operator::roll_back(&cluster.view, &name("s"), None).unwrap().unwrap();
    assert!(cluster.apply(&change));
    let store = cluster.store("s");
    assert_eq!(
        (store.versions.current(), &store.late),
        (Some(first), &[node(1)].into())
    );
}

#[test]
fn a_difference_is_pushed_only_onto_its_base() {
    let mut cluster = Cluster::with_store(1, 8, 1);
    let checksum = |build: &str| detail(build).manifest_checksum;
    let [a, b, c] = ["a", "b", "c"].map(checksum);
    let check = |cluster: &Cluster, base: &str| operator::check_base(&cluster.view, &name("s"), base, &c);
    assert_eq!(check(&cluster, &a), Ok(()), "nothing is lost");
    cluster.pushed(1, "s", "a");
    assert_eq!(check(&cluster, &a), Ok(()));
    cluster.pushed(1, "s", "b");
    let changed = OperatorError::BaseChanged {
        store: name("s"),
        base: a.clone(),
        current: b.clone(),
    };
    assert_eq!(check(&cluster, &a), Err(changed));
    assert_eq!(check(&cluster, &b), Ok(()));
    cluster.pushed(1, "s", "c");
    assert_eq!(check(&cluster, &a), Ok(()), "it is current already");
}

#[test]
fn a_push_for_one_version_is_refused_when_the_same_content_was_deployed_again() {
    let mut cluster = Cluster::with_store(1, 8, 1);
    let first = cluster.pushed(1, "s", "a");
    let push = |cluster: &Cluster| {
        let terms = PushTerms {
            if_current: Some(first),
            base: Some(detail("a").manifest_checksum),
            ..PushTerms::default()
        };
        operator::push(&cluster.view, &name("s"), detail("b"), terms, 9)
    };
    assert!(push(&cluster).is_ok());
    cluster.pushed(1, "s", "a");
    let changed = OperatorError::CurrentChanged {
        store: name("s"),
        version: first,
    };
    assert_eq!(push(&cluster), Err(changed));
}

/// Creates a hybrid store that rewinds its stream by two milliseconds.
fn create_hybrid(cluster: &mut Cluster, store: &str) {
    cluster.create(store);
    cluster.change_store(store, |store| {
        let stream = StreamSettings::of(StreamSource::Log(1));
        store.definition.kind = StoreKind::Hybrid;
        store.definition.stream = Some(StreamSettings { rewind_ms: 2, ..stream });
    });
}

#[test]
fn versions_of_hybrid_stores_bring_their_cut() {
    let mut cluster = Cluster::of(1, 8, 1);
    cluster.create("batch");
    create_hybrid(&mut cluster, "hybrid");
    for (store, as_of_unix_ms, events) in [
        ("batch", None, None),
        ("hybrid", None, Some((Some(5), 3))),
        ("hybrid", Some(4), Some((Some(4), 2))),
    ] {
        let terms = PushTerms {
            as_of_unix_ms,
            cut_unix_ms: Some(5),
            ..PushTerms::default()
        };
        let version = cluster.push_on(store, "a", terms);
        let found = cluster.store(store).details[&version].events;
        assert_eq!(found.map(|events| (events.as_of_unix_ms, events.from_unix_ms)), events);
        let change = operator::cancel_push(&cluster.view, &name(store), None, 9).unwrap();
        assert!(cluster.apply(&change));
    }
}

#[test]
fn a_difference_keeps_the_events_on_top_of_its_base() {
    let mut cluster = Cluster::of(1, 8, 1);
    create_hybrid(&mut cluster, "s");
    for (base_as_of_unix_ms, as_of_unix_ms, events) in [
        // Long before the push of the difference, at 8.
        (None, None, (None, 1)),
        (Some(5), None, (Some(5), 3)),
        (None, Some(7), (Some(7), 5)),
    ] {
        let base = cluster.pushed(1, "s", "a");
        cluster.change_store("s", |store| {
            let detail = store.details.get_mut(&base).unwrap();
            let (from_unix_ms, as_of_unix_ms) = (1, base_as_of_unix_ms);
            detail.events = Some(VersionEvents {
                from_unix_ms,
                as_of_unix_ms,
            });
        });
        let checksum = cluster.store("s").details[&base].manifest_checksum.clone();
        let terms = PushTerms {
            base: Some(checksum),
            as_of_unix_ms,
            ..PushTerms::default()
        };
        let version = cluster.push_on("s", "b", terms);
        let found = cluster.store("s").details[&version].events.unwrap();
        assert_eq!((found.as_of_unix_ms, found.from_unix_ms), events);
        let change = operator::cancel_push(&cluster.view, &name("s"), None, 9).unwrap();
        assert!(cluster.apply(&change));
    }
}

#[test]
fn a_difference_fails_when_its_base_is_rolled_back() {
    let mut cluster = Cluster::with_store(1, 8, 1);
    let first = cluster.pushed(1, "s", "a");
    let second = cluster.pushed(1, "s", "b");
    let of_b = Some(detail("b").manifest_checksum);
    for (base, back, ends) in [(of_b, first, PushState::Failed), (None, second, PushState::Swapped)] {
        let terms = PushTerms {
            base,
            ..PushTerms::default()
        };
        let version = cluster.push_on("s", "c", terms);
        let change = operator::swap(&cluster.view, &name("s"), back).unwrap().unwrap();
        assert!(cluster.apply(&change));
        cluster.ready(1..=1, "s", version);
        cluster.settle();
        assert_eq!(cluster.store("s").push.as_ref().unwrap().state, ends);
    }
    let push = cluster.store("s").push.clone().unwrap();
    assert_eq!(cluster.store("s").versions.current(), Some(push.version));
}

#[test]
fn a_store_has_one_push_and_pushes_are_bounded() {
    let mut cluster = Cluster::of(1, 8, 1);
    for store in 0..=PUSHES_MAX {
        cluster.create(&format!("s{store}"));
    }
    cluster.push("s0", "a");
    let again = operator::push(&cluster.view, &name("s0"), detail("b"), PushTerms::default(), 8);
    let in_progress = OperatorError::PushInProgress {
        store: name("s0"),
        version: version(1),
    };
    assert_eq!(again, Err(in_progress.clone()));
    assert_eq!(operator::drop_store(&cluster.view, &name("s0"), 8, 0), Err(in_progress));
    for store in 1..PUSHES_MAX {
        cluster.push(&format!("s{store}"), "a");
    }
    let last = operator::push(
        &cluster.view,
        &name(&format!("s{PUSHES_MAX}")),
        detail("b"),
        PushTerms::default(),
        8,
    );
    assert_eq!(last, Err(OperatorError::TooManyPushes { max: PUSHES_MAX }));
}

#[test]
fn a_cancelled_push_ends_once_without_reuse_of_its_number() {
    let mut cluster = Cluster::with_store(1, 8, 1);
    let none = operator::cancel_push(&cluster.view, &name("s"), None, 9);
    assert_eq!(none, Err(OperatorError::PushNotFound { store: name("s") }));
    cluster.push("s", "a");
    let another = operator::cancel_push(&cluster.view, &name("s"), Some(version(2)), 9);
    assert_eq!(another, Err(OperatorError::PushEnded { store: name("s") }));
    let cancel = operator::cancel_push(&cluster.view, &name("s"), Some(version(1)), 9).unwrap();
    assert!(cluster.apply(&cancel));
    let push = cluster.store("s").push.clone().unwrap();
    assert_eq!((push.state, push.ended_unix_ms), (PushState::Cancelled, Some(9)));
    assert!(cluster.store("s").details.is_empty());
    let ended = operator::cancel_push(&cluster.view, &name("s"), None, 9);
    assert_eq!(ended, Err(OperatorError::PushEnded { store: name("s") }));
    assert_eq!(cluster.push("s", "b"), version(2));
}

#[test]
fn only_kept_and_ready_versions_become_current_again() {
    let mut cluster = Cluster::with_store(2, 8, 1);
    let unknown = operator::swap(&cluster.view, &name("t"), version(1));
    assert_eq!(unknown, Err(OperatorError::StoreNotFound { store: name("t") }));
    let nothing = operator::roll_back(&cluster.view, &name("s"), None).unwrap_err();
    assert!(nothing.to_string().contains("it keeps none"), "{nothing}");
    for build in ["a", "b"] {
        cluster.pushed(2, "s", build);
    }
    let refused = operator::swap(&cluster.view, &name("s"), version(7)).unwrap_err();
    assert!(refused.to_string().contains("it keeps 2, 1"), "{refused}");
    assert_eq!(operator::swap(&cluster.view, &name("s"), version(2)), Ok(None));
    cluster.report(1, "s", version(1), ReplicaReport::of(ReplicaState::Fetching));
    let refused = operator::roll_back(&cluster.view, &name("s"), None);
    assert!(
        matches!(refused, Err(OperatorError::VersionNotReady { .. })),
        "{refused:?}"
    );
    cluster.ready([1], "s", version(1));
    let change = operator::roll_back(&cluster.view, &name("s"), None).unwrap().unwrap();
    assert!(cluster.apply(&change));
    let versions = &cluster.store("s").versions;
    assert_eq!(
        (versions.current(), versions.backups()),
        (Some(version(1)), &[version(2)][..])
    );
    // Version 2 is the version that was rolled back from.
    let refused = operator::roll_back(&cluster.view, &name("s"), None).unwrap_err();
    let message = refused.to_string();
    for part in ["it keeps 1, 2", "fondaco versions s", "fondaco rollback s --to N"] {
        assert!(message.contains(part), "{message}");
    }
    let change = operator::roll_back(&cluster.view, &name("s"), Some(version(2)));
    assert!(change.unwrap().is_some());
}

#[test]
fn fewer_replicas_must_have_all_kept_versions() {
    let mut cluster = Cluster::with_store(2, 8, 2);
    cluster.pushed(2, "s", "a");
    cluster.report(1, "s", version(1), ReplicaReport::of(ReplicaState::Fetching));
    let change = StoreChange {
        replicas: Some(Some(1)),
        ..StoreChange::default()
    };
    let refused = operator::alter_store(&cluster.view, &name("s"), &change, 9);
    assert!(
        matches!(refused, Err(OperatorError::VersionNotReady { .. })),
        "{refused:?}"
    );
    cluster.ready([1], "s", version(1));
    assert!(operator::alter_store(&cluster.view, &name("s"), &change, 9).is_ok());
}
