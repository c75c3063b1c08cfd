//! The description of a graph: its size and its types of edges.

use std::collections::BTreeMap;

use fondaco_model::PartitionCount;
use serde::{Deserialize, Serialize};

/// The size of a graph and its types of edges: the value of its key [`graph`](crate::keys::DESCRIPTION).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The number of vertices.
    pub vertices: u64,
    /// The id of the next new vertex of a later push. Ids below it are or were in use.
    pub next_id: u64,
    /// Whether the graph is changed edge by edge. The record of a vertex then says which labels it has, and the sets of labels may
    /// be behind; numbers of vertices and edges are 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_versioned: bool,
    /// The number of partitions that its [tags](crate::keys::tags) are of.
    pub partitions: PartitionCount,
    /// Labels, and how many vertices have each.
    pub labels: BTreeMap<String, u64>,
    /// Edge types by their names.
    pub types: BTreeMap<String, EdgeType>,
    /// The names of all properties of vertices and edges, `name` among them.
    pub properties: Vec<String>,
}

/// A type of edges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeType {
    /// Whether each edge leads both ways.
    pub symmetric: bool,
    /// Whether there is an index of values for each partition.
    pub indexed: bool,
    /// Whether edges have properties.
    pub properties: bool,
    /// The number of edges. A symmetric edge counts once.
    pub edges: u64,
}

impl Description {
    /// From here on are the ids of vertices that events make, in a hybrid graph: pushes number vertices from 0.
    pub const FIRST_ID_OF_EVENTS: u64 = 1 << 62;

    /// The longest name of a label or an edge type, in bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Whether a label or an edge type may have this name: letters, digits and underscores, the first no digit.
    pub fn is_name(name: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
    }
}
