//! JSON to a payload. The same code encodes the defaults of a schema, whose JSON form is the specification's.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::cursor::{put_long, put_sized};
use super::logical::{parse_decimal, parse_number, parse_uuid};
use super::parse::branch_name;
use super::{Graph, Kind, Logical, NodeIndex};
use crate::{VALUE_DEPTH_MAX, ValueError};

/// Values within values: unions try their branches, and defaults contain defaults.
const STEPS_MAX: usize = 1 << 24;
/// The steps and bytes of all defaults of a schema.
const DEFAULTS_MAX: usize = 1 << 20;

pub(crate) fn of_json(graph: &Graph, json: &Value) -> Result<Vec<u8>, ValueError> {
    of_json_at(graph, graph.root, json)
}

/// JSON as a value of one of the graph's types.
pub(crate) fn of_json_at(graph: &Graph, node: NodeIndex, json: &Value) -> Result<Vec<u8>, ValueError> {
    Encoder {
        graph,
        defaults: false,
        steps: STEPS_MAX,
    }
    .encode(node, json)
}

pub(crate) struct Encoder<'a> {
    graph: &'a Graph,
    /// Whether the JSON is a default's: bytes are texts of code points up to 255, and logical types do not count.
    defaults: bool,
    steps: usize,
}

fn misfit(json: &Value, expected: &str) -> ValueError {
    let text = json.to_string();
    let text: String = text.chars().take(60).collect();
    ValueError::new(0, format!("{text} is no {expected}"))
}

impl<'a> Encoder<'a> {
    pub fn of_defaults(graph: &'a Graph) -> Self {
        Self {
            graph,
            defaults: true,
            steps: DEFAULTS_MAX,
        }
    }

    pub fn encode(&mut self, node: NodeIndex, json: &Value) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        self.write(node, json, &mut out, 0)?;
        if self.defaults {
            self.spend(out.len())?;
        }
        Ok(out)
    }

    fn spend(&mut self, steps: usize) -> Result<(), ValueError> {
        self.steps = self
            .steps
            .checked_sub(steps)
            .ok_or_else(|| ValueError::new(0, "the value takes too much work"))?;
        Ok(())
    }

    fn write(&mut self, node: NodeIndex, json: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), ValueError> {
        self.spend(1)?;
        if depth > VALUE_DEPTH_MAX {
            return Err(ValueError::new(0, format!("nested more than {VALUE_DEPTH_MAX} deep")));
        }
        let graph = self.graph;
        let logical = graph.nodes[node].logical.filter(|_| !self.defaults);
        match graph.kind(node) {
            Kind::Null => json.as_null().ok_or_else(|| misfit(json, "null"))?,
            Kind::Boolean => out.push(json.as_bool().ok_or_else(|| misfit(json, "boolean"))?.into()),
            Kind::Int => {
                let value = integer(logical, json, "int")?;
                put_long(
                    i32::try_from(value).map_err(|_| misfit(json, "int of 32 bits"))?.into(),
                    out,
                );
            }
            Kind::Long => put_long(integer(logical, json, "long")?, out),
            Kind::Float => {
                let value = float(json)?;
                if value.is_finite() && !(value as f32).is_finite() {
                    return Err(misfit(json, "float of 32 bits"));
                }
                out.extend((value as f32).to_le_bytes());
            }
            Kind::Double => out.extend(float(json)?.to_le_bytes()),
            Kind::String => put_sized(json.as_str().ok_or_else(|| misfit(json, "string"))?.as_bytes(), out),
            Kind::Bytes => put_sized(&self.binary(logical, None, json)?, out),
            Kind::Fixed { size, .. } => {
                let bytes = self.binary(logical, Some(*size), json)?;
                if bytes.len() != *size {
                    return Err(ValueError::new(0, format!("{} bytes instead of {size}", bytes.len())));
                }
                out.extend(bytes);
            }
            Kind::Enum { symbols, .. } => {
                let symbol = symbols.iter().position(|symbol| json == symbol);
                put_long(symbol.ok_or_else(|| misfit(json, "symbol of the enum"))? as i64, out);
            }
            Kind::Union(branches) => self.union(branches, json, out, depth)?,
            Kind::Record { fields, .. } => {
                let object = json.as_object().ok_or_else(|| misfit(json, "record"))?;
                for field in fields {
                    let result = match (object.get(&field.name), &field.default) {
                        (Some(value), _) => self.write(field.node, value, out, depth + 1),
                        // Defaults are encoded one after the other: within a default, another may not be ready.
                        (None, Some(default)) if self.defaults => self.write(field.node, &default.json, out, depth + 1),
                        (None, Some(default)) => {
                            out.extend(&default.encoded);
                            Ok(())
                        }
                        (None, None) => Err(ValueError::new(0, "the field is missing and has no default")),
                    };
                    result.map_err(|error| error.within(&field.name))?;
                }
                if let Some(name) = object
                    .keys()
                    .find(|name| fields.iter().all(|field| field.name != **name))
                {
                    return Err(ValueError::new(0, "the schema has no such field").within(name));
                }
            }
            Kind::Array(item) => {
                let list = json.as_array().ok_or_else(|| misfit(json, "array"))?;
                if !list.is_empty() {
                    put_long(list.len() as i64, out);
                }
                for (index, value) in list.iter().enumerate() {
                    self.write(*item, value, out, depth + 1)
                        .map_err(|error| error.within(&format!("[{index}]")))?;
                }
                put_long(0, out);
            }
            Kind::Map(item) => {
                let object = json.as_object().ok_or_else(|| misfit(json, "map"))?;
                if !object.is_empty() {
                    put_long(object.len() as i64, out);
                }
                for (key, value) in object {
                    put_sized(key.as_bytes(), out);
                    self.write(*item, value, out, depth + 1)
                        .map_err(|error| error.within(key))?;
                }
                put_long(0, out);
            }
        }
        Ok(())
    }

    /// The first branch that the value fits; else the branch that the value names, as in Avro's own JSON: `{"long": 5}`.
    fn union(
        &mut self,
        branches: &[NodeIndex],
        json: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), ValueError> {
        let start = out.len();
        let mut failed = None;
        for (index, branch) in branches.iter().enumerate() {
            put_long(index as i64, out);
            match self.write(*branch, json, out, depth + 1) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    out.truncate(start);
                    // The error of the branch that came furthest helps most.
                    if failed
                        .as_ref()
                        .is_none_or(|former: &ValueError| former.field.len() < error.field.len())
                    {
                        failed = Some(error);
                    }
                }
            }
        }
        if let Some((name, value)) = json
            .as_object()
            .filter(|object| object.len() == 1)
            .and_then(|object| object.iter().next())
            && let Some(index) = branches
                .iter()
                .position(|branch| branch_name(self.graph.kind(*branch)) == name)
        {
            put_long(index as i64, out);
            return self.write(branches[index], value, out, depth + 1);
        }
        match failed {
            Some(error) if !error.field.is_empty() => Err(error),
            _ => {
                let names: Vec<&str> = branches
                    .iter()
                    .map(|branch| branch_name(self.graph.kind(*branch)))
                    .collect();
                Err(misfit(json, &names.join(" or ")))
            }
        }
    }

    fn binary(&self, logical: Option<Logical>, size: Option<usize>, json: &Value) -> Result<Vec<u8>, ValueError> {
        let number = json.as_number().map(ToString::to_string);
        match logical {
            Some(Logical::Decimal { precision, scale }) => {
                let text = number
                    .as_deref()
                    .or(json.as_str())
                    .ok_or_else(|| misfit(json, "decimal"))?;
                parse_decimal(precision, scale, size, text).ok_or_else(|| {
                    misfit(
                        json,
                        &format!("decimal of {precision} digits, {scale} of them after the point"),
                    )
                })
            }
            Some(Logical::Uuid) => json.as_str().and_then(parse_uuid).ok_or_else(|| misfit(json, "UUID")),
            _ => {
                let text = json.as_str().ok_or_else(|| misfit(json, "bytes"))?;
                if self.defaults {
                    let bytes = text
                        .chars()
                        .map(|char| u8::try_from(u32::from(char)).ok())
                        .collect::<Option<_>>();
                    bytes.ok_or_else(|| misfit(json, "text of bytes: a character is beyond 255"))
                } else {
                    BASE64_STANDARD.decode(text).map_err(|_| misfit(json, "base64"))
                }
            }
        }
    }
}

fn integer(logical: Option<Logical>, json: &Value, expected: &str) -> Result<i64, ValueError> {
    let text = || logical.and_then(|logical| parse_number(logical, json.as_str()?));
    json.as_i64().or_else(text).ok_or_else(|| match logical {
        Some(Logical::Date) => misfit(json, "date such as 2026-01-31"),
        Some(Logical::Time(_)) => misfit(json, "time such as 12:00:00.500"),
        Some(Logical::Timestamp(_)) => misfit(json, "time such as 2026-01-31T12:00:00.500Z"),
        Some(Logical::LocalTimestamp(_)) => misfit(json, "time such as 2026-01-31T12:00:00.500"),
        _ => misfit(json, expected),
    })
}

fn float(json: &Value) -> Result<f64, ValueError> {
    let named = match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => None,
    };
    json.as_f64().or(named).ok_or_else(|| misfit(json, "number"))
}
