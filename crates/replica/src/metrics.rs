//! What replicas count, next to where it happens.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaCounter {
    /// Records read for coordinators.
    Reads,
    /// Of these, those that had to wait for the disk.
    ColdReads,
    /// Writes that gave a new dot.
    Puts,
    /// Records merged.
    Merges,
    /// Of these, those that changed nothing.
    IdleMerges,
    /// Groups of writes committed together.
    Commits,
    /// Times that was waited until writes were on the disk.
    Syncs,
    /// Requests refused because too much was queued.
    Overloads,
    /// Requests refused because a routing table was too old for them, be it the coordinator's or this node's.
    OldTables,
    /// Requests refused since what was held is lost, and is not here again.
    Behind,
    /// Writes refused for want of space.
    FullDisk,
    /// Writes of new keys refused for want of memory.
    FullKeys,
    /// Records found damaged.
    Corruptions,
    /// Logs of engines that were found damaged or too short at the start.
    DamagedLogs,
    /// Groups of writes, and threads in the background, that ended by a panic.
    Panics,
    /// Hints taken in.
    HintsStored,
    /// Hints delivered.
    HintsDelivered,
    /// Bytes of records delivered as hints.
    HintBytes,
    /// Hints found damaged, and dropped.
    HintsDamaged,
    /// Exchanges that came to their end.
    Exchanges,
    /// Exchanges that did not.
    ExchangeFailures,
    /// Records received in exchanges.
    RepairsIn,
    /// Records sent in exchanges.
    RepairsOut,
    /// Bytes of exchanges, sent and received: keys, records, hashes and digests.
    ExchangeBytes,
    /// Sweeps of partitions for tombstones and expired records.
    Sweeps,
    /// Tombstones and expired records given up.
    Collected,
    /// Records whose expired values were dropped, and that are remembered.
    Expired,
}

/// All of them, with their names and meanings.
pub const REPLICA_COUNTERS: [(ReplicaCounter, &str, &str); 27] = [
    (ReplicaCounter::Reads, "replica_reads", "records read for coordinators"),
    (
        ReplicaCounter::ColdReads,
        "replica_cold_reads",
        "records read for coordinators that had to wait for the disk",
    ),
    (
        ReplicaCounter::Puts,
        "replica_puts",
        "writes coordinated as the first replica",
    ),
    (ReplicaCounter::Merges, "replica_merges", "records merged"),
    (
        ReplicaCounter::IdleMerges,
        "replica_idle_merges",
        "records merged that changed nothing",
    ),
    (
        ReplicaCounter::Commits,
        "replica_commits",
        "groups of writes committed together",
    ),
    (
        ReplicaCounter::Syncs,
        "replica_syncs",
        "times that was waited until writes were on the disk",
    ),
    (
        ReplicaCounter::Overloads,
        "replica_overloads",
        "requests to replicas refused because too much was queued",
    ),
    (
        ReplicaCounter::OldTables,
        "replica_old_tables",
        "requests to replicas refused because a routing table was too old for them",
    ),
    (
        ReplicaCounter::Behind,
        "replica_behind",
        "reads of replicas refused until what was lost here is had from others again",
    ),
    (
        ReplicaCounter::FullDisk,
        "replica_full_disk",
        "writes refused for want of space",
    ),
    (
        ReplicaCounter::FullKeys,
        "replica_full_keys",
        "writes of new keys refused for want of memory",
    ),
    (
        ReplicaCounter::Corruptions,
        "replica_corruptions",
        "records of versioned stores found damaged",
    ),
    (
        ReplicaCounter::DamagedLogs,
        "replica_damaged_logs",
        "logs of engines found damaged or too short at the start",
    ),
    (
        ReplicaCounter::Panics,
        "replica_panics",
        "groups of writes, and threads in the background, that ended by a panic",
    ),
    (ReplicaCounter::HintsStored, "hints_stored", "hints taken in"),
    (ReplicaCounter::HintsDelivered, "hints_delivered", "hints delivered"),
    (
        ReplicaCounter::HintBytes,
        "hint_bytes",
        "bytes of records delivered as hints",
    ),
    (
        ReplicaCounter::HintsDamaged,
        "hints_damaged",
        "hints found damaged and dropped: what they held comes from the other replicas, by comparison",
    ),
    (
        ReplicaCounter::Exchanges,
        "exchanges",
        "exchanges between replicas of a partition that came to their end",
    ),
    (
        ReplicaCounter::ExchangeFailures,
        "exchange_failures",
        "exchanges between replicas of a partition that failed",
    ),
    (
        ReplicaCounter::RepairsIn,
        "repairs_in",
        "records received in exchanges between replicas",
    ),
    (
        ReplicaCounter::RepairsOut,
        "repairs_out",
        "records sent in exchanges between replicas",
    ),
    (
        ReplicaCounter::ExchangeBytes,
        "exchange_bytes",
        "bytes of exchanges between replicas, sent and received",
    ),
    (
        ReplicaCounter::Sweeps,
        "sweeps",
        "looks through partitions for tombstones and expired records",
    ),
    (
        ReplicaCounter::Collected,
        "collected_records",
        "tombstones and expired records given up",
    ),
    (
        ReplicaCounter::Expired,
        "expired_records",
        "records whose expired values were dropped",
    ),
];

/// The counters of a node's replicas.
#[derive(Debug, Default)]
pub(crate) struct ReplicaMetrics {
    counters: [AtomicU64; REPLICA_COUNTERS.len()],
}

impl ReplicaMetrics {
    pub(crate) fn add(&self, counter: ReplicaCounter, count: u64) {
        self.counters[counter as usize].fetch_add(count, Relaxed);
    }

    /// A request was refused for this reason, if it is one that is counted where requests are let in.
    pub(crate) fn refused(&self, error: &ReplicaError) {
        match error.code {
            ReplicaErrorCode::OldTable => self.add(ReplicaCounter::OldTables, 1),
            ReplicaErrorCode::Behind => self.add(ReplicaCounter::Behind, 1),
            _ => {}
        }
    }

    pub(crate) fn get(&self, counter: ReplicaCounter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_place() {
        for (at, (counter, ..)) in REPLICA_COUNTERS.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
