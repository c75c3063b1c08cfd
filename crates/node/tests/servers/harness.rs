//! A cluster of servers in this process, and connections of plain clients. The test publishes the topology by hand.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fondaco_catalog::StoreSchemas;
use fondaco_format::Version;
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{
    CanaryCounts, Identity, NodeId, PartitionCount, PartitionId, RoutingTable, StoreKind, StoreName, VersionNumber,
    slot_of_key,
};
use fondaco_node::{
    BufferBudget, Catalog, Counter, Member, Membership, NodeMetrics, PeerAccess, Server, ServerConfig, Serving,
    ServingStore, Setting, Settings, SharedAccess, SharedCatalog, StoreId,
};
use fondaco_replica::{ReplicaView, Replicas, ReplicatedStore};
use redis::{ConnectionLike, Value};
use tempfile::TempDir;

/// The longest time that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

const LOOPS: usize = 2;

/// Nodes, and the topology that they see.
pub struct Cluster {
    pub dir: TempDir,
    /// The store of the tests.
    pub store: StoreName,
    /// The number of keys of each version of that store.
    pub keys: usize,
    pub topology: Topology,
    pub nodes: Vec<Node>,
}

/// A server of a cluster: a node, or a router.
pub struct Node {
    pub member: Member,
    server: Option<Server>,
    address: SocketAddr,
    pub catalog: Arc<SharedCatalog>,
    pub settings: Arc<Settings>,
    pub metrics: Arc<NodeMetrics>,
    /// The open versions of the batch store.
    pub versions: BTreeMap<VersionNumber, Arc<Version>>,
    /// The schemas of the stores, as the node knows them.
    pub schemas: Mutex<StoreSchemas>,
    replicas: Option<Arc<Replicas>>,
}

/// The parameters of a server.
#[derive(Default)]
pub struct Parts {
    pub access: Arc<SharedAccess>,
    pub peers: PeerAccess,
    pub default_store: Option<StoreName>,
    pub replicas: Option<Arc<Replicas>>,
}

/// The numbers of the first nodes.
pub fn ids(count: u32) -> Vec<NodeId> {
    (1..=count).map(|number| NodeId::new(number).unwrap()).collect()
}

impl Cluster {
    /// A cluster of these nodes without a store, in which each partition has the next nodes in turn.
    pub fn of(nodes: Vec<Node>, dir: TempDir, store: &str, replicas: u32, partitions: u32) -> Self {
        let ids = ids(nodes.len() as u32);
        let owners = |partition: u32| -> Vec<NodeId> {
            let from = ids.iter().copied().cycle().skip(partition as usize % ids.len());
            from.take(replicas as usize).collect()
        };
        let described = nodes.iter().map(|node| TopologyNode {
            http: "127.0.0.1:1".into(),
            ..TopologyNode::live(node.address.to_string(), "a")
        });
        let owners = (0..partitions).map(owners).collect();
        let count = PartitionCount::try_from(partitions).unwrap();
        let topology = Topology {
            routers: vec!["127.0.0.1:6400".into()],
            ..Topology::first(count, owners, ids.iter().copied().zip(described), [])
        };
        Self {
            dir,
            store: store.parse().unwrap(),
            keys: 0,
            topology,
            nodes,
        }
    }

    /// Publishes the current topology to all nodes.
    pub fn publish(&self) {
        self.nodes.iter().for_each(|node| node.publish(&self.topology));
    }

    /// A router in front of the nodes.
    pub fn router(&self) -> Node {
        let router = Node::start(Member::Router(Identity::of(7)), Parts::default());
        router.publish(&self.topology);
        router
    }

    /// Kills a node: its connections break, as in a crash. The others are not told.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].server = None;
    }

    pub fn partition_of(&self, key: impl Display) -> PartitionId {
        let slot = slot_of_key(&self.store, key.to_string().as_bytes());
        self.topology.partitions.partition_of(slot)
    }

    /// The indexes of the nodes that hold a key, in the order in which they are asked for a write.
    pub fn owners_of(&self, key: impl Display) -> Vec<usize> {
        let owners = &self.topology.owners[self.partition_of(key).get() as usize];
        owners.iter().map(|id| id.get() as usize - 1).collect()
    }

    /// The first number that is a key that a node holds, or one that it does not hold.
    pub fn key(&self, node: usize, is_held: bool) -> usize {
        let found = (0..10_000).find(|key| self.owners_of(key).contains(&node) == is_held);
        found.expect("a key among many")
    }
}

impl Node {
    pub fn start(member: Member, parts: Parts) -> Self {
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
            access: parts.access,
            peers: parts.peers,
            replicas: parts.replicas.clone(),
            events: Arc::default(),
            changes: None,
            buffers: BufferBudget::new(1 << 30),
            default_store: parts.default_store,
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
            versions: BTreeMap::new(),
            schemas: Mutex::default(),
            replicas: parts.replicas,
        }
    }

    /// Publishes a topology to this node. It then serves the versions that are current there, as far as it holds them.
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
            let view = ReplicaView {
                node: *node,
                table: Arc::new(table),
                nodes: topology.nodes.iter().map(|(&id, node)| (id, node.live)).collect(),
                near: Default::default(),
                leaving: Default::default(),
                stores: stores.collect(),
                dropped: Vec::new(),
                is_remembered: false,
            };
            replicas.set_view(&view).unwrap();
        }
        let batches = topology.stores.iter().filter(|(_, store)| store.versioned.is_none());
        let served = batches.map(|(name, store)| self.serving(name, store));
        let membership = Membership::new(Arc::new(topology.clone()), self.member.clone());
        let membership = membership.with_schemas(self.schemas.lock().unwrap().clone());
        self.catalog
            .publish(Catalog::new(served).in_cluster(Arc::new(membership)));
    }

    /// The versions of the batch store that it serves.
    fn serving(&self, name: &StoreName, told: &TopologyStore) -> ServingStore {
        let current = told.current;
        let served = current.and_then(|number| self.versions.get(&number));
        let others = self.versions.iter().filter(|(number, _)| Some(**number) != current);
        ServingStore {
            name: name.clone(),
            id: StoreId::new(told.id).unwrap(),
            kind: StoreKind::Batch,
            serving: match (current, served) {
                (Some(number), Some(version)) => Serving::Version(number, Arc::clone(version)),
                _ => Serving::Nothing,
            },
            others: others.map(|(number, version)| (*number, Arc::clone(version))).collect(),
            overlays: Default::default(),
        }
    }

    /// The replicas of a node.
    pub fn replicas(&self) -> &Replicas {
        self.replicas.as_ref().expect("a router has none")
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts of the canary under way.
    pub fn canary_counts(&self) -> CanaryCounts {
        let catalog = self.catalog.load();
        let (_, canary) = catalog.canaries().next().expect("a canary is under way");
        canary.meter().counts()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.metrics.counter(counter)
    }

    /// How many requests it sent to replicas as a coordinator, including itself.
    pub fn coordinated(&self) -> u64 {
        self.metrics.quorums().requests
    }

    pub fn connect(&self) -> Connection {
        connect(self.address)
    }
}

/// A connection of a plain client.
pub struct Connection(pub redis::Connection);

pub fn connect(address: SocketAddr) -> Connection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let connection = client.get_connection_with_timeout(PATIENCE).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    Connection(connection)
}

impl Connection {
    /// Sends a command, its words separated by blanks, and returns the reply; an error as its text.
    pub fn send(&mut self, command: &str) -> Result<Value, String> {
        let words: Vec<&str> = command.split(' ').collect();
        self.ask(&words)
    }

    /// Sends a command and returns the reply; an error as its text. An error inside an array stays there.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, String> {
        let mut request = redis::Cmd::new();
        words.iter().for_each(|word| _ = request.arg(word.as_ref()));
        // Not `query`: it would return the error of one element as the error of the whole reply.
        match self.0.req_packed_command(&request.get_packed_command()) {
            Ok(Value::ServerError(error)) => Err(error_text(&error)),
            Ok(value) => Ok(value),
            Err(error) => Err(format!(
                "{} {}",
                error.code().unwrap_or("ERR"),
                error.detail().unwrap_or_default()
            )),
        }
    }

    /// The code of the error that a command returns.
    pub fn code(&mut self, command: &str) -> String {
        match self.send(command) {
            Ok(answer) => panic!("{command}: {answer:?}"),
            Err(error) => error.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    /// The reply to a command, as text.
    pub fn text(&mut self, command: &str) -> Option<String> {
        text(self.send(command).unwrap())
    }
}

pub fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) => elements,
        other => panic!("no array: {other:?}"),
    }
}

/// A text, or nil. An error inside an array is returned as its text.
pub fn text(value: Value) -> Option<String> {
    match value {
        Value::Nil => None,
        Value::BulkString(bytes) => Some(String::from_utf8(bytes).unwrap()),
        Value::SimpleString(text) => Some(text),
        Value::ServerError(error) => Some(error_text(&error)),
        other => panic!("no text: {other:?}"),
    }
}

fn error_text(error: &redis::ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// A text as a bulk string.
pub fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}
