//! A value with fields that is no JSON text, while updates apply to it.
//!
//! Only fields that an update names are decoded, and written by their types. All others stay byte for byte: a walk through
//! JSON would change some, such as a union of two types with one form. A value of an older schema is resolved to the
//! newest one when it is opened.

use bytes::Bytes;
use fondaco_model::ValueType;
use fondaco_model::versioned::merge_json;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::operation::Operation;
use crate::avro::{self, Graph, cursor::Cursor, from_json, to_json};
use crate::plain::{read_message_pack, to_json_of_message_pack, to_message_pack};
use crate::protobuf;
use crate::schema::{Form, Schema};
use crate::{Resolver, ValueError, ValueRules, put_id};

/// A value with fields.
pub(super) enum Record {
    Avro {
        id: u16,
        schema: Schema,
        /// The bytes of each field of the schema; `None` for a field that has no value yet, and no default.
        fields: Vec<Option<Bytes>>,
    },
    Protobuf {
        id: u16,
        message: MessageDescriptor,
        /// The number of each field on the wire, and all its bytes, with the key. A field may be there several times.
        parts: Vec<(u32, Bytes)>,
    },
    MessagePack(Vec<(rmpv::Value, rmpv::Value)>),
}

fn no_fields() -> ValueError {
    ValueError::new(0, "the value has no fields")
}

impl Record {
    /// A value, or the value that an absent key begins with: the defaults of the newest schema.
    pub(super) fn open(rules: &ValueRules, value: Option<&Bytes>) -> Result<Self, ValueError> {
        if rules.value_type() == ValueType::Messagepack {
            return Self::open_message_pack(value);
        }
        let schemas = rules.schemas();
        let newest = schemas.newest();
        let (id, newest) = newest.ok_or_else(|| ValueError::new(0, "the store has no schema: register one"))?;
        let payload = match value {
            None => None,
            Some(value) => {
                let (written, schema, payload) = schemas.split(value)?;
                Some(match written == id {
                    true => value.slice_ref(payload),
                    false => Resolver::new(schema, newest)?.resolve(payload)?.into(),
                })
            }
        };
        match newest.form() {
            Form::Avro(graph) => Ok(Self::Avro {
                id,
                schema: newest.clone(),
                fields: avro_fields(graph, payload)?,
            }),
            Form::Protobuf(message) => Ok(Self::Protobuf {
                id,
                message: message.clone(),
                parts: protobuf::parts(&payload.unwrap_or_default())?,
            }),
        }
    }

    fn open_message_pack(value: Option<&Bytes>) -> Result<Self, ValueError> {
        match value.map(|value| read_message_pack(value)).transpose()? {
            None => Ok(Self::MessagePack(Vec::new())),
            Some(rmpv::Value::Map(pairs)) => Ok(Self::MessagePack(pairs)),
            Some(_) => Err(no_fields()),
        }
    }

    /// Applies an operation to a field. Returns the sum of an increment, if the type of the field has 64 bits.
    pub(super) fn apply(&mut self, field: &str, operation: &Operation) -> Result<Option<i64>, ValueError> {
        if let Operation::Set(value) = operation {
            match value {
                Value::Null => self.clear(field)?,
                value => self.set(field, value)?,
            }
            return Ok(None);
        }
        // A field that is null has no value yet.
        let mut value = self.get(field)?.filter(|value| !value.is_null());
        let misfit = |reason| match self.type_text(field) {
            Some(text) => ValueError::new(0, format!("{reason}; the field is of type {text}")),
            None => ValueError::new(0, reason),
        };
        operation.apply(&mut value).map_err(misfit)?;
        if let Some(value) = &value {
            self.set(field, value)?;
        }
        Ok(value
            .and_then(|value| value.as_i64())
            .filter(|_| self.has_64_bits(field)))
    }

    fn get(&self, field: &str) -> Result<Option<Value>, ValueError> {
        match self {
            Self::Avro { schema, fields, .. } => {
                let (graph, at) = avro_field(schema, field)?;
                let bytes = fields.get(at).and_then(Option::as_ref);
                let read = |bytes| to_json::read(graph, graph.fields()[at].node, &mut Cursor::new(bytes), 1);
                bytes.map(|bytes| read(bytes)).transpose()
            }
            Self::Protobuf { message, parts, .. } => {
                let known = protobuf_field(message, field)?;
                let own = parts.iter().filter(|(number, _)| *number == known.number());
                let bytes = own.fold(Vec::new(), |mut bytes, (_, part)| {
                    bytes.extend_from_slice(part);
                    bytes
                });
                if bytes.is_empty() && known.supports_presence() {
                    // The default of a number that proto2 declares.
                    let default = known.field_descriptor_proto().default_value.as_ref();
                    return Ok(default.and_then(|text| text.parse::<i64>().ok()).map(Value::from));
                }
                let json = protobuf::to_json(message, &bytes)?;
                let Value::Object(mut object) = json else {
                    return Err(no_fields());
                };
                Ok(object.remove(field))
            }
            Self::MessagePack(pairs) => {
                let known = pairs.iter().find(|(key, _)| key.as_str() == Some(field));
                Ok(known.map(|(_, value)| to_json_of_message_pack(value.clone())))
            }
        }
    }

    fn set(&mut self, field: &str, value: &Value) -> Result<(), ValueError> {
        match self {
            Self::Avro { schema, fields, .. } => {
                let (graph, at) = avro_field(schema, field)?;
                let bytes = from_json::of_json_at(graph, graph.fields()[at].node, value)?;
                fields[at] = Some(bytes.into());
            }
            Self::Protobuf { message, parts, .. } => {
                let known = protobuf_field(message, field)?;
                let object = Value::Object(Map::from_iter([(field.to_owned(), value.clone())]));
                let bytes = protobuf::of_json(message, &object).map_err(|error| {
                    ValueError::new(0, format!("{}; {}", error.reason, protobuf::type_text(&known)))
                })?;
                let mut new = protobuf::parts(&bytes.into())?;
                if known.is_map() {
                    // Else the order would differ from node to node.
                    new.sort();
                }
                let replaced: Vec<u32> = match known.containing_oneof() {
                    Some(oneof) => oneof.fields().map(|field| field.number()).collect(),
                    None => vec![known.number()],
                };
                parts.retain(|(number, _)| !replaced.contains(number));
                let at = parts.partition_point(|(number, _)| *number < known.number());
                parts.splice(at..at, new);
            }
            Self::MessagePack(pairs) => {
                let value = to_message_pack(value);
                match pairs.iter_mut().find(|(key, _)| key.as_str() == Some(field)) {
                    Some((_, known)) => *known = value,
                    None => pairs.push((field.into(), value)),
                }
            }
        }
        Ok(())
    }

    /// Takes a field as another value has it. A field that is unknown by now is left out.
    fn take(&mut self, field: &str, other: Self) {
        match (self, other) {
            (Self::Avro { schema, fields, .. }, Self::Avro { fields: mut others, .. }) => {
                if let Ok((_, at)) = avro_field(schema, field) {
                    fields[at] = others[at].take();
                }
            }
            (Self::Protobuf { message, parts, .. }, Self::Protobuf { parts: others, .. }) => {
                let Ok(known) = protobuf_field(message, field) else {
                    return;
                };
                let number = known.number();
                parts.retain(|(known, _)| *known != number);
                let at = parts.partition_point(|(known, _)| *known < number);
                parts.splice(at..at, others.into_iter().filter(|(known, _)| *known == number));
            }
            (Self::MessagePack(pairs), Self::MessagePack(others)) => {
                let is_it = |(key, _): &(rmpv::Value, rmpv::Value)| key.as_str() == Some(field);
                pairs.retain(|pair| !is_it(pair));
                pairs.extend(others.into_iter().find(is_it));
            }
            _ => {}
        }
    }

    /// Removes a field: it has its default, or null if its type has null.
    fn clear(&mut self, field: &str) -> Result<(), ValueError> {
        match self {
            Self::Avro { schema, fields, .. } => {
                let (graph, at) = avro_field(schema, field)?;
                let known = &graph.fields()[at];
                let null = from_json::of_json_at(graph, known.node, &Value::Null);
                let default = || known.default.as_ref().map(|default| default.encoded.clone());
                let bytes = null.ok().or_else(default);
                let bytes = bytes.ok_or_else(|| {
                    let type_text = graph.type_text(known.node);
                    ValueError::new(
                        0,
                        format!("null does not fit the type {type_text}, and the field has no default"),
                    )
                })?;
                fields[at] = Some(bytes.into());
            }
            Self::Protobuf { message, parts, .. } => {
                let number = protobuf_field(message, field)?.number();
                parts.retain(|(known, _)| *known != number);
            }
            Self::MessagePack(pairs) => pairs.retain(|(key, _)| key.as_str() != Some(field)),
        }
        Ok(())
    }

    fn type_text(&self, field: &str) -> Option<String> {
        match self {
            Self::Avro { schema, .. } => {
                let (graph, at) = avro_field(schema, field).ok()?;
                Some(graph.type_text(graph.fields()[at].node))
            }
            Self::Protobuf { message, .. } => Some(protobuf::type_text(&protobuf_field(message, field).ok()?)),
            Self::MessagePack(_) => None,
        }
    }

    fn has_64_bits(&self, field: &str) -> bool {
        match self {
            Self::Avro { schema, .. } => avro_field(schema, field).is_ok_and(|(graph, at)| {
                let is_long = |node| matches!(graph.kind(node), avro::Kind::Long);
                let node = graph.fields()[at].node;
                match graph.kind(node) {
                    avro::Kind::Union(branches) => branches.iter().any(|branch| is_long(*branch)),
                    _ => is_long(node),
                }
            }),
            Self::Protobuf { message, .. } => protobuf_field(message, field)
                .is_ok_and(|field| matches!(field.kind(), Kind::Int64 | Kind::Sint64 | Kind::Sfixed64)),
            Self::MessagePack(_) => true,
        }
    }

    /// Checks that all fields that must have a value have one.
    pub(super) fn check_complete(&self) -> Result<(), ValueError> {
        let missing = match self {
            Self::Avro { schema, fields, .. } => {
                let at = fields.iter().position(Option::is_none);
                at.and_then(|at| Some(avro_graph(schema)?.fields()[at].name.clone()))
            }
            Self::Protobuf { message, parts, .. } => {
                let is_missing = |field: &FieldDescriptor| {
                    field.is_required() && parts.iter().all(|(number, _)| *number != field.number())
                };
                let mut fields = message.fields();
                fields.find(is_missing).map(|field| field.name().to_owned())
            }
            Self::MessagePack(_) => None,
        };
        match missing {
            Some(field) => Err(ValueError::new(0, "the field is missing and has no default").within(&field)),
            None => Ok(()),
        }
    }

    /// The value as it is stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Avro { id, fields, .. } => {
                put_id(*id, &mut out);
                fields.iter().flatten().for_each(|field| out.extend_from_slice(field));
            }
            Self::Protobuf { id, parts, .. } => {
                put_id(*id, &mut out);
                parts.iter().for_each(|(_, part)| out.extend_from_slice(part));
            }
            Self::MessagePack(pairs) => {
                // Writing to memory does not fail.
                let _ = rmpv::encode::write_value(&mut out, &rmpv::Value::Map(pairs.clone()));
            }
        }
        out
    }
}

/// Makes one value of parts of several: of a base, or of an absent value, and of fields, each with the value that it comes
/// from. All get the newest schema. `None` if the values have no fields, cannot be read, or lack a field that has no default.
pub fn merge_fields(rules: &ValueRules, base: Option<&Bytes>, fields: &[(&str, Option<&Bytes>)]) -> Option<Bytes> {
    match rules.value_type() {
        ValueType::Bytes | ValueType::Json => return merge_json(base, fields),
        ValueType::Avro | ValueType::Protobuf | ValueType::Messagepack => {}
        _ => return None,
    }
    let mut merged = Record::open(rules, base).ok()?;
    for (name, source) in fields {
        let source = Record::open(rules, Some((*source)?)).ok()?;
        merged.take(name, source);
    }
    merged.check_complete().ok()?;
    Some(merged.encode().into())
}

fn avro_graph(schema: &Schema) -> Option<&Graph> {
    match schema.form() {
        Form::Avro(graph) => Some(graph),
        Form::Protobuf(_) => None,
    }
}

/// The place of a field among those of the record at the root.
fn avro_field<'s>(schema: &'s Schema, name: &str) -> Result<(&'s Graph, usize), ValueError> {
    let graph = avro_graph(schema).ok_or_else(no_fields)?;
    let at = graph.fields().iter().position(|field| field.name == name);
    let at = at.ok_or_else(|| ValueError::new(0, "the schema has no such field"))?;
    Ok((graph, at))
}

fn avro_fields(graph: &Graph, payload: Option<Bytes>) -> Result<Vec<Option<Bytes>>, ValueError> {
    if !matches!(graph.kind(graph.root), avro::Kind::Record { .. }) {
        return Err(no_fields());
    }
    let Some(payload) = payload else {
        let defaults = graph.fields().iter().map(|field| field.default.as_ref());
        return Ok(defaults
            .map(|default| default.map(|default| default.encoded.clone().into()))
            .collect());
    };
    let mut cursor = Cursor::new(&payload);
    let mut fields = Vec::with_capacity(graph.fields().len());
    for field in graph.fields() {
        let start = cursor.at;
        cursor
            .skip::<false>(graph, field.node, 1)
            .map_err(|error| error.within(&field.name))?;
        fields.push(Some(payload.slice(start..cursor.at)));
    }
    cursor.expect_end()?;
    Ok(fields)
}

fn protobuf_field(message: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, ValueError> {
    let field = message.get_field_by_name(name);
    field.ok_or_else(|| ValueError::new(0, "the schema has no such field"))
}
