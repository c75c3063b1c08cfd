//! A query as it is carried out: clauses over the slots of rows.

use super::expression::{Expression, Slot};

/// A clause.
#[derive(Debug)]
pub(super) enum Clause {
    Match(Match),
    Unwind { list: Expression, slot: Slot },
    Project(Projection),
    Procedure { procedure: Procedure, slot: Slot },
}

/// `MATCH`, or `OPTIONAL MATCH`.
#[derive(Debug)]
pub(super) struct Match {
    pub(super) optional: bool,
    pub(super) paths: Vec<PathPattern>,
    /// All of these must hold.
    pub(super) conditions: Vec<Expression>,
}

/// A path of vertices and edges.
#[derive(Debug, Clone)]
pub(super) struct PathPattern {
    /// Where the path stands, if it has a name.
    pub(super) slot: Option<Slot>,
    pub(super) start: VertexPattern,
    pub(super) hops: Vec<(Hop, VertexPattern)>,
    /// Whether only a shortest one is wanted; it has one hop then.
    pub(super) shortest: bool,
}

/// A vertex of a path.
#[derive(Debug, Clone)]
pub(super) struct VertexPattern {
    pub(super) slot: Slot,
    pub(super) labels: Vec<String>,
    pub(super) properties: Vec<(String, Expression)>,
}

/// One edge of a path, or several in a row.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    /// Where the edge stands, or the list of edges.
    pub(super) slot: Slot,
    /// Whether the query refers to it.
    pub(super) named: bool,
    /// The edge has one of these types; empty for any type.
    pub(super) types: Vec<String>,
    pub(super) towards: Towards,
    /// How many edges, at least and at most; `None` is one edge.
    pub(super) length: Option<(u32, u32)>,
    pub(super) properties: Vec<(String, Expression)>,
}

/// The direction of an edge in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Towards {
    Right,
    Left,
    Either,
}

impl Towards {
    pub(super) fn reverse(self) -> Self {
        match self {
            Self::Right => Self::Left,
            Self::Left => Self::Right,
            Self::Either => Self::Either,
        }
    }
}

/// `WITH` or `RETURN`.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) items: Vec<Item>,
    /// The aggregates over the rows of a group. A group has equal values in all items that are not aggregates.
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) distinct: bool,
    /// The sort keys, each with whether it is descending.
    pub(super) order: Vec<(Expression, bool)>,
    pub(super) skip: Option<Expression>,
    pub(super) limit: Option<Expression>,
    /// `WHERE` behind `WITH`.
    pub(super) condition: Option<Expression>,
}

/// A column.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) expression: Expression,
    pub(super) slot: Slot,
    pub(super) name: String,
    /// Whether an aggregate is in it.
    pub(super) aggregated: bool,
}

/// An aggregate over the rows of a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Aggregate {
    pub(super) function: AggregateFunction,
    pub(super) distinct: bool,
    /// `None` in `count(*)`.
    pub(super) argument: Option<Expression>,
    /// Where the result stands.
    pub(super) slot: Slot,
}

/// The functions over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateFunction {
    Count,
    Collect,
    Sum,
    Average,
    Least,
    Greatest,
}

/// The procedures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Procedure {
    Labels,
    RelationshipTypes,
    PropertyKeys,
    Indexes,
}

impl Procedure {
    /// All: the name, and the name of the column.
    pub(super) const ALL: [(&'static str, Self, &'static str); 4] = [
        ("db.labels", Self::Labels, "label"),
        ("db.relationshiptypes", Self::RelationshipTypes, "relationshipType"),
        ("db.propertykeys", Self::PropertyKeys, "propertyKey"),
        ("db.indexes", Self::Indexes, "label"),
    ];
}
