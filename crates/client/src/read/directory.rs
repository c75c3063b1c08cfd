//! A topology made ready for look-ups, with what was learnt of its nodes.
//!
//! Made anew with every topology; nodes keep their health from one to the next as long as their address
//! stays. Immutable but for that health: a request takes one and keeps it until it must have a newer.

use std::sync::Arc;

use fondaco_model::cluster::{Topology, TopologyStore};
use fondaco_model::{NodeId, PartitionId, StoreName};

use super::health::{HealthPolicy, NodeHealth};

/// Where keys are, and how those who have them fare.
#[derive(Debug)]
pub struct Directory {
    topology: Arc<Topology>,
    /// In the order of their numbers.
    members: Vec<Member>,
    /// For each partition the places of its owners among the members.
    owners: Vec<Box<[u32]>>,
}

/// A node, for one client.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Where it serves RESP: host and port.
    pub address: Arc<str>,
    /// Whether it stands in the client's zone.
    pub near: bool,
    /// Whether the cluster saw it.
    pub live: bool,
    /// How its requests fare.
    pub health: Arc<NodeHealth>,
}

impl Member {
    /// Whether it may be expected to answer.
    #[inline]
    pub fn is_well(&self) -> bool {
        self.live && !self.health.is_suspended()
    }
}

impl Directory {
    /// The directory of a topology, for a client in this zone. `former` is the one that it replaces.
    pub fn new(topology: Arc<Topology>, zone: Option<&str>, policy: HealthPolicy, former: Option<&Self>) -> Self {
        let mut members = Vec::with_capacity(topology.nodes.len());
        for (&id, node) in &topology.nodes {
            let known = former.and_then(|former| former.member(id));
            let known = known.filter(|known| *known.address == *node.resp);
            members.push(Member {
                id,
                address: known.map_or_else(|| node.resp.as_str().into(), |known| Arc::clone(&known.address)),
                near: zone == Some(node.zone.as_str()),
                live: node.live,
                health: known.map_or_else(|| Arc::new(NodeHealth::new(policy)), |known| Arc::clone(&known.health)),
            });
        }
        let place = |id: &NodeId| members.binary_search_by_key(id, |member| member.id).ok();
        let places = |owners: &Vec<NodeId>| {
            // An owner without an entry is one that this client has not heard of: nobody can ask it.
            owners.iter().filter_map(place).map(|place| place as u32).collect()
        };
        let owners = topology.owners.iter().map(places).collect();
        Self {
            topology,
            members,
            owners,
        }
    }

    /// The topology that it was made of.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// All nodes, in the order of their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The node with this number.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        let place = self.members.binary_search_by_key(&id, |member| member.id).ok()?;
        Some(&self.members[place])
    }

    /// The store with this name.
    #[inline]
    pub fn store(&self, name: &str) -> Option<(&StoreName, &TopologyStore)> {
        self.topology.stores.get_key_value(name)
    }

    /// The places among [`Self::members`] of the nodes that hold a partition of a store, in the order of
    /// preference. As [`Topology::replicas`], without a look-up for each.
    #[inline]
    pub fn replicas<'a>(
        &'a self,
        store: &'a TopologyStore,
        partition: PartitionId,
    ) -> impl Iterator<Item = usize> + 'a {
        let owners = self
            .owners
            .get(partition.get() as usize)
            .map_or(&[][..], |owners| &**owners);
        let holders = owners.iter().take(store.replicas as usize).map(|&place| place as usize);
        holders.filter(|&place| store.late.is_empty() || !store.late.contains(&self.members[place].id))
    }
}
