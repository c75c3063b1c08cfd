//! Look-ups over HTTP.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Keys to look up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// Wire keys, `store:key`.
    #[schema(example = json!(["pymk:42"]), max_items = 1000)]
    pub keys: Vec<String>,
}

/// Values looked up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LookupResponse {
    /// In the order of the keys; null for a key that is not there. All are of the same versions.
    pub values: Vec<Option<LookupValue>>,
}

/// A value, as text if it is any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LookupValue {
    /// The value, which is UTF-8 text.
    Utf8(String),
    /// The value, which is not, in base 64.
    Base64(String),
}
