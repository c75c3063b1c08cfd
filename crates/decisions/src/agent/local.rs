//! The replicas on a node, as it reports them to its agent.

use std::collections::BTreeMap;

use fondaco_model::cluster::VersionDetail;
use fondaco_model::{CanaryCounts, PartitionCount, PartitionSet, StoreName, VersionNumber};

/// A version of a store.
pub type ReplicaKey = (StoreName, VersionNumber);

/// All versions on a node's disk, and all its fetches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalReplicas {
    /// Each version with anything on the disk, including the remains of a stopped fetch.
    pub versions: BTreeMap<ReplicaKey, LocalVersion>,
    /// The running fetches, including stopped ones that have not ended yet.
    pub fetches: BTreeMap<ReplicaKey, LocalFetch>,
    /// The bytes of the last fetch of each version.
    pub fetched_bytes: BTreeMap<ReplicaKey, u64>,
    /// The versioned stores with anything on the node.
    pub versioned: BTreeMap<StoreName, LocalVersioned>,
    /// The counts of canaries under way.
    pub canaries: BTreeMap<ReplicaKey, CanaryCounts>,
}

/// The partitions of a versioned store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalVersioned {
    /// The number of the store: another one under the same name is another store.
    pub id: u16,
    /// How many partitions there are, as far as these know.
    pub partitions: PartitionCount,
    /// The partitions that have everything that their owners had when the node was given them: it has owned them since
    /// the store was created, or has compared them with an owner completely since they were empty.
    pub synchronised: PartitionSet,
    /// How many partitions have been counted: those whose keys are known.
    pub held: u64,
    /// How many keys they have.
    pub keys: u64,
    /// About how many bytes their records have; 0 if the store has no space quota.
    pub bytes: u64,
}

/// A version on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalVersion {
    /// The checksum of its manifest; `None` if the manifest is missing or damaged.
    pub manifest_checksum: Option<String>,
    /// The partitions that are complete and open.
    pub open: PartitionSet,
    /// The partitions that are not complete, and that a fetch has opened all the same: look-ups read on demand what is missing.
    pub on_demand: PartitionSet,
    /// The partitions without records, which have no files: each node with the manifest has them, also those of others.
    pub empty: PartitionSet,
    /// The open partitions of a hybrid store that have yet to read their stream.
    pub behind: PartitionSet,
    /// The error that keeps them from it, if there is one.
    pub stream_error: Option<String>,
    /// The open partitions that are damaged, if only in part: they are served as they are until they have been fetched
    /// again.
    pub damaged: PartitionSet,
    /// The damage, for people.
    pub damage: Option<String>,
}

/// A fetch that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFetch {
    /// The checksum that the manifest must have.
    pub manifest_checksum: String,
    /// The partitions to fetch.
    pub partitions: PartitionSet,
    /// The bytes that are there already.
    pub bytes_done: u64,
    /// The bytes that it has to fetch.
    pub bytes_total: u64,
    /// The estimated time left, in seconds, if it can be estimated.
    pub seconds_left: Option<u64>,
}

impl LocalVersion {
    /// The partitions that look-ups can be answered for.
    pub fn answered(&self) -> PartitionSet {
        self.open.with(&self.on_demand)
    }

    /// Whether it is the version of this detail, as far as can be seen, and not another one with the same number, for
    /// example of a dropped store of the same name.
    pub(super) fn is_the_one(&self, detail: &VersionDetail) -> bool {
        let same = self.manifest_checksum.as_ref();
        same.is_none_or(|checksum| *checksum == detail.manifest_checksum)
    }
}
