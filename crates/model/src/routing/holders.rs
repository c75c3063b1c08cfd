//! The nodes that have the partitions of one store: those that come first in the table's lists, as many as the store has
//! replicas; or, of a store that is [everywhere](EVERYWHERE), all nodes of the lists have all partitions.

use std::collections::BTreeMap;

use super::RoutingTable;
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::partition_set::PartitionSet;

/// As a number of replicas: every node that has a partition has all partitions of the store. No list has this many nodes.
pub const EVERYWHERE: u32 = u32::MAX - 1;

/// How many nodes of a partition's lists have a store: of the owners, and of the other list while the partition moves. They differ only
/// while the store's number of replicas changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copies {
    /// Of the owners.
    pub owners: usize,
    /// Of the next owners, or of the former ones after the switch.
    pub joint: usize,
}

impl Copies {
    /// The same number of each list.
    pub fn of(replicas: usize) -> Self {
        Self {
            owners: replicas,
            joint: replicas,
        }
    }
}

/// The nodes of a list that have a store with this number of replicas.
pub fn first_replicas(list: &[NodeId], replicas: usize) -> &[NodeId] {
    &list[..list.len().min(replicas)]
}

impl RoutingTable {
    /// Whether a node must have a partition of a store with this number of copies: as one of its first owners, or as one of
    /// the first owners before or after its move under way.
    pub fn holds(&self, node: NodeId, partition: PartitionId, copies: Copies) -> bool {
        let among = |list: &[NodeId], copies: usize| first_replicas(list, copies).contains(&node);
        let joint = self.joint(partition);
        among(self.owners(partition), copies.owners) || joint.is_some_and(|joint| among(joint, copies.joint))
    }

    /// The partitions that a node should hold of a store with this number of copies, in order.
    pub fn partitions_of(&self, node: NodeId, copies: Copies) -> impl Iterator<Item = PartitionId> + '_ {
        let holds = move |&partition: &PartitionId| self.holds(node, partition, copies);
        let has_all = copies.owners == EVERYWHERE as usize && self.partitions.partitions().any(|one| holds(&one));
        let partitions = self.partitions.partitions();
        partitions.filter(move |partition| has_all || holds(partition))
    }

    /// The partitions of a store with this number of replicas that each node owns.
    pub fn owned(&self, replicas: usize) -> BTreeMap<NodeId, PartitionSet> {
        let owners = self.owners.iter().map(Vec::as_slice);
        self.by_node(&mut self.partitions.partitions().zip(owners), replicas)
    }

    /// The partitions of a store with this number of replicas that moves under way give to each node, or leave with it, and
    /// that have not switched yet.
    pub fn to_be_owned(&self, replicas: usize) -> BTreeMap<NodeId, PartitionSet> {
        self.by_node(
            &mut self.begun().map(|(partition, next, _)| (partition, next)),
            replicas,
        )
    }

    fn by_node(
        &self,
        lists: &mut dyn Iterator<Item = (PartitionId, &[NodeId])>,
        replicas: usize,
    ) -> BTreeMap<NodeId, PartitionSet> {
        let mut nodes = BTreeMap::<NodeId, PartitionSet>::new();
        for (partition, list) in lists {
            for &node in first_replicas(list, replicas) {
                nodes.entry(node).or_default().insert(partition);
            }
        }
        if replicas == EVERYWHERE as usize {
            let all: PartitionSet = self.partitions.partitions().collect();
            nodes.values_mut().for_each(|partitions| partitions.clone_from(&all));
        }
        nodes
    }
}
