//! The changes of a store, for programs that follow it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::lookup::LookupValue;

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeResource {
    /// The key.
    pub key: LookupValue,
    /// The value before; null if the key had none. Missing where it is not kept: a change that an event has made.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "kept")]
    #[schema(value_type = Option<LookupValue>)]
    pub before: Option<Option<LookupValue>>,
    /// The value since; null if the key was deleted.
    pub after: Option<LookupValue>,
    /// The version that has the value, or on top of which its event is.
    pub version: u64,
    /// The time of the event, in milliseconds since 1970; null for a change that a version has made.
    pub time_unix_ms: Option<u64>,
    /// Where to continue after this change. Missing if only the whole page can be continued: changes of a versioned store, but the last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub position: String,
}

/// Some changes of a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangePage {
    /// In order for each key; empty if there are none yet.
    pub changes: Vec<ChangeResource>,
    /// Where to continue.
    pub position: String,
    /// How many events of the topic have yet to be followed, as far as nodes have read it.
    pub lag_events: u64,
    /// Why there are no changes although there may be some; null if nothing keeps them away.
    pub waits_for: Option<String>,
}

/// A change, as one node tells another: keys and values in base 64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartChange {
    /// The key.
    pub key: String,
    /// The value before; missing where it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "kept")]
    #[schema(value_type = Option<String>)]
    pub before: Option<Option<String>>,
    /// The value since; null if the key was deleted.
    pub after: Option<String>,
    /// The time of its event, in milliseconds since 1970.
    pub time_unix_ms: Option<u64>,
    /// The hash of the key; or the partition and the offset of the event in the topic.
    pub place: [u64; 2],
    /// Of a versioned store: where to continue in the partition after it, in base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

/// The changes of one partition of a versioned store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordsPart {
    /// The changes.
    pub changes: Vec<PartChange>,
    /// Where to continue after all of them, in base 64; null if the node could not read them.
    pub position: Option<String>,
    /// Whether there were no more.
    pub is_end: bool,
    /// Why the node could not read them.
    pub reason: Option<String>,
    /// Whether another owner should be asked then.
    pub is_elsewhere: bool,
}

/// How far a node has read a partition of a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OffsetsRead {
    /// The offset to read next.
    pub next: u64,
    /// The offset before which all events were applied when the values were read.
    pub seen: u64,
}

/// The part of the changes that one node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangesPart {
    /// The changes.
    pub changes: Vec<PartChange>,
    /// The hash at which a comparison of versions continues in its partition; null at its end.
    pub next: Option<u64>,
    /// How far the node has read the partitions of the topic that it reads.
    pub offsets: BTreeMap<u32, OffsetsRead>,
    /// How many partitions each topic has.
    pub topic_partitions: Vec<u32>,
    /// Distinguishes the topics from others with their names; 0 if that is not known.
    pub topic_mark: u32,
    /// Why the node could not answer for all that it has yet.
    pub waits_for: Option<String>,
    /// Of a versioned store: the changes by partition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub records: BTreeMap<u32, RecordsPart>,
}

/// A field that may be missing or null.
fn kept<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
