//! Divides the memory budget of a sort: pure arithmetic.

/// The smallest budget of a build, in bytes.
pub(crate) const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A block is one write of a spill, which favours large blocks; but every thread has an open block for every bucket,
/// which favours small ones.
const BLOCK_BYTES: (u64, u64) = (4 << 10, 64 << 10);

/// 256 buckets of a budget of 1 GiB have 4 MiB each: sorting one stays within the CPU caches.
const BUCKET_BITS: (u32, u32) = (2, 8);

/// Offsets in a loaded part are 32 bits.
const SHARE_BYTES_MAX: u64 = 1 << 30;

/// The sizes derived from a budget and a number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// A bucket is the range of positions with the same leading bits; this is their number.
    pub(crate) bucket_bits: u32,
    /// The size of an ordinary block.
    pub(crate) block_bytes: usize,
    /// The limit for all blocks while the input is read.
    pub(crate) reading_bytes: u64,
    /// The limit for blocks while spilled buckets are loaded beside them.
    pub(crate) loading_bytes: u64,
    /// The limit for loading at a time per thread, records and sort entries together.
    pub(crate) share_bytes: u64,
}

impl Layout {
    pub(crate) fn new(memory_bytes: u64, threads: usize) -> Self {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let threads = threads.max(1) as u64;
        // All open blocks together take at most an eighth of the budget, as far as the smallest sizes allow.
        let open_bytes = memory_bytes / 8 / threads;
        let block_bytes = floor_power_of_two(open_bytes >> BUCKET_BITS.1).clamp(BLOCK_BYTES.0, BLOCK_BYTES.1);
        let buckets = floor_power_of_two(open_bytes / block_bytes);
        let reserve_bytes = memory_bytes / 4;
        Self {
            bucket_bits: buckets.trailing_zeros().clamp(BUCKET_BITS.0, BUCKET_BITS.1),
            block_bytes: block_bytes as usize,
            reading_bytes: memory_bytes,
            loading_bytes: memory_bytes - reserve_bytes,
            share_bytes: (reserve_bytes / threads).min(SHARE_BYTES_MAX),
        }
    }
}

fn floor_power_of_two(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_blocks_are_a_small_part_of_the_budget() {
        for memory_mib in [1, 4, 16, 64, 256, 1024, 65536] {
            for threads in [1, 2, 8, 32] {
                let layout = Layout::new(memory_mib << 20, threads);
                let open = (layout.block_bytes << layout.bucket_bits) as u64 * threads as u64;
                assert!(
                    open <= (memory_mib << 20) / 4 || layout.bucket_bits == 2,
                    "{memory_mib} MiB, {threads}"
                );
            }
        }
    }

    #[test]
    fn the_default_budget_has_256_buckets_of_64_kib_blocks() {
        let layout = Layout::new(1 << 30, 2);
        assert_eq!((layout.bucket_bits, layout.block_bytes), (8, 64 << 10));
    }
}
