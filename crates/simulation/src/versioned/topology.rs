//! Who is there, and what coordinators are told of it.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_client::quorum::Home;
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Identity, NodeId, PartitionCount, StoreKind, StoreName};

use super::coordinator::Coordinator;
use super::world::World;

impl World {
    /// A coordinator that takes all nodes to be there.
    pub(super) fn new_coordinator(&self, process: usize) -> Coordinator {
        let zone = Some(zone(process, self.scenario.zones));
        let node = (process < self.scenario.nodes).then(|| id(process));
        let all = (0..self.scenario.nodes).map(id).collect();
        Coordinator::new(Home { node, zone }, self.topology(&all))
    }

    /// The owners of a partition, in the order of the routing table.
    pub(super) fn owners(&self, partition: u32) -> Vec<NodeId> {
        let owner = |place: u32| id((partition + place) as usize % self.scenario.nodes);
        (0..self.scenario.replicas).map(owner).collect()
    }

    /// The topology in which these nodes are live.
    pub(super) fn topology(&self, live: &BTreeSet<NodeId>) -> Topology {
        let node = |place: usize| {
            let node = TopologyNode {
                revision: 1,
                resp: format!("10.0.0.{}:6500", place + 1),
                http: String::new(),
                zone: zone(place, self.scenario.zones),
                group: None,
                live: live.contains(&id(place)),
            };
            (id(place), node)
        };
        let store = TopologyStore {
            revision: 1,
            id: 1,
            kind: StoreKind::Versioned,
            current: None,
            records: 0,
            replicas: self.scenario.replicas,
            late: BTreeSet::new(),
            read_keys_per_second: None,
            versioned: Some(self.scenario.told()),
        };
        Topology {
            cluster: Identity::of(7),
            revision: 1,
            epoch: 1,
            partitions: self.store.partitions,
            owners: (0..self.scenario.partitions)
                .map(|number| self.owners(number))
                .collect(),
            next: BTreeMap::new(),
            nodes: (0..self.scenario.nodes).map(node).collect(),
            routers: 0,
            stores: BTreeMap::from([(self.store.name.clone(), store)]),
        }
    }
}

/// The node that a process is.
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

/// How many partitions there are.
pub(super) fn partitions(count: u32) -> PartitionCount {
    // A scenario names a power of two.
    PartitionCount::try_from(count.next_power_of_two()).unwrap_or_else(|error| unreachable!("{error}"))
}
