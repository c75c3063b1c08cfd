//! From clauses to steps: where a pattern begins, in which order it is followed, and what is decided where the vertices are.

use std::collections::{BTreeMap, HashSet};

use super::expression::{Expression, Operator as Op, Slot};
use super::functions::Function;
use super::operators::{Expand, Followed, Operator, Start};
use super::plan::{Clause, Hop, Match, PathPattern, Towards, VertexPattern};
use super::sets;
use super::translate::equal;
use super::value::Value;
use crate::Description;

/// The steps of a query, and the width of its rows.
pub(super) struct Steps<'a> {
    pub(super) operators: Vec<Operator<'a>>,
    pub(super) slots: usize,
}

/// Makes the steps of one query.
pub(super) struct Planner<'a> {
    pub(super) description: &'a Description,
    pub(super) parameters: &'a BTreeMap<String, Value>,
    pub(super) slots: usize,
    pub(super) operators: Vec<Operator<'a>>,
    /// Variables that have a value.
    pub(super) bound: HashSet<Slot>,
}

/// One `MATCH` that is being planned.
struct Matching {
    conditions: Vec<Expression>,
    labels: Vec<(Slot, String)>,
    /// Edges that were followed.
    edges: Vec<Slot>,
}

/// Plans clauses for a graph.
pub(super) fn plan<'a>(
    clauses: &'a [Clause],
    slots: usize,
    description: &'a Description,
    parameters: &'a BTreeMap<String, Value>,
) -> Steps<'a> {
    let mut planner = Planner {
        description,
        parameters,
        slots,
        operators: Vec::new(),
        bound: HashSet::new(),
    };
    if !sets::plan(&mut planner, clauses) {
        clauses.iter().for_each(|clause| planner.clause(clause));
    }
    Steps {
        operators: planner.operators,
        slots: planner.slots,
    }
}

impl<'a> Planner<'a> {
    pub(super) fn clause(&mut self, clause: &'a Clause) {
        match clause {
            Clause::Match(found) => self.pattern(found),
            Clause::Unwind { list, slot } => {
                self.operators.push(Operator::Unwind { list, slot: *slot });
                self.bound.insert(*slot);
            }
            Clause::Project(projection) => {
                self.operators.push(Operator::Project(projection));
                self.bound = projection.items.iter().map(|item| item.slot).collect();
            }
            Clause::Procedure { procedure, slot } => {
                self.operators.push(Operator::Procedure {
                    procedure: *procedure,
                    slot: *slot,
                });
                self.bound.insert(*slot);
            }
        }
    }

    fn new_slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    fn pattern(&mut self, found: &Match) {
        let optional = found.optional.then(|| {
            let row = self.new_slot();
            self.operators.push(Operator::Optional { row, end: 0 });
            self.operators.len() - 1
        });
        let mut matching = Matching {
            conditions: found.conditions.clone(),
            labels: Vec::new(),
            edges: Vec::new(),
        };
        for path in &found.paths {
            self.conditions_of(path, &mut matching);
        }
        self.anchors(found, &mut matching);
        for path in &found.paths {
            self.path(path, &mut matching);
        }
        self.decide(None, &mut matching);
        if let Some(begin) = optional {
            self.operators.push(Operator::EndOptional);
            let last = self.operators.len() - 1;
            if let Operator::Optional { end, .. } = &mut self.operators[begin] {
                *end = last;
            }
        }
    }

    /// Labels and properties in a pattern are conditions like others.
    fn conditions_of(&mut self, path: &PathPattern, matching: &mut Matching) {
        let property = |slot, name: &String| Expression::Property(Box::new(Expression::Variable(slot)), name.clone());
        let vertices = [&path.start]
            .into_iter()
            .chain(path.hops.iter().map(|(_, vertex)| vertex));
        for vertex in vertices {
            matching
                .labels
                .extend(vertex.labels.iter().map(|label| (vertex.slot, label.clone())));
            for (name, value) in &vertex.properties {
                matching
                    .conditions
                    .push(equal(property(vertex.slot, name), value.clone()));
            }
        }
        for (hop, _) in &path.hops {
            for (name, value) in &hop.properties {
                matching.conditions.push(match hop.length {
                    None => equal(property(hop.slot, name), value.clone()),
                    Some(_) => {
                        let slot = self.new_slot();
                        Expression::Quantified {
                            kind: super::expression::Quantified::All,
                            slot,
                            list: Box::new(Expression::Variable(hop.slot)),
                            condition: Box::new(equal(property(slot, name), value.clone())),
                        }
                    }
                });
            }
        }
        matching.conditions.retain(|condition| match condition {
            Expression::HasLabels(of, labels) => match **of {
                // Of a vertex that rows have already, a label is a condition like others.
                Expression::Variable(slot) if !self.bound.contains(&slot) => {
                    matching.labels.extend(labels.iter().map(|label| (slot, label.clone())));
                    false
                }
                _ => true,
            },
            _ => true,
        });
    }

    /// Begins with all vertices that are known by id or name: they are few.
    fn anchors(&mut self, found: &Match, matching: &mut Matching) {
        let vertices = found.paths.iter().flat_map(|path| {
            [path.start.slot]
                .into_iter()
                .chain(path.hops.iter().map(|(_, vertex)| vertex.slot))
        });
        for slot in vertices.collect::<Vec<_>>() {
            if self.bound.contains(&slot) {
                continue;
            }
            let anchor = matching.conditions.iter().enumerate().find_map(|(at, condition)| {
                let (start, is_sure) = self.anchor(condition, slot)?;
                Some((at, start, is_sure))
            });
            if let Some((at, start, is_sure)) = anchor {
                if is_sure {
                    matching.conditions.remove(at);
                }
                self.start(slot, start, matching);
            }
        }
    }

    /// The start that a condition gives to a vertex, and whether it says all that the condition does.
    pub(super) fn anchor(&self, condition: &Expression, slot: Slot) -> Option<(Start, bool)> {
        let Expression::Binary(one, operator, other) = condition else {
            return None;
        };
        let is_known = |expression: &Expression| expression.variables().iter().all(|slot| self.bound.contains(slot));
        let is_id = |expression: &Expression| match expression {
            Expression::Function(Function::Id, arguments) => arguments[..] == [Expression::Variable(slot)],
            _ => false,
        };
        let is_name = |expression: &Expression| match expression {
            Expression::Property(of, name) => **of == Expression::Variable(slot) && name == "name",
            _ => false,
        };
        let sides = match operator {
            Op::Equal => vec![(one, other), (other, one)],
            Op::In => vec![(one, other)],
            _ => return None,
        };
        for (this, value) in sides {
            if !is_known(value) {
                continue;
            }
            if is_id(this) && *operator == Op::Equal {
                return Some((Start::Id((**value).clone()), true));
            }
            if is_name(this) {
                // A number finds the vertex whose name has the same text: the condition has to be checked, too.
                let is_text = |value: &Expression| match value {
                    Expression::Constant(value) => matches!(value, Value::Text(_)),
                    // Without parameters a plan is only shown.
                    Expression::Parameter(name) => matches!(self.parameters.get(name), Some(Value::Text(_)) | None),
                    _ => false,
                };
                return Some(match (operator, &**value) {
                    (Op::In, Expression::List(values)) => (Start::Names((**value).clone()), values.iter().all(is_text)),
                    (Op::In, _) => (Start::Names((**value).clone()), false),
                    _ => (Start::Name((**value).clone()), is_text(value)),
                });
            }
        }
        None
    }

    fn start(&mut self, slot: Slot, start: Start, matching: &mut Matching) {
        self.operators.push(Operator::Start { slot, start });
        self.decide(Some(slot), matching);
    }

    fn path(&mut self, path: &PathPattern, matching: &mut Matching) {
        let vertices: Vec<&VertexPattern> = [&path.start]
            .into_iter()
            .chain(path.hops.iter().map(|(_, vertex)| vertex))
            .collect();
        let known = vertices.iter().position(|vertex| self.bound.contains(&vertex.slot));
        let begin = known.unwrap_or_else(|| {
            let labelled = |vertex: &&VertexPattern| matching.labels.iter().any(|(slot, _)| *slot == vertex.slot);
            let at = vertices.iter().position(labelled).unwrap_or(0);
            let slot = vertices[at].slot;
            let label = matching.labels.iter().position(|(of, _)| *of == slot);
            let start = match label {
                Some(label) => Start::Label(matching.labels.remove(label).1),
                None => Start::All,
            };
            self.start(slot, start, matching);
            at
        });
        if known.is_some() && path.hops.is_empty() {
            self.operators.push(Operator::Vertex(path.start.slot));
        }
        // Labels and conditions of vertices that rows had before.
        self.decide(Some(vertices[begin].slot), matching);
        if path.shortest {
            return self.shortest(path, matching);
        }
        for (from, (hop, to)) in vertices.iter().zip(&path.hops).skip(begin) {
            self.expand(from.slot, hop, to.slot, false, matching);
        }
        for at in (0..begin).rev() {
            let hop = &path.hops[at].0;
            self.expand(vertices[at + 1].slot, hop, vertices[at].slot, true, matching);
        }
        if let Some(slot) = path.slot {
            self.operators.push(Operator::Path {
                slot,
                start: path.start.slot,
                hops: path.hops.iter().map(|(hop, _)| hop.slot).collect(),
            });
            self.decide(Some(slot), matching);
        }
    }

    fn shortest(&mut self, path: &PathPattern, matching: &mut Matching) {
        let Some((hop, to)) = path.hops.first() else { return };
        if !self.bound.contains(&path.start.slot) {
            self.start(path.start.slot, Start::All, matching);
        }
        if !self.bound.contains(&to.slot) {
            let label = matching.labels.iter().position(|(of, _)| *of == to.slot);
            let start = label.map_or(Start::All, |label| Start::Label(matching.labels.remove(label).1));
            self.start(to.slot, start, matching);
        }
        let slot = path.slot.unwrap_or_else(|| self.new_slot());
        let expand = Expand {
            from: path.start.slot,
            to: to.slot,
            to_is_bound: true,
            edge: hop.slot,
            relations: self.followed(hop, hop.towards),
            length: hop.length,
            others: Vec::new(),
            backwards: false,
        };
        self.operators.push(Operator::Shortest { path: slot, expand });
        self.bound.insert(slot);
        self.decide(Some(hop.slot), matching);
    }

    fn expand(&mut self, from: Slot, hop: &Hop, to: Slot, backwards: bool, matching: &mut Matching) {
        let towards = if backwards { hop.towards.reverse() } else { hop.towards };
        let expand = Expand {
            from,
            to,
            to_is_bound: self.bound.contains(&to),
            edge: hop.slot,
            relations: self.followed(hop, towards),
            length: hop.length,
            others: matching.edges.clone(),
            backwards,
        };
        self.operators.push(Operator::Expand(expand));
        matching.edges.push(hop.slot);
        self.bound.insert(hop.slot);
        self.decide(Some(to), matching);
    }

    /// The types of a hop that the graph has.
    pub(super) fn followed(&self, hop: &Hop, towards: Towards) -> Vec<Followed> {
        let types = self.description.types.iter();
        let wanted = types.filter(|(name, _)| hop.types.is_empty() || hop.types.contains(name));
        wanted
            .map(|(name, edge_type)| Followed::new(name, edge_type, towards))
            .collect()
    }

    /// After a variable got its value: decides on it as early as it can be.
    fn decide(&mut self, slot: Option<Slot>, matching: &mut Matching) {
        if let Some(slot) = slot {
            self.bound.insert(slot);
            let mut labels = Vec::new();
            matching.labels.retain(|(of, label)| {
                if *of == slot {
                    labels.push(label.clone());
                }
                *of != slot
            });
            let mut properties = Vec::new();
            matching.conditions.retain(|condition| match pushed(condition, slot) {
                Some(pushed) => {
                    properties.push(pushed);
                    false
                }
                None => true,
            });
            if !labels.is_empty() || !properties.is_empty() {
                self.operators.push(Operator::Select {
                    slot,
                    labels,
                    properties,
                });
            }
        }
        let bound = &self.bound;
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut matching.conditions)
                .into_iter()
                .partition(|condition| {
                    condition.variables().iter().all(|slot| bound.contains(slot)) || is_local(condition, bound)
                });
        matching.conditions = rest;
        self.operators.extend(ready.into_iter().map(Operator::Filter));
    }
}

/// Whether all variables of a condition are bound, or have their values from lists within it.
fn is_local(condition: &Expression, bound: &HashSet<Slot>) -> bool {
    let mut own = HashSet::new();
    condition.for_each(&mut |part| {
        if let Expression::Comprehension { slot, .. } | Expression::Quantified { slot, .. } = part {
            own.insert(*slot);
        }
    });
    condition
        .variables()
        .iter()
        .all(|slot| bound.contains(slot) || own.contains(slot))
}

/// A condition on a property of a vertex that is decided where the vertex is: it compares with what does not depend on rows.
pub(super) fn pushed(condition: &Expression, slot: Slot) -> Option<(String, Op, Expression)> {
    let Expression::Binary(one, operator, other) = condition else {
        return None;
    };
    let property = |expression: &Expression| match expression {
        Expression::Property(of, name) if **of == Expression::Variable(slot) => Some(name.clone()),
        _ => None,
    };
    let is_constant = |expression: &Expression| expression.variables().is_empty() && !has_lists(expression);
    if !operator.compares() {
        return None;
    }
    if let Some(name) = property(one)
        && is_constant(other)
    {
        return Some((name, *operator, (**other).clone()));
    }
    let mirrored = operator.mirrored()?;
    let name = property(other)?;
    is_constant(one).then(|| (name, mirrored, (**one).clone()))
}

/// Whether there are variables of lists in an expression.
fn has_lists(expression: &Expression) -> bool {
    let mut found = false;
    expression.for_each(&mut |part| {
        found |= matches!(part, Expression::Comprehension { .. } | Expression::Quantified { .. });
    });
    found
}
