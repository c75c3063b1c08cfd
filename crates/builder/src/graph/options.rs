//! Options of the build of a graph.

use std::fmt;
use std::str::FromStr;

use fondaco_graph::Description;

use crate::options::{BuildOptions, ChoiceError};

/// A build of a graph's version from lists of edges.
#[derive(Clone)]
pub struct GraphOptions<'a> {
    /// The options of all builds. Its `inputs` are the files of edges, each as `[TYPE=]FILE`. Its `key` is the column
    /// that edges lead from, then the one that they lead to. Its `value` are the columns of the edges' properties,
    /// none if it names no column. `on_duplicate` is about edges with properties, and about vertices.
    pub build: BuildOptions,
    /// The edge type of files that name none.
    pub edge_type: String,
    /// The edge types whose edges lead both ways.
    pub symmetric: Types,
    /// The edge types with an index of values for each partition.
    pub indexed: Types,
    /// Files of vertices, each as `[LABEL=]FILE`. Without any, all names in edges are vertices.
    pub vertices: Vec<String>,
    /// The column with the names of vertices. All others are their properties.
    pub vertex_name: String,
    /// The treatment of edges to vertices that no file of vertices has.
    pub unknown_vertices: UnknownVertices,
    /// The ids in the graph's current version; `None` if it has none.
    pub known: Option<&'a dyn KnownIds>,
}

/// The ids of the vertices in the current version of a graph: names keep them.
pub trait KnownIds: Sync {
    /// The description of the current version.
    fn description(&self) -> &Description;

    /// The ids of names; `None` of names that the current version does not have. It is called with many names at a time,
    /// by several threads.
    ///
    /// # Errors
    /// Why they cannot be looked up.
    fn look_up(&self, names: &[Vec<u8>]) -> Result<Vec<Option<u64>>, String>;
}

/// Some of the edge types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Types {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

impl Types {
    /// Whether a type is among them.
    pub(super) fn contain(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|named| named == name),
        }
    }
}

/// The treatment of edges to vertices that no file of vertices has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownVertices {
    /// The build fails, and names one.
    #[default]
    Fail,
    /// They are vertices without properties.
    Add,
    /// These edges are left out.
    Skip,
}

impl FromStr for UnknownVertices {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "fail" => Ok(Self::Fail),
            "add" => Ok(Self::Add),
            "skip" => Ok(Self::Skip),
            _ => Err(ChoiceError::new(
                "choice for unknown vertices",
                text,
                "fail, add or skip",
            )),
        }
    }
}

impl fmt::Display for UnknownVertices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::Add => "add",
            Self::Skip => "skip",
        })
    }
}
