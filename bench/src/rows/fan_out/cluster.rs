//! The simulated cluster: its topology, and keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use fastrand::Rng;
use fondaco_client::WireKey;
use fondaco_client::operation::Environment;
use fondaco_client::quorum::QuorumCounters;
use fondaco_client::read::{Directory, HealthPolicy, Steering, SteeringPolicy};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Member, NodeId, PartitionCount, Placement, place};

/// The shape of the paper's cluster.
pub const GROUPS: u32 = 10;
pub const NODES_PER_GROUP: u32 = 20;
const PARTITIONS: u32 = 4096;
/// How many keys there are: more than the most that a query asks for.
const KEYS: u64 = 60_000;

/// A cluster without data.
pub struct Cluster {
    topology: Arc<Topology>,
    keys: Vec<WireKey>,
    /// A key of each partition.
    pub of_partitions: Arc<Vec<WireKey>>,
}

/// A client process, but for its event loop.
pub struct Client {
    pub directory: Arc<Directory>,
    pub steering: Steering,
    counts: QuorumCounters,
}

impl Cluster {
    /// The cluster of the paper, with this number of its groups.
    pub fn new(groups: u32) -> Result<Self> {
        let partitions = PartitionCount::try_from(PARTITIONS)?;
        let key = |number: u64| WireKey::parse(format!("s:{number}").into());
        let keys = (0..KEYS).map(key).collect::<Result<Vec<_>, _>>()?;
        let mut of_partitions = BTreeMap::new();
        for number in KEYS.. {
            let key = key(number)?;
            of_partitions.entry(partitions.partition_of(key.slot())).or_insert(key);
            if of_partitions.len() == PARTITIONS as usize {
                break;
            }
        }
        Ok(Self {
            topology: Arc::new(topology(groups, partitions)?),
            keys,
            of_partitions: Arc::new(of_partitions.into_values().collect()),
        })
    }

    /// A client whose strategies have this seed.
    pub fn client(&self, seed: u64) -> Client {
        let directory = Directory::new(Arc::clone(&self.topology), None, HealthPolicy::default(), None);
        Client {
            directory: Arc::new(directory),
            steering: Steering::new(&SteeringPolicy::default()).with_seed(seed),
            counts: QuorumCounters::default(),
        }
    }

    /// Distinct keys.
    pub fn keys(&self, count: usize, random: &mut Rng) -> Arc<Vec<WireKey>> {
        let mut places = BTreeSet::new();
        let mut keys = Vec::with_capacity(count);
        while keys.len() < count.min(self.keys.len() / 2) {
            let place = random.usize(..self.keys.len());
            if places.insert(place) {
                keys.push(self.keys[place].clone());
            }
        }
        Arc::new(keys)
    }
}

impl Client {
    pub fn env(&self, now_us: u64) -> Environment<'_> {
        Environment {
            now_us,
            now_unix_ms: 0,
            latest: &self.directory,
            steering: &self.steering,
            counts: &self.counts,
        }
    }
}

fn topology(groups: u32, partitions: PartitionCount) -> Result<Topology> {
    let members = (0..groups * NODES_PER_GROUP).map(|number| {
        Ok(Member {
            id: NodeId::new(number + 1).context("node numbers begin with 1")?,
            zone: format!("zone-{}", number % 3),
            group: Some(format!("group-{}", number % groups)),
            host: None,
            weight: 1,
        })
    });
    let members = members.collect::<Result<Vec<_>>>()?;
    let node = |member: &Member| {
        let node = TopologyNode {
            group: member.group.clone(),
            ..TopologyNode::live(format!("node-{}:6500", member.id), &member.zone)
        };
        (member.id, node)
    };
    let owners = place(Placement::Grouped, partitions, groups, &members)?;
    let stores = [("s".parse()?, TopologyStore::batch(groups))];
    Ok(Topology::first(partitions, owners, members.iter().map(node), stores))
}
