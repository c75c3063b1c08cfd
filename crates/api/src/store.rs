//! Stores.

use fondaco_model::{StoreFanOut, StoreKind, ValueType};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{PushResource, StreamOptions, StreamResource, VersionResource, VersionedOptions, VersionedResource};

/// A store to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStore {
    /// Its name: 1 to 64 characters from `a-z A-Z 0-9 _ - .`
    #[schema(example = "pymk", min_length = 1, max_length = 64)]
    pub name: String,
    /// Its kind.
    #[serde(default = "batch")]
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100, default = 1)]
    pub backups: Option<u32>,
    /// How many nodes hold each partition; by default, the number that the cluster's placement gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub replicas: Option<u32>,
    /// Whether each node holds all partitions, and answers for all of them itself: for small tables, instead of a number
    /// of replicas.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everywhere: bool,
    /// How many nodes may be late, or absent, when a version is swapped in; by default, as many as leave a ready
    /// replica of each partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerate_failures: Option<u32>,
    /// How many keys a second may be read through all routers, and through all nodes; no limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub read_keys_per_second: Option<u64>,
    /// How many bytes one copy of the store may have, with the versions that are kept for rollback; no limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub space_quota_bytes: Option<u64>,
    /// How requests of several keys choose nodes unless they say it themselves: a strategy, or cluster:GROUPS; the same node for the
    /// same key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "cluster:2")]
    pub fan_out: Option<StoreFanOut>,
    /// The type of its values, which never changes.
    #[serde(default, skip_serializing_if = "ValueType::is_bytes")]
    pub value_type: ValueType,
    /// Settings of a versioned store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioned: Option<VersionedOptions>,
    /// The stream of a hybrid store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamResource>,
}

fn batch() -> StoreKind {
    StoreKind::Batch
}

impl NewStore {
    /// A batch store of this name, with all defaults.
    pub fn batch(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: batch(),
            backups: None,
            replicas: None,
            everywhere: false,
            tolerate_failures: None,
            read_keys_per_second: None,
            space_quota_bytes: None,
            fan_out: None,
            value_type: Default::default(),
            versioned: None,
            stream: None,
        }
    }
}

/// Changes of a store; omitted settings stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreChange {
    /// How many versions besides the current one are kept for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub backups: Option<u32>,
    /// How many nodes hold each partition; 0 for the number that the cluster's placement gives. Of a versioned store it changes by a
    /// plan, with the quorums that are given: majorities stay majorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether each node holds all partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everywhere: Option<bool>,
    /// How many nodes may be late, or absent, when a version is swapped in; null for as many as leave a ready replica of
    /// each partition.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub tolerate_failures: Option<Option<u32>>,
    /// How many keys a second may be read through all routers, and through all nodes; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_keys_per_second: Option<u64>,
    /// How many bytes one copy of the store may have; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_quota_bytes: Option<u64>,
    /// How requests of several keys choose nodes unless they say it themselves; null for the default.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, example = "cluster:2")]
    pub fan_out: Option<Option<StoreFanOut>>,
    /// Settings of a store of kind versioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioned: Option<VersionedOptions>,
    /// The stream of a hybrid store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamOptions>,
}

/// The members of a document about a store that it has, those of its settings and its stream with a dot.
pub fn members(document: &impl Serialize) -> Vec<String> {
    let Ok(Value::Object(members)) = serde_json::to_value(document) else {
        return Vec::new();
    };
    let nested = |(name, value): (String, Value)| match value {
        Value::Object(members) => members.keys().map(|member| format!("{name}.{member}")).collect(),
        _ => vec![name],
    };
    members.into_iter().flat_map(nested).collect()
}

/// A member that is present, though it may be null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// All stores.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreList {
    /// In the order of their names.
    pub stores: Vec<StoreResource>,
}

/// A store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoreResource {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    pub backups: u32,
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// How many nodes are to hold each partition of a versioned store, while a plan changes that; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_next: Option<u32>,
    /// Whether each node holds all partitions.
    #[serde(default)]
    pub everywhere: bool,
    /// How many nodes may be late, or absent, when a version is swapped in; null for as many as leave a ready replica of
    /// each partition.
    pub tolerate_failures: Option<u32>,
    /// How many keys a second may be read through all routers, and through all nodes; null for no limit.
    pub read_keys_per_second: Option<u64>,
    /// How many bytes one copy of the store may have; null for no limit.
    #[serde(default)]
    pub space_quota_bytes: Option<u64>,
    /// How many bytes one copy has: of a batch store all kept versions, of a versioned one about the bytes of its records; null if
    /// no node reports it, as nodes do for versioned stores with a quota, and at nodes and routers, which know no reports.
    #[serde(default)]
    pub space_used_bytes: Option<u64>,
    /// Whether a versioned store takes no writes but deletions, because it is larger than its quota.
    #[serde(default)]
    pub over_space_quota: bool,
    /// How requests of several keys choose nodes unless they say it themselves; null for the default.
    #[schema(value_type = Option<String>)]
    pub fan_out: Option<StoreFanOut>,
    /// The type of its values.
    #[serde(default)]
    pub value_type: ValueType,
    /// Settings of a versioned store; null for other kinds.
    pub versioned: Option<VersionedResource>,
    /// The stream of a hybrid store; null for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamResource>,
    /// Of a hybrid store that was just created: why its topic cannot be read, as the brokers say. A push waits until it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_problem: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The version that should be served.
    pub current_version: Option<u64>,
    /// Its versions, the current one first, then those most recently current.
    pub versions: Vec<VersionResource>,
    /// The push under way, or the last one.
    pub push: Option<PushResource>,
    /// Nodes that do not have the current version yet, and get no requests for this store.
    pub late: Vec<u32>,
    /// About how many keys a versioned store has, as nodes report; null for other kinds, and if no node reports.
    pub keys: Option<u64>,
    /// How many partitions have too few live replicas; null while the owners are unknown.
    pub without_quorum: Option<WithoutQuorum>,
}

/// How many partitions of a store have too few live replicas. A node that must catch up first counts as live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WithoutQuorum {
    /// Partitions that cannot be read: without a read quorum or, for a batch store, without any live replica.
    pub reads: u64,
    /// Partitions that cannot be written; 0 for a batch store.
    pub writes: u64,
}
