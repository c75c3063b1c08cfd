//! The facts about a cluster that clients need: the nodes of each key, and the current versions.
//!
//! Each part has the revision of its latest write. So a process that receives a topology from another knows which parts
//! are newer than its own, and never goes back ([`Topology::joined`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::record::NodeMark;
use super::view::ClusterView;
use crate::canary::ReadCanary;
use crate::definition::StoreKind;
use crate::fan_out::StoreFanOut;
use crate::key_type::KeyType;
use crate::name::StoreName;
use crate::node::{Identity, NodeId};
use crate::partition::{PartitionCount, PartitionId};
use crate::protocol;
use crate::routing::Counts;
#[cfg(doc)]
use crate::routing::EVERYWHERE;
use crate::value_type::ValueType;
use crate::version::VersionNumber;
use crate::versioned::{Quorums, VersionedSettings};

/// The position of the number of adoptions in a revision: above ZooKeeper's bits, which are an epoch of 20 bits in
/// practice, and a counter of 32 bits.
const ADOPTIONS_SHIFT: u32 = 52;

/// How many adoptions fit into a revision.
const ADOPTIONS_MAX: u32 = (1 << (u64::BITS - ADOPTIONS_SHIFT)) - 1;

/// The nodes of keys, at one moment. It may be old: nodes then say so, and the client fetches a newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The identity of its cluster.
    pub cluster: Identity,
    /// The revision of its latest write.
    pub revision: u64,
    /// The epoch of the routing table.
    pub epoch: u64,
    /// The number of partitions.
    pub partitions: PartitionCount,
    /// The owners of each partition, in the order of preference.
    pub owners: Vec<Vec<NodeId>>,
    /// For partitions whose owners change under the plan under way, the other nodes that take writes: the next owners,
    /// or, after the switch, the former ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joint: BTreeMap<PartitionId, Vec<NodeId>>,
    /// The quorums of versioned stores whose number of replicas has changed or is changing, by the numbers of the stores.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<u16, Counts>,
    /// All nodes.
    pub nodes: BTreeMap<NodeId, TopologyNode>,
    /// The RESP addresses of the live routers, sorted. They divide quotas, and [keys](Self::router_for).
    #[serde(default)]
    pub routers: Vec<String>,
    /// The [protocol](ClusterView::protocol) in force: requests are written in it.
    #[serde(default = "protocol::first", skip_serializing_if = "protocol::is_first")]
    pub protocol: u32,
    /// All stores.
    pub stores: BTreeMap<StoreName, TopologyStore>,
}

/// A node, for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyNode {
    /// The revision of its record.
    pub revision: u64,
    /// Its RESP address: host and port.
    pub resp: String,
    /// Its HTTP address: host and port.
    pub http: String,
    /// Its zone.
    pub zone: String,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Whether it was live when this topology was made.
    pub live: bool,
    /// Whether it is taken out of service for a while: it is asked only where no other node can answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resting: bool,
}

/// A store, for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyStore {
    /// The revision of its record.
    pub revision: u64,
    /// The number of the store.
    pub id: u16,
    /// Its kind.
    pub kind: StoreKind,
    /// The version to read; `None` before the first was swapped in.
    pub current: Option<VersionNumber>,
    /// The version that answers some reads in place of the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Box<ReadCanary>>,
    /// How many records the current version has, according to its manifest.
    pub records: u64,
    /// How many of a partition's owners hold it: the first ones; or [`EVERYWHERE`].
    pub replicas: u32,
    /// Nodes that do not have the current version yet: they must not be asked.
    pub late: BTreeSet<NodeId>,
    /// How many keys a second may be read through all routers, and through all nodes.
    pub read_keys_per_second: Option<u64>,
    /// The fan-out of requests that name none themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<StoreFanOut>,
    /// The type of its values.
    #[serde(default, skip_serializing_if = "ValueType::is_bytes")]
    pub value_type: ValueType,
    /// The type of its keys.
    #[serde(default, skip_serializing_if = "KeyType::is_bytes")]
    pub key_type: KeyType,
    /// The settings of a versioned store; `None` for others.
    pub versioned: Option<VersionedSettings>,
}

impl TopologyNode {
    /// A live node, without an HTTP address and a group.
    pub fn live(resp: impl Into<String>, zone: impl Into<String>) -> Self {
        Self {
            revision: 1,
            resp: resp.into(),
            http: String::new(),
            zone: zone.into(),
            group: None,
            live: true,
            resting: false,
        }
    }
}

impl TopologyStore {
    /// The first store, a batch store, at its first version.
    pub fn batch(replicas: u32) -> Self {
        Self {
            revision: 1,
            id: 1,
            kind: StoreKind::Batch,
            current: Some(VersionNumber::FIRST),
            canary: None,
            records: 0,
            replicas,
            late: BTreeSet::new(),
            read_keys_per_second: None,
            fan_out: None,
            value_type: ValueType::Bytes,
            key_type: KeyType::default(),
            versioned: None,
        }
    }

    /// The first store, a versioned one.
    pub fn versioned(replicas: u32, settings: VersionedSettings) -> Self {
        Self {
            kind: StoreKind::Versioned,
            current: None,
            versioned: Some(settings),
            ..Self::batch(replicas)
        }
    }
}

impl Topology {
    /// The first topology of a cluster that exists only for a test or a measurement, without routers.
    pub fn first(
        partitions: PartitionCount,
        owners: Vec<Vec<NodeId>>,
        nodes: impl IntoIterator<Item = (NodeId, TopologyNode)>,
        stores: impl IntoIterator<Item = (StoreName, TopologyStore)>,
    ) -> Self {
        Self {
            cluster: Identity::of(7),
            revision: 1,
            epoch: 1,
            partitions,
            owners,
            joint: BTreeMap::new(),
            counts: BTreeMap::new(),
            nodes: nodes.into_iter().collect(),
            routers: Vec::new(),
            protocol: protocol::first(),
            stores: stores.into_iter().collect(),
        }
    }

    /// The topology of a cluster; `None` before it has a routing table.
    pub fn of(view: &ClusterView) -> Option<Self> {
        let cluster = view.cluster.as_ref()?;
        let routing = view.routing.as_ref()?;
        let table = &routing.record;
        // After an adoption, revisions may start again from a low number: the adopted entries still count as later.
        let adoptions = u64::from(cluster.adoptions.min(ADOPTIONS_MAX)) << ADOPTIONS_SHIFT;
        let later = |revision: u64| adoptions.saturating_add(revision);
        let node = |(&id, node): (&NodeId, &super::view::Revised<super::record::NodeRecord>)| {
            let (revision, record) = (later(node.revision), &node.record);
            let node = TopologyNode {
                revision,
                resp: record.resp.clone(),
                http: record.http.clone(),
                zone: record.zone.clone(),
                group: record.group.clone(),
                live: view.is_live(id),
                resting: record.mark == Some(NodeMark::Maintenance),
            };
            (id, node)
        };
        let store = |(name, store): (&StoreName, &super::view::Revised<super::record::StoreRecord>)| {
            let (revision, record) = (later(store.revision), &store.record);
            let current = record
                .versions
                .current()
                .and_then(|version| record.details.get(&version));
            let store = TopologyStore {
                revision,
                id: record.id,
                kind: record.definition.kind,
                current: record.versions.current(),
                canary: record.canary().and_then(|canary| {
                    let (version, reads) = (record.pushing()?, canary.terms.reads.clone());
                    Some(Box::new(ReadCanary { version, reads }))
                }),
                records: current.map_or(0, |detail| detail.records),
                replicas: view.replicas(record) as u32,
                late: record.late.clone(),
                read_keys_per_second: record.definition.read_keys_per_second,
                fan_out: record.definition.fan_out,
                value_type: record.definition.value_type,
                key_type: record.definition.key_type.clone(),
                versioned: view.settings(record),
            };
            (name.clone(), store)
        };
        let revisions = [
            Some(routing.revision),
            view.numbers.as_ref().map(|numbers| numbers.revision),
            view.nodes.values().map(|node| node.revision).max(),
            view.stores.values().map(|store| store.revision).max(),
        ];
        let routers: BTreeSet<String> = view.routers.values().map(|router| router.resp.clone()).collect();
        Some(Self {
            cluster: cluster.identity.clone(),
            revision: later(revisions.into_iter().flatten().max().unwrap_or(routing.revision)),
            epoch: table.epoch(),
            partitions: table.partitions(),
            owners: table.all_owners().to_vec(),
            joint: table
                .changes()
                .map(|(partition, joint)| (partition, joint.to_vec()))
                .collect(),
            counts: table.counts().clone(),
            nodes: view.nodes.iter().map(node).collect(),
            routers: routers.into_iter().collect(),
            protocol: view.protocol(),
            stores: view.stores.iter().map(store).collect(),
        })
    }

    /// The router that is asked for a key, a vertex, or whatever a router may have in its caches; `None` without a live router.
    /// So each router caches a part of all, and not the same as the others.
    ///
    /// By rendezvous hashing: the router with the highest XXH3 (64 bits, no seed) of the key, a zero byte and its address. When one
    /// goes, only its own keys move, and they spread over the others.
    pub fn router_for(&self, key: &[u8]) -> Option<&str> {
        let weight = |address: &&String| xxh3_64(&[key, &[0], address.as_bytes()].concat());
        self.routers.iter().max_by_key(weight).map(String::as_str)
    }

    /// Merges two topologies: the routing table, each node and each store are taken from the side with their later
    /// write. The set of stores, and of live nodes and routers, and the protocol in force, are taken from the side with
    /// the latest write of all, or else from `received`. A topology of another cluster is ignored.
    pub fn joined(&self, received: &Self) -> Self {
        if received.cluster != self.cluster {
            return self.clone();
        }
        let (former, mut joined) = match received.revision >= self.revision {
            true => (self, received.clone()),
            false => (received, self.clone()),
        };
        if former.epoch > joined.epoch {
            joined.epoch = former.epoch;
            joined.owners.clone_from(&former.owners);
            joined.joint.clone_from(&former.joint);
            joined.counts.clone_from(&former.counts);
        }
        for (&id, node) in &former.nodes {
            // The record of a node is never deleted.
            let known = joined.nodes.entry(id).or_insert_with(|| node.clone());
            if node.revision > known.revision {
                let live = known.live;
                *known = TopologyNode { live, ..node.clone() };
            }
        }
        for (name, known) in &mut joined.stores {
            match former.stores.get(name) {
                Some(store) if store.revision > known.revision => known.clone_from(store),
                Some(_) | None => {}
            }
        }
        joined.counted()
    }

    /// The topology with the quorums that the routing table gives stores, whatever their records say: those are written
    /// separately.
    #[must_use]
    pub fn counted(mut self) -> Self {
        for store in self.stores.values_mut() {
            if let (Some(settings), Some(counts)) = (&mut store.versioned, self.counts.get(&store.id)) {
                *settings = settings.with_quorums(&counts.now);
                store.replicas = counts.now.replicas;
            }
        }
        self
    }

    /// The nodes that have a partition: those that have a store which is [`EVERYWHERE`].
    pub fn owning(&self) -> BTreeSet<NodeId> {
        self.owners.iter().flatten().copied().collect()
    }

    /// The owners that may be asked for a partition of a store, in the order of preference, whether or not they are
    /// live.
    pub fn replicas<'a>(
        &'a self,
        store: &'a TopologyStore,
        partition: PartitionId,
    ) -> impl Iterator<Item = NodeId> + 'a {
        holders(store, store.replicas, self.owners.get(partition.get() as usize))
    }

    /// The quorums of the additional nodes that take the writes of a versioned store under a plan: those of the owners, unless the
    /// store's number of replicas changes.
    pub fn joint_quorums(&self, store: &TopologyStore) -> Option<Quorums> {
        let now = store.versioned?.quorums(store.replicas);
        let counts = self.counts.get(&store.id);
        Some(counts.and_then(|counts| counts.joint).unwrap_or(now))
    }

    /// The additional nodes that take the writes of a partition of a store, since a plan under way changes its owners;
    /// empty otherwise.
    pub fn joint_replicas<'a>(
        &'a self,
        store: &'a TopologyStore,
        partition: PartitionId,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let copies = self
            .joint_quorums(store)
            .map_or(store.replicas, |quorums| quorums.replicas);
        holders(store, copies, self.joint.get(&partition))
    }
}

/// The nodes of a list that have a store and may be asked for it.
fn holders<'a>(
    store: &'a TopologyStore,
    copies: u32,
    nodes: Option<&'a Vec<NodeId>>,
) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = nodes.map_or(&[][..], Vec::as_slice).iter().copied();
    let holders = nodes.take(copies as usize);
    holders.filter(|node| !store.late.contains(node))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A history of a cluster: at each revision, one thing is written.
    struct History(Vec<Topology>);

    impl History {
        fn of(writes: &[u8]) -> Self {
            let partitions = PartitionCount::try_from(1).unwrap();
            let mut states = vec![Topology::first(partitions, vec![vec![NodeId::FIRST]], [], [])];
            for &write in writes {
                let mut next = states[states.len() - 1].clone();
                next.revision += 1;
                match write % 8 {
                    0 => {
                        next.epoch += 1;
                        let quorums = VersionedSettings::of(2).quorums(1 + next.epoch as u32 % 3);
                        next.counts.insert(
                            1,
                            Counts {
                                now: quorums,
                                joint: None,
                            },
                        );
                        match next.joint.pop_first() {
                            Some((_, owners)) => next.owners[0] = owners,
                            None => drop(next.joint.insert(PartitionId::new(0), vec![node_id(write)])),
                        }
                    }
                    1 => drop(next.nodes.insert(node_id(write), node(next.revision))),
                    2 => drop(next.stores.remove(&name(write))),
                    _ => drop(next.stores.insert(name(write), store(next.revision))),
                }
                states.push(next.counted());
            }
            Self(states)
        }
    }

    #[test]
    fn routers_divide_keys_and_keep_theirs_when_one_goes() {
        let mut topology = History::of(&[]).0.remove(0);
        assert_eq!(topology.router_for(b"ann"), None);
        topology.routers = (0..4).map(|number| format!("10.0.0.{number}:6400")).collect();
        let keys: Vec<String> = (0..4000).map(|number| format!("member-{number}")).collect();
        let chosen = |topology: &Topology| -> Vec<String> {
            let router = |key: &String| topology.router_for(key.as_bytes()).unwrap().to_owned();
            keys.iter().map(router).collect()
        };
        let before = chosen(&topology);
        for router in &topology.routers {
            let share = before.iter().filter(|chosen| *chosen == router).count();
            assert!((900..1100).contains(&share), "{router}: {share}");
        }
        let gone = topology.routers.remove(2);
        for (before, after) in before.iter().zip(chosen(&topology)) {
            assert!(*before == after || *before == gone);
        }
    }

    fn node_id(write: u8) -> NodeId {
        NodeId::new(u32::from(write >> 3) % 3 + 1).unwrap()
    }

    fn name(write: u8) -> StoreName {
        format!("s{}", (write >> 3) % 4).parse().unwrap()
    }

    fn node(revision: u64) -> TopologyNode {
        TopologyNode {
            revision,
            ..TopologyNode::live(format!("a:{revision}"), "")
        }
    }

    fn store(revision: u64) -> TopologyStore {
        TopologyStore {
            revision,
            current: VersionNumber::new(revision),
            ..TopologyStore::versioned(2, VersionedSettings::of(2))
        }
    }

    /// The topology of an observer that sees the routing table, nodes and stores of different moments.
    fn seen(history: &History, moments: [usize; 3]) -> Topology {
        let [table, nodes, stores] = moments.map(|at| &history.0[at % history.0.len()]);
        Topology {
            revision: table.revision.max(nodes.revision).max(stores.revision),
            nodes: nodes.nodes.clone(),
            stores: stores.stores.clone(),
            ..table.clone()
        }
        .counted()
    }

    proptest! {
        #[test]
        fn a_known_topology_never_goes_back(
            writes in vec(any::<u8>(), 1..40),
            moments in vec(any::<[u16; 3]>(), 1..20),
        ) {
            let history = History::of(&writes);
            let mut known = history.0[0].clone();
            for moments in moments {
                let received = seen(&history, moments.map(usize::from));
                let joined = known.joined(&received);
                prop_assert_eq!(joined.revision, known.revision.max(received.revision));
                prop_assert_eq!(joined.epoch, known.epoch.max(received.epoch));
                let newer = if received.epoch > known.epoch { &received } else { &known };
                prop_assert_eq!((&joined.owners, &joined.joint), (&newer.owners, &newer.joint));
                let counts = newer.counts.get(&1);
                let is_counted = |store: &TopologyStore| counts.is_none_or(|counts| store.replicas == counts.now.replicas);
                prop_assert!(joined.stores.values().all(is_counted), "as the later routing table says");
                for (id, node) in known.nodes.iter().chain(&received.nodes) {
                    prop_assert!(joined.nodes[id].revision >= node.revision);
                }
                for (name, store) in known.stores.iter().chain(&received.stores) {
                    prop_assert!(joined.stores.get(name).is_none_or(|joined| joined.revision >= store.revision));
                }
                prop_assert_eq!(&joined.joined(&received), &joined, "merging it again changes nothing");
                known = joined;
            }
            let present = &history.0[history.0.len() - 1];
            prop_assert_eq!(&known.joined(present), present, "merging the present topology yields it");
        }
    }

    #[test]
    fn topologies_of_another_cluster_are_ignored() {
        let known = &History::of(&[3]).0[1];
        let received = Topology {
            cluster: Identity::of(2),
            revision: 99,
            epoch: 99,
            ..known.clone()
        };
        assert_eq!(known.joined(&received), *known);
    }

    #[test]
    fn without_a_later_write_liveness_comes_from_the_other_side() {
        let known = &History::of(&[1]).0[1];
        let mut received = known.clone();
        received.nodes.values_mut().for_each(|node| node.live = false);
        received.protocol += 1;
        assert_eq!(known.joined(&received), received);
        let later = Topology {
            revision: known.revision + 1,
            ..known.clone()
        };
        assert_eq!(later.joined(&received), later);
    }
}
