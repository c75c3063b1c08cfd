//! Look-ups of this node's own keys in memory, synchronous and without a request: nothing here waits for the disk, so
//! that event loops may call it. Only for partitions that the node owns, and only for coordinators whose routing table
//! is not older than its own.

use std::num::NonZeroU64;

use fondaco_engine::{Extent, Hot};
use fondaco_model::Slot;
use fondaco_model::versioned::Record;
use fondaco_protocol::replica::ReplicaCommand;

use crate::replicas::Replicas;
use crate::store::{HeldStore, Holding};
use crate::table_key::{JoinedKeys, with_record_key};

impl Replicas {
    /// The record of a key, if memory knows it: `None` if it does not, if the node does not own the partition, or if
    /// the routing table of this epoch is older than the node's.
    pub fn recall(&self, store: u16, slot: Slot, key: &[u8], epoch: u64) -> Option<Option<Record>> {
        let holding = self.holding();
        let store = holding.served(store)?;
        let position = store.position_in(slot, key);
        if !holding.may_tell_by(store, position, epoch) {
            return None;
        }
        match with_record_key(position, key, |key| store.table.get_hot(key)).ok()? {
            Hot::Found(record) => Record::decode(record).ok().map(Some),
            Hot::Absent => Some(None),
            Hot::Cold => None,
        }
    }

    /// The same for several keys, each with its slot, in order, for callers that need only
    /// [plain](Record::plain_value) values, which are not copied: `take` gets each value, or `None` for an absent key,
    /// and returns whether it wants more. It ends with the first key that memory cannot answer so.
    pub fn recall_plain<'a>(
        &self,
        store: u16,
        keys: impl Iterator<Item = (Slot, &'a [u8])>,
        epoch: u64,
        mut take: impl FnMut(Option<&[u8]>) -> bool,
    ) {
        let holding = self.holding();
        let Some(store) = holding.served(store) else {
            return;
        };
        let mut joined = JoinedKeys::default();
        keys.map(|(slot, key)| (store.position_in(slot, key), key))
            .take_while(|(position, _)| holding.may_tell_by(store, *position, epoch))
            .for_each(|(position, key)| joined.push(position, key));
        // A record that fails here is looked up on the ordinary path, which reports why.
        let _ = store
            .table
            .look_at_hot(&joined.keys(), Extent::Whole, &mut |hot, _| match hot {
                Hot::Found(record) => Record::plain_value(record).is_some_and(|value| take(Some(value))),
                Hot::Absent => take(None),
                Hot::Cold => false,
            });
    }

    /// Prefetches the records of keys that are looked up soon, each with its slot, into the processor's caches.
    pub fn prefetch<'a>(&self, store: u16, keys: impl Iterator<Item = (Slot, &'a [u8])>) {
        let holding = self.holding();
        let Some(store) = holding.served(store) else {
            return;
        };
        let mut joined = JoinedKeys::default();
        keys.for_each(|(slot, key)| joined.push(store.position_in(slot, key), key));
        store.table.prefetch(&joined.keys());
    }
}

impl Holding {
    /// Whether this node may answer for the partition of a position of a store to a coordinator that uses the routing table of this
    /// epoch: its own table must not be newer for this partition.
    fn may_tell_by(&self, store: &HeldStore, position: u64, epoch: u64) -> bool {
        let partition = self.partition_at(position);
        let epoch = NonZeroU64::new(epoch);
        let admits = || self.admit(partition, ReplicaCommand::Get, epoch).is_ok();
        epoch.is_some() && self.may_tell(store, partition) && admits()
    }
}
