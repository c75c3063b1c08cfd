//! Lookups over HTTP.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Keys to look up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// Wire keys, `store:key`.
    #[schema(example = json!(["pymk:42"]), max_items = 1000)]
    pub keys: Vec<String>,
    /// Whether values, and keys of several parts, are JSON, by the types that their stores declare.
    #[serde(default)]
    pub decode: bool,
}

/// The values of looked-up keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LookupResponse {
    /// In the order of the keys; null for a missing key. All values of a store are of one version.
    pub values: Vec<Option<LookupValue>>,
}

/// A value as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecodedValue {
    /// The number of its schema; null if its type has none.
    pub schema: Option<u16>,
    /// The value.
    pub json: serde_json::Value,
}

/// A value, as text if it is UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LookupValue {
    /// The value, if it is UTF-8 text.
    Utf8(String),
    /// The value in base 64, if it is not UTF-8.
    Base64(String),
    /// The value as JSON, of a store that declares a type.
    Decoded(DecodedValue),
}
