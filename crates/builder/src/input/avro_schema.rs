//! Features of Avro schemas that `arrow-avro` lacks: full names, and records that contain themselves.
//!
//! Avro names types by their full names, which `arrow-avro` does not resolve if they are written in `name` itself. So every
//! type gets a new name without a namespace here.
//!
//! A record that contains itself, such as a node of a tree, has no Arrow type. A top-level column with one can only be
//! passed over: its bytes are left out of each row, and the column of the schema.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

/// The schema of a file, to be read with `arrow-avro`.
#[derive(Debug)]
pub(super) struct ReadSchema {
    /// The schema without recursive columns, as JSON.
    pub(super) json: String,
    /// The names of the recursive columns.
    pub(super) recursive: Vec<String>,
    /// Leaves the bytes of these columns out of a row; `None` if no column is left out.
    pub(super) rows: Option<RowShape>,
}

const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

impl ReadSchema {
    /// Of the schema in a file.
    ///
    /// # Errors
    /// Why it is no schema.
    pub(super) fn parse(schema: &str) -> Result<Self, String> {
        let mut schema: Value = serde_json::from_str(schema).map_err(|e| e.to_string())?;
        if schema["type"] != "record" {
            return Err("its rows are no records".to_owned());
        }
        Names::default().rename(&mut schema, "")?;
        let mut types = HashMap::new();
        collect_types(&schema, &mut types);
        let is_recursive =
            |field: &Value| contains_itself(&field["type"], &types, &mut Vec::new(), &mut HashSet::new());
        let fields = schema["fields"].as_array().cloned().unwrap_or_default();
        let kept: Vec<bool> = fields.iter().map(|field| !is_recursive(field)).collect();
        let of_kind = |kind: bool| {
            fields
                .iter()
                .zip(&kept)
                .filter(move |(_, kept)| **kept == kind)
                .map(|(field, _)| field)
        };
        let recursive = of_kind(false).filter_map(|field| Some(field["name"].as_str()?.to_owned()));
        let recursive: Vec<String> = recursive.collect();
        let mut rows = None;
        if !recursive.is_empty() {
            rows = Some(RowShape::new(&fields, &kept, &types)?);
            // The first mention of a type must define it, and that may have been in a column that is left out.
            let mut defined = HashSet::new();
            let kept = of_kind(true).cloned().map(|mut field| {
                define(&mut field["type"], &types, &mut defined);
                field
            });
            let kept: Vec<Value> = kept.collect();
            schema["fields"] = Value::Array(kept);
        }
        Ok(Self {
            json: schema.to_string(),
            recursive,
            rows,
        })
    }
}

/// New names of types by their full names.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// Renames all types in a schema, within a namespace.
    fn rename(&mut self, schema: &mut Value, namespace: &str) -> Result<(), String> {
        match schema {
            Value::String(name) if PRIMITIVES.contains(&name.as_str()) => Ok(()),
            Value::String(name) => {
                let full = full_name(name, namespace);
                let known = self.0.get(&full).ok_or_else(|| format!("it has no type {full:?}"))?;
                name.clone_from(known);
                Ok(())
            }
            Value::Array(branches) => branches
                .iter_mut()
                .try_for_each(|branch| self.rename(branch, namespace)),
            Value::Object(members) => self.rename_object(members, namespace),
            _ => Err("a type is a name, a list or an object".to_owned()),
        }
    }

    fn rename_object(&mut self, members: &mut Map<String, Value>, namespace: &str) -> Result<(), String> {
        let of_type = members
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if !matches!(of_type.as_str(), "record" | "error" | "enum" | "fixed") {
            for part in ["items", "values"] {
                if let Some(part) = members.get_mut(part) {
                    self.rename(part, namespace)?;
                }
            }
            return match members.get_mut("type") {
                Some(inner) if !matches!(of_type.as_str(), "array" | "map") => self.rename(inner, namespace),
                _ => Ok(()),
            };
        }
        let text = |member: Option<&Value>| member.and_then(Value::as_str).map(str::to_owned);
        let name = text(members.get("name")).ok_or("a type has no name")?;
        let namespace = text(members.remove("namespace").as_ref()).unwrap_or_else(|| namespace.to_owned());
        let full = full_name(&name, &namespace);
        let (namespace, short) = full.rsplit_once('.').unwrap_or(("", &full));
        let new = format!("{short}_{}", self.0.len());
        members.remove("aliases");
        members.insert("name".to_owned(), json!(new));
        self.0.insert(full.clone(), new);
        let fields = members.get_mut("fields").and_then(Value::as_array_mut);
        fields.into_iter().flatten().try_for_each(|field| {
            let of_field = field.get_mut("type").ok_or("a field has no type")?;
            self.rename(of_field, namespace)
        })
    }
}

/// A name that contains a dot is full as it stands.
fn full_name(name: &str, namespace: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        _ if name.contains('.') => name.to_owned(),
        _ => format!("{namespace}.{name}"),
    }
}

/// The name that a type defines.
fn name_of(schema: &Value) -> Option<&str> {
    let kind = schema.get("type")?.as_str()?;
    let is_named = matches!(kind, "record" | "error" | "enum" | "fixed");
    schema.get("name")?.as_str().filter(|_| is_named)
}

/// The parts of a type that are types themselves.
fn parts(schema: &Value) -> Vec<&Value> {
    match schema {
        Value::Array(branches) => branches.iter().collect(),
        Value::Object(members) => {
            let fields = members.get("fields").and_then(Value::as_array);
            let fields = fields.into_iter().flatten().filter_map(|field| field.get("type"));
            let inner = ["type", "items", "values"].iter().filter_map(|part| members.get(*part));
            fields.chain(inner.filter(|inner| !is_kind(inner))).collect()
        }
        _ => vec![],
    }
}

/// Whether the value of `type` is only the kind of the type around it.
fn is_kind(of_type: &Value) -> bool {
    let kind = of_type.as_str().unwrap_or_default();
    matches!(kind, "record" | "error" | "enum" | "fixed" | "array" | "map")
}

fn collect_types<'a>(schema: &'a Value, types: &mut HashMap<String, &'a Value>) {
    if let Some(name) = name_of(schema) {
        types.insert(name.to_owned(), schema);
    }
    for part in parts(schema) {
        collect_types(part, types);
    }
}

/// Whether a type, or one in it, contains itself. `open` are the types around it, `finite` those that are known not to.
fn contains_itself(
    schema: &Value,
    types: &HashMap<String, &Value>,
    open: &mut Vec<String>,
    finite: &mut HashSet<String>,
) -> bool {
    let name = schema.as_str().or_else(|| name_of(schema));
    let Some((name, definition)) = name.and_then(|name| Some((name, *types.get(name)?))) else {
        return parts(schema)
            .into_iter()
            .any(|part| contains_itself(part, types, open, finite));
    };
    if open.iter().any(|other| other == name) {
        return true;
    }
    if finite.contains(name) {
        return false;
    }
    open.push(name.to_owned());
    let found = parts(definition)
        .into_iter()
        .any(|part| contains_itself(part, types, open, finite));
    open.pop();
    if !found {
        finite.insert(name.to_owned());
    }
    found
}

/// Makes the first mention of each type its definition.
fn define(schema: &mut Value, types: &HashMap<String, &Value>, defined: &mut HashSet<String>) {
    if let Some((name, definition)) = schema.as_str().and_then(|name| types.get_key_value(name))
        && defined.insert(name.clone())
    {
        *schema = (*definition).clone();
    } else if let Some(name) = name_of(schema) {
        defined.insert(name.to_owned());
    }
    match schema {
        Value::Array(branches) => branches.iter_mut().for_each(|branch| define(branch, types, defined)),
        Value::Object(members) => {
            let fields = members.get_mut("fields").and_then(Value::as_array_mut);
            for field in fields.into_iter().flatten() {
                define(&mut field["type"], types, defined);
            }
            for part in ["type", "items", "values"] {
                if let Some(part) = members.get_mut(part).filter(|part| !is_kind(part)) {
                    define(part, types, defined);
                }
            }
        }
        _ => {}
    }
}

/// The binary form of rows, to leave columns out.
#[derive(Debug)]
pub(super) struct RowShape {
    columns: Vec<(Shape, bool)>,
    types: HashMap<String, Shape>,
}

/// The binary form of a type.
#[derive(Debug)]
enum Shape {
    /// Of this many bytes.
    Fixed(u64),
    /// A number in 1 to 10 bytes.
    Number,
    /// A length, and as many bytes.
    Bytes,
    Record(Vec<Shape>),
    /// Blocks of items, each of these parts.
    Blocks(Vec<Shape>),
    Union(Vec<Shape>),
    Named(String),
}

impl RowShape {
    fn new(fields: &[Value], kept: &[bool], types: &HashMap<String, &Value>) -> Result<Self, String> {
        let columns = fields.iter().zip(kept);
        let columns = columns.map(|(field, &kept)| Ok((Shape::of(&field["type"])?, kept)));
        let types = types.iter();
        let types = types.map(|(name, definition)| Ok((name.clone(), Shape::of_definition(definition)?)));
        Ok(Self {
            columns: columns.collect::<Result<_, String>>()?,
            types: types.collect::<Result<_, String>>()?,
        })
    }

    /// Moves past the first row, and appends the bytes of its kept columns.
    ///
    /// # Errors
    /// Why it is no row.
    pub(super) fn take_row(&self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
        for (shape, is_kept) in &self.columns {
            let before = *rest;
            self.skip(shape, rest, 0)?;
            if *is_kept {
                out.extend_from_slice(&before[..before.len() - rest.len()]);
            }
        }
        Ok(())
    }

    fn skip(&self, shape: &Shape, rest: &mut &[u8], depth: usize) -> Result<(), &'static str> {
        /// A deeper value would exceed the thread's stack.
        const DEPTH_MAX: usize = 500;
        if depth > DEPTH_MAX {
            return Err("a record contains itself more than 500 times");
        }
        match shape {
            Shape::Fixed(bytes) => skip_bytes(rest, *bytes),
            Shape::Number => read_number(rest).map(|_| ()),
            Shape::Bytes => {
                let length = read_number(rest)?;
                skip_bytes(rest, u64::try_from(length).map_err(|_| "a length is negative")?)
            }
            Shape::Record(parts) => parts.iter().try_for_each(|part| self.skip(part, rest, depth + 1)),
            Shape::Union(branches) => {
                let branch = usize::try_from(read_number(rest)?)
                    .ok()
                    .and_then(|branch| branches.get(branch));
                self.skip(branch.ok_or("a union has no such type")?, rest, depth + 1)
            }
            Shape::Named(name) => {
                let definition = self.types.get(name).ok_or("a type has no definition")?;
                self.skip(definition, rest, depth + 1)
            }
            Shape::Blocks(parts) => loop {
                match read_number(rest)? {
                    0 => return Ok(()),
                    items @ 1.. => {
                        for _ in 0..items {
                            let before = rest.len();
                            parts.iter().try_for_each(|part| self.skip(part, rest, depth + 1))?;
                            if rest.len() == before {
                                // Items without bytes, of any number.
                                break;
                            }
                        }
                    }
                    // The length of the block in bytes follows.
                    _ => {
                        let length = read_number(rest)?;
                        skip_bytes(rest, u64::try_from(length).map_err(|_| "a length is negative")?)?;
                    }
                }
            },
        }
    }
}

impl Shape {
    fn of(schema: &Value) -> Result<Self, String> {
        let of_all = |schemas: &[Value]| schemas.iter().map(Self::of).collect::<Result<_, _>>();
        match schema {
            Value::String(name) => Ok(match name.as_str() {
                "null" => Self::Fixed(0),
                "boolean" => Self::Fixed(1),
                "int" | "long" => Self::Number,
                "float" => Self::Fixed(4),
                "double" => Self::Fixed(8),
                "bytes" | "string" => Self::Bytes,
                name => Self::Named(name.to_owned()),
            }),
            Value::Array(branches) => Ok(Self::Union(of_all(branches)?)),
            Value::Object(members) => match (name_of(schema), members.get("type").unwrap_or(&Value::Null)) {
                (Some(name), _) => Ok(Self::Named(name.to_owned())),
                (None, Value::String(kind)) if kind == "array" => Ok(Self::Blocks(vec![Self::of(&schema["items"])?])),
                (None, Value::String(kind)) if kind == "map" => {
                    Ok(Self::Blocks(vec![Self::Bytes, Self::of(&schema["values"])?]))
                }
                (None, inner) => Self::of(inner),
            },
            _ => Err("a type is a name, a list or an object".to_owned()),
        }
    }

    /// Of a type with a name.
    fn of_definition(schema: &Value) -> Result<Self, String> {
        match schema["type"].as_str() {
            Some("fixed") => Ok(Self::Fixed(schema["size"].as_u64().ok_or("a fixed type has no size")?)),
            Some("enum") => Ok(Self::Number),
            _ => {
                let fields = schema["fields"].as_array().map_or(&[][..], Vec::as_slice);
                let fields = fields.iter().map(|field| Self::of(&field["type"]));
                Ok(Self::Record(fields.collect::<Result<_, _>>()?))
            }
        }
    }
}

fn skip_bytes(rest: &mut &[u8], bytes: u64) -> Result<(), &'static str> {
    let bytes = usize::try_from(bytes).map_err(|_| "it passes the end of its block")?;
    *rest = rest.get(bytes..).ok_or("it passes the end of its block")?;
    Ok(())
}

/// A number: zigzag, 7 bits per byte, lowest first.
fn read_number(rest: &mut &[u8]) -> Result<i64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, others) = rest.split_first().ok_or("it passes the end of its block")?;
        *rest = others;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err("a number is too long")
}
