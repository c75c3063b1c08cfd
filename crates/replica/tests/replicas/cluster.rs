//! Several nodes' replicas in one process, with a network between them that can be cut and observed.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{CacheEngine, Engine};
use fondaco_model::versioned::{Durability, EngineKind, Record, Update, VectorClock, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount, RoutingTable, StoreName, ValueType};
use fondaco_protocol::replica::{
    Held, KeyRecord, OnReply, PutOver, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply,
    ReplicaRequest,
};
use fondaco_replica::{DroppedReplica, Engines, Peers, ReplicaOptions, ReplicaView, Replicas, ReplicatedStore};

/// The longest time that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The store of the tests.
pub const STORE_ID: u16 = 1;

/// A request or a reply on the network.
pub enum Message<'a> {
    Request(&'a ReplicaRequest),
    Reply(&'a ReplicaReply),
}

/// A function that sees all messages.
type Observer = Box<dyn Fn(Message<'_>) + Send + Sync>;

/// The network: requests go straight to the other replicas.
#[derive(Default)]
pub struct Network {
    nodes: Mutex<BTreeMap<NodeId, Weak<Replicas>>>,
    cut: Mutex<BTreeSet<NodeId>>,
    refused: Mutex<BTreeSet<Bytes>>,
    observer: OnceLock<Observer>,
    /// The last comparisons: the node that asked, and the one that was asked.
    compared: Mutex<Vec<(NodeId, NodeId)>>,
    behind_ms: AtomicU64,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl Network {
    pub fn cut(&self, node: NodeId) {
        self.cut.lock().unwrap().insert(node);
    }

    pub fn mend(&self, node: NodeId) {
        self.cut.lock().unwrap().remove(&node);
    }

    /// Sets whether requests with this key are refused.
    pub fn refuse(&self, key: &'static str, is_refused: bool) {
        let mut refused = self.refused.lock().unwrap();
        match is_refused {
            true => refused.insert(key.into()),
            false => refused.remove(key.as_bytes()),
        };
    }

    /// Forgets which nodes were compared.
    pub fn forget_compared(&self) {
        self.compared.lock().unwrap().clear();
    }

    /// The first node that a node compared a partition with.
    pub fn first_compared(&self, from: NodeId) -> Option<NodeId> {
        let compared = self.compared.lock().unwrap();
        compared
            .iter()
            .find(|(asking, _)| *asking == from)
            .map(|(_, asked)| *asked)
    }

    /// Sets how far the clocks of other nodes are behind.
    pub fn set_behind_ms(&self, behind_ms: u64) {
        self.behind_ms.store(behind_ms, Relaxed);
    }

    fn refuses(&self, request: &ReplicaRequest) -> bool {
        let refused = self.refused.lock().unwrap();
        match &request.operation {
            ReplicaOperation::Merge { records } => records.iter().any(|pair| refused.contains(&pair.key)),
            _ => false,
        }
    }

    /// Shows all messages from now on to an observer.
    pub fn observe(&self, observer: impl Fn(Message<'_>) + Send + Sync + 'static) {
        let is_first = self.observer.set(Box::new(observer)).is_ok();
        assert!(is_first, "the network has an observer");
    }

    fn show(&self, message: Message<'_>) {
        if let Some(observer) = self.observer.get() {
            observer(message);
        }
    }
}

/// The connection of one node to the others.
#[derive(Debug)]
pub struct Way {
    network: Arc<Network>,
    from: NodeId,
}

impl Peers for Way {
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        let is_cut = {
            let cut = self.network.cut.lock().unwrap();
            cut.contains(&node) || cut.contains(&self.from)
        };
        let peer = self.network.nodes.lock().unwrap().get(&node).and_then(Weak::upgrade);
        let Some(peer) = peer.filter(|_| !is_cut) else {
            let error = ReplicaError::new(ReplicaErrorCode::Other, "the network is cut");
            return answer(ReplicaReply::Error(error));
        };
        if self.network.refuses(&request) {
            let error = ReplicaError::new(ReplicaErrorCode::Other, "this key is refused");
            return answer(ReplicaReply::Error(error));
        }
        if matches!(request.operation, ReplicaOperation::Tree { .. }) {
            self.network.compared.lock().unwrap().push((self.from, node));
        }
        self.network.show(Message::Request(&request));
        let network = Arc::clone(&self.network);
        peer.request(request, move |mut reply| {
            network.show(Message::Reply(&reply));
            if let ReplicaReply::OldestHint { now_unix_ms, .. } = &mut reply {
                *now_unix_ms -= network.behind_ms.load(Relaxed);
            }
            answer(reply);
        });
    }
}

/// A cluster of nodes 1 to `n`, all of which hold all partitions of store `s`.
pub struct Cluster {
    pub network: Arc<Network>,
    pub nodes: BTreeMap<NodeId, Arc<Replicas>>,
    pub live: BTreeSet<NodeId>,
    /// The nodes in the zone of every node.
    pub near: BTreeSet<NodeId>,
    pub table: Arc<RoutingTable>,
    pub settings: VersionedSettings,
    pub stores: Vec<(u16, &'static str)>,
    pub dropped: Vec<DroppedReplica>,
    pub replicas: usize,
    /// The space quota that all stores exceed.
    pub exceeded_quota_bytes: Option<u64>,
    /// When all stores were created.
    pub created_unix_ms: u64,
    /// A directory for each node, by its number.
    pub home: PathBuf,
    _own_dir: Option<OwnDir>,
}

/// A directory that is deleted when this is dropped.
type OwnDir = Box<dyn Any + Send + Sync>;

/// The limit of a store that evicts, in bytes.
pub const CACHE_BYTES: u64 = 256 << 10;

pub fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

pub fn store() -> StoreName {
    "s".parse().unwrap()
}

/// Options without background work, unless it is woken.
pub fn quiet() -> ReplicaOptions {
    ReplicaOptions {
        shards: 2,
        readers: 2,
        exchange_period: Duration::from_secs(3600),
        handoff_period: Duration::from_millis(20),
        sweep_period: Duration::from_secs(3600),
        handoff_bytes_per_second: None,
        exchange_bytes_per_second: None,
        scan_bytes_per_second: None,
        ..ReplicaOptions::default()
    }
}

/// Settings of a store in the first engine of a node, whichever the test uses.
pub fn settings_of(replicas: u32) -> VersionedSettings {
    VersionedSettings {
        engine: EngineKind::Disk,
        ..VersionedSettings::of(replicas)
    }
}

impl Cluster {
    /// A cluster in a directory that may have its data already, and outlives it.
    pub fn in_dir(
        dir: &Path,
        nodes: u32,
        partitions: u32,
        options: &ReplicaOptions,
        engine: impl Fn(&Path) -> Arc<dyn Engine>,
    ) -> Self {
        Self::with_settings(
            (dir.to_owned(), None),
            nodes,
            partitions,
            options,
            settings_of(nodes),
            engine,
        )
    }

    /// A cluster in a directory, which ends with the cluster if there is a second value.
    pub fn with_settings(
        (home, own_dir): (PathBuf, Option<OwnDir>),
        nodes: u32,
        partitions: u32,
        options: &ReplicaOptions,
        settings: VersionedSettings,
        engine: impl Fn(&Path) -> Arc<dyn Engine>,
    ) -> Self {
        let partitions = PartitionCount::try_from(partitions).unwrap();
        let owners: Vec<NodeId> = (1..=nodes).map(node).collect();
        let table = RoutingTable::first(partitions, vec![owners.clone(); partitions.get() as usize]).unwrap();
        let network = Arc::new(Network::default());
        let mut cluster = Self {
            network,
            nodes: BTreeMap::new(),
            live: owners.iter().copied().collect(),
            near: BTreeSet::new(),
            exceeded_quota_bytes: None,
            table: Arc::new(table),
            settings,
            stores: vec![(STORE_ID, "s")],
            dropped: Vec::new(),
            replicas: nodes as usize,
            created_unix_ms: 7,
            home,
            _own_dir: own_dir,
        };
        for id in owners {
            let is_new = !cluster.home.join(id.to_string()).exists();
            let replicas = cluster.open(id, options, &engine);
            if is_new {
                // The node exists before the store does: it has lost nothing of it.
                let before = ReplicaView {
                    nodes: BTreeMap::from([(id, true)]),
                    stores: Vec::new(),
                    ..cluster.view(id)
                };
                replicas.set_view(&before).unwrap();
            }
            cluster.connect(id, replicas);
        }
        cluster
    }

    /// Starts a node again.
    pub fn start(&mut self, id: NodeId, options: &ReplicaOptions, engine: impl Fn(&Path) -> Arc<dyn Engine>) {
        let replicas = self.open(id, options, engine);
        self.connect(id, replicas);
    }

    fn open(&self, id: NodeId, options: &ReplicaOptions, engine: impl Fn(&Path) -> Arc<dyn Engine>) -> Arc<Replicas> {
        let dir = self.home.join(id.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let way = Way {
            network: Arc::clone(&self.network),
            from: id,
        };
        let cache = Arc::new(CacheEngine::new(CACHE_BYTES));
        let engines = Engines::new(engine(&dir)).with(EngineKind::Cache, cache);
        Arc::new(Replicas::open(&dir, &engines, Arc::new(way), options.clone()).unwrap())
    }

    fn connect(&mut self, id: NodeId, replicas: Arc<Replicas>) {
        replicas.set_view(&self.view(id)).unwrap();
        self.network.nodes.lock().unwrap().insert(id, Arc::downgrade(&replicas));
        self.nodes.insert(id, replicas);
    }

    /// Shuts a node down cleanly.
    pub fn stop(&mut self, id: NodeId) {
        let replicas = self.nodes.remove(&id).unwrap();
        self.network.nodes.lock().unwrap().remove(&id);
        replicas.close();
    }

    /// The nodes that moves take everything from.
    fn leaving(&self) -> BTreeSet<NodeId> {
        let planned: BTreeSet<NodeId> = self.table.planned().into_iter().flatten().collect();
        let owners = self.table.all_owners().iter().flatten().copied();
        owners.filter(|node| !planned.contains(node)).collect()
    }

    pub fn view(&self, id: NodeId) -> ReplicaView {
        let nodes: BTreeSet<NodeId> = self.nodes.keys().chain(&self.live).copied().collect();
        let store = |&(id, name): &(u16, &str)| ReplicatedStore {
            id,
            name: name.parse().unwrap(),
            created_unix_ms: self.created_unix_ms,
            replicas: self.replicas,
            // So that members of sets stand side by side; other keys are as in any store.
            value_type: ValueType::Graph,
            settings: self.settings,
            is_dropped: false,
            exceeded_quota_bytes: self.exceeded_quota_bytes,
        };
        ReplicaView {
            node: id,
            table: Arc::clone(&self.table),
            nodes: nodes
                .into_iter()
                .map(|node| (node, self.live.contains(&node)))
                .collect(),
            near: self.near.clone(),
            leaving: self.leaving(),
            stores: self.stores.iter().map(store).collect(),
            dropped: self.dropped.clone(),
            is_remembered: false,
        }
    }

    /// Sends the cluster state to all nodes.
    pub fn tell(&self) {
        for (&id, replicas) in &self.nodes {
            replicas.set_view(&self.view(id)).unwrap();
        }
    }

    pub fn set_live(&mut self, id: NodeId, is_live: bool) {
        match is_live {
            true => drop(self.live.insert(id)),
            false => drop(self.live.remove(&id)),
        }
        self.tell();
    }

    pub fn node(&self, number: u32) -> &Arc<Replicas> {
        &self.nodes[&node(number)]
    }

    /// The record of a key on a node.
    pub fn record(&self, number: u32, key: &str) -> Option<Record> {
        let operation = ReplicaOperation::Get {
            part: RecordPart::Full,
            keys: vec![Bytes::copy_from_slice(key.as_bytes())],
        };
        match ask(self.node(number), operation) {
            ReplicaReply::Records(mut records) => match records.pop().unwrap().unwrap() {
                Held::Record(record) => Some(Record::decode(record).unwrap()),
                Held::Nothing => None,
                Held::Same => panic!("the request named no known record"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// The values of a key on a node.
    pub fn values(&self, number: u32, key: &str) -> Vec<Bytes> {
        let record = self.record(number, key).unwrap_or_default();
        record
            .siblings()
            .iter()
            .filter_map(|sibling| sibling.value.clone())
            .collect()
    }
}

/// Sends a request to replicas, and waits for the reply.
pub fn ask(replicas: &Replicas, operation: ReplicaOperation) -> ReplicaReply {
    let (sender, receiver) = mpsc::channel();
    replicas.request(request(operation), move |reply| drop(sender.send(reply)));
    receiver.recv_timeout(PATIENCE).unwrap()
}

pub fn request(operation: ReplicaOperation) -> ReplicaRequest {
    ReplicaRequest {
        epoch: None,
        store_id: STORE_ID,
        store: store(),
        timeout_ms: PATIENCE.as_millis() as u64,
        operation,
    }
}

/// Writes to one node, replacing all its values. Returns the new record.
pub fn put(replicas: &Replicas, key: &str, update: Update) -> Bytes {
    match ask(replicas, putting(key, update)) {
        ReplicaReply::Written(record) => record,
        other => panic!("{other:?}"),
    }
}

pub fn putting(key: &str, update: Update) -> ReplicaOperation {
    ReplicaOperation::Put {
        over: PutOver::All,
        key: Bytes::copy_from_slice(key.as_bytes()),
        context: VectorClock::new(),
        update,
        is_charged: false,
    }
}

pub fn merging(key: &str, record: Bytes) -> ReplicaOperation {
    ReplicaOperation::Merge {
        records: vec![pair(key, record)],
    }
}

pub fn pair(key: &str, record: Bytes) -> KeyRecord {
    KeyRecord {
        key: Bytes::copy_from_slice(key.as_bytes()),
        record,
    }
}

pub fn value(text: &str) -> Update {
    Update::put(Bytes::copy_from_slice(text.as_bytes()), now_unix_ms(), None)
}

pub fn now_unix_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

/// Settings of a store that acknowledges writes once they are on the disk.
pub fn fsync(settings: VersionedSettings) -> VersionedSettings {
    VersionedSettings {
        durability: Durability::Fsync,
        ..settings
    }
}

/// The first store of a view, dropped.
pub fn dropped(view: &ReplicaView, is_kept: bool) -> DroppedReplica {
    DroppedReplica {
        id: view.stores[0].id,
        created_unix_ms: view.stores[0].created_unix_ms,
        is_kept,
    }
}
