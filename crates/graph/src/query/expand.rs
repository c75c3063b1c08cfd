//! Following edges.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::IdSet;

use super::expression::Row;
use super::operators::{Expand, Followed};
use super::run::{BATCH, Run, edge_of, set_of, vertex_at, with, with_vertex};
use super::value::{Edge, Value};
use crate::keys::{self, Direction};
use crate::{Ask, Source};

/// How many lists of neighbours are read at once.
pub(super) const LISTS_AT_ONCE: usize = 256;

/// Lists of neighbours that were read, by type, direction and vertex.
type Lists = HashMap<(usize, Direction, u64), Bytes>;

/// A path that is being followed.
struct Partial {
    row: usize,
    edges: Vec<Edge>,
    end: u64,
}

impl<S: Source> Run<'_, S> {
    pub(super) async fn expand(&mut self, at: usize, expand: &Expand, rows: Vec<Row>) -> Result<bool, String> {
        // An optional vertex may be missing.
        let rows = with_vertex(rows, expand.from)?;
        let rows = match expand.to_is_bound {
            true => with_vertex(rows, expand.to)?,
            false => rows,
        };
        for some in rows.chunks(LISTS_AT_ONCE) {
            let wanted = match expand.length {
                Some(length) => self.expand_far(at, expand, length, some).await?,
                None if expand.to_is_bound => self.expand_into(at, expand, some).await?,
                None => self.expand_once(at, expand, some).await?,
            };
            if !wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One edge to new vertices.
    async fn expand_once(&mut self, at: usize, expand: &Expand, rows: &[Row]) -> Result<bool, String> {
        let lists = self.lists(&expand.relations, ends(rows, expand.from)).await?;
        let mut out = Vec::new();
        for row in rows {
            let Some(from) = vertex_at(row, expand.from) else {
                continue;
            };
            for (edge, to) in edges_of(&expand.relations, &lists, from)? {
                self.expanded += 1;
                if is_used(row, &expand.others, &edge) {
                    continue;
                }
                out.push(with(
                    row,
                    &[(expand.to, Value::Vertex(to)), (expand.edge, Value::Edge(edge))],
                ));
                if out.len() >= BATCH && !self.push(at + 1, std::mem::take(&mut out)).await? {
                    return Ok(false);
                }
            }
        }
        self.push(at + 1, out).await
    }

    /// One edge between vertices that rows have. The lists of those that are fewer are read.
    async fn expand_into(&mut self, at: usize, expand: &Expand, rows: &[Row]) -> Result<bool, String> {
        let (from, to) = (ends(rows, expand.from), ends(rows, expand.to));
        let is_reversed = to.len() < from.len();
        let relations: Vec<Followed> = match is_reversed {
            true => expand.relations.iter().map(Followed::reversed).collect(),
            false => expand.relations.clone(),
        };
        let lists = self.lists(&relations, if is_reversed { to } else { from }).await?;
        let mut out = Vec::new();
        for row in rows {
            let (Some(from), Some(to)) = (vertex_at(row, expand.from), vertex_at(row, expand.to)) else {
                continue;
            };
            let (here, there) = if is_reversed { (to, from) } else { (from, to) };
            for (number, relation) in relations.iter().enumerate() {
                for &direction in &relation.directions {
                    let is_loop_again = here == there && direction == Direction::In && relation.directions.len() == 2;
                    let Some(list) = lists.get(&(number, direction, here)).filter(|_| !is_loop_again) else {
                        continue;
                    };
                    self.expanded += 1;
                    let list = IdSet::parse(list).map_err(|error| format!("ERR {error}"))?;
                    let edge = edge_of(relation, direction, here, there);
                    if list.contains(there) && !is_used(row, &expand.others, &edge) {
                        out.push(with(row, &[(expand.edge, Value::Edge(edge))]));
                    }
                }
            }
        }
        self.push(at + 1, out).await
    }

    /// Several edges in a row, none twice.
    async fn expand_far(
        &mut self,
        at: usize,
        expand: &Expand,
        (least, most): (u32, u32),
        rows: &[Row],
    ) -> Result<bool, String> {
        let begin = |(number, row): (usize, &Row)| {
            Some(Partial {
                row: number,
                edges: Vec::new(),
                end: vertex_at(row, expand.from)?,
            })
        };
        let mut partials: Vec<Partial> = rows.iter().enumerate().filter_map(begin).collect();
        let mut lists = Lists::new();
        let mut found: Vec<Vec<Row>> = rows.iter().map(|_| Vec::new()).collect();
        for length in 0..=most {
            if length >= least {
                for partial in &partials {
                    let row = &rows[partial.row];
                    if !expand.to_is_bound || vertex_at(row, expand.to) == Some(partial.end) {
                        found[partial.row].push(with(row, &ended(expand, partial)));
                    }
                }
                self.check_rows(found.iter().map(Vec::len).sum())?;
            }
            if length == most || partials.is_empty() {
                break;
            }
            let mut missing: Vec<u64> = partials.iter().map(|partial| partial.end).collect();
            missing.sort_unstable();
            missing.dedup();
            for some in missing.chunks(LISTS_AT_ONCE) {
                lists.extend(self.lists(&expand.relations, some.to_vec()).await?);
                self.check()?;
            }
            let mut longer = Vec::new();
            for partial in partials {
                for (edge, end) in edges_of(&expand.relations, &lists, partial.end)? {
                    self.expanded += 1;
                    if partial.edges.contains(&edge) || is_used(&rows[partial.row], &expand.others, &edge) {
                        continue;
                    }
                    let mut edges = Vec::with_capacity(partial.edges.len() + 1);
                    edges.extend_from_slice(&partial.edges);
                    edges.push(edge);
                    longer.push(Partial {
                        row: partial.row,
                        edges,
                        end,
                    });
                }
                self.check_rows(longer.len())?;
                self.check()?;
            }
            partials = longer;
        }
        for rows in found {
            for some in rows.chunks(BATCH) {
                if !self.push(at + 1, some.to_vec()).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The lists of neighbours of vertices, by type and direction.
    pub(super) async fn lists(&mut self, relations: &[Followed], of: Vec<u64>) -> Result<Lists, String> {
        let mut names = Vec::new();
        for &id in &of {
            for (number, relation) in relations.iter().enumerate() {
                names.extend(relation.directions.iter().map(|&direction| (number, direction, id)));
            }
        }
        let key = |&(number, direction, id): &(usize, Direction, u64)| {
            Bytes::from(keys::neighbours(&relations[number].name, direction, id))
        };
        let found = self.source.sets(names.iter().map(key).collect(), Ask::NonUnion).await?;
        Ok(names
            .into_iter()
            .zip(found)
            .filter_map(|(name, set)| Some((name, set?)))
            .collect())
    }
}

/// The distinct vertices in a slot.
fn ends(rows: &[Row], slot: usize) -> Vec<u64> {
    let mut ids: Vec<u64> = rows.iter().filter_map(|row| vertex_at(row, slot)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The edges of a vertex, with the vertex at the other end.
pub(super) fn edges_of(relations: &[Followed], lists: &Lists, of: u64) -> Result<Vec<(Edge, u64)>, String> {
    let mut edges = Vec::new();
    for (number, relation) in relations.iter().enumerate() {
        for &direction in &relation.directions {
            let Some(list) = lists.get(&(number, direction, of)) else {
                continue;
            };
            // A loop is in both lists, and one edge.
            let is_second = direction == Direction::In && relation.directions.len() == 2;
            let ids = set_of(list)?.into_iter().filter(|&id| !(is_second && id == of));
            edges.extend(ids.map(|id| (edge_of(relation, direction, of, id), id)));
        }
    }
    Ok(edges)
}

/// Whether an edge is in one of these slots.
fn is_used(row: &Row, slots: &[usize], edge: &Edge) -> bool {
    slots.iter().any(|&slot| match &row[slot] {
        Value::Edge(other) => other == edge,
        Value::List(others) => others
            .iter()
            .any(|other| matches!(other, Value::Edge(other) if other == edge)),
        _ => false,
    })
}

/// The slots of a path that was followed to its end.
fn ended(expand: &Expand, partial: &Partial) -> [(usize, Value); 2] {
    let edges = partial.edges.iter().cloned().map(Value::Edge);
    let edges: Vec<Value> = match expand.backwards {
        true => edges.rev().collect(),
        false => edges.collect(),
    };
    [
        (expand.to, Value::Vertex(partial.end)),
        (expand.edge, Value::List(Arc::new(edges))),
    ]
}
