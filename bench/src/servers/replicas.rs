//! The replicas of a versioned store, asked as they ask one another: filled without a coordinator, and compared by
//! their hash trees.

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

use super::cluster::{Wait, wait_until};
use crate::dataset::{append_value, key};
use crate::load::library::Library;

const ANSWER_MAX: Duration = Duration::from_secs(60);
const START_WAIT: Wait = Wait {
    limit: ANSWER_MAX,
    poll: Duration::from_millis(20),
};
/// How many records one request brings, and how many requests of a connection are under way: less than a node lets
/// wait of one connection.
const REQUEST_RECORDS: usize = 128;
const UNDER_WAY: usize = 8;
/// Nobody counts under it: nodes begin with the seconds since 1970.
const INCARNATION: u32 = 1;

/// The replicas of a store.
pub struct Replicas {
    store: StoreName,
    store_id: u16,
    partitions: PartitionCount,
    /// Who holds which partition.
    holders: Vec<Vec<NodeId>>,
    addresses: BTreeMap<NodeId, SocketAddr>,
    connections: BTreeMap<NodeId, Connection>,
}

/// What the hash tree of a partition says of all of it.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    /// How many bits tell its leaves apart.
    leaf_bits: u8,
    /// The hashes of the nodes below the root.
    hashes: Vec<u8>,
}

impl Replicas {
    /// Those of a store of a cluster, by one of its processes; returns when all of them are there.
    pub fn of(seed: SocketAddr, store: &str) -> Result<Self> {
        let store: StoreName = store.parse()?;
        let mut known = None;
        wait_until("the store is known", || {
            let topology = Library::connect(seed, ReadOptions::default())?.topology()?;
            known = Some(topology).filter(|topology| topology.stores.contains_key(&store));
            Ok(known.is_some())
        })?;
        let topology = known.context("a cluster without a topology")?;
        let of_store = topology.stores.get(&store).context("a store that is not known")?;
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

    /// The node with the highest number, and where it serves.
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

    /// Writes records of a dataset to all that hold them, in the order in which tables keep them.
    pub fn fill(&mut self, records: Range<u64>, value_bytes: usize) -> Result<()> {
        let mut order: Vec<(PartitionId, u64, u64)> = records
            .map(|id| (self.partition_of(id), xxh3_64(&key(id)), id))
            .collect();
        order.sort_unstable();
        let mut under_way: BTreeMap<NodeId, VecDeque<()>> = BTreeMap::new();
        for same in order.chunk_by(|one, other| one.0 == other.0) {
            let holders = self.holders_of(same[0].0).to_vec();
            let writer = *holders.first().context("a partition that nobody holds")?;
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

    /// A node that holds a record, other than this one.
    fn other_holder(&self, node: NodeId, id: u64) -> Result<NodeId> {
        let holders = self.holders_of(self.partition_of(id));
        let other = holders.iter().find(|&&holder| holder != node);
        other.copied().context("no other replica")
    }

    /// The length of a record with its key, as a replica other than that of this node has it.
    pub fn stored_bytes(&mut self, but: NodeId, id: u64) -> Result<u64> {
        let holder = self.other_holder(but, id)?;
        let record = self.stored(holder, "FULL", id)?;
        let record = record.with_context(|| format!("record {id} is not there"))?;
        Ok((key(id).len() + record.len()) as u64)
    }

    /// Waits until a node has seen what other replicas have seen of each of these records.
    ///
    /// Who asks for hash trees instead would delay what is waited for: a replica takes it for a comparison that is
    /// under way.
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

    /// What a node has of a record, or a part of that.
    fn stored(&mut self, node: NodeId, part: &str, id: u64) -> Result<Option<Vec<u8>>> {
        let mut request = self.request("FONDACO.RGET");
        request.arg(part).arg(self.store.as_str()).arg(&key(id));
        let records: Vec<Option<Vec<u8>>> = request.query(self.connection(node)?)?;
        Ok(records.into_iter().next().flatten())
    }

    /// Waits until a node has made all of its hash trees.
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

    /// Waits until all replicas of all partitions are equal, by their hash trees, and these have as many leaves as
    /// so many keys of the whole store need. What was equal once is not looked at again: nothing is written.
    pub fn wait_until_equal(&mut self, keys: u64, wait: Wait) -> Result<()> {
        // No partition has so few.
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

    /// The tree of a partition; none while the node cannot be asked, or makes it.
    fn tree(&mut self, node: NodeId, partition: PartitionId) -> Option<Tree> {
        let mut request = self.request("FONDACO.RTREE");
        request.arg(self.store.as_str()).arg(partition.get()).arg(0).arg(0);
        let answer = self
            .connection(node)
            .and_then(|connection| Ok(request.query::<(u8, u8, Vec<u8>)>(connection)?));
        match answer {
            Ok((leaf_bits, _is_whole, hashes)) => Some(Tree { leaf_bits, hashes }),
            Err(_) => {
                // It may have ended.
                self.connections.remove(&node);
                None
            }
        }
    }

    /// The beginning of a request between replicas, which goes by no routing table.
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

/// Reads the answer to a request that brought records.
fn merged(connection: &mut Connection) -> Result<()> {
    let answer = connection.recv_response()?;
    ensure!(
        answer == Value::Okay,
        "records that are merged are answered by {answer:?}"
    );
    Ok(())
}

/// A record as its first writer has it.
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
