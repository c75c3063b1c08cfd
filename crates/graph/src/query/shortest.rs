//! A shortest path, searched from both ends.

use std::collections::HashMap;

use super::expand::{LISTS_AT_ONCE, edges_of};
use super::expression::Row;
use super::operators::{Expand, Followed};
use super::run::{Run, vertex_at, with, with_vertex};
use super::value::{Edge, Path, Value};
use crate::Source;

impl<S: Source> Run<'_, S> {
    /// A shortest path between two vertices that each row has, searched from both ends.
    pub(super) async fn shortest(
        &mut self,
        at: usize,
        slot: usize,
        expand: &Expand,
        rows: Vec<Row>,
    ) -> Result<bool, String> {
        let (least, most) = expand.length.unwrap_or((1, 1));
        let rows = with_vertex(with_vertex(rows, expand.from)?, expand.to)?;
        let mut out = Vec::new();
        for row in rows {
            let (Some(from), Some(to)) = (vertex_at(&row, expand.from), vertex_at(&row, expand.to)) else {
                continue;
            };
            let path = match from == to {
                true if least == 0 => Some(Path {
                    vertices: vec![from],
                    edges: Vec::new(),
                }),
                true => None,
                false => self.search(&expand.relations, (from, to), most).await?,
            };
            if let Some(path) = path {
                let edges = Value::list(path.edges.iter().cloned().map(Value::Edge).collect());
                out.push(with(&row, &[(slot, Value::Path(path.into())), (expand.edge, edges)]));
            }
        }
        self.push(at + 1, out).await
    }

    async fn search(
        &mut self,
        relations: &[Followed],
        (from, to): (u64, u64),
        most: u32,
    ) -> Result<Option<Path>, String> {
        let back: Vec<Followed> = relations.iter().map(Followed::reversed).collect();
        let mut sides = [(relations, Side::new(from)), (&back[..], Side::new(to))];
        for _ in 0..most {
            let at = usize::from(sides[1].1.frontier.len() < sides[0].1.frontier.len());
            let mut frontier = std::mem::take(&mut sides[at].1.frontier);
            frontier.sort_unstable();
            let mut met = None;
            for some in frontier.chunks(LISTS_AT_ONCE) {
                let lists = self.lists(sides[at].0, some.to_vec()).await?;
                for &end in some {
                    for (edge, next) in edges_of(sides[at].0, &lists, end)? {
                        self.expanded += 1;
                        if sides[at].1.reach(next, end, edge) && sides[1 - at].1.came.contains_key(&next) {
                            met = met.or(Some(next));
                        }
                    }
                    self.check()?;
                }
            }
            if let Some(met) = met {
                return Ok(Some(joined(&sides[0].1, &sides[1].1, met)));
            }
            if sides[at].1.frontier.is_empty() {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// One side of a search for a path.
struct Side {
    frontier: Vec<u64>,
    /// From which vertex, over which edge, each was reached; `None` for the one it began with.
    came: HashMap<u64, Option<(u64, Edge)>>,
}

impl Side {
    fn new(begin: u64) -> Self {
        Self {
            frontier: vec![begin],
            came: HashMap::from([(begin, None)]),
        }
    }

    /// Notes a vertex; false if it was reached before.
    fn reach(&mut self, id: u64, from: u64, edge: Edge) -> bool {
        if self.came.contains_key(&id) {
            return false;
        }
        self.came.insert(id, Some((from, edge)));
        self.frontier.push(id);
        true
    }

    /// The vertices and edges from the begin to a vertex, last first.
    fn back_from(&self, mut id: u64) -> (Vec<u64>, Vec<Edge>) {
        let (mut vertices, mut edges) = (vec![id], Vec::new());
        while let Some(Some((from, edge))) = self.came.get(&id) {
            id = *from;
            vertices.push(id);
            edges.push(edge.clone());
        }
        (vertices, edges)
    }
}

fn joined(one: &Side, other: &Side, met: u64) -> Path {
    let (mut vertices, mut edges) = one.back_from(met);
    vertices.reverse();
    edges.reverse();
    let (rest, more) = other.back_from(met);
    vertices.extend(rest.into_iter().skip(1));
    edges.extend(more);
    Path { vertices, edges }
}
