//! The cursor of a `SCAN`.
//!
//! A cursor holds a store's number, a partition of this many, and the first bits of a hash: a place in the order of
//! hashes, which every version of a store shares. So a scan that meets a swap continues in the new
//! version, and every key that both versions have is returned at least once. The same cursor means the
//! same on every node and router. Where there are more or fewer partitions, since they were split, it means the beginning
//! of the partition that has the first slot of its own: some keys are returned twice, and none is left out.
//!
//! ```text
//! bits  63 … 52   51 … 48                 47 … 34     33 … 0
//!       store     log₂ of their number    partition   first bits of the hash, rounded up
//! ```

use fondaco_catalog::StoreId;
use fondaco_format::ScanPosition;
use fondaco_model::{PartitionCount, PartitionId};

/// How many first bits of a hash it has.
pub(super) const HASH_BITS: u32 = 34;
const PARTITION_BITS: u32 = 14;
const COUNT_BITS: u32 = 4;

/// The place at which a scan continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) store: StoreId,
    /// How many partitions there are.
    pub(super) partitions: PartitionCount,
    pub(super) position: ScanPosition,
}

impl Cursor {
    /// The beginning of a store.
    pub(super) fn start_of(store: StoreId) -> Self {
        Self {
            store,
            partitions: PartitionCount::ONE,
            position: ScanPosition::START,
        }
    }

    /// The place at which it continues among this many partitions.
    pub(super) fn position_among(self, partitions: PartitionCount) -> ScanPosition {
        match self.partitions == partitions {
            true => self.position,
            false => ScanPosition {
                partition: partitions.covering(self.position.partition, self.partitions),
                hash: 0,
            },
        }
    }

    /// The number that clients see.
    pub(super) fn to_number(self) -> u64 {
        let shift = 64 - HASH_BITS;
        // Rounded up, so that it lies in the bucket that begins here and not in the one before: no
        // version has buckets as narrow as what is cut off.
        let hash = self.position.hash.div_ceil(1 << shift).min((1 << HASH_BITS) - 1);
        u64::from(self.store.get()) << (HASH_BITS + PARTITION_BITS + COUNT_BITS)
            | u64::from(self.partitions.bits()) << (HASH_BITS + PARTITION_BITS)
            | u64::from(self.position.partition.get()) << HASH_BITS
            | hash
    }

    /// The cursor of such a number; `None` if it is none.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let store = StoreId::new((number >> (HASH_BITS + PARTITION_BITS + COUNT_BITS)) as u16)?;
        let bits = (number >> (HASH_BITS + PARTITION_BITS)) as u32 & ((1 << COUNT_BITS) - 1);
        let partitions = PartitionCount::try_from(1 << bits).ok()?;
        let partition = PartitionId::new((number >> HASH_BITS) as u32 & ((1 << PARTITION_BITS) - 1));
        let hash = number << (64 - HASH_BITS);
        let is_one = partition.get() < partitions.get();
        is_one.then_some(Self {
            store,
            partitions,
            position: ScanPosition { partition, hash },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_comes_back_a_little_further_on(
            store in 1..=StoreId::MAX, bits in 0..15u32, partition in 0..16384u32, hash in 0..u64::MAX - (1 << 31),
        ) {
            let partition = partition & ((1 << bits) - 1);
            let cursor = Cursor {
                store: StoreId::new(store).unwrap(),
                partitions: PartitionCount::try_from(1 << bits).unwrap(),
                position: ScanPosition { partition: PartitionId::new(partition), hash },
            };
            let back = Cursor::from_number(cursor.to_number()).unwrap();
            prop_assert_eq!((back.store, back.partitions, back.position.partition), (cursor.store, cursor.partitions, cursor.position.partition));
            prop_assert!(back.position.hash >= hash && back.position.hash - hash < 1 << 30);
        }
    }
}
