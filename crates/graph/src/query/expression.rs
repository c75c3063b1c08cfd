//! Expressions.

use serde::{Deserialize, Serialize};

use super::functions;
use super::value::Value;

/// The place of a variable in a row.
pub(super) type Slot = usize;

/// A row: a value for each variable of the query, null where it has none yet.
pub(super) type Row = Vec<Value>;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(Value),
    Parameter(String),
    Variable(Slot),
    Property(Box<Self>, String),
    Index(Box<Self>, Box<Self>),
    Slice(Box<Self>, Option<Box<Self>>, Option<Box<Self>>),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    Not(Box<Self>),
    Negative(Box<Self>),
    Binary(Box<Self>, Operator, Box<Self>),
    IsNull(Box<Self>),
    HasLabels(Box<Self>, Vec<String>),
    Case(Option<Box<Self>>, Vec<(Self, Self)>, Option<Box<Self>>),
    /// `[x IN list WHERE condition | value]`
    Comprehension {
        slot: Slot,
        list: Box<Self>,
        condition: Option<Box<Self>>,
        value: Option<Box<Self>>,
    },
    Quantified {
        kind: Quantified,
        slot: Slot,
        list: Box<Self>,
        condition: Box<Self>,
    },
    Function(functions::Function, Vec<Self>),
    /// The result of an aggregate of a group, which stands in this slot.
    Aggregate(Slot),
}

/// The quantifier of a condition on the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantified {
    All,
    Any,
    None,
    Single,
}

/// An operator on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// `OR`
    Or,
    /// `XOR`
    Xor,
    /// `AND`
    And,
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `IN`
    In,
    /// `STARTS WITH`
    StartsWith,
    /// `ENDS WITH`
    EndsWith,
    /// `CONTAINS`
    Contains,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
    /// `^`
    Power,
}

impl Operator {
    /// Whether it compares two values, or looks for one in the other.
    pub(super) fn compares(self) -> bool {
        use Operator as O;
        match self {
            O::Equal | O::NotEqual | O::Less | O::LessOrEqual | O::Greater | O::GreaterOrEqual => true,
            O::In | O::StartsWith | O::EndsWith | O::Contains => true,
            O::Or | O::Xor | O::And => false,
            O::Add | O::Subtract | O::Multiply | O::Divide | O::Remainder | O::Power => false,
        }
    }

    /// Whether it computes with two values.
    pub(super) fn is_arithmetic(self) -> bool {
        !self.compares() && !matches!(self, Self::Or | Self::Xor | Self::And)
    }

    /// The operator that says the same with its sides exchanged, of those that compare by order.
    pub(super) fn mirrored(self) -> Option<Self> {
        use Operator as O;
        Some(match self {
            O::Equal | O::NotEqual => self,
            O::Less => O::Greater,
            O::LessOrEqual => O::GreaterOrEqual,
            O::Greater => O::Less,
            O::GreaterOrEqual => O::LessOrEqual,
            _ => return None,
        })
    }
}

impl Expression {
    /// Calls a function for it, and for each expression within it.
    pub(super) fn for_each(&self, see: &mut dyn FnMut(&Self)) {
        see(self);
        self.for_each_part(&mut |part| part.for_each(see));
    }

    /// The variables in it.
    pub(super) fn variables(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        self.for_each(&mut |part| {
            if let Self::Variable(slot) | Self::Aggregate(slot) = part {
                slots.push(*slot);
            }
        });
        slots
    }

    /// Calls a function for each expression that it directly consists of.
    pub(super) fn for_each_part(&self, see: &mut dyn FnMut(&Self)) {
        match self {
            Self::Constant(_) | Self::Parameter(_) | Self::Variable(_) | Self::Aggregate(_) => {}
            Self::Property(of, _) | Self::Not(of) | Self::Negative(of) | Self::IsNull(of) | Self::HasLabels(of, _) => {
                see(of)
            }
            Self::Index(one, other) | Self::Binary(one, _, other) => {
                see(one);
                see(other);
            }
            Self::Slice(of, from, to) => {
                see(of);
                from.iter().chain(to).for_each(|part| see(part));
            }
            Self::List(parts) | Self::Function(_, parts) => parts.iter().for_each(see),
            Self::Map(entries) => entries.iter().for_each(|(_, part)| see(part)),
            Self::Case(of, whens, otherwise) => {
                of.iter().for_each(|part| see(part));
                for (when, then) in whens {
                    see(when);
                    see(then);
                }
                otherwise.iter().for_each(|part| see(part));
            }
            Self::Comprehension {
                list, condition, value, ..
            } => {
                see(list);
                condition.iter().chain(value).for_each(|part| see(part));
            }
            Self::Quantified { list, condition, .. } => {
                see(list);
                see(condition);
            }
        }
    }

    /// Its conjuncts: what `AND` connects.
    pub(super) fn conjuncts(self, into: &mut Vec<Self>) {
        match self {
            Self::Binary(one, Operator::And, other) => {
                one.conjuncts(into);
                other.conjuncts(into);
            }
            other => into.push(other),
        }
    }
}
