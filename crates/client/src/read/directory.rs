//! A topology prepared for look-ups, with the health of its nodes.
//!
//! A new one is made with every topology; a node keeps its health as long as its address does not change. Immutable
//! except for health: a request takes one directory and keeps it until it needs a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::cluster::{Topology, TopologyStore};
use fondaco_model::{EVERYWHERE, NodeId, PartitionId, StoreName, is_in_share};

use super::health::{HealthPolicy, NodeHealth};
use super::planner::Turns;

/// How many nodes besides the owners may be asked for a partition of a store that is everywhere.
const OTHERS_MAX: usize = 8;

/// The owners of keys, and the health of nodes.
#[derive(Debug)]
pub struct Directory {
    topology: Arc<Topology>,
    /// In the order of their numbers.
    members: Vec<Member>,
    /// For each partition, the indices of its owners among the members.
    owners: Vec<Box<[u32]>>,
    /// The indices of the members with partitions, if there is a store that is everywhere.
    everyone: Box<[u32]>,
    /// The number of groups.
    groups: usize,
    /// Whether a store says which nodes requests ask.
    has_fan_outs: bool,
    /// The zone of the client.
    zone: Option<Box<str>>,
    /// The queues of round-robin, which are kept from one directory to the next.
    turns: Arc<Turns>,
}

/// A node, from a client's view.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its RESP address: host and port.
    pub address: Arc<str>,
    /// Whether it is in the client's zone.
    pub near: bool,
    /// Whether the cluster sees it as live.
    pub live: bool,
    /// Whether it is taken out of service for a while.
    pub resting: bool,
    /// The index of its group, below [`Directory::groups`]. A node without a group is a group of its own.
    pub group: u32,
    /// The outcomes of its requests.
    pub health: Arc<NodeHealth>,
}

impl Member {
    /// Whether it is expected to answer.
    #[inline]
    pub fn is_well(&self) -> bool {
        self.live && !self.health.is_suspended()
    }
}

impl Directory {
    /// The directory of a topology, for a client in this zone. `former` is the one that it replaces.
    pub fn new(topology: Arc<Topology>, zone: Option<&str>, policy: HealthPolicy, former: Option<&Self>) -> Self {
        let mut members = Vec::with_capacity(topology.nodes.len());
        let (mut groups, mut group_of) = (0, BTreeMap::new());
        for (&id, node) in &topology.nodes {
            let known = former.and_then(|former| former.member(id));
            let known = known.filter(|known| *known.address == *node.resp);
            let mut next_group = || {
                groups += 1;
                groups - 1
            };
            members.push(Member {
                id,
                address: known.map_or_else(|| node.resp.as_str().into(), |known| Arc::clone(&known.address)),
                near: zone == Some(node.zone.as_str()),
                live: node.live,
                resting: node.resting,
                group: match &node.group {
                    Some(name) => *group_of.entry(name.as_str()).or_insert_with(next_group),
                    None => next_group(),
                },
                health: known.map_or_else(|| Arc::new(NodeHealth::new(policy)), |known| Arc::clone(&known.health)),
            });
        }
        let place = |id: &NodeId| members.binary_search_by_key(id, |member| member.id).ok();
        let places = |owners: &Vec<NodeId>| {
            // An owner without an entry is unknown to this client, and cannot be asked.
            owners.iter().filter_map(place).map(|place| place as u32).collect()
        };
        let owners = topology.owners.iter().map(places).collect();
        let is_everywhere = |store: &TopologyStore| store.replicas == EVERYWHERE;
        let everyone = match topology.stores.values().any(is_everywhere) {
            true => topology
                .owning()
                .iter()
                .filter_map(place)
                .map(|place| place as u32)
                .collect(),
            false => Box::default(),
        };
        let turns = former.map(|former| &former.turns);
        let turns = turns.filter(|turns| turns.len() == topology.partitions.get() as usize);
        Self {
            turns: turns.map_or_else(|| Arc::new(Turns::new(topology.partitions)), Arc::clone),
            groups: groups as usize,
            has_fan_outs: topology.stores.values().any(|store| store.fan_out.is_some()),
            topology,
            members,
            owners,
            everyone,
            zone: zone.map(Into::into),
        }
    }

    /// The topology that it was made from.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// All nodes, in the order of their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The number of groups of nodes. A node without a group is a group of its own.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Whether a store says which nodes requests ask that do not say it themselves.
    pub fn has_fan_outs(&self) -> bool {
        self.has_fan_outs
    }

    /// Whether a request of this client whose first key of a store is this one reads the canary of the store.
    pub(super) fn takes_canary(&self, store: &TopologyStore, key: &[u8]) -> bool {
        let canary = store.canary.as_ref();
        canary.is_some_and(|canary| is_in_share(canary.reads.share_of(None, self.zone.as_deref()), key))
    }

    /// The queues of the partitions' nodes.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
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

    /// The same nodes as those of [`Self::replicas`] for a store of which they are simply the first owners, as of most.
    #[inline]
    pub(super) fn first_owners(&self, store: &TopologyStore, partition: PartitionId) -> Option<&[u32]> {
        if store.replicas == EVERYWHERE || !store.late.is_empty() {
            return None;
        }
        let owners = self.owners.get(partition.get() as usize)?;
        Some(&owners[..owners.len().min(store.replicas as usize)])
    }

    /// The indices in [`Self::members`] of the nodes that have a partition of a store, in the order of preference. Like
    /// [`Topology::replicas`], but without a look-up for each node. Of a store that is everywhere, some other live nodes that have it
    /// follow, for each partition others.
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
        let (after, before) = match store.replicas {
            EVERYWHERE => {
                let begin = partition.get() as usize % self.everyone.len().max(1);
                (&self.everyone[begin..], &self.everyone[..begin])
            }
            _ => (&[][..], &[][..]),
        };
        let has_it = |place: usize| store.late.is_empty() || !store.late.contains(&self.members[place].id);
        let others = after.iter().chain(before);
        let others = others.filter(move |&&place| {
            let at = place as usize;
            self.members[at].live && has_it(at) && !owners.contains(&place)
        });
        let holders = owners
            .iter()
            .take(store.replicas as usize)
            .chain(others.take(OTHERS_MAX));
        let holders = holders.map(|&place| place as usize);
        holders.filter(move |&place| has_it(place))
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::PartitionCount;
    use fondaco_model::cluster::TopologyNode;

    use super::*;

    fn id(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn topology(addresses: &[(u32, &str)]) -> Topology {
        let node = |&(number, address): &(u32, &str)| {
            let node = TopologyNode::live(address, format!("zone-{number}"));
            (id(number), node)
        };
        Topology::first(
            PartitionCount::try_from(2).unwrap(),
            vec![vec![id(3), id(1), id(2)], vec![id(9), id(2)]],
            addresses.iter().map(node),
            [("s".parse().unwrap(), TopologyStore::batch(2))],
        )
    }

    fn directory(addresses: &[(u32, &str)], former: Option<&Directory>) -> Directory {
        let topology = Arc::new(topology(addresses));
        Directory::new(topology, Some("zone-2"), HealthPolicy::default(), former)
    }

    const ALL: [(u32, &str); 3] = [(1, "a"), (2, "b"), (3, "c")];

    #[test]
    fn replicas_are_the_first_known_owners_that_are_not_late() {
        let mut directory = directory(&ALL, None);
        let replicas = |directory: &Directory, partition| {
            let (_, store) = directory.store("s").unwrap();
            let places = directory.replicas(store, PartitionId::new(partition));
            places
                .map(|place| directory.members()[place].id.get())
                .collect::<Vec<_>>()
        };
        assert_eq!(replicas(&directory, 0), [3, 1]);
        assert_eq!(replicas(&directory, 1), [2], "node 9 is unknown");
        assert_eq!(replicas(&directory, 2), Vec::<u32>::new(), "there is no such partition");
        let mut topology = Topology::clone(directory.topology());
        topology.stores.get_mut("s").unwrap().late.insert(id(3));
        directory.topology = Arc::new(topology);
        assert_eq!(replicas(&directory, 0), [1], "the next owner does not hold it");
    }

    #[test]
    fn of_a_store_everywhere_other_nodes_follow_the_owners() {
        let mut topology = topology(&ALL);
        topology.stores.get_mut("s").unwrap().replicas = EVERYWHERE;
        let directory = Directory::new(Arc::new(topology), None, HealthPolicy::default(), None);
        let (_, store) = directory.store("s").unwrap();
        let replicas = |partition| -> Vec<u32> {
            let places = directory.replicas(store, PartitionId::new(partition));
            places.map(|place| directory.members()[place].id.get()).collect()
        };
        assert_eq!(replicas(0), [3, 1, 2]);
        assert_eq!(replicas(1), [2, 3, 1], "each partition begins at another node");
    }

    #[test]
    fn the_only_node_with_a_store_everywhere_is_found() {
        let mut topology = topology(&(1..=30).map(|number| (number, "a")).collect::<Vec<_>>());
        topology.owners = vec![(1..=30).map(id).collect(), vec![id(1)]];
        for (id, node) in &mut topology.nodes {
            node.live = id.get() % 2 == 1;
        }
        let store = topology.stores.get_mut("s").unwrap();
        store.replicas = EVERYWHERE;
        store.late = (1..=30).filter(|&number| number != 29).map(id).collect();
        let directory = Directory::new(Arc::new(topology), None, HealthPolicy::default(), None);
        let (_, store) = directory.store("s").unwrap();
        let places = directory.replicas(store, PartitionId::new(1));
        let found: Vec<NodeId> = places.map(|place| directory.members()[place].id).collect();
        assert_eq!(found, [id(29)]);
    }

    #[test]
    fn a_node_keeps_its_health_until_it_moves() {
        let first = directory(&ALL, None);
        for member in first.members() {
            assert_eq!(member.near, member.id == id(2));
            member.health.unreachable(1);
        }
        let next = directory(&[(1, "a"), (2, "elsewhere"), (4, "d")], Some(&first));
        let well: Vec<bool> = next.members().iter().map(Member::is_well).collect();
        assert_eq!(well, [false, true, true]);
    }
}
