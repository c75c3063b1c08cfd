//! The settings of versioned stores.

use fondaco_model::versioned::{Durability, EngineKind, Handoff, Resolution, VersionedChange, VersionedSettings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Settings of a versioned store to create or change; omitted settings have their default, or stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionedOptions {
    /// How many replicas must answer a read; a majority by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub reads: Option<u32>,
    /// How many replicas must have a write; a majority by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub writes: Option<u32>,
    /// How many replicas are asked at first; the number of `reads` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub preferred_reads: Option<u32>,
    /// How many replicas are waited for, for a short time after `writes` have the write; the number of `writes` by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub preferred_writes: Option<u32>,
    /// The node that stores a write as a hint for an absent replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// Whether a stored hint counts towards the number of `writes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sloppy: Option<bool>,
    /// In how many other zones a replica must answer a read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_reads: Option<u32>,
    /// In how many other zones a replica must have a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_writes: Option<u32>,
    /// Where replicas keep the records; only for a new store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineKind>,
    /// The failures that an acknowledged write survives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// How several concurrent values are resolved for clients that ask for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// The lifetime of a value whose writer sets none, in milliseconds; 0 is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long tombstones are kept, in milliseconds; ten days by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000)]
    pub tombstone_grace_ms: Option<u64>,
    /// How many keys a second may be written; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_keys_per_second: Option<u64>,
}

/// The settings of a versioned store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionedResource {
    /// How many replicas must answer a read.
    pub reads: u32,
    /// How many replicas must have a write.
    pub writes: u32,
    /// How many replicas are asked at first.
    pub preferred_reads: u32,
    /// How many replicas are waited for, for a short time after `writes` have the write.
    pub preferred_writes: u32,
    /// The node that stores a write as a hint for an absent replica.
    pub handoff: Handoff,
    /// Whether a stored hint counts towards the number of `writes`.
    pub sloppy: bool,
    /// In how many other zones a replica must answer a read.
    pub zone_reads: u32,
    /// In how many other zones a replica must have a write.
    pub zone_writes: u32,
    /// Where replicas keep the records.
    pub engine: EngineKind,
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// How several concurrent values are resolved for clients that ask for one.
    pub resolution: Resolution,
    /// The lifetime of a value whose writer sets none, in milliseconds; null is unlimited.
    pub ttl_ms: Option<u64>,
    /// How long tombstones are kept, in milliseconds.
    pub tombstone_grace_ms: u64,
    /// How many keys a second may be written; null for no limit.
    pub write_keys_per_second: Option<u64>,
}

impl VersionedOptions {
    /// The change of the model's settings.
    pub fn change(&self) -> VersionedChange {
        let unless_0 = |number: u64| Some(number).filter(|&number| number > 0);
        VersionedChange {
            reads: self.reads,
            writes: self.writes,
            preferred_reads: self.preferred_reads,
            preferred_writes: self.preferred_writes,
            handoff: self.handoff,
            sloppy: self.sloppy,
            zone_reads: self.zone_reads,
            zone_writes: self.zone_writes,
            engine: self.engine,
            durability: self.durability,
            resolution: self.resolution,
            ttl_ms: self.ttl_ms.map(unless_0),
            tombstone_grace_ms: self.tombstone_grace_ms,
            write_keys_per_second: self.write_keys_per_second.map(unless_0),
        }
    }
}

impl From<VersionedSettings> for VersionedResource {
    fn from(settings: VersionedSettings) -> Self {
        Self {
            reads: settings.reads,
            writes: settings.writes,
            preferred_reads: settings.preferred_reads,
            preferred_writes: settings.preferred_writes,
            handoff: settings.handoff,
            sloppy: settings.sloppy,
            zone_reads: settings.zone_reads,
            zone_writes: settings.zone_writes,
            engine: settings.engine,
            durability: settings.durability,
            resolution: settings.resolution,
            ttl_ms: settings.ttl_ms,
            tombstone_grace_ms: settings.tombstone_grace_ms,
            write_keys_per_second: settings.write_keys_per_second,
        }
    }
}
