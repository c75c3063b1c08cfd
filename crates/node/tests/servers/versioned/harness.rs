//! Clusters with replicas in memory, one versioned store, `s`, and one batch store without a version, `b`.

use std::sync::Arc;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::cluster::TopologyStore;
use fondaco_model::versioned::{EngineKind, VersionedChange, VersionedSettings};
use fondaco_model::{NodeId, StoreName, ValueType};
use fondaco_node::{Member, Password, PasswordDigest, PeerAccess, SharedAccess, User};
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use fondaco_replica::{Engines, Peers, ReplicaOptions, Replicas};

use crate::harness::{Cluster, Node, Parts, ids};

/// The number of the versioned store.
pub const STORE_ID: u16 = 1;

/// The parameters of a cluster.
pub struct Shape {
    pub nodes: u32,
    pub replicas: u32,
    pub partitions: u32,
    pub settings: VersionedChange,
    pub access: Arc<SharedAccess>,
    pub peers: PeerAccess,
    pub default_store: Option<StoreName>,
    pub value_type: ValueType,
    /// Creates the storage engine of each node.
    pub engine: Box<dyn Fn(NodeId) -> Arc<dyn Engine>>,
    /// How replicas reach each other in the background.
    pub background: Arc<dyn Peers>,
    pub replica_options: ReplicaOptions,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nodes: 1,
            replicas: 1,
            partitions: 4,
            settings: VersionedChange::default(),
            access: Arc::default(),
            peers: PeerAccess::default(),
            default_store: None,
            value_type: ValueType::default(),
            engine: Box::new(|_| Arc::new(MemoryEngine::new())),
            background: Arc::new(Nobody),
            replica_options: ReplicaOptions {
                shards: 2,
                readers: 2,
                ..ReplicaOptions::default()
            },
        }
    }
}

impl Shape {
    /// This many nodes, and one replica of each key.
    pub fn of(nodes: u32) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// With other settings of the store.
    pub fn with(mut self, change: impl FnOnce(&mut VersionedChange)) -> Self {
        change(&mut self.settings);
        self
    }
}

/// A node that may write, a user that may read the versioned store, and one that may use neither store. Their passwords are their
/// names.
pub fn users() -> Arc<SharedAccess> {
    let user = |name: &str, stores: &[&str], writes: &[&str]| User {
        name: name.into(),
        password: Password::Digest(PasswordDigest::of(name.as_bytes())),
        stores: stores.iter().map(|&store| store.into()).collect(),
        writes: writes.iter().map(|&store| store.into()).collect(),
        admin: false,
    };
    Arc::new(SharedAccess::new(vec![
        user("node", &[], &["*"]),
        user("reader", &["s"], &[]),
        user("stranger", &["x"], &["x"]),
    ]))
}

/// Three nodes that all hold all partitions.
pub fn three() -> Shape {
    Shape {
        replicas: 3,
        ..spread()
    }
}

/// Three nodes, each of which lacks a third of the partitions.
pub fn spread() -> Shape {
    Shape {
        nodes: 3,
        replicas: 2,
        partitions: 8,
        ..Shape::default()
    }
}

/// Peers that refuse every request: there are no hints or comparisons in most tests.
#[derive(Debug)]
struct Nobody;

impl Peers for Nobody {
    fn ask(&self, _: NodeId, _: ReplicaRequest, answer: OnReply) {
        let error = ReplicaError::new(ReplicaErrorCode::Other, "there are no peers here");
        answer(ReplicaReply::Error(error));
    }
}

impl Cluster {
    pub fn versioned(shape: Shape) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let start = |id: NodeId| {
            let engines = Engines::new((shape.engine)(id));
            let (options, peers) = (shape.replica_options.clone(), Arc::clone(&shape.background));
            let home = dir.path().join(id.to_string());
            let replicas = Replicas::open(&home, &engines, peers, options).unwrap();
            let parts = Parts {
                access: shape.access.clone(),
                peers: shape.peers.clone(),
                default_store: shape.default_store.clone(),
                replicas: Some(Arc::new(replicas)),
            };
            Node::start(Member::Node(id), parts)
        };
        let nodes = ids(shape.nodes).into_iter().map(start).collect();
        let mut cluster = Self::of(nodes, dir, "s", shape.replicas, shape.partitions);
        // The nodes exist before the stores do: they have lost nothing of them.
        cluster.publish();
        let settings = VersionedSettings {
            engine: EngineKind::Disk,
            ..VersionedSettings::of(shape.replicas).with(&shape.settings)
        };
        let store = TopologyStore {
            id: STORE_ID,
            value_type: shape.value_type,
            ..TopologyStore::versioned(shape.replicas, settings)
        };
        let batch = TopologyStore {
            id: STORE_ID + 1,
            current: None,
            ..TopologyStore::batch(shape.replicas)
        };
        cluster.topology.stores = [(cluster.store.clone(), store), ("b".parse().unwrap(), batch)].into();
        cluster.publish();
        cluster
    }
}
