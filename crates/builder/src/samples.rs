//! A sample of the values, to train a compression dictionary.
//!
//! It takes the values whose keys have the lowest hashes: they are as good as random, and do not depend on how rows
//! were divided among threads, so builds are reproducible.

use std::collections::BinaryHeap;

use crate::sort::RowId;

/// The size of the sample in bytes: about enough to train a dictionary of 110 KiB.
pub(crate) const SAMPLE_BYTES_MAX: usize = 8 << 20;

/// How much of one value is kept, in bytes.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// The offered values with the lowest hashes.
#[derive(Debug)]
pub(crate) struct Samples {
    heap: BinaryHeap<(u64, RowId, Vec<u8>)>,
    bytes: usize,
    /// Values with this hash or a higher one are not among the lowest.
    hash_end: u64,
}

impl Samples {
    /// A sample; it stays empty if it is not wanted.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            heap: BinaryHeap::new(),
            bytes: 0,
            hash_end: if wanted { u64::MAX } else { 0 },
        }
    }

    #[inline]
    pub(crate) fn offer(&mut self, hash: u64, row: RowId, value: &[u8]) {
        if hash < self.hash_end && !value.is_empty() {
            self.keep(hash, row, value[..value.len().min(VALUE_BYTES_MAX)].to_vec());
        }
    }

    fn keep(&mut self, hash: u64, row: RowId, value: Vec<u8>) {
        self.bytes += value.len();
        self.heap.push((hash, row, value));
        while self.bytes > SAMPLE_BYTES_MAX
            && let Some((hash, _, value)) = self.heap.pop()
        {
            self.bytes -= value.len();
            self.hash_end = hash;
        }
    }

    /// Merges the samples of the threads into the sample of all rows.
    pub(crate) fn merge(samples: impl IntoIterator<Item = Self>) -> Vec<Vec<u8>> {
        let mut merged = Self::new(true);
        for sample in samples {
            for (hash, row, value) in sample.heap {
                if hash < merged.hash_end {
                    merged.keep(hash, row, value);
                }
            }
        }
        merged
            .heap
            .into_sorted_vec()
            .into_iter()
            .map(|(_, _, value)| value)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_bounded_and_independent_of_threads() {
        let rows = |from: u64, to: u64| (from..to).map(|row| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15), row));
        let sample = |from, to| {
            let mut samples = Samples::new(true);
            for (hash, row) in rows(from, to) {
                samples.offer(hash, RowId::new(0, row), &vec![row as u8; 5000]);
            }
            samples
        };
        let one = Samples::merge([sample(1, 4000)]);
        let three = Samples::merge([sample(1, 10), sample(10, 3900), sample(3900, 4000)]);
        assert_eq!(one, three);
        assert!(one.iter().map(Vec::len).sum::<usize>() <= SAMPLE_BYTES_MAX);
        assert_eq!(one.len(), SAMPLE_BYTES_MAX / 5000);
    }

    #[test]
    fn an_unwanted_sample_stays_empty() {
        let mut samples = Samples::new(false);
        samples.offer(1, RowId::new(0, 1), b"value");
        assert!(samples.heap.is_empty());
    }
}
