//! A vertex as it is stored.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The labels and properties of a vertex: the value of its key [`vertex{ID}`](crate::keys::vertex). Its name is the property
/// `name`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Vertex {
    /// Its labels, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sorted")]
    pub labels: Vec<String>,
    /// Its properties, `name` among them.
    pub properties: Map<String, Value>,
}

/// Events add labels behind the others.
fn sorted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut labels = Vec::<String>::deserialize(deserializer)?;
    labels.sort_unstable();
    Ok(labels)
}
