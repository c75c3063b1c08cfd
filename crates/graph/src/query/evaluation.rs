//! The values of expressions in a row.
//!
//! Records of vertices and properties of edges are not read here: what is missing is noted, and the value computed again when it was
//! read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Vertex;

use super::expression::{Expression, Operator, Quantified, Row, Slot};
use super::functions;
use super::value::{Edge, Value};

/// The inputs of expressions other than the row.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) parameters: BTreeMap<String, Value>,
    /// The records of vertices that were read; `None` of a vertex that has none.
    pub(super) vertices: HashMap<u64, Option<Arc<Vertex>>>,
    /// The properties of edges that were read.
    pub(super) edges: HashMap<Vec<u8>, Value>,
}

/// The records that have to be read before a value can be computed.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) vertices: Vec<u64>,
    pub(super) edges: Vec<Edge>,
}

impl Missing {
    pub(super) fn is_empty(&self) -> bool {
        self.vertices.is_empty() && self.edges.is_empty()
    }
}

/// Computes values of expressions. A missing record is noted and taken for null: the value has to be computed again
/// once it is read.
pub(super) struct Evaluation<'a> {
    pub(super) known: &'a Known,
    pub(super) missing: Missing,
}

impl Evaluation<'_> {
    /// The value of an expression in a row.
    ///
    /// # Errors
    /// The error to answer with: values of wrong types, an unknown parameter.
    pub(super) fn value(&mut self, expression: &Expression, row: &mut Row) -> Result<Value, String> {
        use Expression as E;
        Ok(match expression {
            E::Constant(value) => value.clone(),
            E::Parameter(name) => {
                let value = self.known.parameters.get(name);
                value
                    .cloned()
                    .ok_or_else(|| format!("ERR the query has no parameter ${name}: give it with CYPHER {name}=…"))?
            }
            E::Variable(slot) | E::Aggregate(slot) => row[*slot].clone(),
            E::Property(of, name) => {
                let of = self.value(of, row)?;
                self.property(&of, name)?
            }
            E::Index(of, index) => {
                let (of, index) = (self.value(of, row)?, self.value(index, row)?);
                self.index(&of, &index)?
            }
            E::Slice(of, from, to) => {
                let of = self.value(of, row)?;
                let mut bound = |bound: &Option<Box<E>>| bound.as_ref().map(|bound| self.value(bound, row)).transpose();
                let (from, to) = (bound(from)?, bound(to)?);
                functions::slice(&of, from.as_ref(), to.as_ref())?
            }
            E::List(parts) => Value::list(self.values(parts, row)?),
            E::Map(entries) => {
                let mut map = BTreeMap::new();
                for (name, part) in entries {
                    map.insert(name.clone(), self.value(part, row)?);
                }
                Value::Map(Arc::new(map))
            }
            E::Not(of) => match self.truth(of, row)? {
                Some(flag) => Value::Bool(!flag),
                None => Value::Null,
            },
            E::Negative(of) => functions::negative(&self.value(of, row)?)?,
            E::Binary(one, operator @ (Operator::And | Operator::Or), other) => {
                let decides = *operator == Operator::Or;
                match self.truth(one, row)? {
                    Some(flag) if flag == decides => Value::Bool(decides),
                    one => match (one, self.truth(other, row)?) {
                        (_, Some(flag)) if flag == decides => Value::Bool(decides),
                        (Some(_), Some(_)) => Value::Bool(!decides),
                        _ => Value::Null,
                    },
                }
            }
            E::Binary(one, operator, other) => {
                let (one, other) = (self.value(one, row)?, self.value(other, row)?);
                functions::binary(&one, *operator, &other)?
            }
            E::IsNull(of) => Value::Bool(self.value(of, row)? == Value::Null),
            E::HasLabels(of, labels) => match self.value(of, row)? {
                Value::Vertex(id) => match self.vertex(id) {
                    Some(vertex) => Value::Bool(labels.iter().all(|label| vertex.labels.binary_search(label).is_ok())),
                    None => Value::Bool(false),
                },
                Value::Edge(edge) => Value::Bool(labels.iter().all(|label| **label == *edge.name)),
                Value::Null => Value::Null,
                other => return Err(format!("ERR only vertices have labels, and not {}", other.kind())),
            },
            E::Case(of, whens, otherwise) => self.case(of.as_deref(), whens, otherwise.as_deref(), row)?,
            E::Comprehension {
                slot,
                list,
                condition,
                value,
            } => self.comprehension(*slot, list, condition.as_deref(), value.as_deref(), row)?,
            E::Quantified {
                kind,
                slot,
                list,
                condition,
            } => self.quantified(*kind, *slot, list, condition, row)?,
            E::Function(function, arguments) => {
                let arguments = self.values(arguments, row)?;
                function.apply(arguments, self)?
            }
        })
    }

    /// Whether a condition holds; `None` if that is not known.
    ///
    /// # Errors
    /// As [`Evaluation::value`].
    pub(super) fn truth(&mut self, condition: &Expression, row: &mut Row) -> Result<Option<bool>, String> {
        match self.value(condition, row)? {
            Value::Bool(flag) => Ok(Some(flag)),
            Value::Null => Ok(None),
            other => Err(format!(
                "ERR a condition is true, false or null, and not {}",
                other.kind()
            )),
        }
    }

    fn values(&mut self, expressions: &[Expression], row: &mut Row) -> Result<Vec<Value>, String> {
        expressions
            .iter()
            .map(|expression| self.value(expression, row))
            .collect()
    }

    /// The record of a vertex; `None` if it has none, or has to be read first.
    pub(super) fn vertex(&mut self, id: u64) -> Option<Arc<Vertex>> {
        match self.known.vertices.get(&id) {
            Some(vertex) => vertex.clone(),
            None => {
                self.missing.vertices.push(id);
                None
            }
        }
    }

    /// The properties of an edge, a map; null if they have to be read first.
    pub(super) fn edge(&mut self, edge: &Edge) -> Value {
        match self.known.edges.get(&Value::Edge(edge.clone()).key()) {
            Some(properties) => properties.clone(),
            None => {
                self.missing.edges.push(edge.clone());
                Value::Null
            }
        }
    }

    fn property(&mut self, of: &Value, name: &str) -> Result<Value, String> {
        Ok(match of {
            Value::Null => Value::Null,
            Value::Vertex(id) => match self.vertex(*id) {
                Some(vertex) => vertex.properties.get(name).map_or(Value::Null, Value::of_json),
                None => Value::Null,
            },
            Value::Edge(edge) => match self.edge(edge) {
                Value::Map(map) => map.get(name).cloned().unwrap_or(Value::Null),
                _ => Value::Null,
            },
            Value::Map(map) => map.get(name).cloned().unwrap_or(Value::Null),
            other => return Err(format!("ERR {} has no property {name:?}", other.kind())),
        })
    }

    fn index(&mut self, of: &Value, index: &Value) -> Result<Value, String> {
        Ok(match (of, index) {
            (Value::Null, _) | (_, Value::Null) => Value::Null,
            (Value::List(values), Value::Int(index)) => {
                let at = if *index < 0 {
                    index + values.len() as i64
                } else {
                    *index
                };
                let at = usize::try_from(at).ok();
                at.and_then(|at| values.get(at)).cloned().unwrap_or(Value::Null)
            }
            (Value::Map(_) | Value::Vertex(_) | Value::Edge(_), Value::Text(name)) => self.property(of, name)?,
            _ => return Err(format!("ERR {} cannot be indexed by {}", of.kind(), index.kind())),
        })
    }

    fn case(
        &mut self,
        of: Option<&Expression>,
        whens: &[(Expression, Expression)],
        otherwise: Option<&Expression>,
        row: &mut Row,
    ) -> Result<Value, String> {
        let of = of.map(|of| self.value(of, row)).transpose()?;
        for (when, then) in whens {
            let holds = match &of {
                Some(of) => of.equals(&self.value(when, row)?),
                None => self.truth(when, row)?,
            };
            if holds == Some(true) {
                return self.value(then, row);
            }
        }
        otherwise.map_or(Ok(Value::Null), |otherwise| self.value(otherwise, row))
    }

    /// The elements of a list; `None` of null.
    fn elements(&mut self, list: &Expression, row: &mut Row) -> Result<Option<Arc<Vec<Value>>>, String> {
        match self.value(list, row)? {
            Value::List(values) => Ok(Some(values)),
            Value::Null => Ok(None),
            other => Err(format!("ERR a list is expected, and not {}", other.kind())),
        }
    }

    fn comprehension(
        &mut self,
        slot: Slot,
        list: &Expression,
        condition: Option<&Expression>,
        value: Option<&Expression>,
        row: &mut Row,
    ) -> Result<Value, String> {
        let Some(elements) = self.elements(list, row)? else {
            return Ok(Value::Null);
        };
        let mut results = Vec::new();
        for element in &*elements {
            row[slot] = element.clone();
            let holds = condition.map_or(Ok(Some(true)), |condition| self.truth(condition, row))?;
            if holds == Some(true) {
                results.push(value.map_or_else(|| Ok(element.clone()), |value| self.value(value, row))?);
            }
        }
        Ok(Value::list(results))
    }

    fn quantified(
        &mut self,
        kind: Quantified,
        slot: Slot,
        list: &Expression,
        condition: &Expression,
        row: &mut Row,
    ) -> Result<Value, String> {
        let Some(elements) = self.elements(list, row)? else {
            return Ok(Value::Null);
        };
        let (mut holds, mut unknown) = (0, 0);
        for element in &*elements {
            row[slot] = element.clone();
            match self.truth(condition, row)? {
                Some(flag) => holds += usize::from(flag),
                None => unknown += 1,
            }
        }
        let fails = elements.len() - holds - unknown;
        let answer = match kind {
            Quantified::All if fails > 0 => Some(false),
            Quantified::Any if holds > 0 => Some(true),
            Quantified::None if holds > 0 => Some(false),
            Quantified::Single if holds > 1 => Some(false),
            _ if unknown > 0 => None,
            Quantified::All | Quantified::None => Some(true),
            Quantified::Any => Some(false),
            Quantified::Single => Some(holds == 1),
        };
        Ok(answer.map_or(Value::Null, Value::Bool))
    }
}
