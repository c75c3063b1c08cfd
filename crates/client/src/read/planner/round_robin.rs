//! Each partition's nodes in turn.

use std::iter::repeat_n;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fastrand::Rng;
use fondaco_model::{PartitionCount, PartitionId};
use fondaco_protocol::WireKey;

use super::{Context, Lot, ManyKeys, Strategy, key_count, mixed};

/// The queues of the partitions' nodes, of one client.
///
/// A queue is its list of nodes and a counter: the counter says which node is at the head, and counting up puts the head
/// at the end. A list without some of its nodes is a shorter queue. Takes no lock.
#[derive(Debug)]
pub struct Turns(Box<[AtomicU32]>);

impl Turns {
    /// The queues of this number of partitions. Each begins at another place, since lists are alike: the first
    /// requests would otherwise all ask the same few nodes.
    pub fn new(partitions: PartitionCount) -> Self {
        let begin = |partition: PartitionId| AtomicU32::new(mixed(u64::from(partition.get())) as u32);
        Self(partitions.partitions().map(begin).collect())
    }

    /// The number of the partition's turn, and the next one for the caller that follows.
    #[inline]
    pub fn next(&self, partition: PartitionId) -> u32 {
        let turn = self.0.get(partition.get() as usize);
        turn.map_or(0, |turn| turn.fetch_add(1, Relaxed))
    }

    pub(in crate::read) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The turns of one request: one for each partition, which all its lots share.
#[derive(Default)]
pub(super) struct RequestTurns(Option<(PartitionId, u32)>);

impl RequestTurns {
    /// The turn of a lot's partition. Lots of one partition stand side by side.
    pub(super) fn of(&mut self, lot: &Lot<'_>, context: &Context<'_>) -> u32 {
        match self.0 {
            Some((partition, turn)) if partition == lot.partition => turn,
            _ => {
                let turn = context.turns.next(lot.partition);
                self.0 = Some((lot.partition, turn));
                turn
            }
        }
    }
}

/// Each partition has a queue of its nodes: a request asks the node at the head, which then goes to the end.
///
/// As the load balancer of Norbert (Cho et al., "Moolle: Fan-out Control for Scalable Distributed Data Stores", II.B).
/// Loads are even, but a request of many keys asks nearly all nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin;

impl Strategy for RoundRobin {
    fn choose(&self, _key: &WireKey, lot: &Lot<'_>, context: &Context<'_>, _random: &mut Rng) -> usize {
        context.turns.next(lot.partition) as usize % lot.candidates.len()
    }

    fn for_many(&self) -> Option<&dyn ManyKeys> {
        Some(self)
    }
}

impl ManyKeys for RoundRobin {
    fn assign(&self, lots: &[Lot<'_>], context: &Context<'_>, _random: &mut Rng) -> Vec<u32> {
        let (mut turns, mut chosen) = (RequestTurns::default(), Vec::with_capacity(key_count(lots)));
        for lot in lots {
            let head = turns.of(lot, context) % lot.candidates.len() as u32;
            chosen.extend(repeat_n(head, lot.keys.len()));
        }
        chosen
    }
}
