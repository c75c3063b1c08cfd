//! The versions that a data node fetches, in which order, and how often it tries.

use std::collections::BTreeMap;

use fondaco_decisions::{AgentAction, FETCH_ATTEMPTS_MAX, FETCHES_MAX};
use fondaco_model::cluster::ReplicaState;
use fondaco_model::{Copies, PartitionId, PartitionSet};

use crate::data_node::{Fetch, Node, drop_at, fetches, first_fetch};
use crate::fixture::{Cluster, name, node, remove, version};

#[test]
fn a_node_fetches_and_reports_its_partitions_of_a_push() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.push("s", "a");
    let mut two = Node::new(2);
    let fetch = first_fetch(two.look(&cluster, 0)).unwrap();
    let own: PartitionSet = cluster.table().partitions_of(node(2), Copies::of(2)).collect();
    assert_eq!(fetch.partitions, own);
    assert_eq!(fetch.peers, [node(3), node(1)], "each begins with those after itself");
    assert_eq!(two.state("s", 1), ReplicaState::Fetching);
    two.catch_up(&cluster, 1_000);
    assert_eq!(two.state("s", 1), ReplicaState::Ready);
    assert_eq!(
        two.serves("s"),
        [1],
        "requests that name it may read it before it is current"
    );
    assert_eq!(two.serving.stores["s"].current, None);
    cluster.ready(1..=3, "s", version(1));
    cluster.settle();
    two.look(&cluster, 2_000);
    assert_eq!(two.state("s", 1), ReplicaState::Serving);
    assert_eq!(two.serving.stores["s"].current, Some(version(1)));
}

#[test]
fn a_new_node_fetches_current_versions_first_and_backups_last() {
    let mut cluster = Cluster::of(1, 8, 1);
    for store in ["a", "b", "c"] {
        cluster.create(store);
        for build in ["1", "2"] {
            cluster.pushed(1, store, &format!("{store}{build}"));
        }
    }
    cluster.push("b", "b3");
    let actions = Node::new(1).look(&cluster, 0);
    let expected = [("a", 2), ("b", 2), ("c", 2), ("b", 3), ("a", 1), ("b", 1), ("c", 1)];
    assert_eq!(fetches(&actions), expected);
}

#[test]
fn fetches_are_bounded_and_backups_never_take_all_of_them() {
    let mut cluster = Cluster::of(1, 8, 1);
    let mut one = Node::new(1);
    for store in 0..20 {
        let store = format!("s{store:02}");
        cluster.create(&store);
        for build in ["1", "2"] {
            cluster.pushed(1, &store, &format!("{store}{build}"));
        }
        one.has(
            &store,
            version(2),
            &format!("{store}2"),
            cluster.view.cluster.as_ref().unwrap().partitions.partitions().collect(),
        );
    }
    let backups = fetches(&one.look(&cluster, 0)).len();
    assert_eq!(backups, FETCHES_MAX / 2);
    one.local.versions.clear();
    // A later push still finds a free fetch.
    assert_eq!(fetches(&one.look(&cluster, 1_000)).len(), FETCHES_MAX - 2);
    one.fetching("s00", version(2), "s002");
    let more = one.look(&cluster, 2_000);
    assert_eq!(fetches(&more).len(), FETCHES_MAX - 3);
    assert!(!fetches(&more).contains(&("s00", 2)), "it runs already");
    for (number, _) in (0..).zip(0..FETCHES_MAX - 3) {
        let store = format!("s{:02}", number + 1);
        one.fetching(&store, version(2), &format!("{store}2"));
    }
    assert!(fetches(&one.look(&cluster, 3_000)).is_empty());
    let pushed = cluster.push("s00", "3");
    assert_eq!(fetches(&one.look(&cluster, 4_000)), [("s00", pushed.get())]);
}

#[test]
fn partitions_that_move_are_fetched_by_themselves() {
    let mut cluster = Cluster::with_store(3, 16, 2, "s");
    cluster.pushed(3, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    cluster.run(&remove(3));
    let owned = cluster.table().owned(2)[&node(1)].clone();
    let lost: PartitionSet = owned.iter().take(1).collect();
    let local = one.on_disk("s", 1);
    local.open = local.open.without(&lost);
    let fetch = first_fetch(one.look(&cluster, 1_000)).unwrap();
    assert_eq!((fetch.partitions, fetch.is_move), (lost, false), "its own comes first");
    one.has("s", version(1), "a", owned.clone());
    let Fetch {
        partitions, is_move, ..
    } = first_fetch(one.look(&cluster, 2_000)).expect("it is given more");
    assert!(is_move && !partitions.is_empty() && partitions.without(&owned) == partitions);
}

#[test]
fn nodes_of_the_same_zone_are_asked_first() {
    let mut cluster = Cluster::with_store(4, 1, 4, "s");
    cluster.push("s", "a");
    for number in [1, 4] {
        let record = &mut cluster.view.nodes.get_mut(&node(number)).unwrap().record;
        record.zone = "near".to_owned();
    }
    for (number, peers) in [(1, [4, 2, 3]), (2, [3, 4, 1])] {
        let fetch = first_fetch(Node::new(number).look(&cluster, 0)).unwrap();
        assert_eq!(fetch.peers, peers.map(node));
    }
}

/// How many of these nodes read each pushed partition from the source; and the most nodes that one of them sends one to.
fn readers(cluster: &Cluster, numbers: &[u32]) -> (Vec<u32>, usize) {
    let mut readers = vec![0; 8];
    let mut sent = BTreeMap::new();
    for &number in numbers {
        let fetch = first_fetch(Node::new(number).look(cluster, 0));
        let Fetch { partitions, relays, .. } = fetch.unwrap();
        for partition in partitions.iter() {
            match relays.get(&partition) {
                None => readers[partition.get() as usize] += 1,
                Some(relay) => {
                    assert!(*relay != node(number) && cluster.view.is_live(*relay));
                    *sent.entry((*relay, partition)).or_insert(0) += 1;
                }
            }
        }
    }
    (readers, sent.into_values().max().unwrap_or(0))
}

#[test]
fn one_live_owner_of_each_pushed_partition_reads_the_source() {
    let mut cluster = Cluster::with_store(3, 8, 3, "s");
    cluster.push("s", "a");
    assert_eq!(readers(&cluster, &[1, 2, 3]), (vec![1; 8], 2));
    cluster.leave(2);
    assert_eq!(readers(&cluster, &[1, 3]), (vec![1; 8], 1));
}

#[test]
fn a_store_on_all_nodes_is_read_from_the_source_once() {
    let mut cluster = Cluster::with_store(9, 8, 2, "s");
    cluster.change_store("s", |store| store.definition.everywhere = true);
    cluster.push("s", "a");
    let all: Vec<u32> = (1..=9).collect();
    assert_eq!(readers(&cluster, &all), (vec![1; 8], 2));
}

#[test]
fn a_fetch_for_a_plan_stops_when_it_is_cancelled() {
    let mut cluster = Cluster::with_store(3, 16, 2, "s");
    let current = cluster.pushed(3, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    let begun = |one: &mut Node, cluster: &Cluster, now_ms: u64| {
        let partitions = first_fetch(one.look(cluster, now_ms))?.partitions;
        one.fetching("s", current, "a");
        let fetch = one.local.fetches.get_mut(&(name("s"), current))?;
        fetch.partitions.clone_from(&partitions);
        Some(partitions)
    };
    let stopped = |one: &mut Node, cluster: &Cluster, now_ms: u64| {
        let actions = one.look(cluster, now_ms);
        actions.into_iter().find_map(|action| match action {
            AgentAction::StopFetch { unwanted, .. } => Some(unwanted),
            _ => None,
        })
    };
    cluster.run(&remove(3));
    let planned = begun(&mut one, &cluster, 1_000).expect("it is given more");
    assert_eq!(stopped(&mut one, &cluster, 2_000), None);
    // In the meantime it has lost a partition of its own, which it wants whatever becomes of the plan.
    let local = one.on_disk("s", 1);
    let lost: PartitionSet = local.open.iter().take(1).collect();
    local.open = local.open.without(&lost);
    let fetch = one.local.fetches.get_mut(&(name("s"), current)).unwrap();
    fetch.partitions = fetch.partitions.with(&lost);
    cluster.cancel_plan();
    assert_eq!(
        stopped(&mut one, &cluster, 3_000),
        Some(planned),
        "and not the lost partition"
    );
    assert_eq!(begun(&mut one, &cluster, 4_000), Some(lost));
    assert_eq!(stopped(&mut one, &cluster, 5_000), None);
}

#[test]
fn a_version_that_cannot_be_opened_is_fetched_again() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let current = cluster.pushed(1, "s", "a");
    let mut one = Node::new(1);
    one.has("s", current, "a", PartitionSet::EMPTY);
    one.on_disk("s", 1).manifest_checksum = None;
    let actions = one.look(&cluster, 0);
    assert_eq!(fetches(&actions), [("s", 1)]);
    assert_eq!(drop_at(&actions), None, "there may be no other copy of its files");
}

#[test]
fn damaged_partitions_are_served_reported_and_fetched_again() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster.pushed(1, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    let damaged = one.on_disk("s", 1);
    let partition: PartitionSet = damaged.open.iter().take(1).collect();
    damaged.damaged = partition.clone();
    damaged.damage = Some("a page cannot be read".to_owned());
    let actions = one.look(&cluster, 10_000);
    let fetch = first_fetch(actions.clone()).unwrap();
    assert_eq!(fetch.partitions, partition);
    assert_eq!(one.serves("s"), [1]);
    let report = one.reported("s", 1);
    assert_eq!(report.state, ReplicaState::Serving);
    assert_eq!(report.error.as_deref(), Some("a page cannot be read"));
    one.fails(&actions, "no node has it", 10_000);
    assert!(
        fetches(&one.look(&cluster, 10_500)).is_empty(),
        "it is left alone for a while"
    );
    let error = one.reported("s", 1).error.clone().unwrap();
    assert!(
        error.contains("a page cannot be read") && error.contains("no node has it"),
        "{error}"
    );
    assert_eq!(fetches(&one.look(&cluster, 20_000)), [("s", 1)]);
}

#[test]
fn pushes_are_tried_finitely_and_kept_versions_for_ever() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let mut now_ms = 0;
    let mut one = Node::new(1);
    let attempts = |cluster: &Cluster, one: &mut Node, now_ms: &mut u64| {
        let mut attempts = 0;
        for _ in 0..1_000 {
            *now_ms += 1_000;
            let actions = one.look(cluster, *now_ms);
            attempts += fetches(&actions).len() as u32;
            one.fails(&actions, "no", *now_ms);
        }
        attempts
    };
    cluster.push("s", "a");
    assert_eq!(attempts(&cluster, &mut one, &mut now_ms), FETCH_ATTEMPTS_MAX);
    assert_eq!(one.state("s", 1), ReplicaState::Failed);
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(0));
    cluster.ready([1], "s", version(1));
    cluster.settle();
    let tried = attempts(&cluster, &mut one, &mut now_ms);
    assert!((10..20).contains(&tried), "once a minute: {tried} in 1000 s");
}

/// Looks until all attempts to fetch something have failed.
fn exhaust(one: &mut Node, cluster: &Cluster, now_ms: &mut u64) {
    for _ in 0..FETCH_ATTEMPTS_MAX * 60 {
        *now_ms += 1_000;
        let actions = one.look(cluster, *now_ms);
        one.fails(&actions, "no node has it", *now_ms);
    }
}

#[test]
fn a_partition_that_cannot_be_fetched_keeps_no_other_one_from_being_tried() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster.pushed(1, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    let mut now_ms = 0;
    let damage = |one: &mut Node, number: u32| {
        let partition: PartitionSet = [PartitionId::new(number)].into_iter().collect();
        let local = one.on_disk("s", 1);
        local.damaged = local.damaged.with(&partition);
        partition
    };
    damage(&mut one, 3);
    exhaust(&mut one, &cluster, &mut now_ms);
    let actions = one.look(&cluster, now_ms);
    assert!(fetches(&actions).is_empty(), "it was tried a moment ago");
    // Another one is damaged, and tried at once.
    let other = damage(&mut one, 5);
    let fetch = first_fetch(one.look(&cluster, now_ms)).unwrap();
    assert_eq!(fetch.partitions, other);
}

#[test]
fn a_version_from_elsewhere_has_not_failed_yet() {
    let mut cluster = Cluster::of(1, 8, 1);
    let mut one = Node::new(1);
    let mut now_ms = 0;
    cluster.create("s");
    cluster.push("s", "a");
    exhaust(&mut one, &cluster, &mut now_ms);
    assert_eq!(one.state("s", 1), ReplicaState::Failed);
    assert_eq!(one.agent.failures().count(), 1);
    // The node sees the store that was dropped, and then another one with its name and the same build elsewhere.
    cluster.change_store("s", |store| {
        store.id += 1;
        let detail = store.details.get_mut(&version(1)).unwrap();
        detail.source = "file:///elsewhere/a".to_owned();
    });
    now_ms += 1_000;
    assert_eq!(fetches(&one.look(&cluster, now_ms)), [("s", 1)]);
    assert_eq!(one.state("s", 1), ReplicaState::Fetching);
    assert_eq!(one.agent.failures().count(), 0);
}
