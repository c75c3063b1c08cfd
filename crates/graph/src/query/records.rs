//! The records of vertices and edges that expressions use. They are read for many rows at once, and kept while the
//! query runs.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::evaluation::{Evaluation, Missing};
use super::expression::{Expression, Row};
use super::run::Run;
use super::value::{Edge, Value};
use crate::{Selection, Source, Vertex, keys};

/// The most records of vertices that are kept.
const RECORDS_MAX: usize = 200_000;

impl<S: Source> Run<'_, S> {
    /// The values of expressions in each row. Reads the records that they use first.
    pub(super) async fn values(
        &mut self,
        expressions: &[&Expression],
        rows: &[Row],
    ) -> Result<Vec<Vec<Value>>, String> {
        if self.known.vertices.len() > RECORDS_MAX {
            self.known.vertices.clear();
            self.known.edges.clear();
        }
        loop {
            let mut evaluation = Evaluation {
                known: &self.known,
                missing: Missing::default(),
            };
            let mut values = Vec::with_capacity(rows.len());
            let mut failed = None;
            for row in rows {
                let mut row = row.clone();
                let own = expressions
                    .iter()
                    .map(|expression| evaluation.value(expression, &mut row));
                match own.collect() {
                    Ok(own) => values.push(own),
                    Err(error) => failed = Some(error),
                }
            }
            let missing = evaluation.missing;
            if missing.is_empty() {
                return match failed {
                    Some(error) => Err(error),
                    None => Ok(values),
                };
            }
            self.read(missing).await?;
        }
    }

    /// Reads records of vertices, and properties of edges.
    pub(super) async fn read(&mut self, missing: Missing) -> Result<(), String> {
        let Missing { mut vertices, edges } = missing;
        vertices.sort_unstable();
        vertices.dedup();
        if !vertices.is_empty() {
            let selection = Selection {
                with_properties: true,
                ..Selection::default()
            };
            for (id, record) in vertices.iter().zip(self.source.select(&vertices, &selection).await?) {
                let vertex: Option<Vertex> = record
                    .map(|record| serde_json::from_slice(&record))
                    .transpose()
                    .map_err(|error| format!("ERR the record of vertex {id} is damaged: {error}"))?;
                self.known.vertices.insert(*id, vertex.map(Into::into));
            }
        }
        let mut with_properties = HashMap::new();
        for edge in edges {
            let key = Value::Edge(edge.clone()).key();
            let has_properties = self.description.types.get(&*edge.name).is_some_and(|of| of.properties);
            match has_properties {
                true => drop(with_properties.insert(key, edge)),
                false => drop(self.known.edges.insert(key, Value::Map(Arc::default()))),
            }
        }
        let (names, edges): (Vec<_>, Vec<Edge>) = with_properties.into_iter().unzip();
        let key = |edge: &Edge| Bytes::from(keys::edge(&edge.name, edge.ends().0, edge.ends().1));
        let found = self.source.values(edges.iter().map(key).collect()).await?;
        for (name, record) in names.into_iter().zip(found) {
            let json = record.map(|record| serde_json::from_slice(&record)).transpose();
            let json: Option<serde_json::Value> =
                json.map_err(|error| format!("ERR the properties of an edge are damaged: {error}"))?;
            let properties = json.map_or_else(|| Value::Map(Arc::default()), |json| Value::of_json(&json));
            self.known.edges.insert(name, properties);
        }
        Ok(())
    }
}
