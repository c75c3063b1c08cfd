//! Plans for the routing table are begun, finished and cancelled.

use std::collections::BTreeSet;

use fondaco_model::cluster::operator::{self, OperatorError, RoutingRequest};
use fondaco_model::cluster::{RecordPath, ReplicaReport, ReplicaState};
use fondaco_model::{NodeId, StoreName};

use crate::fixture::{Cluster, announcement, node, version};

fn add(number: u32) -> RoutingRequest {
    RoutingRequest {
        add: [node(number)].into(),
        ..RoutingRequest::default()
    }
}

fn begin(cluster: &mut Cluster, request: &RoutingRequest) {
    let (_, change) = operator::plan_routing(&cluster.view, request).unwrap();
    assert!(cluster.apply(&change));
}

fn planned(cluster: &mut Cluster, numbers: impl IntoIterator<Item = u32>, store: &str, number: u64) {
    for node in numbers {
        let replica = ReplicaReport {
            planned: true,
            ..ReplicaReport::of(ReplicaState::Ready)
        };
        cluster.report(node, store, version(number), replica);
    }
}

fn epoch(cluster: &Cluster) -> u64 {
    cluster.view.routing.as_ref().unwrap().record.epoch()
}

fn three_nodes_with_one_more() -> Cluster {
    let mut cluster = Cluster::of(3, 16, 2);
    cluster.create("s");
    cluster.pushed(3, "s", "a");
    cluster.pushed(3, "s", "b");
    cluster.announce(announcement(4));
    cluster.settle();
    cluster
}

#[test]
fn a_plan_is_finished_only_when_its_data_has_moved() {
    let mut cluster = three_nodes_with_one_more();
    begin(&mut cluster, &add(4));
    assert_eq!(epoch(&cluster), 2);
    planned(&mut cluster, 1..=3, "s", 2);
    planned(&mut cluster, 1..=3, "s", 1);
    planned(&mut cluster, [4], "s", 2);
    cluster.wait(60_000);
    assert_eq!(epoch(&cluster), 2, "the version for rollback is missing");
    planned(&mut cluster, [4], "s", 1);
    cluster.settle();
    assert_eq!(epoch(&cluster), 3);
    let table = &cluster.view.routing.as_ref().unwrap().record;
    assert!(table.next().is_none());
    assert!(table.all_owners().iter().flatten().any(|&owner| owner == node(4)));
}

#[test]
fn a_plan_ends_when_live_former_owners_know_the_switch() {
    let mut cluster = three_nodes_with_one_more();
    begin(&mut cluster, &add(4));
    for number in [1, 2] {
        planned(&mut cluster, 1..=4, "s", number);
    }
    cluster.settle();
    let table = cluster.view.routing.as_ref().unwrap().record.clone();
    let former: BTreeSet<NodeId> = table.changes().flat_map(|(_, former)| former).copied().collect();
    assert!(former.len() > 1 && !former.contains(&node(4)), "{former:?}");
    let first = *former.first().unwrap();
    let others = former.into_iter().skip(1);
    assert_eq!(operator::cancel_plan(&cluster.view), Err(OperatorError::NoPlan));
    for other in others {
        cluster.ready([other.get()], "s", version(2));
    }
    cluster.wait(60_000);
    assert_eq!(
        epoch(&cluster),
        3,
        "node {first} may answer readers with an earlier table"
    );
    cluster.leave(first.get());
    cluster.settle();
    assert_eq!(epoch(&cluster), 4);
    assert!(!cluster.view.routing.as_ref().unwrap().record.is_in_plan());
}

#[test]
fn the_end_of_a_plan_depends_on_all_stores() {
    let mut cluster = three_nodes_with_one_more();
    cluster.create("t");
    begin(&mut cluster, &add(4));
    for number in [1, 2] {
        planned(&mut cluster, 1..=4, "s", number);
    }
    let changes = cluster.decide();
    let stores: Vec<_> = ["s", "t"]
        .map(|name| RecordPath::Store(name.parse::<StoreName>().unwrap()))
        .into();
    assert!(
        changes[0].unchanged.iter().map(|(path, _)| path).eq(&stores),
        "{changes:?}"
    );
    cluster.change_store("s", |store| store.definition.tolerate_failures = Some(1));
    assert!(!cluster.apply(&changes[0]), "a store has changed since");
}

#[test]
fn a_plan_does_not_make_complete_nodes_late() {
    let mut cluster = three_nodes_with_one_more();
    begin(&mut cluster, &add(4));
    cluster.ready(1..=3, "s", version(2));
    cluster.settle();
    assert!(cluster.store("s").late.is_empty());
}

#[test]
fn plans_run_one_at_a_time_and_must_be_possible() {
    let mut cluster = three_nodes_with_one_more();
    let refused =
        |cluster: &Cluster, request: &RoutingRequest| operator::plan_routing(&cluster.view, request).unwrap_err();
    assert_eq!(
        refused(&cluster, &RoutingRequest::default()),
        OperatorError::NothingToMove
    );
    assert_eq!(
        refused(&cluster, &add(9)),
        OperatorError::NodeNotFound { node: node(9) }
    );
    cluster.leave(4);
    assert_eq!(refused(&cluster, &add(4)), OperatorError::NodeAbsent { node: node(4) });
    cluster.announce(announcement(4));
    begin(&mut cluster, &add(4));
    assert_eq!(refused(&cluster, &add(4)), OperatorError::PlanInProgress);
    let cancel = operator::cancel_plan(&cluster.view).unwrap();
    assert!(cluster.apply(&cancel));
    assert_eq!(operator::cancel_plan(&cluster.view), Err(OperatorError::NoPlan));
    let everybody = RoutingRequest {
        remove: (1..=4).map(node).collect(),
        ..RoutingRequest::default()
    };
    assert!(matches!(refused(&cluster, &everybody), OperatorError::Placement(_)));
}
