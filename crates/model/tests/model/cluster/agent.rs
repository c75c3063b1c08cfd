//! What a data node fetches, serves, drops and reports.

use std::collections::BTreeMap;

use fondaco_model::cluster::operator;
use fondaco_model::cluster::{
    Agent, AgentAction, DROP_GRACE_MS, FETCH_ATTEMPTS_MAX, FETCHES_MAX, FailedFetch, LocalFetch, LocalReplicas,
    LocalVersion, ReplicaState, ReportRecord, ServingSet,
};
use fondaco_model::{Copies, PartitionId, PartitionSet, VersionNumber};

use super::fixture::{Cluster, announcement, name, node, version};
use super::plans::replaced_without_a_store;

/// A node whose actions are carried out at once.
struct Node {
    agent: Agent,
    local: LocalReplicas,
    serving: ServingSet,
    report: ReportRecord,
}

impl Node {
    fn new(number: u32) -> Self {
        Self {
            agent: Agent::new(node(number)),
            local: LocalReplicas::default(),
            serving: ServingSet::default(),
            report: ReportRecord::default(),
        }
    }

    /// Looks, and carries out all actions except fetches. Returns the actions.
    fn look(&mut self, cluster: &Cluster, now_ms: u64) -> Vec<AgentAction> {
        let actions = self.agent.decide(&cluster.view, &self.local, now_ms);
        for action in &actions {
            match action.clone() {
                AgentAction::Publish(serving) => self.serving = serving,
                AgentAction::Report(report) => self.report = report,
                AgentAction::Drop { store, version } => {
                    let key = (store, version);
                    self.local.versions.remove(&key).expect("it is there");
                }
                AgentAction::DropPartitions {
                    store,
                    version,
                    partitions,
                } => {
                    let local = self.local.versions.get_mut(&(store, version)).expect("it is there");
                    local.open = local.open.without(&partitions);
                }
                AgentAction::StopFetch { store, version, .. } => _ = self.local.fetches.remove(&(store, version)),
                AgentAction::Fetch { .. } => {}
            }
        }
        actions
    }

    /// Looks, and completes all fetches.
    fn catch_up(&mut self, cluster: &Cluster, now_ms: u64) {
        for action in self.look(cluster, now_ms) {
            if let AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                ..
            } = action
            {
                self.has(store.as_str(), version, &detail.manifest_checksum, partitions);
            }
        }
        self.look(cluster, now_ms);
    }

    fn has(&mut self, store: &str, version: VersionNumber, checksum: &str, partitions: PartitionSet) {
        let entry = self.local.versions.entry((name(store), version));
        let local = entry.or_insert_with(|| LocalVersion {
            manifest_checksum: Some(checksum.to_owned()),
            ..LocalVersion::default()
        });
        local.open = local.open.with(&partitions);
    }

    fn fetching(&mut self, store: &str, version: VersionNumber, checksum: &str) {
        let fetch = LocalFetch {
            manifest_checksum: checksum.to_owned(),
            partitions: PartitionSet::EMPTY,
            bytes_done: 0,
            seconds_left: None,
            bytes_total: 100,
        };
        self.local.fetches.insert((name(store), version), fetch);
    }

    /// All fetches among these actions fail.
    fn fails(&mut self, actions: &[AgentAction], error: &str, now_ms: u64) {
        for action in actions {
            let AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                ..
            } = action
            else {
                continue;
            };
            let failed = FailedFetch {
                source: detail.source.clone(),
                manifest_checksum: detail.manifest_checksum.clone(),
                partitions: partitions.clone(),
                error: error.to_owned(),
                for_good: false,
            };
            self.agent.fetch_failed(&(store.clone(), *version), failed, now_ms);
        }
    }

    fn state(&self, store: &str, number: u64) -> ReplicaState {
        self.report.stores[store].versions[&version(number)].state
    }

    fn serves(&self, store: &str) -> Vec<u64> {
        let versions = self.serving.stores[store].versions.keys();
        versions.map(|version| version.get()).collect()
    }
}

fn fetches(actions: &[AgentAction]) -> Vec<(&str, u64)> {
    let fetch = |action| match action {
        &AgentAction::Fetch { ref store, version, .. } => Some((store.as_str(), version.get())),
        _ => None,
    };
    actions.iter().filter_map(fetch).collect()
}

/// The partitions of the first fetch among these actions.
fn fetched(actions: &[AgentAction]) -> Option<PartitionSet> {
    actions.iter().find_map(|action| match action {
        AgentAction::Fetch { partitions, .. } => Some(partitions.clone()),
        _ => None,
    })
}

/// Whether a version is dropped by one of these actions.
fn drops(actions: &[AgentAction]) -> bool {
    let is_drop = |action: &AgentAction| matches!(action, AgentAction::Drop { .. });
    actions.iter().any(is_drop)
}

/// A cluster with an empty store, `s`, and its only node.
fn alone() -> (Cluster, Node) {
    (Cluster::with_store(1, 8, 1), Node::new(1))
}

#[test]
fn a_node_fetches_and_reports_its_partitions_of_a_push() {
    let mut cluster = Cluster::with_store(3, 8, 2);
    cluster.push("s", "a");
    let mut two = Node::new(2);
    let actions = two.look(&cluster, 0);
    let table = &cluster.view.routing.as_ref().unwrap().record;
    let own: PartitionSet = table.partitions_of(node(2), Copies::of(2)).collect();
    let fetch = actions
        .iter()
        .find(|action| matches!(action, AgentAction::Fetch { .. }));
    let Some(AgentAction::Fetch { partitions, peers, .. }) = fetch else {
        panic!("{actions:?}");
    };
    assert_eq!(*partitions, own);
    assert_eq!(*peers, [node(3), node(1)], "each begins with those after itself");
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
fn a_version_no_longer_kept_is_dropped_after_a_grace() {
    let (mut cluster, mut one) = alone();
    let mut now_ms = 0;
    for build in ["a", "b", "c"] {
        cluster.push("s", build);
        one.catch_up(&cluster, now_ms);
        cluster.pushed_by(&mut now_ms, build);
    }
    one.look(&cluster, now_ms);
    assert_eq!(one.serves("s"), [1, 2, 3], "requests may have pinned the first");
    let mut waited_ms = 0;
    while one.serves("s") == [1, 2, 3] {
        waited_ms += 1_000;
        assert!(waited_ms <= DROP_GRACE_MS + 1_000);
        let actions = one.look(&cluster, now_ms + waited_ms);
        let publish = actions
            .iter()
            .position(|action| matches!(action, AgentAction::Publish(_)));
        let drop = actions
            .iter()
            .position(|action| matches!(action, AgentAction::Drop { .. }));
        assert!(publish <= drop, "it is closed before it is deleted");
    }
    assert!(waited_ms >= DROP_GRACE_MS);
    assert_eq!(one.serves("s"), [2, 3]);
    assert_eq!(one.local.versions.len(), 2);
}

#[test]
fn a_cancelled_push_leaves_nothing() {
    let (mut cluster, mut one) = alone();
    let pushed = cluster.push("s", "a");
    one.look(&cluster, 0);
    one.fetching("s", pushed, "a");
    one.has("s", pushed, "a", PartitionSet::EMPTY);
    let cancel = operator::cancel_push(&cluster.view, &name("s"), None, 9).unwrap();
    assert!(cluster.apply(&cancel));
    let actions = one.look(&cluster, 100);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, AgentAction::StopFetch { .. }))
    );
    assert!(!drops(&actions), "first it must stop");
    let actions = one.look(&cluster, 200);
    assert!(drops(&actions), "{actions:?}");
    assert!(one.local.versions.is_empty());
}

#[test]
fn partitions_that_move_are_fetched_by_themselves() {
    let mut cluster = Cluster::with_store(3, 16, 2);
    cluster.pushed(3, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    cluster.run(&operator::PlanRequest {
        remove: [node(3)].into(),
        ..operator::PlanRequest::default()
    });
    let owned: PartitionSet = {
        let owners = cluster.table().all_owners().iter().zip(0..);
        owners
            .filter(|(list, _)| list.contains(&node(1)))
            .map(|(_, at)| PartitionId::new(at))
            .collect()
    };
    let lost: PartitionSet = owned.iter().take(1).collect();
    let local = one.local.versions.get_mut(&(name("s"), version(1))).unwrap();
    local.open = local.open.without(&lost);
    let fetch = |one: &mut Node, now_ms: u64| {
        let actions = one.look(&cluster, now_ms);
        actions.into_iter().find_map(|action| match action {
            AgentAction::Fetch {
                partitions, is_move, ..
            } => Some((partitions, is_move)),
            _ => None,
        })
    };
    assert_eq!(
        fetch(&mut one, 1_000),
        Some((lost.clone(), false)),
        "its own comes first"
    );
    one.has("s", version(1), "a", owned.clone());
    let (moved, is_move) = fetch(&mut one, 2_000).expect("it is given more");
    assert!(is_move && !moved.is_empty() && moved.without(&owned) == moved);
}

#[test]
fn nodes_of_the_same_zone_are_asked_first() {
    let mut cluster = Cluster::with_store(4, 1, 4);
    cluster.push("s", "a");
    for number in [1, 4] {
        let record = &mut cluster.view.nodes.get_mut(&node(number)).unwrap().record;
        record.zone = "near".to_owned();
    }
    let peers = |number: u32| {
        let actions = Node::new(number).look(&cluster, 0);
        actions.into_iter().find_map(|action| match action {
            AgentAction::Fetch { peers, .. } => Some(peers),
            _ => None,
        })
    };
    assert_eq!(peers(1).unwrap(), [node(4), node(2), node(3)]);
    assert_eq!(peers(2).unwrap(), [node(3), node(4), node(1)]);
}

/// How many of these nodes read each pushed partition from the source; and the most nodes that one of them sends one to.
fn readers(cluster: &Cluster, numbers: &[u32]) -> (Vec<u32>, usize) {
    let mut readers = vec![0; 8];
    let mut sent = BTreeMap::new();
    for &number in numbers {
        let actions = Node::new(number).look(cluster, 0);
        let fetch = actions.into_iter().find_map(|action| match action {
            AgentAction::Fetch { partitions, relays, .. } => Some((partitions, relays)),
            _ => None,
        });
        let (partitions, relays) = fetch.unwrap();
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
    let mut cluster = Cluster::with_store(3, 8, 3);
    cluster.push("s", "a");
    assert_eq!(readers(&cluster, &[1, 2, 3]), (vec![1; 8], 2));
    cluster.leave(2);
    assert_eq!(readers(&cluster, &[1, 3]), (vec![1; 8], 1));
}

#[test]
fn a_store_on_all_nodes_is_read_from_the_source_once() {
    let mut cluster = Cluster::with_store(9, 8, 2);
    cluster.change_store("s", |store| store.definition.everywhere = true);
    cluster.push("s", "a");
    let all: Vec<u32> = (1..=9).collect();
    assert_eq!(readers(&cluster, &all), (vec![1; 8], 2));
}

#[test]
fn a_fetch_for_a_plan_stops_when_it_is_cancelled() {
    let mut cluster = Cluster::with_store(3, 16, 2);
    let current = cluster.pushed(3, "s", "a");
    let mut one = Node::new(1);
    one.catch_up(&cluster, 0);
    let begun = |one: &mut Node, cluster: &Cluster, now_ms: u64| {
        let actions = one.look(cluster, now_ms);
        let fetch = fetched(&actions);
        fetch.inspect(|partitions| {
            one.fetching("s", current, "a");
            one.local.fetches.get_mut(&(name("s"), current)).unwrap().partitions = partitions.clone();
        })
    };
    let stopped = |one: &mut Node, cluster: &Cluster, now_ms: u64| {
        let actions = one.look(cluster, now_ms);
        actions.into_iter().find_map(|action| match action {
            AgentAction::StopFetch { unwanted, .. } => Some(unwanted),
            _ => None,
        })
    };
    cluster.run(&operator::PlanRequest {
        remove: [node(3)].into(),
        ..operator::PlanRequest::default()
    });
    let planned = begun(&mut one, &cluster, 1_000).expect("it is given more");
    assert_eq!(stopped(&mut one, &cluster, 2_000), None);
    // In the meantime it has lost a partition of its own, which it wants whatever becomes of the plan.
    let key = (name("s"), current);
    let local = one.local.versions.get_mut(&key).unwrap();
    let lost: PartitionSet = local.open.iter().take(1).collect();
    local.open = local.open.without(&lost);
    let fetch = one.local.fetches.get_mut(&key).unwrap();
    fetch.partitions = fetch.partitions.with(&lost);
    assert!(cluster.apply(&operator::cancel_plan(&cluster.view, None, 10).unwrap()));
    assert_eq!(
        stopped(&mut one, &cluster, 3_000),
        Some(planned),
        "and not the lost partition"
    );
    assert_eq!(begun(&mut one, &cluster, 4_000), Some(lost));
    assert_eq!(stopped(&mut one, &cluster, 5_000), None);
}

#[test]
fn another_version_with_the_same_number_is_not_kept() {
    let (mut cluster, mut one) = alone();
    let current = cluster.pushed(1, "s", "a");
    one.has(
        "s",
        current,
        "that of a dropped store",
        [fondaco_model::PartitionId::new(0)].into_iter().collect(),
    );
    let actions = one.look(&cluster, 0);
    assert!(drops(&actions), "{actions:?}");
    assert_eq!(one.serves("s"), [0; 0]);
    one.catch_up(&cluster, 1_000);
    assert_eq!(
        one.local.versions[&(name("s"), current)].manifest_checksum.as_deref(),
        Some("a")
    );
    assert_eq!(one.state("s", 1), ReplicaState::Serving);
}

#[test]
fn a_version_that_cannot_be_opened_is_fetched_again() {
    let (mut cluster, mut one) = alone();
    let current = cluster.pushed(1, "s", "a");
    one.has("s", current, "a", PartitionSet::EMPTY);
    let local = one.local.versions.get_mut(&(name("s"), current)).unwrap();
    local.manifest_checksum = None;
    let actions = one.look(&cluster, 0);
    assert_eq!(fetches(&actions), [("s", 1)]);
    assert!(!drops(&actions), "there may be no other copy of its files");
}

#[test]
fn damaged_partitions_are_served_reported_and_fetched_again() {
    let (mut cluster, mut one) = alone();
    cluster.pushed(1, "s", "a");
    one.catch_up(&cluster, 0);
    let damaged = one.local.versions.get_mut(&(name("s"), version(1))).unwrap();
    let partition: PartitionSet = damaged.open.iter().take(1).collect();
    damaged.damaged = partition.clone();
    damaged.damage = Some("a page cannot be read".to_owned());
    let actions = one.look(&cluster, 10_000);
    let fetched = fetched(&actions);
    assert_eq!(fetched, Some(partition));
    assert_eq!(one.serves("s"), [1]);
    let report = &one.report.stores[&name("s")].versions[&version(1)];
    assert_eq!(report.state, ReplicaState::Serving);
    assert_eq!(report.error.as_deref(), Some("a page cannot be read"));
    one.fails(&actions, "no node has it", 10_000);
    assert!(
        fetches(&one.look(&cluster, 10_500)).is_empty(),
        "it is left alone for a while"
    );
    let error = one.report.stores[&name("s")].versions[&version(1)]
        .error
        .clone()
        .unwrap();
    assert!(
        error.contains("a page cannot be read") && error.contains("no node has it"),
        "{error}"
    );
    assert_eq!(fetches(&one.look(&cluster, 20_000)), [("s", 1)]);
}

#[test]
fn pushes_are_tried_finitely_and_kept_versions_for_ever() {
    let (mut cluster, mut one) = alone();
    let mut now_ms = 0;
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
    let (mut cluster, mut one) = alone();
    cluster.pushed(1, "s", "a");
    one.catch_up(&cluster, 0);
    let mut now_ms = 0;
    let damage = |one: &mut Node, number: u32| {
        let partition: PartitionSet = [PartitionId::new(number)].into_iter().collect();
        let local = one.local.versions.get_mut(&(name("s"), version(1))).unwrap();
        local.damaged = local.damaged.with(&partition);
        partition
    };
    damage(&mut one, 3);
    exhaust(&mut one, &cluster, &mut now_ms);
    let actions = one.look(&cluster, now_ms);
    assert!(fetches(&actions).is_empty(), "it was tried a moment ago");
    // Another one is damaged, and tried at once.
    let other = damage(&mut one, 5);
    let actions = one.look(&cluster, now_ms);
    let fetched = fetched(&actions);
    assert_eq!(fetched, Some(other), "{actions:?}");
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

#[test]
fn partitions_that_moved_away_are_dropped_after_a_grace() {
    let mut cluster = Cluster::with_store(2, 8, 2);
    let mut one = Node::new(1);
    cluster.push("s", "a");
    one.catch_up(&cluster, 0);
    cluster.ready(1..=2, "s", version(1));
    cluster.settle();
    cluster.change_store("s", |store| store.definition.replicas = Some(1));
    let table = &cluster.view.routing.as_ref().unwrap().record;
    let own: PartitionSet = table.partitions_of(node(1), Copies::of(1)).collect();
    for second in 1..=4 {
        one.look(&cluster, second * 1_000);
    }
    let open = |one: &Node| one.local.versions[&(name("s"), version(1))].open.len();
    assert_eq!(open(&one), 8, "requests may still ask for them");
    for second in 5..=8 {
        one.look(&cluster, second * 1_000);
    }
    assert_eq!(open(&one), own.len());
    assert_eq!(one.serving.stores["s"].versions[&version(1)], own);
}

#[test]
fn a_node_that_returns_keeps_what_its_partitions_moved_without() {
    let (mut cluster, _, lost) = replaced_without_a_store(1, false);
    cluster.announce(announcement(3));
    cluster.settle();
    let mut three = Node::new(3);
    three.has("s", version(1), "s", lost.clone());
    three.has("t", version(1), "t", lost.clone());
    let mut now_ms = 0;
    for _ in 0..10 {
        now_ms += DROP_GRACE_MS;
        three.look(&cluster, now_ms);
    }
    let held: Vec<_> = three.local.versions.keys().map(|(store, _)| store.as_str()).collect();
    assert_eq!(held, ["s"], "the new owners have the other store");
    // A store of the same name has nothing to do with it.
    assert!(cluster.apply(&operator::drop_store(&cluster.view, &name("s"), 1, 500).unwrap()));
    cluster.create("s");
    assert_eq!(cluster.push("s", "another"), version(1));
    cluster.ready([1, 2, 4], "s", version(1));
    cluster.settle();
    assert_eq!(cluster.store("s").versions.current(), Some(version(1)));
    let mut three = Node::new(3);
    three.has("s", version(1), "s", lost);
    three.look(&cluster, 0);
    assert_eq!(three.serves("s"), [0; 0], "it is not served at any time");
}

#[test]
fn with_a_remembered_view_a_node_only_serves() {
    let (mut cluster, mut one) = alone();
    cluster.push("s", "a");
    one.catch_up(&cluster, 0);
    cluster.ready([1], "s", version(1));
    cluster.settle();
    cluster.push("s", "b");
    let mut again = Node::new(1);
    again.local = one.local.clone();
    again.has("t", version(1), "t", PartitionSet::EMPTY);
    cluster.view.remembered = true;
    for second in 0..20 {
        for action in again.look(&cluster, second * 1_000) {
            assert!(matches!(action, AgentAction::Publish(_)), "{action:?}");
        }
    }
    assert_eq!(again.serves("s"), [1]);
}

#[test]
fn nothing_is_dropped_while_records_of_stores_cannot_be_parsed() {
    let cluster_of = |is_partial| {
        let mut cluster = Cluster::of(1, 8, 1);
        cluster.create("t");
        cluster.pushed(1, "t", "t");
        let drop = operator::drop_store(&cluster.view, &name("t"), 8, 0).unwrap();
        assert!(cluster.apply(&drop));
        cluster.view.is_partial = is_partial;
        cluster
    };
    for is_partial in [true, false] {
        let cluster = cluster_of(is_partial);
        let mut one = Node::new(1);
        one.has("t", version(1), "t", PartitionSet::EMPTY);
        let looks = (0..1_000).flat_map(|second| one.look(&cluster, second * 1_000));
        let is_dropped = looks
            .into_iter()
            .any(|action| matches!(action, AgentAction::Drop { .. }));
        assert_eq!(is_dropped, !is_partial);
    }
}

#[test]
fn reports_follow_states_at_once_and_progress_rarely() {
    let (mut cluster, mut one) = alone();
    let pushed = cluster.push("s", "a");
    one.look(&cluster, 0);
    one.fetching("s", pushed, "a");
    let mut reports = 0;
    for step in 1..=100 {
        let fetch = one.local.fetches.get_mut(&(name("s"), pushed)).unwrap();
        fetch.bytes_done = step;
        let actions = one.look(&cluster, step * 100);
        reports += actions
            .iter()
            .filter(|action| matches!(action, AgentAction::Report(_)))
            .count();
    }
    assert_eq!(reports, 5, "in 10 s");
    one.agent.forget_report();
    let actions = one.look(&cluster, 10_001);
    assert!(matches!(actions[..], [AgentAction::Report(_)]), "{actions:?}");
}

impl Cluster {
    /// The push under way becomes current.
    fn pushed_by(&mut self, now_ms: &mut u64, build: &str) {
        *now_ms += 1_000;
        let pushed = self.store("s").pushing().unwrap();
        self.ready([1], "s", pushed);
        self.settle();
        assert_eq!(self.store("s").details[&pushed].manifest_checksum, build);
    }
}
