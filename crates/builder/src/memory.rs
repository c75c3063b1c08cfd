//! Divides the memory of a build between its threads, pages of columns, and the sort.
//!
//! The process uses its budget and at most [`BEYOND_BYTES`] more. Needs that exceed this are taken from the budget: the
//! sort gets less, and if that would be less than half, there are fewer threads.

use fondaco_format::Compression;

use crate::options::BuildOptions;
use crate::samples::SAMPLE_BYTES_MAX;

/// The memory beyond the budget, except that of the program itself.
const BEYOND_BYTES: u64 = (256 - 32) << 20;

/// The usual maximum that a thread uses to read and decode text, or to write a chunk.
const THREAD_BYTES: u64 = 4 << 20;

/// The parts of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) threads: usize,
    pub(crate) sort_bytes: u64,
    /// For decoded pages, before the sort lends some of its memory for them.
    pub(crate) pages_bytes: u64,
}

impl Memory {
    /// The same, with a sort that gets half of the memory: beside it there is another one.
    pub(crate) fn of_two_sorts(self) -> Self {
        Self {
            sort_bytes: self.sort_bytes / 2,
            ..self
        }
    }

    pub(crate) fn of(options: &BuildOptions) -> Self {
        let thread_bytes = match options.compression {
            Compression::Zstd => THREAD_BYTES + SAMPLE_BYTES_MAX as u64,
            Compression::None | Compression::Lz4 => THREAD_BYTES,
        };
        // The other half is for pages.
        let beyond_bytes = BEYOND_BYTES / 2;
        let threads_max = (beyond_bytes + options.memory_bytes / 2) / thread_bytes;
        let threads = (options.threads as u64).min(threads_max).max(1);
        let threads_bytes = threads * thread_bytes;
        let of_sort_bytes = threads_bytes.saturating_sub(beyond_bytes);
        Self {
            threads: threads as usize,
            sort_bytes: options.memory_bytes - of_sort_bytes,
            pages_bytes: BEYOND_BYTES + of_sort_bytes - threads_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use fondaco_storage::Location;

    use super::*;

    fn memory(memory_bytes: u64, threads: usize, compression: Compression) -> Memory {
        Memory::of(&BuildOptions {
            memory_bytes,
            threads,
            compression,
            chunk_bytes_target: 1,
            ..BuildOptions::new(
                "s".parse().unwrap(),
                1.try_into().unwrap(),
                Vec::new(),
                "key",
                Location::local("out"),
                "work".into(),
            )
        })
    }

    #[test]
    fn all_parts_together_stay_within_the_memory_of_a_build() {
        for memory_bytes in (20..36).map(|bits| 1 << bits) {
            for threads in [1, 2, 16, 64, 1024] {
                for compression in [Compression::Lz4, Compression::Zstd] {
                    let of = memory(memory_bytes, threads, compression);
                    assert!(of.threads >= 1 && of.threads <= threads);
                    assert!(of.sort_bytes >= memory_bytes / 2);
                    let threads_bytes = of.threads as u64 * THREAD_BYTES;
                    assert!(threads_bytes + of.sort_bytes + of.pages_bytes <= memory_bytes + BEYOND_BYTES);
                }
            }
        }
        let usual = memory(1 << 30, 16, Compression::None);
        assert_eq!((usual.threads, usual.sort_bytes), (16, 1 << 30));
    }
}
