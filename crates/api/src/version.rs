//! Versions, and their state on nodes.

use std::collections::BTreeMap;

use fondaco_model::cluster::ReplicaState;
use fondaco_model::{DiffCounts, StoreName, VersionNumber};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PushResource, UncountedNode};

/// The versions of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// The current one first, then those most recently current.
    pub versions: Vec<VersionResource>,
    /// The push under way or held, whose version is not among them yet.
    #[serde(default)]
    pub push: Option<PushResource>,
}

/// The state of a version in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// It is current.
    Serving,
    /// It is open, and can be swapped in at once.
    Ready,
    /// A partition of it is on no node yet, and is being fetched.
    Fetching,
    /// A partition of it is on no node, and cannot be fetched.
    Failed,
}

/// A version of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionResource {
    /// Its number.
    pub version: u64,
    /// Its state in the cluster.
    pub state: VersionState,
    /// Whether it is the current one.
    pub current: bool,
    /// The number of its records; null if unknown, like the fields below.
    pub records: Option<u64>,
    /// The number of partitions that it was built for.
    #[serde(default)]
    pub partitions: Option<u32>,
    /// The size of its files in bytes.
    pub bytes: Option<u64>,
    /// How many of these bytes are indexes, which should be in memory.
    pub index_bytes: Option<u64>,
    /// The number of its chunks.
    pub chunks: Option<u64>,
    /// When it was built, in milliseconds since 1970.
    pub built_unix_ms: Option<u64>,
    /// Of a hybrid store: up to when it contains all events, in milliseconds since 1970.
    #[serde(default)]
    pub as_of_unix_ms: Option<u64>,
    /// Of a hybrid store: from when on the stream on top of it is read, in milliseconds since 1970.
    #[serde(default)]
    pub stream_from_unix_ms: Option<u64>,
    /// Of a hybrid store: how long its events and records live, in milliseconds, if they expire.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
    /// Of a hybrid store whose records expire: the time of the records that have none of their own, in milliseconds since 1970.
    #[serde(default)]
    pub undated_unix_ms: Option<u64>,
    /// The compression of its values.
    pub compression: Option<String>,
    /// The location where it was built.
    pub source: Option<String>,
    /// The checksum that identifies it.
    #[serde(default)]
    pub checksum: Option<String>,
    /// Its directory on the answering node; null if the node has no file of it.
    pub directory: Option<String>,
    /// Why it cannot be served.
    pub error: Option<String>,
    /// Its state on each node.
    pub nodes: Vec<ReplicaResource>,
}

/// A version on a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReplicaResource {
    /// The number of the node.
    pub node: u32,
    /// Its state there.
    pub state: ReplicaState,
    /// The bytes that the fetch under way has fetched.
    pub bytes_done: u64,
    /// The bytes that it has to fetch; 0 without a fetch.
    pub bytes_total: u64,
    /// Whether it has all files, and waits for the stream on top of them to be read.
    #[serde(default)]
    pub reads_stream: bool,
    /// Whether it answers although some files are not complete: it reads on demand what it lacks.
    #[serde(default)]
    pub on_demand: bool,
    /// Why it failed last, or cannot read the stream.
    pub error: Option<String>,
}

/// A version to make current.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapRequest {
    /// Its number.
    #[schema(minimum = 1)]
    pub version: u64,
    /// Other stores, each with a kept version of it to make current by the same write.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u64>)]
    pub with: BTreeMap<StoreName, VersionNumber>,
}

/// A version to go back to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// Its number; by default the version before the current one.
    #[schema(minimum = 1)]
    pub to: Option<u64>,
    /// Whether the stores that were swapped in together with this one go back too, each to the version before, by the same write. It
    /// must be said if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<bool>,
    /// The version that must be the current one, or else nothing is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub if_current: Option<VersionNumber>,
}

/// The differences between two versions of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionDiff {
    /// The number of the former version.
    pub from: u64,
    /// The number of the later version.
    pub to: u64,
    /// The sums, with sample keys of each kind.
    #[serde(flatten)]
    pub counts: DiffCounts,
    /// The nodes whose partitions are not in the sums; empty if all are.
    pub missing: Vec<UncountedNode>,
    /// The position to continue at, in the answer of one node that has more to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
