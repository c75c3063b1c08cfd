//! Stores.

use fondaco_model::versioned::VersionedSettings;
use fondaco_model::{StoreKind, StreamChange, ValueType};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{PushResource, VersionResource};

/// A store to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NewStore {
    /// Its name: 1 to 64 characters from `a-z A-Z 0-9 _ - .`
    #[schema(example = "pymk", min_length = 1, max_length = 64)]
    pub name: String,
    /// Its kind.
    #[serde(default = "batch")]
    pub kind: StoreKind,
    /// Its options: members of the table [`fondaco_model::StoreOption`]. Omitted ones have their default.
    #[serde(flatten)]
    #[schema(ignore)]
    pub options: Map<String, Value>,
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
            options: Map::new(),
        }
    }
}

/// Changes of a store; omitted settings stay.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct StoreChange {
    /// The options to change: members of the table [`fondaco_model::StoreOption`].
    #[serde(flatten)]
    #[schema(ignore)]
    pub options: Map<String, Value>,
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
    /// How many nodes hold each partition.
    pub replicas: u32,
    /// How many nodes are to hold each partition of a versioned store, while a plan changes that; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_next: Option<u32>,
    /// How many bytes one copy has: of a batch store all kept versions, of a versioned one about the bytes of its records; null if
    /// no node reports it, as nodes do for versioned stores with a quota, and at nodes and routers, which know no reports.
    #[serde(default)]
    pub space_used_bytes: Option<u64>,
    /// Whether a versioned store takes no writes but deletions, because it is larger than its quota.
    #[serde(default)]
    pub over_space_quota: bool,
    /// All its other options, but for those of its settings and its stream.
    #[serde(flatten)]
    #[schema(ignore)]
    pub options: fondaco_model::StoreChange,
    /// Settings of a versioned store; null for other kinds.
    #[schema(ignore)]
    pub versioned: Option<VersionedSettings>,
    /// The stream of a hybrid store; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub stream: Option<StreamChange>,
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

impl StoreResource {
    /// The type of its values.
    pub fn value_type(&self) -> ValueType {
        self.options.value_type.unwrap_or_default()
    }
}

/// How many partitions of a store have too few live replicas. A node that must catch up first counts as live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WithoutQuorum {
    /// Partitions that cannot be read: without a read quorum or, for a batch store, without any live replica.
    pub reads: u64,
    /// Partitions that cannot be written; 0 for a batch store.
    pub writes: u64,
}
