//! The options of `fondaco build` and `fondaco push` for graphs: edges and vertices in place of keys and values.

use clap::Args;
use fondaco_builder::{Types, UnknownVertices};
use fondaco_graph::EdgeType;
use fondaco_push::{GraphResult, Rows};

use crate::output;

/// The input of a graph.
#[derive(Debug, Args)]
#[command(next_help_heading = "Graphs")]
pub struct GraphInput {
    /// Build a graph: each row of the input is an edge, and these columns have the names of the vertices that it leads
    /// from and to. An input may be TYPE=FILE. --values names the columns with properties of edges
    #[arg(long, value_name = "FROM,TO", value_parser = parse_edges, conflicts_with_all = ["key", "value"])]
    pub edges: Option<Edges>,

    /// The type of the edges in files that name none
    #[arg(long = "type", value_name = "TYPE", default_value = "EDGE", conflicts_with = "key")]
    edge_type: String,

    /// Edges lead both ways: those of all types, or of these
    #[arg(
        long, value_name = "TYPE,…", value_delimiter = ',', num_args = 0..=1, require_equals = true, conflicts_with = "key"
    )]
    symmetric: Option<Vec<String>>,

    /// Build an index of the vertices with an edge to each vertex, for each partition: for all types, or for these
    #[arg(
        long, value_name = "TYPE,…", value_delimiter = ',', num_args = 0..=1, require_equals = true, conflicts_with = "key"
    )]
    index: Option<Vec<String>>,

    /// A file of vertices, and their label; may be given several times. All columns but that of the name are properties
    #[arg(long, value_name = "[LABEL=]FILE", conflicts_with = "key")]
    vertices: Vec<String>,

    /// The column with the name of a vertex, in files of vertices
    #[arg(long, value_name = "COLUMN", default_value = "name", conflicts_with = "key")]
    vertex_name: String,

    /// The reaction to edges to vertices that no file of vertices has: fail, add the vertices, or skip the edges
    #[arg(long, value_name = "fail|add|skip", default_value = "fail", conflicts_with = "key")]
    unknown_vertices: UnknownVertices,
}

/// The columns of edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    from: String,
    to: String,
}

fn parse_edges(text: &str) -> Result<Edges, String> {
    match text.split_once(',') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() && !to.contains(',') && from != to => Ok(Edges {
            from: from.to_owned(),
            to: to.to_owned(),
        }),
        _ => Err("name two different columns, for instance --edges from,to".to_owned()),
    }
}

impl GraphInput {
    /// The meaning of the rows of the input.
    pub fn rows(&self) -> Rows {
        let Some(edges) = &self.edges else {
            return Rows::Records;
        };
        Rows::Edges(fondaco_push::Edges {
            from: edges.from.clone(),
            to: edges.to.clone(),
            edge_type: self.edge_type.clone(),
            symmetric: types(self.symmetric.as_deref()),
            indexed: types(self.index.as_deref()),
            vertices: self.vertices.clone(),
            vertex_name: self.vertex_name.clone(),
            unknown_vertices: self.unknown_vertices,
        })
    }
}

/// An option without names means all types.
fn types(names: Option<&[String]>) -> Types {
    match names {
        None => Types::None,
        Some([]) => Types::All,
        Some(names) => Types::Named(names.to_vec()),
    }
}

/// The result of the build of a graph, as text.
pub fn text(graph: &GraphResult) -> String {
    let mut text = format!(
        "graph: {} vertices ({} new), {} edges",
        output::count(graph.vertices),
        output::count(graph.new_vertices),
        output::count(graph.edges),
    );
    if graph.types.len() > 1 {
        let edges = |(name, described): (&String, &EdgeType)| format!("{} {name}", output::count(described.edges));
        let types: Vec<String> = graph.types.iter().map(edges).collect();
        text.push_str(&format!(" ({})", types.join(", ")));
    }
    text.push('\n');
    for (number, what) in [
        (graph.duplicate_edges, "duplicate edges merged"),
        (graph.duplicate_vertices, "duplicate vertices dropped"),
        (graph.self_loops, "self-loops kept"),
        (graph.unknown_vertices, "names in no file of vertices"),
        (graph.skipped_edges, "edges to them left out"),
    ] {
        if number > 0 {
            text.push_str(&format!("graph: {} {what}\n", output::count(number)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::build::BuildCommandOptions;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        build: BuildCommandOptions,
    }

    fn parse(line: &str) -> Result<GraphInput, String> {
        let words = ["x", "social", "e.csv", "--output", "out"]
            .into_iter()
            .map(str::to_owned);
        let words = words.chain(line.split_whitespace().map(str::to_owned));
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.build.input.graph)
    }

    #[test]
    fn an_option_without_types_means_all_types() {
        let graph = parse("--edges from,to --symmetric --index=LIKES,KNOWS more.csv").unwrap();
        assert_eq!(types(graph.symmetric.as_deref()), Types::All);
        let named = Types::Named(vec!["LIKES".to_owned(), "KNOWS".to_owned()]);
        assert_eq!(types(graph.index.as_deref()), named);
        assert_eq!(graph.edge_type, "EDGE");
        let graph = parse("--edges from,to --type KNOWS").unwrap();
        assert_eq!(types(graph.symmetric.as_deref()), Types::None);
        assert_eq!(graph.edge_type, "KNOWS");
    }

    #[test]
    fn vertices_may_be_given_several_times() {
        let graph = parse("--edges from,to --vertices Person=p.csv --vertices t.csv --vertex-name id").unwrap();
        assert_eq!(graph.vertices, ["Person=p.csv", "t.csv"]);
        assert_eq!(graph.vertex_name, "id");
    }

    #[test]
    fn edges_and_keys_are_not_mixed() {
        for (line, part) in [
            ("--edges from,to --key k", "--key"),
            ("--edges from,to --value v", "--value"),
            ("", "--key"),
            ("--key k --symmetric", "--symmetric"),
            ("--key k --vertices v.csv", "--vertices"),
            ("--key k --type T", "--type"),
            ("--edges from", "name two different columns"),
            ("--edges a,b,c", "name two different columns"),
            ("--edges a,a", "name two different columns"),
            ("--edges a,b --unknown-vertices drop", "use fail, add or skip"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
        assert!(parse("--edges from,to --values weight").is_ok());
    }
}
