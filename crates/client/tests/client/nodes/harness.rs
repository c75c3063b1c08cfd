//! A cluster of scripted nodes, its topology, and a client of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_client::{Client, ClientBuilder, ReadOptions};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{NodeId, PartitionCount, StoreName, VersionNumber};
use tokio::sync::watch;
use tokio::time::Instant;

use super::server::{Node, value};

/// The time limit of any condition.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub topology: watch::Sender<Option<Arc<Topology>>>,
}

impl Cluster {
    /// Starts this many nodes, with this many replicas of each partition, and a store `s` at version 1, open
    /// everywhere.
    pub async fn start(nodes: u32, replicas: u32) -> Self {
        let mut started = Vec::new();
        for _ in 0..nodes {
            started.push(Node::start(None).await);
        }
        Self::of(started, replicas)
    }

    pub fn of(nodes: Vec<Node>, replicas: u32) -> Self {
        let addresses: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
        let cluster = Self {
            topology: watch::Sender::new(Some(Arc::new(topology(&addresses, replicas)))),
            nodes,
        };
        cluster.open("s", 1);
        cluster.swap("s", 1);
        cluster
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().topology(self.topology.subscribe())
    }

    pub async fn client(&self) -> Client {
        self.connected(self.builder()).await
    }

    /// The client, once it has a connection to every node.
    pub async fn connected(&self, builder: ClientBuilder) -> Client {
        let client = builder.connect().await.unwrap();
        until("all nodes are connected", || {
            client.stats().nodes.iter().all(|node| node.connections > 0)
        })
        .await;
        client
    }

    /// Opens a version on all nodes.
    pub fn open(&self, store: &str, version: u64) {
        for node in &self.nodes {
            node.state(|state| {
                state.open.entry(store.into()).or_default().insert(version);
            });
        }
    }

    /// Tells the client of a new current version.
    pub fn swap(&self, store: &str, version: u64) {
        self.change(|topology| {
            let id = topology.stores.len() as u16 + 1;
            let entry = topology.stores.entry(name(store)).or_insert_with(|| TopologyStore {
                id,
                ..TopologyStore::batch(u32::MAX)
            });
            entry.current = VersionNumber::new(version);
        });
    }

    pub fn change(&self, change: impl FnOnce(&mut Topology)) {
        self.topology.send_modify(|latest| {
            let mut topology = Topology::clone(latest.as_ref().unwrap());
            change(&mut topology);
            *latest = Some(Arc::new(topology));
        });
    }

    /// How many reads all nodes have received.
    pub fn reads(&self) -> usize {
        self.nodes.iter().map(Node::reads).sum()
    }
}

/// Sixteen partitions, assigned to the nodes in turn.
pub fn topology(addresses: &[String], replicas: u32) -> Topology {
    let count = addresses.len() as u32;
    let node = |(place, address): (usize, &String)| {
        let node = TopologyNode::live(address, format!("zone-{}", place + 1));
        (id(place as u32 + 1), node)
    };
    let owners = |partition: u32| {
        (0..replicas)
            .map(|replica| id((partition + replica) % count + 1))
            .collect()
    };
    Topology::first(
        PartitionCount::try_from(16).unwrap(),
        (0..16).map(owners).collect(),
        addresses.iter().enumerate().map(node),
        [],
    )
}

pub fn id(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

pub fn name(store: &str) -> StoreName {
    store.parse().unwrap()
}

/// This many keys of the store `s`.
pub fn keys(count: usize) -> Vec<(StoreName, String)> {
    (0..count).map(|number| (name("s"), format!("key-{number}"))).collect()
}

pub fn value_of(version: u64, key: &str) -> Bytes {
    value_in(&name("s"), version, key)
}

pub fn value_in(store: &StoreName, version: u64, key: &str) -> Bytes {
    value(store.as_str(), version, key).into()
}

pub fn within(deadline_ms: u64) -> ReadOptions {
    ReadOptions {
        deadline: Duration::from_millis(deadline_ms),
        ..ReadOptions::default()
    }
}

/// Waits for a condition.
pub async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
