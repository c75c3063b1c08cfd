//! How a process divides the memory that it may have, which is the machine's, or its control group's where that has a
//! limit. Each share is a bound at which its user waits, refuses, or drops what can be read again. All of them leave at
//! least a quarter of the memory to the program itself, to indexes, and to the page cache.

use crate::process;

const MIB: u64 = 1 << 20;

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
    /// What clients send and are sent, over RESP and HTTP: they wait.
    pub(crate) buffer_bytes: u64,
}

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
            // As many committing threads as there can be.
            let shares = plan.cache_bytes + plan.unflushed_bytes + 4 * plan.queue_bytes + plan.buffer_bytes;
            assert!(shares <= memory_bytes * 3 / 4, "{plan:?}");
        }
    }
}
