//! The replicas of a versioned store, accessed with the protocol between replicas: filled without a coordinator, and
//! compared by their hash trees.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use fondaco_client::ReadOptions;
use fondaco_model::versioned::{DotSource, LEAF_KEYS_MAX, Over, Record, ReplicaId, Update, VectorClock};
use fondaco_model::{NodeId, PartitionCount, PartitionId, StoreName, slot_of_key};
use redis::{Client, Cmd, Connection, Value, cmd};
use xxhash_rust::xxh3::xxh3_64;

use super::fondaco::START_WAIT;
use super::{Wait, wait_until};
use crate::dataset::{append_value, key};
use crate::load::library::Library;

const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The number of records per request, and the number of requests in flight on a connection: fewer than a node queues
/// per connection.
const REQUEST_RECORDS: usize = 128;
const UNDER_WAY: usize = 8;
/// No node uses this incarnation: nodes start with the seconds since 1970.
const INCARNATION: u32 = 1;

/// The replicas of a store.
pub struct Replicas {
    store: StoreName,
    store_id: u16,
    partitions: PartitionCount,
    /// The holders of each partition.
    holders: Vec<Vec<NodeId>>,
    addresses: BTreeMap<NodeId, SocketAddr>,
    connections: BTreeMap<NodeId, Connection>,
}

/// The root state of a partition's hash tree.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    /// How many bits number its leaves.
    leaf_bits: u8,
    /// The hashes of the nodes below the root.
    hashes: Vec<u8>,
}

impl Replicas {
    /// The replicas of a store, given one process of the cluster; returns when all of them are available.
    pub fn of(seed: SocketAddr, store: &str) -> Result<Self> {
        let store: StoreName = store.parse()?;
        let mut known = None;
        wait_until("the store is known", || {
            let topology = Library::connect(seed, ReadOptions::default())?.topology()?;
            known = Some(topology).filter(|topology| topology.stores.contains_key(&store));
            Ok(known.is_some())
        })?;
        let topology = known.context("a cluster without a topology")?;
        let of_store = topology.stores.get(&store).context("an unknown store")?;
        let holders = topology
            .partitions
            .partitions()
            .map(|partition| topology.replicas(of_store, partition).collect());
        let addresses = topology.nodes.iter().map(|(&id, node)| Ok((id, node.resp.parse()?)));
        let mut replicas = Self {
            store_id: of_store.id,
            partitions: topology.partitions,
            holders: holders.collect(),
            addresses: addresses.collect::<Result<_>>()?,
            connections: BTreeMap::new(),
            store,
        };
        replicas.wait_until_equal(0, START_WAIT)?;
        Ok(replicas)
    }

    /// The node with the highest number, and its address.
    pub fn last_node(&self) -> Result<(NodeId, SocketAddr)> {
        let last = self.addresses.iter().next_back().context("a cluster without nodes")?;
        Ok((*last.0, *last.1))
    }

    /// Whether a node holds a record.
    pub fn holds(&self, node: NodeId, id: u64) -> bool {
        self.holders_of(self.partition_of(id)).contains(&node)
    }

    fn partition_of(&self, id: u64) -> PartitionId {
        self.partitions.partition_of(slot_of_key(&self.store, &key(id)))
    }

    fn holders_of(&self, partition: PartitionId) -> &[NodeId] {
        self.holders.get(partition.get() as usize).map_or(&[], Vec::as_slice)
    }

    /// Writes records of a dataset to all their holders, in the order in which tables store them.
    pub fn fill(&mut self, records: Range<u64>, value_bytes: usize) -> Result<()> {
        let mut order: Vec<(PartitionId, u64, u64)> = records
            .map(|id| (self.partition_of(id), xxh3_64(&key(id)), id))
            .collect();
        order.sort_unstable();
        let mut under_way: BTreeMap<NodeId, VecDeque<()>> = BTreeMap::new();
        for same in order.chunk_by(|one, other| one.0 == other.0) {
            let holders = self.holders_of(same[0].0).to_vec();
            let writer = *holders.first().context("a partition without a holder")?;
            for portion in same.chunks(REQUEST_RECORDS) {
                let mut request = self.request("FONDACO.RMERGE");
                request.arg(self.store.as_str());
                for &(_, _, id) in portion {
                    request.arg(&key(id)).arg(first_record(writer, id, value_bytes)?);
                }
                let packed = request.get_packed_command();
                for &holder in &holders {
                    let under_way = under_way.entry(holder).or_default();
                    let connection = self.connection(holder)?;
                    if under_way.len() == UNDER_WAY {
                        under_way.pop_front();
                        merged(connection)?;
                    }
                    connection.send_packed_command(&packed)?;
                    under_way.push_back(());
                }
            }
        }
        for (node, under_way) in under_way {
            let connection = self.connection(node)?;
            under_way.iter().try_for_each(|()| merged(connection))?;
        }
        Ok(())
    }

    /// A holder of a record other than this node.
    fn other_holder(&self, node: NodeId, id: u64) -> Result<NodeId> {
        let holders = self.holders_of(self.partition_of(id));
        let other = holders.iter().find(|&&holder| holder != node);
        other.copied().context("no other replica")
    }

    /// The length of a record with its key, at a replica on another node than this one.
    pub fn stored_bytes(&mut self, but: NodeId, id: u64) -> Result<u64> {
        let holder = self.other_holder(but, id)?;
        let record = self.stored(holder, "FULL", id)?;
        let record = record.with_context(|| format!("record {id} is missing"))?;
        Ok((key(id).len() + record.len()) as u64)
    }

    /// Waits until a node has the context that other replicas have of each of these records.
    ///
    /// Requests for hash trees instead would delay the result: a replica treats them as a running comparison.
    pub fn wait_until_seen(&mut self, node: NodeId, ids: &[u64], wait: Wait) -> Result<()> {
        for &id in ids {
            let other = self.other_holder(node, id)?;
            let known = self.stored(other, "CONTEXT", id)?;
            wait.until(&format!("node {node} has record {id}"), || {
                Ok(self.stored(node, "CONTEXT", id)? == known)
            })?;
        }
        Ok(())
    }

    /// A node's record, or a part of it.
    fn stored(&mut self, node: NodeId, part: &str, id: u64) -> Result<Option<Vec<u8>>> {
        let mut request = self.request("FONDACO.RGET");
        request.arg(part).arg(self.store.as_str()).arg(&key(id));
        let records: Vec<Option<Vec<u8>>> = request.query(self.connection(node)?)?;
        Ok(records.into_iter().next().flatten())
    }

    /// Waits until a node has built all of its hash trees.
    pub fn wait_for_trees(&mut self, node: NodeId, wait: Wait) -> Result<()> {
        for partition in self.partitions.partitions() {
            if !self.holders_of(partition).contains(&node) {
                continue;
            }
            let what = format!("node {node} has the hash tree of partition {partition}");
            wait.until(&what, || Ok(self.tree(node, partition).is_some()))?;
        }
        Ok(())
    }

    /// Waits until all replicas of all partitions are equal according to their hash trees, whose number of leaves must
    /// fit this many keys in the whole store. Partitions that were equal once are not checked again: nothing is
    /// written.
    pub fn wait_until_equal(&mut self, keys: u64, wait: Wait) -> Result<()> {
        // No partition has fewer keys.
        let keys = keys / u64::from(self.partitions.get()) * 9 / 10;
        for partition in self.partitions.partitions() {
            let holders = self.holders_of(partition).to_vec();
            let what = format!("the replicas of partition {partition} are equal");
            wait.until(&what, || {
                let trees: Option<Vec<Tree>> = holders.iter().map(|&node| self.tree(node, partition)).collect();
                let has_room = |tree: &Tree| LEAF_KEYS_MAX << tree.leaf_bits >= keys;
                Ok(trees.is_some_and(|trees| {
                    trees.iter().all(has_room) && trees.windows(2).all(|pair| pair[0].hashes == pair[1].hashes)
                }))
            })?;
        }
        Ok(())
    }

    /// The tree of a partition; `None` while the node cannot be reached, or is building it.
    fn tree(&mut self, node: NodeId, partition: PartitionId) -> Option<Tree> {
        let mut request = self.request("FONDACO.RTREE");
        let of = request.arg(self.store.as_str()).arg(self.partitions.get());
        of.arg(partition.get()).arg(0).arg(0);
        let answer = self
            .connection(node)
            .and_then(|connection| Ok(request.query::<(u8, u8, Vec<u8>)>(connection)?));
        match answer {
            Ok((leaf_bits, _is_whole, hashes)) => Some(Tree { leaf_bits, hashes }),
            Err(_) => {
                // The connection may have ended.
                self.connections.remove(&node);
                None
            }
        }
    }

    /// The beginning of a request between replicas without a routing table.
    fn request(&self, name: &str) -> Cmd {
        let mut request = cmd(name);
        request
            .arg(format!("v1;timeout={}", ANSWER_MAX.as_millis()))
            .arg(self.store_id);
        request
    }

    fn connection(&mut self, node: NodeId) -> Result<&mut Connection> {
        if !self.connections.contains_key(&node) {
            let address = self.addresses.get(&node).with_context(|| format!("no node {node}"))?;
            let connection = Client::open(format!("redis://{address}"))?.get_connection_with_timeout(ANSWER_MAX)?;
            connection.set_read_timeout(Some(ANSWER_MAX))?;
            self.connections.insert(node, connection);
        }
        self.connections
            .get_mut(&node)
            .context("a connection that was just made")
    }
}

/// Reads the answer to a request that sent records.
fn merged(connection: &mut Connection) -> Result<()> {
    let answer = connection.recv_response()?;
    ensure!(answer == Value::Okay, "the answer to merged records is {answer:?}");
    Ok(())
}

/// A record as its first writer stores it.
fn first_record(writer: NodeId, id: u64, value_bytes: usize) -> Result<Vec<u8>> {
    let mut value = Vec::with_capacity(value_bytes);
    append_value(id, value_bytes, &mut value);
    let replica = ReplicaId {
        node: writer,
        incarnation: INCARNATION,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let update = Update::put(Bytes::from(value), now.as_millis() as u64, None);
    let nothing = VectorClock::new();
    let record = Record::write(None, &mut DotSource::new(replica, 0), Over::All(&nothing), update)?;
    Ok(record.to_bytes())
}
