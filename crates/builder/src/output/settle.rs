//! Drops duplicates before chunks are planned, if most rows are duplicates: otherwise a partition would be divided into
//! chunks for rows that it does not keep. The number of chunks of a partition is in the header of each chunk, so it
//! must be known before the first record is written.
//!
//! The extra pass over a partition is worthwhile only if it would have several chunks and at least half of its rows are
//! dropped. The keys with the lowest hashes are the sample for this estimate, so the result depends only on the input.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread::{self, ScopedJoinHandle};

use parking_lot::Mutex;

use super::plan::chunk_count;
use crate::error::BuildError;
use crate::input::or_panic;
use crate::options::BuildOptions;
use crate::progress::Progress;
use crate::sort::{Drain, Part, PartitionTally, Record, Scratch, Sorted, Winner};

/// The share of hashes in the sample, in bits. No bucket is smaller than that.
const SAMPLE_BITS: u32 = 8;

/// A bucket without its duplicates.
struct Settled {
    part: Part,
    dropped: u64,
    /// The remaining records of each partition.
    kept: BTreeMap<u32, Kept>,
}

#[derive(Default)]
struct Kept {
    tally: PartitionTally,
    /// Records with the lowest hashes.
    sampled: u64,
}

/// Drops duplicates in the partitions where that reduces the number of chunks. Returns how many were dropped.
pub(super) fn settle(
    options: &BuildOptions,
    sorted: &mut Sorted,
    drain: Drain<'_>,
    progress: &Progress,
) -> Result<u64, BuildError> {
    if drain.winner == Winner::None {
        return Ok(0);
    }
    let target = options.chunk_bytes_target;
    let has_several = |&partition: &usize| chunk_count(sorted.tallies[partition], target) > 1;
    let several: Vec<usize> = (0..sorted.tallies.len()).filter(has_several).collect();
    let firsts: BTreeSet<usize> = several.iter().map(|&at| buckets_of(sorted, at).start).collect();
    let mut kept: BTreeMap<usize, BTreeMap<u32, Kept>> = BTreeMap::new();
    let mut dropped = settle_buckets(options, sorted, drain, &firsts, &mut kept, progress)?;
    let is_crowded = |&partition: &usize| {
        let first = kept.get(&buckets_of(sorted, partition).start);
        let sampled = first
            .and_then(|kept| kept.get(&(partition as u32)))
            .map_or(0, |kept| kept.sampled);
        sampled << (SAMPLE_BITS + 1) <= sorted.tallies[partition].records
    };
    let crowded: Vec<usize> = several.into_iter().filter(is_crowded).collect();
    let others: BTreeSet<usize> = crowded.iter().flat_map(|&at| buckets_of(sorted, at)).collect();
    let others: BTreeSet<usize> = others.difference(&firsts).copied().collect();
    dropped += settle_buckets(options, sorted, drain, &others, &mut kept, progress)?;
    for partition in crowded {
        let mut tally = PartitionTally::default();
        for bucket in buckets_of(sorted, partition) {
            let kept = kept.get(&bucket).and_then(|kept| kept.get(&(partition as u32)));
            tally.add(kept.map_or_else(PartitionTally::default, |kept| kept.tally));
        }
        sorted.tallies[partition] = tally;
    }
    Ok(dropped)
}

/// The buckets that contain records of a partition.
fn buckets_of(sorted: &Sorted, partition: usize) -> Range<usize> {
    let (partitions, buckets) = (sorted.tallies.len(), sorted.parts.len());
    let first = partition * buckets / partitions;
    first..first + (buckets / partitions).max(1)
}

/// Drops the duplicates of some buckets, in threads.
fn settle_buckets(
    options: &BuildOptions,
    sorted: &mut Sorted,
    drain: Drain<'_>,
    buckets: &BTreeSet<usize>,
    kept: &mut BTreeMap<usize, BTreeMap<u32, Kept>>,
    progress: &Progress,
) -> Result<u64, BuildError> {
    let bits = sorted.layout.bucket_bits;
    let parts = buckets
        .iter()
        .map(|&bucket| (bucket, std::mem::take(&mut sorted.parts[bucket])));
    let left: Mutex<Vec<(usize, Part)>> = Mutex::new(parts.collect());
    let take = || left.lock().pop();
    let settle_some = || {
        let (mut done, mut scratch) = (Vec::new(), Scratch::default());
        while let Some((bucket, part)) = take() {
            progress.check()?;
            let mut kept = BTreeMap::<u32, Kept>::new();
            let (part, dropped) = drain.settle(part, bits, &mut scratch, |record| {
                kept.entry(record.partition).or_default().add(record, options.dry_run);
            })?;
            progress.records_written.fetch_add(dropped, Ordering::Relaxed);
            done.push((bucket, Settled { part, dropped, kept }));
        }
        Ok(done)
    };
    let results: Vec<Result<_, BuildError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(settle_some)).collect();
        threads.into_iter().map(ScopedJoinHandle::join).map(or_panic).collect()
    });
    let mut dropped = 0;
    for result in results {
        for (bucket, settled) in result? {
            dropped += settled.dropped;
            sorted.parts[bucket] = settled.part;
            kept.insert(bucket, settled.kept);
        }
    }
    Ok(dropped)
}

impl Kept {
    fn add(&mut self, record: &Record<'_>, dry_run: bool) {
        self.tally.records += 1;
        self.tally.bytes += record.key.len() as u64 + record.value_bytes(dry_run);
        self.sampled += u64::from(record.hash >> (u64::BITS - SAMPLE_BITS) == 0);
    }
}
