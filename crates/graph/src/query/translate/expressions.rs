//! Expressions.

use open_cypher::ast::{
    self, BinaryOperator, ExprKind, IntegerRadix, IsPredicate, LiteralKind, ParameterName, QuantifiedPredicateKind,
    SetQuantifier, UnaryOperator,
};

use super::kinds::Kind;
use super::{DEPTH_MAX, Translator};
use crate::query::expression::{Expression, Operator, Quantified};
use crate::query::functions::FUNCTIONS;
use crate::query::plan::{Aggregate, AggregateFunction};
use crate::query::value::Value;

const AGGREGATES: [(&str, AggregateFunction); 6] = [
    ("count", AggregateFunction::Count),
    ("collect", AggregateFunction::Collect),
    ("sum", AggregateFunction::Sum),
    ("avg", AggregateFunction::Average),
    ("min", AggregateFunction::Least),
    ("max", AggregateFunction::Greatest),
];

impl Translator<'_> {
    pub(super) fn expression(&mut self, expression: &ast::Expr) -> Result<Expression, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!(
                "LIMIT expressions nest deeper than {DEPTH_MAX}: use lists, as in x IN $list"
            ));
        }
        self.depth += 1;
        let translated = self.nested(expression);
        self.depth -= 1;
        translated
    }

    fn nested(&mut self, expression: &ast::Expr) -> Result<Expression, String> {
        use Expression as E;
        let span = expression.span;
        Ok(match &expression.kind {
            ExprKind::Literal(literal) => E::Constant(self.literal(literal, false)?),
            ExprKind::Variable(name) => match self.names.get(&name.kind.text) {
                Some(&slot) => E::Variable(slot),
                None => return Err(self.wrong("the variable has no value here", span)),
            },
            ExprKind::Parameter(parameter) => match &parameter.name {
                ParameterName::Named(name) | ParameterName::Positional(name) => E::Parameter(name.clone()),
                _ => return Err(self.refuse("this parameter", span, "name it, as in $name")),
            },
            ExprKind::List(parts) => E::List(self.all(parts)?),
            ExprKind::Map(entries) => {
                let entry = |entry: &ast::MapEntry| Ok((entry.key.kind.text.clone(), self.expression(&entry.value)?));
                E::Map(entries.iter().map(entry).collect::<Result<_, String>>()?)
            }
            ExprKind::Parenthesized(inner) => self.expression(inner)?,
            ExprKind::Unary { operator, operand } => self.unary(operator.kind, operand)?,
            ExprKind::Binary { left, operator, right } => self.binary(left, operator, right)?,
            ExprKind::Is {
                expression,
                negated,
                predicate,
            } => {
                let of = Box::new(self.expression(expression)?);
                let is = match predicate {
                    IsPredicate::Null => E::IsNull(of),
                    IsPredicate::Label(labels) => {
                        let mut all = Vec::new();
                        self.labels(labels, &mut all)?;
                        self.takes("a label", &[Kind::Vertex, Kind::Edge], &of, span)?;
                        E::HasLabels(of, all)
                    }
                    _ => return Err(self.refuse("this predicate", span, "use IS NULL, or a label")),
                };
                if *negated { E::Not(Box::new(is)) } else { is }
            }
            ExprKind::Property { expression, key } => {
                let of = self.expression(expression)?;
                self.takes("a property", &[Kind::Vertex, Kind::Edge, Kind::Map], &of, span)?;
                E::Property(Box::new(of), key.kind.text.clone())
            }
            ExprKind::Index { expression, index } => E::Index(
                Box::new(self.expression(expression)?),
                Box::new(self.expression(index)?),
            ),
            ExprKind::Slice {
                expression,
                lower,
                upper,
            } => {
                let of = Box::new(self.expression(expression)?);
                let mut bound = |bound: &Option<Box<ast::Expr>>| -> Result<_, String> {
                    bound
                        .as_ref()
                        .map(|bound| self.expression(bound).map(Box::new))
                        .transpose()
                };
                let (from, to) = (bound(lower)?, bound(upper)?);
                E::Slice(of, from, to)
            }
            ExprKind::Function(function) => self.function(function, span)?,
            ExprKind::Case(case) => self.case(case, span)?,
            ExprKind::ListComprehension(comprehension) => self.comprehension(comprehension)?,
            ExprKind::QuantifiedPredicate(predicate) => self.quantified(predicate)?,
            ExprKind::Pattern(_) => {
                return Err(self.refuse("a pattern as a condition", span, "put it into MATCH"));
            }
            _ => return Err(self.refuse("this expression", span, "see docs/graph.md for those that are")),
        })
    }

    fn all(&mut self, expressions: &[ast::Expr]) -> Result<Vec<Expression>, String> {
        expressions
            .iter()
            .map(|expression| self.expression(expression))
            .collect()
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &ast::Expr) -> Result<Expression, String> {
        // A negative number is a constant, too; the least integer has no positive one.
        if let (UnaryOperator::Minus, ExprKind::Literal(literal)) = (operator, &operand.kind)
            && let LiteralKind::Integer(_) | LiteralKind::Float(_) = literal.kind
        {
            return Ok(Expression::Constant(self.literal(literal, true)?));
        }
        let of = self.expression(operand)?;
        Ok(match operator {
            UnaryOperator::Not => {
                self.is_condition(&of, operand.span)?;
                Expression::Not(Box::new(of))
            }
            UnaryOperator::Minus => Expression::Negative(Box::new(of)),
            _ => of,
        })
    }

    fn literal(&self, literal: &ast::Literal, negative: bool) -> Result<Value, String> {
        Ok(match &literal.kind {
            LiteralKind::Null => Value::Null,
            LiteralKind::Boolean(flag) => Value::Bool(*flag),
            LiteralKind::String(text) => Value::text(&text.value),
            LiteralKind::Integer(integer) => {
                let digits = integer.text.replace('_', "");
                let sign = if negative { "-" } else { "" };
                let (digits, radix) = match integer.radix {
                    IntegerRadix::Decimal => (&digits[..], 10),
                    IntegerRadix::Hexadecimal => (&digits[2.min(digits.len())..], 16),
                    _ => (&digits[2.min(digits.len())..], 8),
                };
                match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
                    Ok(int) => Value::Int(int),
                    Err(_) => return Err(self.wrong("the integer has more than 64 bits", literal.span)),
                }
            }
            LiteralKind::Float(float) => {
                let digits = float.text.replace('_', "");
                let digits = digits.trim_end_matches(['f', 'F', 'd', 'D']);
                match digits.parse::<f64>() {
                    Ok(float) if float.is_infinite() => {
                        return Err(self.wrong("the number is too large for a float", literal.span));
                    }
                    Ok(float) => Value::Float(if negative { -float } else { float }),
                    Err(_) => return Err(self.wrong("the number is malformed", literal.span)),
                }
            }
            _ => {
                return Err(self.refuse(
                    "this literal",
                    literal.span,
                    "use numbers, strings, true, false or null",
                ));
            }
        })
    }

    fn binary(
        &mut self,
        left: &ast::Expr,
        operator: &ast::Node<BinaryOperator>,
        right: &ast::Expr,
    ) -> Result<Expression, String> {
        let Some(own) = operator_of(operator.kind) else {
            return Err(self.refuse("this operator", operator.span, "see docs/graph.md for those that are"));
        };
        let binary = |one, other| Expression::Binary(Box::new(one), own, Box::new(other));
        // `a < b < c` is `a < b AND b < c`.
        if own.mirrored().is_some()
            && let ExprKind::Binary {
                operator: inner,
                right: middle,
                ..
            } = &left.kind
            && operator_of(inner.kind).and_then(Operator::mirrored).is_some()
        {
            let first = self.expression(left)?;
            let second = binary(self.expression(middle)?, self.expression(right)?);
            return Ok(Expression::Binary(Box::new(first), Operator::And, Box::new(second)));
        }
        let (one, other) = (self.expression(left)?, self.expression(right)?);
        match own {
            Operator::And | Operator::Or | Operator::Xor => {
                self.is_condition(&one, left.span)?;
                self.is_condition(&other, right.span)?;
            }
            Operator::In => self.takes("IN", &[Kind::List], &other, right.span)?,
            _ => {}
        }
        Ok(binary(one, other))
    }

    fn function(&mut self, function: &ast::FunctionInvocation, span: open_cypher::Span) -> Result<Expression, String> {
        let name = function.name.span.text(self.text).unwrap_or_default().trim_matches('`');
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if is("shortestPath")
            && let [argument] = &function.arguments[..]
            && let ExprKind::Pattern(pattern) = &argument.kind
            && let [part] = &pattern.parts[..]
        {
            let mut conditions = Vec::new();
            let mut path = self.shortest_path(&part.kind.path, &mut conditions)?;
            let slot = self.new_slot();
            path.slot = Some(slot);
            self.shortest.push(path);
            return Ok(Expression::Variable(slot));
        }
        let distinct = function
            .quantifier
            .as_ref()
            .is_some_and(|quantifier| quantifier.kind == SetQuantifier::Distinct);
        if let Some(&(_, aggregate)) = AGGREGATES.iter().find(|(known, _)| is(known)) {
            return self.aggregate(aggregate, distinct, &function.arguments, span);
        }
        let Some(&(_, known, least, most)) = FUNCTIONS.iter().find(|(known, ..)| is(known)) else {
            return Err(self.refuse(
                "this function",
                function.name.span,
                "see docs/graph.md for those that are",
            ));
        };
        if !(least..=most).contains(&function.arguments.len()) {
            return Err(self.wrong("the function takes another number of arguments", span));
        }
        let arguments = self.all(&function.arguments)?;
        if let ([argument], [written]) = (&arguments[..], &function.arguments[..])
            && !known.takes().is_empty()
        {
            self.takes(name, known.takes(), argument, written.span)?;
        }
        Ok(Expression::Function(known, arguments))
    }

    fn aggregate(
        &mut self,
        function: AggregateFunction,
        distinct: bool,
        arguments: &[ast::Expr],
        span: open_cypher::Span,
    ) -> Result<Expression, String> {
        let Some(mut aggregates) = self.aggregates.take() else {
            return Err(self.wrong("an aggregate stands in WITH or RETURN, and in no other aggregate", span));
        };
        let argument = match arguments {
            [argument] if matches!(argument.kind, ExprKind::Wildcard) && function == AggregateFunction::Count => None,
            [argument] => Some(self.expression(argument)?),
            _ => return Err(self.wrong("an aggregate takes one argument", span)),
        };
        let is_same =
            |known: &&Aggregate| known.function == function && known.distinct == distinct && known.argument == argument;
        let slot = match aggregates.iter().find(is_same) {
            Some(known) => known.slot,
            None => {
                let slot = self.new_slot();
                let kind = match function {
                    AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Average => Kind::Number,
                    AggregateFunction::Collect => Kind::List,
                    AggregateFunction::Least | AggregateFunction::Greatest => Kind::Any,
                };
                self.kinds.insert(slot, kind);
                aggregates.push(Aggregate {
                    function,
                    distinct,
                    argument,
                    slot,
                });
                slot
            }
        };
        self.aggregates = Some(aggregates);
        Ok(Expression::Aggregate(slot))
    }

    fn case(&mut self, case: &ast::CaseExpression, span: open_cypher::Span) -> Result<Expression, String> {
        let of = case
            .operand
            .as_ref()
            .map(|of| self.expression(of).map(Box::new))
            .transpose()?;
        let mut whens = Vec::new();
        for alternative in &case.alternatives {
            let [when] = &alternative.when[..] else {
                return Err(self.refuse("WHEN with several values", span, "write one WHEN for each"));
            };
            let condition = self.expression(when)?;
            if of.is_none() {
                self.is_condition(&condition, when.span)?;
            }
            whens.push((condition, self.expression(&alternative.then)?));
        }
        let otherwise = case.else_expression.as_ref();
        let otherwise = otherwise
            .map(|value| self.expression(value).map(Box::new))
            .transpose()?;
        Ok(Expression::Case(of, whens, otherwise))
    }

    /// Translates something in which a variable has a value; its slot, and the result.
    fn with_variable<T>(
        &mut self,
        name: &ast::Name,
        within: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<(usize, T), String> {
        let slot = self.new_slot();
        let hidden = self.names.insert(name.kind.text.clone(), slot);
        let result = within(self);
        match hidden {
            Some(hidden) => self.names.insert(name.kind.text.clone(), hidden),
            None => self.names.remove(&name.kind.text),
        };
        Ok((slot, result?))
    }

    fn comprehension(&mut self, comprehension: &ast::ListComprehension) -> Result<Expression, String> {
        let list = Box::new(self.expression(&comprehension.list)?);
        self.takes("a list comprehension", &[Kind::List], &list, comprehension.list.span)?;
        // An aggregate has one value for a group, and not one for each element.
        let aggregates = self.aggregates.take();
        let (slot, (condition, value)) = self.with_variable(&comprehension.variable, |translator| {
            let mut part = |part: &Option<Box<ast::Expr>>| -> Result<_, String> {
                part.as_ref()
                    .map(|part| translator.expression(part).map(Box::new))
                    .transpose()
            };
            Ok((part(&comprehension.predicate)?, part(&comprehension.projection)?))
        })?;
        self.aggregates = aggregates;
        Ok(Expression::Comprehension {
            slot,
            list,
            condition,
            value,
        })
    }

    fn quantified(&mut self, predicate: &ast::QuantifiedPredicate) -> Result<Expression, String> {
        let list = Box::new(self.expression(&predicate.list)?);
        self.takes("a quantified condition", &[Kind::List], &list, predicate.list.span)?;
        let aggregates = self.aggregates.take();
        let (slot, condition) = self.with_variable(&predicate.variable, |translator| {
            translator.condition(&predicate.predicate).map(Box::new)
        })?;
        self.aggregates = aggregates;
        let kind = match predicate.kind.kind {
            QuantifiedPredicateKind::All => Quantified::All,
            QuantifiedPredicateKind::Any => Quantified::Any,
            QuantifiedPredicateKind::None => Quantified::None,
            _ => Quantified::Single,
        };
        Ok(Expression::Quantified {
            kind,
            slot,
            list,
            condition,
        })
    }
}

fn operator_of(operator: BinaryOperator) -> Option<Operator> {
    use Operator as O;
    Some(match operator {
        BinaryOperator::Or => O::Or,
        BinaryOperator::Xor => O::Xor,
        BinaryOperator::And => O::And,
        BinaryOperator::Equal => O::Equal,
        BinaryOperator::NotEqual => O::NotEqual,
        BinaryOperator::Less => O::Less,
        BinaryOperator::LessEqual => O::LessOrEqual,
        BinaryOperator::Greater => O::Greater,
        BinaryOperator::GreaterEqual => O::GreaterOrEqual,
        BinaryOperator::In => O::In,
        BinaryOperator::StartsWith => O::StartsWith,
        BinaryOperator::EndsWith => O::EndsWith,
        BinaryOperator::Contains => O::Contains,
        BinaryOperator::Add => O::Add,
        BinaryOperator::Subtract => O::Subtract,
        BinaryOperator::Multiply => O::Multiply,
        BinaryOperator::Divide => O::Divide,
        BinaryOperator::Remainder => O::Remainder,
        BinaryOperator::Power => O::Power,
        _ => return None,
    })
}
