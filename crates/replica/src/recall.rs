//! What memory has of this node's own keys, told at once and without a request: nothing here waits for a disk, so that
//! event loops may ask. It tells only of partitions that the node owns, and only those who know of no older routing
//! table than it does.

use std::num::NonZeroU64;

use fondaco_client::quorum::ReplicaCommand;
use fondaco_engine::{Hot, Table};
use fondaco_model::PartitionId;
use fondaco_model::versioned::Record;

use crate::replicas::Replicas;
use crate::table_key::{JoinedKeys, key_hash, with_record_key};

impl Replicas {
    /// The record under a key, if memory tells what there is: `None` if it does not, or the node does not own the
    /// partition, or knows more than who goes by the routing table of this epoch.
    pub fn recall(&self, store: u16, partition: PartitionId, key: &[u8], epoch: u64) -> Option<Option<Record>> {
        let hot = self.look_up(store, partition, key, epoch, |table, key| table.get_hot(key).ok());
        match hot?? {
            Hot::Found(record) => Record::decode(record).ok().map(Some),
            Hot::Absent => Some(None),
            Hot::Cold => None,
        }
    }

    /// The same for who takes no more than a [plain](Record::plain_value) value, which is not copied for it: whether
    /// `take` was given one, or none if there is none.
    pub fn recall_plain(
        &self,
        store: u16,
        partition: PartitionId,
        key: &[u8],
        epoch: u64,
        take: impl FnOnce(Option<&[u8]>),
    ) -> bool {
        let mut take = Some(take);
        let mut give = |value: Option<&[u8]>| {
            if let Some(take) = take.take() {
                take(value);
            }
        };
        let looked = self.look_up(store, partition, key, epoch, |table, key| {
            table.look_at_hot(&[key], &mut |hot| {
                match hot {
                    Hot::Found(record) => {
                        if let Some(value) = Record::plain_value(record) {
                            give(Some(value));
                        }
                    }
                    Hot::Absent => give(None),
                    Hot::Cold => {}
                }
                false
            })
        });
        looked.is_some_and(|looked| looked.is_ok()) && take.is_none()
    }

    /// Looks into a store's table where the record of a key stands, if the node owns the partition, and knows no more
    /// than who goes by the routing table of this epoch.
    fn look_up<T>(
        &self,
        store: u16,
        partition: PartitionId,
        key: &[u8],
        epoch: u64,
        look: impl FnOnce(&dyn Table, &[u8]) -> T,
    ) -> Option<T> {
        let holding = self.holding();
        let store = holding.stores.get(&store)?;
        let is_owner = holding.is_owner(store, partition);
        let epoch = NonZeroU64::new(epoch).filter(|_| is_owner)?;
        holding.admit(partition, ReplicaCommand::Get, Some(epoch)).ok()?;
        Some(with_record_key(partition, key_hash(key), key, |key| {
            look(&*store.table, key)
        }))
    }

    /// Has memory asked for what is under keys that are looked up soon, each with its partition. Whether that is any use.
    pub fn prefetch<'a>(&self, store: u16, keys: impl Iterator<Item = (PartitionId, &'a [u8])>) -> bool {
        let holding = self.holding();
        let Some(store) = holding.stores.get(&store) else {
            return false;
        };
        let mut joined = JoinedKeys::default();
        keys.for_each(|(partition, key)| joined.push(partition, key_hash(key), key));
        store.table.prefetch(&joined.keys())
    }
}
