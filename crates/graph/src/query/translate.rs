//! From the syntax tree of a query to its clauses. An unsupported part is refused with its name and position.

use std::collections::{HashMap, HashSet};

use open_cypher::ast::{
    self, CallTarget, ClauseKind, ExprKind, ProjectionClause, ProjectionItemKind, QueryKind, SetQuantifier,
    SortDirection, StatementKind,
};
use open_cypher::{Span, TokenKind, lex, parse};

use super::expression::{Expression, Slot};
use super::plan::{Aggregate, Clause, Item, Match, PathPattern, Procedure, Projection};

mod expressions;
mod grouping;
mod kinds;
mod patterns;

use kinds::Kind;

pub(super) use patterns::equal;

/// The longest query, in bytes.
const QUERY_BYTES_MAX: usize = 64 * 1024;

/// The most operators and brackets of a query: they nest, and what nests takes stack.
const OPERATORS_MAX: usize = 1500;

/// How deep expressions may nest.
const DEPTH_MAX: usize = 200;

/// A query, translated.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) clauses: Vec<Clause>,
    /// The width of a row.
    pub(super) slots: usize,
    /// The columns: their names, and where they stand.
    pub(super) columns: Vec<(String, Slot)>,
}

/// The state of a translation.
struct Translator<'a> {
    text: &'a str,
    /// The variables in scope.
    names: HashMap<String, Slot>,
    slots: usize,
    /// The kinds of the variables, as far as they are known.
    kinds: HashMap<Slot, Kind>,
    /// The edges of the pattern that is being translated.
    edges: HashSet<Slot>,
    /// How deep the expression is within others.
    depth: usize,
    /// The aggregates of the projection that is being translated; `None` where there may be none.
    aggregates: Option<Vec<Aggregate>>,
    /// Shortest paths in the expressions of the projection, to be matched before it.
    shortest: Vec<PathPattern>,
}

/// Translates a query.
///
/// # Errors
/// The error to answer with.
pub(super) fn translate(text: &str) -> Result<Translated, String> {
    check_size(text)?;
    let parsed = parse(&with_aggregates_as_names(text)).map_err(|errors| {
        let Some(first) = errors.diagnostics().first() else {
            return "ERR the query is not openCypher".to_owned();
        };
        format!("ERR {} at {}", first.message, place(text, first.primary_span))
    })?;
    let translator = Translator {
        text,
        names: HashMap::new(),
        slots: 0,
        kinds: HashMap::new(),
        edges: HashSet::new(),
        depth: 0,
        aggregates: None,
        shortest: Vec::new(),
    };
    let [statement] = &parsed.program.statements[..] else {
        return Err("ERR a request has one query".into());
    };
    let StatementKind::Query(statement) = &statement.kind else {
        return Err("ERR the query is not openCypher".into());
    };
    if let Some(mode) = &statement.mode {
        return Err(translator.refuse(
            "EXPLAIN or PROFILE before a query",
            mode.span,
            "use GRAPH.EXPLAIN or GRAPH.PROFILE",
        ));
    }
    let QueryKind::Regular(query) = &statement.query.kind else {
        return Err("ERR the query is not openCypher".into());
    };
    if let Some(union) = query.unions.first() {
        return Err(translator.refuse("UNION", union.operator.span, "send two queries"));
    }
    translator.query(&query.head.kind.clauses)
}

fn check_size(text: &str) -> Result<(), String> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(format!(
            "LIMIT the query has {} bytes, over the limit of {QUERY_BYTES_MAX}: give long lists as parameters",
            text.len()
        ));
    }
    let nests = |kind: TokenKind| {
        !kind.is_trivia()
            && !matches!(
                kind,
                TokenKind::Identifier
                    | TokenKind::EscapedIdentifier
                    | TokenKind::Parameter
                    | TokenKind::Integer
                    | TokenKind::HexInteger
                    | TokenKind::OctalInteger
                    | TokenKind::Float
                    | TokenKind::String
                    | TokenKind::Comma
            )
    };
    let operators = lex(text).tokens.iter().filter(|token| nests(token.kind)).count();
    match operators <= OPERATORS_MAX {
        true => Ok(()),
        false => Err(format!(
            "LIMIT the query has {operators} operators, keywords and brackets, over the limit of {OPERATORS_MAX}"
        )),
    }
}

/// The query with other names, as long, for `collect` and `count`: behind `null AS` or `END AS` the parser takes the words for the begin of a
/// subquery. Names of functions are read from the text itself.
fn with_aggregates_as_names(text: &str) -> String {
    let tokens = lex(text).tokens;
    let tokens: Vec<_> = tokens.iter().filter(|token| !token.kind.is_trivia()).collect();
    let mut written = text.to_owned();
    for next in tokens.windows(3) {
        let is = |name: &str| {
            next[0]
                .span
                .text(text)
                .is_some_and(|word| word.eq_ignore_ascii_case(name))
        };
        let is_call = next[1].kind == TokenKind::LeftParen && next[2].span.text(text) != Some("*");
        if is_call && (is("collect") || is("count")) {
            let end = next[0].span.end();
            written.replace_range(end - 1..end, "_");
        }
    }
    written
}

/// Where something stands, as `line:column`, and what.
fn place(text: &str, span: Span) -> String {
    let before = text.get(..span.start()).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let found: String = span.text(text).unwrap_or_default().chars().take(40).collect();
    match found.is_empty() {
        true => format!("{line}:{column}"),
        false => format!("{line}:{column}: {found:?}"),
    }
}

impl Translator<'_> {
    /// The error for what is not supported.
    fn refuse(&self, what: &str, span: Span, remedy: &str) -> String {
        format!("ERR {what} is not supported, at {}: {remedy}", place(self.text, span))
    }

    /// The error for what is wrong.
    fn wrong(&self, what: &str, span: Span) -> String {
        format!("ERR {what}, at {}", place(self.text, span))
    }

    fn new_slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    fn query(mut self, clauses: &[ast::Clause]) -> Result<Translated, String> {
        let mut translated = Vec::new();
        let mut columns = Vec::new();
        for (at, clause) in clauses.iter().enumerate() {
            let is_last = at + 1 == clauses.len();
            match &clause.kind {
                ClauseKind::Match(clause) => {
                    let found = self.match_clause(clause)?;
                    translated.push(Clause::Match(found));
                }
                ClauseKind::Unwind(clause) => {
                    let list = self.expression(&clause.expression)?;
                    self.is_free(&clause.variable)?;
                    let slot = self.new_slot();
                    self.names.insert(clause.variable.kind.text.clone(), slot);
                    translated.push(Clause::Unwind { list, slot });
                }
                ClauseKind::With(clause) => {
                    let condition = clause.where_clause.as_ref();
                    self.named(&clause.projection)?;
                    self.projection(&clause.projection, condition, &mut translated)?;
                }
                ClauseKind::Return(clause) if is_last => {
                    columns = self.projection(&clause.projection, None, &mut translated)?;
                }
                ClauseKind::Call(call) => {
                    let column = self.call(call, clause.span, &mut translated)?;
                    if is_last {
                        columns.push(column);
                    }
                }
                other => {
                    return Err(self.refuse(
                        clause_name(other),
                        clause.span,
                        "queries have MATCH, UNWIND, WITH, CALL and, last, RETURN; see docs/graph.md",
                    ));
                }
            }
        }
        if columns.is_empty() {
            return Err("ERR the query ends without RETURN".into());
        }
        Ok(Translated {
            clauses: translated,
            slots: self.slots,
            columns,
        })
    }

    fn match_clause(&mut self, clause: &ast::MatchClause) -> Result<Match, String> {
        if let Some(mode) = &clause.mode {
            return Err(self.refuse("a mode of paths", mode.span, "paths have each edge once"));
        }
        if let Some(hint) = clause.hints.first() {
            return Err(self.refuse("USING", hint.span, "leave it out"));
        }
        self.edges.clear();
        let mut conditions = Vec::new();
        let parts = clause.pattern.parts.iter();
        let paths = parts
            .map(|part| self.path(part, &mut conditions))
            .collect::<Result<_, _>>()?;
        if let Some(condition) = &clause.where_clause {
            self.condition(condition)?.conjuncts(&mut conditions);
        }
        Ok(Match {
            optional: clause.optional,
            paths,
            conditions,
        })
    }

    /// `WITH` or `RETURN`: its columns.
    fn projection(
        &mut self,
        clause: &ProjectionClause,
        condition: Option<&ast::Expr>,
        translated: &mut Vec<Clause>,
    ) -> Result<Vec<(String, Slot)>, String> {
        self.aggregates = Some(Vec::new());
        let items = self.items(clause)?;
        let quantifier = clause.quantifier.as_ref().map(|quantifier| quantifier.kind);
        let distinct = quantifier == Some(SetQuantifier::Distinct);
        let columns: HashMap<String, Slot> = items.iter().map(|item| (item.name.clone(), item.slot)).collect();
        let behind = Behind {
            before: self.names.clone(),
            is_plain: !distinct && !items.iter().any(|item| item.aggregated),
            items: &items,
        };
        // Columns hide variables of the same names.
        self.names.extend(columns.clone());
        let mut order = Vec::new();
        for sort in clause.order_by.iter().flat_map(|order| &order.items) {
            if let Some(nulls) = &sort.nulls {
                return Err(self.refuse(
                    "NULLS FIRST or LAST",
                    nulls.span,
                    "nulls are last, and first if descending",
                ));
            }
            let descending = sort
                .direction
                .as_ref()
                .is_some_and(|by| by.kind == SortDirection::Descending);
            order.push((self.behind(&sort.expression, &behind)?, descending));
        }
        let aggregates = self.aggregates.take().unwrap_or_default();
        let condition = match condition {
            Some(written) => {
                let condition = self.behind(written, &behind)?;
                self.is_condition(&condition, written.span)?;
                Some(condition)
            }
            None => None,
        };
        // They are the same for all rows.
        self.names.clear();
        let number = |translator: &mut Self, number: Option<&ast::Expr>| -> Result<Option<Expression>, String> {
            number.map(|number| translator.expression(number)).transpose()
        };
        let skip = number(self, clause.skip.as_ref().or(clause.offset.as_ref()))?;
        let limit = number(self, clause.limit.as_ref())?;
        self.names = columns;
        let columns = items.iter().map(|item| (item.name.clone(), item.slot)).collect();
        // A path that is not there is null.
        translated.extend(self.shortest.drain(..).map(|path| {
            Clause::Match(Match {
                optional: true,
                paths: vec![path],
                conditions: Vec::new(),
            })
        }));
        translated.push(Clause::Project(Projection {
            items,
            aggregates,
            distinct,
            order,
            skip,
            limit,
            condition,
        }));
        Ok(columns)
    }

    fn items(&mut self, clause: &ProjectionClause) -> Result<Vec<Item>, String> {
        let mut items: Vec<Item> = Vec::new();
        let mut mixed = Vec::new();
        for item in &clause.items {
            match &item.kind {
                ProjectionItemKind::Wildcard => {
                    let mut all: Vec<(String, Slot)> = self.names.clone().into_iter().collect();
                    all.sort_unstable();
                    if all.is_empty() {
                        return Err(self.wrong("there are no variables here", item.span));
                    }
                    for (name, slot) in all {
                        let expression = Expression::Variable(slot);
                        items.push(self.item(name, expression, false));
                    }
                }
                ProjectionItemKind::Expression { expression, alias } => {
                    let name = match alias {
                        Some(alias) => alias.kind.text.clone(),
                        None => expression.span.text(self.text).unwrap_or_default().trim().to_owned(),
                    };
                    if items.iter().any(|item| item.name == name) {
                        return Err(self.wrong("two columns have one name", item.span));
                    }
                    let aggregates = self.aggregates.as_ref().map_or(0, Vec::len);
                    let translated = self.expression(expression)?;
                    let mut aggregated = self.aggregates.as_ref().map_or(0, Vec::len) > aggregates;
                    aggregated |= has_aggregate(&translated);
                    if aggregated {
                        mixed.push((items.len(), expression.span));
                    }
                    items.push(self.item(name, translated, aggregated));
                }
                _ => return Err(self.refuse("this column", item.span, "name an expression")),
            }
        }
        for (at, span) in mixed {
            self.is_grouped(&items[at].expression, &items, span)?;
        }
        Ok(items)
    }

    fn item(&mut self, name: String, expression: Expression, aggregated: bool) -> Item {
        let slot = self.new_slot();
        self.kinds.insert(slot, self.kind(&expression));
        Item {
            expression,
            slot,
            name,
            aggregated,
        }
    }

    /// The condition of a `WHERE`.
    fn condition(&mut self, written: &ast::Expr) -> Result<Expression, String> {
        let condition = self.expression(written)?;
        self.is_condition(&condition, written.span)?;
        Ok(condition)
    }

    /// Checks that a variable has no value yet.
    fn is_free(&self, name: &ast::Name) -> Result<(), String> {
        match self.names.contains_key(&name.kind.text) {
            true => Err(self.wrong("the variable has a value already", name.span)),
            false => Ok(()),
        }
    }

    /// Checks that the columns of a `WITH` have names that are variables.
    fn named(&self, clause: &ProjectionClause) -> Result<(), String> {
        for item in &clause.items {
            if let ProjectionItemKind::Expression {
                expression,
                alias: None,
            } = &item.kind
                && !matches!(expression.kind, ExprKind::Variable(_))
            {
                return Err(self.wrong("a column of WITH has a name: write AS and one", item.span));
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &ast::CallClause,
        span: Span,
        translated: &mut Vec<Clause>,
    ) -> Result<(String, Slot), String> {
        let CallTarget::Procedure { name, arguments } = &call.target else {
            return Err(self.refuse("a subquery", span, "use WITH"));
        };
        let parts: Vec<&str> = name.parts.iter().map(|part| part.kind.text.as_str()).collect();
        let name_here = parts.join(".").to_lowercase();
        let Some(&(_, procedure, column)) = Procedure::ALL.iter().find(|(name, ..)| *name == name_here) else {
            return Err(self.refuse(
                "this procedure",
                name.span,
                "there are db.labels, db.relationshipTypes, db.propertyKeys and db.indexes",
            ));
        };
        if arguments.as_ref().is_some_and(|arguments| !arguments.is_empty()) {
            return Err(self.wrong("the procedure takes no arguments", span));
        }
        let slot = self.new_slot();
        let mut variable = column.to_owned();
        if let Some(yields) = &call.yield_clause {
            if let Some(condition) = &yields.where_clause {
                return Err(self.refuse("WHERE behind YIELD", condition.span, "put it behind WITH"));
            }
            for item in &yields.items {
                if let ProjectionItemKind::Expression { expression, alias } = &item.kind {
                    if expression.span.text(self.text) != Some(column) {
                        return Err(self.wrong(&format!("the procedure yields {column}"), item.span));
                    }
                    if let Some(alias) = alias {
                        variable.clone_from(&alias.kind.text);
                    }
                }
            }
        }
        if self.names.insert(variable.clone(), slot).is_some() {
            return Err(self.wrong(&format!("the variable {variable} has a value already"), span));
        }
        translated.push(Clause::Procedure { procedure, slot });
        Ok((variable, slot))
    }
}

/// The names that `ORDER BY` and `WHERE` of a projection may use.
struct Behind<'a> {
    items: &'a [Item],
    /// The variables before the projection.
    before: HashMap<String, Slot>,
    /// Whether each row has its columns and all variables before them.
    is_plain: bool,
}

fn has_aggregate(expression: &Expression) -> bool {
    let mut found = false;
    expression.for_each(&mut |part| found |= matches!(part, Expression::Aggregate(_)));
    found
}

fn clause_name(clause: &ClauseKind) -> &'static str {
    match clause {
        ClauseKind::Create(_) | ClauseKind::Insert(_) => "CREATE",
        ClauseKind::Merge(_) => "MERGE",
        ClauseKind::Delete(_) => "DELETE",
        ClauseKind::Set(_) => "SET",
        ClauseKind::Remove(_) => "REMOVE",
        ClauseKind::Foreach(_) => "FOREACH",
        ClauseKind::LoadCsv(_) => "LOAD CSV",
        ClauseKind::Use(_) => "USE",
        ClauseKind::Return(_) => "RETURN before the end",
        _ => "this clause",
    }
}
