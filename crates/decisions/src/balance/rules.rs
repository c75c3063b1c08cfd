//! Where a replica of a partition may go: the rules of placement, which no decision breaks.

use std::collections::BTreeSet;

use fondaco_model::{NodeId, PartitionId, Placement};

use super::input::{BalanceInput, NodeLoad};

/// Lists of owners that change step by step, under the rules.
pub(super) struct Draft<'a> {
    pub(super) input: &'a BalanceInput,
    pub(super) owners: Vec<Vec<NodeId>>,
    zones: usize,
    /// The partitions that left a node a short time ago.
    left: BTreeSet<(PartitionId, NodeId)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(input: &'a BalanceInput) -> Self {
        let members = input.nodes.iter().filter(|node| node.may_get());
        let zones: BTreeSet<&str> = members.map(|node| node.zone.as_str()).collect();
        let since = input.at_unix_ms.saturating_sub(input.settings.stay_ms);
        let left = input.departures.iter().filter(|one| one.at_unix_ms > since);
        Self {
            input,
            owners: input.lists(),
            zones: zones.len(),
            left: left.map(|one| (one.partition, one.node)).collect(),
        }
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&'a NodeLoad> {
        let nodes = &self.input.nodes;
        nodes
            .binary_search_by_key(&node, |node| node.node)
            .ok()
            .map(|at| &nodes[at])
    }

    /// Why a node may not take the place of another in the list of a partition; `None` if it may.
    pub(super) fn forbids(&self, partition: PartitionId, from: NodeId, to: &NodeLoad) -> Option<&'static str> {
        let list = &self.owners[partition.get() as usize];
        if !to.may_get() {
            return Some("it is absent, leaves, is in maintenance or waits as a backup");
        }
        if list.contains(&to.node) {
            return Some("it has the partition already");
        }
        let others = || {
            list.iter()
                .filter(|&&node| node != from)
                .filter_map(|&node| self.node(node))
        };
        if to.host.is_some() && others().any(|other| other.host == to.host) {
            return Some("another replica is on its machine");
        }
        let given_up = self.node(from);
        match self.input.placement {
            Placement::All => return Some("every node has every partition"),
            Placement::Grouped if given_up.is_none_or(|from| from.group != to.group) => {
                return Some("it is in another group");
            }
            Placement::Zoned => {
                let same = given_up.is_some_and(|from| from.zone == to.zone);
                let most = list.len().div_ceil(self.zones.max(1));
                if !same && others().filter(|other| other.zone == to.zone).count() >= most {
                    return Some("its zone has enough replicas of the partition");
                }
            }
            Placement::Ring | Placement::Grouped => {}
        }
        let has_left = self.left.contains(&(partition, to.node));
        has_left.then_some("the partition left it a short time ago")
    }

    pub(super) fn replace(&mut self, partition: PartitionId, from: NodeId, to: NodeId) {
        let list = &mut self.owners[partition.get() as usize];
        if let Some(place) = list.iter().position(|&node| node == from) {
            list[place] = to;
        }
    }
}
