//! Evaluates reports: whether a version is ready on a node, and on enough nodes.
//!
//! A report proves something only if it is based on the same store and number of replicas as its reader's view, and on a
//! routing table since which no move has concerned its node. Any other report counts as unknown, and decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use fondaco_model::cluster::{ClusterView, ReplicaReport, ReplicaState, StoreRecord, StoreReport};
use fondaco_model::{Copies, NodeId, PartitionId, PartitionSet, StoreName, VersionNumber};

use crate::layout::{Layout, Layouts};

/// The reports of nodes about a store, as far as they still hold.
pub(super) struct Reports<'a> {
    view: &'a ClusterView,
    pub(super) store: &'a StoreRecord,
    pub(super) layout: Arc<Layout>,
}

impl<'a> Reports<'a> {
    /// The reports about a store with this layout, which may be one that the store does not have yet.
    pub(super) fn of(view: &'a ClusterView, store: &'a StoreRecord, layout: Arc<Layout>) -> Self {
        Self { view, store, layout }
    }

    /// A node's report about the store, if it still holds.
    fn report(&self, node: NodeId) -> Option<&'a StoreReport> {
        let report = self.view.reports.get(&node)?;
        let of_store = report.stores.get(&self.store.definition.name)?;
        let holds = self.layout.holds_since(node, report.epoch)
            && of_store.id == self.store.id
            && of_store.replicas as usize == self.view.replicas(self.store);
        holds.then_some(of_store)
    }

    /// A node's report about a version, if it still holds.
    pub(super) fn replica(&self, node: NodeId, version: VersionNumber) -> Option<&'a ReplicaReport> {
        self.report(node)?.versions.get(&version)
    }

    /// Whether a node has proved that it has a partition of a versioned store that a move under way gives it.
    pub(super) fn is_synchronised(&self, node: NodeId, partition: PartitionId) -> bool {
        self.report(node)
            .is_some_and(|report| !report.lacking.contains(partition))
    }

    /// Whether a node has proved that a version may go live on it: it is ready, or is to be served while it is copied.
    pub(super) fn is_ready(&self, node: NodeId, version: VersionNumber) -> bool {
        self.replica(node, version)
            .is_some_and(|replica| replica.state.is_ready() || replica.on_demand)
    }

    /// The partitions of a version that a node has proved to have, of those that it owns in the layout.
    fn proved(&self, node: NodeId, version: VersionNumber) -> PartitionSet {
        let owned = self.layout.owned_by(node);
        match self.replica(node, version) {
            Some(replica) if replica.state.is_ready() => owned.clone(),
            // Reports about such a store name all that is lacking.
            Some(replica) if self.store.definition.everywhere => owned.without(&replica.lacking),
            _ => PartitionSet::EMPTY,
        }
    }
}

/// The first partition without a node that has a version ready, according to the reports; `None` if each has one, and
/// also if there is no such store or no routing table.
pub fn unready_partition(view: &ClusterView, name: &StoreName, version: VersionNumber) -> Option<PartitionId> {
    let store = &view.stores.get(name)?.record;
    unready_among(view, store, version, view.replicas(store))
}

/// The first partition of a version without a node that would have it if the store had this number of replicas.
pub(super) fn unready_among(
    view: &ClusterView,
    store: &StoreRecord,
    version: VersionNumber,
    replicas: usize,
) -> Option<PartitionId> {
    let reports = reports_with(view, store, Copies::of(replicas))?;
    let nodes = reports.layout.owned.keys();
    let left = nodes.fold(reports.layout.all(), |left, &node| {
        left.without(&reports.proved(node, version))
    });
    left.iter().next()
}

/// The nodes that are late, and would still be if this version were current and the store had this number of replicas. A node
/// that alone has a partition is not late.
pub(super) fn late_among(
    view: &ClusterView,
    store: &StoreRecord,
    version: VersionNumber,
    replicas: usize,
) -> BTreeSet<NodeId> {
    let Some(reports) = reports_with(view, store, Copies::of(replicas)) else {
        return store.late.clone();
    };
    let has = |node: NodeId| reports.proved(node, version);
    let late = store.late.iter().copied();
    let mut late: BTreeSet<NodeId> = late
        .filter(|&node| has(node) != *reports.layout.owned_by(node))
        .collect();
    // Partitions that only late nodes have can only be read there.
    let others = reports.layout.owned.keys().copied();
    let others = others.filter(|node| !late.contains(node));
    let elsewhere = others.fold(PartitionSet::EMPTY, |all, node| all.with(&has(node)));
    late.retain(|&node| elsewhere.covers(&has(node)));
    late
}

/// The live owners of a store's partitions that have not yet reported this version as current. After a swap, the caller
/// waits until the list is empty.
pub fn not_serving(view: &ClusterView, name: &StoreName, version: VersionNumber) -> BTreeSet<NodeId> {
    let Some(store) = view.stores.get(name).map(|store| &store.record) else {
        return BTreeSet::new();
    };
    let Some(reports) = reports_with(view, store, view.copies(store)) else {
        return BTreeSet::new();
    };
    // A version may be current again: an older report that it is served does not count.
    let serving = |node: NodeId| {
        let report = reports.report(node)?;
        let replica = report.versions.get(&version)?;
        Some(report.swaps >= store.versions.swaps() && (replica.state == ReplicaState::Serving || replica.on_demand))
    };
    let nodes = reports.layout.owned.keys().copied();
    let nodes = nodes.filter(|&node| view.is_live(node) && !store.late.contains(&node));
    nodes.filter(|&node| serving(node) != Some(true)).collect()
}

/// The reports about a store with this number of copies; `None` without a routing table.
fn reports_with<'a>(view: &'a ClusterView, store: &'a StoreRecord, copies: Copies) -> Option<Reports<'a>> {
    let table = &view.routing.as_ref()?.record;
    Some(Reports::of(view, store, Layouts::default().of(table, copies)))
}
