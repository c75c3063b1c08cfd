//! The types of the fields at the root, as a manifest names types of columns: `docs/format.md` has the texts.

use prost_reflect::{FieldDescriptor, Kind as ProtobufKind, MessageDescriptor};

use crate::Schema;
use crate::avro::{Graph, Kind, Logical, NodeIndex, Unit};
use crate::schema::Form;

/// The most types within types that are spelled out: records that are used in many places are repeated in each.
const TYPES_MAX: usize = 4096;

/// The type of what has no better one: any JSON.
const JSON: &str = "json";

impl Schema {
    /// The name and type of each field at the root. A value that is no record is one column without a name.
    pub fn column_types(&self) -> Vec<(String, String)> {
        match self.form() {
            Form::Avro(graph) => {
                let mut types = AvroTypes {
                    graph,
                    around: Vec::new(),
                    left: TYPES_MAX,
                };
                match graph.kind(graph.root) {
                    Kind::Record { fields, .. } => {
                        types.around.push(graph.root);
                        let columns = fields.iter().map(|field| (field.name.clone(), types.text(field.node)));
                        columns.collect()
                    }
                    _ => vec![(String::new(), types.text(graph.root))],
                }
            }
            Form::Protobuf(message) => {
                let mut types = ProtobufTypes {
                    around: vec![message.full_name().to_owned()],
                    left: TYPES_MAX,
                };
                let columns = message
                    .fields()
                    .map(|field| (field.name().to_owned(), types.text(&field)));
                columns.collect()
            }
        }
    }
}

/// Counts a type; false if there were too many.
fn spend(left: &mut usize) -> bool {
    *left = left.saturating_sub(1);
    *left > 0
}

fn members(members: Vec<(String, String)>) -> String {
    let members = members.into_iter();
    let members = members.map(|(name, text)| format!("{}: {text}", serde_json::Value::String(name)));
    format!("Struct({})", members.collect::<Vec<_>>().join(", "))
}

struct AvroTypes<'a> {
    graph: &'a Graph,
    /// The records around: one within itself has no type.
    around: Vec<NodeIndex>,
    left: usize,
}

impl AvroTypes<'_> {
    fn text(&mut self, node: NodeIndex) -> String {
        if !spend(&mut self.left) {
            return JSON.to_owned();
        }
        let graph = self.graph;
        let unit = |unit: Unit| match unit {
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "µs",
            Unit::Nanoseconds => "ns",
        };
        match (graph.kind(node), graph.nodes[node].logical) {
            (Kind::Int | Kind::Long, Some(Logical::Date)) => "Date32".to_owned(),
            (Kind::Int | Kind::Long, Some(Logical::Time(Unit::Milliseconds))) => "Time32(ms)".to_owned(),
            (Kind::Int | Kind::Long, Some(Logical::Time(of))) => format!("Time64({})", unit(of)),
            (Kind::Int | Kind::Long, Some(Logical::Timestamp(of))) => format!("Timestamp({}, \"UTC\")", unit(of)),
            (Kind::Int | Kind::Long, Some(Logical::LocalTimestamp(of))) => format!("Timestamp({})", unit(of)),
            (Kind::Bytes | Kind::Fixed { .. }, Some(Logical::Decimal { precision, scale })) => {
                format!("Decimal128({precision}, {scale})")
            }
            (Kind::Fixed { .. }, Some(Logical::Uuid)) => "UUID".to_owned(),
            (Kind::Null, _) => "Null".to_owned(),
            (Kind::Boolean, _) => "Boolean".to_owned(),
            (Kind::Int, _) => "Int32".to_owned(),
            (Kind::Long, _) => "Int64".to_owned(),
            (Kind::Float, _) => "Float32".to_owned(),
            (Kind::Double, _) => "Float64".to_owned(),
            (Kind::Bytes, _) => "Binary".to_owned(),
            (Kind::Fixed { size, .. }, _) => format!("FixedSizeBinary({size})"),
            (Kind::String | Kind::Enum { .. }, _) => "Utf8".to_owned(),
            (Kind::Array(item), _) => format!("List({})", self.text(*item)),
            (Kind::Map(item), _) => format!("Map(Utf8, {})", self.text(*item)),
            (Kind::Union(branches), _) => {
                let is_null = |branch: &&NodeIndex| matches!(graph.kind(**branch), Kind::Null);
                match branches.iter().filter(|branch| !is_null(branch)).collect::<Vec<_>>()[..] {
                    [] => "Null".to_owned(),
                    [&branch] => self.text(branch),
                    _ => JSON.to_owned(),
                }
            }
            (Kind::Record { .. }, _) if self.around.contains(&node) => JSON.to_owned(),
            (Kind::Record { fields, .. }, _) => {
                self.around.push(node);
                let all = fields.iter().map(|field| (field.name.clone(), self.text(field.node)));
                let text = members(all.collect());
                self.around.pop();
                text
            }
        }
    }
}

struct ProtobufTypes {
    /// The messages around.
    around: Vec<String>,
    left: usize,
}

impl ProtobufTypes {
    fn text(&mut self, field: &FieldDescriptor) -> String {
        if !spend(&mut self.left) {
            return JSON.to_owned();
        }
        match field.kind() {
            ProtobufKind::Message(entry) if field.is_map() => {
                format!("Map(Utf8, {})", self.text(&entry.map_entry_value_field()))
            }
            kind if field.is_list() => format!("List({})", self.of_kind(&kind)),
            kind => self.of_kind(&kind),
        }
    }

    fn of_kind(&mut self, kind: &ProtobufKind) -> String {
        match kind {
            ProtobufKind::Double => "Float64".to_owned(),
            ProtobufKind::Float => "Float32".to_owned(),
            ProtobufKind::Int32 | ProtobufKind::Sint32 | ProtobufKind::Sfixed32 => "Int32".to_owned(),
            ProtobufKind::Int64 | ProtobufKind::Sint64 | ProtobufKind::Sfixed64 => "Int64".to_owned(),
            ProtobufKind::Uint32 | ProtobufKind::Fixed32 => "UInt32".to_owned(),
            ProtobufKind::Uint64 | ProtobufKind::Fixed64 => "UInt64".to_owned(),
            ProtobufKind::Bool => "Boolean".to_owned(),
            ProtobufKind::String => "Utf8".to_owned(),
            ProtobufKind::Bytes => "Binary".to_owned(),
            // A number that the schema lacks is a number in JSON, too.
            ProtobufKind::Enum(_) => JSON.to_owned(),
            ProtobufKind::Message(message) => self.of_message(message),
        }
    }

    fn of_message(&mut self, message: &MessageDescriptor) -> String {
        let name = message.full_name();
        if name == "google.protobuf.Timestamp" {
            return "Timestamp(ns, \"UTC\")".to_owned();
        }
        // Others that are known have JSON forms of their own.
        if name.starts_with("google.protobuf.") || self.around.iter().any(|around| around == name) {
            return JSON.to_owned();
        }
        self.around.push(name.to_owned());
        let all = message
            .fields()
            .map(|field| (field.name().to_owned(), self.text(&field)));
        let text = members(all.collect());
        self.around.pop();
        text
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::ValueType;

    use super::*;

    #[test]
    fn fields_have_the_types_of_columns() {
        let text = r#"{"type":"record","name":"R","fields":[
            {"name":"a","type":["null","int"]},
            {"name":"b","type":{"type":"array","items":{"type":"record","name":"S","fields":[
                {"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
                {"name":"self","type":["null","S"]}]}}},
            {"name":"c","type":["int","string"]},
            {"name":"d","type":{"type":"map","values":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}}]}"#;
        let schema = Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
        let columns = schema.column_types();
        let expected = [
            ("a", "Int32"),
            ("b", "List(Struct(\"at\": Timestamp(µs, \"UTC\"), \"self\": json))"),
            ("c", "json"),
            ("d", "Map(Utf8, Decimal128(9, 2))"),
        ];
        assert_eq!(columns, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn records_that_are_used_very_often_are_not_spelled_out() {
        let mut text = r#""int""#.to_owned();
        for level in 0..20 {
            let first = format!(r#"{{"name":"a","type":{text}}}"#);
            let again = match level {
                0 => r#"{"name":"b","type":"int"}"#.to_owned(),
                level => format!(r#"{{"name":"b","type":"R{}"}}"#, level - 1),
            };
            text = format!(r#"{{"type":"record","name":"R{level}","fields":[{first},{again}]}}"#);
        }
        let schema = Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
        let length: usize = schema.column_types().iter().map(|(_, text)| text.len()).sum();
        assert!(length < 100 * TYPES_MAX, "{length}");
    }
}
