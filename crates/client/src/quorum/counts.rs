//! Counters of operations on versioned stores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($(#[doc = $doc:literal] $name:ident),* $(,)?) => {
        /// Counts of a client's operations on versioned stores, since it was made.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct QuorumCounts {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl QuorumCounts {
            /// Each count with its name and description.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let all = [$((stringify!($name), $doc, self.$name)),*];
                let plain = |(name, doc, count): (_, &'static str, _)| (name, doc.trim().trim_end_matches('.'), count);
                all.into_iter().map(plain)
            }
        }

        impl std::iter::Sum for QuorumCounts {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, counts| Self { $($name: sum.$name + counts.$name),* })
            }
        }

        /// The live counters. Takes no lock.
        #[derive(Debug, Default)]
        pub struct QuorumCounters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl QuorumCounters {
            /// The current counts.
            pub fn read(&self) -> QuorumCounts {
                QuorumCounts { $($name: self.$name.load(Relaxed),)* }
            }

            /// Counts writes that a node made alone, without an operation: writes of keys that it is the only replica
            /// of, at a quorum of one.
            pub fn count_alone(&self, written: u64, failed: u64) {
                self.writes.fetch_add(written + failed, Relaxed);
                self.no_quorum.fetch_add(failed, Relaxed);
            }
        }
    };
}

counts! {
    /// Keys read at a quorum, including the reads of updates and conditional writes.
    reads,
    /// Keys read that had several values at once, or sums of a counter.
    siblings,
    /// Values and tombstones written at a quorum.
    writes,
    /// Requests to replicas, of all kinds.
    requests,
    /// Of these, those sent because another one failed.
    retries,
    /// Of these, those sent because another one took long.
    hedges,
    /// Requests to replicas that timed out before the operation ended.
    late,
    /// Conditional writes that found another value, and were retried.
    conflicts,
    /// Records sent to replicas that had answered a read with an older record.
    repairs,
    /// Repairs that a replica did not accept.
    repairs_failed,
    /// Hints stored for replicas that did not accept a write.
    hints,
    /// Missed writes of replicas for which no node could keep a hint.
    hints_failed,
    /// Operations that ended without waiting for their repairs or hints, because too many others did.
    abandoned,
    /// Operations that failed because a quorum was not reached.
    no_quorum,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
