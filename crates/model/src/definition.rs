//! An operator's definition of a store.

use serde::{Deserialize, Serialize};

use crate::fan_out::StoreFanOut;
use crate::name::StoreName;
use crate::stream::StreamSettings;
use crate::value_type::ValueType;
use crate::versioned::VersionedSettings;

/// The kinds of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Immutable versions, pushed whole.
    Batch,
    /// Immutable versions with the events of a stream on top of each.
    Hybrid,
    /// Read and written at any time, on any of its replicas.
    Versioned,
}

impl StoreKind {
    /// All kinds.
    pub const ALL: &[Self] = &[Self::Batch, Self::Hybrid, Self::Versioned];

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Hybrid => "hybrid",
            Self::Versioned => "versioned",
        }
    }
}

/// A store as its operator defined it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDefinition {
    /// Its name.
    pub name: StoreName,
    /// Its kind.
    pub kind: StoreKind,
    /// How many versions besides the current one are kept for rollback.
    pub backups: u32,
    /// How many nodes hold each partition; by default, the number that the cluster's placement gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether each node holds all partitions, and answers for all of them itself: for small tables.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everywhere: bool,
    /// How many nodes may be late, or absent, when a version is swapped in; by default, as many as leave a ready
    /// replica of each partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerate_failures: Option<u32>,
    /// How many keys a second may be read through all routers, and through all nodes; no limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_keys_per_second: Option<u64>,
    /// How many bytes one copy of the store may have; no limit by default. Versions that are kept for rollback count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_quota_bytes: Option<u64>,
    /// The fan-out of requests that name none themselves; by default, the same node for the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<StoreFanOut>,
    /// The type of its values, which never changes.
    #[serde(default, skip_serializing_if = "ValueType::is_bytes")]
    pub value_type: ValueType,
    /// The settings of a versioned store; `None` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioned: Option<VersionedSettings>,
    /// The stream of a hybrid store; `None` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamSettings>,
}

impl StoreDefinition {
    /// How many backups a store keeps by default.
    pub const BACKUPS_DEFAULT: u32 = 1;
    /// The most backups that a store may keep.
    pub const BACKUPS_MAX: u32 = 100;

    /// A batch store with all defaults.
    pub fn batch(name: StoreName) -> Self {
        Self {
            name,
            kind: StoreKind::Batch,
            backups: Self::BACKUPS_DEFAULT,
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

    /// A hybrid store with this stream.
    pub fn hybrid(name: StoreName, stream: StreamSettings) -> Self {
        Self {
            kind: StoreKind::Hybrid,
            stream: Some(stream),
            ..Self::batch(name)
        }
    }

    /// A versioned store with these settings, and the number of replicas that the cluster's placement gives.
    pub fn versioned(name: StoreName, settings: VersionedSettings) -> Self {
        Self {
            kind: StoreKind::Versioned,
            versioned: Some(settings),
            ..Self::batch(name)
        }
    }
}
