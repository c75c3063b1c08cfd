//! The text of an Avro schema to a graph. Bounded: in text, depth, names, and in the work for defaults.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::from_json::Encoder;
use super::{Default, Field, Graph, Kind, Logical, Name, Node, NodeIndex, Unit};
use crate::{DEPTH_MAX, NAMES_MAX, SchemaError};

pub(crate) fn parse(text: &[u8]) -> Result<Graph, SchemaError> {
    let json: Value = serde_json::from_slice(text).map_err(|error| SchemaError::new("the text", error.to_string()))?;
    let mut parser = Parser {
        nodes: Vec::new(),
        names: HashMap::new(),
        count: 0,
        path: Vec::new(),
    };
    let root = parser.node(&json, "", 0)?;
    let mut graph = Graph {
        nodes: parser.nodes,
        root,
    };
    encode_defaults(&mut graph)?;
    Ok(graph)
}

struct Parser {
    nodes: Vec<Node>,
    names: HashMap<String, NodeIndex>,
    count: usize,
    path: Vec<String>,
}

impl Parser {
    fn error(&self, reason: impl Into<String>) -> SchemaError {
        let place = if self.path.is_empty() {
            "the root".into()
        } else {
            self.path.join(".")
        };
        SchemaError::new(place, reason)
    }

    /// A limit on all names: of types, fields, symbols and aliases.
    fn count_name(&mut self) -> Result<(), SchemaError> {
        self.count += 1;
        if self.count > NAMES_MAX {
            Err(self.error(format!("more than {NAMES_MAX} names")))
        } else {
            Ok(())
        }
    }

    fn add(&mut self, kind: Kind, logical: Option<Logical>) -> NodeIndex {
        self.nodes.push(Node { kind, logical });
        self.nodes.len() - 1
    }

    fn node(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<NodeIndex, SchemaError> {
        if depth >= DEPTH_MAX {
            return Err(self.error(format!("nested more than {DEPTH_MAX} deep")));
        }
        match json {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => self.union(branches, namespace, depth),
            Value::Object(object) => match object.get("type") {
                Some(Value::String(name)) => self.object(name, object, namespace, depth),
                Some(inner) => self.node(inner, namespace, depth + 1),
                None => Err(self.error("a type is missing: the object has no \"type\"")),
            },
            _ => Err(self.error(format!("{} is no type", short(json)))),
        }
    }

    fn named(&mut self, name: &str, namespace: &str) -> Result<NodeIndex, SchemaError> {
        if let Some(kind) = primitive(name) {
            return Ok(self.add(kind, None));
        }
        let full = if name.contains('.') || namespace.is_empty() {
            name.into()
        } else {
            format!("{namespace}.{name}")
        };
        let found = self.names.get(&full).or_else(|| self.names.get(name)).copied();
        found.ok_or_else(|| self.error(format!("type {name:?} is not defined before it is used")))
    }

    fn union(&mut self, branches: &[Value], namespace: &str, depth: usize) -> Result<NodeIndex, SchemaError> {
        let union = self.add(Kind::Union(Vec::new()), None);
        let (mut seen, mut nodes) = (HashSet::new(), Vec::new());
        for branch in branches {
            let node = self.node(branch, namespace, depth + 1)?;
            let name = branch_name(&self.nodes[node].kind).to_owned();
            if name == "union" {
                return Err(self.error("a union is directly within a union"));
            }
            if !seen.insert(name.clone()) {
                return Err(self.error(format!("the union has {name:?} twice")));
            }
            nodes.push(node);
        }
        if nodes.is_empty() {
            return Err(self.error("the union has no branch"));
        }
        self.nodes[union].kind = Kind::Union(nodes);
        Ok(union)
    }

    fn object(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<NodeIndex, SchemaError> {
        match kind {
            "array" | "map" => {
                let member = if kind == "array" { "items" } else { "values" };
                let inner = object
                    .get(member)
                    .ok_or_else(|| self.error(format!("{kind} without {member:?}")))?;
                let inner = self.node(inner, namespace, depth + 1)?;
                Ok(self.add(
                    if kind == "array" {
                        Kind::Array(inner)
                    } else {
                        Kind::Map(inner)
                    },
                    None,
                ))
            }
            "record" | "error" | "enum" | "fixed" => self.definition(kind, object, namespace, depth),
            name => {
                let node = self.named(name, namespace)?;
                if primitive(name).is_some() {
                    self.nodes[node].logical = logical(&self.nodes[node].kind, object);
                }
                Ok(node)
            }
        }
    }

    fn definition(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<NodeIndex, SchemaError> {
        let Some(Value::String(given)) = object.get("name") else {
            return Err(self.error(format!("{kind} without a name")));
        };
        let namespace = match (given.rsplit_once('.'), object.get("namespace")) {
            (Some((namespace, _)), _) => namespace.to_owned(),
            (None, Some(Value::String(namespace))) => namespace.clone(),
            _ => namespace.to_owned(),
        };
        let qualify = |name: &str| {
            if name.contains('.') || namespace.is_empty() {
                name.to_owned()
            } else {
                format!("{namespace}.{name}")
            }
        };
        let full = qualify(given);
        if full.split('.').any(|part| !is_name(part)) || primitive(&full).is_some() {
            return Err(self.error(format!("{full:?} is no name: use letters, digits and _")));
        }
        self.path.push(full.clone());
        self.count_name()?;
        let aliases = self
            .strings(object, "aliases")?
            .iter()
            .map(|alias| qualify(alias))
            .collect();
        let name = Name {
            full: full.clone(),
            aliases,
        };
        // Before its fields: a record may contain itself.
        let node = self.add(
            Kind::Record {
                name: name.clone(),
                fields: Vec::new(),
            },
            None,
        );
        if self.names.insert(full, node).is_some() {
            return Err(self.error("the name is defined twice"));
        }
        let kind = match kind {
            "fixed" => {
                let size = object
                    .get("size")
                    .and_then(Value::as_u64)
                    .filter(|size| *size <= 1 << 26);
                Kind::Fixed {
                    name,
                    size: size.ok_or_else(|| self.error("fixed without a size up to 64 MiB"))? as usize,
                }
            }
            "enum" => {
                let symbols = self.strings(object, "symbols")?;
                let mut seen = HashSet::new();
                if let Some(bad) = symbols
                    .iter()
                    .find(|symbol| !is_name(symbol) || !seen.insert(symbol.as_str()))
                {
                    return Err(self.error(format!("symbol {bad:?} is no name, or is there twice")));
                }
                let default =
                    match object.get("default") {
                        None => None,
                        Some(value) => Some(symbols.iter().position(|symbol| value == symbol).ok_or_else(|| {
                            self.error(format!("default {} is not one of the symbols", short(value)))
                        })?),
                    };
                Kind::Enum { name, symbols, default }
            }
            _ => {
                let fields = self.record_fields(object, &namespace, depth)?;
                Kind::Record { name, fields }
            }
        };
        self.nodes[node] = Node {
            logical: logical(&kind, object),
            kind,
        };
        self.path.pop();
        Ok(node)
    }

    fn record_fields(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<Vec<Field>, SchemaError> {
        let Some(Value::Array(list)) = object.get("fields") else {
            return Err(self.error("record without fields"));
        };
        let (mut fields, mut seen) = (Vec::new(), HashSet::new());
        for json in list {
            let name = json
                .get("name")
                .and_then(Value::as_str)
                .ok_or_else(|| self.error("a field without a name"))?;
            self.path.push(name.to_owned());
            self.count_name()?;
            let aliases = match json.as_object() {
                Some(object) => self.strings(object, "aliases")?,
                None => Vec::new(),
            };
            if !is_name(name) || !seen.insert(name) {
                return Err(self.error("the field's name is no name, or is there twice: use letters, digits and _"));
            }
            let kind = json.get("type").ok_or_else(|| self.error("field without a type"))?;
            let node = self.node(kind, namespace, depth + 1)?;
            let default = json.get("default").map(|json| Default {
                json: json.clone(),
                encoded: Vec::new(),
            });
            fields.push(Field {
                name: name.to_owned(),
                aliases,
                node,
                default,
            });
            self.path.pop();
        }
        Ok(fields)
    }

    fn strings(&mut self, object: &Map<String, Value>, member: &str) -> Result<Vec<String>, SchemaError> {
        let Some(list) = object.get(member) else {
            return Ok(Vec::new());
        };
        let texts = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|text| text.as_str().map(str::to_owned));
        let texts = texts.collect::<Option<Vec<_>>>().filter(|_| list.is_array());
        let texts = texts.ok_or_else(|| self.error(format!("{member:?} is no list of texts")))?;
        for _ in &texts {
            self.count_name()?;
        }
        Ok(texts)
    }
}

/// Checks every default by encoding it. All of them share one limit of work and bytes: defaults may contain defaults.
fn encode_defaults(graph: &mut Graph) -> Result<(), SchemaError> {
    let mut encoder = Encoder::of_defaults(graph);
    let mut encoded = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let Kind::Record { name, fields } = &node.kind else {
            continue;
        };
        for (index, field) in fields.iter().enumerate() {
            let Some(default) = &field.default else { continue };
            let bytes = encoder.encode(field.node, &default.json).map_err(|error| {
                SchemaError::new(
                    format!("{}.{}", name.full, field.name),
                    format!("the default does not fit the type: {error}"),
                )
            })?;
            encoded.push((at, index, bytes));
        }
    }
    for (at, index, bytes) in encoded {
        if let Kind::Record { fields, .. } = &mut graph.nodes[at].kind
            && let Some(default) = &mut fields[index].default
        {
            default.encoded = bytes;
        }
    }
    Ok(())
}

/// The name by which a union tells its branches apart.
pub(crate) fn branch_name(kind: &Kind) -> &str {
    match kind {
        Kind::Null => "null",
        Kind::Boolean => "boolean",
        Kind::Int => "int",
        Kind::Long => "long",
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Bytes => "bytes",
        Kind::String => "string",
        Kind::Array(_) => "array",
        Kind::Map(_) => "map",
        Kind::Union(_) => "union",
        Kind::Fixed { name, .. } | Kind::Enum { name, .. } | Kind::Record { name, .. } => &name.full,
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// The logical type, if it fits the physical one: as the specification demands, another one is ignored.
fn logical(kind: &Kind, object: &Map<String, Value>) -> Option<Logical> {
    use Unit::{Microseconds, Milliseconds, Nanoseconds};
    Some(match (object.get("logicalType")?.as_str()?, kind) {
        ("date", Kind::Int) => Logical::Date,
        ("time-millis", Kind::Int) => Logical::Time(Milliseconds),
        ("time-micros", Kind::Long) => Logical::Time(Microseconds),
        ("timestamp-millis", Kind::Long) => Logical::Timestamp(Milliseconds),
        ("timestamp-micros", Kind::Long) => Logical::Timestamp(Microseconds),
        ("timestamp-nanos", Kind::Long) => Logical::Timestamp(Nanoseconds),
        ("local-timestamp-millis", Kind::Long) => Logical::LocalTimestamp(Milliseconds),
        ("local-timestamp-micros", Kind::Long) => Logical::LocalTimestamp(Microseconds),
        ("local-timestamp-nanos", Kind::Long) => Logical::LocalTimestamp(Nanoseconds),
        ("uuid", Kind::String | Kind::Fixed { size: 16, .. }) => Logical::Uuid,
        ("decimal", Kind::Bytes | Kind::Fixed { .. }) => {
            let precision = object
                .get("precision")?
                .as_u64()
                .filter(|digits| (1..=38).contains(digits))? as u32;
            let scale = object
                .get("scale")
                .map_or(Some(0), Value::as_u64)
                .filter(|scale| *scale <= precision.into())? as u32;
            Logical::Decimal { precision, scale }
        }
        _ => return None,
    })
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(letter) && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// The beginning of a JSON value, for messages.
fn short(json: &Value) -> String {
    let text = json.to_string();
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(60).collect();
    if chars.next().is_some() { start + "…" } else { start }
}
