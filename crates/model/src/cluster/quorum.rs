//! The partitions of a store that have too few live replicas to be read or written.
//!
//! It is computed from the live nodes, the routing table, and the store's settings. It does not know whether a live
//! node can be reached, or must catch up first: a coordinator may find fewer replicas, but never more.

use std::collections::BTreeSet;

use super::topology::{Topology, TopologyStore};
use crate::name::StoreName;
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::partition_set::PartitionSet;
use crate::routing::{EVERYWHERE, first_replicas};
use crate::versioned::{Quorums, VersionedSettings};

/// The partitions of a store that have too few live replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostQuorum {
    /// Partitions without a read quorum; for a batch store that serves a version, those without any live replica.
    pub reads: PartitionSet,
    /// Partitions without a write quorum. A write asks a read quorum for its context first, unless the store's quorums
    /// are sloppy.
    pub writes: PartitionSet,
}

impl LostQuorum {
    /// Whether every partition can be read and written.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }
}

/// Stores with equal terms have lost the same quorums.
type Terms<'a> = (
    u32,
    &'a Option<VersionedSettings>,
    Option<Quorums>,
    bool,
    &'a BTreeSet<NodeId>,
);

impl Topology {
    /// The stores with a partition that has too few live replicas, in the order of their names.
    pub fn lost_quorums(&self) -> Vec<(&StoreName, LostQuorum)> {
        // Most stores have the same settings, and there may be thousands of stores and of partitions.
        let mut known: Vec<(Terms<'_>, LostQuorum)> = Vec::new();
        let mut all = Vec::new();
        for (name, store) in &self.stores {
            let terms = (
                store.replicas,
                &store.versioned,
                self.joint_quorums(store),
                store.current.is_some(),
                &store.late,
            );
            let found = known.iter().position(|(others, _)| *others == terms);
            let at = found.unwrap_or_else(|| {
                known.push((terms, self.lost_quorum(store)));
                known.len() - 1
            });
            if !known[at].1.is_empty() {
                all.push((name, known[at].1.clone()));
            }
        }
        all
    }

    /// The partitions of a store that have too few live replicas.
    pub fn lost_quorum(&self, store: &TopologyStore) -> LostQuorum {
        let mut lost = LostQuorum::default();
        let everyone = (store.replicas == EVERYWHERE).then(|| self.owning());
        let is_somewhere = everyone.is_some_and(|nodes| {
            let asked: Vec<NodeId> = nodes.into_iter().filter(|node| !store.late.contains(node)).collect();
            !self.live_among(&asked).is_empty()
        });
        if is_somewhere {
            return lost;
        }
        for partition in self.partitions.partitions() {
            let owners: Vec<NodeId> = self.replicas(store, partition).collect();
            let Some(settings) = &store.versioned else {
                if store.current.is_some() && self.live_among(&owners).is_empty() {
                    lost.reads.insert(partition);
                }
                continue;
            };
            let can_read = self.has_read_quorum(settings, &owners);
            if !can_read {
                lost.reads.insert(partition);
            }
            if !(can_read || settings.sloppy) || !self.can_write(store, settings, partition, &owners) {
                lost.writes.insert(partition);
            }
        }
        lost
    }

    /// The partitions with fewer ready replicas of a store than it should have: nodes are absent, or late.
    pub fn short_partitions(&self) -> PartitionSet {
        let longest = self.owners.iter().map(Vec::len).max().unwrap_or(0);
        let everyone: Vec<NodeId> = self.owning().into_iter().collect();
        // Most stores have the same terms.
        let terms: BTreeSet<_> = self
            .stores
            .values()
            .map(|store| (store.replicas, &store.late))
            .collect();
        let is_short = |owners: &Vec<NodeId>| {
            terms.iter().any(|&(replicas, late)| {
                let (owners, wanted) = match replicas {
                    EVERYWHERE => (&everyone, everyone.len()),
                    replicas => (owners, longest.min(replicas as usize)),
                };
                let mut live = self.live_among(first_replicas(owners, wanted));
                live.retain(|node| !late.contains(node));
                live.len() < wanted
            })
        };
        let lists = self.partitions.partitions().zip(&self.owners);
        lists
            .filter(|(_, owners)| is_short(owners))
            .map(|(partition, _)| partition)
            .collect()
    }

    fn has_read_quorum(&self, settings: &VersionedSettings, owners: &[NodeId]) -> bool {
        let live = self.live_among(owners);
        live.len() as u32 >= settings.reads && self.other_zones(&live) >= settings.zone_reads
    }

    /// Whether both the owners, and the owners that a plan adds or removes, have a write quorum.
    fn can_write(
        &self,
        store: &TopologyStore,
        settings: &VersionedSettings,
        partition: PartitionId,
        owners: &[NodeId],
    ) -> bool {
        let joint: Vec<NodeId> = self.joint_replicas(store, partition).collect();
        let of_joint = self.joint_quorums(store);
        let of_joint = of_joint.map_or(*settings, |quorums| settings.with_quorums(&quorums));
        self.has_write_quorum(settings, owners) && (joint.is_empty() || self.has_write_quorum(&of_joint, &joint))
    }

    fn has_write_quorum(&self, settings: &VersionedSettings, owners: &[NodeId]) -> bool {
        let mut holders = self.live_among(owners);
        if holders.is_empty() {
            return false;
        }
        if settings.sloppy {
            // Each absent owner has one hint. The hint counts if it is on a live node that has no replica of its own.
            let keepers = self.nodes.keys().copied().filter(|node| !owners.contains(node));
            let keepers = self.live_among(&keepers.collect::<Vec<_>>());
            let absent = owners.len() - holders.len();
            holders.extend(keepers.into_iter().take(absent));
        }
        holders.len() as u32 >= settings.writes && self.other_zones(&holders) >= settings.zone_writes
    }

    fn live_among(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let is_live = |node: &&NodeId| self.nodes.get(node).is_some_and(|node| node.live);
        nodes.iter().filter(is_live).copied().collect()
    }

    /// The number of zones of these nodes, less the one that the coordinator may be in.
    fn other_zones(&self, nodes: &[NodeId]) -> u32 {
        let zones = nodes.iter().filter_map(|node| self.nodes.get(node));
        let zones: BTreeSet<&str> = zones.map(|node| node.zone.as_str()).collect();
        zones.len().saturating_sub(1) as u32
    }
}
