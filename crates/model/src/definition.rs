//! An operator's definition of a store.

use serde::{Deserialize, Serialize};

use crate::compatibility::Compatibility;
use crate::fan_out::StoreFanOut;
use crate::gate::Gates;
use crate::key_type::KeyType;
use crate::name::StoreName;
use crate::store_option::store_options;
use crate::stream::{StreamChange, StreamSettings};
use crate::value_type::ValueType;
use crate::versioned::{VersionedChange, VersionedSettings};

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

store_options! {
    /// A store as its operator defined it.
    record StoreDefinition {
        /// Its name.
        name: StoreName,
        /// Its kind.
        kind: StoreKind,
        /// The settings of a versioned store; `None` for others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        versioned: Option<VersionedSettings>,
        /// The stream of a hybrid store; `None` for others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<StreamSettings>,
    }

    /// The options of a new store, or a change of a store's definition. Missing options have their default, or stay.
    change StoreChange "" {
        /// Settings of a versioned store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        versioned: Option<VersionedChange>,
        /// The stream of a hybrid store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<StreamChange>,
    }

    /// How many versions besides the current one are kept for rollback; 1 by default. Surplus ones are deleted.
    "backups" backups: u32, Count(0, StoreDefinition::BACKUPS_MAX as u64), [Batch, Hybrid];

    /// How many nodes hold each partition, up to the number of nodes; 0, the default, is the number that the cluster's placement
    /// gives. Of a versioned store a plan changes it, and majorities stay majorities.
    "replicas" replicas: Option<u32> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::count_from(1), [Batch, Hybrid, Versioned] or "0";

    /// Whether every node holds the whole store, and answers for all of it: for a small table that is asked for often.
    "everywhere" everywhere: bool [serde(default, skip_serializing_if = "std::ops::Not::not")], Bool, [Batch, Hybrid];

    /// How many nodes may be late or absent when a version is swapped in: a number, or any, the default, as long as every
    /// partition has a ready node.
    "tolerate-failures" tolerate_failures: Option<u32> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::count_from(0), [Batch, Hybrid] or "any";

    /// How many keys per second may be read through all routers, and through all nodes; 0, the default, is no limit.
    "read-keys-per-second" read_keys_per_second: Option<u64> [serde(default, skip_serializing_if = "Option::is_none")],
    Count(1, u64::MAX), [Batch, Hybrid, Versioned] or "0";

    /// How many bytes one copy of the store may have, with the versions that are kept for rollback, for instance 10GB; 0, the
    /// default, is no limit.
    "space-quota" space_quota_bytes: Option<u64> [serde(default, skip_serializing_if = "Option::is_none")],
    Bytes(1, u64::MAX), [Batch, Hybrid, Versioned] or "0";

    /// How look-ups of several keys choose nodes, unless the request itself says how: sticky, the default, nearest, preferred,
    /// round-robin, set-cover, cluster, or cluster:GROUPS, which asks at most this number of groups of nodes; default takes it back.
    "fan-out" fan_out: Option<StoreFanOut> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::text::<StoreFanOut>("FAN-OUT"), [Batch, Hybrid] or "default";

    /// The gates that each pushed version must pass before it goes live, joined by semicolons, such as records -10%..+50%; gone <= 5%;
    /// none takes them back.
    "gate" gates: Option<Gates> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::text::<Gates>("GATES"), [Batch, Hybrid] or "none";

    /// The type of its values: bytes, the default; string, integer, json or messagepack; avro or protobuf, whose schemas are
    /// registered; ids, sorted sets of numbers that nodes unite, intersect and count; or graph, vertices and edges.
    "value-type" value_type: ValueType [serde(default, skip_serializing_if = "ValueType::is_bytes")],
    Word("TYPE", ValueType::WORDS), [Batch, Hybrid, Versioned] => fixed;

    /// Which schemas must read values of one another when a schema of avro or protobuf is registered: backward, the default, the new
    /// one those of the former ones; forward, the former ones those of the new one; full, both; or none.
    "compatibility" compatibility: Compatibility [serde(default, skip_serializing_if = "Compatibility::is_backward")],
    Word("MODE", Compatibility::WORDS), [Batch, Hybrid, Versioned];

    /// The type of its keys: bytes, the default, string, integer, or a tuple of 2 to 16 of these, such as (string,integer).
    "key-type" key_type: KeyType [serde(default, skip_serializing_if = "KeyType::is_bytes")],
    OptionValue::text::<KeyType>("TYPE"), [Batch, Hybrid, Versioned] => fixed;
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
            gates: None,
            value_type: Default::default(),
            compatibility: Default::default(),
            key_type: Default::default(),
            versioned: None,
            stream: None,
        }
    }

    /// A store with these options. The settings of a versioned store depend on its number of replicas, and are not yet set.
    pub fn with_options(name: StoreName, kind: StoreKind, options: &StoreChange) -> Self {
        let mut definition = Self {
            kind,
            ..Self::batch(name)
        };
        definition.apply(options);
        if let Some(stream) = &options.stream
            && let Some(source) = &stream.source
        {
            definition.stream = Some(StreamSettings::of(source.clone()).with(stream));
        }
        definition
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
