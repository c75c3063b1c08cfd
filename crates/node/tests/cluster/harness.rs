//! Servers, versions and topologies for the tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fondaco_format::{Compression, MANIFEST_FILE, Manifest, Version};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Identity, NodeId, PartitionCount, PartitionId, StoreKind, StoreName, VersionNumber, slot_of_key};
use fondaco_node::{
    BufferBudget, Catalog, Counter, Member, Membership, NodeMetrics, PeerAccess, Server, ServerConfig, Serving,
    ServingStore, Setting, Settings, SharedAccess, SharedCatalog, StoreId,
};
pub use fondaco_testing::eventually;
use redis::{ConnectionLike, Value};
use tempfile::TempDir;

#[path = "../../../format/tests/written/mod.rs"]
mod written;

/// The one store of the tests.
pub const STORE: &str = "pymk";
const LOOPS: usize = 2;
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The wire key of a number.
pub fn wire_key(number: usize) -> String {
    format!("{STORE}:{number}")
}

/// The value of a key in a version; it names both.
pub fn value(version: u64, number: usize) -> String {
    format!("v{version} of {number}")
}

/// Nodes with their versions, and the topology that they see.
pub struct Cluster {
    dir: TempDir,
    pub keys: usize,
    pub topology: Topology,
    pub nodes: Vec<Node>,
}

/// A server of a cluster: a node, or a router.
pub struct Node {
    member: Member,
    server: Option<Server>,
    address: SocketAddr,
    pub catalog: Arc<SharedCatalog>,
    pub settings: Arc<Settings>,
    pub metrics: Arc<NodeMetrics>,
    versions: BTreeMap<VersionNumber, Arc<Version>>,
}

impl Node {
    fn start(member: Member, access: Arc<SharedAccess>, peers: PeerAccess) -> Self {
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
            access,
            replicas: None,
            peers,
            buffers: BufferBudget::new(1 << 30),
            default_store: None,
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
        }
    }

    pub fn connect(&self) -> Connection {
        connect(self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it: its connections break, as in a crash.
    pub fn kill(&mut self) {
        self.server = None;
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.metrics.counter(counter)
    }

    /// Publishes this topology to it; it then serves the versions that are current there, as far as it holds them.
    pub fn publish(&self, topology: &Topology) {
        let name: StoreName = STORE.parse().unwrap();
        let told = &topology.stores[&name];
        let current = told.current;
        let served = current.and_then(|number| self.versions.get(&number));
        let others = self.versions.iter().filter(|(number, _)| Some(**number) != current);
        let store = ServingStore {
            name,
            id: StoreId::new(told.id).unwrap(),
            kind: StoreKind::Batch,
            serving: match (current, served) {
                (Some(number), Some(version)) => Serving::Version(number, Arc::clone(version)),
                _ => Serving::Nothing,
            },
            others: others.map(|(number, version)| (*number, Arc::clone(version))).collect(),
            overlays: Default::default(),
        };
        let membership = Membership::new(Arc::new(topology.clone()), self.member.clone());
        self.catalog
            .publish(Catalog::new([store]).in_cluster(Arc::new(membership)));
    }

    pub fn has_open(&self, version: u64) -> bool {
        self.versions.contains_key(&VersionNumber::new(version).unwrap())
    }

    pub fn close(&mut self, version: u64) {
        self.versions.remove(&VersionNumber::new(version).unwrap());
    }
}

impl Cluster {
    /// Starts `nodes` nodes, with `replicas` replicas of each partition; they hold version 1 of `keys` keys.
    pub fn start(nodes: usize, replicas: usize, partitions: u32, keys: usize) -> Self {
        Self::guarded(nodes, replicas, partitions, keys, Arc::default(), PeerAccess::default())
    }

    /// The same with users: the nodes authenticate to each other as `peers` says.
    pub fn guarded(
        nodes: usize,
        replicas: usize,
        partitions: u32,
        keys: usize,
        access: Arc<SharedAccess>,
        peers: PeerAccess,
    ) -> Self {
        let ids: Vec<NodeId> = (1..).take(nodes).map(|n| NodeId::new(n).unwrap()).collect();
        let nodes: Vec<Node> = ids
            .iter()
            .map(|&id| Node::start(Member::Node(id), access.clone(), peers.clone()))
            .collect();
        let owners = |partition: u32| {
            let from = ids.iter().copied().cycle().skip(partition as usize % ids.len());
            from.take(replicas).collect()
        };
        let described = nodes.iter().map(|node| TopologyNode {
            http: "127.0.0.1:1".into(),
            ..TopologyNode::live(node.address.to_string(), "a")
        });
        let store = TopologyStore {
            records: keys as u64,
            ..TopologyStore::batch(replicas as u32)
        };
        let topology = Topology {
            routers: vec!["127.0.0.1:6400".into()],
            ..Topology::first(
                PartitionCount::try_from(partitions).unwrap(),
                (0..partitions).map(owners).collect(),
                ids.iter().copied().zip(described),
                [(STORE.parse().unwrap(), store)],
            )
        };
        let mut cluster = Self {
            dir: TempDir::new().unwrap(),
            keys,
            topology,
            nodes,
        };
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

    /// Publishes the current topology to all nodes.
    pub fn publish(&self) {
        self.nodes.iter().for_each(|node| node.publish(&self.topology));
    }

    /// A router in front of the nodes.
    pub fn router(&self) -> Node {
        let router = Node::start(Member::Router(Identity::of(7)), Arc::default(), PeerAccess::default());
        router.publish(&self.topology);
        router
    }

    /// Kills a node. The others are not told.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Marks a node as gone in the topology.
    pub fn mark_gone(&mut self, node: usize) {
        let id = NodeId::new(node as u32 + 1).unwrap();
        self.topology.nodes.get_mut(&id).unwrap().live = false;
    }

    pub fn partition_of(&self, number: usize) -> PartitionId {
        let store = STORE.parse().unwrap();
        self.topology
            .partitions
            .partition_of(slot_of_key(&store, number.to_string().as_bytes()))
    }

    /// The indexes of the nodes that own a key.
    pub fn owners_of(&self, number: usize) -> Vec<usize> {
        let owners = &self.topology.owners[self.partition_of(number).get() as usize];
        owners.iter().map(|id| id.get() as usize - 1).collect()
    }

    /// A key that a node does not hold.
    pub fn key_not_on(&self, node: usize) -> usize {
        let mut keys = 0..self.keys;
        keys.find(|&key| !self.owners_of(key).contains(&node))
            .expect("a key that it does not hold")
    }

    /// A key that a node holds.
    pub fn key_on(&self, node: usize) -> usize {
        let mut keys = 0..self.keys;
        keys.find(|&key| self.owners_of(key).contains(&node))
            .expect("a key that it holds")
    }
}

/// A connection of a plain client.
pub struct Connection(redis::Connection);

pub fn connect(address: SocketAddr) -> Connection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let connection = client.get_connection_with_timeout(WAIT_MAX).unwrap();
    connection.set_read_timeout(Some(WAIT_MAX)).unwrap();
    Connection(connection)
}

impl Connection {
    /// Sends a command, its words separated by blanks, and returns the reply; an error as text.
    pub fn send(&mut self, command: &str) -> Result<Value, String> {
        let mut words = command.split(' ');
        let mut request = redis::cmd(words.next().unwrap());
        words.for_each(|word| _ = request.arg(word));
        self.query(&request)
    }

    pub fn query(&mut self, request: &redis::Cmd) -> Result<Value, String> {
        // Not `query`: it would return the error of one element as the error of the whole reply.
        match self.0.req_packed_command(&request.get_packed_command()) {
            Ok(Value::ServerError(error)) => Err(format!("{} {}", error.code(), error.details().unwrap_or_default())),
            Ok(value) => Ok(value),
            Err(error) => Err(format!(
                "{} {}",
                error.code().unwrap_or("?"),
                error.detail().unwrap_or_default()
            )),
        }
    }

    /// The reply to a command, as text.
    pub fn text(&mut self, command: &str) -> Option<String> {
        text(self.send(command).unwrap())
    }

    /// The values of these keys, with one `MGET`.
    pub fn mget(&mut self, keys: impl IntoIterator<Item = usize>) -> Vec<Option<String>> {
        let mut request = redis::cmd("MGET");
        keys.into_iter().for_each(|key| _ = request.arg(wire_key(key)));
        elements(self.query(&request).unwrap()).into_iter().map(text).collect()
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
        Value::ServerError(error) => Some(format!("{} {}", error.code(), error.details().unwrap_or_default())),
        other => panic!("no text: {other:?}"),
    }
}
