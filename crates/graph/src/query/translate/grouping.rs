//! The variables that have a value after rows are grouped.

use std::collections::HashSet;

use open_cypher::Span;
use open_cypher::ast::{self, ExprKind};

use super::{Behind, Translator, has_aggregate};
use crate::query::expression::Expression;
use crate::query::plan::Item;

impl Translator<'_> {
    /// Checks an expression with aggregates: beside them it has constants, and variables or properties that are columns
    /// themselves. All else has a value for each row of a group, and not one for the group.
    pub(super) fn is_grouped(&self, expression: &Expression, items: &[Item], span: Span) -> Result<(), String> {
        let columns = items.iter().filter(|item| !item.aggregated);
        let mut keys: Vec<Expression> = columns.clone().map(|item| item.expression.clone()).collect();
        keys.retain(is_variable_or_property);
        keys.extend(columns.map(|item| Expression::Variable(item.slot)));
        match has_other_variable(expression, &keys, &mut HashSet::new()) {
            true => Err(self.wrong(
                "a variable beside an aggregate is a column itself, or is first put into one by WITH",
                span,
            )),
            false => Ok(()),
        }
    }

    /// An expression in the `ORDER BY` or `WHERE` of a projection.
    pub(super) fn behind(&mut self, written: &ast::Expr, of: &Behind<'_>) -> Result<Expression, String> {
        if let Some(column) = self.same_column(written, of) {
            return Ok(column);
        }
        let columns = self.aggregates.as_ref().map_or(0, Vec::len);
        let expression = self.expression(written)?;
        if self.aggregates.as_ref().map_or(0, Vec::len) > columns {
            return Err(self.wrong("an aggregate stands in a column before it is sorted by", written.span));
        }
        if of.is_plain {
            return Ok(expression);
        }
        if has_aggregate(&expression) {
            self.is_grouped(&expression, of.items, written.span)?;
            return Ok(expression);
        }
        let columns = of.items.iter();
        let known = columns.flat_map(|item| [Expression::Variable(item.slot), item.expression.clone()]);
        match has_other_variable(&expression, &known.collect::<Vec<_>>(), &mut HashSet::new()) {
            true => Err(self.wrong(
                "behind DISTINCT and aggregates only columns have values, and here is another variable",
                written.span,
            )),
            false => Ok(expression),
        }
    }

    /// The column that an expression is, written in the variables before it.
    fn same_column(&mut self, written: &ast::Expr, of: &Behind<'_>) -> Option<Expression> {
        // A column hides a variable of its name.
        let is_column = |name: &ast::Name| of.items.iter().any(|item| item.name == name.kind.text);
        if matches!(&written.kind, ExprKind::Variable(name) if is_column(name)) {
            return None;
        }
        let with_columns = std::mem::replace(&mut self.names, of.before.clone());
        let aggregates = self.aggregates.clone();
        let translated = self.expression(written);
        self.names = with_columns;
        self.aggregates = aggregates;
        let translated = translated.ok()?;
        let same = of.items.iter().find(|item| item.expression == translated);
        same.map(|item| Expression::Variable(item.slot))
    }
}

fn is_variable_or_property(expression: &Expression) -> bool {
    match expression {
        Expression::Variable(_) => true,
        Expression::Property(of, _) => is_variable_or_property(of),
        _ => false,
    }
}

/// Whether there is a variable outside of some expressions, and of lists.
fn has_other_variable(expression: &Expression, known: &[Expression], own: &mut HashSet<usize>) -> bool {
    if known.contains(expression) {
        return false;
    }
    match expression {
        Expression::Variable(slot) => return !own.contains(slot),
        Expression::Comprehension { slot, .. } | Expression::Quantified { slot, .. } => {
            own.insert(*slot);
        }
        _ => {}
    }
    let mut found = false;
    expression.for_each_part(&mut |part| found = found || has_other_variable(part, known, own));
    found
}
