//! The type of a store's values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The meaning of a store's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// Bytes without a known meaning.
    #[default]
    Bytes,
    /// Sorted sets of unsigned 63-bit integers, in the encoding of crate `ids`.
    Ids,
    /// The vertices and edges of a graph, as crate `graph` lays them out.
    Graph,
    /// Text in UTF-8.
    String,
    /// A signed integer of 64 bits, as decimal text.
    Integer,
    /// JSON text.
    Json,
    /// A MessagePack value.
    MessagePack,
    /// The id of an Avro schema of the store, then Avro's binary encoding.
    Avro,
    /// The id of a Protobuf schema of the store, then a message.
    Protobuf,
}

/// The text names no type of values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown type of values {found:?}: use bytes, ids, graph, string, integer, json, messagepack, avro or protobuf"
)]
pub struct ValueTypeError {
    /// The text.
    pub found: String,
}

impl ValueType {
    /// All types.
    pub const ALL: &[Self] = &[
        Self::Bytes,
        Self::Ids,
        Self::Graph,
        Self::String,
        Self::Integer,
        Self::Json,
        Self::MessagePack,
        Self::Avro,
        Self::Protobuf,
    ];

    /// Its name, in manifests, settings and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Ids => "ids",
            Self::Graph => "graph",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Json => "json",
            Self::MessagePack => "messagepack",
            Self::Avro => "avro",
            Self::Protobuf => "protobuf",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }

    /// Whether values, all or some, are sets of ids.
    pub fn has_sets(self) -> bool {
        matches!(self, Self::Ids | Self::Graph)
    }

    /// Whether each value begins with the id of a schema of its store.
    pub fn has_schemas(self) -> bool {
        matches!(self, Self::Avro | Self::Protobuf)
    }

    /// Whether it is the default: settings leave it out then.
    pub fn is_bytes(&self) -> bool {
        *self == Self::Bytes
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ValueType {
    type Err = ValueTypeError;

    fn from_str(text: &str) -> Result<Self, ValueTypeError> {
        Self::from_name(text).ok_or_else(|| ValueTypeError { found: text.to_owned() })
    }
}
