//! Canaries: they begin when a version could swap, and end by time, by their counts or by an operator; a new leader goes on from the record.

use fondaco_decisions::operator::{self, OperatorError, PushTerms};
use fondaco_decisions::{Controller, Patience};
use fondaco_model::cluster::{PushRecord, ReplicaReport, ReplicaState};
use fondaco_model::{
    CanaryAction, CanaryBounds, CanaryCounts, CanaryRecord, CanaryState, CanaryTerms, PROTOCOL, PROTOCOL_OF_CANARIES,
    PushState, VersionNumber,
};

use crate::fixture::{Cluster, name, version};

const NODES: u32 = 3;

fn terms(reads: &str) -> PushTerms {
    PushTerms {
        canary: Some(CanaryTerms {
            reads: reads.parse().unwrap(),
            time_ms: 60_000,
            bounds: CanaryBounds::default(),
        }),
        ..PushTerms::default()
    }
}

/// A cluster that serves version 1 of its store `s`, and runs a canary of version 2.
fn running() -> Cluster {
    let mut cluster = Cluster::with_store(NODES, 8, 2, "s");
    cluster.pushed(NODES, "s", "a");
    cluster.push_on("s", "b", terms("5%"));
    cluster.ready(1..=NODES, "s", version(2));
    cluster.settle();
    assert_eq!(canary(&cluster).state, CanaryState::Running);
    assert_eq!(current(&cluster), version(1));
    cluster
}

fn push(cluster: &Cluster) -> &PushRecord {
    cluster.store("s").push.as_ref().unwrap()
}

fn canary(cluster: &Cluster) -> &CanaryRecord {
    push(cluster).canary.as_ref().unwrap()
}

fn current(cluster: &Cluster) -> VersionNumber {
    cluster.store("s").versions.current().unwrap()
}

fn counted(cluster: &mut Cluster, node: u32, counts: CanaryCounts) {
    let replica = ReplicaReport {
        canary: Some(counts),
        ..ReplicaReport::of(ReplicaState::Ready)
    };
    cluster.report(node, "s", version(2), replica);
}

fn steer(cluster: &mut Cluster, action: CanaryAction) -> Result<(), OperatorError> {
    let change = operator::steer_canary(&cluster.view, &name("s"), action, 1_000_000 + cluster.now_ms)?;
    if let Some(change) = change {
        assert!(cluster.apply(&change));
    }
    cluster.settle();
    Ok(())
}

fn compared(compared: u64, missing: u64) -> CanaryCounts {
    CanaryCounts {
        reads: compared,
        compared,
        missing,
        ..CanaryCounts::default()
    }
}

#[test]
fn a_good_version_is_promoted_when_its_time_is_over() {
    let mut cluster = running();
    counted(&mut cluster, 1, compared(600, 3));
    counted(&mut cluster, 2, compared(400, 4));
    cluster.wait(59_000);
    assert_eq!(
        (push(&cluster).state, current(&cluster)),
        (PushState::Ready, version(1))
    );
    cluster.wait(2_000);
    assert_eq!(
        (push(&cluster).state, current(&cluster)),
        (PushState::Swapped, version(2))
    );
    let ended = canary(&cluster);
    assert_eq!(ended.state, CanaryState::Promoted);
    assert_eq!(
        (ended.counts.compared, ended.counts.missing),
        (1_000, 7),
        "summed over nodes"
    );
    assert!(
        ended.reason.as_ref().unwrap().contains("within the bounds"),
        "{ended:?}"
    );
}

#[test]
fn the_counts_of_all_nodes_together_roll_it_back() {
    let mut cluster = running();
    counted(&mut cluster, 1, compared(60, 1));
    cluster.wait(2_000);
    assert_eq!(canary(&cluster).state, CanaryState::Running, "60 are too few to judge");
    counted(&mut cluster, 2, compared(60, 1));
    cluster.wait(2_000);
    let failed = push(&cluster);
    assert_eq!((failed.state, current(&cluster)), (PushState::Failed, version(1)));
    assert!(
        failed
            .error
            .as_ref()
            .unwrap()
            .contains("2 of 120 compared keys are missing"),
        "{failed:?}"
    );
    let ended = canary(&cluster);
    assert_eq!((ended.state, ended.counts.missing), (CanaryState::RolledBack, 2));
    assert!(cluster.store("s").canary().is_none(), "no process reads it any more");
}

#[test]
fn the_first_version_of_a_store_swaps_at_once() {
    let mut cluster = Cluster::with_store(NODES, 8, 2, "s");
    cluster.push_on("s", "a", terms("5%"));
    cluster.ready(1..=NODES, "s", version(1));
    cluster.settle();
    assert_eq!(
        (push(&cluster).state, canary(&cluster).state),
        (PushState::Swapped, CanaryState::Promoted)
    );
}

#[test]
fn a_pause_keeps_the_clock_but_not_a_version_beyond_its_bounds() {
    let mut cluster = running();
    cluster.wait(30_000);
    steer(&mut cluster, CanaryAction::Pause).unwrap();
    cluster.wait(300_000);
    assert_eq!(canary(&cluster).state, CanaryState::Paused);
    assert!(cluster.store("s").canary().is_some(), "it keeps its reads");
    steer(&mut cluster, CanaryAction::Resume).unwrap();
    cluster.wait(29_000);
    assert_eq!(canary(&cluster).state, CanaryState::Running);
    cluster.wait(2_000);
    assert_eq!(current(&cluster), version(2));
    let mut cluster = running();
    steer(&mut cluster, CanaryAction::Pause).unwrap();
    counted(&mut cluster, 1, compared(1_000, 500));
    cluster.wait(1_000);
    assert_eq!(push(&cluster).state, PushState::Failed);
}

#[test]
fn an_operator_promotes_or_aborts_it_whatever_was_counted() {
    let mut cluster = running();
    steer(&mut cluster, CanaryAction::Promote).unwrap();
    assert_eq!(
        (current(&cluster), canary(&cluster).state),
        (version(2), CanaryState::Promoted)
    );
    let none = steer(&mut cluster, CanaryAction::Abort).unwrap_err();
    assert!(matches!(none, OperatorError::NoCanary { .. }), "{none}");
    let mut cluster = running();
    steer(&mut cluster, CanaryAction::Abort).unwrap();
    assert_eq!(
        (push(&cluster).state, canary(&cluster).state),
        (PushState::Cancelled, CanaryState::Aborted)
    );
    assert_eq!(current(&cluster), version(1));
    assert!(!cluster.store("s").details.contains_key(&version(2)), "nodes delete it");
}

#[test]
fn it_cannot_be_paused_before_it_begins() {
    let mut cluster = Cluster::with_store(NODES, 8, 2, "s");
    cluster.pushed(NODES, "s", "a");
    cluster.push_on("s", "b", terms("5%"));
    let early = steer(&mut cluster, CanaryAction::Pause).unwrap_err();
    assert!(matches!(early, OperatorError::CanaryNotBegun { .. }), "{early}");
}

#[test]
fn a_rollback_of_the_store_ends_it() {
    let mut cluster = Cluster::with_store(NODES, 8, 2, "s");
    cluster.pushed(NODES, "s", "a");
    cluster.pushed(NODES, "s", "b");
    cluster.push_on("s", "c", terms("5%"));
    cluster.ready(1..=NODES, "s", version(1));
    cluster.ready(1..=NODES, "s", version(3));
    cluster.settle();
    cluster.roll_back("s");
    cluster.settle();
    assert_eq!(
        (push(&cluster).state, current(&cluster)),
        (PushState::Failed, version(1))
    );
    assert!(
        push(&cluster)
            .error
            .as_ref()
            .unwrap()
            .contains("current version is 1 now"),
        "{:?}",
        push(&cluster)
    );
}

#[test]
fn it_fails_if_no_node_can_give_the_version_any_more() {
    let mut cluster = running();
    for node in 1..=NODES {
        let replica = ReplicaReport {
            error: Some("the disk is broken".to_owned()),
            ..ReplicaReport::of(ReplicaState::Failed)
        };
        cluster.report(node, "s", version(2), replica);
    }
    cluster.wait(1_000);
    assert_eq!(
        (push(&cluster).state, canary(&cluster).state),
        (PushState::Failed, CanaryState::RolledBack)
    );
    assert!(push(&cluster).error.as_ref().unwrap().contains("the disk is broken"));
}

#[test]
fn another_leader_goes_on_from_the_record() {
    let mut cluster = running();
    cluster.wait(40_000);
    cluster.controller = Controller::new(Patience::default());
    cluster.wait(19_000);
    assert_eq!(canary(&cluster).state, CanaryState::Running);
    cluster.wait(2_000);
    assert_eq!(current(&cluster), version(2), "its time was not begun again");
}

#[test]
fn one_that_would_take_no_reads_or_that_members_do_not_know_is_refused() {
    let mut cluster = Cluster::with_store(NODES, 8, 2, "s");
    let refused = |cluster: &Cluster, reads| {
        let detail = crate::fixture::detail("a");
        operator::push(&cluster.view, &name("s"), detail, terms(reads), 8)
            .unwrap_err()
            .to_string()
    };
    let nodes = cluster.view.nodes.values_mut();
    nodes.for_each(|node| node.record.protocol = PROTOCOL_OF_CANARIES - 1);
    let error = refused(&cluster, "5%");
    assert!(error.contains("--canary"), "{error}");
    cluster
        .view
        .nodes
        .values_mut()
        .for_each(|node| node.record.protocol = PROTOCOL);
    for (reads, part) in [("node:9", "node 9"), ("zone:moon", "zone \"moon\"")] {
        let error = refused(&cluster, reads);
        assert!(error.contains(part), "{error}");
    }
}
