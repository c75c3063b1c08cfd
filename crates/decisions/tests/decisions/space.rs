//! Space quotas: pushes that do not fit, and versioned stores that take only deletions.

use fondaco_decisions::operator::{self, OperatorError};
use fondaco_decisions::used_bytes;
use fondaco_model::cluster::{ReportRecord, StoreReport};
use fondaco_model::versioned::VersionedSettings;
use fondaco_model::{PartitionSet, StoreChange, StoreDefinition};

use crate::fixture::{Cluster, detail, name};

fn set_quota(cluster: &mut Cluster, quota: Option<u64>) {
    let change = StoreChange {
        space_quota_bytes: Some(quota),
        ..StoreChange::default()
    };
    cluster.alter("s", &change).unwrap();
}

fn refused(cluster: &Cluster) -> Option<OperatorError> {
    operator::push(
        &cluster.view,
        &name("s"),
        detail("c"),
        operator::PushTerms::default(),
        8,
    )
    .err()
}

#[test]
fn versions_that_would_be_kept_count_against_the_quota() {
    let mut cluster = Cluster::with_store(1, 8, 1, "s");
    cluster.pushed(1, "s", "a");
    let bytes = detail("a").bytes;
    set_quota(&mut cluster, Some(2 * bytes));
    assert_eq!(refused(&cluster), None);
    cluster.pushed(1, "s", "b");
    assert_eq!(used_bytes(&cluster.view, cluster.store("s")), Some(2 * bytes));
    assert_eq!(refused(&cluster), None, "the oldest would not be kept");
    set_quota(&mut cluster, Some(2 * bytes - 1));
    let expected = OperatorError::OverSpaceQuota {
        store: name("s"),
        bytes,
        kept_bytes: bytes,
        quota_bytes: 2 * bytes - 1,
    };
    assert_eq!(refused(&cluster), Some(expected));
    set_quota(&mut cluster, None);
    assert_eq!(refused(&cluster), None);
}

/// Each of these nodes reports the bytes of its partitions.
fn report(cluster: &mut Cluster, nodes: &[u32], held: u64, bytes: u64) {
    for &number in nodes {
        let store = StoreReport {
            id: cluster.store("s").id,
            replicas: 2,
            swaps: 0,
            versions: Default::default(),
            lacking: PartitionSet::EMPTY,
            held,
            keys: 1,
            bytes,
        };
        let report = ReportRecord {
            epoch: 1,
            stores: [(name("s"), store)].into(),
        };
        cluster.view.reports.insert(crate::fixture::node(number), report);
    }
    cluster.settle();
}

#[test]
fn a_versioned_store_is_over_its_quota_until_it_is_well_below() {
    let mut cluster = Cluster::of(3, 16, 2);
    let definition = StoreDefinition::versioned(name("s"), VersionedSettings::of(2));
    cluster.define(definition).unwrap();
    set_quota(&mut cluster, Some(1_000));
    let is_over = |cluster: &Cluster| cluster.store("s").over_quota;
    // Sixteen of the replicas that nodes report are one copy.
    report(&mut cluster, &[1, 2, 3], 8, 495);
    assert_eq!(used_bytes(&cluster.view, cluster.store("s")), Some(990));
    assert!(!is_over(&cluster));
    report(&mut cluster, &[1, 2, 3], 8, 503);
    assert!(is_over(&cluster));
    report(&mut cluster, &[1, 2, 3], 8, 488);
    assert!(is_over(&cluster), "976 bytes are too near");
    cluster.view.reports.clear();
    cluster.settle();
    assert!(is_over(&cluster), "nothing is known");
    report(&mut cluster, &[2], 8, 450);
    assert!(!is_over(&cluster), "one node is enough to tell: 900 bytes");
    report(&mut cluster, &[1, 3], 8, 0);
    report(&mut cluster, &[2], 8, 800);
    assert!(is_over(&cluster), "the others have not looked yet");
    set_quota(&mut cluster, Some(2_000));
    assert!(!is_over(&cluster), "at once");
    cluster.settle();
    assert!(!is_over(&cluster));
}

#[test]
fn quotas_of_nothing_and_of_caches_are_refused() {
    let cluster = Cluster::of(1, 8, 1);
    let refused = |definition: StoreDefinition| {
        let created = operator::create_store(&cluster.view, definition, 7);
        matches!(created, Err(OperatorError::InvalidDefinition { .. }))
    };
    let of = |quota: u64, definition: StoreDefinition| StoreDefinition {
        space_quota_bytes: Some(quota),
        ..definition
    };
    assert!(refused(of(0, StoreDefinition::batch(name("s")))));
    let mut settings = VersionedSettings::of(1);
    settings.engine = fondaco_model::versioned::EngineKind::Cache;
    assert!(refused(of(9, StoreDefinition::versioned(name("s"), settings))));
}
