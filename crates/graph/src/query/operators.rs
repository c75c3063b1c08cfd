//! The steps of a query, chosen for one graph.

use std::fmt::Write;
use std::sync::Arc;

use super::expression::{Expression, Slot};
use super::plan::{Procedure, Projection, Towards};
use crate::EdgeType;
use crate::keys::Direction;

/// A step: it takes rows, and gives rows to the next.
#[derive(Debug)]
pub(super) enum Operator<'a> {
    /// Gives a vertex to each row.
    Start { slot: Slot, start: Start },
    /// Keeps rows whose vertex a selection wants.
    Select {
        slot: Slot,
        labels: Vec<String>,
        properties: Vec<(String, super::expression::Operator, Expression)>,
    },
    /// Keeps rows whose variable has a vertex, and not null.
    Vertex(Slot),
    /// Follows edges.
    Expand(Expand),
    /// The distinct vertices that several edges lead to, computed as sets where the lists are.
    Reach(Reach),
    /// Finds a shortest path between two vertices.
    Shortest { path: Slot, expand: Expand },
    /// Makes a path of vertices and edges.
    Path { slot: Slot, start: Slot, hops: Vec<Slot> },
    /// Keeps rows for which a condition holds.
    Filter(Expression),
    /// The steps up to the end with this number may have no rows for a row: then it has nulls.
    Optional { row: Slot, end: usize },
    /// The end of steps that may have no rows.
    EndOptional,
    /// One row for each element of a list.
    Unwind { list: &'a Expression, slot: Slot },
    /// Columns, groups, order and limits.
    Project(&'a Projection),
    /// One row for each result of a procedure.
    Procedure { procedure: Procedure, slot: Slot },
}

/// Where vertices come from.
#[derive(Debug)]
pub(super) enum Start {
    Id(Expression),
    /// The vertex of this name.
    Name(Expression),
    /// The vertices of these names.
    Names(Expression),
    Label(String),
    All,
}

/// Following edges from vertices that rows have.
#[derive(Debug)]
pub(super) struct Expand {
    pub(super) from: Slot,
    pub(super) to: Slot,
    /// Whether rows have the other vertex, too.
    pub(super) to_is_bound: bool,
    /// Where the edge stands, or the list of edges.
    pub(super) edge: Slot,
    pub(super) relations: Vec<Followed>,
    /// How many edges, at least and at most; `None` is one edge.
    pub(super) length: Option<(u32, u32)>,
    /// Edges of the same pattern, which must be others.
    pub(super) others: Vec<Slot>,
    /// Whether the pattern is followed from its end to its start.
    pub(super) backwards: bool,
}

/// A type of edges, followed one way or both.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    pub(super) name: Arc<str>,
    pub(super) edge_type: EdgeType,
    pub(super) directions: Vec<Direction>,
}

/// The set of vertices that edges of these kinds lead to from one vertex.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) from: Slot,
    pub(super) to: Slot,
    pub(super) length: ReachLength,
    /// Where the number of vertices goes, if they are only counted.
    pub(super) count: Option<Slot>,
}

/// How far a set reaches.
#[derive(Debug)]
pub(super) enum ReachLength {
    /// One edge.
    One(Vec<Followed>),
    /// Two edges, of these kinds.
    Two(Vec<Followed>, Vec<Followed>),
    /// Up to `most` edges of one kind, 1 to 3; and whether the vertex itself belongs to it.
    UpTo {
        relations: Vec<Followed>,
        most: u32,
        with_start: bool,
    },
}

impl Followed {
    pub(super) fn new(name: &str, edge_type: &EdgeType, towards: Towards) -> Self {
        let directions = match towards {
            _ if edge_type.symmetric => vec![Direction::Out],
            Towards::Right => vec![Direction::Out],
            Towards::Left => vec![Direction::In],
            Towards::Either => vec![Direction::Out, Direction::In],
        };
        Self {
            name: name.into(),
            edge_type: edge_type.clone(),
            directions,
        }
    }

    /// The same edges, followed the other way.
    pub(super) fn reversed(&self) -> Self {
        let directions = self.directions.iter().map(|direction| match self.edge_type.symmetric {
            true => *direction,
            false => direction.reverse(),
        });
        Self {
            directions: directions.collect(),
            ..self.clone()
        }
    }
}

impl Operator<'_> {
    /// The step in one line.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Start { start, .. } => match start {
                Start::Id(_) => "start: a vertex by its id".into(),
                Start::Name(_) | Start::Names(_) => "start: vertices by name (non-union, one group)".into(),
                Start::Label(label) => format!("start: all vertices with label {label} (non-union, one group)"),
                Start::All => "start: all vertices (non-union, one group)".into(),
            },
            Self::Select { labels, properties, .. } => {
                let names: Vec<&str> = properties.iter().map(|(name, ..)| name.as_str()).collect();
                format!(
                    "select where the vertices are (non-union, one group): labels [{}], properties [{}]",
                    labels.join(", "),
                    names.join(", ")
                )
            }
            Self::Vertex(_) => "filter: a vertex".into(),
            Self::Expand(expand) => {
                let into = if expand.to_is_bound {
                    "into a known vertex"
                } else {
                    "to new vertices"
                };
                format!(
                    "expand {into} (non-union, one group): {}",
                    edges_text(&expand.relations, expand.length)
                )
            }
            Self::Reach(reach) => {
                let (relations, length) = match &reach.length {
                    ReachLength::One(relations) => (relations, None),
                    ReachLength::Two(relations, _) => (relations, Some((2, 2))),
                    ReachLength::UpTo { relations, most, .. } => (relations, Some((1, *most))),
                };
                let what = if reach.count.is_some() { "count" } else { "the set" };
                format!(
                    "{what} of distinct vertices, united by the nodes (synchronous union, one group): {}",
                    edges_text(relations, length)
                )
            }
            Self::Shortest { expand, .. } => {
                format!(
                    "shortest path from both ends (non-union, one group): {}",
                    edges_text(&expand.relations, expand.length)
                )
            }
            Self::Path { .. } => "path".into(),
            Self::Filter(_) => "filter".into(),
            Self::Optional { .. } => "optional".into(),
            Self::EndOptional => "end of optional".into(),
            Self::Unwind { .. } => "unwind".into(),
            Self::Project(projection) => {
                let mut text = String::from("project");
                let parts = [
                    (!projection.aggregates.is_empty(), "groups"),
                    (projection.distinct, "distinct"),
                    (!projection.order.is_empty(), "order"),
                    (projection.skip.is_some(), "skip"),
                    (projection.limit.is_some(), "limit"),
                    (projection.condition.is_some(), "filter"),
                ];
                for (_, part) in parts.iter().filter(|(has, _)| *has) {
                    // Writing to a string does not fail.
                    let _ = write!(text, ", {part}");
                }
                text
            }
            Self::Procedure { .. } => "procedure".into(),
        }
    }
}

fn edges_text(relations: &[Followed], length: Option<(u32, u32)>) -> String {
    let names: Vec<&str> = relations.iter().map(|relation| &*relation.name).collect();
    let length = length.map_or(String::new(), |(least, most)| format!("*{least}..{most}"));
    format!("[:{}{length}]", names.join("|"))
}
