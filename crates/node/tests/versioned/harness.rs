//! Nodes with replicas in memory, one versioned store, `s`, and one batch store without a version, `b`. The test
//! publishes their topology by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::versioned::{EngineKind, VersionedChange, VersionedSettings};
use fondaco_model::{Identity, NodeId, PartitionCount, RoutingTable, StoreName, ValueType, slot_of_key};
use fondaco_node::{
    BufferBudget, Catalog, Counter, Member, Membership, NodeMetrics, PeerAccess, Server, ServerConfig, Setting,
    Settings, SharedAccess, SharedCatalog,
};
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};
use fondaco_replica::{Engines, Peers, ReplicaOptions, ReplicaView, Replicas, ReplicatedStore};
pub use fondaco_testing::until;
use redis::{ConnectionLike, Value};
use tempfile::TempDir;

/// The longest time that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
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

/// A running cluster.
pub struct Cluster {
    pub topology: Topology,
    pub nodes: Vec<Node>,
    _dir: TempDir,
}

/// A node, or a router.
pub struct Node {
    member: Member,
    server: Option<Server>,
    address: SocketAddr,
    catalog: Arc<SharedCatalog>,
    pub settings: Arc<Settings>,
    metrics: Arc<NodeMetrics>,
    replicas: Option<Arc<Replicas>>,
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
    pub fn start(shape: Shape) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<NodeId> = (1..=shape.nodes).map(|number| NodeId::new(number).unwrap()).collect();
        let start = |&id: &NodeId| {
            let engines = Engines::new((shape.engine)(id));
            let (options, peers) = (shape.replica_options.clone(), Arc::clone(&shape.background));
            let home = dir.path().join(id.to_string());
            let replicas = Replicas::open(&home, &engines, peers, options).unwrap();
            Node::start(Member::Node(id), Some(Arc::new(replicas)), &shape)
        };
        let nodes: Vec<Node> = ids.iter().map(start).collect();
        let owners = |partition: u32| -> Vec<NodeId> {
            let from = ids.iter().copied().cycle().skip(partition as usize % ids.len());
            from.take(shape.replicas as usize).collect()
        };
        let described = nodes.iter().map(|node| TopologyNode {
            http: "127.0.0.1:1".into(),
            ..TopologyNode::live(node.address.to_string(), "a")
        });
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
        let partitions = PartitionCount::try_from(shape.partitions).unwrap();
        let owners = (0..shape.partitions).map(owners).collect();
        let topology = Topology {
            routers: vec!["127.0.0.1:6400".into()],
            ..Topology::first(partitions, owners, ids.iter().copied().zip(described), [])
        };
        let mut cluster = Self {
            topology,
            nodes,
            _dir: dir,
        };
        // The nodes exist before the stores do: they have lost nothing of them.
        cluster.publish();
        cluster.topology.stores = [("s".parse().unwrap(), store), ("b".parse().unwrap(), batch)].into();
        cluster.publish();
        cluster
    }

    /// Publishes the current topology to all nodes.
    pub fn publish(&self) {
        self.nodes.iter().for_each(|node| node.publish(&self.topology));
    }

    /// A router in front of the nodes.
    pub fn router(&self) -> Node {
        let router = Node::start(Member::Router(Identity::of(7)), None, &Shape::default());
        router.publish(&self.topology);
        router
    }

    /// Kills a node. The others are not told.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].server = None;
    }

    /// The indexes of the nodes that hold a key, in the order in which they are asked for a write.
    pub fn owners_of(&self, key: &str) -> Vec<usize> {
        let slot = slot_of_key(&"s".parse().unwrap(), key.as_bytes());
        let partition = self.topology.partitions.partition_of(slot);
        let owners = &self.topology.owners[partition.get() as usize];
        owners.iter().map(|id| id.get() as usize - 1).collect()
    }

    /// A key that a node holds, or one that it does not hold.
    pub fn key(&self, node: usize, is_held: bool) -> String {
        let mut keys = (0..10_000).map(|key| key.to_string());
        let found = keys.find(|key| self.owners_of(key).contains(&node) == is_held);
        found.expect("a key among many")
    }
}

impl Node {
    fn start(member: Member, replicas: Option<Arc<Replicas>>, shape: &Shape) -> Self {
        const LOOPS: usize = 2;
        let catalog = Arc::new(SharedCatalog::new());
        let settings = Arc::new(Settings::default());
        // The machine may stall.
        settings.set(Setting::ForwardTimeoutMs, 5000).unwrap();
        let metrics = Arc::new(NodeMetrics::new(LOOPS));
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertised: None,
            loops: LOOPS,
            tls: None,
            access: shape.access.clone(),
            peers: shape.peers.clone(),
            replicas: replicas.clone(),
            buffers: BufferBudget::new(1 << 30),
            default_store: shape.default_store.clone(),
            http: None,
            program_version: "test",
        };
        let (c, s, m) = (Arc::clone(&catalog), Arc::clone(&settings), Arc::clone(&metrics));
        let server = Server::start(config, c, s, m).unwrap();
        Self {
            member,
            address: server.address(),
            server: Some(server),
            catalog,
            settings,
            metrics,
            replicas,
        }
    }

    /// Publishes a topology to this node.
    pub fn publish(&self, topology: &Topology) {
        let table = RoutingTable::first(topology.partitions, topology.owners.clone()).unwrap();
        self.publish_with(topology, table);
    }

    /// Publishes a topology, and the routing table that the replicas follow.
    pub fn publish_with(&self, topology: &Topology, table: RoutingTable) {
        if let (Some(replicas), Member::Node(node)) = (&self.replicas, &self.member) {
            let stores = topology.stores.iter().filter_map(|(name, store)| {
                Some(ReplicatedStore {
                    id: store.id,
                    name: name.clone(),
                    created_unix_ms: 1,
                    replicas: store.replicas as usize,
                    value_type: store.value_type,
                    settings: store.versioned?,
                    is_dropped: false,
                    exceeded_quota_bytes: None,
                })
            });
            let nodes: BTreeMap<NodeId, bool> = topology.nodes.iter().map(|(&id, node)| (id, node.live)).collect();
            let view = ReplicaView {
                node: *node,
                table: Arc::new(table),
                nodes,
                near: Default::default(),
                leaving: Default::default(),
                stores: stores.collect(),
                dropped: Vec::new(),
                is_remembered: false,
            };
            replicas.set_view(&view).unwrap();
        }
        let membership = Membership::new(Arc::new(topology.clone()), self.member.clone());
        self.catalog
            .publish(Catalog::default().in_cluster(Arc::new(membership)));
    }

    /// The replicas of a node.
    pub fn replicas(&self) -> &Replicas {
        self.replicas.as_ref().expect("a router has none")
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.metrics.counter(counter)
    }

    /// How many requests it sent to replicas as a coordinator, including itself.
    pub fn coordinated(&self) -> u64 {
        self.metrics.quorums().requests
    }

    pub fn connect(&self) -> Connection {
        let client = redis::Client::open(format!("redis://{}", self.address)).unwrap();
        let connection = client.get_connection_with_timeout(PATIENCE).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection(connection)
    }
}

/// A connection of a plain client.
pub struct Connection(pub redis::Connection);

impl Connection {
    /// Sends a command, its words separated by blanks, and returns the reply; an error as its text.
    pub fn send(&mut self, command: &str) -> Result<Value, String> {
        let words: Vec<&str> = command.split(' ').collect();
        self.ask(&words)
    }

    /// Sends a command and returns the reply; an error as its text.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, String> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word.as_ref());
        });
        let answer = self.0.req_packed_command(&command.get_packed_command());
        let answer = answer.and_then(Value::extract_error);
        answer.map_err(|error| {
            let detail = error.detail().unwrap_or_default();
            format!("{} {detail}", error.code().unwrap_or("ERR"))
        })
    }

    /// The code of the error that a command returns.
    pub fn code(&mut self, command: &str) -> String {
        match self.send(command) {
            Ok(answer) => panic!("{command}: {answer:?}"),
            Err(error) => error.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// A text as a bulk string.
pub fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}
