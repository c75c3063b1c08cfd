//! The versions that a node wants, kept or pushed, with its own partitions of each.

use std::collections::BTreeMap;

use fondaco_model::cluster::{ClusterView, StoreRecord, VersionDetail};
use fondaco_model::{NodeId, PartitionSet, StoreKind};

use super::ReplicaKey;
use crate::layout::Layouts;

/// A version that a node wants.
#[derive(Debug)]
pub(super) struct Want<'a> {
    pub(super) store: &'a StoreRecord,
    pub(super) detail: &'a VersionDetail,
    pub(super) urgency: Urgency,
    /// Whether it is to be served while it is copied.
    pub(super) on_demand: bool,
    /// All its partitions that the node wants, by the version's own numbers: partitions may have been split since it was built.
    pub(super) partitions: PartitionSet,
    /// The partitions that other nodes may read from it now, by the version's own numbers.
    pub(super) owned: PartitionSet,
    /// The partitions that the report names if they are not there, by the numbers of the routing table: those that
    /// moves under way give to the node, or leave with it; of a store that is everywhere, all, since it may have to be made
    /// smaller before all are there.
    pub(super) reported: PartitionSet,
}

/// The order of fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// The current version: the node is late without it.
    Current,
    /// A version that is being pushed.
    Pushed,
    /// A version for rollback.
    Backup,
}

/// All versions that a node wants; `None` while its partitions are unknown.
pub(super) fn wants<'a>(
    view: &'a ClusterView,
    node: NodeId,
    layouts: &mut Layouts,
) -> Option<BTreeMap<ReplicaKey, Want<'a>>> {
    view.cluster.as_ref()?;
    view.nodes.get(&node)?;
    let table = &view.routing.as_ref()?.record;
    let mut wants = BTreeMap::new();
    for (name, store) in &view.stores {
        let store = &store.record;
        let layout = layouts.of(table, view.copies(store));
        let owned = layout.owned_by(node);
        let planned = layout.planned_for(node);
        let partitions = owned.with(planned);
        if partitions.is_empty() {
            continue;
        }
        let kept = store.versions.kept().map(|version| {
            let current = store.versions.current() == Some(version);
            (version, if current { Urgency::Current } else { Urgency::Backup })
        });
        let pushed = store.pushed().map(|version| (version, Urgency::Pushed));
        for (version, urgency) in kept.chain(pushed) {
            let Some(detail) = store.details.get(&version) else {
                continue;
            };
            let of_push = || store.push.as_ref().is_some_and(|push| push.serve_while_copying);
            let want = Want {
                store,
                detail,
                urgency,
                on_demand: store.definition.kind == StoreKind::Batch
                    && match urgency {
                        Urgency::Current => true,
                        Urgency::Pushed => of_push(),
                        Urgency::Backup => false,
                    },
                partitions: partitions.among(table.partitions(), detail.partitions),
                owned: owned.among(table.partitions(), detail.partitions),
                reported: match store.definition.everywhere {
                    true => partitions.clone(),
                    false => planned.clone(),
                },
            };
            wants.insert((name.clone(), version), want);
        }
    }
    Some(wants)
}
