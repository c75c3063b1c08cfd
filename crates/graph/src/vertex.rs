//! A vertex as it is stored.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The labels and properties of a vertex: the value of its key [`vertex{ID}`](crate::keys::vertex). Its name is the property
/// `name`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Vertex {
    /// Its labels, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Its properties, `name` among them.
    pub properties: Map<String, Value>,
}
