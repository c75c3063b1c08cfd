//! Partitions: equal, contiguous ranges of slots.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::slot::{SLOT_COUNT, Slot};

/// The number of one partition, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(u32);

impl PartitionId {
    /// The partition with this number. Whether it exists depends on the [`PartitionCount`].
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many partitions a cluster has: a power of two from 1 to [`SLOT_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PartitionCount(u32);

/// Why a number cannot be a [`PartitionCount`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid partition count {count}: use a power of two from 1 to 16384")]
pub struct PartitionCountError {
    count: u32,
}

impl PartitionCount {
    /// One partition, which has all slots.
    pub const ONE: Self = Self(1);

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// How many bits of a slot tell partitions apart: its first ones.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The number after each partition is split in two: partition p becomes 2p and 2p + 1. `None` if there is a partition for
    /// each slot already.
    pub fn doubled(self) -> Option<Self> {
        Self::try_from(self.0 * 2).ok()
    }

    /// The partition that has all slots of partition `of` among another number of partitions, `others`: among as many or
    /// more, the first of them.
    pub const fn covering(self, of: PartitionId, others: Self) -> PartitionId {
        PartitionId(((of.0 as u64) * self.0 as u64 / others.0 as u64) as u32)
    }

    /// The partition that a slot lies in.
    #[inline]
    pub const fn partition_of(self, slot: Slot) -> PartitionId {
        // Both are powers of two, so that the division is a shift.
        PartitionId(slot.get() as u32 * self.0 / SLOT_COUNT)
    }

    /// The slots of a partition.
    pub const fn slots_of(self, partition: PartitionId) -> Range<u32> {
        let width = SLOT_COUNT / self.0;
        partition.0 * width..(partition.0 + 1) * width
    }

    /// All partitions, in order.
    pub fn partitions(self) -> impl Iterator<Item = PartitionId> {
        (0..self.0).map(PartitionId)
    }
}

impl TryFrom<u32> for PartitionCount {
    type Error = PartitionCountError;

    fn try_from(count: u32) -> Result<Self, PartitionCountError> {
        if count.is_power_of_two() && count <= SLOT_COUNT {
            Ok(Self(count))
        } else {
            Err(PartitionCountError { count })
        }
    }
}

impl From<PartitionCount> for u32 {
    fn from(count: PartitionCount) -> u32 {
        count.0
    }
}

impl fmt::Display for PartitionCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_slot_lies_in_the_partition_that_lists_it(slot in 0..SLOT_COUNT as u16, bits in 0..15u32) {
            let count = PartitionCount::try_from(1 << bits).unwrap();
            let slot = Slot::new(slot).unwrap();
            let partition = count.partition_of(slot);
            prop_assert!(partition.get() < count.get());
            prop_assert!(count.slots_of(partition).contains(&(slot.get() as u32)));
        }
    }

    #[test]
    fn only_powers_of_two_up_to_slot_count_are_counts() {
        for count in [0, 3, 12, 16385, 32768] {
            assert!(PartitionCount::try_from(count).is_err(), "{count}");
        }
    }
}
