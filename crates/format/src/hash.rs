//! Maps the hash of a key to a chunk of its partition, and to a bucket of that chunk.
//!
//! Records are stored in the order of their hashes. Chunks, and buckets within a chunk, are equal ranges of hashes, so
//! both are found by a multiplication instead of a search.

use fondaco_model::{PartitionCount, PartitionId};
use xxhash_rust::xxh3::xxh3_64;

/// The hash that orders records: XXH3-64 of the key, seed 0.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The chunk whose range contains a hash, in a partition of `chunk_count` chunks.
#[inline]
pub fn chunk_of_hash(hash: u64, chunk_count: u32) -> u32 {
    scale(hash, u64::from(chunk_count)).0 as u32
}

/// The bucket of a hash, in a chunk of `bucket_count` buckets, in a partition of `chunk_count` chunks.
#[inline]
pub fn bucket_of_hash(hash: u64, chunk_count: u32, bucket_count: u32) -> u32 {
    let within_chunk = scale(hash, u64::from(chunk_count)).1;
    scale(within_chunk, u64::from(bucket_count)).0 as u32
}

/// The position of a key in the order of a version, which is that of (partition, hash): as a signed number, for programs
/// that have no unsigned ones. Keys with the same position may differ in the lowest bits of their hashes.
#[inline]
pub fn key_position(partitions: PartitionCount, partition: PartitionId, hash: u64) -> i64 {
    let partition_bits = partitions.get().trailing_zeros();
    let partition = u64::from(partition.get()).checked_shl(u64::BITS - partition_bits);
    // A single partition has no bits, and number 0.
    let unsigned = partition.unwrap_or(0) | hash >> partition_bits;
    (unsigned ^ 1 << 63).cast_signed()
}

/// A hash as a fraction of 2^64, times `count`: the integer part, and the remaining fraction.
#[inline]
fn scale(hash: u64, count: u64) -> (u64, u64) {
    let product = u128::from(hash) * u128::from(count);
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_and_buckets_rise_with_the_hash(
            (low, high) in any::<(u64, u64)>().prop_map(|(a, b)| (a.min(b), a.max(b))),
            chunks in 1..5000u32,
            buckets in 1..u32::MAX,
        ) {
            let place = |hash| (chunk_of_hash(hash, chunks), bucket_of_hash(hash, chunks, buckets));
            prop_assert!(place(low) <= place(high));
            prop_assert!(place(high).0 < chunks && place(high).1 < buckets);
        }
    }
}
