//! Where only the distinct end vertices of a path count, they are united as sets by the nodes, instead of following each path.
//!
//! A path has no edge twice. A vertex other than the start that a walk reaches within a number of edges is also reached by a
//! path: the shortest walk is one. So only whether the start itself is an end of a path has to be decided with care, and
//! that the executor does.

use super::expression::{Expression, Operator as Op, Slot};
use super::functions::Function;
use super::operators::{Operator, Reach, ReachLength, Start};
use super::plan::{AggregateFunction, Clause, Match, PathPattern, Projection, Towards};
use super::planner::{Planner, pushed};
use super::translate::equal;

/// Plans a query this way, if it is of this kind: a path from a known vertex, and columns of its end.
pub(super) fn plan<'a>(planner: &mut Planner<'a>, clauses: &'a [Clause]) -> bool {
    let [Clause::Match(found), Clause::Project(projection), rest @ ..] = clauses else {
        return false;
    };
    let [path] = &found.paths[..] else { return false };
    if found.optional || path.slot.is_some() || path.shortest {
        return false;
    }
    let Some(chain) = chain(planner, found, path) else {
        return false;
    };
    let counts = counts_alone(projection, chain.end);
    let is_distinct = projection.distinct && projection.aggregates.is_empty()
        || projection
            .aggregates
            .iter()
            .all(|aggregate| aggregate.distinct && aggregate.argument == Some(Expression::Variable(chain.end)))
            && !projection.aggregates.is_empty();
    // Each neighbour is there once, if edges are of one type and one direction.
    let is_once = matches!(&chain.length, ReachLength::One(relations)
        if matches!(&relations[..], [relation] if relation.directions.len() == 1));
    let uses_end_alone = projection
        .items
        .iter()
        .map(|item| &item.expression)
        .chain(projection.order.iter().map(|(expression, _)| expression))
        .chain(
            projection
                .aggregates
                .iter()
                .filter_map(|aggregate| aggregate.argument.as_ref()),
        )
        .flat_map(Expression::variables)
        .all(|slot| {
            slot == chain.end
                || projection.aggregates.iter().any(|of| of.slot == slot)
                || projection.items.iter().any(|item| item.slot == slot)
        });
    if !(uses_end_alone && (is_distinct || is_once)) {
        return false;
    }
    planner.operators.push(Operator::Start {
        slot: chain.start,
        start: chain.anchor,
    });
    let has_selection = !chain.labels.is_empty() || !chain.properties.is_empty();
    let count = counts.filter(|_| !has_selection);
    planner.operators.push(Operator::Reach(Reach {
        from: chain.start,
        to: chain.end,
        length: chain.length,
        count,
    }));
    if has_selection {
        planner.operators.push(Operator::Select {
            slot: chain.end,
            labels: chain.labels,
            properties: chain.properties,
        });
    }
    planner.operators.push(Operator::Project(projection));
    planner.bound = projection.items.iter().map(|item| item.slot).collect();
    rest.iter().for_each(|clause| planner.clause(clause));
    true
}

struct Chain {
    start: Slot,
    anchor: Start,
    end: Slot,
    length: ReachLength,
    labels: Vec<String>,
    properties: Vec<(String, Op, Expression)>,
}

/// The chain from its known end to the other, if nothing else is asked of it.
fn chain(planner: &Planner<'_>, found: &Match, path: &PathPattern) -> Option<Chain> {
    let property = |slot, name: &String| Expression::Property(Box::new(Expression::Variable(slot)), name.clone());
    let mut conditions = found.conditions.clone();
    let first = &path.start;
    let (_, last) = path.hops.last()?;
    for (at, (hop, vertex)) in path.hops.iter().enumerate() {
        let is_inner = at + 1 < path.hops.len();
        if hop.named || !hop.properties.is_empty() {
            return None;
        }
        if is_inner && [first.slot, last.slot].contains(&vertex.slot) {
            return None;
        }
        if is_inner && (!vertex.labels.is_empty() || !vertex.properties.is_empty()) {
            return None;
        }
    }
    for vertex in [first, last] {
        for (name, value) in &vertex.properties {
            conditions.push(equal(property(vertex.slot, name), value.clone()));
        }
    }
    if first.slot == last.slot {
        return None;
    }
    // From whichever end is known.
    let known = |slot: Slot| {
        let found = conditions.iter().enumerate();
        let anchored = found.filter_map(|(at, condition)| planner.anchor(condition, slot).map(|found| (at, found)));
        let mut sure = anchored.filter(|(_, (start, is_sure))| *is_sure && !matches!(start, Start::Names(_)));
        sure.next().map(|(at, (start, _))| (at, start))
    };
    let (start, end, (at, anchor), backwards) = match (known(first.slot), known(last.slot)) {
        (Some(found), None) => (first, last, found, false),
        (None, Some(found)) => (last, first, found, true),
        _ => return None,
    };
    conditions.remove(at);
    if !start.labels.is_empty() {
        return None;
    }
    let mut labels = end.labels.clone();
    let mut properties = Vec::new();
    for condition in conditions {
        match (&condition, pushed(&condition, end.slot)) {
            (_, Some(pushed)) => properties.push(pushed),
            (Expression::HasLabels(of, found), None) if **of == Expression::Variable(end.slot) => {
                labels.extend(found.iter().cloned());
            }
            _ => return None,
        }
    }
    let towards = |towards: Towards| if backwards { towards.reverse() } else { towards };
    let length = match &path.hops[..] {
        [(hop, _)] => {
            let relations = planner.followed(hop, towards(hop.towards));
            match hop.length {
                None | Some((1, 1)) => ReachLength::One(relations),
                Some((2, 2)) => ReachLength::Two(relations.clone(), relations),
                Some((least @ (0 | 1), most @ 1..=3)) => ReachLength::UpTo {
                    relations,
                    most,
                    with_start: least == 0,
                },
                _ => return None,
            }
        }
        [(one, _), (other, _)] if one.length.is_none() && other.length.is_none() => {
            let (one, other) = if backwards { (other, one) } else { (one, other) };
            ReachLength::Two(
                planner.followed(one, towards(one.towards)),
                planner.followed(other, towards(other.towards)),
            )
        }
        _ => return None,
    };
    Some(Chain {
        start: start.slot,
        anchor,
        end: end.slot,
        length,
        labels,
        properties,
    })
}

/// Where the count goes, if the columns are the number of vertices and nothing else.
fn counts_alone(projection: &Projection, end: Slot) -> Option<Slot> {
    let [aggregate] = &projection.aggregates[..] else {
        return None;
    };
    let counts_end = match &aggregate.argument {
        None => true,
        Some(Expression::Variable(slot)) => *slot == end,
        Some(Expression::Function(Function::Id, of)) => of[..] == [Expression::Variable(end)],
        _ => false,
    };
    let is_alone = aggregate.function == AggregateFunction::Count
        && counts_end
        && projection
            .items
            .iter()
            .all(|item| item.expression == Expression::Aggregate(aggregate.slot));
    is_alone.then_some(aggregate.slot)
}
