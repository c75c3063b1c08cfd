//! Lost or older entries: they are noticed, cause no deletion, and an operator repairs them.

use std::collections::BTreeMap;

use fondaco_decisions::operator::{self, OperatorError, Present};
use fondaco_decisions::{
    Agent, AgentAction, Change, DROP_GRACE_MS, Discontinuity, LocalReplicas, LocalVersion, RecordPath, Write,
    check_continues,
};
use fondaco_model::cluster::{ClusterView, Topology};
use fondaco_model::{Identity, PartitionSet, StoreName};

use crate::fixture::{Cluster, add, announcement, name, node, version};

/// A node that has versions of stores.
fn holding(versions: &[(&str, u64, &str)]) -> LocalReplicas {
    let open: PartitionSet = [fondaco_model::PartitionId::new(0)].into_iter().collect();
    let version = |&(store, number, build): &(&str, u64, &str)| {
        let local = LocalVersion {
            manifest_checksum: Some(build.to_owned()),
            open: open.clone(),
            ..LocalVersion::default()
        };
        ((name(store), version(number)), local)
    };
    LocalReplicas {
        versions: versions.iter().map(version).collect(),
        ..LocalReplicas::default()
    }
}

/// The versions that an agent has dropped by the end of the grace period.
fn dropped(agent: &mut Agent, view: &ClusterView, local: &LocalReplicas) -> Vec<(StoreName, u64)> {
    let mut dropped = Vec::new();
    for second in 0..=DROP_GRACE_MS / 1_000 + 1 {
        for action in agent.decide(view, local, second * 1_000) {
            if let AgentAction::Drop { store, version } = action {
                dropped.push((store, version.get()));
            }
        }
    }
    dropped.dedup();
    dropped
}

#[test]
fn nothing_is_dropped_because_a_record_is_missing() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster.pushed(1, "s", "a");
    let local = holding(&[("s", 1, "a"), ("s", 2, "b"), ("t", 1, "c")]);
    let mut agent = Agent::new(node(1));
    assert_eq!(dropped(&mut agent, &cluster.view, &local), [], "2 was never given out");
    let unexplained: Vec<_> = agent.unexplained().iter().cloned().collect();
    assert_eq!(unexplained, [(name("s"), version(2)), (name("t"), version(1))]);
    cluster.view.stores.remove("s");
    assert_eq!(dropped(&mut Agent::new(node(1)), &cluster.view, &local), []);
}

#[test]
fn a_dropped_store_leaves_nodes_and_is_restored_unchanged() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster.pushed(1, "s", "a");
    let before = cluster.store("s").clone();
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 1_000, 500))
        .unwrap();
    let local = holding(&[("s", 1, "a"), ("s", 7, "of another store of this name")]);
    let gone = dropped(&mut Agent::new(node(1)), &cluster.view, &local);
    assert_eq!(gone, [(name("s"), 1)]);

    let late = operator::restore_store(&cluster.view, &name("s"), 1_500).unwrap_err();
    assert!(matches!(late, OperatorError::NotKept { .. }), "{late}");
    cluster
        .request(|view| operator::restore_store(view, &name("s"), 1_499))
        .unwrap();
    assert_eq!(*cluster.store("s"), before);
    assert!(cluster.view.dropped.is_empty());
    let again = operator::restore_store(&cluster.view, &name("s"), 1_499).unwrap_err();
    assert_eq!(again, OperatorError::StoreExists { store: name("s") });
    let other = operator::restore_store(&cluster.view, &name("t"), 1_499).unwrap_err();
    assert_eq!(other, OperatorError::NotDropped { store: name("t") });
}

#[test]
fn a_dropped_store_can_be_deleted_at_once_or_later() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 1_000, 500))
        .unwrap();
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 1_100, 0))
        .unwrap();
    let record = &cluster.view.dropped[&1].record;
    assert_eq!((record.dropped_unix_ms, record.kept_until_unix_ms), (1_000, 1_100));
    let again = operator::drop_store(&cluster.view, &name("s"), 1_200, 0).unwrap_err();
    assert_eq!(again, OperatorError::StoreNotFound { store: name("s") });
}

#[test]
fn the_oldest_of_too_many_dropped_stores_is_forgotten() {
    let mut cluster = Cluster::of(1, 8, 1);
    for at in 0..=operator::DROPPED_MAX as u64 {
        cluster.create("s");
        cluster
            .request(|view| operator::drop_store(view, &name("s"), at, 0))
            .unwrap();
    }
    assert_eq!(cluster.view.dropped.len(), operator::DROPPED_MAX);
    assert!(!cluster.view.dropped.contains_key(&1) && cluster.view.dropped.contains_key(&2));
}

#[test]
fn versions_given_up_before_a_start_need_no_grace() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    for build in ["a", "b", "c"] {
        cluster.pushed(1, "s", build);
    }
    let local = holding(&[("s", 1, "a"), ("s", 2, "b"), ("s", 3, "c")]);
    let actions = Agent::new(node(1)).decide(&cluster.view, &local, 0);
    let drops = actions
        .iter()
        .filter(|action| matches!(action, AgentAction::Drop { .. }));
    assert_eq!(drops.count(), 1, "{actions:?}");
}

#[test]
fn emptied_or_older_entries_do_not_continue_the_former_view() {
    let mut cluster = Cluster::of(2, 8, 1);
    let nothing = ClusterView::default();
    let older = cluster.view.clone();
    cluster.create("s");
    let newer = cluster.view.clone();
    assert_eq!(check_continues(&newer, &older), Ok(()));
    assert_eq!(check_continues(&newer, &nothing), Ok(()));
    let gone = check_continues(&nothing, &newer).unwrap_err();
    assert!(matches!(gone, Discontinuity::ClusterGone { .. }), "{gone}");
    let back = check_continues(&older, &newer).unwrap_err();
    assert!(
        matches!(
            &back,
            Discontinuity::WentBack {
                entry: RecordPath::Numbers,
                ..
            }
        ),
        "{back}"
    );
    // A service that was restored from a copy still gives out revisions.
    let mut passed = older.clone();
    passed.numbers.as_mut().unwrap().revision = newer.numbers.as_ref().unwrap().revision + 1;
    let fewer = check_continues(&passed, &newer);
    assert_eq!(fewer, Err(Discontinuity::FewerStores { known: 1, found: 0 }));
    let mut other = newer.clone();
    other.cluster.as_mut().unwrap().identity = Identity::of(9);
    let found = check_continues(&other, &newer).unwrap_err();
    assert!(matches!(found, Discontinuity::OtherCluster { .. }), "{found}");
    let mut without = newer.clone();
    without.nodes.remove(&node(2));
    let missing = check_continues(&without, &newer).unwrap_err();
    assert!(missing.to_string().contains("nodes/2") && missing.to_string().contains("fondaco cluster adopt"));
}

#[test]
fn an_operator_adopts_the_remembered_or_the_present_entries() {
    let mut cluster = Cluster::of(2, 8, 1);
    let older = cluster.view.clone();
    for store in ["s", "t"] {
        cluster.create(store);
    }
    cluster
        .request(|view| operator::drop_store(view, &name("t"), 1_000, 500))
        .unwrap();
    let known = cluster.view.clone();

    // Emptied; then another cluster was made, which has a store.
    let other = Cluster::with_store(3, 8, 1, "u");
    for mut service in [Cluster::empty(1, 8, 1), other] {
        let changes = operator::adopt(&known, &present(&service)).unwrap();
        assert!(changes.iter().all(|change| service.apply(change)));
        assert_eq!(check_continues(&service.view, &known), Ok(()));
        assert_eq!(service.view.cluster.as_ref().unwrap().adoptions, 1);
        let names = |view: &ClusterView| view.stores.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&service.view), names(&known));
        assert_eq!(service.view.nodes.len(), 2);
        assert!(service.view.dropped.contains_key(&2));
        // Processes that ask others for the topology take it, although revisions start again.
        let topology = |view: &ClusterView| Topology::of(view).unwrap();
        let told = topology(&known).joined(&topology(&service.view));
        assert_eq!(told, topology(&service.view));
    }

    let mut service = cluster;
    service.view = older;
    assert!(check_continues(&service.view, &known).is_err());
    let accepted = operator::accept(&known, &present(&service)).unwrap();
    assert!(service.apply(&accepted));
    assert_eq!(check_continues(&service.view, &known), Ok(()));
    service.view.cluster.as_mut().unwrap().identity = Identity::of(9);
    let refused = operator::accept(&known, &present(&service)).unwrap_err();
    assert_eq!(refused, OperatorError::OtherCluster);
}

#[test]
fn long_plans_are_adopted_one_by_one() {
    let mut cluster = Cluster::of(2, 16, 1);
    cluster.announce(announcement(3));
    cluster.settle();
    let first = cluster.run(&add(3));
    let plan = cluster.view.plans[&first].clone();
    cluster.view.plans.extend((first + 1..=first + 2).map(|number| {
        let mut plan = plan.clone();
        plan.record.number = number;
        (number, plan)
    }));
    let changes = operator::adopt(&cluster.view, &Present::default()).unwrap();
    let plans = |change: &Change| {
        let is_plan = |write: &&Write| matches!(write.path, RecordPath::Plan(_));
        change.writes.iter().filter(is_plan).count()
    };
    let plans: Vec<_> = changes.iter().map(plans).collect();
    assert_eq!(plans, [0, 1, 1, 1, 0]);
}

/// The persistent entries.
fn present(service: &Cluster) -> Present {
    let view = &service.view;
    let mut revisions = BTreeMap::new();
    let mut put = |path: RecordPath, revision: u64| {
        revisions.insert(path, revision);
    };
    view.nodes
        .iter()
        .for_each(|(id, node)| put(RecordPath::Node(*id), node.revision));
    let stores = view.stores.iter();
    stores.for_each(|(name, store)| put(RecordPath::Store(name.clone()), store.revision));
    if let Some(numbers) = &view.numbers {
        put(RecordPath::Numbers, numbers.revision);
    }
    if let Some(table) = &view.routing {
        put(RecordPath::Routing, table.revision);
    }
    Present {
        revisions,
        cluster: view.cluster.clone(),
    }
}
