//! The live nodes, and the topologies that coordinators receive.

use std::collections::BTreeSet;
use std::sync::Arc;

use fondaco_client::quorum::Home;
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Member, NodeId, PartitionCount, Placement, RoutingTable, StoreName, place};

use super::coordinator::Coordinator;
use super::scenario::Scenario;
use super::world::World;

impl World {
    /// A coordinator that assumes that all nodes are live. The coordinator of a node begins with the node's remembered
    /// table.
    pub(super) fn new_coordinator(&self, process: usize) -> Coordinator {
        let replica = self.processes.get(process).and_then(|known| known.replica.as_ref());
        let table = replica.map_or(&self.table, |replica| &replica.table);
        let zone = Some(zone(process, self.scenario.zones));
        let node = (process < self.scenario.nodes).then(|| id(process));
        let all = (0..self.scenario.nodes).map(id).collect();
        Coordinator::new(Home { node, zone }, self.topology(&all, table), Arc::clone(table))
    }

    /// The topology with these live nodes and this routing table.
    pub(super) fn topology(&self, live: &BTreeSet<NodeId>, table: &RoutingTable) -> Topology {
        let node = |place: usize| {
            let node = TopologyNode {
                group: member(place, &self.scenario).group,
                live: live.contains(&id(place)),
                ..TopologyNode::live(format!("10.0.0.{}:6500", place + 1), zone(place, self.scenario.zones))
            };
            (id(place), node)
        };
        let store = TopologyStore::versioned(self.scenario.replicas, self.scenario.told());
        Topology {
            revision: table.epoch(),
            epoch: table.epoch(),
            joint: table
                .changes()
                .map(|(partition, joint)| (partition, joint.to_vec()))
                .collect(),
            counts: table.counts().clone(),
            ..Topology::first(
                table.partitions(),
                table.all_owners().to_vec(),
                (0..self.scenario.nodes).map(node),
                [(self.store.name.clone(), store)],
            )
        }
        .counted()
    }
}

/// The first routing table.
pub(super) fn first_table(scenario: &Scenario, partitions: PartitionCount) -> RoutingTable {
    let members: Vec<Member> = (0..scenario.nodes).map(|process| member(process, scenario)).collect();
    let lists = place(scenario.placement, partitions, scenario.replicas, &members);
    // There are at least as many nodes as replicas, and at least as many as groups.
    let lists = lists.unwrap_or_else(|error| unreachable!("{error}"));
    RoutingTable::first(partitions, lists).unwrap_or_else(|error| unreachable!("{error}"))
}

/// A node, with the properties that placement uses.
pub(super) fn member(process: usize, scenario: &Scenario) -> Member {
    Member {
        id: id(process),
        zone: zone(process, scenario.zones),
        group: (scenario.placement == Placement::Grouped)
            .then(|| format!("group-{}", process % scenario.replicas as usize)),
        host: None,
        weight: 1,
    }
}

/// The node of a process.
pub(super) fn id(process: usize) -> NodeId {
    NodeId::new(process as u32 + 1).unwrap_or(NodeId::FIRST)
}

fn zone(process: usize, zones: usize) -> String {
    format!("zone-{}", process % zones)
}

/// The name of the store.
pub(super) fn name() -> StoreName {
    "versioned".parse().unwrap_or_else(|error| unreachable!("{error}"))
}

/// The number of partitions.
pub(super) fn partitions(count: u32) -> PartitionCount {
    // The number in a scenario is a power of two.
    PartitionCount::try_from(count.next_power_of_two()).unwrap_or_else(|error| unreachable!("{error}"))
}
