//! Avro: a schema as a graph of nodes, and everything that reads or writes values by it.
//!
//! Nodes refer to one another by index, so that a recursive type needs no search by name, and a walk over a value no map.

pub(crate) mod compatibility;
pub(crate) mod cursor;
pub(crate) mod from_json;
pub(crate) mod logical;
pub(crate) mod parse;
pub(crate) mod projection;
pub(crate) mod resolution;
mod text;
pub(crate) mod to_json;

pub(crate) type NodeIndex = usize;

/// A parsed schema.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    pub root: NodeIndex,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub kind: Kind,
    pub logical: Option<Logical>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed {
        name: Name,
        size: usize,
    },
    Enum {
        name: Name,
        symbols: Vec<String>,
        default: Option<usize>,
    },
    Array(NodeIndex),
    Map(NodeIndex),
    Union(Vec<NodeIndex>),
    Record {
        name: Name,
        fields: Vec<Field>,
    },
}

/// The name of a record, enum or fixed, with its aliases: full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub full: String,
    pub aliases: Vec<String>,
}

impl Name {
    fn short(full: &str) -> &str {
        full.rsplit('.').next().unwrap_or(full)
    }

    /// Whether a reader with this name reads what `writer` names: the last parts are equal, or an alias is.
    pub fn reads(&self, writer: &Name) -> bool {
        Self::short(&self.full) == Self::short(&writer.full) || self.aliases.contains(&writer.full)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: String,
    pub aliases: Vec<String>,
    pub node: NodeIndex,
    pub default: Option<Default>,
}

/// A field's default: as the schema has it, and encoded.
#[derive(Debug, Clone)]
pub(crate) struct Default {
    pub json: serde_json::Value,
    pub encoded: Vec<u8>,
}

/// The logical types that have a text of their own in JSON; all others are as their physical type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logical {
    Date,
    Time(Unit),
    Timestamp(Unit),
    LocalTimestamp(Unit),
    Decimal { precision: u32, scale: u32 },
    Uuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Graph {
    pub fn kind(&self, node: NodeIndex) -> &Kind {
        &self.nodes[node].kind
    }

    /// The fields of the record at the root.
    pub fn fields(&self) -> &[Field] {
        match self.kind(self.root) {
            Kind::Record { fields, .. } => fields,
            _ => &[],
        }
    }
}
