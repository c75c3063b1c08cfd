//! Queries of graphs over HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A query of a graph.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphQuery {
    /// The query, in the subset of openCypher that docs/graph.md lists.
    #[schema(example = "MATCH (a {name: $name})-[:KNOWS]-(b) RETURN b.name")]
    pub query: String,
    /// The values of its parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
    /// How long it may take, in milliseconds, if that is less than the setting graph-timeout-ms.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether a query that ends at a limit is answered with the rows so far.
    #[serde(default)]
    pub partial: bool,
}

/// The rows that a query returns.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GraphRows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, a value for each column. A vertex is an object with `id`, `labels` and `properties`; an edge has `type`, `from`,
    /// `to` and `properties`; a path has `vertices` and `edges`.
    pub rows: Vec<Vec<Value>>,
    /// How many edges were followed.
    pub expanded: u64,
    /// How many requests were sent to nodes.
    pub requests: u64,
    /// Why there may be more rows, if partial answers were asked for; otherwise null.
    pub incomplete: Option<String>,
}
