//! The counters of replicas, kept next to the code that counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode};

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaCounter {
    /// Records read for coordinators.
    Reads,
    /// Those that had to wait for the disk.
    ColdReads,
    /// Writes that created a new dot.
    Puts,
    /// Records merged.
    Merges,
    /// Those that changed nothing.
    IdleMerges,
    /// Groups of writes committed together.
    Commits,
    /// Waits for writes to be on the disk (fsync).
    Syncs,
    /// Requests refused because queues were full.
    Overloads,
    /// Requests refused because a routing table was too old, the coordinator's or this node's.
    OldTables,
    /// Requests refused because data was lost here and is not restored yet.
    Behind,
    /// Writes refused because the disk is full.
    FullDisk,
    /// Writes of new keys refused because memory is full.
    FullKeys,
    /// Records found damaged.
    Corruptions,
    /// Engine logs found damaged or too short at the start.
    DamagedLogs,
    /// Panics in groups of writes and in background threads.
    Panics,
    /// Hints stored.
    HintsStored,
    /// Hints delivered.
    HintsDelivered,
    /// Bytes of records delivered as hints.
    HintBytes,
    /// Damaged hints, which were dropped.
    HintsDamaged,
    /// Completed exchanges.
    Exchanges,
    /// Failed exchanges.
    ExchangeFailures,
    /// Records received in exchanges.
    RepairsIn,
    /// Records sent in exchanges.
    RepairsOut,
    /// Bytes of exchanges, sent and received: keys, records, hashes and digests.
    ExchangeBytes,
    /// Sweeps of partitions for tombstones and expired records.
    Sweeps,
    /// Tombstones and expired records that were collected.
    Collected,
    /// Records that were kept without their expired values.
    Expired,
}

/// All counters, with their names and meanings.
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
        "waits for writes to be on the disk (fsync)",
    ),
    (
        ReplicaCounter::Overloads,
        "replica_overloads",
        "requests to replicas refused because queues were full",
    ),
    (
        ReplicaCounter::OldTables,
        "replica_old_tables",
        "requests to replicas refused because a routing table was too old",
    ),
    (
        ReplicaCounter::Behind,
        "replica_behind",
        "reads of replicas refused until data that was lost here is restored from other nodes",
    ),
    (
        ReplicaCounter::FullDisk,
        "replica_full_disk",
        "writes refused because the disk is full",
    ),
    (
        ReplicaCounter::FullKeys,
        "replica_full_keys",
        "writes of new keys refused because memory is full",
    ),
    (
        ReplicaCounter::Corruptions,
        "replica_corruptions",
        "records of versioned stores found damaged",
    ),
    (
        ReplicaCounter::DamagedLogs,
        "replica_damaged_logs",
        "engine logs found damaged or too short at the start",
    ),
    (
        ReplicaCounter::Panics,
        "replica_panics",
        "panics in groups of writes and in background threads",
    ),
    (ReplicaCounter::HintsStored, "hints_stored", "hints stored"),
    (ReplicaCounter::HintsDelivered, "hints_delivered", "hints delivered"),
    (
        ReplicaCounter::HintBytes,
        "hint_bytes",
        "bytes of records delivered as hints",
    ),
    (
        ReplicaCounter::HintsDamaged,
        "hints_damaged",
        "damaged hints, which were dropped; anti-entropy restores their records from other replicas",
    ),
    (
        ReplicaCounter::Exchanges,
        "exchanges",
        "completed exchanges between replicas of a partition",
    ),
    (
        ReplicaCounter::ExchangeFailures,
        "exchange_failures",
        "failed exchanges between replicas of a partition",
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
        "sweeps of partitions for tombstones and expired records",
    ),
    (
        ReplicaCounter::Collected,
        "collected_records",
        "tombstones and expired records that were collected",
    ),
    (
        ReplicaCounter::Expired,
        "expired_records",
        "records that were kept without their expired values",
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

    /// Counts a refused request, if refusals with this error are counted at admission.
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
    fn every_counter_has_its_index() {
        for (at, (counter, ..)) in REPLICA_COUNTERS.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
