//! How a process divides its memory: that of the machine, or of its control group if that has a limit. Each share is a
//! limit at which its user waits, refuses, or evicts data that can be read again. All shares leave at least a quarter
//! of the memory to the program itself, to indexes, and to the page cache.

use crate::process;

const MIB: u64 = 1 << 20;

/// How many threads commit writes at most, each with a queue.
const COMMITTING_THREADS_MAX: u64 = 4;

/// The memory that is assumed if the operating system does not say how much there is.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The shares, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The whole memory.
    pub memory_bytes: u64,
    /// Caches of versioned stores, unless the configuration says otherwise: they evict.
    pub cache_bytes: u64,
    /// Data in the trees of the engine `disk` that is not in their files yet: writers wait.
    pub unflushed_bytes: u64,
    /// Writes in the queue of one committing thread: more are refused.
    pub queue_bytes: u64,
    /// Requests and replies of clients, over RESP and HTTP: clients wait. Values from other nodes and replicas on their
    /// way to clients have half as much besides: more reads are refused.
    pub buffer_bytes: u64,
}

/// The least memory for keys of the engine `log`, whatever is left: about 60,000 short keys.
const KEY_BYTES_MIN: u64 = 8 * MIB;

impl MemoryPlan {
    /// The plan of this process, for the configured memory if it is set.
    pub fn of_process(configured_bytes: Option<u64>) -> Self {
        Self::of(configured_bytes.or_else(process::memory_bytes).unwrap_or(UNKNOWN_BYTES))
    }

    fn of(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            cache_bytes: (memory_bytes / 8).clamp(16 * MIB, 64 << 30),
            // fjall's log has at least 64 MiB, and as much is in memory.
            unflushed_bytes: (memory_bytes / 8).clamp(64 * MIB, 512 * MIB),
            queue_bytes: (memory_bytes / 64).clamp(2 * MIB, 64 * MIB),
            buffer_bytes: (memory_bytes / 8).clamp(16 * MIB, 4 << 30),
        }
    }

    /// Keys of the engine `log`: three quarters of the memory, less the other shares with caches of this size. Beyond
    /// it, new keys are refused.
    pub fn key_bytes(&self, cache_bytes: u64) -> u64 {
        (self.memory_bytes / 4 * 3)
            .saturating_sub(self.shares_bytes(cache_bytes))
            .max(KEY_BYTES_MIN)
    }

    /// All shares except that of keys.
    fn shares_bytes(&self, cache_bytes: u64) -> u64 {
        let queues_bytes = COMMITTING_THREADS_MAX * self.queue_bytes;
        cache_bytes + self.unflushed_bytes + queues_bytes + self.buffer_bytes + self.buffer_bytes / 2
    }

    /// The length of one segment of the engine `log`. The keys of one or two segments are collected in memory for the
    /// file beside the segment; where values are short, they are as long as the segment.
    pub fn log_segment_bytes(&self) -> u64 {
        (self.memory_bytes / 16).clamp(4 * MIB, 64 * MIB)
    }

    /// How much data one table of the engine `disk` collects before it is written out.
    pub fn table_buffer_bytes(&self) -> u64 {
        self.unflushed_bytes / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_memory_is_left_over() {
        for memory_bytes in [256 * MIB, 512 * MIB, 1 << 30, 24 << 30, 1 << 40] {
            let plan = MemoryPlan::of(memory_bytes);
            let shares = plan.shares_bytes(plan.cache_bytes) + plan.key_bytes(plan.cache_bytes);
            assert!(shares <= memory_bytes * 3 / 4, "{plan:?}");
        }
    }

    #[test]
    fn configured_caches_reduce_the_share_of_keys() {
        let plan = MemoryPlan::of(16 << 30);
        let key_bytes = plan.key_bytes(plan.cache_bytes);
        assert!(key_bytes > 6 << 30, "{key_bytes}");
        assert_eq!(plan.key_bytes(plan.cache_bytes + (1 << 30)), key_bytes - (1 << 30));
        assert_eq!(plan.key_bytes(u64::MAX / 2), KEY_BYTES_MIN);
    }
}
