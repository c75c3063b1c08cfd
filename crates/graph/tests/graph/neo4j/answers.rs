//! Answers of both in one form: rows of JSON, as `Neo4jPeer.java` writes them.

use fondaco_graph::query::{Edge, Value};
use serde_json::{Value as Json, json};

use super::queries::{Query, is_symmetric};

/// A value here as JSON.
pub fn told(value: &Value) -> Json {
    let vertex = |id: u64| json!({"vertex": format!("v{id}")});
    let edge = |of: &Edge| json!({"edge": [&*of.name, vertex(of.from), vertex(of.to)]});
    match value {
        Value::Vertex(id) => vertex(*id),
        Value::Edge(of) => edge(of),
        Value::Path(path) => {
            let mut parts = vec![vertex(path.vertices[0])];
            for (of, &end) in path.edges.iter().zip(&path.vertices[1..]) {
                parts.extend([edge(of), vertex(end)]);
            }
            json!({ "path": parts })
        }
        Value::Float(float) => json!({"float": float.to_string()}),
        Value::List(values) => values.iter().map(told).collect(),
        Value::Map(map) => {
            let entries: serde_json::Map<_, _> = map.iter().map(|(name, value)| (name.clone(), told(value))).collect();
            json!({ "map": entries })
        }
        other => other.to_json().unwrap(),
    }
}

/// Rows as text that is equal where the answers are.
pub fn comparable(rows: &Json, query: &Query) -> Vec<String> {
    let rows = rows.as_array().unwrap().iter();
    let mut rows: Vec<String> = rows.map(|row| canonical(row, query, true)).collect();
    if !query.is_ordered {
        rows.sort();
    }
    rows
}

fn canonical(value: &Json, query: &Query, is_row: bool) -> String {
    match value {
        Json::Array(values) => {
            let mut values: Vec<String> = values.iter().map(|value| canonical(value, query, false)).collect();
            if query.has_any_order && !is_row {
                values.sort();
            }
            format!("[{}]", values.join(", "))
        }
        Json::Object(map) => {
            let (name, value) = map.iter().next().unwrap();
            match (&name[..], value) {
                ("float", Json::String(text)) => {
                    let float: f64 = text.parse().unwrap();
                    match float.fract() == 0.0 && (query.is_loose || float == 0.0) {
                        true if query.is_loose => format!("{float:.0}").replace("-0", "0"),
                        true => "0.0".into(),
                        // Sums differ in their last digits by the order of their parts.
                        false => format!("{float:.9e}"),
                    }
                }
                ("edge", Json::Array(parts)) => {
                    let mut ends = [&parts[1], &parts[2]].map(Json::to_string);
                    if is_symmetric(parts[0].as_str().unwrap()) {
                        ends.sort();
                    }
                    format!("{}{ends:?}", parts[0])
                }
                (_, Json::Array(parts)) => {
                    let parts: Vec<String> = parts.iter().map(|part| canonical(part, query, false)).collect();
                    format!("<{}>", parts.join(" "))
                }
                ("map", Json::Object(entries)) => {
                    let entry = |(name, value): (&String, &Json)| format!("{name}: {}", canonical(value, query, false));
                    let entries: Vec<String> = entries.iter().map(entry).collect();
                    format!("{{{}}}", entries.join(", "))
                }
                _ => value.to_string(),
            }
        }
        other => other.to_string(),
    }
}
