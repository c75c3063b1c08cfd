//! Schemas of the values of stores.

use fondaco_model::{Compatibility, ValueType};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A schema to be registered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchema {
    /// Avro: the schema, or its text. Protobuf: a serialized `FileDescriptorSet` in base64.
    pub schema: Value,
    /// The full name of Protobuf's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Only check it.
    #[serde(default)]
    pub dry_run: bool,
}

/// The schemas of a store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SchemaList {
    /// The type of the store's values.
    pub value_type: ValueType,
    /// The rule that a new schema has to meet.
    pub compatibility: Compatibility,
    /// The schemas, oldest first.
    pub schemas: Vec<SchemaResource>,
}

/// A schema of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaResource {
    /// Its number in the store: values begin with it. That of a schema which was only checked is the one that it would get.
    pub id: u16,
    /// Avro or Protobuf.
    pub value_type: ValueType,
    /// Avro's JSON as it was registered; or a serialized `FileDescriptorSet` in base64.
    pub schema: String,
    /// The full name of Protobuf's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The fields of the record or message.
    pub fields: Vec<SchemaField>,
    /// When it was registered, in milliseconds since 1970.
    pub registered_unix_ms: u64,
    /// Whether the store had it before the request.
    #[serde(default)]
    pub is_known: bool,
}

/// A field of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaField {
    /// Its name.
    pub name: String,
    /// Its type, in a few words.
    pub r#type: String,
    /// Its default, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// The differences of two schemas.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SchemaDiff {
    /// The differences, each as a line: `+ field: type`, `- field: type`, `~ field: type -> type`.
    pub changes: Vec<String>,
}

/// How many records of a store have each schema.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct SchemaRecords {
    /// The counts, by version and schema.
    pub counts: Vec<SchemaCount>,
    /// The nodes whose records are not counted, by their numbers; empty if all records are.
    pub missing: Vec<UncountedNode>,
    /// The position to continue at, in the answer of one node that has more records to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How many records of a store, or of a version of it, have a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaCount {
    /// The number of the schema; null for values that begin with none, or cannot be read.
    pub schema: Option<u16>,
    /// The version that has the records; null in versioned stores.
    pub version: Option<u64>,
    /// Whether they are the values that events have given keys on top of the version.
    pub events: bool,
    /// The number of records.
    pub records: u64,
}

/// A node whose records are not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncountedNode {
    /// Its number.
    pub node: u32,
    /// Why they are not counted.
    pub reason: String,
}
