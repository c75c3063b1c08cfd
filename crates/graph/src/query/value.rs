//! The values of queries.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Number, Value as Json};

use crate::keys;

/// A value of a query. Of a vertex it is only known which it is: its labels and properties are read when they are needed.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map.
    Map(Arc<BTreeMap<String, Value>>),
    /// A vertex, by its id.
    Vertex(u64),
    /// An edge.
    Edge(Edge),
    /// A path.
    Path(Arc<Path>),
}

/// An edge. A symmetric edge has the vertex as `from` from which it was followed, and equals the same edge followed back.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The name of its type.
    pub name: Arc<str>,
    /// Whether its type is symmetric.
    pub symmetric: bool,
    /// Where it leads from.
    pub from: u64,
    /// Where it leads to.
    pub to: u64,
}

/// A path: one vertex more than edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Its vertices, in order.
    pub vertices: Vec<u64>,
    /// Its edges, in order.
    pub edges: Vec<Edge>,
}

impl Edge {
    /// Its ends as they are stored.
    pub fn ends(&self) -> (u64, u64) {
        keys::ends(self.symmetric, self.from, self.to)
    }
}

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.ends() == other.ends()
    }
}

impl Value {
    /// A value of JSON.
    pub fn of_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text.as_str().into()),
            Json::Array(values) => Self::list(values.iter().map(Self::of_json).collect()),
            Json::Object(map) => {
                let map = map.iter().map(|(name, value)| (name.clone(), Self::of_json(value)));
                Self::Map(Arc::new(map.collect()))
            }
        }
    }

    /// The value as JSON; `None` of a vertex, an edge or a path.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Self::Null => Json::Null,
            Self::Bool(flag) => Json::Bool(*flag),
            Self::Int(int) => (*int).into(),
            Self::Float(float) => Number::from_f64(*float).map_or(Json::Null, Json::Number),
            Self::Text(text) => Json::String(text.to_string()),
            Self::List(values) => Json::Array(values.iter().map(Self::to_json).collect::<Option<_>>()?),
            Self::Map(map) => {
                let entry = |(name, value): (&String, &Self)| Some((name.clone(), value.to_json()?));
                Json::Object(map.iter().map(entry).collect::<Option<_>>()?)
            }
            Self::Vertex(_) | Self::Edge(_) | Self::Path(_) => return None,
        })
    }

    /// Whether JSON has the value, and all within it.
    pub(super) fn is_json(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Text(_) => true,
            Self::Float(float) => float.is_finite(),
            Self::List(values) => values.iter().all(Self::is_json),
            Self::Map(map) => map.values().all(Self::is_json),
            Self::Vertex(_) | Self::Edge(_) | Self::Path(_) => false,
        }
    }

    pub(super) fn list(values: Vec<Self>) -> Self {
        Self::List(Arc::new(values))
    }

    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(text.as_ref().into())
    }

    /// The name of its type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Vertex(_) => "a vertex",
            Self::Edge(_) => "an edge",
            Self::Path(_) => "a path",
        }
    }

    /// Whether two values are equal, as `=` has it; `None` if that is not known, because of null.
    pub(super) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Null, _) | (_, Self::Null) => None,
            // NaN equals no number.
            (Self::Int(_) | Self::Float(_), Self::Int(_) | Self::Float(_)) => {
                Some(number_order(self, other) == Some(Ordering::Equal))
            }
            (Self::List(one), Self::List(other)) => {
                if one.len() != other.len() {
                    return Some(false);
                }
                all_equal(one.iter().zip(&**other))
            }
            (Self::Map(one), Self::Map(other)) => {
                if !one.keys().eq(other.keys()) {
                    return Some(false);
                }
                all_equal(one.values().zip(other.values()))
            }
            _ => Some(self == other),
        }
    }

    /// The order of two values as `<` has it; `None` if they are not comparable.
    pub(super) fn compares(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(_) | Self::Float(_), Self::Int(_) | Self::Float(_)) => number_order(self, other),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::List(one), Self::List(other)) => {
                for (one, other) in one.iter().zip(&**other) {
                    match one.compares(other)? {
                        Ordering::Equal => {}
                        order => return Some(order),
                    }
                }
                Some(one.len().cmp(&other.len()))
            }
            _ => None,
        }
    }

    /// The order of `ORDER BY`: of all values, nulls last.
    pub(super) fn sorts(&self, other: &Self) -> Ordering {
        let by_kind = self.rank().cmp(&other.rank());
        by_kind.then_with(|| match (self, other) {
            // NaN is after all other numbers.
            (Self::Int(_) | Self::Float(_), _) => number_order(self, other).unwrap_or_else(|| {
                let is_nan = |value: &Self| matches!(value, Self::Float(float) if float.is_nan());
                is_nan(self).cmp(&is_nan(other))
            }),
            (Self::Vertex(one), Self::Vertex(other)) => one.cmp(other),
            (Self::Edge(one), Self::Edge(other)) => (&one.name, one.ends()).cmp(&(&other.name, other.ends())),
            (Self::List(one), Self::List(other)) => {
                let differing = one.iter().zip(&**other).map(|(one, other)| one.sorts(other));
                let first = differing.into_iter().find(|order| order.is_ne());
                first.unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            (Self::Map(_) | Self::Path(_), _) => self.key().cmp(&other.key()),
            _ => self.compares(other).unwrap_or(Ordering::Equal),
        })
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Map(_) => 0,
            Self::Vertex(_) => 1,
            Self::Edge(_) => 2,
            Self::List(_) => 3,
            Self::Path(_) => 4,
            Self::Text(_) => 5,
            Self::Bool(_) => 6,
            Self::Int(_) | Self::Float(_) => 7,
            Self::Null => 8,
        }
    }

    /// Bytes that are equal for values that `DISTINCT` and groups take for the same.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        self.write_key(&mut key);
        key
    }

    pub(super) fn write_key(&self, key: &mut Vec<u8>) {
        key.push(self.rank());
        match self {
            Self::Null => {}
            Self::Bool(flag) => key.push((*flag).into()),
            Self::Int(int) => write_integer(*int, key),
            Self::Float(float) => match whole(*float) {
                Some(int) => write_integer(int, key),
                None => {
                    key.push(1);
                    // There are many NaN, and they are one value to `DISTINCT`.
                    let float = if float.is_nan() { f64::NAN } else { *float };
                    key.extend(float.to_bits().to_be_bytes());
                }
            },
            Self::Text(text) => write_text(text, key),
            Self::List(values) => {
                key.extend((values.len() as u64).to_be_bytes());
                values.iter().for_each(|value| value.write_key(key));
            }
            Self::Map(map) => {
                key.extend((map.len() as u64).to_be_bytes());
                for (name, value) in &**map {
                    write_text(name, key);
                    value.write_key(key);
                }
            }
            Self::Vertex(id) => key.extend(id.to_be_bytes()),
            Self::Edge(edge) => write_edge(edge, key),
            Self::Path(path) => {
                key.extend((path.vertices.len() as u64).to_be_bytes());
                path.vertices.iter().for_each(|id| key.extend(id.to_be_bytes()));
                path.edges.iter().for_each(|edge| write_edge(edge, key));
            }
        }
    }
}

fn write_integer(int: i64, key: &mut Vec<u8>) {
    key.push(0);
    key.extend(int.to_be_bytes());
}

/// The integer that a float equals, if there is one.
pub(super) fn whole(float: f64) -> Option<i64> {
    // 2^63 is the first float above all integers.
    let is_in_range = (-INTEGERS_END..INTEGERS_END).contains(&float);
    (is_in_range && float.fract() == 0.0).then_some(float as i64)
}

/// 2^63.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

fn write_text(text: &str, key: &mut Vec<u8>) {
    key.extend((text.len() as u64).to_be_bytes());
    key.extend(text.as_bytes());
}

fn write_edge(edge: &Edge, key: &mut Vec<u8>) {
    let (from, to) = edge.ends();
    write_text(&edge.name, key);
    key.extend(from.to_be_bytes());
    key.extend(to.to_be_bytes());
}

fn all_equal<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Option<bool> {
    let mut all = Some(true);
    for (one, other) in pairs {
        match one.equals(other) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

/// The order of two numbers, exactly: an integer is not rounded to a float. `None` with NaN.
fn number_order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
        (Value::Float(one), Value::Float(other)) => one.partial_cmp(other),
        (Value::Int(int), Value::Float(float)) => integer_order(*int, *float),
        (Value::Float(float), Value::Int(int)) => integer_order(*int, *float).map(Ordering::reverse),
        _ => None,
    }
}

fn integer_order(int: i64, float: f64) -> Option<Ordering> {
    match whole(float.floor()) {
        Some(floor) => Some(int.cmp(&floor).then_with(|| {
            if float.fract() == 0.0 {
                Ordering::Equal
            } else {
                Ordering::Less
            }
        })),
        // Beyond all integers, or NaN.
        None => 0.0.partial_cmp(&float),
    }
}
