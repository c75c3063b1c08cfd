//! The cluster as this process sees it at one moment, and the role of this process in it.
//!
//! It is an immutable value, published together with the [`Catalog`](crate::Catalog), so that a request sees one state
//! of both, and replaced as a whole when the cluster changes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use fondaco_model::cluster::{Topology, TopologyNode};
use fondaco_model::{Identity, NodeId, PartitionId, PartitionSet, Slot, StoreName};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::access::User;
use crate::schemas::StoreSchemas;
use crate::streams::StoreStreams;

/// The cluster, and the role of this process in it.
#[derive(Debug)]
pub struct Membership {
    topology: Arc<Topology>,
    member: Member,
    schemas: StoreSchemas,
    streams: StoreStreams,
    /// The zone of a router.
    zone: Option<String>,
    /// The reply to `FONDACO.TOPOLOGY` for clients that may read all stores.
    whole: Arc<Description>,
    /// The replies for other users, by their rights. Users are configured, so their number is bounded.
    parts: Mutex<HashMap<Patterns, Arc<Description>>>,
    /// Computed at its first use.
    without_quorum: OnceLock<PartitionSet>,
}

/// The stores that a user may read, and those that it may write.
type Patterns = (Vec<String>, Vec<String>);

/// A reply to `FONDACO.TOPOLOGY`.
#[derive(Debug)]
pub struct Description {
    /// Differs whenever the topology differs.
    pub tag: String,
    /// The topology, as JSON.
    pub json: String,
}

/// The role of a process in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A node, which holds partitions.
    Node(NodeId),
    /// A router, which holds no partitions and forwards every request.
    Router(Identity),
}

impl Membership {
    /// This process as a member of a cluster.
    pub fn new(topology: Arc<Topology>, member: Member) -> Self {
        Self {
            whole: Arc::new(Description::of(&topology)),
            parts: Mutex::default(),
            topology,
            member,
            schemas: StoreSchemas::default(),
            streams: StoreStreams::default(),
            zone: None,
            without_quorum: OnceLock::new(),
        }
    }

    /// The same, in a cluster with these schemas.
    #[must_use]
    pub fn with_schemas(self, schemas: StoreSchemas) -> Self {
        Self { schemas, ..self }
    }

    /// The same, with these streams of hybrid stores.
    #[must_use]
    pub fn with_streams(self, streams: StoreStreams) -> Self {
        Self { streams, ..self }
    }

    /// The streams of its hybrid stores.
    pub fn streams(&self) -> &StoreStreams {
        &self.streams
    }

    /// The same, of a router in this zone. The topology says the zones of nodes.
    #[must_use]
    pub fn in_zone(self, zone: Option<String>) -> Self {
        Self { zone, ..self }
    }

    /// The node that this process is, if it is one.
    pub fn node(&self) -> Option<NodeId> {
        match self.member {
            Member::Node(node) => Some(node),
            Member::Router(_) => None,
        }
    }

    /// The zone of this process, if it is known.
    pub fn zone(&self) -> Option<&str> {
        match self.node() {
            Some(node) => self.topology.nodes.get(&node).map(|node| &*node.zone),
            None => self.zone.as_deref(),
        }
    }

    /// The schemas of its stores.
    pub fn schemas(&self) -> &StoreSchemas {
        &self.schemas
    }

    /// The cluster.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The role of this process.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Whether this process is a router.
    #[inline]
    pub fn is_router(&self) -> bool {
        matches!(self.member, Member::Router(_))
    }

    /// Whether this process is that node.
    pub fn is(&self, node: NodeId) -> bool {
        self.member == Member::Node(node)
    }

    /// The topology as shown to this user: all nodes, with their RESP addresses, and the stores that the user may read.
    /// Without a user, or for one that may read all stores, the whole topology.
    pub fn description(&self, user: Option<&User>) -> Arc<Description> {
        let Some(user) = user.filter(|user| self.topology.stores.keys().any(|store| !user.may_read(store))) else {
            return Arc::clone(&self.whole);
        };
        let patterns = (user.stores.clone(), user.writes.clone());
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(&patterns) {
            return Arc::clone(part);
        }
        let mut topology = Topology::clone(&self.topology);
        topology.stores.retain(|store, _| user.may_read(store));
        for node in topology.nodes.values_mut() {
            node.http.clear();
        }
        let part = Arc::new(Description::of(&topology));
        parts.insert(patterns, Arc::clone(&part));
        part
    }

    /// The node, other than this one, that a client should ask for a slot of a store: the first live replica; one that
    /// is suspended here only as a last resort.
    pub fn other_owner(&self, store: &StoreName, slot: Slot, suspended: &[NodeId]) -> Option<&TopologyNode> {
        let topology = &*self.topology;
        let store = topology.stores.get(store)?;
        let replicas = topology.replicas(store, topology.partitions.partition_of(slot));
        replicas
            .filter(|&node| !self.is(node))
            .filter_map(|node| Some((node, topology.nodes.get(&node)?)))
            .filter(|(_, node)| node.live)
            .min_by_key(|(id, node)| (suspended.contains(id), node.resting))
            .map(|(_, node)| node)
    }

    /// The live owners of a partition, in order of preference; those that are out of service for a while come last.
    pub fn live_owners(&self, partition: PartitionId) -> impl Iterator<Item = (NodeId, &TopologyNode)> {
        let owners = self.topology.owners.get(partition.get() as usize);
        let known = |&node: &NodeId| Some((node, self.topology.nodes.get(&node)?));
        let live = owners
            .into_iter()
            .flatten()
            .filter_map(known)
            .filter(|(_, node)| node.live);
        let resting = live.clone().filter(|(_, node)| node.resting);
        live.filter(|(_, node)| !node.resting).chain(resting)
    }

    /// The partitions that cannot be read or written in some store, because too few of their replicas are live.
    pub fn without_quorum(&self) -> &PartitionSet {
        self.without_quorum.get_or_init(|| {
            let lost = self.topology.lost_quorums().into_iter();
            lost.fold(PartitionSet::EMPTY, |all, (_, lost)| {
                all.with(&lost.reads).with(&lost.writes)
            })
        })
    }

    /// How many partitions this process is shown as the leader of, to clients that use whole slots.
    pub fn led(&self) -> usize {
        let partitions = self.topology.partitions.partitions();
        partitions.filter(|&partition| self.leads(partition)).count()
    }

    /// Whether this process is shown as the leader of a partition to clients that use whole slots: it is the first live
    /// owner.
    pub fn leads(&self, partition: PartitionId) -> bool {
        self.live_owners(partition)
            .next()
            .is_some_and(|(node, _)| self.is(node))
    }
}

impl Description {
    fn of(topology: &Topology) -> Self {
        // The maps have text keys and plain values: serialising them into memory cannot fail.
        let json = serde_json::to_string(topology).expect("a topology is plain data");
        let digest = Sha256::digest(json.as_bytes());
        let tag = hex::encode(&digest[..8]);
        Self { tag, json }
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::PartitionCount;
    use fondaco_model::cluster::TopologyStore;

    use super::*;

    /// A cluster of these nodes, numbered from 1, with one store, `s`. Partitions are assigned round robin, each to a
    /// node and the next one.
    fn topology(addresses: &[&str], partitions: u32) -> Topology {
        let ids: Vec<NodeId> = (1..).take(addresses.len()).map(|n| NodeId::new(n).unwrap()).collect();
        let node = |(&id, &address): (&NodeId, &&str)| {
            let node = TopologyNode {
                http: address.into(),
                ..TopologyNode::live(address, "a")
            };
            (id, node)
        };
        let owners = |partition: u32| {
            let from = ids.iter().copied().cycle().skip(partition as usize % ids.len());
            from.take(ids.len().min(2)).collect()
        };
        Topology::first(
            PartitionCount::try_from(partitions).unwrap(),
            (0..partitions).map(owners).collect(),
            ids.iter().zip(addresses).map(node),
            [("s".parse().unwrap(), TopologyStore::batch(2))],
        )
    }

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn another_topology_has_another_tag() {
        let tag = |topology| {
            let membership = Membership::new(Arc::new(topology), Member::Node(node(1)));
            membership.description(None).tag.clone()
        };
        let mut other = topology(&["a:1", "b:2"], 4);
        assert_eq!(tag(topology(&["a:1", "b:2"], 4)), tag(other.clone()));
        other.epoch += 1;
        assert_ne!(tag(topology(&["a:1", "b:2"], 4)), tag(other));
    }

    #[test]
    fn a_user_sees_only_the_stores_that_it_may_read() {
        let mut topology = topology(&["a:1", "b:2"], 4);
        let store = topology.stores.values().next().unwrap().clone();
        topology.stores.insert("secret".parse().unwrap(), store);
        let membership = Membership::new(Arc::new(topology.clone()), Member::Node(node(1)));
        let told = |stores: &[&str], writes: &[&str]| {
            let patterns = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            let user = User {
                name: "user".into(),
                password: crate::access::Password::Digest(crate::access::PasswordDigest::of(b"x")),
                stores: patterns(stores),
                writes: patterns(writes),
                admin: false,
            };
            membership.description(Some(&user))
        };
        let parsed = |description: &Description| serde_json::from_str::<Topology>(&description.json).unwrap();
        let names = |topology: &Topology| topology.stores.keys().map(ToString::to_string).collect::<Vec<_>>();

        let reader = told(&["s"], &[]);
        assert!(!reader.json.contains("secret"));
        let told_reader = parsed(&reader);
        assert_eq!(names(&told_reader), ["s"]);
        assert_eq!((told_reader.nodes.len(), &told_reader.owners), (2, &topology.owners));
        assert!(
            told_reader
                .nodes
                .values()
                .all(|node| node.http.is_empty() && !node.resp.is_empty())
        );
        assert_eq!(names(&parsed(&told(&[], &["sec*"]))), ["secret"]);
        assert!(names(&parsed(&told(&[], &[]))).is_empty());
        assert_eq!(parsed(&told(&["*"], &[])), topology);
        assert_ne!(reader.tag, membership.description(None).tag);
        assert_eq!(reader.tag, told(&["s"], &[]).tag);
    }

    #[test]
    fn redirects_go_to_live_nodes_that_are_not_late() {
        let mut topology = topology(&["a:1", "b:2", "c:3"], 1);
        topology.owners[0] = [1, 2, 3].map(node).to_vec();
        let store: StoreName = "s".parse().unwrap();
        topology.stores.get_mut(&store).unwrap().replicas = 3;
        let slot = Slot::new(0).unwrap();
        let led_to = |topology: &Topology, me| {
            let membership = Membership::new(Arc::new(topology.clone()), Member::Node(node(me)));
            let found = membership.other_owner(&store, slot, &[node(2)]);
            found.map(|node| node.resp.clone())
        };
        assert_eq!(led_to(&topology, 3).as_deref(), Some("a:1"));
        // The second is suspended.
        assert_eq!(led_to(&topology, 1).as_deref(), Some("c:3"));
        topology.nodes.get_mut(&node(1)).unwrap().live = false;
        assert_eq!(led_to(&topology, 3).as_deref(), Some("b:2"));
        topology.stores.get_mut(&store).unwrap().late.insert(node(2));
        assert_eq!(led_to(&topology, 3), None);
        assert_eq!(led_to(&topology, 2).as_deref(), Some("c:3"));
    }

    #[test]
    fn the_first_live_owner_leads() {
        let mut topology = topology(&["a:1", "b:2"], 2);
        let leads = |topology: &Topology, me, partition| {
            let membership = Membership::new(Arc::new(topology.clone()), Member::Node(node(me)));
            membership.leads(PartitionId::new(partition))
        };
        assert!(leads(&topology, 1, 0) && !leads(&topology, 2, 0));
        topology.nodes.get_mut(&node(1)).unwrap().live = false;
        assert!(!leads(&topology, 1, 0) && leads(&topology, 2, 0));
    }
}
