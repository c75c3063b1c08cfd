//! Pushes become current when they may, fail when they must, and always end.

use fondaco_decisions::not_serving;
use fondaco_model::cluster::{ReplicaReport, ReplicaState};
use fondaco_model::{PushState, VersionNumber};

use crate::fixture::{Cluster, name, node, version};

fn state(cluster: &Cluster, store: &str) -> PushState {
    cluster.store(store).push.as_ref().unwrap().state
}

/// A cluster with this many nodes, partitions and replicas, and a push of its store `s`.
fn pushing(nodes: u32, partitions: u32, replicas: u32) -> (Cluster, VersionNumber) {
    let mut cluster = Cluster::with_store(nodes, partitions, replicas, "s");
    let pushed = cluster.push("s", "a");
    (cluster, pushed)
}

/// The push of store `s` has failed, with an error that has this part.
fn assert_failed(cluster: &Cluster, part: &str) {
    assert_eq!(state(cluster, "s"), PushState::Failed);
    let error = cluster.store("s").push.as_ref().unwrap().error.clone().unwrap();
    assert!(error.contains(part), "{error}");
}

fn fetching(bytes_done: u64) -> ReplicaReport {
    ReplicaReport {
        bytes_done,
        bytes_total: 100,
        ..ReplicaReport::of(ReplicaState::Fetching)
    }
}

fn failed(reason: &str) -> ReplicaReport {
    ReplicaReport {
        error: Some(reason.to_owned()),
        ..ReplicaReport::of(ReplicaState::Failed)
    }
}

#[test]
fn a_version_becomes_current_only_when_all_nodes_have_it() {
    let (mut cluster, pushed) = pushing(3, 8, 2);
    cluster.settle();
    cluster.ready(1..=2, "s", pushed);
    cluster.report(3, "s", pushed, fetching(99));
    cluster.wait(5_000);
    assert_eq!(state(&cluster, "s"), PushState::Fetching);
    cluster.ready([3], "s", pushed);
    cluster.settle();
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
    assert_eq!(cluster.store("s").versions.current(), Some(pushed));
    assert!(cluster.store("s").late.is_empty());
}

#[test]
fn a_node_that_served_the_version_before_has_yet_to_see_that_it_is_current_again() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    let first = cluster.pushed(2, "s", "a");
    let serving = |cluster: &mut Cluster, number: u32, current| {
        cluster.report(number, "s", current, ReplicaReport::of(ReplicaState::Serving));
    };
    let waits_for = |cluster: &Cluster| not_serving(&cluster.view, &name("s"), first);
    (1..=2).for_each(|number| serving(&mut cluster, number, first));
    assert!(waits_for(&cluster).is_empty());
    let second = cluster.pushed(2, "s", "b");
    serving(&mut cluster, 2, second);
    // Node 1 has seen neither swap yet: it will serve the second version for a moment.
    cluster.roll_back("s");
    assert_eq!(waits_for(&cluster), [node(1), node(2)].into());
    (1..=2).for_each(|number| serving(&mut cluster, number, first));
    assert!(waits_for(&cluster).is_empty());
}

#[test]
fn a_swap_depends_on_the_routing_table_of_its_decision() {
    let (mut cluster, pushed) = pushing(3, 8, 2);
    cluster.ready(1..=3, "s", pushed);
    let swap = cluster.decide();
    cluster.change_table(|table| table.with_plan(vec![vec![node(1), node(2)]; 8]).unwrap());
    assert!(!swap.iter().any(|change| cluster.apply(change)), "{swap:?}");
}

#[test]
fn reports_of_another_table_store_or_replica_number_prove_nothing() {
    let spoil: [fn(&mut fondaco_model::cluster::ReportRecord); 3] = [
        |report| report.epoch += 1,
        |report| report.stores.values_mut().for_each(|store| store.id += 1),
        |report| report.stores.values_mut().for_each(|store| store.replicas += 1),
    ];
    for spoil in spoil {
        let mut cluster = Cluster::with_store(3, 8, 2, "s");
        let pushed = cluster.push("s", "a");
        cluster.ready(1..=3, "s", pushed);
        spoil(cluster.view.reports.get_mut(&node(2)).unwrap());
        cluster.wait(5_000);
        assert_eq!(state(&cluster, "s"), PushState::Fetching);
    }
}

#[test]
fn a_push_fails_when_too_many_nodes_are_absent() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(0));
    cluster.leave(3);
    let pushed = cluster.push("s", "a");
    cluster.settle();
    cluster.ready(1..=2, "s", pushed);
    cluster.wait(8_000);
    assert_eq!(state(&cluster, "s"), PushState::Fetching, "it may come back");
    cluster.wait(4_000);
    assert_failed(&cluster, "node 3: it is absent; ");
    assert_failed(&cluster, "fondaco store alter s --tolerate-failures any");
    assert!(cluster.store("s").details.is_empty(), "nothing is left of it");
    assert_eq!(cluster.store("s").versions.current(), None);
}

#[test]
fn by_default_a_push_needs_one_replica_of_each_partition() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.leave(3);
    let pushed = cluster.push("s", "a");
    cluster.ready(1..=2, "s", pushed);
    cluster.wait(8_000);
    assert_eq!(state(&cluster, "s"), PushState::Fetching, "it may come back");
    cluster.wait(4_000);
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
    assert_eq!(cluster.store("s").late, [node(3)].into());

    cluster.leave(2);
    let pushed = cluster.push("s", "b");
    cluster.ready([1], "s", pushed);
    cluster.wait(12_000);
    assert_failed(&cluster, "no node is left that could get version 2");
}

#[test]
fn a_tolerated_node_is_late_until_it_has_caught_up() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(1));
    cluster.leave(3);
    let pushed = cluster.push("s", "a");
    cluster.ready(1..=2, "s", pushed);
    cluster.wait(12_000);
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
    assert_eq!(cluster.store("s").late, [node(3)].into());
    cluster.announce(crate::fixture::announcement(3));
    cluster.report(3, "s", pushed, fetching(10));
    cluster.settle();
    assert_eq!(
        cluster.store("s").late,
        [node(3)].into(),
        "it is back, and has not caught up"
    );
    cluster.report(3, "s", pushed, ReplicaReport::of(ReplicaState::Serving));
    cluster.settle();
    assert!(cluster.store("s").late.is_empty());
}

#[test]
fn no_tolerance_swaps_in_a_version_without_a_partition() {
    let mut cluster = Cluster::with_store(3, 8, 2, "s");
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(2));
    let pushed = cluster.push("s", "a");
    cluster.ready([1], "s", pushed);
    cluster.report(2, "s", pushed, failed("the disk is full"));
    cluster.report(3, "s", pushed, failed("the disk is full"));
    cluster.settle();
    assert_failed(&cluster, "no node is left that could get version 1 of partition");
    assert_failed(&cluster, "node 2: the disk is full; node 3: the disk is full");
}

#[test]
fn a_push_waits_while_nodes_read_a_stream() {
    let (mut cluster, pushed) = pushing(2, 8, 1);
    cluster.ready([1], "s", pushed);
    let reading = ReplicaReport {
        reads_stream: true,
        ..fetching(40)
    };
    cluster.report(2, "s", pushed, reading);
    (0..60).for_each(|_| cluster.wait(60_000));
    assert_eq!(state(&cluster, "s"), PushState::Fetching);
    cluster.ready([2], "s", pushed);
    cluster.settle();
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
}

#[test]
fn a_fetch_that_restarts_without_progress_ends_the_push() {
    let (mut cluster, pushed) = pushing(2, 8, 1);
    cluster.ready([1], "s", pushed);
    let mut minutes = 0;
    while state(&cluster, "s") == PushState::Fetching {
        minutes += 1;
        assert!(minutes < 30, "it never ends");
        cluster.report(2, "s", pushed, fetching(minutes % 2 * 40));
        cluster.wait(60_000);
    }
    assert!(minutes >= 10, "it was given {minutes} minutes");
    assert_failed(&cluster, "no progress for 600 s");
}

#[test]
fn a_restarted_fetch_that_verifies_for_long_is_waited_for() {
    let (mut cluster, pushed) = pushing(1, 8, 1);
    for _ in 0..3 {
        for minute in 1..40 {
            cluster.report(1, "s", pushed, fetching(minute));
            cluster.wait(60_000);
        }
    }
    assert_eq!(state(&cluster, "s"), PushState::Fetching);
}

#[test]
fn a_fetch_that_makes_progress_is_waited_for() {
    let (mut cluster, pushed) = pushing(1, 8, 1);
    for minute in 1..60 {
        cluster.report(1, "s", pushed, fetching(minute));
        cluster.wait(60_000);
    }
    assert_eq!(state(&cluster, "s"), PushState::Fetching);
    cluster.ready([1], "s", pushed);
    cluster.settle();
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
}

#[test]
fn time_the_leader_did_not_watch_makes_no_node_absent() {
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    let _ = cluster.push("s", "a");
    cluster.leave(2);
    cluster.settle();
    cluster.now_ms += 3_600_000;
    cluster.settle();
    assert_eq!(state(&cluster, "s"), PushState::Fetching);
}

#[test]
fn the_next_leader_continues_a_push() {
    let (mut cluster, pushed) = pushing(3, 8, 2);
    cluster.ready(1..=2, "s", pushed);
    cluster.wait(5_000);
    cluster.controller = Default::default();
    cluster.ready([3], "s", pushed);
    cluster.settle();
    assert_eq!(state(&cluster, "s"), PushState::Swapped);
}

#[test]
fn old_versions_and_their_details_expire_with_the_swap() {
    let mut cluster = Cluster::with_store(2, 8, 1, "s");
    for build in ["a", "b", "c"] {
        cluster.pushed(2, "s", build);
    }
    let store = cluster.store("s");
    let kept: Vec<_> = store.versions.kept().collect();
    assert_eq!(kept, [version(3), version(2)]);
    assert!(store.details.keys().eq(&[version(2), version(3)]));
}

#[test]
fn a_cancelled_push_is_left_alone() {
    let (mut cluster, pushed) = pushing(2, 8, 1);
    cluster.cancel_push("s");
    cluster.ready(1..=2, "s", pushed);
    cluster.wait(20_000);
    assert_eq!(state(&cluster, "s"), PushState::Cancelled);
    assert_eq!(cluster.store("s").versions.current(), None);
}

#[test]
fn the_first_node_with_a_store_everywhere_is_not_alone() {
    let mut cluster = Cluster::with_store(12, 16, 2, "s");
    let current = cluster.pushed(12, "s", "a");
    cluster.change_store("s", |store| store.definition.everywhere = true);
    for ready in 1..6 {
        cluster.ready(1..=ready, "s", current);
        (ready + 1..=12).for_each(|number| cluster.report(number, "s", current, fetching(0)));
        cluster.settle();
        assert!(cluster.store("s").late.is_empty(), "{ready} are ready");
    }
    // One that has not even what its place in the lists gives it is not asked.
    let own = cluster.table().owned(2)[&node(7)].clone();
    let replica = ReplicaReport {
        lacking: own,
        ..fetching(0)
    };
    cluster.report(7, "s", current, replica);
    cluster.settle();
    assert_eq!(cluster.store("s").late, [node(7)].into());
    cluster.ready([6], "s", current);
    cluster.settle();
    assert_eq!(cluster.store("s").late, (7..=12).map(node).collect());
}

#[test]
fn a_node_without_the_current_version_is_late_if_possible() {
    let mut cluster = Cluster::with_store(2, 8, 2, "s");
    let current = cluster.pushed(2, "s", "a");
    cluster.report(1, "s", current, fetching(0));
    cluster.settle();
    assert_eq!(cluster.store("s").late, [node(1)].into());
    cluster.report(2, "s", current, fetching(0));
    cluster.settle();
    assert_eq!(cluster.store("s").late, [node(1)].into(), "one node must be asked");
    cluster.ready([1, 2], "s", current);
    cluster.settle();
    assert!(cluster.store("s").late.is_empty());
}
