//! Carrying the steps of a query out.
//!
//! Rows go through the steps in batches, so that a query ends as soon as it has enough of them, and never holds all rows that
//! it goes through.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::evaluation::{Evaluation, Known, Missing};
use super::expression::{Expression, Row, Slot};
use super::operators::Operator;
use super::plan::{Procedure, Projection};
use super::planner::Steps;
use super::project::Projected;
use super::value::{Edge, Path, Value};
use super::{Limits, Step};
use crate::keys::Direction;
use crate::{Description, Source};

/// How many rows go to the next step at once, at most and as a rule.
pub(super) const BATCH: usize = 2048;

/// A query that runs.
pub(super) struct Run<'a, S> {
    pub(super) source: &'a S,
    pub(super) description: &'a Description,
    pub(super) steps: &'a Steps<'a>,
    pub(super) limits: &'a Limits,
    pub(super) known: Known,
    /// The state of each step between batches.
    states: Vec<State>,
    pub(super) rows: Vec<Row>,
    /// How many edges were followed.
    pub(super) expanded: u64,
    clock: Clock,
}

/// The state of a step between batches.
struct State {
    projected: Projected,
    /// Rows of an optional part.
    collected: Vec<Row>,
}

/// Measures the time of each step.
struct Clock {
    current: usize,
    since: Instant,
    requests: u64,
    steps: Vec<Spent>,
}

#[derive(Clone, Default)]
struct Spent {
    rows: u64,
    requests: u64,
    time: Duration,
}

/// Whether more rows are wanted.
pub(super) type Wanted<'b> = Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'b>>;

impl<'a, S: Source> Run<'a, S> {
    pub(super) fn new(
        source: &'a S,
        description: &'a Description,
        steps: &'a Steps<'a>,
        limits: &'a Limits,
        parameters: BTreeMap<String, Value>,
    ) -> Self {
        Self {
            source,
            description,
            steps,
            limits,
            known: Known {
                parameters,
                ..Known::default()
            },
            states: Vec::new(),
            rows: Vec::new(),
            expanded: 0,
            clock: Clock {
                current: 0,
                since: Instant::now(),
                requests: source.requests(),
                steps: vec![Spent::default(); steps.operators.len() + 1],
            },
        }
    }

    /// Carries all steps out.
    ///
    /// # Errors
    /// The error to answer with. The rows so far are in `rows`.
    pub(super) async fn all(&mut self) -> Result<(), String> {
        let steps = self.steps;
        for operator in &steps.operators {
            let projected = match operator {
                Operator::Project(projection) => Projected::new(
                    self.number(projection.skip.as_ref(), "SKIP")?.unwrap_or(0),
                    self.number(projection.limit.as_ref(), "LIMIT")?,
                ),
                _ => Projected::new(0, None),
            };
            self.states.push(State {
                projected,
                collected: Vec::new(),
            });
        }
        let first = vec![Value::Null; steps.slots];
        self.push(0, vec![first]).await?;
        for at in 0..self.steps.operators.len() {
            self.finish(at).await?;
        }
        self.turn_to(self.steps.operators.len());
        Ok(())
    }

    /// The number behind `SKIP` or `LIMIT`.
    fn number(&self, expression: Option<&Expression>, of: &str) -> Result<Option<usize>, String> {
        let Some(expression) = expression else { return Ok(None) };
        let mut evaluation = Evaluation {
            known: &self.known,
            missing: Missing::default(),
        };
        let value = evaluation.value(expression, &mut vec![Value::Null; self.steps.slots])?;
        match value {
            Value::Int(number) if number >= 0 => Ok(Some(number as usize)),
            other => Err(format!(
                "ERR {of} takes a whole number of at least 0, and not {}",
                other.kind()
            )),
        }
    }

    /// The rows, requests and time of each step.
    pub(super) fn profile(&self) -> Vec<Step> {
        let operators = self.steps.operators.iter();
        let step = |(operator, spent): (&Operator<'_>, &Spent)| Step {
            text: operator.describe(),
            rows: spent.rows,
            requests: spent.requests,
            milliseconds: spent.time.as_secs_f64() * 1000.0,
        };
        operators.zip(&self.clock.steps).map(step).collect()
    }

    /// Gives rows to a step, and what comes of them to the next.
    pub(super) fn push(&mut self, at: usize, rows: Vec<Row>) -> Wanted<'_> {
        Box::pin(async move {
            if rows.is_empty() {
                return Ok(true);
            }
            self.check()?;
            let before = self.turn_to(at);
            if at > 0 {
                self.clock.steps[at - 1].rows += rows.len() as u64;
            }
            let wanted = self.step(at, rows).await;
            self.turn_to(before);
            wanted
        })
    }

    async fn step(&mut self, at: usize, rows: Vec<Row>) -> Result<bool, String> {
        let steps = self.steps;
        let Some(operator) = steps.operators.get(at) else {
            self.rows.extend(rows);
            return self.check_rows(self.rows.len()).map(|()| true);
        };
        match operator {
            Operator::Start { slot, start } => self.start(at, *slot, start, rows).await,
            Operator::Select {
                slot,
                labels,
                properties,
            } => {
                let rows = self.select(*slot, labels, properties, rows).await?;
                self.push(at + 1, rows).await
            }
            Operator::Vertex(slot) => self.push(at + 1, with_vertex(rows, *slot)?).await,
            Operator::Expand(expand) => self.expand(at, expand, rows).await,
            Operator::Reach(reach) => self.reach(at, reach, rows).await,
            Operator::Shortest { path, expand } => self.shortest(at, *path, expand, rows).await,
            Operator::Path { slot, start, hops } => {
                let mut rows = rows;
                for row in &mut rows {
                    row[*slot] = path_of(row, *start, hops);
                }
                self.push(at + 1, rows).await
            }
            Operator::Filter(condition) => {
                let rows = self.filter(condition, rows).await?;
                self.push(at + 1, rows).await
            }
            Operator::Optional { row, end } => self.optional(at, *row, *end, rows).await,
            Operator::EndOptional => {
                self.states[at].collected.extend(rows);
                self.check_rows(self.states[at].collected.len()).map(|()| true)
            }
            Operator::Unwind { list, slot } => self.unwind(at, list, *slot, rows).await,
            Operator::Project(projection) => self.project(at, projection, rows).await,
            Operator::Procedure { procedure, slot } => {
                let names = self.procedure(*procedure);
                let mut out = Vec::new();
                for row in rows {
                    out.extend(names.iter().map(|name| with(&row, &[(*slot, Value::text(name))])));
                }
                self.push(at + 1, out).await
            }
        }
    }

    async fn project(&mut self, at: usize, projection: &Projection, rows: Vec<Row>) -> Result<bool, String> {
        let values = self.values(&Projected::of_rows(projection), &rows).await?;
        let rows = self.states[at].projected.columns(projection, rows, values)?;
        if !projection.order.is_empty() && projection.aggregates.is_empty() {
            let keys = self.values(&order_of(projection), &rows).await?;
            self.states[at].projected.keep(projection, rows, keys);
            return self.check_rows(self.states[at].projected.held()).map(|()| true);
        }
        self.check_rows(self.states[at].projected.held())?;
        let (rows, wanted) = self.states[at].projected.pass(projection, rows);
        let rows = self.behind(projection.condition.as_ref(), rows).await?;
        Ok(self.push(at + 1, rows).await? && wanted)
    }

    /// Ends a step: gives on what it kept.
    async fn finish(&mut self, at: usize) -> Result<(), String> {
        let steps = self.steps;
        let Some(Operator::Project(projection)) = steps.operators.get(at) else {
            return Ok(());
        };
        let mut projected = std::mem::replace(&mut self.states[at].projected, Projected::new(0, None));
        let mut rows = Vec::new();
        if !projection.aggregates.is_empty() {
            let mut groups = projected.groups(projection, steps.slots)?;
            // Columns may be computed from aggregates, and what they are sorted by from columns.
            let columns: Vec<&Expression> = projection.items.iter().map(|item| &item.expression).collect();
            let plain = projection.items.iter().map(|item| !item.aggregated);
            let values = self.values(&columns, &groups).await?;
            for (group, values) in groups.iter_mut().zip(values) {
                for ((item, value), is_plain) in projection.items.iter().zip(values).zip(plain.clone()) {
                    if !is_plain {
                        group[item.slot] = value;
                    }
                }
            }
            match projection.order.is_empty() {
                true => rows = projected.pass(projection, groups).0,
                false => {
                    let keys = self.values(&order_of(projection), &groups).await?;
                    projected.keep(projection, groups, keys);
                }
            }
        }
        if !projection.order.is_empty() {
            rows = projected.into_sorted(projection);
        }
        let rows = self.behind(projection.condition.as_ref(), rows).await?;
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let batch: Vec<Row> = rows.by_ref().take(BATCH).collect();
            if !self.push(at + 1, batch).await? {
                break;
            }
        }
        Ok(())
    }

    async fn behind(&mut self, condition: Option<&Expression>, rows: Vec<Row>) -> Result<Vec<Row>, String> {
        match condition {
            Some(condition) => self.filter(condition, rows).await,
            None => Ok(rows),
        }
    }

    pub(super) async fn filter(&mut self, condition: &Expression, rows: Vec<Row>) -> Result<Vec<Row>, String> {
        let values = self.values(&[condition], &rows).await?;
        let mut kept = Vec::with_capacity(rows.len());
        for (row, value) in rows.into_iter().zip(values) {
            match &value[0] {
                Value::Bool(true) => kept.push(row),
                Value::Bool(false) | Value::Null => {}
                other => {
                    return Err(format!(
                        "ERR a condition is true, false or null, and not {}",
                        other.kind()
                    ));
                }
            }
        }
        Ok(kept)
    }

    async fn optional(&mut self, at: usize, slot: Slot, end: usize, mut rows: Vec<Row>) -> Result<bool, String> {
        for (number, row) in rows.iter_mut().enumerate() {
            row[slot] = Value::Int(number as i64);
        }
        self.push(at + 1, rows.clone()).await?;
        let found = std::mem::take(&mut self.states[end].collected);
        let mut found = found.into_iter().peekable();
        let mut out = Vec::new();
        // Steps keep rows in order.
        for row in rows {
            let before = out.len();
            while let Some(same) = found.next_if(|found| found[slot] == row[slot]) {
                out.push(same);
            }
            if out.len() == before {
                out.push(row);
            }
        }
        self.push(end + 1, out).await
    }

    async fn unwind(&mut self, at: usize, list: &Expression, slot: Slot, rows: Vec<Row>) -> Result<bool, String> {
        let values = self.values(&[list], &rows).await?;
        let mut out = Vec::new();
        for (row, mut value) in rows.into_iter().zip(values) {
            let elements = match value.pop() {
                Some(Value::List(values)) => values.to_vec(),
                Some(Value::Null) | None => Vec::new(),
                Some(other) => vec![other],
            };
            for element in elements {
                out.push(with(&row, &[(slot, element)]));
                if out.len() >= BATCH && !self.push(at + 1, std::mem::take(&mut out)).await? {
                    return Ok(false);
                }
            }
        }
        self.push(at + 1, out).await
    }

    fn procedure(&self, procedure: Procedure) -> Vec<String> {
        let description = self.description;
        match procedure {
            Procedure::Labels => description.labels.keys().cloned().collect(),
            Procedure::RelationshipTypes => description.types.keys().cloned().collect(),
            Procedure::PropertyKeys => description.properties.clone(),
            Procedure::Indexes => Vec::new(),
        }
    }

    /// Returns an error if the query must end.
    pub(super) fn check(&self) -> Result<(), String> {
        if Instant::now() >= self.limits.deadline || !(self.limits.may_go_on)() {
            return Err("TIMEOUT the query was not done in time: bound it, or raise graph-timeout-ms".into());
        }
        match self.expanded <= self.limits.expanded_max {
            true => Ok(()),
            false => Err(format!(
                "LIMIT the query followed more than {} edges: narrow it, by type, direction or length, or raise \
                 graph-expanded-max",
                self.limits.expanded_max
            )),
        }
    }

    pub(super) fn check_rows(&self, rows: usize) -> Result<(), String> {
        match rows <= self.limits.rows_max {
            true => Ok(()),
            false => Err(format!(
                "LIMIT the query has more than {} rows at once: narrow it, return DISTINCT or count, or raise graph-rows-max",
                self.limits.rows_max
            )),
        }
    }

    /// Counts time and requests for another step; the one that was counted for before.
    fn turn_to(&mut self, step: usize) -> usize {
        let (now, requests) = (Instant::now(), self.source.requests());
        let clock = &mut self.clock;
        let spent = &mut clock.steps[clock.current];
        spent.time += now - clock.since;
        spent.requests += requests - clock.requests;
        (clock.since, clock.requests) = (now, requests);
        std::mem::replace(&mut clock.current, step)
    }
}

fn order_of(projection: &Projection) -> Vec<&Expression> {
    projection.order.iter().map(|(expression, _)| expression).collect()
}

/// A row with other values in some slots.
pub(super) fn with(row: &Row, values: &[(Slot, Value)]) -> Row {
    let mut row = row.clone();
    for (slot, value) in values {
        row[*slot] = value.clone();
    }
    row
}

/// The vertex in a slot.
pub(super) fn vertex_at(row: &Row, slot: Slot) -> Option<u64> {
    match row[slot] {
        Value::Vertex(id) => Some(id),
        _ => None,
    }
}

/// The rows that have a vertex in a slot. One that is null matches nothing.
///
/// # Errors
/// There is something else in the slot.
pub(super) fn with_vertex(mut rows: Vec<Row>, slot: Slot) -> Result<Vec<Row>, String> {
    rows.retain(|row| row[slot] != Value::Null);
    match rows.iter().find(|row| vertex_at(row, slot).is_none()) {
        Some(row) => Err(format!(
            "ERR a pattern takes a vertex here, and not {}",
            row[slot].kind()
        )),
        None => Ok(rows),
    }
}

/// The ids of an encoded set.
pub(super) fn set_of(set: &[u8]) -> Result<Vec<u64>, String> {
    let set = fondaco_ids::IdSet::parse(set).map_err(|error| format!("ERR {error}"))?;
    let mut ids = Vec::new();
    set.decode_into(&mut ids);
    Ok(ids)
}

/// The path from a vertex over edges, single ones and lists of them.
fn path_of(row: &Row, start: Slot, hops: &[Slot]) -> Value {
    let Some(mut last) = vertex_at(row, start) else {
        return Value::Null;
    };
    let mut path = Path {
        vertices: vec![last],
        edges: Vec::new(),
    };
    let mut add = |edge: &Edge| {
        last = if edge.from == last { edge.to } else { edge.from };
        path.vertices.push(last);
        path.edges.push(edge.clone());
    };
    for &hop in hops {
        match &row[hop] {
            Value::Edge(edge) => add(edge),
            Value::List(edges) => {
                for edge in &**edges {
                    if let Value::Edge(edge) = edge {
                        add(edge);
                    }
                }
            }
            _ => return Value::Null,
        }
    }
    Value::Path(path.into())
}

/// The edge that leads from a vertex to a neighbour, as it was followed.
pub(super) fn edge_of(relation: &super::operators::Followed, direction: Direction, from: u64, to: u64) -> Edge {
    let (from, to) = match direction {
        Direction::Out => (from, to),
        Direction::In => (to, from),
    };
    Edge {
        name: relation.name.clone(),
        symmetric: relation.edge_type.symmetric,
        from,
        to,
    }
}
