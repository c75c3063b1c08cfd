//! The report of the build of a graph.

use fondaco_graph::Description;

use crate::report::BuildReport;

/// The result of the build of a graph.
#[derive(Debug, Clone)]
pub struct GraphReport {
    /// The report of the version.
    pub build: BuildReport,
    /// The description that the version has.
    pub description: Description,
    /// The number of edges of all types, each once.
    pub edges: u64,
    /// The number of vertices that the graph's former version did not have.
    pub new_vertices: u64,
    /// The number of rows of edges that repeat another row.
    pub duplicate_edges: u64,
    /// The number of rows of vertices that were dropped for another row with the same name.
    pub duplicate_vertices: u64,
    /// The number of edges from a vertex to itself.
    pub self_loops: u64,
    /// The number of names in edges that no file of vertices has.
    pub unknown_vertices: u64,
    /// The number of rows of edges that were left out because of these names.
    pub skipped_edges: u64,
}
