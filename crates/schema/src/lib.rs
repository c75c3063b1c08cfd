//! Types of values and keys: schemas in Avro and Protobuf, their compatibility, and the JSON form of every value.
//!
//! | part | does |
//! |---|---|
//! | [`Schema`] | parses a schema; checks payloads; payloads to JSON and back |
//! | [`check`], [`diff`] | compare schemas: an error names field and rule |
//! | [`resolve`], [`Resolver`] | values of a writer's schema in a reader's |
//! | [`Projection`] | some fields of a value, without decoding the others |
//! | [`Query`], [`Evaluator`] | some fields or a score of stored values, if conditions hold |
//! | [`Schemas`], [`read_id`], [`put_id`] | stored values: the id of a schema, then the payload |
//! | [`ValueRules`] | the type of a store's values, with its schemas |
//! | [`read_registry_id`], [`read_message_indexes`] | values as Confluent's serializers write them |
//! | [`check_value`], [`value_to_json`], [`value_of_json`] | values that describe themselves: text, integers, JSON, MessagePack |
//! | [`key_of_json`], [`key_to_json`], [`key_of_parts`], [`key_to_parts`] | keys, with several parts, too |
//! | [`Update`], [`Content`] | changes of parts of a value |
//!
//! Bytes and schemas may be hostile: depth, names and work are bounded, and nothing is allocated by a length that bytes claim.
//!
//! ```
//! use fondaco_model::ValueType;
//! use fondaco_schema::{Schema, resolve};
//! use serde_json::json;
//!
//! let schema = |text: &str| Schema::parse(ValueType::Avro, text.as_bytes(), None);
//! let old = schema(r#"{"type":"record","name":"User","fields":[{"name":"age","type":"int"}]}"#)?;
//! let new = schema(r#"{"type":"record","name":"User","fields":[{"name":"age","type":"long"},{"name":"city","type":"string","default":"Venice"}]}"#)?;
//! let payload = old.of_json(&json!({"age": 30}))?;
//! assert_eq!(new.to_json(&resolve(&old, &new, &payload)?)?, json!({"age": 30, "city": "Venice"}));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No I/O, no clock, no threads.

mod avro;
mod column_types;
mod columns;
mod compatibility;
mod confluent;
mod error;
mod id;
mod key;
mod plain;
mod projection;
mod protobuf;
mod query;
mod rules;
mod schema;
mod schemas;
pub mod score;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use compatibility::CLASHES_MAX;
pub use compatibility::{Change, Clash, FieldTexts, FormerClash, check, diff};
pub use confluent::{read_message_indexes, read_registry_id};
pub use error::{SchemaError, ValueError};
pub use id::{SCHEMA_ID_MAX, put_id, read_id};
pub use key::{key_of_json, key_of_parts, key_to_json, key_to_parts};
pub use plain::{check_value, value_of_json, value_to_json};
pub use projection::Projection;
pub use query::{
    Comparison, Condition, Evaluator, FIELDS_MAX, Form, Found, Operand, Query, QueryError, VECTOR_BYTES_MAX, What,
};
pub use rules::ValueRules;
pub use schema::{FieldInfo, Resolver, Schema, resolve};
pub use schemas::Schemas;
pub use update::{Content, UPDATE_BYTES_MAX, Update, UpdateError, merge_fields};

/// The longest text of a schema.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// The depth of types within types in a schema.
pub const DEPTH_MAX: usize = 64;
/// The names of a schema: of types, fields, symbols and aliases.
pub const NAMES_MAX: usize = 10_000;
/// The depth of values within values.
pub const VALUE_DEPTH_MAX: usize = 128;
