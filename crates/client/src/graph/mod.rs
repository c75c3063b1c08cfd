//! Queries over graphs.

mod handle;
mod source;

pub use fondaco_graph::query::{Edge, Path, QueryResult, Step, Value};
pub use handle::{Graph, GraphOptions, description};
pub use source::{GraphSource, Keys, in_one_version};
