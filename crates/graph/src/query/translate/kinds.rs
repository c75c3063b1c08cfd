//! The kinds of expressions, as far as they are known before a query runs: an expression that can only fail is refused.

use open_cypher::Span;

use super::Translator;
use crate::query::expression::{Expression, Operator};
use crate::query::functions::Function;
use crate::query::value::Value;

/// The kind of a value that is not null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    Vertex,
    Edge,
    Path,
    List,
    Map,
    Text,
    Bool,
    Number,
}

use Kind as K;

impl Kind {
    fn name(self) -> &'static str {
        match self {
            K::Any => "any value",
            K::Vertex => "a vertex",
            K::Edge => "an edge",
            K::Path => "a path",
            K::List => "a list",
            K::Map => "a map",
            K::Text => "a string",
            K::Bool => "a boolean",
            K::Number => "a number",
        }
    }
}

impl Translator<'_> {
    /// The kind of an expression.
    pub(super) fn kind(&self, expression: &Expression) -> Kind {
        use Expression as E;
        match expression {
            E::Constant(value) => match value {
                Value::Null => K::Any,
                Value::Bool(_) => K::Bool,
                Value::Int(_) | Value::Float(_) => K::Number,
                Value::Text(_) => K::Text,
                Value::List(_) => K::List,
                Value::Map(_) => K::Map,
                Value::Vertex(_) => K::Vertex,
                Value::Edge(_) => K::Edge,
                Value::Path(_) => K::Path,
            },
            E::Variable(slot) | E::Aggregate(slot) => self.kinds.get(slot).copied().unwrap_or(K::Any),
            E::List(_) | E::Slice(..) | E::Comprehension { .. } => K::List,
            E::Map(_) => K::Map,
            E::Not(_) | E::IsNull(_) | E::HasLabels(..) | E::Quantified { .. } => K::Bool,
            E::Negative(_) => K::Number,
            E::Binary(one, Operator::Add, other) => match (self.kind(one), self.kind(other)) {
                (K::List, _) | (_, K::List) => K::List,
                (one, other) if one == other => one,
                _ => K::Any,
            },
            E::Binary(_, operator, _) => match operator.is_arithmetic() {
                true => K::Number,
                false => K::Bool,
            },
            E::Function(function, arguments) => self.kind_of_function(*function, arguments),
            E::Parameter(_) | E::Property(..) | E::Index(..) | E::Case(..) => K::Any,
        }
    }

    fn kind_of_function(&self, function: Function, arguments: &[Expression]) -> Kind {
        use Function as F;
        match function {
            F::StartNode | F::EndNode => K::Vertex,
            F::Labels | F::Nodes | F::Relationships | F::Keys | F::Tail | F::Range => K::List,
            F::Properties => K::Map,
            F::Type | F::ToLower | F::ToUpper | F::ToString | F::Trim => K::Text,
            F::Id | F::Length | F::Size | F::ToInteger | F::ToFloat => K::Number,
            F::Abs | F::Ceil | F::Floor | F::Round | F::Sqrt | F::Sign => K::Number,
            F::Reverse => arguments.first().map_or(K::Any, |of| self.kind(of)),
            F::Coalesce => {
                let mut kinds = arguments.iter().map(|argument| self.kind(argument));
                let first = kinds.next().unwrap_or(K::Any);
                if kinds.all(|kind| kind == first) { first } else { K::Any }
            }
            F::Head | F::Last => K::Any,
        }
    }

    /// Checks that an expression may be one of some kinds.
    ///
    /// # Errors
    /// It is surely none of them.
    pub(super) fn takes(&self, what: &str, kinds: &[Kind], given: &Expression, span: Span) -> Result<(), String> {
        let kind = self.kind(given);
        match kind == K::Any || kinds.contains(&kind) {
            true => Ok(()),
            false => Err(self.wrong(&format!("{what} does not take {}", kind.name()), span)),
        }
    }

    /// Checks that an expression may be true or false.
    pub(super) fn is_condition(&self, given: &Expression, span: Span) -> Result<(), String> {
        self.takes("a condition", &[K::Bool], given, span)
    }
}

impl Function {
    /// The kinds that its only argument may have; empty if they are checked at run time.
    pub(super) fn takes(self) -> &'static [Kind] {
        use Function as F;
        match self {
            // Edges are refused when the query runs: they have no id.
            F::Id => &[K::Vertex, K::Edge],
            F::Labels => &[K::Vertex],
            F::Type | F::StartNode | F::EndNode => &[K::Edge],
            F::Nodes | F::Relationships => &[K::Path],
            F::Length => &[K::Path, K::List],
            F::Size | F::Reverse => &[K::List, K::Text],
            F::Properties | F::Keys => &[K::Vertex, K::Edge, K::Map],
            F::ToLower | F::ToUpper | F::Trim => &[K::Text],
            F::ToString => &[K::Text, K::Number, K::Bool],
            F::ToInteger | F::ToFloat => &[K::Text, K::Number],
            F::Head | F::Last | F::Tail => &[K::List],
            F::Abs | F::Ceil | F::Floor | F::Round | F::Sqrt | F::Sign => &[K::Number],
            F::Coalesce | F::Range => &[],
        }
    }
}
