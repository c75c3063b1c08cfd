//! What operations on versioned stores have done, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the operations of a client on versioned stores have done, since it was made.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct QuorumCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, as it is counted. Takes no lock.
        #[derive(Debug, Default)]
        pub struct QuorumCounters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl QuorumCounters {
            /// What was counted so far.
            pub fn read(&self) -> QuorumCounts {
                QuorumCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Keys read at a quorum, those that an update or a conditional write read first included.
    reads,
    /// Values and tombstones written at a quorum.
    writes,
    /// Requests to replicas, of all kinds.
    requests,
    /// Of these, those sent because another one failed.
    retries,
    /// Of these, those sent because another one took long.
    hedges,
    /// Conditional writes that found another value, and were tried again.
    conflicts,
    /// Records sent to replicas that had answered a read with less.
    repairs,
    /// Repairs that a replica did not take.
    repairs_failed,
    /// Hints stored for replicas that did not take a write.
    hints,
    /// Replicas that did not take a write, and for which nobody could be found to keep a hint.
    hints_failed,
    /// Operations that were answered, and whose repairs or hints were not waited for, since too many others were.
    abandoned,
    /// Operations that failed for want of a quorum.
    no_quorum,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
