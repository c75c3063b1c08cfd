//! Queries in a read-only subset of openCypher.
//!
//! A query is parsed ([`Prepared::new`]), translated to clauses over slots of rows, planned for one graph, and carried out over any
//! [`Source`]. Conditions on single vertices, or on sets of them, are evaluated by the nodes that have them; paths
//! are followed here.

mod evaluation;
mod expand;
mod expression;
mod functions;
mod operators;
mod parameters;
mod plan;
mod planner;
mod project;
mod reach;
mod records;
mod run;
mod sets;
mod shortest;
mod start;
mod translate;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use evaluation::Missing;
use expression::Slot;
use plan::Clause;
use run::Run;
use serde_json::{Value as Json, json};

use crate::{Description, Source, Vertex};

pub use expression::Operator;
pub(crate) use functions::binary;
pub use parameters::split_parameters;
pub use value::{Edge, Path, Value};

/// The type and the ends of an edge, as they are stored.
pub type EdgeName = (Arc<str>, u64, u64);

/// The most steps of a query: each calls the next one, and takes stack.
const STEPS_MAX: usize = 100;

/// A query, parsed.
#[derive(Debug)]
pub struct Prepared {
    clauses: Vec<Clause>,
    slots: usize,
    columns: Vec<(String, Slot)>,
}

/// How much a query may do.
pub struct Limits {
    /// When it has to be done.
    pub deadline: Instant,
    /// The most rows, of the answer and at any step.
    pub rows_max: usize,
    /// The most edges that it follows.
    pub expanded_max: u64,
    /// Returns whether the query may continue: it is called often.
    pub may_go_on: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether a query that ends at a limit has the rows so far as its answer.
    pub partial: bool,
}

/// The answer to a query.
#[derive(Debug, Default)]
pub struct QueryResult {
    /// The names of columns.
    pub columns: Vec<String>,
    /// The rows, a value for each column.
    pub rows: Vec<Vec<Value>>,
    /// The vertices in the rows.
    pub vertices: HashMap<u64, Arc<Vertex>>,
    /// The properties of edges in the rows that have any, by type and ends.
    pub edges: HashMap<EdgeName, Arc<BTreeMap<String, Value>>>,
    /// How many edges were followed.
    pub expanded: u64,
    /// How many requests were sent to nodes.
    pub requests: u64,
    /// The steps, with what each took.
    pub profile: Vec<Step>,
    /// Why there may be more rows, if partial answers were asked for.
    pub incomplete: Option<String>,
}

/// A step of a query, with what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The step in words.
    pub text: String,
    /// The number of rows that it passed to the next step.
    pub rows: u64,
    /// How many requests it sent.
    pub requests: u64,
    /// How long it took, in milliseconds, without the steps behind it.
    pub milliseconds: f64,
}

impl Prepared {
    /// Parses a query.
    ///
    /// # Errors
    /// The error to answer with: what is wrong or not supported, and where.
    pub fn new(text: &str) -> Result<Self, String> {
        let translated = translate::translate(text)?;
        Ok(Self {
            clauses: translated.clauses,
            slots: translated.slots,
            columns: translated.columns,
        })
    }

    /// The steps that it has for a graph.
    pub fn explain(&self, description: &Description, parameters: &BTreeMap<String, Value>) -> Vec<String> {
        let steps = planner::plan(&self.clauses, self.slots, description, parameters);
        steps.operators.iter().map(operators::Operator::describe).collect()
    }

    /// Carries it out.
    ///
    /// # Errors
    /// The error to answer with.
    pub async fn run(
        &self,
        source: &impl Source,
        description: &Description,
        parameters: &BTreeMap<String, Value>,
        limits: &Limits,
    ) -> Result<QueryResult, String> {
        let steps = planner::plan(&self.clauses, self.slots, description, parameters);
        if steps.operators.len() > STEPS_MAX {
            return Err(format!(
                "LIMIT the query has {} steps, over the limit of {STEPS_MAX}: send several queries",
                steps.operators.len()
            ));
        }
        let mut run = Run::new(source, description, &steps, limits, parameters.clone());
        let incomplete = match run.all().await {
            Ok(()) => None,
            Err(error) if limits.partial && (error.starts_with("LIMIT") || error.starts_with("TIMEOUT")) => Some(error),
            Err(error) => return Err(error),
        };
        let mut result = QueryResult {
            columns: self.columns.iter().map(|(name, _)| name.clone()).collect(),
            expanded: run.expanded,
            profile: run.profile(),
            incomplete,
            ..QueryResult::default()
        };
        let mut rows = std::mem::take(&mut run.rows);
        rows.truncate(limits.rows_max);
        for mut row in rows {
            let take = |(_, slot): &(String, Slot)| std::mem::replace(&mut row[*slot], Value::Null);
            result.rows.push(self.columns.iter().map(take).collect());
        }
        let mut found = Missing::default();
        result.rows.iter().flatten().for_each(|value| found.see(value));
        run.describe(found, &mut result).await?;
        result.requests = source.requests();
        Ok(result)
    }
}

impl QueryResult {
    /// The rows as JSON. A vertex is an object with `id`, `labels` and `properties`; an edge has `type`, `from`, `to` and
    /// `properties`; a path has `vertices` and `edges`.
    pub fn json_rows(&self) -> Vec<Vec<Json>> {
        let row = |row: &Vec<Value>| row.iter().map(|value| self.json(value)).collect();
        self.rows.iter().map(row).collect()
    }

    fn json(&self, value: &Value) -> Json {
        let vertex = |id: u64| {
            let vertex = self.vertices.get(&id);
            let labels = vertex.map(|vertex| vertex.labels.clone()).unwrap_or_default();
            let properties = vertex.map(|vertex| vertex.properties.clone()).unwrap_or_default();
            json!({ "id": id, "labels": labels, "properties": properties })
        };
        let edge = |edge: &Edge| {
            let (from, to) = edge.ends();
            let properties = self.edges.get(&(edge.name.clone(), from, to));
            let properties = properties.map_or_else(
                || json!({}),
                |properties| self.json(&Value::Map(Arc::clone(properties))),
            );
            json!({ "type": &*edge.name, "from": edge.from, "to": edge.to, "properties": properties })
        };
        match value {
            Value::Vertex(id) => vertex(*id),
            Value::Edge(of) => edge(of),
            Value::Path(path) => {
                let vertices: Vec<Json> = path.vertices.iter().map(|&id| vertex(id)).collect();
                let edges: Vec<Json> = path.edges.iter().map(edge).collect();
                json!({ "vertices": vertices, "edges": edges })
            }
            Value::List(values) => values.iter().map(|value| self.json(value)).collect(),
            Value::Map(map) => map
                .iter()
                .map(|(name, value)| (name.clone(), self.json(value)))
                .collect(),
            value => value.to_json().unwrap_or_default(),
        }
    }
}

impl Missing {
    /// Notes the vertices and edges within a value.
    fn see(&mut self, value: &Value) {
        match value {
            Value::Vertex(id) => self.vertices.push(*id),
            Value::Edge(edge) => self.edges.push(edge.clone()),
            Value::Path(path) => {
                self.vertices.extend(&path.vertices);
                self.edges.extend(path.edges.iter().cloned());
            }
            Value::List(values) => values.iter().for_each(|value| self.see(value)),
            Value::Map(map) => map.values().for_each(|value| self.see(value)),
            _ => {}
        }
    }
}

impl<S: Source> Run<'_, S> {
    /// Adds what is known of vertices and edges to an answer.
    async fn describe(&mut self, found: Missing, result: &mut QueryResult) -> Result<(), String> {
        let (vertices, edges) = (found.vertices.clone(), found.edges.clone());
        let missing = Missing {
            vertices: found
                .vertices
                .into_iter()
                .filter(|id| !self.known.vertices.contains_key(id))
                .collect(),
            edges: found.edges,
        };
        self.read(missing).await?;
        for id in vertices {
            if let Some(Some(vertex)) = self.known.vertices.get(&id) {
                result.vertices.insert(id, Arc::clone(vertex));
            }
        }
        for edge in edges {
            let (from, to) = edge.ends();
            if let Some(Value::Map(properties)) = self.known.edges.get(&Value::Edge(edge.clone()).key())
                && !properties.is_empty()
            {
                result
                    .edges
                    .insert((edge.name.clone(), from, to), Arc::clone(properties));
            }
        }
        Ok(())
    }
}
