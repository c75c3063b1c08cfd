//! Evaluates reports: whether a version is ready on a node, and on enough nodes.
//!
//! A report proves something only if it is based on the same store and number of replicas as its reader's view, and on a
//! routing table since which no move has concerned its node. Any other report counts as unknown, and decides nothing.

use std::collections::BTreeSet;

use super::layout::{Layout, Layouts};
use super::record::{ReplicaReport, StoreRecord, StoreReport};
use super::view::ClusterView;
use crate::name::StoreName;
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::partition_set::PartitionSet;
use crate::routing::Copies;
use crate::version::VersionNumber;

/// A node's report about a store, if it still holds.
fn report<'a>(view: &'a ClusterView, layout: &Layout, node: NodeId, store: &StoreRecord) -> Option<&'a StoreReport> {
    let report = view.reports.get(&node)?;
    let store_report = report.stores.get(&store.definition.name)?;
    let same = layout.holds_since(node, report.epoch)
        && store_report.id == store.id
        && store_report.replicas as usize == view.replicas(store);
    same.then_some(store_report)
}

/// A node's report about a version, if it still holds.
pub(super) fn replica<'a>(
    view: &'a ClusterView,
    layout: &Layout,
    node: NodeId,
    store: &StoreRecord,
    version: VersionNumber,
) -> Option<&'a ReplicaReport> {
    report(view, layout, node, store)?.versions.get(&version)
}

/// Whether a node has proved that it has a partition of a versioned store that a move under way gives it.
pub(super) fn is_synchronised(
    view: &ClusterView,
    layout: &Layout,
    node: NodeId,
    store: &StoreRecord,
    partition: PartitionId,
) -> bool {
    let report = report(view, layout, node, store);
    report.is_some_and(|report| !report.lacking.contains(partition))
}

/// Whether a node has proved that a version is ready on it.
pub(super) fn is_ready(
    view: &ClusterView,
    layout: &Layout,
    node: NodeId,
    store: &StoreRecord,
    version: VersionNumber,
) -> bool {
    replica(view, layout, node, store, version).is_some_and(|replica| replica.state.is_ready())
}

/// The partitions that at least one of these nodes owns.
pub(super) fn covered(layout: &Layout, nodes: impl Iterator<Item = NodeId>) -> PartitionSet {
    nodes.fold(PartitionSet::EMPTY, |covered, node| covered.with(layout.owned_by(node)))
}

/// The partitions that any node owns: all of them.
pub(super) fn all(layout: &Layout) -> PartitionSet {
    covered(layout, layout.owned.keys().copied())
}

/// The first partition without a node that has a version ready, according to the reports; `None` if each has one, and
/// also if there is no such store or no routing table.
pub fn unready_partition(view: &ClusterView, name: &StoreName, version: VersionNumber) -> Option<PartitionId> {
    let store = &view.stores.get(name)?.record;
    unready_among(view, store, version, view.replicas(store))
}

/// The first partition of a version without a node that would have it if the store had so many replicas.
pub(super) fn unready_among(
    view: &ClusterView,
    store: &StoreRecord,
    version: VersionNumber,
    replicas: usize,
) -> Option<PartitionId> {
    let table = &view.routing.as_ref()?.record;
    let layout = Layouts::default().of(table, Copies::of(replicas));
    let nodes = layout.owned.keys();
    let left = nodes.fold(all(&layout), |left, &node| {
        left.without(&proved(view, &layout, node, store, version))
    });
    left.iter().next()
}

/// The nodes that are late, and would still be if this version were current and the store had so many replicas. A node that alone
/// has a partition is not late.
pub(super) fn late_among(
    view: &ClusterView,
    store: &StoreRecord,
    version: VersionNumber,
    replicas: usize,
) -> BTreeSet<NodeId> {
    let Some(routing) = &view.routing else {
        return store.late.clone();
    };
    let layout = Layouts::default().of(&routing.record, Copies::of(replicas));
    let has = |node: NodeId| proved(view, &layout, node, store, version);
    let late = store.late.iter().copied();
    let mut late: BTreeSet<NodeId> = late.filter(|&node| has(node) != *layout.owned_by(node)).collect();
    // What only late nodes have is to be had there.
    let others = layout.owned.keys().copied().filter(|node| !late.contains(node));
    let elsewhere = others.fold(PartitionSet::EMPTY, |all, node| all.with(&has(node)));
    late.retain(|&node| elsewhere.covers(&has(node)));
    late
}

/// The partitions of a version that a node has proved to have, of those that it owns in a layout, which may be one that the
/// store does not have yet.
fn proved(
    view: &ClusterView,
    layout: &Layout,
    node: NodeId,
    store: &StoreRecord,
    version: VersionNumber,
) -> PartitionSet {
    let owned = layout.owned_by(node);
    match replica(view, layout, node, store, version) {
        Some(replica) if replica.state.is_ready() => owned.clone(),
        // Reports about such a store name all that is lacking.
        Some(replica) if store.definition.everywhere => owned.without(&replica.lacking),
        _ => PartitionSet::EMPTY,
    }
}

/// The live owners of a store's partitions that have not yet reported this version as current. After a swap, the caller
/// waits until the list is empty.
pub fn not_serving(view: &ClusterView, name: &StoreName, version: VersionNumber) -> BTreeSet<NodeId> {
    let (Some(store), Some(routing)) = (view.stores.get(name), view.routing.as_ref()) else {
        return BTreeSet::new();
    };
    let store = &store.record;
    let layout = Layouts::default().of(&routing.record, view.copies(store));
    // A version may be current again: an older report that it is served does not count.
    let serving = |&node: &NodeId| {
        let report = report(view, &layout, node, store).filter(|report| report.swaps >= store.versions.swaps());
        let replica = report.and_then(|report| report.versions.get(&version));
        replica.is_some_and(|replica| replica.state == super::record::ReplicaState::Serving)
    };
    let nodes = layout.owned.keys().copied();
    let nodes = nodes.filter(|&node| view.is_live(node) && !store.late.contains(&node));
    nodes.filter(|node| !serving(node)).collect()
}
