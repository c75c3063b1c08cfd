//! Columns of rows that become the fields of a record or message.

use prost_reflect::{FieldDescriptor, Kind as ProtobufKind, MessageDescriptor};

use crate::avro::{Field, Graph, Kind, NodeIndex};
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
