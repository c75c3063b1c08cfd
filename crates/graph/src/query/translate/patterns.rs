//! Patterns.

use open_cypher::ast::{
    self, LabelExpressionKind, PathFactorKind, PathPattern as AstPath, PatternPart, QuantifierKind,
    RelationshipDirection,
};

use super::Translator;
use super::kinds::Kind;
use crate::query::expression::{Expression, Operator};
use crate::query::plan::{Hop, PathPattern, Towards, VertexPattern};

/// The most edges of a hop of variable length.
const LENGTH_MAX: u32 = 10;

impl Translator<'_> {
    pub(super) fn path(&mut self, part: &PatternPart, conditions: &mut Vec<Expression>) -> Result<PathPattern, String> {
        if let Some(selector) = &part.kind.selector {
            return Err(self.refuse(
                "a selector of paths",
                selector.span,
                "use shortestPath((a)-[:T*..3]-(b))",
            ));
        }
        let mut path = match &part.kind.path.kind.factors[..] {
            [factor] => match &factor.kind {
                PathFactorKind::LegacyShortest { all: true, .. } => {
                    return Err(self.refuse("allShortestPaths", factor.span, "use shortestPath"));
                }
                PathFactorKind::LegacyShortest { pattern, .. } => self.shortest_path(pattern, conditions)?,
                _ => self.chain(&part.kind.path, conditions)?,
            },
            _ => self.chain(&part.kind.path, conditions)?,
        };
        if let Some(name) = &part.kind.binding {
            let slot = self.new_slot();
            if self.names.insert(name.kind.text.clone(), slot).is_some() {
                return Err(self.wrong("the variable has a value already", name.span));
            }
            self.kinds.insert(slot, Kind::Path);
            path.slot = Some(slot);
        }
        Ok(path)
    }

    /// `shortestPath((a)-[…]-(b))`
    pub(super) fn shortest_path(
        &mut self,
        pattern: &AstPath,
        conditions: &mut Vec<Expression>,
    ) -> Result<PathPattern, String> {
        let mut path = self.chain(pattern, conditions)?;
        let is_one = matches!(&path.hops[..], [(hop, _)] if hop.length.is_some_and(|(least, _)| least <= 1));
        if !is_one {
            return Err(self.wrong(
                "a shortest path is one hop of a length up to a bound, as in -[:T*..3]-",
                pattern.span,
            ));
        }
        path.shortest = true;
        Ok(path)
    }

    fn chain(&mut self, pattern: &AstPath, conditions: &mut Vec<Expression>) -> Result<PathPattern, String> {
        let mut factors = pattern.kind.factors.iter();
        let broken = || self.wrong("a path alternates vertices and edges", pattern.span);
        let broken = broken();
        let start = match factors.next().map(|factor| (&factor.kind, factor.span)) {
            Some((PathFactorKind::Node(vertex), span)) => self.vertex(vertex, span, conditions)?,
            _ => return Err(self.refuse("this path", pattern.span, "write (a)-[:TYPE]->(b)")),
        };
        let mut path = PathPattern {
            slot: None,
            start,
            hops: Vec::new(),
            shortest: false,
        };
        while let Some(factor) = factors.next() {
            let PathFactorKind::Relationship(edge) = &factor.kind else {
                return Err(self.refuse("this part of a path", factor.span, "write -[:TYPE]->"));
            };
            let hop = self.hop(edge, factor.span, conditions)?;
            match factors.next().map(|factor| (&factor.kind, factor.span)) {
                Some((PathFactorKind::Node(vertex), span)) => {
                    let vertex = self.vertex(vertex, span, conditions)?;
                    path.hops.push((hop, vertex));
                }
                _ => return Err(broken),
            }
        }
        Ok(path)
    }

    fn vertex(
        &mut self,
        pattern: &ast::NodePattern,
        span: open_cypher::Span,
        conditions: &mut Vec<Expression>,
    ) -> Result<VertexPattern, String> {
        let slot = match &pattern.variable {
            Some(name) => match self.names.get(&name.kind.text) {
                Some(&slot) => {
                    let known = Expression::Variable(slot);
                    self.takes("the pattern of a vertex", &[Kind::Vertex], &known, name.span)?;
                    slot
                }
                None => {
                    let slot = self.new_slot();
                    self.names.insert(name.kind.text.clone(), slot);
                    slot
                }
            },
            None => self.new_slot(),
        };
        self.kinds.entry(slot).or_insert(Kind::Vertex);
        let mut labels = Vec::new();
        if let Some(expression) = &pattern.labels {
            self.labels(expression, &mut labels)?;
        }
        if let Some(condition) = &pattern.where_clause {
            self.condition(condition)?.conjuncts(conditions);
        }
        Ok(VertexPattern {
            slot,
            labels,
            properties: self.properties(pattern.properties.as_deref(), span)?,
        })
    }

    /// All of several labels.
    pub(super) fn labels(&self, expression: &ast::LabelExpression, into: &mut Vec<String>) -> Result<(), String> {
        match &expression.kind {
            LabelExpressionKind::Name(name) => {
                into.push(name.kind.text.clone());
                Ok(())
            }
            LabelExpressionKind::And(parts) => parts.iter().try_for_each(|part| self.labels(part, into)),
            LabelExpressionKind::Parenthesized(part) => self.labels(part, into),
            _ => Err(self.refuse(
                "this expression of labels",
                expression.span,
                "write :A:B for all of several labels",
            )),
        }
    }

    fn hop(
        &mut self,
        pattern: &ast::RelationshipPattern,
        span: open_cypher::Span,
        conditions: &mut Vec<Expression>,
    ) -> Result<Hop, String> {
        if let Some(condition) = &pattern.where_clause {
            return Err(self.refuse("WHERE within an edge", condition.span, "put it behind the pattern"));
        }
        if let Some(quantifier) = &pattern.graph_quantifier {
            return Err(self.refuse("a quantifier behind an edge", quantifier.span, "write -[:TYPE*1..3]->"));
        }
        let slot = self.new_slot();
        let length = pattern.legacy_quantifier.as_ref();
        let kind = if length.is_some() { Kind::List } else { Kind::Edge };
        self.kinds.insert(slot, kind);
        self.edges.insert(slot);
        if let Some(name) = &pattern.variable {
            match self.names.get(&name.kind.text) {
                Some(known) if self.edges.contains(known) => {
                    return Err(self.wrong("an edge stands once in a pattern", name.span));
                }
                // The edges that are found must be those that the variable has.
                Some(&known) => {
                    let known = Expression::Variable(known);
                    self.takes("the pattern of an edge", &[kind], &known, name.span)?;
                    conditions.push(equal(Expression::Variable(slot), known));
                }
                None => drop(self.names.insert(name.kind.text.clone(), slot)),
            }
        }
        let mut types = Vec::new();
        if let Some(expression) = &pattern.labels {
            self.types(expression, &mut types)?;
        }
        Ok(Hop {
            slot,
            named: pattern.variable.is_some(),
            types,
            towards: match pattern.direction.kind {
                RelationshipDirection::Right => Towards::Right,
                RelationshipDirection::Left => Towards::Left,
                _ => Towards::Either,
            },
            length: length.map(|length| self.length(length)).transpose()?,
            properties: self.properties(pattern.properties.as_deref(), span)?,
        })
    }

    /// Any of several types.
    fn types(&self, expression: &ast::LabelExpression, into: &mut Vec<String>) -> Result<(), String> {
        match &expression.kind {
            LabelExpressionKind::Name(name) => {
                if !into.contains(&name.kind.text) {
                    into.push(name.kind.text.clone());
                }
                Ok(())
            }
            LabelExpressionKind::Or(parts) => parts.iter().try_for_each(|part| self.types(part, into)),
            LabelExpressionKind::Parenthesized(part) => self.types(part, into),
            _ => Err(self.refuse(
                "this expression of types",
                expression.span,
                "write :A|B for any of several types",
            )),
        }
    }

    fn length(&self, length: &ast::Quantifier) -> Result<(u32, u32), String> {
        let number = |text: &String| text.parse::<u32>().ok();
        let bounds = match &length.kind {
            QuantifierKind::Fixed(text) => number(text).map(|number| (number, number)),
            QuantifierKind::Range {
                lower,
                upper: Some(upper),
            } => {
                let least = lower.as_ref().map_or(Some(1), number);
                least.zip(number(upper))
            }
            _ => None,
        };
        match bounds {
            Some((least, most)) if least > most => Err(self.refuse(
                &format!("a path of at least {least} and at most {most} edges"),
                length.span,
                "the lower bound comes first",
            )),
            Some((least, most)) if most <= LENGTH_MAX => Ok((least, most)),
            _ => Err(self.refuse(
                "a path without a bound, or of more than 10 edges",
                length.span,
                "bound it, as in *1..3",
            )),
        }
    }

    fn properties(
        &mut self,
        properties: Option<&ast::Expr>,
        span: open_cypher::Span,
    ) -> Result<Vec<(String, Expression)>, String> {
        let Some(properties) = properties else {
            return Ok(Vec::new());
        };
        match self.expression(properties)? {
            Expression::Map(entries) => Ok(entries),
            _ => Err(self.refuse("this map of properties", span, "write {name: value}")),
        }
    }
}

/// The condition that an expression equals another one.
pub(in crate::query) fn equal(one: Expression, other: Expression) -> Expression {
    Expression::Binary(Box::new(one), Operator::Equal, Box::new(other))
}
