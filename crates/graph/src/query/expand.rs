//! Following edges.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::{IdSet, SetAnswer, SetQuery};

use super::expression::Row;
use super::operators::{Expand, Followed, Reach, ReachLength};
use super::run::{BATCH, Run, edge_of, set_of, vertex_at, with};
use super::value::{Edge, Path, Value};
use crate::keys::{self, Direction};
use crate::{Ask, Source};

/// How many lists of neighbours are read at once.
const LISTS_AT_ONCE: usize = 256;

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
        let rows: Vec<Row> = rows
            .into_iter()
            .filter(|row| vertex_at(row, expand.from).is_some())
            .collect();
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

    /// The distinct vertices that a vertex reaches.
    pub(super) async fn reach(&mut self, at: usize, reach: &Reach, rows: Vec<Row>) -> Result<bool, String> {
        for row in rows {
            let Some(from) = vertex_at(&row, reach.from) else {
                continue;
            };
            let ids = match (&reach.length, reach.count) {
                (ReachLength::One(relations), Some(slot)) if let [key] = &keys_of(relations, &[from])[..] => {
                    let counted = self
                        .source
                        .query(vec![key.clone()], SetQuery::Counts, Ask::NonUnion)
                        .await?;
                    let count = if let SetAnswer::Counts(counts) = counted {
                        counts.iter().sum()
                    } else {
                        0_u64
                    };
                    if !self
                        .push(at + 1, vec![with(&row, &[(slot, Value::Int(count as i64))])])
                        .await?
                    {
                        return Ok(false);
                    }
                    continue;
                }
                (ReachLength::One(relations), _) => self.united(relations, &[from]).await?,
                (ReachLength::Two(one, two), _) => self.after_two(one, two, from).await?,
                (
                    ReachLength::UpTo {
                        relations,
                        most,
                        with_start,
                    },
                    _,
                ) => self.up_to(relations, *most, *with_start, from).await?,
            };
            if let Some(slot) = reach.count {
                if !self
                    .push(at + 1, vec![with(&row, &[(slot, Value::Int(ids.len() as i64))])])
                    .await?
                {
                    return Ok(false);
                }
                continue;
            }
            for some in ids.chunks(BATCH) {
                let rows = some
                    .iter()
                    .map(|&id| with(&row, &[(reach.to, Value::Vertex(id))]))
                    .collect();
                if !self.push(at + 1, rows).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The neighbours of vertices, united.
    async fn united(&mut self, relations: &[Followed], of: &[u64]) -> Result<Vec<u64>, String> {
        let keys = keys_of(relations, of);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.expanded += of.len() as u64;
        self.check()?;
        match self.source.query(keys, SetQuery::Union, Ask::SynchronousUnion).await? {
            SetAnswer::Ids(ids) => {
                self.expanded += ids.len() as u64;
                self.check()?;
                Ok(ids)
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn after_two(&mut self, one: &[Followed], two: &[Followed], from: u64) -> Result<Vec<u64>, String> {
        let first = self.united(one, &[from]).await?;
        let mut second = self.united(two, &first).await?;
        if let Ok(place) = second.binary_search(&from)
            && !self.returns(one, two, from).await?
        {
            second.remove(place);
        }
        Ok(second)
    }

    async fn up_to(
        &mut self,
        relations: &[Followed],
        most: u32,
        with_start: bool,
        from: u64,
    ) -> Result<Vec<u64>, String> {
        let first = self.united(relations, &[from]).await?;
        let mut all = first.clone();
        let mut last = first.clone();
        let mut second = Vec::new();
        for length in 1..most {
            let new: Vec<u64> = last.iter().copied().filter(|&id| id != from).collect();
            last = self.united(relations, &new).await?;
            if length == 1 {
                second.clone_from(&last);
            }
            let before = std::mem::take(&mut all);
            all = merged(&before, &last);
            // What was reached before leads nowhere new.
            last.retain(|id| before.binary_search(id).is_err());
        }
        let place = all.binary_search(&from);
        let belongs = with_start || first.binary_search(&from).is_ok() || {
            let is_near = most >= 2 && second.binary_search(&from).is_ok();
            is_near && self.returns(relations, relations, from).await?
                || most >= 3 && self.returns_by_three(relations, from, &first, &second).await?
        };
        match (place, belongs) {
            (Ok(place), false) => drop(all.remove(place)),
            (Err(place), true) => all.insert(place, from),
            _ => {}
        }
        Ok(all)
    }

    /// Whether two different edges lead from a vertex and back.
    async fn returns(&mut self, one: &[Followed], two: &[Followed], from: u64) -> Result<bool, String> {
        let back: Vec<Followed> = two.iter().map(Followed::reversed).collect();
        let there = self.lists(one, vec![from]).await?;
        let back_again = self.lists(&back, vec![from]).await?;
        let mut last: HashMap<u64, Vec<Edge>> = HashMap::new();
        for (edge, between) in edges_of(&back, &back_again, from)? {
            last.entry(between).or_default().push(edge);
        }
        for (edge, between) in edges_of(one, &there, from)? {
            if last
                .get(&between)
                .is_some_and(|others| others.iter().any(|other| *other != edge))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether three edges lead from a vertex over two others and back, where fewer do not.
    async fn returns_by_three(
        &mut self,
        relations: &[Followed],
        from: u64,
        first: &[u64],
        second: &[u64],
    ) -> Result<bool, String> {
        let back: Vec<Followed> = relations.iter().map(Followed::reversed).collect();
        let before = self.united(&back, &[from]).await?;
        let candidates: Vec<u64> = before
            .into_iter()
            .filter(|id| *id != from && second.binary_search(id).is_ok())
            .collect();
        for some in candidates.chunks(LISTS_AT_ONCE) {
            let lists = self.lists(&back, some.to_vec()).await?;
            for &last in some {
                for (_, middle) in edges_of(&back, &lists, last)? {
                    if middle != last && middle != from && first.binary_search(&middle).is_ok() {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// A shortest path between two vertices that each row has, searched from both ends.
    pub(super) async fn shortest(
        &mut self,
        at: usize,
        slot: usize,
        expand: &Expand,
        rows: Vec<Row>,
    ) -> Result<bool, String> {
        let (least, most) = expand.length.unwrap_or((1, 1));
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

    /// The lists of neighbours of vertices, by type and direction.
    async fn lists(&mut self, relations: &[Followed], of: Vec<u64>) -> Result<Lists, String> {
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

/// The distinct vertices in a slot.
fn ends(rows: &[Row], slot: usize) -> Vec<u64> {
    let mut ids: Vec<u64> = rows.iter().filter_map(|row| vertex_at(row, slot)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The edges of a vertex, with the vertex at the other end.
fn edges_of(relations: &[Followed], lists: &Lists, of: u64) -> Result<Vec<(Edge, u64)>, String> {
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

fn keys_of(relations: &[Followed], of: &[u64]) -> Vec<Bytes> {
    let mut keys = Vec::new();
    for relation in relations {
        for &direction in &relation.directions {
            keys.extend(
                of.iter()
                    .map(|&id| Bytes::from(keys::neighbours(&relation.name, direction, id))),
            );
        }
    }
    keys
}

/// Two ascending lists without duplicates, united.
fn merged(one: &[u64], other: &[u64]) -> Vec<u64> {
    let all: HashSet<u64> = one.iter().chain(other).copied().collect();
    let mut all: Vec<u64> = all.into_iter().collect();
    all.sort_unstable();
    all
}
