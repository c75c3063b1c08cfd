//! Queries over graphs, and changes of versioned ones.

mod edit;
mod handle;
mod source;

pub use edit::{EdgeEnds, GraphEdit, RepairCursor, VertexChange};
pub use fondaco_graph::query::{Edge, Path, QueryResult, Step, Value};
pub use handle::{Graph, GraphOptions, description};
pub use source::{GraphSource, Keys, in_one_version};
