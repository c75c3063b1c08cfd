//! Moving partitions: a write acknowledged under one routing table is read under the next.

use std::collections::BTreeMap;

use fondaco_client::quorum::QuorumPart;
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Record, VectorClock};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{ReplicaCommand, ReplicaErrorCode};
use proptest::prelude::*;

use super::script::{begin_get, begin_put, first_key, no_quorum, put, read, values, written};
use super::world::{Faults, Shape, World, id};

const COMMANDS: [&str; 3] = ["FONDACO.RGET", "FONDACO.RPUT", "FONDACO.RMERGE"];

/// A partition that a plan moves.
struct Move {
    world: World,
    shape: Shape,
    now: Vec<NodeId>,
    next: Vec<NodeId>,
}

impl Move {
    /// Six nodes; 1, 2 and 3 own the key that is written, and `next` will own it.
    fn new(seed: u64, shape: Shape, home: Option<u32>, next: &[u32]) -> Self {
        let mut moving = Self {
            world: World::new(seed, &shape, home),
            now: [1, 2, 3].map(id).to_vec(),
            next: next.iter().copied().map(id).collect(),
            shape,
        };
        moving.refuse(|owners, _, node| !owners.contains(&node));
        moving
    }

    /// Makes the nodes for which `refuses` returns true answer that they lack the partition, and all others accept
    /// requests.
    fn refuse(&mut self, refuses: impl Fn(&[NodeId], &[NodeId], NodeId) -> bool) {
        for (&node, replica) in &mut self.world.replicas {
            replica.refuses.clear();
            if refuses(&self.now, &self.next, node) {
                let all = COMMANDS.map(|command| (command, ReplicaErrorCode::NotHere));
                replica.refuses.extend(all);
            }
        }
    }

    fn adopt(&mut self, epoch: u64, change: impl FnOnce(&mut Topology, PartitionId)) {
        let mut topology = self.shape.topology(|_| true);
        let partition = topology.partitions.partition_of(first_key().slot());
        (topology.epoch, topology.revision) = (epoch, epoch);
        change(&mut topology, partition);
        self.world.adopt(topology);
    }

    /// The plan starts, and its coordinators learn of it.
    fn begin(&mut self, is_told_who_is_next: bool) {
        let next = self.next.clone();
        self.adopt(2, |topology, partition| {
            if is_told_who_is_next {
                topology.joint.insert(partition, next);
            }
        });
    }

    /// The next owners get the records of the current owners.
    fn synchronise(&mut self) {
        self.refuse(|now, next, node| !now.contains(&node) && !next.contains(&node));
        let mut all: BTreeMap<_, Record> = BTreeMap::new();
        for node in &self.now {
            for (key, record) in &self.world.replicas[node].records {
                let known = all.entry(key.clone()).or_default();
                *known = known.merge(record);
            }
        }
        for node in self.next.iter().filter(|node| !self.now.contains(node)) {
            let replica = self.world.replicas.get_mut(node).unwrap();
            for (key, record) in &all {
                let known = replica.records.entry(key.clone()).or_default();
                *known = known.merge(record);
            }
        }
    }

    /// Lets a tenth of a second pass, in which no operation may end.
    fn wait_in_vain(&mut self, why: &str) {
        while self.world.now_us < 100_000 {
            assert_eq!(self.world.step(), Some(Vec::new()), "{why}");
        }
    }

    /// Each of the next owners has this value, and no other.
    fn assert_next_have(&self, key: &WireKey, value: &str) {
        for node in &self.next {
            let record = &self.world.replicas[node].records[key.key()];
            assert_eq!(values(record), [value], "node {node}");
        }
    }

    fn finish(&mut self) {
        let next = self.next.clone();
        self.adopt(3, |topology, partition| {
            topology.owners[partition.get() as usize] = next
        });
        self.refuse(|_, next, node| !next.contains(&node));
    }
}

fn majority() -> Shape {
    Shape::of(6, 3)
}

/// Writes and reads a key concurrently while a plan starts and ends, and checks each operation against its promise.
fn run(seed: u64, shape: Shape, faults: Faults, home: Option<u32>, next: &[u32], is_told: bool) {
    const OPERATIONS: usize = 32;
    let key = first_key();
    let mut moving = Move::new(seed, shape, home, next);
    moving.world.faults = faults;
    let mut running: BTreeMap<usize, (bool, usize)> = BTreeMap::new();
    let mut acknowledged: Vec<VectorClock> = Vec::new();
    for begun in 0..=OPERATIONS {
        match begun {
            8 => moving.begin(is_told),
            12 => moving.synchronise(),
            20 => moving.finish(),
            _ => {}
        }
        while begun == OPERATIONS || running.len() > moving.world.random.usize(..3) {
            let Some(answered) = moving.world.step() else { break };
            for at in answered {
                let (is_write, after) = running.remove(&at).unwrap();
                let context = match is_write {
                    true => written(&mut moving.world, at).map(|written| written.context),
                    false => read(&mut moving.world, at)
                        .pop()
                        .unwrap()
                        .map(|record| record.context().clone()),
                };
                let Ok(context) = context else { continue };
                for earlier in &acknowledged[..after] {
                    assert!(
                        context.covers_all(earlier),
                        "{earlier:?} was acknowledged, but {context:?} does not cover it"
                    );
                }
                if is_write {
                    acknowledged.push(context);
                }
            }
        }
        if begun < OPERATIONS {
            let is_write = moving.world.random.bool();
            let at = match is_write {
                true => begin_put(&mut moving.world, &key, &format!("v{begun}")),
                false => begin_get(&mut moving.world, std::slice::from_ref(&key)),
            };
            running.insert(at, (is_write, acknowledged.len()));
        }
    }
    assert!(running.is_empty());
}

fn settings() -> impl Strategy<Value = Shape> {
    (1..=3u32, 0..3u32, 1..=2u32).prop_map(|(reads, more, zones)| {
        majority().zones(zones).with(|settings| {
            settings.reads = reads;
            settings.writes = (4 - reads + more).min(3);
            settings.preferred_reads = reads;
            settings.preferred_writes = settings.writes;
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn a_write_acknowledged_before_a_switch_is_read_after_it(
        seed: u64,
        shape in settings(),
        home in prop_oneof![Just(None), Just(Some(1)), Just(Some(4))],
        next in Just([1, 2, 3, 4, 5, 6]).prop_shuffle(),
        unsent in 0..200u32,
        lost in 0..100u32,
        slow in 0..100u32,
    ) {
        let faults = Faults { unsent, lost, slow, ..Faults::default() };
        run(seed, shape, faults, home, &next[..3], true);
    }
}

#[test]
fn without_the_next_owners_the_switch_would_lose_a_write() {
    let faults = Faults {
        unsent: 100,
        ..Faults::default()
    };
    let one = |seed| run(seed, majority(), faults, None, &[4, 5, 6], false);
    assert!((0..100).any(|seed| std::panic::catch_unwind(|| one(seed)).is_err()));
}

#[test]
fn the_next_owners_get_writes_but_no_reads() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), Some(4), &[2, 4, 5]);
    moving.begin(true);
    moving.synchronise();
    let (at, written) = put(&mut moving.world, &key, "v");
    written.unwrap();
    let asked = moving.world.asked(at);
    assert_eq!(asked.nodes(ReplicaCommand::Put), [1]);
    let mut merges = asked.nodes(ReplicaCommand::Merge);
    merges.sort_unstable();
    assert_eq!(merges, [2, 3, 4, 5]);
    let read = begin_get(&mut moving.world, &[key]);
    moving.world.answer(read);
    let read = moving.world.asked(read).nodes(ReplicaCommand::Get);
    assert!(read.iter().all(|node| [1, 2, 3].contains(node)), "{read:?}");
}

#[test]
fn next_owners_are_asked_for_their_context() {
    let shape = Shape::of(6, 1);
    let (mut moving, key) = (Move::new(1, shape, None, &[4]), first_key());
    moving.now = vec![id(1)];
    let (at, _) = put(&mut moving.world, &key, "v");
    assert_eq!(moving.world.asked(at).nodes(ReplicaCommand::Get), [0; 0]);
    moving.begin(true);
    moving.synchronise();
    let (at, written) = put(&mut moving.world, &key, "w");
    written.unwrap();
    let asked = moving.world.asked(at);
    assert_eq!(asked.nodes(ReplicaCommand::Get), [1]);
    assert_eq!(asked.nodes(ReplicaCommand::Put), [1]);
    assert_eq!(asked.nodes(ReplicaCommand::Merge), [4]);
    assert_eq!(values(&moving.world.healed(&key)), ["w"]);
}

#[test]
fn a_write_fails_if_too_few_next_owners_take_it() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), None, &[1, 4, 5]);
    moving.begin(true);
    moving.synchronise();
    moving.world.replica(4).is_up = false;
    put(&mut moving.world, &key, "v").1.unwrap();
    moving.world.replica(5).is_up = false;
    let shortfall = no_quorum(put(&mut moving.world, &key, "w").1);
    assert_eq!(
        (shortfall.part, shortfall.had, shortfall.required),
        (QuorumPart::Writes, 1, 2)
    );
    let missing: Vec<u32> = shortfall.missing.iter().map(|missing| missing.node.get()).collect();
    assert_eq!(missing, [4, 5]);
}

#[test]
fn the_next_owners_get_a_write_that_is_in_flight() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), None, &[4, 5, 6]);
    let at = begin_put(&mut moving.world, &key, "v");
    moving.begin(true);
    moving.synchronise();
    moving.world.answer(at);
    written(&mut moving.world, at).unwrap();
    moving.world.finish();
    moving.assert_next_have(&key, "v");
}

#[test]
fn a_waiting_write_loses_its_quorum_when_a_plan_begins() {
    let key = first_key();
    let shape = || majority().with(|settings| settings.preferred_writes = 3);
    for (node, steps) in (1..=3).flat_map(|node| (1..20).map(move |steps| (node, steps))) {
        let mut moving = Move::new(1, shape(), None, &[4, 5, 6]);
        // The write waits for it, since three replicas are preferred.
        moving.world.replica(node).delay_us = 50_000;
        let at = begin_put(&mut moving.world, &key, "v");
        for _ in 0..steps {
            moving.world.step();
        }
        moving.begin(true);
        moving.synchronise();
        moving.world.finish();
        written(&mut moving.world, at).unwrap();
    }
}

#[test]
fn a_write_waits_for_next_owners_unaware_of_the_plan() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), None, &[4, 5, 6]);
    moving.begin(true);
    let at = begin_put(&mut moving.world, &key, "v");
    moving.wait_in_vain("no next owner has it");
    moving.synchronise();
    moving.world.answer(at);
    written(&mut moving.world, at).unwrap();
}

/// The owners know of a plan that started at epoch 2, and take no writes by an earlier table.
fn refuse_old_writes(moving: &mut Move, nodes: &[u32]) {
    for &node in nodes {
        let old_before = &mut moving.world.replica(node).old_before;
        old_before.extend([("FONDACO.RPUT", 2), ("FONDACO.RMERGE", 2)]);
    }
}

#[test]
fn a_coordinator_unaware_of_a_plan_fetches_it_and_writes() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), None, &[4, 5, 6]);
    refuse_old_writes(&mut moving, &[1, 2, 3]);
    let at = begin_put(&mut moving.world, &key, "v");
    moving.wait_in_vain("no replica takes it by the old table");
    moving.begin(true);
    moving.synchronise();
    moving.world.answer(at);
    written(&mut moving.world, at).unwrap();
    moving.world.finish();
    moving.assert_next_have(&key, "v");
}

#[test]
fn a_read_by_an_old_table_is_repeated() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), None, &[4, 5, 6]);
    moving.begin(true);
    moving.synchronise();
    put(&mut moving.world, &key, "v").1.unwrap();
    for node in [2, 3] {
        moving.world.replica(node).old_before.insert("FONDACO.RGET", 3);
    }
    let at = begin_get(&mut moving.world, std::slice::from_ref(&key));
    moving.wait_in_vain("one answer is not a quorum");
    moving.finish();
    moving.world.answer(at);
    let record = read(&mut moving.world, at).pop().unwrap().unwrap();
    assert_eq!(values(&record), ["v"]);
    let asked = moving.world.asked(at).nodes(ReplicaCommand::Get);
    assert!(asked.iter().any(|node| *node > 3), "{asked:?}");
}

#[test]
fn a_replica_ahead_of_the_coordinator_gets_a_hint() {
    let key = first_key();
    let mut moving = Move::new(1, majority(), Some(1), &[4, 5, 6]);
    refuse_old_writes(&mut moving, &[3]);
    let (at, written) = put(&mut moving.world, &key, "v");
    written.unwrap();
    let hints = moving.world.asked(at).hints();
    assert!(hints.iter().any(|&(target, _)| target == 3), "{hints:?}");
}

#[test]
fn repairs_depend_on_no_routing_table() {
    let (mut moving, key) = (Move::new(1, majority(), Some(1), &[4, 5, 6]), first_key());
    put(&mut moving.world, &key, "v").1.unwrap();
    for node in [2, 3] {
        moving.world.replica(node).records.clear();
    }
    refuse_old_writes(&mut moving, &[1, 2, 3]);
    let at = begin_get(&mut moving.world, std::slice::from_ref(&key));
    moving.world.finish();
    assert_eq!(values(&read(&mut moving.world, at).pop().unwrap().unwrap()), ["v"]);
    let repaired = moving.world.asked(at).nodes(ReplicaCommand::Merge);
    assert!(!repaired.is_empty());
    for node in repaired {
        assert!(
            moving.world.replicas[&id(node)].records.contains_key(key.key()),
            "node {node}"
        );
    }
}
