//! The keys and values of rows in the encoding that the store declares.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fondaco_model::{KeyType, ValueType};
use fondaco_schema::{Schema, ValueError, check_value, key_of_parts, put_id, value_of_json};
use serde_json::Value;

use super::key::parts_in;
use crate::declaration::Declaration;

/// The form of a value, as a reader of files makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// The text or the bytes of one column.
    Plain,
    /// JSON text.
    Json,
}

/// Encodes the keys and values of rows.
pub(super) struct Encoder<'a> {
    declared: &'a Declaration,
    written: Option<(u16, &'a Schema)>,
    aliases: Vec<(String, String)>,
    key_names: &'a [String],
}

impl<'a> Encoder<'a> {
    pub(super) fn new(declared: &'a Declaration, key_names: &'a [String]) -> Self {
        let written = declared.written().filter(|_| declared.value_type.has_schemas());
        Self {
            declared,
            written,
            aliases: written.map_or_else(Vec::new, |(_, schema)| schema.aliases()),
            key_names,
        }
    }

    /// Whether the parts of keys are written apart.
    pub(super) fn has_parts(&self) -> bool {
        matches!(self.declared.key_type, KeyType::Tuple(_))
    }

    /// A key.
    ///
    /// # Errors
    /// Why it is not of its type.
    pub(super) fn key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>, String> {
        let key_type = &self.declared.key_type;
        let parts: Vec<&[u8]> = match key_type {
            KeyType::One(_) if key_type.is_bytes() => return Ok(Cow::Borrowed(key)),
            KeyType::One(_) => vec![key],
            KeyType::Tuple(_) => parts_in(key).map(|(part, _)| part).collect(),
        };
        let encoded = key_of_parts(key_type, &parts).map_err(|(part, error)| {
            let name = self.key_names.get(part).map_or("", String::as_str);
            format!("{name:?}, of the key: {}", error.reason)
        });
        Ok(Cow::Owned(encoded?))
    }

    /// A value.
    ///
    /// # Errors
    /// Why it is not of its type.
    pub(super) fn value<'v>(&self, form: ValueForm, value: &'v [u8]) -> Result<Cow<'v, [u8]>, String> {
        let refused = |error: ValueError| error.to_string();
        match (self.declared.value_type, form) {
            (ValueType::Bytes | ValueType::Graph, _) => Ok(Cow::Borrowed(value)),
            (ValueType::Ids, _) => encode_ids(value).map(Cow::Owned),
            (ValueType::Avro | ValueType::Protobuf, form) => {
                let Some((id, schema)) = self.written else {
                    return Err("its store has no schema".to_owned());
                };
                let mut encoded = Vec::with_capacity(2 + value.len());
                put_id(id, &mut encoded);
                match form {
                    ValueForm::Plain => {
                        schema.validate(value).map_err(refused)?;
                        encoded.extend_from_slice(value);
                    }
                    ValueForm::Json => encoded.extend(schema.of_json(&self.record(value)?).map_err(refused)?),
                }
                Ok(Cow::Owned(encoded))
            }
            (ValueType::Messagepack, ValueForm::Json) => {
                let encoded = value_of_json(ValueType::Messagepack, &parse(value)?).map_err(refused)?;
                Ok(encoded.map_or(Cow::Borrowed(value), Cow::Owned))
            }
            (other, _) => check_value(other, value)
                .map(|()| Cow::Borrowed(value))
                .map_err(refused),
        }
    }

    /// A record as JSON, with the names of the schema.
    fn record(&self, json: &[u8]) -> Result<Value, String> {
        let mut record = parse(json)?;
        if let Value::Object(members) = &mut record {
            for (alias, name) in &self.aliases {
                if !members.contains_key(name)
                    && let Some(member) = members.remove(alias)
                {
                    members.insert(name.clone(), member);
                }
            }
        }
        Ok(record)
    }

    /// Notes the schema of a value that is encoded already.
    ///
    /// # Errors
    /// The value is not of its type.
    pub(super) fn note(&self, value: &[u8], ids: &mut BTreeSet<u16>) -> Result<(), String> {
        if self.declared.value_type.has_schemas() {
            ids.insert(
                self.declared
                    .schemas
                    .validate(value)
                    .map_err(|error| error.to_string())?,
            );
        }
        Ok(())
    }
}

fn parse(json: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(json).map_err(|error| format!("it cannot be read as JSON: {error}"))
}

/// Appends a field of a format that has only text, as JSON. Where the type cannot be text, an empty field is null.
pub(super) fn write_text(text: &str, reads_text: bool, out: &mut Vec<u8>) {
    match text {
        "" if !reads_text => out.extend_from_slice(b"null"),
        text if !reads_text && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            out.extend_from_slice(text.as_bytes());
        }
        text => super::json::write_string(text, out),
    }
}

/// The encoded set of ids in a text, which may be a JSON array.
fn encode_ids(value: &[u8]) -> Result<Vec<u8>, String> {
    let text =
        str::from_utf8(value).map_err(|_| "the value is no text: ids are written as 5,1,9 or [5, 1, 9]".to_owned())?;
    let text = text.trim_ascii();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ids = fondaco_ids::parse_text(inner.unwrap_or(text)).map_err(|error| error.to_string())?;
    fondaco_ids::encode(&ids).map_err(|error| error.to_string())
}
