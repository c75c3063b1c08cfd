//! Columns of rows that become the fields of a record or message.

use prost_reflect::{FieldDescriptor, Kind as ProtobufKind, MessageDescriptor};

use crate::avro::{Field, Graph, Kind, Logical, NodeIndex, Unit};
use crate::schema::Form;
use crate::{Schema, protobuf};

impl Schema {
    /// The other names of the fields at the root, each with the field's name: aliases in Avro, names in JSON in Protobuf.
    pub fn aliases(&self) -> Vec<(String, String)> {
        match self.form() {
            Form::Avro(graph) => {
                let fields = graph.fields().iter();
                let of_field = |field: &Field| {
                    let aliases = field.aliases.iter();
                    aliases
                        .map(|alias| (alias.clone(), field.name.clone()))
                        .collect::<Vec<_>>()
                };
                fields.flat_map(of_field).collect()
            }
            Form::Protobuf(message) => {
                let fields = message.fields().filter(|field| field.json_name() != field.name());
                fields
                    .map(|field| (field.json_name().to_owned(), field.name().to_owned()))
                    .collect()
            }
        }
    }

    /// Whether the root has a field with this name or alias.
    pub fn takes_field(&self, name: &str) -> bool {
        match self.form() {
            Form::Avro(graph) => avro_field(graph, name).is_some(),
            Form::Protobuf(message) => protobuf_field(message, name).is_some(),
        }
    }

    /// Whether JSON text can be a value: of the field with this name or alias, or of the root. Otherwise, text such as `5` of a
    /// format that has only text is read as JSON.
    pub fn reads_text(&self, field: Option<&str>) -> bool {
        match (self.form(), field) {
            (Form::Avro(graph), None) => avro_reads_text(graph, graph.root),
            (Form::Avro(graph), Some(name)) => {
                avro_field(graph, name).is_some_and(|field| avro_reads_text(graph, field.node))
            }
            (Form::Protobuf(_), None) => false,
            (Form::Protobuf(message), Some(name)) => {
                protobuf_field(message, name).is_some_and(|field| protobuf_reads_text(&field))
            }
        }
    }
}

fn avro_field<'a>(graph: &'a Graph, name: &str) -> Option<&'a Field> {
    let mut fields = graph.fields().iter();
    let named = fields.clone().find(|field| field.name == name);
    named.or_else(|| fields.find(|field| field.aliases.iter().any(|alias| alias == name)))
}

fn protobuf_field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    let named = message.get_field_by_name(name);
    named.or_else(|| message.get_field_by_json_name(name))
}

fn avro_reads_text(graph: &Graph, node: NodeIndex) -> bool {
    graph.nodes[node].logical.is_some()
        || match graph.kind(node) {
            Kind::Bytes | Kind::String | Kind::Fixed { .. } | Kind::Enum { .. } => true,
            // A union contains no union.
            Kind::Union(branches) => branches.iter().any(|branch| avro_reads_text(graph, *branch)),
            _ => false,
        }
}

fn protobuf_reads_text(field: &FieldDescriptor) -> bool {
    !field.is_list()
        && !field.is_map()
        && match field.kind() {
            ProtobufKind::String | ProtobufKind::Bytes | ProtobufKind::Enum(_) => true,
            ProtobufKind::Message(message) => protobuf::has_text(&message),
            _ => false,
        }
}

/// The deepest type that has a column of its own kind: records may contain themselves.
const COLUMN_DEPTH_MAX: usize = 16;

impl Schema {
    /// The type of a column that has the values of a field at the root in JSON, as manifests name types. `None` if no column has all of
    /// them: there is no such field, or it has values of several types.
    pub fn column_type(&self, field: &str) -> Option<String> {
        match self.form() {
            Form::Avro(graph) => {
                let found = graph.fields().iter().find(|known| known.name == field)?;
                avro_column(graph, found.node, 0)
            }
            Form::Protobuf(message) => protobuf_column(&message.get_field_by_name(field)?),
        }
    }
}

fn avro_column(graph: &Graph, node: NodeIndex, depth: usize) -> Option<String> {
    if depth > COLUMN_DEPTH_MAX {
        return None;
    }
    let inner = |node: NodeIndex| avro_column(graph, node, depth + 1);
    let unit = |unit: Unit| match unit {
        Unit::Milliseconds => "ms",
        Unit::Microseconds => "µs",
        Unit::Nanoseconds => "ns",
    };
    Some(match (graph.nodes[node].logical, graph.kind(node)) {
        (Some(Logical::Date), _) => "Date32".into(),
        (Some(Logical::Time(Unit::Milliseconds)), _) => "Time32(ms)".into(),
        (Some(Logical::Time(of)), _) => format!("Time64({})", unit(of)),
        (Some(Logical::Timestamp(of)), _) => format!("Timestamp({}, \"UTC\")", unit(of)),
        (Some(Logical::LocalTimestamp(of)), _) => format!("Timestamp({})", unit(of)),
        (Some(Logical::Decimal { precision, scale }), _) if precision <= 38 => {
            format!("Decimal128({precision}, {scale})")
        }
        (Some(Logical::Decimal { .. }), _) => return None,
        (Some(Logical::Uuid), _) => "Utf8".into(),
        (None, Kind::Null) => return None,
        (None, Kind::Boolean) => "Boolean".into(),
        (None, Kind::Int) => "Int32".into(),
        (None, Kind::Long) => "Int64".into(),
        (None, Kind::Float) => "Float32".into(),
        (None, Kind::Double) => "Float64".into(),
        (None, Kind::String | Kind::Enum { .. }) => "Utf8".into(),
        (None, Kind::Bytes | Kind::Fixed { .. }) => "Binary".into(),
        (None, Kind::Array(item)) => format!("List({})", inner(*item)?),
        (None, Kind::Map(item)) => format!("Map(Utf8, {})", inner(*item)?),
        (None, Kind::Union(branches)) => {
            let mut others = branches
                .iter()
                .filter(|branch| !matches!(graph.kind(**branch), Kind::Null));
            match (others.next(), others.next()) {
                (Some(only), None) => inner(*only)?,
                _ => return None,
            }
        }
        (None, Kind::Record { fields, .. }) => {
            let member = |field: &crate::avro::Field| {
                let name = serde_json::Value::from(field.name.as_str());
                Some(format!("{name}: {}", inner(field.node)?))
            };
            let members = fields.iter().map(member).collect::<Option<Vec<_>>>()?;
            format!("Struct({})", members.join(", "))
        }
    })
}

fn protobuf_column(field: &FieldDescriptor) -> Option<String> {
    if field.is_map() {
        return None;
    }
    let item = match field.kind() {
        ProtobufKind::Bool => "Boolean",
        ProtobufKind::Int32 | ProtobufKind::Sint32 | ProtobufKind::Sfixed32 => "Int32",
        ProtobufKind::Int64 | ProtobufKind::Sint64 | ProtobufKind::Sfixed64 => "Int64",
        ProtobufKind::Uint32 | ProtobufKind::Fixed32 => "UInt32",
        ProtobufKind::Uint64 | ProtobufKind::Fixed64 => "UInt64",
        ProtobufKind::Float => "Float32",
        ProtobufKind::Double => "Float64",
        ProtobufKind::String | ProtobufKind::Enum(_) => "Utf8",
        ProtobufKind::Bytes => "Binary",
        ProtobufKind::Message(_) => return None,
    };
    Some(match field.is_list() {
        true => format!("List({item})"),
        false => item.into(),
    })
}

#[cfg(test)]
mod tests {
    use fondaco_model::ValueType;

    use super::*;

    #[test]
    fn fields_have_columns_of_their_types() {
        let text = r#"{"type":"record","name":"R","fields":[
            {"name":"a","type":["null","int"]},{"name":"b","type":{"type":"array","items":"float"}},
            {"name":"c","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"d","type":{"type":"map","values":"string"}},
            {"name":"e","type":["int","string"]},{"name":"f","type":["null","R"]},
            {"name":"g","type":{"type":"record","name":"S","fields":[{"name":"x","type":{"type":"enum","name":"E","symbols":["u"]}}]}},
            {"name":"h","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}"#;
        let schema = Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap();
        for (field, expected) in [
            ("a", Some("Int32")),
            ("b", Some("List(Float32)")),
            ("c", Some("Timestamp(ms, \"UTC\")")),
            ("d", Some("Map(Utf8, Utf8)")),
            ("e", None),
            ("f", None),
            ("g", Some("Struct(\"x\": Utf8)")),
            ("h", Some("Decimal128(9, 2)")),
            ("z", None),
        ] {
            assert_eq!(schema.column_type(field).as_deref(), expected, "{field}");
        }
    }
}
