//! The distinct vertices that paths from one vertex end at, united as sets by the nodes. See `sets` for when that is the answer.

use std::collections::HashMap;

use bytes::Bytes;
use fondaco_ids::{SetAnswer, SetQuery};

use super::expand::{LISTS_AT_ONCE, edges_of};
use super::expression::Row;
use super::operators::{Followed, Reach, ReachLength};
use super::run::{BATCH, Run, vertex_at, with};
use super::value::{Edge, Value};
use crate::operations::remove;
use crate::{Ask, Source, keys};

impl<S: Source> Run<'_, S> {
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
        let mut new = first.clone();
        let mut second = Vec::new();
        for length in 1..most {
            new.retain(|&id| id != from);
            let reached = self.united(relations, &new).await?;
            let with_reached = merged(&all, &reached);
            if length + 1 < most {
                // A vertex that was reached before leads to no new ones.
                new.clone_from(&reached);
                remove(&mut new, &all);
            }
            all = with_reached;
            if length == 1 {
                second = reached;
            }
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
        // Two vertices have one edge of a symmetric type, which leads back, too.
        if let ([one], [two]) = (one, two)
            && one.edge_type.symmetric
            && one.name == two.name
        {
            return Ok(false);
        }
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

/// The ids of two lists, which ascend like the result. What the longer one has between two ids of the shorter one is copied at once.
fn merged(one: &[u64], other: &[u64]) -> Vec<u64> {
    let (short, mut long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let mut all = Vec::with_capacity(one.len() + other.len());
    for &id in short {
        // Steps that double, then a search: near places are found soon.
        let mut step = 1;
        while long.get(step).is_some_and(|&ahead| ahead < id) {
            step *= 2;
        }
        let below = long[..step.min(long.len())].partition_point(|&other| other < id);
        all.extend_from_slice(&long[..below]);
        long = &long[below..];
        if long.first() != Some(&id) {
            all.push(id);
        }
    }
    all.extend_from_slice(long);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merged_ids_are_those_of_both(one in btree_set(0..300_u64, 0..200), other in btree_set(0..300_u64, 0..20)) {
            let expected: Vec<u64> = one.union(&other).copied().collect();
            let list = |ids: &BTreeSet<u64>| ids.iter().copied().collect::<Vec<_>>();
            prop_assert_eq!(&merged(&list(&one), &list(&other)), &expected);
            prop_assert_eq!(&merged(&list(&other), &list(&one)), &expected);
        }
    }
}
