//! Reads into memory what look-ups of another version of the store have read lately, before this version serves.
//!
//! Every version has its records in the order of their hashes. So a range of the data of one version is a range of hashes, and that is
//! a range of the data of another version, whatever their numbers of chunks and buckets. The stamps of [residency](crate::residency)
//! tell which 4 KiB look-ups have found in memory or read into it, and how long ago. They are exact where it matters: while pages are
//! evicted, a stamp is renewed a fifth of a second after the last one. The latest ones come first, as many as fit.
//!
//! Nothing here is needed for a right answer: what cannot be read now, a look-up reads later, or reports.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::Version;
use crate::chunk::index::entry_range;
use crate::chunk::reader::Chunk;
use crate::error::FormatError;
use crate::residency::{UNIT_BYTES, stamp_now, ticks_since};

/// How many bytes are read at a time.
pub const STEP_BYTES_MAX: usize = 1 << 20;

/// How many ranges are read at a time: the disk reads them at once.
const STEP_RANGES_MAX: usize = 64;

/// The longest range: the kernel tells in one answer whether it is in memory.
const RANGE_BYTES_MAX: usize = 128 << 10;

/// In how many rounds units are read, those of the latest look-ups first.
const ROUNDS: u64 = 4;

/// Ranges of the data of chunks that are about to be read.
struct Step<'v> {
    version: &'v Version,
    ranges: Vec<(usize, Range<usize>)>,
    /// The bytes of these ranges.
    bytes: usize,
    buffer: Vec<u8>,
    /// The bytes that were read before.
    read_bytes: u64,
}

impl Version {
    /// Reads the records of the hashes that look-ups of `others` touched lately, if they are not in memory, up to about `bytes_max`.
    /// Returns how many bytes were read. `may_go_on` is called before each [step](STEP_BYTES_MAX) with its bytes, and may wait. Versions
    /// whose indexes are not [loaded](Version::warm) are left out.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_as(
        &self,
        others: &[Arc<Self>],
        bytes_max: u64,
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FormatError> {
        let mut step = Step {
            version: self,
            ranges: Vec::new(),
            bytes: 0,
            buffer: Vec::new(),
            read_bytes: 0,
        };
        let began = stamp_now();
        let mut counts = vec![0u32; usize::from(u16::MAX) + 1];
        let chunks = others.iter().flat_map(|other| &*other.chunks);
        for age in chunks.flat_map(|chunk| chunk.data().ages()) {
            counts[usize::from(age)] += 1;
        }
        for round in 1..=ROUNDS {
            let fitting = fitting(&counts, bytes_max / UNIT_BYTES as u64 * round / ROUNDS);
            // The last round reads a part of those that do not all fit.
            let ages = fitting + u16::from(round == ROUNDS && fitting < u16::MAX);
            let since = ticks_since(began);
            for other in others {
                if !self.read_younger(other, ages.saturating_add(since), bytes_max, &mut step, may_go_on)? {
                    return Ok(step.read_bytes);
                }
            }
        }
        step.read(may_go_on)?;
        Ok(step.read_bytes)
    }

    /// Reads what was touched less than this many ticks ago. Returns whether to go on.
    fn read_younger(
        &self,
        other: &Self,
        ticks: u16,
        bytes_max: u64,
        step: &mut Step<'_>,
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, FormatError> {
        let (own, its) = (self.manifest.partitions, other.manifest.partitions);
        for partition in self.held().filter(|_| its <= own && other.resident.get().is_some()) {
            // Partitions only ever split in two.
            let of_other = (u64::from(partition.get()) * u64::from(its.get()) / u64::from(own.get())) as usize;
            for at in other.chunk_places(of_other) {
                let chunk = &other.chunks[at];
                for range in chunk.data().seen_within(ticks) {
                    let positions = other.positions(at, chunk, &range);
                    for own in self.chunk_places(partition.get() as usize) {
                        if !step.add(own, self.bytes_between(own, &positions), may_go_on)? {
                            return Ok(false);
                        }
                    }
                    if step.read_bytes + step.bytes as u64 >= bytes_max {
                        return step.read(may_go_on).map(|_| false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn chunk_places(&self, partition: usize) -> Range<usize> {
        self.partition_starts[partition] as usize..self.partition_starts[partition + 1] as usize
    }

    /// The positions of the hashes whose records are in a range of the data of a chunk.
    fn positions(&self, at: usize, chunk: &Chunk, range: &Range<usize>) -> Range<u128> {
        let start_of = |bucket| self.bucket_start(at, bucket);
        let buckets = chunk.bucket_count();
        let first = partition_point(buckets, |bucket| start_of(bucket) <= range.start).saturating_sub(1);
        let end = partition_point(buckets, |bucket| start_of(bucket) < range.end);
        chunk.position_of(first)..chunk.position_of(end.max(first + 1))
    }

    /// The range of the data of a chunk with the records between two positions; empty if it has none.
    fn bytes_between(&self, at: usize, positions: &Range<u128>) -> Range<usize> {
        let buckets = self.chunks[at].buckets_between(positions);
        match buckets.is_empty() {
            true => 0..0,
            false => self.bucket_start(at, buckets.start)..self.bucket_start(at, buckets.end),
        }
    }

    /// Where a bucket begins in the data of a chunk; for the one after the last, where that ends.
    fn bucket_start(&self, at: usize, bucket: u32) -> usize {
        let loaded = self.resident.get();
        let last = bucket == self.chunks[at].bucket_count();
        let entry = loaded.map(|index| entry_range(index.entry(at as u32, bucket - u32::from(last))));
        let range = entry.unwrap_or_default();
        if last { range.end as usize } else { range.start as usize }
    }
}

impl Step<'_> {
    /// Adds a range, and reads all when there are enough. Returns whether to go on.
    fn add(
        &mut self,
        at: usize,
        range: Range<usize>,
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, FormatError> {
        let version = self.version;
        let data = version.chunks[at].data();
        // A damaged index may say anything.
        let range = range.start / UNIT_BYTES * UNIT_BYTES..range.end.min(data.bytes().len());
        for start in range.clone().step_by(RANGE_BYTES_MAX) {
            let part = start..range.end.min(start + RANGE_BYTES_MAX);
            if data.is_in_memory(&part) {
                continue;
            }
            self.bytes += part.len();
            self.ranges.push((at, part));
            let is_full = self.bytes >= STEP_BYTES_MAX || self.ranges.len() >= STEP_RANGES_MAX;
            if is_full && !self.read(may_go_on)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read(&mut self, may_go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, FormatError> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 && !may_go_on(bytes as u64) {
            self.ranges.clear();
            return Ok(false);
        }
        let version = self.version;
        for (at, range) in &self.ranges {
            version.chunks[*at].data().read_ahead(range.clone());
        }
        for (at, range) in self.ranges.drain(..) {
            let data = version.chunks[at].data();
            self.buffer.resize(range.len(), 0);
            let read = data.file().read_exact_at(&mut self.buffer, range.start as u64);
            read.map_err(FormatError::io("read", data.path()))?;
            self.read_bytes += range.len() as u64;
        }
        Ok(true)
    }
}

/// The greatest number of ticks such that no more than this many units are younger.
fn fitting(counts: &[u32], units_max: u64) -> u16 {
    let mut units = 0;
    let fits = |&&count: &&u32| {
        units += u64::from(count);
        units <= units_max
    };
    counts.iter().take_while(fits).count().min(usize::from(u16::MAX)) as u16
}

/// The first number below `end` for which this does not hold; it holds for all before.
fn partition_point(end: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}
