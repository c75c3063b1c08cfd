//! Random graphs, in memory and as the query that creates them in Neo4j.

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

use crate::memory::{Memory, Parts};

/// The types of edges, and whether they are symmetric. Edges of Neo4j all have a direction: a symmetric edge has any there.
pub const TYPES: [(&str, bool); 3] = [("D", false), ("E", false), ("S", true)];

/// A random graph.
pub struct Graph {
    pub memory: Memory,
    /// The query that creates it.
    pub create: String,
    pub vertices: u64,
}

/// A graph of a few vertices with loops, and with parallel edges of different types.
pub fn graph(rng: &mut Rng) -> Graph {
    let vertices = rng.u64(2..=5);
    let mut parts = Parts::default();
    let mut create: Vec<String> = Vec::new();
    for id in 0..vertices {
        let labels: Vec<&str> = ["A", "B"].into_iter().filter(|_| rng.bool()).collect();
        let mut properties = properties(rng);
        properties.insert("name".into(), format!("v{id}").into());
        let told: String = labels.iter().map(|label| format!(":{label}")).collect();
        create.push(format!("(v{id}{told} {})", cypher(&properties)));
        parts.vertices.push((labels, Json::Object(properties)));
    }
    for (name, symmetric) in TYPES {
        let mut edges: Vec<(u64, u64, Option<Json>)> = Vec::new();
        for _ in 0..rng.usize(0..6) {
            let (mut from, mut to) = (rng.u64(0..vertices), rng.u64(0..vertices));
            if symmetric && from > to {
                (from, to) = (to, from);
            }
            if edges.iter().any(|edge| (edge.0, edge.1) == (from, to)) {
                continue;
            }
            let mut properties = Map::new();
            if rng.bool() {
                properties.insert("w".into(), rng.i64(0..3).into());
            }
            create.push(format!("(v{from})-[:{name} {}]->(v{to})", cypher(&properties)));
            edges.push((from, to, Some(Json::Object(properties))));
        }
        parts.types.push((name, symmetric, edges));
    }
    Graph {
        memory: Memory::new(&parts),
        create: format!("CREATE {}", create.join(", ")),
        vertices,
    }
}

/// `x` is an integer, `y` a float, `s` a string, and `z` one of several types. Each may be missing.
fn properties(rng: &mut Rng) -> Map<String, Json> {
    let mut properties = Map::new();
    let any = [
        json!(1),
        json!(1.0),
        json!(-2.5),
        json!("a"),
        json!(true),
        json!([1, 2]),
        json!(3),
    ];
    for (name, values) in [
        ("x", &[json!(0), json!(1), json!(2), json!(-3)][..]),
        ("y", &[json!(0.5), json!(1.0), json!(-1.5), json!(2.0)][..]),
        ("s", &[json!("a"), json!("ab"), json!("B"), json!("")][..]),
        ("z", &any[..]),
    ] {
        if rng.u8(..4) > 0 {
            properties.insert(name.into(), values[rng.usize(..values.len())].clone());
        }
    }
    properties
}

fn cypher(properties: &Map<String, Json>) -> String {
    let entries: Vec<String> = properties
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    format!("{{{}}}", entries.join(", "))
}
