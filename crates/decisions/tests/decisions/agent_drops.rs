//! The versions that a data node serves and reports, and when it drops them.

use fondaco_decisions::{AgentAction, DROP_GRACE_MS, operator};
use fondaco_model::cluster::ReplicaState;
use fondaco_model::{Copies, PartitionId, PartitionSet};

use crate::data_node::{Node, drop_at};
use crate::fixture::{Cluster, announcement, name, node, version};
use crate::left_behind::replaced_without_a_store;

#[test]
fn a_version_no_longer_kept_is_dropped_after_a_grace() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let mut one = Node::new(1);
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
        assert!(publish <= drop_at(&actions), "it is closed before it is deleted");
    }
    assert!(waited_ms >= DROP_GRACE_MS);
    assert_eq!(one.serves("s"), [2, 3]);
    assert_eq!(one.local.versions.len(), 2);
}

#[test]
fn a_cancelled_push_leaves_nothing() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let pushed = cluster.push("s", "a");
    let mut one = Node::new(1);
    one.look(&cluster, 0);
    one.fetching("s", pushed, "a");
    one.has("s", pushed, "a", PartitionSet::EMPTY);
    cluster.cancel_push("s");
    let actions = one.look(&cluster, 100);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, AgentAction::StopFetch { .. }))
    );
    assert_eq!(drop_at(&actions), None, "first it must stop");
    let actions = one.look(&cluster, 200);
    assert!(drop_at(&actions).is_some(), "{actions:?}");
    assert!(one.local.versions.is_empty());
}

#[test]
fn another_version_with_the_same_number_is_not_kept() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let current = cluster.pushed(1, "s", "a");
    let mut one = Node::new(1);
    let first = PartitionSet::from_iter([PartitionId::new(0)]);
    one.has("s", current, "that of a dropped store", first);
    let actions = one.look(&cluster, 0);
    assert!(drop_at(&actions).is_some(), "{actions:?}");
    assert_eq!(one.serves("s"), [0; 0]);
    one.catch_up(&cluster, 1_000);
    assert_eq!(one.on_disk("s", 1).manifest_checksum.as_deref(), Some("a"));
    assert_eq!(one.state("s", 1), ReplicaState::Serving);
}

#[test]
fn partitions_that_moved_away_are_dropped_after_a_grace() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    let mut one = Node::new(1);
    cluster.push("s", "a");
    one.catch_up(&cluster, 0);
    cluster.ready(1..=2, "s", version(1));
    cluster.settle();
    cluster.change_store("s", |store| store.definition.replicas = Some(1));
    let own: PartitionSet = cluster.table().partitions_of(node(1), Copies::of(1)).collect();
    for second in 1..=4 {
        one.look(&cluster, second * 1_000);
    }
    assert_eq!(one.on_disk("s", 1).open.len(), 8, "requests may still ask for them");
    for second in 5..=8 {
        one.look(&cluster, second * 1_000);
    }
    assert_eq!(one.on_disk("s", 1).open.len(), own.len());
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
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 1, 500))
        .unwrap();
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
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let mut one = Node::new(1);
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
        let mut cluster = Cluster::with_store(1, 8, 1, "t");
        cluster.pushed(1, "t", "t");
        cluster.drop_store("t");
        cluster.view.is_partial = is_partial;
        cluster
    };
    for is_partial in [true, false] {
        let cluster = cluster_of(is_partial);
        let mut one = Node::new(1);
        one.has("t", version(1), "t", PartitionSet::EMPTY);
        let mut seconds = 0..1_000;
        let is_dropped = seconds.any(|second| drop_at(&one.look(&cluster, second * 1_000)).is_some());
        assert_eq!(is_dropped, !is_partial);
    }
}

#[test]
fn reports_follow_states_at_once_and_progress_rarely() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    let pushed = cluster.push("s", "a");
    let mut one = Node::new(1);
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
