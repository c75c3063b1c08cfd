//! How a process divides the memory that it may have, which is the machine's, or its control group's where that has a
//! limit. Each share is a bound at which its user waits, refuses, or drops what can be read again. All of them leave at
//! least a quarter of the memory to the program itself, to indexes, and to the page cache.

use crate::process;

const MIB: u64 = 1 << 20;

/// How many threads commit writes at most, each with a queue.
const COMMITTING_THREADS_MAX: u64 = 4;

/// What is assumed where the operating system does not say how much memory there is.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The shares, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// All of it.
    pub(crate) memory_bytes: u64,
    /// Caches of versioned stores, unless the configuration says otherwise: they evict.
    pub(crate) cache_bytes: u64,
    /// What was written to the trees of the engine `disk`, and is not in their files yet: writers wait.
    pub(crate) unflushed_bytes: u64,
    /// Writes that wait for a thread that commits, for each: more are refused.
    pub(crate) queue_bytes: u64,
    /// What clients send and are sent, over RESP and HTTP: they wait. Values of other nodes and of replicas that are on their
    /// way to clients have half of it besides: reads of more are refused.
    pub(crate) buffer_bytes: u64,
}

/// The least that keys of the engine `log` may take, whatever is left: about 60,000 short ones.
const KEY_BYTES_MIN: u64 = 8 * MIB;

impl MemoryPlan {
    /// The plan of this process, for so much memory if it is configured.
    pub(crate) fn of_process(configured_bytes: Option<u64>) -> Self {
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

    /// Keys of the engine `log`: what the other shares leave of three quarters, with caches of so many bytes. Keys that are
    /// not there yet are refused then.
    pub(crate) fn key_bytes(&self, cache_bytes: u64) -> u64 {
        (self.memory_bytes / 4 * 3)
            .saturating_sub(self.shares_bytes(cache_bytes))
            .max(KEY_BYTES_MIN)
    }

    /// All shares but that of keys.
    fn shares_bytes(&self, cache_bytes: u64) -> u64 {
        let queues_bytes = COMMITTING_THREADS_MAX * self.queue_bytes;
        cache_bytes + self.unflushed_bytes + queues_bytes + self.buffer_bytes + self.buffer_bytes / 2
    }

    /// How long a part of the log of the engine `log` is. The keys of one or two parts are gathered in memory for the file
    /// beside it, and are as long as the part where values are short.
    pub(crate) fn log_segment_bytes(&self) -> u64 {
        (self.memory_bytes / 16).clamp(4 * MIB, 64 * MIB)
    }

    /// What one table of the engine `disk` collects before it is written out.
    pub(crate) fn table_buffer_bytes(&self) -> u64 {
        self.unflushed_bytes / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_a_quarter_of_a_gibibyte_on_a_quarter_is_left() {
        for memory_bytes in [256 * MIB, 512 * MIB, 1 << 30, 24 << 30, 1 << 40] {
            let plan = MemoryPlan::of(memory_bytes);
            let shares = plan.shares_bytes(plan.cache_bytes) + plan.key_bytes(plan.cache_bytes);
            assert!(shares <= memory_bytes * 3 / 4, "{plan:?}");
        }
    }

    #[test]
    fn keys_give_way_to_caches_that_were_asked_for() {
        let plan = MemoryPlan::of(16 << 30);
        let key_bytes = plan.key_bytes(plan.cache_bytes);
        assert!(key_bytes > 6 << 30, "{key_bytes}");
        assert_eq!(plan.key_bytes(plan.cache_bytes + (1 << 30)), key_bytes - (1 << 30));
        assert_eq!(plan.key_bytes(u64::MAX / 2), KEY_BYTES_MIN);
    }
}
