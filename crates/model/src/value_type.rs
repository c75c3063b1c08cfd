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
}

/// The text names no type of values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type of values {found:?}: use bytes, ids or graph")]
pub struct ValueTypeError {
    /// The text.
    pub found: String,
}

impl ValueType {
    /// All types.
    pub const ALL: &[Self] = &[Self::Bytes, Self::Ids, Self::Graph];

    /// Its name, in manifests, settings and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Ids => "ids",
            Self::Graph => "graph",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }

    /// Whether values, all or some, are sets of ids.
    pub fn has_sets(self) -> bool {
        match self {
            Self::Bytes => false,
            Self::Ids | Self::Graph => true,
        }
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
