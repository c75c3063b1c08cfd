//! `WITH` and `RETURN`: columns, groups, order and limits.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::expression::{Expression, Row};
use super::plan::{Aggregate, AggregateFunction, Projection};
use super::value::Value;

/// The state of a projection between batches.
pub(super) struct Projected {
    skip: usize,
    limit: Option<usize>,
    /// How many rows were given on or skipped.
    passed: usize,
    /// Rows that were given on, to know them again.
    seen: HashSet<Vec<u8>>,
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<Group>,
    /// Rows to be sorted, with what they are sorted by.
    sorted: Vec<(Vec<Value>, Row)>,
}

struct Group {
    row: Row,
    states: Vec<AggregateState>,
}

/// An aggregate over the rows of a group so far.
#[derive(Default)]
struct AggregateState {
    seen: HashSet<Vec<u8>>,
    count: i64,
    sum: Option<Value>,
    average: Average,
    best: Option<Value>,
    collected: Vec<Value>,
}

impl Projected {
    pub(super) fn new(skip: usize, limit: Option<usize>) -> Self {
        Self {
            skip,
            limit,
            passed: 0,
            seen: HashSet::new(),
            places: HashMap::new(),
            groups: Vec::new(),
            sorted: Vec::new(),
        }
    }

    /// The expressions that are computed for each row: columns that are no aggregates, and the arguments of
    /// aggregates.
    pub(super) fn of_rows(projection: &Projection) -> Vec<&Expression> {
        let columns = projection
            .items
            .iter()
            .filter(|item| !item.aggregated)
            .map(|item| &item.expression);
        let arguments = projection
            .aggregates
            .iter()
            .filter_map(|aggregate| aggregate.argument.as_ref());
        columns.chain(arguments).collect()
    }

    /// How much it keeps.
    pub(super) fn held(&self) -> usize {
        let of_states = |group: &Group| -> usize {
            let states = group.states.iter();
            states.map(|state| state.collected.len() + state.seen.len() / 16).sum()
        };
        self.seen.len() + self.sorted.len() + self.groups.len() + self.groups.iter().map(of_states).sum::<usize>()
    }

    /// Rows with their columns, if there are no groups; otherwise none: they are in the groups.
    ///
    /// # Errors
    /// An aggregate of values that it does not take.
    pub(super) fn columns(
        &mut self,
        projection: &Projection,
        rows: Vec<Row>,
        values: Vec<Vec<Value>>,
    ) -> Result<Vec<Row>, String> {
        let plain = || projection.items.iter().filter(|item| !item.aggregated);
        let set = |mut row: Row, values: Vec<Value>| {
            for (item, value) in plain().zip(values) {
                row[item.slot] = value;
            }
            row
        };
        if projection.aggregates.is_empty() {
            return Ok(rows
                .into_iter()
                .zip(values)
                .map(|(row, values)| set(row, values))
                .collect());
        }
        let columns = plain().count();
        for (row, mut values) in rows.into_iter().zip(values) {
            let arguments = values.split_off(columns);
            let mut key = Vec::new();
            values.iter().for_each(|value| value.write_key(&mut key));
            let place = match self.places.get(&key) {
                Some(&place) => place,
                None => {
                    self.places.insert(key, self.groups.len());
                    self.groups.push(Group {
                        row: set(row.clone(), values),
                        states: projection
                            .aggregates
                            .iter()
                            .map(|_| AggregateState::default())
                            .collect(),
                    });
                    self.groups.len() - 1
                }
            };
            let mut arguments = arguments.into_iter();
            let group = &mut self.groups[place];
            for (aggregate, state) in projection.aggregates.iter().zip(&mut group.states) {
                let argument = aggregate.argument.as_ref().and_then(|_| arguments.next());
                state.add(aggregate, argument, &row)?;
            }
        }
        Ok(Vec::new())
    }

    /// The groups as rows, with the results of their aggregates. Without columns there is one group, even of no rows.
    ///
    /// # Errors
    /// A result that is too large.
    pub(super) fn groups(&mut self, projection: &Projection, slots: usize) -> Result<Vec<Row>, String> {
        if self.groups.is_empty() && projection.items.iter().all(|item| item.aggregated) {
            self.groups.push(Group {
                row: vec![Value::Null; slots],
                states: projection
                    .aggregates
                    .iter()
                    .map(|_| AggregateState::default())
                    .collect(),
            });
        }
        let mut rows = Vec::with_capacity(self.groups.len());
        self.places.clear();
        for Group { mut row, states } in self.groups.drain(..) {
            for (aggregate, state) in projection.aggregates.iter().zip(states) {
                row[aggregate.slot] = state.result(aggregate)?;
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Keeps rows to be sorted.
    pub(super) fn keep(&mut self, projection: &Projection, rows: Vec<Row>, keys: Vec<Vec<Value>>) {
        for (row, key) in rows.into_iter().zip(keys) {
            if !projection.distinct || self.seen.insert(row_key(projection, &row)) {
                self.sorted.push((key, row));
            }
        }
        // With a limit, only the first are needed.
        if let Some(limit) = self.limit
            && self.sorted.len() > 4 * (self.skip + limit) + 4096
        {
            self.sort(projection);
            self.sorted.truncate(self.skip + limit);
        }
    }

    fn sort(&mut self, projection: &Projection) {
        self.sorted.sort_by(|(one, _), (other, _)| {
            let pairs = one.iter().zip(other).zip(&projection.order);
            let mut orders = pairs.map(|((one, other), (_, descending))| {
                let order = one.sorts(other);
                if *descending { order.reverse() } else { order }
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
    }

    /// The sorted rows.
    pub(super) fn into_sorted(mut self, projection: &Projection) -> Vec<Row> {
        self.sort(projection);
        let rows = self.sorted.into_iter().map(|(_, row)| row).skip(self.skip);
        rows.take(self.limit.unwrap_or(usize::MAX)).collect()
    }

    /// Rows to be given on in the order in which they come, and whether more are wanted.
    pub(super) fn pass(&mut self, projection: &Projection, rows: Vec<Row>) -> (Vec<Row>, bool) {
        let end = self.limit.map_or(usize::MAX, |limit| self.skip.saturating_add(limit));
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            if self.passed >= end {
                break;
            }
            if projection.distinct && !self.seen.insert(row_key(projection, &row)) {
                continue;
            }
            self.passed += 1;
            if self.passed > self.skip {
                out.push(row);
            }
        }
        (out, self.passed < end)
    }
}

fn row_key(projection: &Projection, row: &Row) -> Vec<u8> {
    let mut key = Vec::new();
    projection
        .items
        .iter()
        .for_each(|item| row[item.slot].write_key(&mut key));
    key
}

impl AggregateState {
    fn add(&mut self, aggregate: &Aggregate, argument: Option<Value>, row: &Row) -> Result<(), String> {
        // The step before has counted already.
        if let Value::Int(count) = row[aggregate.slot] {
            self.count += count;
            return Ok(());
        }
        let Some(value) = argument else {
            self.count += 1;
            return Ok(());
        };
        if value == Value::Null || aggregate.distinct && !self.seen.insert(value.key()) {
            return Ok(());
        }
        self.count += 1;
        match aggregate.function {
            AggregateFunction::Count => {}
            AggregateFunction::Collect => self.collected.push(value),
            AggregateFunction::Sum => self.sum = Some(sum(self.sum.take(), &value)?),
            AggregateFunction::Average => self.average.add(&value)?,
            AggregateFunction::Least => self.keep_if(value, Ordering::Less),
            AggregateFunction::Greatest => self.keep_if(value, Ordering::Greater),
        }
        Ok(())
    }

    fn keep_if(&mut self, value: Value, wanted: Ordering) {
        if self.best.as_ref().is_none_or(|best| value.sorts(best) == wanted) {
            self.best = Some(value);
        }
    }

    fn result(self, aggregate: &Aggregate) -> Result<Value, String> {
        Ok(match aggregate.function {
            AggregateFunction::Count => Value::Int(self.count),
            AggregateFunction::Collect => Value::list(self.collected),
            AggregateFunction::Sum => self.sum.unwrap_or(Value::Int(0)),
            AggregateFunction::Average if self.count == 0 => Value::Null,
            AggregateFunction::Average => self.average.of(self.count)?,
            AggregateFunction::Least | AggregateFunction::Greatest => self.best.unwrap_or(Value::Null),
        })
    }
}

/// Numbers to take the average of. Integers are added up exactly: 2^63 of them fit.
#[derive(Default)]
struct Average {
    integers: i128,
    floats: f64,
    /// Whether infinity or NaN is among the numbers.
    has_non_finite: bool,
}

impl Average {
    fn add(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Int(int) => self.integers += i128::from(*int),
            Value::Float(float) => {
                self.floats += float;
                self.has_non_finite |= !float.is_finite();
            }
            other => return Err(no_number(other)),
        }
        Ok(())
    }

    fn of(&self, count: i64) -> Result<Value, String> {
        let average = (self.integers as f64 + self.floats) / count as f64;
        match average.is_finite() || self.has_non_finite {
            true => Ok(Value::Float(average)),
            false => Err("ERR float overflow in avg: the sum of the numbers is too large".into()),
        }
    }
}

fn no_number(value: &Value) -> String {
    format!("ERR numbers can be added up, and not {}", value.kind())
}

fn sum(sum: Option<Value>, value: &Value) -> Result<Value, String> {
    if !matches!(value, Value::Int(_) | Value::Float(_)) {
        return Err(no_number(value));
    }
    match sum {
        None => Ok(value.clone()),
        Some(sum) => super::functions::binary(&sum, super::expression::Operator::Add, value),
    }
}
