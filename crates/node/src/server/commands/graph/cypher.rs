//! `GRAPH.QUERY` and its like.

use fondaco_graph::query::{Prepared, Step, split_parameters};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Reply, parse_integer};

use super::{ask, falkor, graph_named};
use crate::graph::{Answer, Asked, Query};
use crate::server::commands::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use crate::server::refusal;

/// Options behind a query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    compact: bool,
    partial: bool,
    timeout_ms: Option<u64>,
}

/// `GRAPH.QUERY graph query [--compact] [timeout ms] [version n] [PARTIAL]`
pub(in crate::server::commands) async fn query(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let options = Options::parse(&call.arguments[3..])?;
    match carry_out(call, false, &options).await? {
        Answer::Query(result, description) if options.compact => falkor::compact(&result, &description, reply),
        Answer::Query(result, _) => falkor::verbose(&result, reply),
        Answer::Question(_) | Answer::Steps(_) => {}
    }
    Ok(())
}

/// `GRAPH.EXPLAIN graph query`, `GRAPH.PROFILE graph query`: the last step first, each with the one before it indented.
pub(in crate::server::commands) async fn explain(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let explain = call.command == CommandId::GraphExplain;
    let options = Options::parse(&call.arguments[3..])?;
    let took = |text: &str, rows: u64, milliseconds: f64| {
        format!("{text} | Records produced: {rows}, Execution time: {milliseconds:.6} ms")
    };
    let mut steps: Vec<String> = match carry_out(call, explain, &options).await? {
        Answer::Steps(steps) => steps.into_iter().chain(["Results".to_owned()]).collect(),
        Answer::Query(result, _) => {
            let step = |step: &Step| {
                let text = format!("{}, {} requests", step.text, step.requests);
                took(&text, step.rows, step.milliseconds)
            };
            // The rows are there when the last step has given them on.
            let results = took("Results", result.rows.len() as u64, 0.0);
            result.profile.iter().map(step).chain([results]).collect()
        }
        Answer::Question(_) => Vec::new(),
    };
    steps.reverse();
    reply.array(steps.len());
    for (depth, step) in steps.into_iter().enumerate() {
        reply.bulk(format!("{}{step}", "    ".repeat(depth)).as_bytes());
    }
    Ok(())
}

async fn carry_out(call: &Call<'_>, explain: bool, options: &Options) -> Result<Answer, Refusal> {
    let store = graph_named(call, call.arguments[1], 1)?;
    let text = str::from_utf8(call.arguments[2]).map_err(|_| "ERR a query is text in UTF-8")?;
    let (parameters, text) = split_parameters(text)?;
    let query = Query {
        prepared: Prepared::new(text)?,
        parameters,
        explain,
        partial: options.partial,
    };
    ask(call, store, Asked::Query(query), options.timeout_ms).await
}

impl Options {
    fn parse(arguments: &[&[u8]]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"--compact" => options.compact = true,
                b"partial" => options.partial = true,
                b"timeout" => {
                    let timeout = parse_integer(rest.next().ok_or(SYNTAX_ERROR)?);
                    let timeout = timeout.and_then(|timeout| u64::try_from(timeout).ok());
                    // As in FalkorDB, 0 is no timeout of its own.
                    options.timeout_ms = Some(timeout.ok_or(NOT_AN_INTEGER)?).filter(|&timeout| timeout > 0);
                }
                // The version of a schema that a client knows: ours has none that changes under it.
                b"version" => drop(rest.next().ok_or(SYNTAX_ERROR)?),
                _ => {
                    return Err(format!(
                        "ERR unknown option {}: use --compact, timeout, version or PARTIAL",
                        refusal::quoted(word)
                    ));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_falkor_db_and_partial() {
        let parsed = |text: &str| Options::parse(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let expected = Options {
            compact: true,
            partial: true,
            timeout_ms: Some(50),
        };
        assert_eq!(parsed("--compact timeout 50 PARTIAL").unwrap(), expected);
        assert_eq!(parsed("timeout 0").unwrap(), Options::default());
        assert!(parsed("timeout").is_err() && parsed("timeout x").is_err());
        assert!(parsed("--fast").unwrap_err().contains("--fast"));
    }
}
