//! Where rows get their first vertices, and which of them are wanted.

use bytes::Bytes;

use super::expression::{Expression, Operator, Row, Slot};
use super::operators::Start;
use super::run::{BATCH, Run, set_of, vertex_at, with};
use super::value::{Value, whole};
use crate::{Ask, Selection, Source, keys};

/// How many keys of labels are read at once.
const LABEL_KEYS_AT_ONCE: usize = 16;

impl<S: Source> Run<'_, S> {
    pub(super) async fn start(&mut self, at: usize, slot: Slot, start: &Start, rows: Vec<Row>) -> Result<bool, String> {
        match start {
            Start::Id(id) => {
                let values = self.values(&[id], &rows).await?;
                let id = |value: &Vec<Value>| match value[0] {
                    Value::Int(id) => u64::try_from(id).ok(),
                    Value::Float(id) => whole(id).and_then(|id| u64::try_from(id).ok()),
                    _ => None,
                };
                let found = rows.into_iter().zip(&values);
                let found = found.filter_map(|(row, value)| Some(with(&row, &[(slot, Value::Vertex(id(value)?))])));
                let found: Vec<Row> = found.collect();
                // An id may be that of no vertex.
                let found = self.select(slot, &[], &[], found).await?;
                self.push(at + 1, found).await
            }
            Start::Name(name) | Start::Names(name) => {
                let values = self.values(&[name], &rows).await?;
                let out = self.named(slot, matches!(start, Start::Names(_)), rows, values).await?;
                self.push(at + 1, out).await
            }
            Start::Label(label) => self.scan(at, slot, label, rows).await,
            Start::All => self.scan(at, slot, "", rows).await,
        }
    }

    async fn named(
        &mut self,
        slot: Slot,
        several: bool,
        rows: Vec<Row>,
        values: Vec<Vec<Value>>,
    ) -> Result<Vec<Row>, String> {
        let written = |float: f64| serde_json::Number::from_f64(float).map(|number| number.to_string());
        // A number is written as an integer in some names, and as a float in others.
        let names_of = |value: &Value| match value {
            Value::Text(text) => vec![text.to_string()],
            Value::Int(int) => [int.to_string()].into_iter().chain(written(*int as f64)).collect(),
            Value::Float(float) => {
                let integer = whole(*float).map(|int| int.to_string());
                integer.into_iter().chain(written(*float)).collect()
            }
            Value::Bool(flag) => vec![flag.to_string()],
            _ => Vec::new(),
        };
        let mut wanted: Vec<(usize, String)> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            match (&value[0], several) {
                (Value::List(names), true) => {
                    let mut names: Vec<String> = names.iter().flat_map(names_of).collect();
                    names.sort_unstable();
                    names.dedup();
                    wanted.extend(names.into_iter().map(|name| (at, name)));
                }
                (value, false) => wanted.extend(names_of(value).into_iter().map(|name| (at, name))),
                _ => {}
            }
        }
        let keys = wanted
            .iter()
            .map(|(_, name)| Bytes::from(keys::id(name.as_bytes())))
            .collect();
        let ids = self.source.values(keys).await?;
        let mut out = Vec::new();
        for ((at, name), id) in wanted.into_iter().zip(ids) {
            let Some(id) = id else { continue };
            let id = str::from_utf8(&id).ok().and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| format!("ERR the id of vertex {name:?} is malformed"))?;
            out.push(with(&rows[at], &[(slot, Value::Vertex(id))]));
        }
        self.check_rows(out.len())?;
        Ok(out)
    }

    async fn scan(&mut self, at: usize, slot: Slot, label: &str, rows: Vec<Row>) -> Result<bool, String> {
        let tags = keys::tags(self.description.partitions);
        for row in rows {
            for tags in tags.chunks(LABEL_KEYS_AT_ONCE) {
                let keys = tags.iter().map(|tag| keys::label(tag, label).into()).collect();
                for set in self.source.sets(keys, Ask::NonUnion).await?.into_iter().flatten() {
                    let mut ids = set_of(&set)?.into_iter().peekable();
                    while ids.peek().is_some() {
                        let batch = ids.by_ref().take(BATCH);
                        let mut batch: Vec<Row> = batch.map(|id| with(&row, &[(slot, Value::Vertex(id))])).collect();
                        if self.description.is_versioned {
                            let labels = if label.is_empty() {
                                Vec::new()
                            } else {
                                vec![label.to_owned()]
                            };
                            batch = self.select(slot, &labels, &[], batch).await?;
                        }
                        if !self.push(at + 1, batch).await? {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    /// Keeps rows whose vertex is wanted, which is decided where the vertices are.
    pub(super) async fn select(
        &mut self,
        slot: Slot,
        labels: &[String],
        properties: &[(String, Operator, Expression)],
        rows: Vec<Row>,
    ) -> Result<Vec<Row>, String> {
        let empty = vec![vec![Value::Null; self.steps.slots]];
        let expressions: Vec<&Expression> = properties.iter().map(|(_, _, value)| value).collect();
        let values = self.values(&expressions, &empty).await?.pop().unwrap_or_default();
        let mut wanted = Vec::with_capacity(properties.len());
        let mut rows = rows;
        for ((name, comparison, _), value) in properties.iter().zip(values) {
            match value.to_json() {
                // Nothing compares with null.
                _ if value == Value::Null => return Ok(Vec::new()),
                Some(json) if value.is_json() => wanted.push((name.clone(), *comparison, json)),
                // Infinity and NaN cannot be sent to where the vertices are.
                _ => {
                    let property = Expression::Property(Box::new(Expression::Variable(slot)), name.clone());
                    let compared = Box::new(Expression::Constant(value));
                    let condition = Expression::Binary(Box::new(property), *comparison, compared);
                    rows = Box::pin(self.filter(&condition, rows)).await?;
                }
            }
        }
        let selection = Selection {
            labels: labels.to_vec(),
            properties: wanted,
            with_properties: false,
        };
        let mut ids: Vec<u64> = rows.iter().filter_map(|row| vertex_at(row, slot)).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.source.select(&ids, &selection).await?;
        let kept: Vec<u64> = ids
            .into_iter()
            .zip(found)
            .filter_map(|(id, found)| found.map(|_| id))
            .collect();
        let is_kept = |row: &Row| vertex_at(row, slot).is_some_and(|id| kept.binary_search(&id).is_ok());
        Ok(rows.into_iter().filter(is_kept).collect())
    }
}
