//! The end of a run: whether replicas have become equal, and whether their content is possible.

use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_model::versioned::{Record, Resolution, record_hash, resolve};
use fondaco_model::{PartitionId, slot_of_key};
use fondaco_protocol::replica::{RecordPart, ReplicaOperation, ReplicaReply};
use fondaco_replica::tree_position;
use xxhash_rust::xxh3::xxh3_64;

use super::coordinator::{count, values};
use super::replica::{Replica, decode};
use super::world::World;

/// The offset of the key in a key of the table: after its position.
const KEY_AT: usize = 8;

impl World {
    /// Why the run has not settled yet; `None` if it has.
    pub(super) fn unsettled(&self) -> Option<String> {
        for (process, at) in self.processes.iter().enumerate() {
            if !at.coordinator.is_idle() {
                return Some(format!("{process} has operations in progress"));
            }
            let life = at.replica.as_ref().and_then(|replica| replica.life.as_ref());
            let hinted = life.map_or(0, |life| life.driven.hinted_nodes());
            if hinted > 0 {
                return Some(format!("{process} keeps hints for {hinted} nodes"));
            }
        }
        let moving = self.moving();
        if moving.is_some() {
            return moving;
        }
        for partition in self.table.partitions().partitions() {
            let mut held = Vec::new();
            for replica in self.replicas_of(partition) {
                match replica.records(partition) {
                    Some(records) => held.push((replica.node, records)),
                    None => return Some(format!("node {} may lack some of partition {partition}", replica.node)),
                }
            }
            let Some(((first, here), others)) = held.split_first() else {
                continue;
            };
            if let Some((other, there)) = others.iter().find(|(_, there)| there != here) {
                return Some(format!(
                    "nodes {first} and {other} differ in partition {partition}:\n{:#?}\n{:#?}",
                    words(here),
                    words(there)
                ));
            }
        }
        self.check_trees().err()
    }

    /// Reads the unreadable records, as clients occasionally do: so the damage is found.
    pub(super) fn read_what_is_spoilt(&self) {
        for replica in self.processes.iter().filter_map(|process| process.replica.as_ref()) {
            for table_key in replica.disk().unreadable() {
                let operation = ReplicaOperation::Get {
                    part: RecordPart::Full,
                    keys: vec![table_key.slice(KEY_AT..)],
                };
                // The replica replies with an error.
                replica.ask_now(self.store.request(operation));
            }
        }
    }

    /// Checks the final state against the guarantees.
    pub(super) fn judge(&mut self) {
        let mut checked = Ok(());
        let keys: Vec<Bytes> = match self.scenario.counts() {
            true => self.sums.keys().cloned().collect(),
            false => self.history.keys().cloned().collect(),
        };
        for key in keys {
            let partition = self.store.partition_of(&key, self.table.partitions());
            let held = self
                .replicas_of(partition)
                .next()
                .and_then(|replica| replica.records(partition));
            let record = held.and_then(|held| decode(held.get(&key)?)).unwrap_or_default();
            let outcome = match self.scenario.settings.resolution {
                Resolution::Counter => self.sums.settled(&key, count(&record, self.now_us / 1000)),
                Resolution::Latest => {
                    let latest = resolve(&record, Resolution::Latest, self.now_us / 1000);
                    let resolved = self.history.resolved(&key, latest.value(), u64::MAX);
                    resolved.and(self.history.settled(&key, &values(&record)))
                }
                _ => self.history.settled(&key, &values(&record)),
            };
            checked = checked.and(outcome.map_err(|broken| format!("in the end: {broken}")));
        }
        if let Err(what) = checked {
            self.violated(what);
        }
    }

    /// Checks that the Merkle trees match the records.
    fn check_trees(&self) -> Result<(), String> {
        for partition in self.table.partitions().partitions() {
            for replica in self.replicas_of(partition) {
                let mut expected = [0; 16];
                for (key, record) in replica.records(partition).unwrap_or_default() {
                    let slot = slot_of_key(&self.store.name, &key);
                    let position = tree_position(self.table.partitions(), slot, xxh3_64(&key));
                    expected[(position >> 60) as usize] ^= record_hash(position, Record::digest(&record));
                }
                let operation = ReplicaOperation::Tree {
                    partitions: self.table.partitions(),
                    partition,
                    depth: 0,
                    nodes: vec![0],
                };
                match replica.ask_now(self.store.request(operation)) {
                    Some(ReplicaReply::Hashes { nodes, .. }) if nodes == [expected] => {}
                    other => {
                        return Err(format!(
                            "node {}: the Merkle tree of {partition} does not match its records: {other:?}",
                            replica.node
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn replicas_of(&self, partition: PartitionId) -> impl Iterator<Item = &Replica> {
        let owners = self.table.owners(partition);
        let owners = &owners[..owners.len().min(self.copies().owners)];
        let replicas = self.processes.iter().filter_map(|process| process.replica.as_ref());
        replicas.filter(move |replica| owners.contains(&replica.node))
    }
}

fn words(records: &BTreeMap<Bytes, Bytes>) -> Vec<String> {
    let words = |(key, record): (&Bytes, &Bytes)| format!("{key:?}: {:?}", decode(record));
    records.iter().map(words).collect()
}
