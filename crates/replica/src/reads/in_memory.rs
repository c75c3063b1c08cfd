//! What memory has of this node's own keys, told at once and without a request: nothing here waits for a disk, so that
//! event loops may ask. It tells only of partitions that the node owns, and only coordinators that know of no older routing
//! table than it does.

use std::num::NonZeroU64;

use fondaco_engine::{Extent, Hot};
use fondaco_model::PartitionId;
use fondaco_model::versioned::Record;
use fondaco_protocol::replica::ReplicaCommand;

use crate::replicas::Replicas;
use crate::store::{HeldStore, Holding};
use crate::table_key::{JoinedKeys, key_hash, with_record_key};

impl Replicas {
    /// The record under a key, if memory tells what there is: `None` if it does not, or the node does not own the
    /// partition, or knows more than a coordinator that goes by the routing table of this epoch.
    pub fn recall(&self, store: u16, partition: PartitionId, key: &[u8], epoch: u64) -> Option<Option<Record>> {
        let holding = self.holding();
        let store = holding.stores.get(&store)?;
        if !holding.may_tell_by(store, partition, epoch) {
            return None;
        }
        match with_record_key(partition, key_hash(key), key, |key| store.table.get_hot(key)).ok()? {
            Hot::Found(record) => Record::decode(record).ok().map(Some),
            Hot::Absent => Some(None),
            Hot::Cold => None,
        }
    }

    /// The same of several keys, each with its partition, one after the other, for callers that take no more than
    /// [plain](Record::plain_value) values, which are not copied for it: `take` is given each, or none where there is
    /// none, and says whether it wants more. It ends with the first of which memory does not tell so.
    pub fn recall_plain<'a>(
        &self,
        store: u16,
        keys: impl Iterator<Item = (PartitionId, &'a [u8])>,
        epoch: u64,
        mut take: impl FnMut(Option<&[u8]>) -> bool,
    ) {
        let holding = self.holding();
        let Some(store) = holding.stores.get(&store) else {
            return;
        };
        let mut joined = JoinedKeys::default();
        keys.take_while(|(partition, _)| holding.may_tell_by(store, *partition, epoch))
            .for_each(|(partition, key)| joined.push(partition, key_hash(key), key));
        // A record that cannot be looked at is looked up on the ordinary path, which says why.
        let _ = store
            .table
            .look_at_hot(&joined.keys(), Extent::Whole, &mut |hot, _| match hot {
                Hot::Found(record) => Record::plain_value(record).is_some_and(|value| take(Some(value))),
                Hot::Absent => take(None),
                Hot::Cold => false,
            });
    }

    /// Has memory asked for what is under keys that are looked up soon, each with its partition.
    pub fn prefetch<'a>(&self, store: u16, keys: impl Iterator<Item = (PartitionId, &'a [u8])>) {
        let holding = self.holding();
        let Some(store) = holding.stores.get(&store) else {
            return;
        };
        let mut joined = JoinedKeys::default();
        keys.for_each(|(partition, key)| joined.push(partition, key_hash(key), key));
        store.table.prefetch(&joined.keys());
    }
}

impl Holding {
    /// Whether this node may say what is in a partition of a store to a coordinator that goes by the routing table of this epoch, and
    /// knows no less than it.
    fn may_tell_by(&self, store: &HeldStore, partition: PartitionId, epoch: u64) -> bool {
        let epoch = NonZeroU64::new(epoch);
        let admits = || self.admit(partition, ReplicaCommand::Get, epoch).is_ok();
        epoch.is_some() && self.may_tell(store, partition) && admits()
    }
}
