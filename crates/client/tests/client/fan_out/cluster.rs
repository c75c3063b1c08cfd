//! A cluster without a network: its placement is that of real clusters, and every node answers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use fondaco_client::operation::{Environment, Operation};
use fondaco_client::read::{Answer, Effort, Element, Failure, Read, Steering, SteeringPolicy, Strategy};
use fondaco_client::{ReadOptions, WireKey};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{Member, NodeId, PartitionCount, Placement, place};
use fondaco_simulation::Caller;

/// How long a node takes to answer.
pub const ANSWER_US: u64 = 700;

pub struct Cluster {
    pub caller: Caller,
    /// A key of each partition.
    pub keys: Vec<WireKey>,
    pub now_us: u64,
}

/// How a cluster is made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub placement: Placement,
    pub groups: u32,
    pub nodes_per_group: u32,
    pub partitions: u32,
    /// The share of nodes that are not live.
    pub dead: f64,
}

/// The outcome of a request.
pub struct Outcome {
    /// The nodes with the places of the keys that they were asked for.
    pub asked: BTreeMap<NodeId, Vec<u32>>,
    pub effort: Effort,
}

impl Cluster {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let partitions = PartitionCount::try_from(shape.partitions).unwrap();
        let topology = topology(shape, partitions, &mut random);
        let mut caller = Caller::new(topology, Some("zone-1"));
        caller.steering = Steering::new(&SteeringPolicy::default()).with_seed(seed);
        Self {
            caller,
            keys: key_of_each(partitions),
            now_us: 1_000_000,
        }
    }

    fn env(&self) -> Environment<'_> {
        self.caller.env(self.now_us, 0)
    }

    /// Keys of distinct partitions.
    pub fn distinct(&self, count: usize, random: &mut Rng) -> Vec<WireKey> {
        random.choose_multiple(self.keys.iter().cloned(), count)
    }

    /// Carries out a request, and checks that each key is asked for once, of a holder. Nodes in `refusing` do not take
    /// it, so that their keys are asked of others.
    pub fn ask(&mut self, keys: &[WireKey], options: &ReadOptions, refusing: &BTreeSet<NodeId>) -> Outcome {
        let all = Arc::new(keys.to_vec());
        let mut read = Read::start(all, options.clone(), &self.env()).unwrap();
        let mut asked = BTreeMap::<NodeId, Vec<u32>>::new();
        while !read.is_over() {
            let mut answers = Vec::new();
            while let Some(sub) = read.next_send(&self.env()) {
                if refusing.contains(&sub.node) {
                    read.on_failure(sub.id, Failure::Unsent("it is full".into()), &self.env());
                    continue;
                }
                asked.entry(sub.node).or_default().extend(&sub.request.places);
                answers.push((sub.id, sub.request.keys().map(|_| Element::Value(None)).collect()));
            }
            assert!(!answers.is_empty(), "it waits for nothing");
            self.now_us += ANSWER_US;
            for (id, elements) in answers {
                read.on_reply(id, Answer::Elements(elements), &self.env());
            }
        }
        let mut places: Vec<u32> = asked.values().flatten().copied().collect();
        places.sort_unstable();
        assert_eq!(places, (0..keys.len() as u32).collect::<Vec<_>>(), "each key once");
        for (node, places) in &asked {
            for &place in places {
                let holders = self.holders(&keys[place as usize]);
                assert!(holders.contains(node), "{node} does not hold it");
            }
        }
        Outcome {
            asked,
            effort: read.finish().unwrap().effort,
        }
    }

    /// The nodes that hold a key.
    pub fn holders(&self, key: &WireKey) -> &[NodeId] {
        let topology = self.caller.directory.topology();
        let replicas = topology.stores["s"].replicas as usize;
        let owners = &topology.owners[topology.partitions.partition_of(key.slot()).get() as usize];
        &owners[..owners.len().min(replicas)]
    }

    pub fn group_of(&self, node: NodeId) -> u32 {
        self.caller.directory.member(node).unwrap().group
    }
}

pub fn options(strategy: impl Strategy + 'static, groups: usize) -> ReadOptions {
    ReadOptions {
        strategy: Some(Arc::new(strategy)),
        fan_out: fondaco_client::read::FanOut::Groups(groups),
        ..ReadOptions::default()
    }
}

fn topology(shape: Shape, partitions: PartitionCount, random: &mut Rng) -> Topology {
    let id = |number: u32| NodeId::new(number).unwrap();
    let mut numbers: Vec<u32> = (1..=shape.groups * shape.nodes_per_group).collect();
    random.shuffle(&mut numbers);
    let grouped = shape.placement == Placement::Grouped;
    let members: Vec<Member> = (0..)
        .zip(&numbers)
        .map(|(at, &number)| Member {
            id: id(number),
            zone: format!("zone-{}", at % 3),
            group: grouped.then(|| format!("group-{}", at % shape.groups)),
            host: None,
            weight: 1,
        })
        .collect();
    let owners = place(shape.placement, partitions, shape.groups, &members).unwrap();
    let node = |member: &Member| {
        let node = TopologyNode {
            group: member.group.clone(),
            live: random.f64() >= shape.dead,
            ..TopologyNode::live(format!("node-{}:6500", member.id), &member.zone)
        };
        (member.id, node)
    };
    let store = TopologyStore::batch(shape.groups);
    let stores = [("s".parse().unwrap(), store)];
    Topology::first(partitions, owners, members.iter().map(node), stores)
}

fn key_of_each(partitions: PartitionCount) -> Vec<WireKey> {
    let mut keys = vec![None; partitions.get() as usize];
    let mut missing = keys.len();
    for number in 0.. {
        let key = WireKey::parse(format!("s:{number}").into()).unwrap();
        let place = &mut keys[partitions.partition_of(key.slot()).get() as usize];
        if place.is_none() {
            *place = Some(key);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    keys.into_iter().flatten().collect()
}
