//! The graph of a scenario, made by the `CREATE`s that it has executed before.

use std::collections::HashMap;

use fondaco_graph::query::Value;
use open_cypher::ast::{ClauseKind, LabelExpression, LabelExpressionKind, PathFactorKind, QueryKind, StatementKind};
use open_cypher::ast::{Expr, PathFactor, RelationshipDirection};
use serde_json::{Map, Value as Json};

use crate::memory::{Memory, Parts};

/// Vertices and edges, as they were created.
#[derive(Debug, Default)]
pub struct Graph {
    vertices: Vec<(Vec<String>, Json)>,
    edges: Vec<(String, u64, u64, Json)>,
}

impl Graph {
    /// Carries out a query that creates vertices and edges.
    ///
    /// # Errors
    /// The graph cannot be made here, and why.
    pub fn execute(&mut self, text: &str) -> Result<(), String> {
        let parsed = open_cypher::parse(text).map_err(|_| "its query is not openCypher".to_owned())?;
        let [statement] = &parsed.program.statements[..] else {
            return Err("it has several queries".into());
        };
        let StatementKind::Query(statement) = &statement.kind else {
            return Err("its query is not openCypher".into());
        };
        let QueryKind::Regular(query) = &statement.query.kind else {
            return Err("its query is not openCypher".into());
        };
        let clauses = &query.head.kind.clauses;
        let first = clauses
            .iter()
            .position(|clause| matches!(clause.kind, ClauseKind::Create(_)));
        let first = first.ok_or("it is not made by CREATE")?;
        let before = &text[..clauses[first].span.start()];
        let graph = self.memory();
        let mut rows = vec![HashMap::new()];
        if first > 0 {
            let answer = graph.ask(&format!("{before} RETURN *"))?;
            let row = |row: Vec<Value>| answer.columns.iter().cloned().zip(row).collect();
            rows = answer.rows.clone().into_iter().map(row).collect();
        }
        let properties_of = |properties: Option<&Expr>| -> Result<Vec<Json>, String> {
            let Some(properties) = properties else {
                return Ok(vec![Json::Object(Map::new()); rows.len()]);
            };
            let properties = properties.span.text(text).unwrap();
            let answer = graph.ask(&format!("{before} RETURN {properties} AS properties"))?;
            let json = |row: &Vec<Value>| {
                let mut json = row[0].to_json().unwrap();
                json.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                json
            };
            Ok(answer.rows.iter().map(json).collect())
        };
        let mut parts: Vec<Vec<(&PathFactor, Vec<Json>)>> = Vec::new();
        for clause in &clauses[first..] {
            let ClauseKind::Create(create) = &clause.kind else {
                return Err("it is not made by CREATE alone".into());
            };
            for part in &create.pattern.parts {
                let mut factors = Vec::new();
                for factor in &part.kind.path.kind.factors {
                    let properties = match &factor.kind {
                        PathFactorKind::Node(vertex) => vertex.properties.as_deref(),
                        PathFactorKind::Relationship(edge) => edge.properties.as_deref(),
                        _ => return Err("its pattern is unusual".into()),
                    };
                    factors.push((factor, properties_of(properties)?));
                }
                parts.push(factors);
            }
        }
        for (at, mut row) in rows.into_iter().enumerate() {
            for factors in &parts {
                self.create(factors, at, &mut row)?;
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        factors: &[(&PathFactor, Vec<Json>)],
        at: usize,
        row: &mut HashMap<String, Value>,
    ) -> Result<(), String> {
        let mut last = None;
        let mut edge = None;
        for (factor, properties) in factors {
            match &factor.kind {
                PathFactorKind::Node(pattern) => {
                    let name = pattern.variable.as_ref().map(|name| name.kind.text.clone());
                    let id = match name.as_ref().and_then(|name| row.get(name)) {
                        Some(Value::Vertex(id)) => *id,
                        Some(_) => return Err("its pattern is unusual".into()),
                        None => {
                            let mut labels = Vec::new();
                            pattern.labels.iter().for_each(|of| names(of, &mut labels));
                            labels.sort();
                            labels.dedup();
                            self.vertices.push((labels, properties[at].clone()));
                            self.vertices.len() as u64 - 1
                        }
                    };
                    row.extend(name.map(|name| (name, Value::Vertex(id))));
                    if let (Some(from), Some((kind, towards, properties))) = (last, edge.take()) {
                        let (from, to) = if towards == RelationshipDirection::Left {
                            (id, from)
                        } else {
                            (from, id)
                        };
                        if self
                            .edges
                            .iter()
                            .any(|(of, one, other, _)| (of, *one, *other) == (&kind, from, to))
                        {
                            return Err("it has two edges of one type between two vertices, which are one here".into());
                        }
                        self.edges.push((kind, from, to, properties));
                    }
                    last = Some(id);
                }
                PathFactorKind::Relationship(pattern) => {
                    let mut types = Vec::new();
                    pattern.labels.iter().for_each(|of| names(of, &mut types));
                    edge = Some((types.remove(0), pattern.direction.kind, properties[at].clone()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The graph in memory.
    pub fn memory(&self) -> Memory {
        let mut types: Vec<(&'static str, bool, Vec<_>)> = Vec::new();
        for (name, from, to, properties) in &self.edges {
            let place = types.iter().position(|(of, ..)| of == name).unwrap_or_else(|| {
                types.push((kept(name), false, Vec::new()));
                types.len() - 1
            });
            types[place].2.push((*from, *to, Some(properties.clone())));
        }
        let vertices = self.vertices.iter().map(|(labels, properties)| {
            let labels = labels.iter().map(|label| kept(label)).collect();
            (labels, properties.clone())
        });
        Memory::new(&Parts {
            vertices: vertices.collect(),
            types,
        })
    }
}

fn names(expression: &LabelExpression, into: &mut Vec<String>) {
    match &expression.kind {
        LabelExpressionKind::Name(name) => into.push(name.kind.text.clone()),
        LabelExpressionKind::And(parts) => parts.iter().for_each(|part| names(part, into)),
        LabelExpressionKind::Parenthesized(part) => names(part, into),
        _ => {}
    }
}

/// Names of graphs in memory are constants elsewhere.
fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}
