//! Parameters in front of a query, as clients of FalkorDB send them: `CYPHER name=value … query`.

use std::collections::BTreeMap;

use open_cypher::{TokenKind, lex};

use super::evaluation::{Evaluation, Known, Missing};
use super::plan::Clause;
use super::translate::translate;
use super::value::Value;

/// The parameters, and the query behind them.
///
/// # Errors
/// The error to answer with: a value that is no constant.
pub fn split_parameters(text: &str) -> Result<(BTreeMap<String, Value>, &str), String> {
    let mut parameters = BTreeMap::new();
    let Some(header) = text
        .trim_start()
        .get(..7)
        .filter(|word| word.eq_ignore_ascii_case("cypher "))
    else {
        return Ok((parameters, text));
    };
    let mut rest = &text.trim_start()[header.len()..];
    loop {
        let tokens = lex(rest).tokens;
        let mut tokens = tokens.iter().filter(|token| !token.kind.is_trivia());
        let (Some(name), Some(equals)) = (tokens.next(), tokens.next()) else {
            return Ok((parameters, rest));
        };
        if equals.kind != TokenKind::Equal {
            return Ok((parameters, rest));
        }
        let name = name.span.text(rest).unwrap_or_default().trim_matches('`');
        // A value is one token, with a sign or not, or all up to the bracket that closes it.
        let (mut depth, mut end) = (0_i64, equals.span.end());
        for token in tokens {
            match token.kind {
                TokenKind::LeftBracket | TokenKind::LeftBrace | TokenKind::LeftParen => depth += 1,
                TokenKind::RightBracket | TokenKind::RightBrace | TokenKind::RightParen => depth -= 1,
                _ => {}
            }
            end = token.span.end();
            if depth <= 0 && !matches!(token.kind, TokenKind::Minus | TokenKind::Plus) {
                break;
            }
        }
        let value = rest.get(equals.span.end()..end).unwrap_or_default();
        parameters.insert(name.to_owned(), constant(name, value)?);
        rest = &rest[end..];
    }
}

fn constant(name: &str, text: &str) -> Result<Value, String> {
    let wrong = |error: String| format!("ERR the value of parameter ${name}: {error}");
    let translated = translate(&format!("RETURN {text}")).map_err(wrong)?;
    let [Clause::Project(projection)] = &translated.clauses[..] else {
        return Err(wrong("it is no constant".into()));
    };
    let mut evaluation = Evaluation {
        known: &Known::default(),
        missing: Missing::default(),
    };
    let mut row = vec![Value::Null; translated.slots];
    match &projection.items[..] {
        [item] => evaluation.value(&item.expression, &mut row).map_err(wrong),
        _ => Err(wrong("it is not one value".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_in_front_of_the_query() {
        let text = r#"CYPHER `name`="a \"b\"" least=-3 list=[1,[2.5,null],{`k`:true}] MATCH (a) RETURN a"#;
        let (parameters, query) = split_parameters(text).unwrap();
        assert_eq!(query.trim(), "MATCH (a) RETURN a");
        assert_eq!(parameters["name"], Value::Text("a \"b\"".into()));
        assert_eq!(parameters["least"], Value::Int(-3));
        assert_eq!(
            parameters["list"].to_json().unwrap(),
            serde_json::json!([1, [2.5, null], {"k": true}])
        );
        let (none, query) = split_parameters("MATCH (a) RETURN a").unwrap();
        assert!(none.is_empty() && query == "MATCH (a) RETURN a");
        assert!(split_parameters("CYPHER a=[1 RETURN a").unwrap_err().contains("$a"));
    }
}
