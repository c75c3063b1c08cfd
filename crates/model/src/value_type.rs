//! The type of a store's values.

use crate::word::words;

words! {
    /// The meaning of a store's values.
    ValueType "type of values":
    /// Bytes without a known meaning.
    #[default]
    Bytes = "bytes",
    /// Sorted sets of unsigned 63-bit integers, in the encoding of crate `ids`.
    Ids = "ids",
    /// The vertices and edges of a graph, as crate `graph` lays them out.
    Graph = "graph",
    /// Text in UTF-8.
    String = "string",
    /// A signed integer of 64 bits, as decimal text.
    Integer = "integer",
    /// JSON text.
    Json = "json",
    /// A MessagePack value.
    Messagepack = "messagepack",
    /// The id of an Avro schema of the store, then Avro's binary encoding.
    Avro = "avro",
    /// The id of a Protobuf schema of the store, then a message.
    Protobuf = "protobuf",
}

impl ValueType {
    /// Its name, in manifests, settings and options.
    pub fn name(self) -> &'static str {
        self.as_str()
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Whether values, all or some, are sets of ids.
    pub fn has_sets(self) -> bool {
        matches!(self, Self::Ids | Self::Graph)
    }

    /// Whether each value begins with the id of a schema of its store.
    pub fn has_schemas(self) -> bool {
        matches!(self, Self::Avro | Self::Protobuf)
    }

    /// Whether it is the default: settings leave it out then.
    pub fn is_bytes(&self) -> bool {
        *self == Self::Bytes
    }
}
