//! The stores and versions that requests see on a node.

use std::collections::BTreeMap;

use fondaco_model::cluster::ClusterView;
use fondaco_model::{NodeId, PartitionSet, StoreKind, StoreName, VersionNumber};

use super::{AgentAction, LocalReplicas};

/// All stores of a cluster, with their open versions on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingSet {
    /// Each store, including those that this node has no data of.
    pub stores: BTreeMap<StoreName, ServingStore>,
}

/// A store, as requests should see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingStore {
    /// The number of the store.
    pub id: u16,
    /// Its kind.
    pub kind: StoreKind,
    /// The version for requests that name none. It may be closed here, or open in part: other nodes have the rest.
    pub current: Option<VersionNumber>,
    /// The versions that requests may name, with the open partitions of each.
    pub versions: BTreeMap<VersionNumber, PartitionSet>,
}

/// All local versions that are not being dropped.
pub(super) fn serving_set(
    view: &ClusterView,
    node: NodeId,
    local: &LocalReplicas,
    drops: &[AgentAction],
) -> ServingSet {
    let store = |(name, store): (
        &StoreName,
        &fondaco_model::cluster::Revised<fondaco_model::cluster::StoreRecord>,
    )| {
        let record = &store.record;
        let store = ServingStore {
            id: record.id,
            kind: record.definition.kind,
            current: record.versions.current(),
            versions: BTreeMap::new(),
        };
        (name.clone(), store)
    };
    let mut set = ServingSet {
        stores: view.stores.iter().map(store).collect(),
    };
    for ((name, number), version) in &local.versions {
        let answered = match version.on_demand.is_empty() || others_answer(view, name, node) {
            true => version.open.clone(),
            false => version.answered(),
        };
        let store = set.stores.get_mut(name);
        let Some(store) = store.filter(|_| !answered.is_empty()) else {
            continue;
        };
        // A version with the number of a kept one, but another manifest, is dropped at once.
        store.versions.insert(*number, answered);
    }
    for drop in drops {
        match drop {
            AgentAction::Drop { store, version } => {
                if let Some(store) = set.stores.get_mut(store) {
                    store.versions.remove(version);
                }
            }
            AgentAction::DropPartitions {
                store,
                version,
                partitions,
            } => {
                let store = set.stores.get_mut(store);
                if let Some(open) = store.and_then(|store| store.versions.get_mut(version)) {
                    *open = open.without(partitions);
                }
            }
            _ => {}
        }
    }
    set
}

/// Whether other nodes answer for all partitions of a node that lacks the current version: they have all of it, and are faster than
/// its source. The controller has found out that they do when the node is late; since then they may have gone.
fn others_answer(view: &ClusterView, name: &StoreName, node: NodeId) -> bool {
    let Some((store, table)) = view.stores.get(name).zip(view.routing.as_ref()) else {
        return false;
    };
    let (store, table) = (&store.record, &table.record);
    let answers = |other: &NodeId| *other != node && view.is_live(*other) && !store.late.contains(other);
    let replicas = view.replicas(store);
    let has_other = |owners: &[NodeId]| {
        let mut owners = owners.iter().take(replicas);
        !owners.clone().any(|owner| *owner == node) || owners.any(answers)
    };
    store.late.contains(&node)
        && table
            .partitions()
            .partitions()
            .all(|partition| has_other(table.owners(partition)))
}
