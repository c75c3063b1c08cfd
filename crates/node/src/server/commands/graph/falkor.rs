//! Answers as FalkorDB writes them: in its compact format, in which names are numbers, and in the one for people.

use std::collections::{BTreeMap, HashMap};

use fondaco_graph::Description;
use fondaco_graph::query::{Edge, QueryResult, Value};
use fondaco_resp::Reply;

// Types of values in the compact format.
const NULL: i64 = 1;
const TEXT: i64 = 2;
const INTEGER: i64 = 3;
const BOOLEAN: i64 = 4;
const DOUBLE: i64 = 5;
const ARRAY: i64 = 6;
const EDGE: i64 = 7;
const NODE: i64 = 8;
const PATH: i64 = 9;
const MAP: i64 = 10;
/// The type of a column.
const SCALAR: i64 = 1;

/// Numbers of edges within one answer: edges have none of their own.
#[derive(Default)]
struct EdgeNumbers(HashMap<(std::sync::Arc<str>, u64, u64), i64>);

impl EdgeNumbers {
    fn of(&mut self, edge: &Edge) -> i64 {
        let (from, to) = edge.ends();
        let next = self.0.len() as i64;
        *self.0.entry((edge.name.clone(), from, to)).or_insert(next)
    }
}

/// Writes an answer in the compact format.
pub(super) fn compact(result: &QueryResult, description: &Description, reply: &mut Reply<'_>) {
    reply.array(3);
    reply.array(result.columns.len());
    for column in &result.columns {
        reply.array(2);
        reply.integer(SCALAR);
        reply.bulk(column.as_bytes());
    }
    let mut writer = Compact {
        result,
        labels: numbered(description.labels.keys()),
        types: numbered(description.types.keys()),
        properties: numbered(&description.properties),
        edges: EdgeNumbers::default(),
    };
    reply.array(result.rows.len());
    for row in &result.rows {
        reply.array(row.len());
        row.iter().for_each(|value| writer.value(value, reply));
    }
    statistics(result, reply);
}

fn numbered<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, i64> {
    names.into_iter().map(String::as_str).zip(0..).collect()
}

struct Compact<'a> {
    result: &'a QueryResult,
    labels: BTreeMap<&'a str, i64>,
    types: BTreeMap<&'a str, i64>,
    properties: BTreeMap<&'a str, i64>,
    edges: EdgeNumbers,
}

impl Compact<'_> {
    /// A value, its type first.
    fn value(&mut self, value: &Value, reply: &mut Reply<'_>) {
        reply.array(2);
        self.typed(value, reply);
    }

    /// The type of a value and the value, within an array that was begun.
    fn typed(&mut self, value: &Value, reply: &mut Reply<'_>) {
        reply.integer(type_of(value));
        match value {
            Value::Null => reply.null(),
            Value::Bool(flag) => reply.bulk(flag.to_string().as_bytes()),
            Value::Int(int) => reply.integer(*int),
            Value::Float(float) => reply.bulk(float.to_string().as_bytes()),
            Value::Text(text) => reply.bulk(text.as_bytes()),
            Value::List(values) => {
                reply.array(values.len());
                values.iter().for_each(|value| self.value(value, reply));
            }
            Value::Map(map) => {
                reply.array(2 * map.len());
                for (name, value) in &**map {
                    reply.bulk(name.as_bytes());
                    self.value(value, reply);
                }
            }
            Value::Vertex(id) => self.vertex(*id, reply),
            Value::Edge(edge) => self.edge(edge, reply),
            Value::Path(path) => {
                reply.array(2);
                reply.array(2);
                reply.integer(ARRAY);
                reply.array(path.vertices.len());
                path.vertices
                    .iter()
                    .for_each(|&id| self.value(&Value::Vertex(id), reply));
                reply.array(2);
                reply.integer(ARRAY);
                reply.array(path.edges.len());
                path.edges
                    .iter()
                    .for_each(|edge| self.value(&Value::Edge(edge.clone()), reply));
            }
        }
    }

    fn vertex(&mut self, id: u64, reply: &mut Reply<'_>) {
        reply.array(3);
        reply.integer(id as i64);
        let vertex = self.result.vertices.get(&id);
        let labels = vertex.iter().flat_map(|vertex| &vertex.labels);
        let labels: Vec<i64> = labels
            .filter_map(|label| self.labels.get(label.as_str()).copied())
            .collect();
        reply.array(labels.len());
        labels.into_iter().for_each(|label| reply.integer(label));
        let properties = vertex.iter().flat_map(|vertex| &vertex.properties);
        let properties = properties.map(|(name, value)| (name.as_str(), Value::of_json(value)));
        self.properties(properties.collect(), reply);
    }

    fn edge(&mut self, edge: &Edge, reply: &mut Reply<'_>) {
        reply.array(5);
        reply.integer(self.edges.of(edge));
        reply.integer(self.types.get(&*edge.name).copied().unwrap_or(-1));
        reply.integer(edge.from as i64);
        reply.integer(edge.to as i64);
        let (from, to) = edge.ends();
        let properties = self.result.edges.get(&(edge.name.clone(), from, to)).cloned();
        let properties = properties.iter().flat_map(|properties| &**properties);
        self.properties(
            properties.map(|(name, value)| (name.as_str(), value.clone())).collect(),
            reply,
        );
    }

    fn properties(&mut self, properties: Vec<(&str, Value)>, reply: &mut Reply<'_>) {
        let known = |(name, value): (&str, Value)| Some((*self.properties.get(name)?, value));
        let known: Vec<(i64, Value)> = properties.into_iter().filter_map(known).collect();
        reply.array(known.len());
        for (name, value) in known {
            reply.array(3);
            reply.integer(name);
            self.typed(&value, reply);
        }
    }
}

fn type_of(value: &Value) -> i64 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Int(_) => INTEGER,
        Value::Float(_) => DOUBLE,
        Value::Text(_) => TEXT,
        Value::List(_) => ARRAY,
        Value::Map(_) => MAP,
        Value::Vertex(_) => NODE,
        Value::Edge(_) => EDGE,
        Value::Path(_) => PATH,
    }
}

/// Writes an answer in the format for people.
pub(super) fn verbose(result: &QueryResult, reply: &mut Reply<'_>) {
    reply.array(3);
    reply.array(result.columns.len());
    result.columns.iter().for_each(|column| reply.bulk(column.as_bytes()));
    let mut edges = EdgeNumbers::default();
    reply.array(result.rows.len());
    for row in &result.rows {
        reply.array(row.len());
        row.iter().for_each(|value| plain(value, result, &mut edges, reply));
    }
    statistics(result, reply);
}

fn plain(value: &Value, result: &QueryResult, edges: &mut EdgeNumbers, reply: &mut Reply<'_>) {
    let text = |name: &str, reply: &mut Reply<'_>| {
        reply.array(2);
        reply.bulk(name.as_bytes());
    };
    let integer = |name: &str, value: i64, reply: &mut Reply<'_>| {
        text(name, reply);
        reply.integer(value);
    };
    match value {
        Value::Null => reply.null(),
        Value::Int(int) => reply.integer(*int),
        Value::Text(text) => reply.bulk(text.as_bytes()),
        Value::Vertex(id) => {
            let vertex = result.vertices.get(id);
            reply.array(3);
            integer("id", *id as i64, reply);
            text("labels", reply);
            let labels: Vec<&String> = vertex.iter().flat_map(|vertex| &vertex.labels).collect();
            reply.array(labels.len());
            labels.iter().for_each(|label| reply.bulk(label.as_bytes()));
            text("properties", reply);
            let properties: Vec<_> = vertex.iter().flat_map(|vertex| &vertex.properties).collect();
            reply.array(properties.len());
            for (name, value) in properties {
                text(name, reply);
                plain(&Value::of_json(value), result, edges, reply);
            }
        }
        Value::Edge(edge) => {
            reply.array(5);
            integer("id", edges.of(edge), reply);
            text("type", reply);
            reply.bulk(edge.name.as_bytes());
            integer("src_node", edge.from as i64, reply);
            integer("dest_node", edge.to as i64, reply);
            text("properties", reply);
            let (from, to) = edge.ends();
            let properties = result.edges.get(&(edge.name.clone(), from, to));
            let properties: Vec<_> = properties.iter().flat_map(|properties| properties.iter()).collect();
            reply.array(properties.len());
            for (name, value) in properties {
                text(name, reply);
                plain(value, result, edges, reply);
            }
        }
        other => reply.bulk(error_reply(other, edges).as_bytes()),
    }
}

/// A value as text.
fn error_reply(value: &Value, edges: &mut EdgeNumbers) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) => float.to_string(),
        Value::Text(text) => text.to_string(),
        Value::Vertex(id) => format!("({id})"),
        Value::Edge(edge) => format!("[{}]", edges.of(edge)),
        Value::List(values) => {
            let values: Vec<String> = values.iter().map(|value| error_reply(value, edges)).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name}: {}", error_reply(value, edges)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Path(path) => {
            let mut parts = Vec::new();
            for (at, id) in path.vertices.iter().enumerate() {
                parts.push(format!("({id})"));
                parts.extend(path.edges.get(at).map(|edge| format!("[{}]", edges.of(edge))));
            }
            format!("[{}]", parts.join(", "))
        }
    }
}

fn statistics(result: &QueryResult, reply: &mut Reply<'_>) {
    let milliseconds: f64 = result.profile.iter().map(|step| step.milliseconds).sum();
    let mut lines = vec![
        "Cached execution: 0".to_owned(),
        format!("Query internal execution time: {milliseconds:.6} milliseconds"),
        format!("Requests to nodes: {}", result.requests),
        format!("Edges followed: {}", result.expanded),
    ];
    // Not a number: clients look for their own lines alone.
    lines.extend(
        result
            .incomplete
            .iter()
            .map(|why| format!("Partial answer, because of {why}")),
    );
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
}
