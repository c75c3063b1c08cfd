//! The types of values that describe themselves: no id, no schema.

use std::io::Cursor;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fondaco_ids::IdSet;
use fondaco_model::ValueType;
use rmpv::decode::{read_value_ref_with_max_depth, read_value_with_max_depth};
use serde_json::{Map, Value, json};

use crate::{VALUE_DEPTH_MAX, ValueError};

/// Checks that a value is of its store's type. Types with schemas are checked by [`Schemas`](crate::Schemas); `bytes` are
/// not checked.
pub fn check_value(value_type: ValueType, value: &[u8]) -> Result<(), ValueError> {
    match value_type {
        ValueType::String => text(value).map(drop),
        ValueType::Integer => integer(value).map(drop),
        // As a value, which has a limit of depth.
        ValueType::Json => json(value).map(drop),
        ValueType::Messagepack => {
            let mut rest = value;
            read_value_ref_with_max_depth(&mut rest, VALUE_DEPTH_MAX).map_err(|error| no_message_pack(&error))?;
            expect_end(value, rest.len())
        }
        ValueType::Ids => match IdSet::parse(value) {
            Ok(_) => Ok(()),
            Err(error) => Err(ValueError::new(0, format!("the value is no set of ids: {error}"))),
        },
        // The form of a value depends on its key: a set of ids, or JSON.
        ValueType::Graph if IdSet::parse(value).is_err() => json(value).map(drop),
        _ => Ok(()),
    }
}

/// A value as JSON. `None` for types whose form in JSON is known elsewhere: by a schema, or by their commands.
pub fn value_to_json(value_type: ValueType, value: &[u8]) -> Result<Option<Value>, ValueError> {
    Ok(Some(match value_type {
        ValueType::String => text(value)?.into(),
        ValueType::Integer => integer(value)?.into(),
        ValueType::Json => json(value)?,
        ValueType::Messagepack => to_json_of_message_pack(read_message_pack(value)?),
        _ => return Ok(None),
    }))
}

/// JSON as a value; `None` as for [`value_to_json`].
pub fn value_of_json(value_type: ValueType, json: &Value) -> Result<Option<Vec<u8>>, ValueError> {
    let misfit = |expected: &str| ValueError::new(0, format!("the JSON is no {expected}"));
    Ok(Some(match value_type {
        ValueType::String => json.as_str().ok_or_else(|| misfit("text"))?.as_bytes().to_vec(),
        ValueType::Integer => json
            .as_i64()
            .ok_or_else(|| misfit("integer of 64 bits"))?
            .to_string()
            .into_bytes(),
        ValueType::Json => json.to_string().into_bytes(),
        ValueType::Messagepack => {
            let mut out = Vec::new();
            rmpv::encode::write_value(&mut out, &to_message_pack(json))
                .map_err(|error| ValueError::new(0, error.to_string()))?;
            out
        }
        _ => return Ok(None),
    }))
}

/// Parses one MessagePack value.
pub(crate) fn read_message_pack(value: &[u8]) -> Result<rmpv::Value, ValueError> {
    let mut rest = Cursor::new(value);
    let read = read_value_with_max_depth(&mut rest, VALUE_DEPTH_MAX).map_err(|error| no_message_pack(&error))?;
    expect_end(value, value.len() - rest.position() as usize)?;
    Ok(read)
}

fn text(value: &[u8]) -> Result<&str, ValueError> {
    std::str::from_utf8(value).map_err(|error| ValueError::new(error.valid_up_to(), "the text is not UTF-8"))
}

fn integer(value: &[u8]) -> Result<i64, ValueError> {
    let parsed = text(value).ok().and_then(|text| text.parse().ok());
    // Only the form that INCR writes: no plus sign, no zeros in front.
    let parsed = parsed.filter(|number: &i64| number.to_string().as_bytes() == value);
    parsed.ok_or_else(|| ValueError::new(0, "the value is no integer of 64 bits"))
}

fn json(value: &[u8]) -> Result<Value, ValueError> {
    serde_json::from_slice(value).map_err(|error| ValueError::new(0, format!("the value is no JSON: {error}")))
}

fn no_message_pack(error: &rmpv::decode::Error) -> ValueError {
    ValueError::new(0, format!("the value is no MessagePack: {error}"))
}

fn expect_end(value: &[u8], left: usize) -> Result<(), ValueError> {
    match left {
        0 => Ok(()),
        left => Err(ValueError::new(
            value.len() - left,
            format!("{left} bytes follow the value"),
        )),
    }
}

/// Bytes, and text that is not UTF-8, are base64; extensions are lists of type and base64; keys that are no texts are JSON.
pub(crate) fn to_json_of_message_pack(value: rmpv::Value) -> Value {
    match value {
        rmpv::Value::Nil => Value::Null,
        rmpv::Value::Boolean(value) => value.into(),
        rmpv::Value::Integer(value) => value
            .as_i64()
            .map(Value::from)
            .or(value.as_u64().map(Value::from))
            .unwrap_or_default(),
        rmpv::Value::F32(value) => value.to_string().parse::<f64>().unwrap_or(f64::NAN).into(),
        rmpv::Value::F64(value) => value.into(),
        rmpv::Value::String(value) => match value.as_str() {
            Some(text) => text.into(),
            None => BASE64_STANDARD.encode(value.as_bytes()).into(),
        },
        rmpv::Value::Binary(bytes) => BASE64_STANDARD.encode(bytes).into(),
        rmpv::Value::Array(items) => items.into_iter().map(to_json_of_message_pack).collect(),
        rmpv::Value::Map(pairs) => {
            let name = |key| match to_json_of_message_pack(key) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            Value::Object(
                pairs
                    .into_iter()
                    .map(|(key, value)| (name(key), to_json_of_message_pack(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        rmpv::Value::Ext(kind, bytes) => json!([kind, BASE64_STANDARD.encode(bytes)]),
    }
}

pub(crate) fn to_message_pack(json: &Value) -> rmpv::Value {
    match json {
        Value::Null => rmpv::Value::Nil,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => value.into(),
            (_, Some(value)) => value.into(),
            _ => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => rmpv::Value::Array(items.iter().map(to_message_pack).collect()),
        Value::Object(object) => rmpv::Value::Map(
            object
                .iter()
                .map(|(key, value)| (key.as_str().into(), to_message_pack(value)))
                .collect(),
        ),
    }
}
