//! The number and the size of the rows of a partition, and the rule for its number of chunks: pure arithmetic.
//!
//! The number of chunks must be known before the first record is written, and a program that gets rows in the order of
//! their hashes must be able to compute it without reading all of them. So a large partition is judged by the rows with
//! the lowest hashes: the smallest of the lowest 64th, 32nd, … half of all hashes that has enough of them.

/// How many times the range of hashes is halved.
const HALVINGS: usize = 6;

/// A range of hashes with this many bytes tells the size of the partition: 16 MiB.
pub(crate) const SAMPLE_BYTES: u64 = 16 << 20;

/// A single key with billions of rows must not cause millions of empty chunks.
const CHUNKS_MAX: u64 = 1 << 14;

/// The rows of a partition, duplicates included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PartitionTally {
    pub(crate) records: u64,
    /// The bytes of keys and values, by the number of leading zero bits of the hash.
    bytes: [u64; HALVINGS + 1],
}

impl PartitionTally {
    /// Adds a row.
    #[inline]
    pub(crate) fn count(&mut self, hash: u64, bytes: u64) {
        self.records += 1;
        self.bytes[range_of(hash)] += bytes;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.records += other.records;
        for (sum, bytes) in self.bytes.iter_mut().zip(other.bytes) {
            *sum += bytes;
        }
    }

    /// The bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The number of chunks of the partition, if it has rows: a power of two.
    pub(crate) fn chunk_count(&self, chunk_bytes_target: u64) -> u64 {
        self.chunk_count_up_to(0, chunk_bytes_target).unwrap_or(1)
    }

    /// The number of chunks if the rows so far decide it: they are all rows up to this hash, which is one of theirs.
    pub(crate) fn chunk_count_at(&self, hash: u64, chunk_bytes_target: u64) -> Option<u64> {
        self.chunk_count_up_to(range_of(hash) + 1, chunk_bytes_target)
    }

    /// The number of chunks, if the ranges from that of the lowest hashes to this one decide it.
    fn chunk_count_up_to(&self, last: usize, chunk_bytes_target: u64) -> Option<u64> {
        let mut below = 0_u64;
        for range in (last..=HALVINGS).rev() {
            below += self.bytes[range];
            if below >= SAMPLE_BYTES || range == 0 {
                let chunks = (below << range).div_ceil(chunk_bytes_target).clamp(1, CHUNKS_MAX);
                return Some(chunks.next_power_of_two());
            }
        }
        None
    }
}

#[inline]
fn range_of(hash: u64) -> usize {
    (hash.leading_zeros() as usize).min(HALVINGS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_partitions_have_the_chunks_of_their_exact_size() {
        let mut tally = PartitionTally::default();
        assert_eq!(tally.chunk_count(10), 1);
        tally.count(u64::MAX, 10);
        assert_eq!(tally.chunk_count(10), 1);
        tally.count(1, 1);
        assert_eq!((tally.chunk_count(10), tally.bytes()), (2, 11));
        tally.count(2, 10 << 20);
        assert_eq!(tally.chunk_count(4 << 20), 4);
    }

    #[test]
    fn large_partitions_are_judged_by_their_lowest_hashes() {
        let mut tally = PartitionTally::default();
        tally.count(0, SAMPLE_BYTES);
        assert_eq!(tally.chunk_count(1 << 30), 1);
        tally.count(0, 1);
        assert_eq!(tally.chunk_count(1 << 30), 2);
        // A few large values have a sample, too.
        let mut tally = PartitionTally::default();
        tally.count(1 << 61, 64 << 20);
        tally.count(1 << 63, 500 << 20);
        assert_eq!(tally.chunk_count(1 << 30), 1);
        assert_eq!(tally.chunk_count(256 << 20), 1);
        assert_eq!(tally.chunk_count(64 << 20), 4);
    }

    #[test]
    fn no_partition_has_more_chunks_than_the_limit() {
        let mut tally = PartitionTally::default();
        tally.count(0, 1 << 50);
        assert_eq!(tally.chunk_count(1), CHUNKS_MAX);
    }

    proptest! {
        #[test]
        fn a_prefix_of_the_rows_in_order_never_decides_otherwise_than_all(
            rows in prop::collection::vec((any::<u64>(), 0..6_u32, 0..(8_u64 << 20)), 1..60),
            target in 1..(64_u64 << 20),
        ) {
            let mut rows: Vec<(u64, u64)> = rows.into_iter().map(|(hash, low, bytes)| (hash >> low, bytes)).collect();
            rows.sort_unstable();
            let mut all = PartitionTally::default();
            rows.iter().for_each(|(hash, bytes)| all.count(*hash, *bytes));
            let expected = all.chunk_count(target);
            let mut tally = PartitionTally::default();
            let mut undecided = 0;
            for (hash, bytes) in rows {
                match tally.chunk_count_at(hash, target) {
                    Some(decided) => prop_assert_eq!(decided, expected),
                    None => undecided += 1,
                }
                tally.count(hash, bytes);
            }
            prop_assert!(all.bytes() >= SAMPLE_BYTES || undecided == all.records);
        }
    }
}
