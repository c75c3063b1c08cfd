//! Streams of hybrid stores.

use std::collections::BTreeMap;

use fondaco_model::PartitionSet;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Events to be logged.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvents {
    /// The events.
    pub events: Vec<NewEvent>,
}

/// An event to be logged.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    /// The key, without the name of the store.
    pub key: String,
    /// The value; null deletes the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Instead of a value: the value as JSON, if the store has a type of values; of Avro and Protobuf with the newest schema.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<Object>, example = json!({"name": "x"}))]
    pub json: Option<serde_json::Value>,
    /// Instead of a value: what changes in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({"increment": {"views": 1}}))]
    pub update: Option<serde_json::Value>,
    /// An identifier: a second update of the key with the same identifier, time and operations has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it happened, in milliseconds since 1970; now by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unix_ms: Option<u64>,
}

/// A member that is present, though it may be null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

/// How many events were logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventsLogged {
    /// The number of events.
    pub logged: u64,
}

/// How far nodes have read the stream of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StreamStatus {
    /// Each version on each node whose events are open.
    pub versions: Vec<VersionStream>,
    /// Each version on each node whose events cannot be opened, or not for all its partitions.
    #[serde(default)]
    pub failed: Vec<FailedStream>,
    /// The live nodes that did not answer: what they have read is missing.
    #[serde(default)]
    pub silent: Vec<u32>,
}

/// A version whose events a node cannot open.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailedStream {
    /// The node.
    #[serde(default)]
    pub node: Option<u32>,
    /// The version.
    pub version: u64,
    /// Why. The node tries again every second.
    pub error: String,
}

/// How far a node has read a stream for one version.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionStream {
    /// The number of the node.
    #[serde(default)]
    pub node: Option<u32>,
    /// The version.
    pub version: u64,
    /// How many partitions it was built for.
    #[serde(default)]
    pub partitions_total: u32,
    /// How many of its partitions on the node answer: they have been close enough to the end of the stream.
    pub partitions_ready: u64,
    /// These partitions, such as 0-3,7, of as many as the version was built for.
    #[serde(default)]
    #[schema(value_type = String)]
    pub ready: PartitionSet,
    /// Up to which time, in milliseconds since 1970, no event may come any more; 0 if none was read since the process began.
    #[serde(default)]
    pub settled_unix_ms: u64,
    /// How many keys have events.
    pub keys: u64,
    /// The memory for recognising keys without events, in bytes.
    pub filter_bytes: u64,
    /// How many events have changed a key. This and all other counts are since the process began.
    pub applied: u64,
    /// How many events were earlier than what their key had.
    pub superseded: u64,
    /// How many events the version contains already.
    pub cut: u64,
    /// How many events were logged too late.
    pub late: u64,
    /// How many records were no events.
    pub poison: u64,
    /// How many events belong to other nodes.
    pub elsewhere: u64,
    /// How many updates had an identifier that was known.
    #[serde(default)]
    pub repeated: u64,
    /// How many updates did not fit the value that they should change.
    #[serde(default)]
    pub unfit: u64,
    /// Each partition of the topic.
    pub partitions: Vec<TopicPartition>,
    /// The first offset of each partition of the topic that the node has read, or was to read, since it has the version. The partitions
    /// of topic T begin at T · 2²⁰.
    #[serde(default)]
    pub begun_offsets: BTreeMap<u32, u64>,
    /// Whether the store's quota of writes keeps the node from reading on now.
    #[serde(default)]
    pub held_back: bool,
    /// The reason that keeps the node from reading the stream, if there is one.
    pub error: Option<String>,
    /// Records that were gone before they were read: a new version has to be pushed.
    pub lost: Vec<LostRange>,
}

/// Records of a topic that were gone before they were read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct LostRange {
    /// The topic, by its place in the store's source: 0 is the first one.
    #[serde(default)]
    pub topic: u32,
    /// The partition of the topic.
    pub partition: u32,
    /// The offset of the first one.
    pub from: u64,
    /// The offset after the last one.
    pub to: u64,
}

/// Records of a topic that are no events.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PoisonList {
    /// The topic.
    pub source: String,
    /// The first thousand of each version on each node, each record once.
    pub records: Vec<PoisonRecord>,
    /// The live nodes that did not answer: what they have read is missing.
    #[serde(default)]
    pub silent: Vec<u32>,
}

/// A record that is no event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PoisonRecord {
    /// The version that has read it.
    pub version: u64,
    /// The topic, by its place in the store's source: 0 is the first one.
    #[serde(default)]
    pub topic: u32,
    /// The partition of the topic.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Why it is no event.
    pub reason: String,
}

/// How far a node has read a partition of a topic.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct TopicPartition {
    /// The topic, by its place in the store's source: 0 is the first one.
    #[serde(default)]
    pub topic: u32,
    /// Its number.
    pub partition: u32,
    /// The offset to read next: reads at this node see the effects of all records before it. Null if it has not been read yet since the
    /// process began.
    #[serde(default)]
    pub next_offset: Option<u64>,
    /// How many records are yet to be read. Null if it has not been read yet since the process began.
    pub lag_records: Option<u64>,
    /// The age of the last record that was read, in milliseconds; 0 if none is yet to be read.
    pub lag_ms: u64,
}
