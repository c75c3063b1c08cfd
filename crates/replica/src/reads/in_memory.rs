//! Look-ups of this node's own keys in memory, synchronous and without a request: nothing here waits for the disk, so
//! that event loops may call it. Only for partitions that the node owns, and only for coordinators whose routing table
//! is not older than its own.

use std::num::NonZeroU64;

use bytes::Bytes;
use fondaco_engine::{Extent, Hot};
use fondaco_model::Slot;
use fondaco_model::versioned::{Record, Resolution};
use fondaco_protocol::replica::ReplicaCommand;
use smallvec::SmallVec;

use crate::replicas::Replicas;
use crate::store::{HeldStore, Holding};
use crate::table_key::JoinedKeys;

/// Longer records that are not plain are read on the ordinary path: copying them would delay writers.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// The state of a key in memory.
#[derive(Debug)]
pub enum Recalled<'a> {
    /// Its [plain](Record::plain_value) value, which is not copied.
    Plain(&'a [u8]),
    /// Its record: it expires, or has several values or the sums of a counter.
    Record(Box<Record>),
    /// The key has no record.
    Absent,
    /// Not known: the ordinary path reads the record from the disk, or reports why it cannot.
    Unknown,
}

impl Replicas {
    /// Looks up keys of a store, each with its slot, for coordinators that use the routing table of this epoch. `take`
    /// gets the index of each key that this node may answer for, in order, with the state of the key, and returns
    /// whether it wants more.
    #[inline]
    pub fn recall<'a>(
        &self,
        store: u16,
        keys: impl Iterator<Item = (Slot, &'a [u8])>,
        epoch: u64,
        mut take: impl FnMut(usize, Recalled<'_>) -> bool,
    ) {
        let holding = self.holding();
        let Some(store) = holding.served(store) else {
            return;
        };
        let (mut joined, mut indexes) = (JoinedKeys::default(), SmallVec::<[usize; 32]>::new());
        for (index, (slot, key)) in keys.enumerate() {
            let position = store.position_in(slot, key);
            if holding.may_tell_by(store, position, epoch) {
                joined.push(position, key);
                indexes.push(index);
            }
        }
        let may_be_plain = store.settings.resolution != Resolution::Counter;
        let mut indexes = indexes.into_iter();
        // A failure is reported by the ordinary path.
        let _ = store.table.look_at_hot(&joined.keys(), Extent::Whole, &mut |hot, _| {
            // The table calls this once a key, in order.
            let Some(index) = indexes.next() else { return false };
            let recalled = match hot {
                Hot::Found(record) => match Record::plain_value(record).filter(|_| may_be_plain) {
                    Some(value) => Recalled::Plain(value),
                    None => decoded(record),
                },
                Hot::Absent => Recalled::Absent,
                Hot::Cold => Recalled::Unknown,
            };
            take(index, recalled)
        });
    }
}

#[cold]
fn decoded(record: &[u8]) -> Recalled<'static> {
    if record.len() > COPIED_BYTES_MAX {
        return Recalled::Unknown;
    }
    Record::decode(Bytes::copy_from_slice(record))
        .map_or(Recalled::Unknown, |record| Recalled::Record(Box::new(record)))
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
