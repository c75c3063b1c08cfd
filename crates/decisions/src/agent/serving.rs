//! The stores and versions that requests see on a node.

use std::collections::BTreeMap;

use fondaco_model::cluster::ClusterView;
use fondaco_model::{PartitionSet, StoreKind, StoreName, VersionNumber};

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
pub(super) fn serving_set(view: &ClusterView, local: &LocalReplicas, drops: &[AgentAction]) -> ServingSet {
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
        let store = set.stores.get_mut(name);
        let Some(store) = store.filter(|_| !version.open.is_empty()) else {
            continue;
        };
        // A version with the number of a kept one, but another manifest, is dropped at once.
        store.versions.insert(*number, version.open.clone());
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
