//! The partitions of a store that each node holds, according to the routing table.
//!
//! It depends only on the table and on the number of copies, which few stores set. So it is computed once for each
//! such number, and kept until the table changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::{Copies, NodeId, PartitionSet, RoutingTable};

/// The nodes of a store with their partitions.
#[derive(Debug)]
pub(super) struct Layout {
    /// The partitions that each node owns, and serves.
    pub(super) owned: BTreeMap<NodeId, PartitionSet>,
    /// The partitions that moves under way give to each node, or leave with it, and that have not switched yet.
    pub(super) planned: BTreeMap<NodeId, PartitionSet>,
    /// The epoch of the last step that concerned each node: reports from before say nothing.
    last_steps: Arc<BTreeMap<NodeId, u64>>,
    epoch: u64,
}

impl Layout {
    fn of(table: &RoutingTable, copies: Copies, last_steps: Arc<BTreeMap<NodeId, u64>>) -> Self {
        Self {
            owned: table.owned(copies.owners),
            planned: table.to_be_owned(copies.joint),
            last_steps,
            epoch: table.epoch(),
        }
    }

    /// Whether what a node reported under the table of an epoch holds under this one.
    pub(super) fn holds_since(&self, node: NodeId, epoch: u64) -> bool {
        let last = self.last_steps.get(&node).copied().unwrap_or(0);
        (last..=self.epoch).contains(&epoch)
    }

    /// The partitions that a node owns.
    pub(super) fn owned_by(&self, node: NodeId) -> &PartitionSet {
        self.owned.get(&node).unwrap_or(const { &PartitionSet::EMPTY })
    }

    /// The partitions that at least one of these nodes owns.
    pub(super) fn covered(&self, nodes: impl Iterator<Item = NodeId>) -> PartitionSet {
        nodes.fold(PartitionSet::EMPTY, |covered, node| covered.with(self.owned_by(node)))
    }

    /// The partitions that any node owns: all of them.
    pub(super) fn all(&self) -> PartitionSet {
        self.covered(self.owned.keys().copied())
    }

    /// The partitions that moves under way give to a node, or leave with it.
    pub(super) fn planned_for(&self, node: NodeId) -> &PartitionSet {
        self.planned.get(&node).unwrap_or(const { &PartitionSet::EMPTY })
    }
}

/// The layouts of one routing table.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    epoch: u64,
    last_steps: Arc<BTreeMap<NodeId, u64>>,
    by_copies: BTreeMap<Copies, Arc<Layout>>,
}

impl Layouts {
    /// The layout of a store with this number of copies.
    pub(super) fn of(&mut self, table: &RoutingTable, copies: Copies) -> Arc<Layout> {
        if self.epoch != table.epoch() {
            self.by_copies.clear();
            self.epoch = table.epoch();
            self.last_steps = Arc::new(table.last_steps());
        }
        let made = || Arc::new(Layout::of(table, copies, Arc::clone(&self.last_steps)));
        Arc::clone(self.by_copies.entry(copies).or_insert_with(made))
    }
}
