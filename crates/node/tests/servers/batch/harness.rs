//! Clusters with versions of one batch store.

use std::sync::Arc;

use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Version};
use fondaco_model::cluster::TopologyStore;
use fondaco_model::{NodeId, PartitionId, VersionNumber};
use fondaco_node::{Member, PeerAccess, SharedAccess};

use crate::harness::{Cluster, Connection, Node, Parts, elements, ids, text};
use crate::written;

/// The one store of the tests.
pub const STORE: &str = "pymk";

/// The wire key of a number.
pub fn wire_key(number: usize) -> String {
    format!("{STORE}:{number}")
}

/// The value of a key in a version; it names both.
pub fn value(version: u64, number: usize) -> String {
    format!("v{version} of {number}")
}

impl Node {
    pub fn has_open(&self, version: u64) -> bool {
        self.versions.contains_key(&VersionNumber::new(version).unwrap())
    }

    pub fn close(&mut self, version: u64) {
        self.versions.remove(&VersionNumber::new(version).unwrap());
    }
}

impl Cluster {
    /// Starts `nodes` nodes, with `replicas` replicas of each partition; they hold version 1 of `keys` keys.
    pub fn batch(nodes: u32, replicas: u32, partitions: u32, keys: usize) -> Self {
        Self::guarded(nodes, replicas, partitions, keys, Arc::default(), PeerAccess::default())
    }

    /// The same with users: the nodes authenticate to each other as `peers` says.
    pub fn guarded(
        nodes: u32,
        replicas: u32,
        partitions: u32,
        keys: usize,
        access: Arc<SharedAccess>,
        peers: PeerAccess,
    ) -> Self {
        let start = |id| {
            let (access, peers) = (access.clone(), peers.clone());
            let parts = Parts {
                access,
                peers,
                ..Parts::default()
            };
            Node::start(Member::Node(id), parts)
        };
        let nodes = ids(nodes).into_iter().map(start).collect();
        let mut cluster = Self::of(nodes, tempfile::tempdir().unwrap(), STORE, replicas, partitions);
        cluster.keys = keys;
        let store = TopologyStore {
            records: keys as u64,
            ..TopologyStore::batch(replicas)
        };
        cluster.topology.stores.insert(cluster.store.clone(), store);
        cluster.add_version(1);
        cluster.publish();
        cluster
    }

    /// Builds a version, and opens on each node the partitions that the node owns.
    pub fn add_version(&mut self, version: u64) {
        let whole = self.dir.path().join(format!("whole-{version}"));
        std::fs::create_dir(&whole).unwrap();
        let records = (0..self.keys).map(|n| (n.to_string().into_bytes(), value(version, n).into_bytes()));
        let shape = written::Shape {
            partitions: self.topology.partitions.get(),
            chunks: 1,
            compression: Compression::None,
        };
        written::write(&whole, &records.collect(), &shape);
        let manifest = Manifest::read(&whole).unwrap();
        for node in &mut self.nodes {
            let Member::Node(id) = node.member else { continue };
            let own = self.dir.path().join(format!("version-{version}-of-{id}"));
            std::fs::create_dir(&own).unwrap();
            std::fs::copy(whole.join(MANIFEST_FILE), own.join(MANIFEST_FILE)).unwrap();
            let owned = |partition: PartitionId| self.topology.owners[partition.get() as usize].contains(&id);
            for chunk in manifest.chunks.iter().filter(|chunk| owned(chunk.partition)) {
                for file in chunk.files() {
                    std::fs::hard_link(whole.join(&file.name), own.join(&file.name)).unwrap();
                }
            }
            let open = Version::open(&own).unwrap();
            node.versions
                .insert(VersionNumber::new(version).unwrap(), Arc::new(open));
        }
    }

    /// Makes a version current, in the topology only: no node sees it yet.
    pub fn set_current(&mut self, version: u64) {
        self.store().current = VersionNumber::new(version);
    }

    /// The store in the topology.
    pub fn store(&mut self) -> &mut TopologyStore {
        self.topology.stores.get_mut(STORE).unwrap()
    }

    /// Marks a node as gone in the topology.
    pub fn mark_gone(&mut self, node: usize) {
        let id = NodeId::new(node as u32 + 1).unwrap();
        self.topology.nodes.get_mut(&id).unwrap().live = false;
    }
}

impl Connection {
    /// The values of these keys, with one `MGET`.
    pub fn mget(&mut self, keys: impl IntoIterator<Item = usize>) -> Vec<Option<String>> {
        let words: Vec<String> = ["MGET".to_owned()]
            .into_iter()
            .chain(keys.into_iter().map(wire_key))
            .collect();
        elements(self.ask(&words).unwrap()).into_iter().map(text).collect()
    }
}
