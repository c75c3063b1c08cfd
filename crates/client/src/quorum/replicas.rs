//! The replicas of a key of a versioned store, in the order in which a coordinator asks them.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{self, KEEPERS_MAX, Quorums, VersionedSettings};
use fondaco_model::{NodeId, Slot, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{ReplicaOperation, ReplicaRequest};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::write::Intent;
use crate::error::ClientError;
use crate::read::{Directory, Member};

/// Nodes; usually three.
pub(super) type Nodes = SmallVec<[NodeId; 4]>;

/// A coordinator's place in the cluster: it asks the nearest nodes first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home {
    /// The local node, if this process owns partitions.
    pub node: Option<NodeId>,
    /// Its zone, if it is known and has nodes. All zones but this one are other zones.
    pub zone: Option<String>,
}

/// A versioned store, as an operation knows it.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) name: StoreName,
    pub(super) id: u16,
    pub(super) settings: VersionedSettings,
    /// The quorums of the nodes that take writes besides the owners.
    pub(super) joint: Quorums,
}

/// The replicas of a key whose write needs no hint and no second table: all of them are expected to answer, they are enough for the
/// store's quorums, and no plan changes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SettledReplicas {
    store: StoreName,
    store_id: u16,
    /// The epoch of the routing table that they are from.
    epoch: u64,
    /// The replicas. The first one takes the write.
    pub(crate) nodes: Nodes,
}

impl SettledReplicas {
    /// The settled replicas of a key that is to be written; `None` if they are not settled.
    pub(crate) fn of(key: &WireKey, intent: &Intent, home: &Home, directory: &Directory) -> Option<Self> {
        let store = Store::of(directory, key.store()).ok()?;
        let mut nodes = store.owners(directory, key.slot());
        let settings = &store.settings;
        let is_quorum = nodes.len() as u32 >= settings.writes
            && home.other_zones(nodes.iter().copied(), directory) >= settings.zone_writes;
        let are_well = nodes.iter().all(|&node| is_well(directory, node));
        if !is_quorum || !are_well || store.joint_owners(directory, key.slot()).is_some() {
            return None;
        }
        // As in every write: coordinators that change one value meet at the first replica of the table.
        if !matches!(intent, Intent::Unchanged(_)) {
            home.nearest_first(&mut nodes, directory);
        }
        Some(Self {
            store: store.name,
            store_id: store.id,
            epoch: directory.topology().epoch,
            nodes,
        })
    }

    /// A request to one of them, which is counted under their table.
    pub(crate) fn request(&self, operation: ReplicaOperation, timeout: Duration) -> ReplicaRequest {
        ReplicaRequest {
            store_id: self.store_id,
            store: self.store.clone(),
            timeout_ms: timeout.as_millis() as u64,
            epoch: NonZeroU64::new(self.epoch),
            operation,
        }
    }
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
                joint: directory
                    .topology()
                    .joint_quorums(store)
                    .unwrap_or_else(|| settings.quorums(store.replicas)),
            }),
            None => Err(ClientError::NotVersioned { store: name.clone() }),
        }
    }

    /// The nodes that have the partition of a slot, in the order of the routing table.
    pub(super) fn owners(&self, directory: &Directory, slot: Slot) -> Nodes {
        let Some((_, store)) = directory.store(self.name.as_str()) else {
            return Nodes::new();
        };
        let members = directory.members();
        let partition = directory.topology().partitions.partition_of(slot);
        directory
            .replicas(store, partition)
            .map(|place| members[place].id)
            .collect()
    }

    /// The other nodes that take the writes of the partition of a slot while a plan changes its owners: the next or the former
    /// owners; `None` if they are the current ones, with the same quorums.
    pub(super) fn joint_owners(&self, directory: &Directory, slot: Slot) -> Option<Nodes> {
        let topology = directory.topology();
        let partition = topology.partitions.partition_of(slot);
        topology.joint.get(&partition)?;
        let (_, store) = directory.store(self.name.as_str())?;
        let joint = topology.joint_replicas(store, partition);
        let joint: Nodes = joint.filter(|&node| directory.member(node).is_some()).collect();
        let now = self.owners(directory, slot);
        let is_same = joint.len() == now.len() && joint.iter().all(|node| now.contains(node));
        let has_same_quorums = self.joint == self.settings.quorums(store.replicas);
        (!is_same || !has_same_quorums).then_some(joint)
    }
}

impl Home {
    /// A coordinator's place in a cluster: in the configured zone, or else in that of its node.
    ///
    /// A zone without nodes does not count. All replicas would then be in other zones, and two in one zone would pass
    /// for two zones.
    pub fn of(topology: &Topology, node: Option<NodeId>, zone: Option<&str>) -> Self {
        let has_nodes = |zone: &&str| topology.nodes.values().any(|node| node.zone == *zone);
        let of_node = || Some(topology.nodes.get(&node?)?.zone.as_str());
        Self {
            node,
            zone: zone.filter(has_nodes).or_else(of_node).map(str::to_owned),
        }
    }

    /// Sorts nodes by the order of asking: healthy nodes first, those out of service for a while last of them; then the
    /// local node, then its zone, then other zones; ties keep their order.
    pub(super) fn nearest_first(&self, nodes: &mut Nodes, directory: &Directory) {
        nodes.sort_by_key(|&node| {
            let member = directory.member(node);
            let is_well = member.is_some_and(Member::is_well);
            let is_near = member.is_some_and(|member| member.near);
            let is_resting = member.is_some_and(|member| member.resting);
            (!is_well, is_resting, Some(node) != self.node, !is_near)
        });
    }

    /// The number of zones of these nodes, other than the own zone, or the zone of the first node if the own one is
    /// unknown.
    pub(super) fn other_zones(&self, nodes: impl IntoIterator<Item = NodeId>, directory: &Directory) -> u32 {
        let is_of_home = usize::from(self.zone.is_some());
        let zones = self.zones_covered(nodes, directory).len();
        // Without any node, there is no first node's zone to subtract either.
        zones.saturating_sub(is_of_home.max(1)) as u32
    }

    /// The zones that a further copy would not add to those of these nodes: the own zone, and theirs.
    pub(super) fn zones_covered<'a>(
        &'a self,
        nodes: impl IntoIterator<Item = NodeId>,
        directory: &'a Directory,
    ) -> SmallVec<[&'a str; 4]> {
        let mut zones: SmallVec<[&str; 4]> = self.zone.as_deref().into_iter().collect();
        for node in nodes {
            if let Some(zone) = zone_of(directory, node)
                && !zones.contains(&zone)
            {
                zones.push(zone);
            }
        }
        zones
    }

    /// The other zones of these failed nodes, except those in which other nodes of the key are.
    pub(super) fn zones_missing(&self, blamed: &[NodeId], others: &[NodeId], directory: &Directory) -> Vec<Arc<str>> {
        let covered = self.zones_covered(others.iter().copied(), directory);
        let mut missing: Vec<Arc<str>> = Vec::new();
        for zone in blamed.iter().filter_map(|&node| zone_of(directory, node)) {
            if !covered.contains(&zone) && !missing.iter().any(|known| **known == *zone) {
                missing.push(zone.into());
            }
        }
        missing
    }
}

fn zone_of(directory: &Directory, node: NodeId) -> Option<&str> {
    Some(directory.topology().nodes.get(&node)?.zone.as_str())
}

/// The nodes that may keep a hint for a replica that missed a write, in the order of asking; empty if the store has no
/// hinted handoff. If the hint must count for one more zone, `zones_covered` are the zones in which it would not.
pub(super) fn hint_keepers(
    store: &Store,
    key: &WireKey,
    target: NodeId,
    home: &Home,
    zones_covered: Option<&[&str]>,
    directory: &Directory,
) -> SmallVec<[NodeId; KEEPERS_MAX]> {
    let Some((_, settings)) = directory.store(store.name.as_str()) else {
        return SmallVec::new();
    };
    let topology = directory.topology();
    let partition = topology.partitions.partition_of(key.slot());
    let zone = home.zone.as_deref();
    let hash = xxh3_64(key.key());
    versioned::hint_keepers(topology, settings, partition, target, zone, hash, zones_covered)
}

/// Whether a node is expected to answer.
pub(super) fn is_well(directory: &Directory, node: NodeId) -> bool {
    directory.member(node).is_some_and(Member::is_well)
}

#[cfg(test)]
mod tests {
    use fondaco_model::cluster::{TopologyNode, TopologyStore};
    use fondaco_model::versioned::VectorClock;
    use fondaco_model::{PartitionCount, PartitionId};

    use super::*;
    use crate::read::HealthPolicy;

    fn id(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    /// One partition on three nodes, each in a zone of its own.
    fn topology() -> Topology {
        let node = |number: u32| (id(number), TopologyNode::live("a:1", format!("zone-{number}")));
        let store = TopologyStore::versioned(3, VersionedSettings::of(3));
        Topology::first(
            PartitionCount::ONE,
            vec![vec![id(2), id(1), id(3)]],
            (1..=3).map(node),
            [("v".parse().unwrap(), store)],
        )
    }

    fn settled(topology: Topology, intent: &Intent) -> Option<Vec<NodeId>> {
        let home = Home::of(&topology, Some(id(3)), None);
        let directory = Directory::new(Arc::new(topology), None, HealthPolicy::default(), None);
        let key = WireKey::new(&"v".parse().unwrap(), b"k").unwrap();
        let found = SettledReplicas::of(&key, intent, &home, &directory);
        found.map(|replicas| replicas.nodes.to_vec())
    }

    #[test]
    fn the_nearest_replica_takes_a_write_and_the_first_one_a_change() {
        let context = VectorClock::new();
        let write = settled(topology(), &Intent::Context(context.clone()));
        assert_eq!(write, Some(vec![id(3), id(2), id(1)]));
        let change = settled(topology(), &Intent::Unchanged(context));
        assert_eq!(change, Some(vec![id(2), id(1), id(3)]));
    }

    #[test]
    fn replicas_are_not_settled_while_one_is_away_or_moves_or_a_zone_is_missing() {
        let not_settled = |change: fn(&mut Topology)| {
            let mut topology = topology();
            change(&mut topology);
            assert_eq!(settled(topology, &Intent::Context(VectorClock::new())), None);
        };
        not_settled(|topology| {
            let nodes = topology.nodes.values_mut();
            nodes.for_each(|node| node.live = node.zone != "zone-2");
        });
        not_settled(|topology| {
            topology.owners[0].truncate(2);
            let next = vec![id(2), id(1), id(3)];
            topology.joint.insert(PartitionId::new(0), next);
        });
        not_settled(|topology| {
            topology.nodes.values_mut().for_each(|node| node.zone = "one".into());
            let stores = topology.stores.values_mut();
            let settings = stores.filter_map(|store| store.versioned.as_mut());
            settings.for_each(|settings| settings.zone_writes = 1);
        });
        not_settled(|topology| topology.owners[0].truncate(1));
    }
}
