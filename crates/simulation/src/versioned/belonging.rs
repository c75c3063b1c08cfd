//! Which partitions a simulated replica holds, by the routing table that it goes by, and what it lets itself be asked of
//! them: by the rule of real ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::{NodeId, PartitionId, RoutingTable};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaRequest};
use fondaco_replica::{Compared, Other, admitted, has_enough};

use super::disk::RecordKey;
use super::replica::{Partition, Replica, Store};
use super::scenario::Flaw;

impl Replica {
    /// Goes by a newer routing table from now on. These are the nodes that it takes to be there.
    pub(super) fn adopt(&mut self, store: &Store, table: &Arc<RoutingTable>, live: &BTreeSet<NodeId>) {
        if table.epoch() <= self.table.epoch() {
            return;
        }
        let held = self.partitions.keys().copied();
        let synchronised: BTreeSet<u32> = held
            .filter(|&number| self.is_synchronised(store, number, live))
            .collect();
        self.table = Arc::clone(table);
        for id in table.partitions().partitions() {
            let is_held = table.holds(self.node, id, store.replicas);
            match self.partitions.get_mut(&id.get()) {
                Some(partition) if is_held && partition.is_held && table.owners(id).contains(&self.node) => {}
                Some(partition) => {
                    (partition.is_held, partition.exchange_at_us) = (is_held, 0);
                    partition.turn += 1;
                    partition.exchanged.clear();
                    partition.whole.clear();
                    partition.found.clear();
                }
                None if is_held => drop(self.partitions.insert(id.get(), Partition::new(self.tree_keys))),
                None => {}
            }
            let is_owner = is_held && table.owners(id).contains(&self.node);
            if is_owner && !synchronised.contains(&id.get()) && store.flaw != Some(Flaw::OwnsWhatItLost) {
                self.fall_behind(id.get());
            }
        }
    }

    fn fall_behind(&mut self, number: u32) {
        if let Some(partition) = self.partitions.get_mut(&number) {
            self.is_behind = true;
            partition.is_behind = true;
            partition.turn += 1;
            partition.exchanged.clear();
            partition.whole.clear();
        }
    }

    /// Whether it owns a partition, or was compared with enough of those who do.
    fn is_synchronised(&self, store: &Store, number: u32, live: &BTreeSet<NodeId>) -> bool {
        let owners = self.table.owners(PartitionId::new(number));
        let Some(partition) = self.partitions.get(&number).filter(|partition| partition.is_held) else {
            return false;
        };
        owners.contains(&self.node) || self.has_enough(store, number, partition, live)
    }

    /// Whether it has what a plan gives it.
    pub(super) fn has_all_planned(&self, store: &Store, live: &BTreeSet<NodeId>) -> bool {
        let held = self.partitions.iter().filter(|(_, partition)| partition.is_held);
        held.map(|(&number, _)| number)
            .all(|number| self.is_synchronised(store, number, live))
    }

    /// Who is away comes back: nobody is given up.
    fn has_enough(&self, store: &Store, number: u32, partition: &Partition, live: &BTreeSet<NodeId>) -> bool {
        let owners = self.table.owners(PartitionId::new(number));
        has_enough(&store.settings, owners, self.node, |node| Other {
            is_live: live.contains(&node),
            is_given_up: false,
            compared: partition.exchanged.contains_key(&node).then(|| {
                match partition.whole.contains(&node) || store.flaw == Some(Flaw::CountsWhoIsBehind) {
                    true => Compared::Whole,
                    false => Compared::InPart,
                }
            }),
        })
    }

    /// Whether who compares a partition with it has all then that an owner acknowledged.
    pub(super) fn is_whole(&self, number: u32) -> bool {
        let is_owner = self.table.owners(PartitionId::new(number)).contains(&self.node);
        is_owner
            && self
                .partitions
                .get(&number)
                .is_some_and(|partition| !partition.is_behind)
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
        let behind = self.partitions.iter().filter(|(_, partition)| partition.is_behind);
        let enough = behind.filter(|&(&number, partition)| self.has_enough(store, number, partition, live));
        for number in enough.map(|(&number, _)| number).collect::<Vec<_>>() {
            if let Some(partition) = self.partitions.get_mut(&number) {
                partition.is_behind = false;
            }
        }
        self.is_behind &= self.partitions.values().any(|partition| partition.is_behind);
        self.has_lost &= self.is_behind || !self.has_all_planned(store, live);
    }

    /// Deletes a partition that is no longer held.
    pub(super) fn clear(&mut self, number: u32) {
        let records = self.disk.records().range((number, 0, Bytes::new())..);
        let records = records.take_while(|((at, ..), _)| *at == number);
        let places: Vec<RecordKey> = records.map(|(place, _)| place.clone()).collect();
        places.into_iter().for_each(|place| self.set(place, None));
        self.partitions.remove(&number);
    }

    /// Whether it may do what it is asked. These are the nodes that it takes to be there.
    pub(super) fn admit(
        &self,
        store: &Store,
        request: &ReplicaRequest,
        live: &BTreeSet<NodeId>,
    ) -> Result<(), ReplicaError> {
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
            let is_newer = epoch.is_some_and(|epoch| epoch.get() > self.table.epoch());
            let is_yet_to_own = is_newer && !self.is_synchronised(store, number, live);
            if (is_behind || is_yet_to_own) && command == ReplicaCommand::Get && epoch.is_some() {
                return Err(ReplicaError::new(ReplicaErrorCode::Behind, "it has lost what it held"));
            }
            admitted(&self.table, PartitionId::new(number), command, epoch)
        })
    }
}
