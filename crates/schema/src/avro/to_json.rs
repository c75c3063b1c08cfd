//! A payload as JSON, the form in which people and updates see it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

use super::cursor::Cursor;
use super::logical::{decimal_text, number_text, uuid_text};
use super::{Graph, Kind, Logical, NodeIndex};
use crate::ValueError;

pub(crate) fn to_json(graph: &Graph, payload: &[u8]) -> Result<Value, ValueError> {
    let mut cursor = Cursor::new(payload);
    let json = read(graph, graph.root, &mut cursor, 0)?;
    cursor.expect_end()?;
    Ok(json)
}

/// Reads one value at the cursor.
pub(crate) fn read(graph: &Graph, node: NodeIndex, cursor: &mut Cursor<'_>, depth: usize) -> Result<Value, ValueError> {
    cursor.step(depth)?;
    let logical = graph.nodes[node].logical;
    let number = |value: i64| match logical.and_then(|logical| number_text(logical, value)) {
        Some(text) => Value::String(text),
        None => value.into(),
    };
    Ok(match graph.kind(node) {
        Kind::Null => Value::Null,
        Kind::Boolean => cursor.boolean()?.into(),
        Kind::Int => number(cursor.int()?.into()),
        Kind::Long => number(cursor.long()?),
        Kind::Float => {
            let value = f32::from_le_bytes(cursor.take(4)?.try_into().expect("4 bytes were taken"));
            // By its shortest text, so that 0.1 stays 0.1.
            float(value.to_string().parse().unwrap_or(f64::NAN))
        }
        Kind::Double => float(f64::from_le_bytes(
            cursor.take(8)?.try_into().expect("8 bytes were taken"),
        )),
        Kind::String => cursor.string()?.into(),
        Kind::Bytes => binary(logical, cursor.sized()?),
        Kind::Fixed { size, .. } => binary(logical, cursor.take(*size)?),
        Kind::Enum { symbols, .. } => symbols[cursor.index(symbols.len(), "symbol")?].as_str().into(),
        Kind::Union(branches) => {
            let branch = cursor.index(branches.len(), "branch of a union")?;
            read(graph, branches[branch], cursor, depth + 1)?
        }
        Kind::Record { fields, .. } => {
            let mut object = Map::new();
            for field in fields {
                let value = read(graph, field.node, cursor, depth + 1).map_err(|error| error.within(&field.name))?;
                object.insert(field.name.clone(), value);
            }
            Value::Object(object)
        }
        Kind::Array(item) => {
            let mut list = Vec::new();
            while let Some(block) = cursor.block()? {
                for _ in 0..block.items {
                    let value = read(graph, *item, cursor, depth + 1);
                    list.push(value.map_err(|error| error.within(&format!("[{}]", list.len())))?);
                }
                cursor.end_block(&block)?;
            }
            Value::Array(list)
        }
        Kind::Map(item) => {
            let mut object = Map::new();
            while let Some(block) = cursor.block()? {
                for _ in 0..block.items {
                    let key = cursor.string()?.to_owned();
                    let value = read(graph, *item, cursor, depth + 1).map_err(|error| error.within(&key))?;
                    object.insert(key, value);
                }
                cursor.end_block(&block)?;
            }
            Value::Object(object)
        }
    })
}

fn float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

fn binary(logical: Option<Logical>, bytes: &[u8]) -> Value {
    let text = match logical {
        // Text of base64 is no decimal: a number that no reader can hold is refused when it is written back.
        Some(Logical::Decimal { scale, .. }) => decimal_text(scale, bytes),
        Some(Logical::Uuid) => Some(uuid_text(bytes)),
        _ => None,
    };
    text.unwrap_or_else(|| BASE64_STANDARD.encode(bytes)).into()
}
