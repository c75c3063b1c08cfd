//! Two replicas are compared: the real exchange, over the simulated network.

use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_model::versioned::{Durability, VectorClock};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::replica::{Held, KeyRecord, LeafDigests, RecordPart, ReplicaOperation, ReplicaReply};
use fondaco_replica::exchange::{Exchange, Hashes, LeafEntry, Own, Step};

use super::replica::decode;
use super::upkeep::Chore;
use super::world::World;

/// An exchange under way.
#[derive(Debug)]
pub(super) struct Comparing {
    partition: u32,
    peer: NodeId,
    /// The epoch of the table that the other is to know, if the node is to own the partition by it.
    epoch: Option<NonZeroU64>,
    turn: u64,
    began_ms: u64,
    exchange: Exchange,
    /// Whether the other has lost nothing, as far as it says.
    is_whole: bool,
    waits_for: Waiting,
}

/// What it waits for.
#[derive(Debug)]
enum Waiting {
    Nothing,
    Hashes { depth: u8, nodes: Vec<u32> },
    Differences { own: Vec<LeafEntry> },
    Records { keys: Vec<Bytes> },
    Taken,
}

impl World {
    /// A node begins to compare a partition with another one.
    pub(super) fn begin_comparing(&mut self, process: usize, partition: u32, peer: NodeId) {
        let Some(replica) = &self.processes[process].replica else {
            return;
        };
        let is_to_own = replica.is_to_own(partition);
        let comparing = Comparing {
            partition,
            peer,
            epoch: NonZeroU64::new(replica.table.epoch()).filter(|_| is_to_own),
            turn: replica.partitions.get(&partition).map_or(0, |partition| partition.turn),
            began_ms: self.now_us / 1000,
            exchange: Exchange::new(),
            is_whole: true,
            waits_for: Waiting::Nothing,
        };
        self.go_on_comparing(process, Box::new(comparing), None);
    }

    /// Takes what has come, and asks for what is next.
    pub(super) fn go_on_comparing(
        &mut self,
        process: usize,
        mut comparing: Box<Comparing>,
        reply: Option<ReplicaReply>,
    ) {
        // What was not asked for, or cannot be kept, ends it: the next one will see.
        if self.heard(process, &mut comparing, reply).is_none() {
            return;
        }
        let now_unix_ms = self.unix_ms(process);
        let store = &self.store;
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let partition = PartitionId::new(comparing.partition);
        let (waits_for, operation) = match comparing.exchange.step() {
            Step::Compare { depth, nodes } => {
                let operation = ReplicaOperation::Tree {
                    partition,
                    depth,
                    nodes: nodes.clone(),
                };
                (Waiting::Hashes { depth, nodes }, operation)
            }
            Step::Sync { depth, leaves } => {
                let mut own = Vec::new();
                let mut digests = Vec::new();
                for leaf in leaves {
                    let entries = replica.leaf(store, comparing.partition, depth, leaf, now_unix_ms);
                    digests.push(LeafDigests {
                        leaf,
                        digests: entries.iter().map(|entry| entry.digest).collect(),
                    });
                    own.extend(entries);
                }
                let leaves = digests;
                let operation = ReplicaOperation::Sync {
                    partition,
                    depth,
                    leaves,
                };
                (Waiting::Differences { own }, operation)
            }
            Step::Get { keys } => {
                let operation = ReplicaOperation::Get {
                    part: RecordPart::Full,
                    keys: keys.clone(),
                };
                (Waiting::Records { keys }, operation)
            }
            Step::Give { keys } => {
                let record = |key: Bytes| {
                    let record = replica.record(store, &key)?.clone();
                    Some(KeyRecord { key, record })
                };
                let records = keys.into_iter().filter_map(record).collect();
                (Waiting::Taken, ReplicaOperation::Merge { records })
            }
            Step::Done => {
                if store.settings.durability == Durability::Fsync {
                    let mark = replica.disk.mark();
                    replica.disk.sync(mark);
                }
                let partition = replica.partitions.get_mut(&comparing.partition);
                if let Some(partition) = partition.filter(|partition| partition.turn == comparing.turn) {
                    let last = partition.exchanged.entry(comparing.peer).or_default();
                    *last = comparing.began_ms.max(*last);
                    if comparing.is_whole {
                        partition.whole.insert(comparing.peer);
                    }
                }
                self.outcome.exchanges += 1;
                return;
            }
        };
        comparing.waits_for = waits_for;
        let (peer, epoch) = (comparing.peer, comparing.epoch);
        let number = self.begin_chore(process, Chore::Comparing(comparing));
        self.ask_for_chore(process, number, peer, operation, epoch);
    }

    /// Takes what has come; nothing if that is not what was asked for.
    fn heard(&mut self, process: usize, comparing: &mut Comparing, reply: Option<ReplicaReply>) -> Option<()> {
        let now_unix_ms = self.unix_ms(process);
        let store = &self.store;
        let replica = self.processes[process].replica.as_mut()?;
        let is_held = replica.partitions.get(&comparing.partition)?.is_held;
        let waited_for = std::mem::replace(&mut comparing.waits_for, Waiting::Nothing);
        match (waited_for, reply) {
            (Waiting::Nothing, None) => {}
            (
                Waiting::Hashes { depth, nodes },
                Some(ReplicaReply::Hashes {
                    leaf_depth,
                    nodes: hashes,
                    is_whole,
                }),
            ) => {
                comparing.is_whole &= is_whole;
                let theirs = Hashes {
                    leaf_depth,
                    nodes: hashes,
                };
                let own = replica.hashes(comparing.partition, depth, &nodes);
                comparing.exchange.compared(depth, &nodes, &own, &theirs);
            }
            (
                Waiting::Differences { own },
                Some(ReplicaReply::Differences {
                    records,
                    contexts,
                    lacking,
                    is_whole,
                }),
            ) => {
                comparing.is_whole &= is_whole;
                // What is not held any more is only given away.
                if is_held {
                    replica.merge_all(store, records, now_unix_ms, false).ok()?;
                }
                let verdict = |pair: KeyRecord| {
                    let own = replica.record(store, &pair.key).and_then(|own| decode(own).ok());
                    let verdict = match (own, VectorClock::decode(&pair.record)) {
                        (Some(own), Ok(theirs)) => Own::Context(own.context().compare(&theirs)),
                        _ => Own::Missing,
                    };
                    (pair.key, verdict)
                };
                let differing: Vec<(Bytes, Own)> = contexts.into_iter().map(verdict).collect();
                comparing.exchange.synced(&own, differing, &lacking);
            }
            (Waiting::Records { keys }, Some(ReplicaReply::Records(records))) => {
                comparing.is_whole &= !records.contains(&Ok(Held::Nothing));
                let pairs = keys.into_iter().zip(records);
                let pairs = pairs.filter_map(|(key, record)| {
                    Some(KeyRecord {
                        key,
                        record: match record.ok()? {
                            Held::Record(record) => record,
                            Held::Nothing | Held::Same => return None,
                        },
                    })
                });
                if is_held {
                    replica.merge_all(store, pairs.collect(), now_unix_ms, false).ok()?;
                }
            }
            (Waiting::Taken, Some(ReplicaReply::Done)) => {}
            _ => return None,
        }
        Some(())
    }
}
