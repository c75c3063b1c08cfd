//! What those who send requests need to know of a cluster: where keys are, and which version is current.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::view::ClusterView;
use crate::definition::StoreKind;
use crate::name::StoreName;
use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::version::VersionNumber;
use crate::versioned::VersionedSettings;

/// Where keys are, at one moment. It may be old: nodes say so, and then a newer one is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The epoch of the routing table.
    pub epoch: u64,
    /// How many partitions there are.
    pub partitions: PartitionCount,
    /// The owners of each partition, in the order of preference.
    pub owners: Vec<Vec<NodeId>>,
    /// All nodes.
    pub nodes: BTreeMap<NodeId, TopologyNode>,
    /// How many routers are there: they divide quotas.
    pub routers: u32,
    /// All stores.
    pub stores: BTreeMap<StoreName, TopologyStore>,
}

/// A node, for those who send requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyNode {
    /// Where it serves RESP: host and port.
    pub resp: String,
    /// Where it serves HTTP: host and port.
    pub http: String,
    /// Its zone.
    pub zone: String,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Whether it was there when this was made.
    pub live: bool,
}

/// A store, for those who send requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyStore {
    /// The number of the store.
    pub id: u16,
    /// Its kind.
    pub kind: StoreKind,
    /// The version to be asked for; `None` before the first was swapped in.
    pub current: Option<VersionNumber>,
    /// How many records the current version has, as its manifest says.
    pub records: u64,
    /// How many of a partition's owners hold it: the first so many.
    pub replicas: u32,
    /// Nodes that do not have the current version yet: not to be asked.
    pub late: BTreeSet<NodeId>,
    /// How many keys a second may be read through all routers together.
    pub read_keys_per_second: Option<u64>,
    /// What else is said of a versioned store; `None` for others.
    pub versioned: Option<VersionedSettings>,
}

impl Topology {
    /// The topology of a cluster; `None` before it has a routing table.
    pub fn of(view: &ClusterView) -> Option<Self> {
        let table = &view.routing.as_ref()?.record;
        let node = |(&id, node): (&NodeId, &super::view::Revised<super::record::NodeRecord>)| {
            let record = &node.record;
            let node = TopologyNode {
                resp: record.resp.clone(),
                http: record.http.clone(),
                zone: record.zone.clone(),
                group: record.group.clone(),
                live: view.is_live(id),
            };
            (id, node)
        };
        let store = |(name, store): (&StoreName, &super::view::Revised<super::record::StoreRecord>)| {
            let record = &store.record;
            let current = record
                .versions
                .current()
                .and_then(|version| record.details.get(&version));
            let store = TopologyStore {
                id: record.id,
                kind: record.definition.kind,
                current: record.versions.current(),
                records: current.map_or(0, |detail| detail.records),
                replicas: view.replicas(record) as u32,
                late: record.late.clone(),
                read_keys_per_second: record.definition.read_keys_per_second,
                versioned: record.definition.versioned,
            };
            (name.clone(), store)
        };
        Some(Self {
            epoch: table.epoch(),
            partitions: table.partitions(),
            owners: table.all_owners().to_vec(),
            nodes: view.nodes.iter().map(node).collect(),
            routers: view.routers.len() as u32,
            stores: view.stores.iter().map(store).collect(),
        })
    }

    /// The nodes that may be asked for a partition of a store, in the order of preference, whether or
    /// not they are there.
    pub fn replicas<'a>(
        &'a self,
        store: &'a TopologyStore,
        partition: PartitionId,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let owners = self.owners.get(partition.get() as usize).map_or(&[][..], Vec::as_slice);
        let holders = owners.iter().copied().take(store.replicas as usize);
        holders.filter(|node| !store.late.contains(node))
    }
}
