//! Protobuf: messages by a descriptor that is known at run time only.

use std::collections::{BTreeMap, HashSet};
use std::panic::catch_unwind;

use bytes::Bytes;
use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{
    Cardinality, DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, FileDescriptor, Kind,
    MessageDescriptor, SerializeOptions,
};
use serde_json::Value;

use crate::avro::projection::count_of_json;
use crate::compatibility::{CLASHES_MAX, Clash, FIELDS_MAX, FieldTexts};
use crate::schema::FieldInfo;
use crate::{NAMES_MAX, SchemaError, ValueError};

pub(crate) fn parse(text: &[u8], message: Option<&str>) -> Result<MessageDescriptor, SchemaError> {
    check_files(text)?;
    let unreadable = |reason: String| {
        SchemaError::new(
            "the descriptor set",
            format!("{reason}; make it with protoc --include_imports --descriptor_set_out"),
        )
    };
    // The library panics at sets that refer to what they do not contain: no compiler makes these, but a client may send them.
    let pool = catch_unwind(|| DescriptorPool::decode(text))
        .map_err(|_| unreadable("it contradicts itself".into()))?
        .map_err(|error| unreadable(error.to_string()))?;
    let names: usize = pool.all_messages().map(|message| 1 + message.fields().len()).sum();
    if names > NAMES_MAX {
        return Err(SchemaError::new(
            "the descriptor set",
            format!("more than {NAMES_MAX} names"),
        ));
    }
    let message =
        message.ok_or_else(|| SchemaError::new("the descriptor set", "the name of the message is missing"))?;
    // The library also finds names that are not the full one. The schema is kept with this name, and has to be found by it again.
    let found = pool.get_message_by_name(message);
    found.filter(|found| found.full_name() == message).ok_or_else(|| {
        let known: Vec<String> = pool
            .all_messages()
            .take(10)
            .map(|message| message.full_name().to_owned())
            .collect();
        SchemaError::new(
            message,
            format!("there is no such message; there are: {}", known.join(", ")),
        )
    })
}

/// Refuses files that the library cannot take: those of a syntax that it does not know, editions among them; and those that import one
/// another, which it would follow without end.
fn check_files(text: &[u8]) -> Result<(), SchemaError> {
    // Sets that cannot be decoded are refused by the library.
    let files = FileDescriptorSet::decode(text).map(|set| set.file).unwrap_or_default();
    let mut before = HashSet::new();
    for file in &files {
        if !matches!(file.syntax.as_deref(), None | Some("proto2" | "proto3")) {
            return Err(SchemaError::new(
                file.name(),
                format!("the syntax {:?} is not known: use proto2 or proto3", file.syntax()),
            ));
        }
        let missing = file.dependency.iter().find(|import| !before.contains(import.as_str()));
        if let Some(import) = missing {
            return Err(SchemaError::new(
                file.name(),
                format!(
                    "it imports {import:?}, which is not before it in the set; make it with protoc --include_imports"
                ),
            ));
        }
        if !before.insert(file.name()) {
            return Err(SchemaError::new(file.name(), "the set has two files of this name"));
        }
    }
    Ok(())
}

/// A file by itself, which may import Google's own files, and the indexes of a message in it, and of those within it: the set of
/// all files, which is not checked, and the full name.
pub(crate) fn of_file(file: &[u8], indexes: &[u32]) -> Result<(Vec<u8>, String), SchemaError> {
    let wrong = |reason: String| SchemaError::new("the file", reason);
    let file = FileDescriptorProto::decode(file).map_err(|error| wrong(error.to_string()))?;
    let mut name: Vec<&str> = file.package.iter().map(String::as_str).collect();
    let mut messages = &file.message_type;
    for &index in indexes {
        let message = messages.get(index as usize);
        let message = message.ok_or_else(|| wrong(format!("it has no message with the indexes {indexes:?}")))?;
        name.push(message.name());
        messages = &message.nested_type;
    }
    let name = name.join(".");
    // It has Google's files.
    let (known, mut files) = (DescriptorPool::global(), Vec::new());
    let imports = file
        .dependency
        .iter()
        .filter_map(|import| known.get_file_by_name(import));
    imports.for_each(|import| add_with_imports(&import, &mut files));
    files.push(file);
    Ok((FileDescriptorSet { file: files }.encode_to_vec(), name))
}

/// Adds one of Google's files after those that it imports.
fn add_with_imports(file: &FileDescriptor, files: &mut Vec<FileDescriptorProto>) {
    if files.iter().any(|known| known.name() == file.name()) {
        return;
    }
    file.dependencies().for_each(|import| add_with_imports(&import, files));
    files.push(file.file_descriptor_proto().clone());
}

pub(crate) fn decode(message: &MessageDescriptor, payload: &[u8]) -> Result<DynamicMessage, ValueError> {
    DynamicMessage::decode(message.clone(), payload).map_err(|error| ValueError::new(0, error.to_string()))
}

pub(crate) fn to_json(message: &MessageDescriptor, payload: &[u8]) -> Result<Value, ValueError> {
    // Defaults are written, too: a reader cannot know them.
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .use_proto_field_name(true)
        .skip_default_fields(false);
    let decoded = decode(message, payload)?;
    decoded
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| ValueError::new(0, error.to_string()))
}

pub(crate) fn of_json(message: &MessageDescriptor, json: &Value) -> Result<Vec<u8>, ValueError> {
    let decoded = DynamicMessage::deserialize_with_options(message.clone(), json, &DeserializeOptions::new());
    decoded
        .map(|message| message.encode_to_vec())
        .map_err(|error| ValueError::new(0, error.to_string()))
}

pub(crate) fn fields(message: &MessageDescriptor) -> Vec<FieldInfo> {
    message
        .fields()
        .map(|field| FieldInfo {
            name: field.name().to_owned(),
            texts: texts(&field),
        })
        .collect()
}

fn texts(field: &FieldDescriptor) -> FieldTexts {
    let default = field.field_descriptor_proto().default_value.clone();
    FieldTexts {
        type_text: format!("{} = {}", type_text(field), field.number()),
        default,
    }
}

pub(crate) fn type_text(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(kind) => kind.full_name().to_owned(),
        kind => format!("{kind:?}"),
    };
    match field.cardinality() {
        Cardinality::Repeated => format!("repeated {kind}"),
        Cardinality::Required => format!("required {kind}"),
        Cardinality::Optional => kind,
    }
}

/// Whether a message of this type is a text in JSON.
pub(crate) fn has_text(message: &MessageDescriptor) -> bool {
    const TEXTS: [&str; 5] = ["Timestamp", "Duration", "FieldMask", "StringValue", "BytesValue"];
    let name = message.full_name().strip_prefix("google.protobuf.");
    name.is_some_and(|name| TEXTS.contains(&name))
}

/// Fields with one number must have types of one group on the wire, and fields that are required must be there.
pub(crate) fn compare(writer: &MessageDescriptor, reader: &MessageDescriptor) -> Vec<Clash> {
    let mut clashes = Vec::new();
    walk(writer, reader, "", &mut HashSet::new(), &mut clashes);
    clashes
}

fn walk(
    writer: &MessageDescriptor,
    reader: &MessageDescriptor,
    path: &str,
    seen: &mut HashSet<(String, String)>,
    clashes: &mut Vec<Clash>,
) {
    if !seen.insert((writer.full_name().to_owned(), reader.full_name().to_owned())) {
        return;
    }
    for field in reader.fields() {
        let place = join(path, field.name());
        let mut clash = |rule: &str, written: String| {
            if clashes.len() < CLASHES_MAX {
                clashes.push(Clash {
                    field: place.clone(),
                    rule: rule.into(),
                    writer: written,
                    reader: type_text(&field),
                });
            }
        };
        let required = field.cardinality() == Cardinality::Required;
        let Some(written) = writer.get_field(field.number()) else {
            if required {
                clash(
                    "a field that the writer lacks cannot be required",
                    "no such field".into(),
                );
            }
            continue;
        };
        if required && written.cardinality() != Cardinality::Required {
            clash(
                "a field that may be missing cannot become required",
                type_text(&written),
            );
        }
        if field.is_list() != written.is_list() || field.is_map() != written.is_map() {
            clash("a field number keeps its cardinality", type_text(&written));
        } else if group(&field.kind()) != group(&written.kind()) {
            clash(
                "a field number keeps its type, or gets one of the same form on the wire",
                type_text(&written),
            );
        } else if let (Kind::Message(from), Kind::Message(to)) = (written.kind(), field.kind()) {
            walk(&from, &to, &place, seen, clashes);
        }
    }
}

/// Types that read one another's bytes.
fn group(kind: &Kind) -> u8 {
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Bool | Kind::Enum(_) => 0,
        Kind::Sint32 | Kind::Sint64 => 1,
        Kind::Fixed32 | Kind::Sfixed32 => 2,
        Kind::Fixed64 | Kind::Sfixed64 => 3,
        Kind::String | Kind::Bytes => 4,
        Kind::Float => 5,
        Kind::Double => 6,
        Kind::Message(_) => 7,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

pub(crate) fn all_fields(message: &MessageDescriptor) -> BTreeMap<String, FieldTexts> {
    let mut found = BTreeMap::new();
    collect(message, "", &mut HashSet::new(), &mut found);
    found
}

fn collect(
    message: &MessageDescriptor,
    path: &str,
    seen: &mut HashSet<String>,
    found: &mut BTreeMap<String, FieldTexts>,
) {
    if !seen.insert(message.full_name().to_owned()) {
        return;
    }
    for field in message.fields() {
        if found.len() >= FIELDS_MAX {
            return;
        }
        let place = join(path, field.name());
        if let Kind::Message(inner) = field.kind() {
            collect(&inner, &place, seen, found);
        }
        found.insert(place, texts(&field));
    }
}

/// Some fields of messages.
#[derive(Debug)]
pub(crate) struct ProtobufProjection {
    message: MessageDescriptor,
    fields: Vec<FieldDescriptor>,
}

impl ProtobufProjection {
    pub fn new(message: &MessageDescriptor, names: &[&str]) -> Result<Self, SchemaError> {
        let find = |name: &&str| {
            message
                .get_field_by_name(name)
                .ok_or_else(|| SchemaError::new(*name, "there is no such field"))
        };
        let fields = names.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self {
            message: message.clone(),
            fields,
        })
    }

    /// The bytes of these fields as they are, in the payload's order.
    pub fn encoded(&self, payload: &[u8]) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        each(payload, |number, _, whole, _| {
            if self.fields.iter().any(|field| field.number() == number) {
                out.extend_from_slice(whole);
            }
            Ok(())
        })?;
        Ok(out)
    }

    pub fn json(&self, payload: &[u8]) -> Result<Value, ValueError> {
        let Value::Object(mut object) = to_json(&self.message, &self.encoded(payload)?)? else {
            return Err(ValueError::new(0, "the message has no fields in JSON"));
        };
        let take = |field: &FieldDescriptor| {
            (
                field.name().to_owned(),
                object.remove(field.name()).unwrap_or(Value::Null),
            )
        };
        Ok(Value::Object(self.fields.iter().map(take).collect()))
    }

    pub fn floats<'a>(&self, payload: &'a [u8], name: &str) -> Result<&'a [u8], ValueError> {
        let error = |reason: &str| ValueError::new(0, reason).within(name);
        let field = self
            .fields
            .iter()
            .find(|field| field.name() == name)
            .ok_or_else(|| error("the projection lacks the field"))?;
        let packed = match field.kind() {
            Kind::Float => field.is_list(),
            Kind::Bytes => false,
            _ => return Err(error("the field is no repeated float and no bytes")),
        };
        let mut found: &[u8] = &[];
        each(payload, |number, wire, _, inner| {
            if number != field.number() {
                return Ok(());
            }
            if wire != WireType::LengthDelimited || packed && !found.is_empty() {
                return Err(error("the vector is not packed in one piece"));
            }
            found = inner;
            Ok(())
        })?;
        if found.len().is_multiple_of(4) {
            Ok(found)
        } else {
            Err(error("the bytes are no whole number of floats"))
        }
    }

    pub fn count(&self, payload: &[u8], name: &str) -> Result<Option<u64>, ValueError> {
        if let Ok(floats) = self.floats(payload, name) {
            return Ok(Some(floats.len() as u64 / 4));
        }
        let fields = self.json(payload)?;
        let count = fields.get(name).and_then(count_of_json);
        count
            .map(Some)
            .ok_or_else(|| ValueError::new(0, "the field is no list, no map and no vector").within(name))
    }
}

/// The fields of a message as they are on the wire: the number of each, and all its bytes.
pub(crate) fn parts(payload: &Bytes) -> Result<Vec<(u32, Bytes)>, ValueError> {
    let mut parts = Vec::new();
    each(payload, |number, _, whole, _| {
        parts.push((number, payload.slice_ref(whole)));
        Ok(())
    })?;
    Ok(parts)
}

/// Calls `visit` for each field of a message: number, wire type, all its bytes, and for those with a length the bytes within.
fn each<'a>(
    payload: &'a [u8],
    mut visit: impl FnMut(u32, WireType, &'a [u8], &'a [u8]) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    let mut rest = payload;
    while rest.has_remaining() {
        let start = rest;
        let at = payload.len() - rest.len();
        let error = |error: prost::DecodeError| ValueError::new(at, error.to_string());
        let (number, wire) = decode_key(&mut rest).map_err(error)?;
        let mut inner = rest;
        skip_field(wire, number, &mut rest, DecodeContext::default()).map_err(error)?;
        inner = &inner[..inner.len() - rest.len()];
        if wire == WireType::LengthDelimited {
            decode_varint(&mut inner).map_err(error)?;
        }
        visit(number, wire, &start[..start.len() - rest.len()], inner)?;
    }
    Ok(())
}
