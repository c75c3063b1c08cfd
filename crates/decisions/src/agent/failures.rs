//! Failed fetches, remembered for each partition: one that cannot be fetched does not keep others of its version from being
//! tried, and a version from another source, or another one with the number of a dropped store's, begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_model::cluster::VersionDetail;
use fondaco_model::{PartitionId, PartitionSet};

use super::wanted::Urgency;

/// How often a fetch is tried before the node reports it as failed. After that, a fetch of a push is not retried; a kept
/// version is retried from time to time, without end.
pub const FETCH_ATTEMPTS_MAX: u32 = 5;

/// The wait after the first failure; it doubles with each, in milliseconds.
const RETRY_MS_MIN: u64 = 1_000;

/// The longest wait, in milliseconds.
const RETRY_MS_MAX: u64 = 60_000;

/// A fetch that has failed.
#[derive(Debug, Clone)]
pub struct FailedFetch {
    /// The location that the version was built at.
    pub source: String,
    /// The checksum that its manifest must have.
    pub manifest_checksum: String,
    /// The partitions that were to be fetched.
    pub partitions: PartitionSet,
    /// The reason.
    pub error: String,
    /// Whether an early retry is useless.
    pub for_good: bool,
}

/// The failed fetches of a version.
#[derive(Debug, Default)]
pub(super) struct Failures {
    source: String,
    manifest_checksum: String,
    partitions: BTreeMap<PartitionId, Failure>,
}

/// The memory of failed fetches of a partition.
#[derive(Debug)]
struct Failure {
    attempts: u32,
    at_ms: u64,
    error: Arc<str>,
}

impl Failures {
    /// Whether they are failures to fetch this version.
    pub(super) fn are_of(&self, detail: &VersionDetail) -> bool {
        (&self.source, &self.manifest_checksum) == (&detail.source, &detail.manifest_checksum)
    }

    /// Adds a failed fetch.
    pub(super) fn add(&mut self, failed: FailedFetch, at_ms: u64) {
        let FailedFetch {
            source,
            manifest_checksum,
            partitions,
            error,
            for_good,
        } = failed;
        if (&self.source, &self.manifest_checksum) != (&source, &manifest_checksum) {
            *self = Self {
                source,
                manifest_checksum,
                partitions: BTreeMap::new(),
            };
        }
        let error: Arc<str> = error.into();
        for partition in partitions.iter() {
            let before = self.partitions.get(&partition).map_or(0, |failure| failure.attempts);
            let attempts = before.saturating_add(1);
            let failure = Failure {
                attempts: if for_good {
                    attempts.max(FETCH_ATTEMPTS_MAX)
                } else {
                    attempts
                },
                at_ms,
                error: Arc::clone(&error),
            };
            self.partitions.insert(partition, failure);
        }
    }

    /// Forgets all failures but those of these partitions.
    pub(super) fn keep(&mut self, missing: &PartitionSet) {
        self.partitions.retain(|partition, _| missing.contains(*partition));
    }

    /// The partitions of these that should be tried now.
    pub(super) fn due(&self, missing: &PartitionSet, urgency: Urgency, at_ms: u64) -> PartitionSet {
        let is_due = |partition: &PartitionId| {
            let failure = self.partitions.get(partition);
            failure.is_none_or(|failure| failure.is_due(urgency, at_ms))
        };
        missing.iter().filter(is_due).collect()
    }

    /// Whether all attempts to fetch a partition have failed.
    pub(super) fn are_final_for(&self, partition: PartitionId) -> bool {
        self.partitions.get(&partition).is_some_and(Failure::is_final)
    }

    /// The reason of the last one.
    pub(super) fn error(&self) -> Option<&str> {
        let last = self.partitions.values().max_by_key(|failure| failure.at_ms);
        last.map(|failure| &*failure.error)
    }
}

impl Failure {
    /// Whether the node reports it as failed.
    fn is_final(&self) -> bool {
        self.attempts >= FETCH_ATTEMPTS_MAX
    }

    /// Whether the fetch should be retried now.
    fn is_due(&self, urgency: Urgency, at_ms: u64) -> bool {
        let doublings = self.attempts.saturating_sub(1).min(16);
        let wait_ms = (RETRY_MS_MIN << doublings).min(RETRY_MS_MAX);
        let again = urgency != Urgency::Pushed || !self.is_final();
        again && at_ms - self.at_ms >= wait_ms
    }
}
