//! Which partitions a simulated replica holds, by the routing table that it goes by, and what it lets itself be asked of
//! them: by the rule of real ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::quorum::{ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaRequest};
use fondaco_model::{NodeId, PartitionId, RoutingTable};
use fondaco_replica::{admitted, has_caught_up};

use super::disk::RecordKey;
use super::replica::{Partition, Replica, Store};
use super::scenario::Flaw;

impl Replica {
    /// Goes by a newer routing table from now on.
    pub(super) fn adopt(&mut self, table: &Arc<RoutingTable>, replicas: usize) {
        if table.epoch() <= self.table.epoch() {
            return;
        }
        self.table = Arc::clone(table);
        for id in table.partitions().partitions() {
            let is_held = table.holds(self.node, id, replicas);
            match self.partitions.get_mut(&id.get()) {
                Some(partition) if is_held && partition.is_held && table.owners(id).contains(&self.node) => {}
                Some(partition) => {
                    (partition.is_held, partition.exchange_at_us) = (is_held, 0);
                    partition.turn += 1;
                    partition.exchanged.clear();
                    partition.found.clear();
                }
                None if is_held => drop(self.partitions.insert(id.get(), Partition::new(self.tree_keys))),
                None => {}
            }
        }
    }

    /// The other nodes that hold a partition, or are to, or take its writes until a plan is finished.
    pub(super) fn others(&self, number: u32) -> Vec<NodeId> {
        let id = PartitionId::new(number);
        let joint = self.table.joint(id).into_iter().flatten();
        let mut others: Vec<NodeId> = self.table.owners(id).iter().chain(joint).copied().collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|&node| node != self.node);
        others
    }

    /// Whether a partition is to be the node's own by a plan, and is not yet.
    pub(super) fn is_to_own(&self, number: u32) -> bool {
        let is_held = self.partitions.get(&number).is_some_and(|partition| partition.is_held);
        is_held && !self.table.owners(PartitionId::new(number)).contains(&self.node)
    }

    /// Answers reads of what it had lost, and has enough of again. These are the nodes that it takes to be there.
    pub(super) fn catch_up(&mut self, store: &Store, live: &BTreeSet<NodeId>) {
        for (&number, partition) in self.partitions.iter_mut().filter(|(_, partition)| partition.is_behind) {
            let owners = self.table.owners(PartitionId::new(number));
            partition.is_behind = !has_caught_up(
                &store.settings,
                owners,
                self.node,
                |node| live.contains(&node),
                |node| partition.exchanged.contains_key(&node),
            );
        }
        self.is_behind &= self.partitions.values().any(|partition| partition.is_behind);
    }

    /// Deletes a partition that is no longer held.
    pub(super) fn clear(&mut self, number: u32) {
        let records = self.disk.records().range((number, 0, Bytes::new())..);
        let records = records.take_while(|((at, ..), _)| *at == number);
        let places: Vec<RecordKey> = records.map(|(place, _)| place.clone()).collect();
        places.into_iter().for_each(|place| self.set(place, None));
        self.partitions.remove(&number);
    }

    /// Whether it may do what it is asked.
    pub(super) fn admit(&self, store: &Store, request: &ReplicaRequest) -> Result<(), ReplicaError> {
        let partition_of = |key: &Bytes| store.place(key).0;
        let partitions: Vec<u32> = match &request.operation {
            ReplicaOperation::Get { keys, .. } => keys.iter().map(partition_of).collect(),
            ReplicaOperation::GetOther { keys } => keys.iter().map(|known| partition_of(&known.key)).collect(),
            ReplicaOperation::Put { key, .. } => vec![partition_of(key)],
            ReplicaOperation::Merge { records } => records.iter().map(|pair| partition_of(&pair.key)).collect(),
            ReplicaOperation::Tree { partition, .. } | ReplicaOperation::Sync { partition, .. } => {
                vec![partition.get()]
            }
            ReplicaOperation::Hint { .. } | ReplicaOperation::OldestHint => Vec::new(),
        };
        let epoch = request.epoch.filter(|_| store.flaw != Some(Flaw::TakesAnyTable));
        let command = request.operation.command();
        partitions.into_iter().try_for_each(|number| {
            let is_held = self.partitions.get(&number).is_some_and(|partition| partition.is_held);
            if !is_held {
                return Err(ReplicaError::new(ReplicaErrorCode::NotHere, "others hold it"));
            }
            let is_behind = self
                .partitions
                .get(&number)
                .is_some_and(|partition| partition.is_behind);
            if is_behind && command == ReplicaCommand::Get && epoch.is_some() {
                return Err(ReplicaError::new(ReplicaErrorCode::Behind, "it has lost what it held"));
            }
            admitted(&self.table, PartitionId::new(number), command, epoch)
        })
    }
}
