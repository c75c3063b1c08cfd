//! A schema of a store's values, whichever its language.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fondaco_model::ValueType;
use fondaco_model::cluster::SchemaRecord;
use prost_reflect::MessageDescriptor;
use serde_json::Value;

use crate::avro::resolution::Resolution;
use crate::avro::{self, Graph};
use crate::compatibility::FieldTexts;
use crate::{SchemaError, TEXT_BYTES_MAX, ValueError, protobuf};

/// A parsed schema. Copies share what it holds.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    text: Vec<u8>,
    canonical: Vec<u8>,
    form: Form,
}

#[derive(Debug)]
pub(crate) enum Form {
    Avro(Graph),
    Protobuf(MessageDescriptor),
}

/// A field of the record or message at the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldInfo {
    /// Its name.
    pub name: String,
    /// Its type and default.
    pub texts: FieldTexts,
}

impl Schema {
    /// Parses a schema: Avro's JSON, or Protobuf's serialized `FileDescriptorSet` with the full name of the message.
    pub fn parse(value_type: ValueType, text: &[u8], message: Option<&str>) -> Result<Self, SchemaError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SchemaError::new(
                "the text",
                format!("{} bytes: a schema has up to {TEXT_BYTES_MAX}", text.len()),
            ));
        }
        let (form, canonical) = match value_type {
            ValueType::Avro => {
                let graph = avro::parse::parse(text)?;
                let canonical = graph.canonical().into_bytes();
                (Form::Avro(graph), canonical)
            }
            ValueType::Protobuf => {
                let message = protobuf::parse(text, message)?;
                let canonical = [message.full_name().as_bytes(), &[0], text].concat();
                (Form::Protobuf(message), canonical)
            }
            other => {
                return Err(SchemaError::new(
                    "the store",
                    format!("values of type {other} have no schema: use avro or protobuf"),
                ));
            }
        };
        Ok(Self(Arc::new(Parts {
            text: text.to_vec(),
            canonical,
            form,
        })))
    }

    /// Parses the text form: [`Self::to_text`].
    pub fn of_text(value_type: ValueType, text: &str, message: Option<&str>) -> Result<Self, SchemaError> {
        match value_type {
            ValueType::Protobuf => {
                let set = BASE64.decode(text.trim()).map_err(|error| {
                    SchemaError::new("the text", format!("a FileDescriptorSet is written in base64: {error}"))
                })?;
                Self::parse(value_type, &set, message)
            }
            _ => Self::parse(value_type, text.as_bytes(), message),
        }
    }

    /// A message of a file of Protobuf, a serialized `FileDescriptorProto`: by the index of the outermost message in the file, then
    /// that of the one within it, and so on. The file may import Google's own files.
    pub fn of_protobuf_file(file: &[u8], indexes: &[u32]) -> Result<Self, SchemaError> {
        if file.len() > TEXT_BYTES_MAX {
            let reason = format!("{} bytes: a schema has up to {TEXT_BYTES_MAX}", file.len());
            return Err(SchemaError::new("the file", reason));
        }
        let (set, message) = protobuf::of_file(file, indexes)?;
        Self::parse(ValueType::Protobuf, &set, Some(&message))
    }

    /// A schema as it was registered.
    pub fn of_record(record: &SchemaRecord) -> Result<Self, SchemaError> {
        Self::of_text(record.value_type, &record.text, record.message.as_deref())
    }

    /// The schema as text, for records and documents: Avro's JSON as it was given; Protobuf's set in base64.
    pub fn to_text(&self) -> String {
        match self.form() {
            // It was parsed as JSON, which is UTF-8.
            Form::Avro(_) => String::from_utf8_lossy(&self.0.text).into_owned(),
            Form::Protobuf(_) => BASE64.encode(&self.0.text),
        }
    }

    pub(crate) fn of_graph(graph: Graph, text: String) -> Self {
        let text = text.into_bytes();
        Self(Arc::new(Parts {
            canonical: text.clone(),
            text,
            form: Form::Avro(graph),
        }))
    }

    pub(crate) fn form(&self) -> &Form {
        &self.0.form
    }

    /// `avro` or `protobuf`.
    pub fn value_type(&self) -> ValueType {
        match self.form() {
            Form::Avro(_) => ValueType::Avro,
            Form::Protobuf(_) => ValueType::Protobuf,
        }
    }

    /// The text as it was given.
    pub fn text(&self) -> &[u8] {
        &self.0.text
    }

    /// The full name of Protobuf's message.
    pub fn message(&self) -> Option<&str> {
        match self.form() {
            Form::Avro(_) => None,
            Form::Protobuf(message) => Some(message.full_name()),
        }
    }

    /// The canonical form: schemas that mean the same have the same one. It is no text for people.
    pub fn canonical(&self) -> &[u8] {
        &self.0.canonical
    }

    /// The fields of the record or message at the root; none for other types.
    pub fn fields(&self) -> Vec<FieldInfo> {
        match self.form() {
            Form::Avro(graph) => {
                let info = |field: &avro::Field| FieldInfo {
                    name: field.name.clone(),
                    texts: FieldTexts {
                        type_text: graph.type_text(field.node),
                        default: field.default.as_ref().map(|default| default.json.to_string()),
                    },
                };
                graph.fields().iter().map(info).collect()
            }
            Form::Protobuf(message) => protobuf::fields(message),
        }
    }

    /// Whether the record or message at the root has a field of this name.
    pub fn has_field(&self, name: &str) -> bool {
        match self.form() {
            Form::Avro(graph) => graph.fields().iter().any(|field| field.name == name),
            Form::Protobuf(message) => message.get_field_by_name(name).is_some(),
        }
    }

    /// Checks a payload completely: afterwards, no other function refuses it, except where two schemas clash.
    pub fn validate(&self, payload: &[u8]) -> Result<(), ValueError> {
        match self.form() {
            Form::Avro(graph) => avro::cursor::validate(graph, payload),
            Form::Protobuf(message) => protobuf::decode(message, payload).map(drop),
        }
    }

    /// A payload as JSON.
    pub fn to_json(&self, payload: &[u8]) -> Result<Value, ValueError> {
        match self.form() {
            Form::Avro(graph) => avro::to_json::to_json(graph, payload),
            Form::Protobuf(message) => protobuf::to_json(message, payload),
        }
    }

    /// JSON as a payload.
    pub fn of_json(&self, json: &Value) -> Result<Vec<u8>, ValueError> {
        match self.form() {
            Form::Avro(graph) => avro::from_json::of_json(graph, json),
            Form::Protobuf(message) => protobuf::of_json(message, json),
        }
    }
}

/// The payload of a writer's schema in a reader's schema: once. For many values of the same two: [`Resolver`].
pub fn resolve(writer: &Schema, reader: &Schema, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
    Resolver::new(writer, reader)?.resolve(payload)
}

/// Values of one schema in another one, by Avro's rules. Protobuf's values are the same in both.
#[derive(Debug, Clone)]
pub struct Resolver {
    writer: Schema,
    reader: Schema,
    /// Of two different Avro schemas.
    resolution: Option<Resolution>,
}

impl Resolver {
    /// Compares the two schemas, once for all values.
    pub fn new(writer: &Schema, reader: &Schema) -> Result<Self, ValueError> {
        let resolution = match (writer.form(), reader.form()) {
            (Form::Avro(from), Form::Avro(to)) if writer.canonical() != reader.canonical() => {
                Some(Resolution::new(from, to))
            }
            (Form::Avro(_), Form::Avro(_)) | (Form::Protobuf(_), Form::Protobuf(_)) => None,
            _ => return Err(ValueError::new(0, "the two schemas are not of one type of values")),
        };
        Ok(Self {
            writer: writer.clone(),
            reader: reader.clone(),
            resolution,
        })
    }

    /// Resolves one payload.
    pub fn resolve(&self, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
        match (&self.resolution, self.writer.form(), self.reader.form()) {
            (Some(resolution), Form::Avro(writer), Form::Avro(reader)) => resolution.resolve(writer, reader, payload),
            _ => Ok(payload.to_vec()),
        }
    }
}
