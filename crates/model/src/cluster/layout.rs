//! Which partitions of a store each node holds, according to the routing table.
//!
//! It depends only on the table and on the number of replicas, which few stores set. So it is computed once for each
//! such number, and kept until the table changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::NodeId;
use crate::partition_set::PartitionSet;
use crate::routing::RoutingTable;

/// The nodes of a store with their partitions.
#[derive(Debug)]
pub(super) struct Layout {
    /// The partitions that each node owns, and serves.
    pub(super) owned: BTreeMap<NodeId, PartitionSet>,
    /// The partitions that each node will own once the plan under way is finished; empty without a plan.
    pub(super) planned: BTreeMap<NodeId, PartitionSet>,
}

impl Layout {
    fn of(table: &RoutingTable, replicas: usize) -> Self {
        let by_node = |lists: &[Vec<NodeId>]| {
            let mut nodes = BTreeMap::<NodeId, PartitionSet>::new();
            for (partition, list) in table.partitions().partitions().zip(lists) {
                for &node in list.iter().take(replicas) {
                    nodes.entry(node).or_default().insert(partition);
                }
            }
            nodes
        };
        Self {
            owned: by_node(table.all_owners()),
            planned: table.next().map(by_node).unwrap_or_default(),
        }
    }

    /// The partitions that a node owns.
    pub(super) fn owned_by(&self, node: NodeId) -> &PartitionSet {
        self.owned.get(&node).unwrap_or(const { &PartitionSet::EMPTY })
    }

    /// The partitions that a node will own under the plan under way; empty without a plan.
    pub(super) fn planned_for(&self, node: NodeId) -> &PartitionSet {
        self.planned.get(&node).unwrap_or(const { &PartitionSet::EMPTY })
    }
}

/// The layouts of one routing table.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    epoch: u64,
    by_replicas: BTreeMap<usize, Arc<Layout>>,
}

impl Layouts {
    /// The layout of a store with so many replicas.
    pub(super) fn of(&mut self, table: &RoutingTable, replicas: usize) -> Arc<Layout> {
        if self.epoch != table.epoch() {
            self.by_replicas.clear();
            self.epoch = table.epoch();
        }
        let made = || Arc::new(Layout::of(table, replicas));
        Arc::clone(self.by_replicas.entry(replicas).or_insert_with(made))
    }
}
