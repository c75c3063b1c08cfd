//! Divides the output into chunks, and the work into units: pure arithmetic.
//!
//! A partition has a power of two of chunks, so that both chunks and buckets are ranges of positions whose bounds never
//! cross: one contains the other. A *unit* is the larger of the two; so no chunk is written by two threads, and no
//! bucket is read by two.

use std::ops::Range;

use fondaco_format::ChunkPlan;
use fondaco_model::PartitionId;

use crate::sort::PartitionTally;

/// A range of buckets, and the chunks of their records.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) buckets: Range<usize>,
    /// In order; empty partitions have none.
    pub(crate) chunks: Vec<ChunkPlan>,
}

/// All units, in the order of the output, given the chunks of each partition: a power of two of them, or none.
///
/// There are `1 << bucket_bits` buckets, and a power of two of partitions.
pub(crate) fn units(plans: &[Vec<ChunkPlan>], bucket_bits: u32) -> Vec<Unit> {
    let partition_bits = plans.len().trailing_zeros();
    if bucket_bits <= partition_bits {
        let partitions = 1 << (partition_bits - bucket_bits);
        return (0..1 << bucket_bits)
            .map(|bucket| {
                let range = bucket * partitions..(bucket + 1) * partitions;
                Unit {
                    buckets: bucket..bucket + 1,
                    chunks: plans[range].concat(),
                }
            })
            .collect();
    }
    let buckets = 1 << (bucket_bits - partition_bits);
    let units = |(partition, chunks): (usize, &Vec<ChunkPlan>)| {
        let chunks = chunks.clone();
        let units = chunks.len().clamp(1, buckets);
        let (buckets_each, chunks_each) = (buckets / units, chunks.len() / units);
        (0..units).map(move |unit| {
            let first = partition * buckets + unit * buckets_each;
            Unit {
                buckets: first..first + buckets_each,
                chunks: chunks[unit * chunks_each..(unit + 1) * chunks_each].to_vec(),
            }
        })
    };
    plans.iter().enumerate().flat_map(units).collect()
}

/// The chunks of each partition.
pub(super) fn plans(tallies: &[PartitionTally], chunk_bytes_target: u64) -> Vec<Vec<ChunkPlan>> {
    let each = tallies.iter().enumerate();
    each.map(|(partition, tally)| match tally.records {
        0 => vec![],
        _ => chunks(partition as u32, tally.chunk_count(chunk_bytes_target)),
    })
    .collect()
}

/// The chunks of a partition with records.
pub(crate) fn chunks(partition: u32, count: u64) -> Vec<ChunkPlan> {
    (0..count)
        .map(|chunk| ChunkPlan {
            partition: PartitionId::new(partition),
            chunk: chunk as u32,
            chunk_count: count as u32,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn units_cover_every_bucket_and_chunk_once_and_in_order(
            partition_bits in 0..11u32, bucket_bits in 2..9u32,
            sizes in prop::collection::vec(0..2000u64, 1024),
        ) {
            let tallies: Vec<PartitionTally> = sizes[..1 << partition_bits]
                .iter()
                .map(|&bytes| {
                    let mut tally = PartitionTally::default();
                    if bytes > 0 {
                        tally.count(bytes, bytes);
                    }
                    tally
                })
                .collect();
            let units = units(&plans(&tallies, 100), bucket_bits);
            let buckets: Vec<usize> = units.iter().flat_map(|unit| unit.buckets.clone()).collect();
            prop_assert_eq!(buckets, (0..1 << bucket_bits).collect::<Vec<_>>());
            let chunks: Vec<(u32, u32)> =
                units.iter().flat_map(|unit| &unit.chunks).map(|plan| (plan.partition.get(), plan.chunk)).collect();
            prop_assert!(chunks.is_sorted());
            let mut counts = vec![0_u64; tallies.len()];
            for (partition, _) in chunks {
                counts[partition as usize] += 1;
            }
            for (tally, count) in tallies.iter().zip(counts) {
                prop_assert_eq!(count == 0, tally.records == 0);
                if count > 0 {
                    prop_assert!(count.is_power_of_two() && tally.bytes() <= count * 100);
                }
            }
        }
    }
}
