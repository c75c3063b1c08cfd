//! The rules by which a new schema is accepted, and the differences of two schemas.

use std::collections::BTreeMap;
use std::fmt;

use fondaco_model::Compatibility;

use crate::schema::{Form, Schema};
use crate::{avro, protobuf};

/// The most clashes that an error lists.
pub(crate) const CLASHES_MAX: usize = 100;
/// The fields that are listed, with those of fields.
pub(crate) const FIELDS_MAX: usize = 10_000;

/// A place at which one schema cannot read what another one wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// The path of the field, as the reader names it; `[]` is an item of a list, `{}` of a map. Empty for the value itself.
    pub field: String,
    /// The rule that is broken.
    pub rule: String,
    /// The type in the schema that writes.
    pub writer: String,
    /// The type in the schema that reads.
    pub reader: String,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str("the value")?,
            field => write!(f, "field {field:?}")?,
        }
        write!(
            f,
            ": {:?} was written, {:?} is read; {}",
            self.writer, self.reader, self.rule
        )
    }
}

/// A clash of a new schema with one of the former schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerClash {
    /// The index of the former schema in the list that was given.
    pub old: usize,
    /// Whether the new schema is the one that reads.
    pub new_reads: bool,
    /// The clash.
    pub clash: Clash,
}

impl fmt::Display for FormerClash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reader, writer) = if self.new_reads {
            ("new", "former")
        } else {
            ("former", "new")
        };
        write!(
            f,
            "the {reader} schema does not read values of the {writer} one: {}",
            self.clash
        )
    }
}

/// Checks a new schema against former ones: `backward`: it reads their values; `forward`: they read its values.
pub fn check(new: &Schema, olds: &[&Schema], mode: Compatibility) -> Result<(), Vec<FormerClash>> {
    let mut clashes = Vec::new();
    for (old, former) in olds.iter().enumerate() {
        let add = |new_reads: bool, found: Vec<Clash>, clashes: &mut Vec<FormerClash>| {
            let room = CLASHES_MAX - clashes.len();
            clashes.extend(
                found
                    .into_iter()
                    .take(room)
                    .map(|clash| FormerClash { old, new_reads, clash }),
            );
        };
        if matches!(mode, Compatibility::Backward | Compatibility::Full) {
            add(true, reads(former, new), &mut clashes);
        }
        if matches!(mode, Compatibility::Forward | Compatibility::Full) {
            add(false, reads(new, former), &mut clashes);
        }
    }
    if clashes.is_empty() { Ok(()) } else { Err(clashes) }
}

/// The places at which `reader` cannot read values of `writer`.
pub(crate) fn reads(writer: &Schema, reader: &Schema) -> Vec<Clash> {
    match (writer.form(), reader.form()) {
        (Form::Avro(writer), Form::Avro(reader)) => avro::compatibility::compare(writer, reader).0,
        (Form::Protobuf(writer), Form::Protobuf(reader)) => protobuf::compare(writer, reader),
        _ => vec![Clash {
            field: String::new(),
            rule: "a store has one type of values".into(),
            writer: writer.value_type().to_string(),
            reader: reader.value_type().to_string(),
        }],
    }
}

/// Type and default of a field, as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTexts {
    /// The type in a few words.
    pub type_text: String,
    /// The default as JSON.
    pub default: Option<String>,
}

impl fmt::Display for FieldTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.type_text)?;
        self.default
            .as_ref()
            .map_or(Ok(()), |default| write!(f, ", default {default}"))
    }
}

/// A difference of two schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A field that only the second schema has.
    Added(String, FieldTexts),
    /// A field that only the first schema has.
    Removed(String, FieldTexts),
    /// A field of both, with another type or default.
    Changed(String, FieldTexts, FieldTexts),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(field, texts) => write!(f, "+ {field}: {texts}"),
            Self::Removed(field, texts) => write!(f, "- {field}: {texts}"),
            Self::Changed(field, from, to) => write!(f, "~ {field}: {from} -> {to}"),
        }
    }
}

/// The differences from one schema to another, in the order of the fields' paths.
pub fn diff(from: &Schema, to: &Schema) -> Vec<Change> {
    let (mut from, mut changes) = (all_fields(from), BTreeMap::new());
    for (field, texts) in all_fields(to) {
        match from.remove(&field) {
            None => changes.insert(field.clone(), Change::Added(field, texts)),
            Some(former) if former != texts => changes.insert(field.clone(), Change::Changed(field, former, texts)),
            Some(_) => None,
        };
    }
    for (field, texts) in from {
        changes.insert(field.clone(), Change::Removed(field, texts));
    }
    changes.into_values().collect()
}

fn all_fields(schema: &Schema) -> BTreeMap<String, FieldTexts> {
    match schema.form() {
        Form::Avro(graph) => avro::compatibility::all_fields(graph),
        Form::Protobuf(message) => protobuf::all_fields(message),
    }
}
