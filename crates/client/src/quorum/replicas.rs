//! Who has a key of a versioned store, in the order in which one coordinator asks.

use fondaco_model::versioned::{self, KEEPERS_MAX, VersionedSettings};
use fondaco_model::{NodeId, PartitionId, StoreName};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ClientError;
use crate::key::WireKey;
use crate::read::{Directory, Member};

/// Nodes, of which there are mostly three.
pub(super) type Nodes = SmallVec<[NodeId; 4]>;

/// Where a coordinator stands: it asks whoever is nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home {
    /// The node in whose process it is, if it is in one's that has partitions.
    pub node: Option<NodeId>,
    /// Its zone, if it is known. Other zones are those that are not this one.
    pub zone: Option<String>,
}

/// A versioned store, as an operation knows it.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) name: StoreName,
    pub(super) id: u16,
    pub(super) settings: VersionedSettings,
}

impl Store {
    /// The store with this name, which must be a versioned one.
    pub(super) fn of(directory: &Directory, name: &str) -> Result<Self, ClientError> {
        let Some((name, store)) = directory.store(name) else {
            return Err(ClientError::UnknownStore { store: name.into() });
        };
        match &store.versioned {
            Some(settings) => Ok(Self {
                name: name.clone(),
                id: store.id,
                settings: *settings,
            }),
            None => Err(ClientError::NotVersioned { store: name.clone() }),
        }
    }

    /// The nodes that have a partition, in the order of the routing table.
    pub(super) fn owners(&self, directory: &Directory, partition: PartitionId) -> Nodes {
        let Some((_, store)) = directory.store(self.name.as_str()) else {
            return Nodes::new();
        };
        let members = directory.members();
        directory
            .replicas(store, partition)
            .map(|place| members[place].id)
            .collect()
    }
}

impl Home {
    /// Sorts nodes by how soon they are asked: those that are well before the others, the one at home before
    /// its zone, and its zone before other zones; else as they were.
    pub(super) fn nearest_first(&self, nodes: &mut Nodes, directory: &Directory) {
        nodes.sort_by_key(|&node| {
            let member = directory.member(node);
            let is_well = member.is_some_and(Member::is_well);
            let is_near = member.is_some_and(|member| member.near);
            (!is_well, Some(node) != self.node, !is_near)
        });
    }

    /// In how many zones other than the own one these nodes are. Who knows of no own zone has that of the first
    /// node.
    pub(super) fn other_zones(&self, nodes: impl IntoIterator<Item = NodeId>, directory: &Directory) -> u32 {
        let mut home = self.zone.as_deref();
        let mut zones = SmallVec::<[&str; 4]>::new();
        for node in nodes {
            let Some(node) = directory.topology().nodes.get(&node) else {
                continue;
            };
            let zone = node.zone.as_str();
            if *home.get_or_insert(zone) != zone && !zones.contains(&zone) {
                zones.push(zone);
            }
        }
        zones.len() as u32
    }
}

/// The nodes that may keep a hint for one that did not take a write, in the order in which they are asked; none
/// where the store wants no hints.
pub(super) fn hint_keepers(
    store: &Store,
    key: &WireKey,
    target: NodeId,
    home: &Home,
    directory: &Directory,
) -> SmallVec<[NodeId; KEEPERS_MAX]> {
    let Some((_, settings)) = directory.store(store.name.as_str()) else {
        return SmallVec::new();
    };
    let topology = directory.topology();
    let partition = topology.partitions.partition_of(key.slot());
    let zone = home.zone.as_deref();
    versioned::hint_keepers(topology, settings, partition, target, zone, xxh3_64(key.key()))
}

/// Whether a node is expected to answer.
pub(super) fn is_well(directory: &Directory, node: NodeId) -> bool {
    directory.member(node).is_some_and(Member::is_well)
}
