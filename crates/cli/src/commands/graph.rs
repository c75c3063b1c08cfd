//! `fondaco graph`: queries of graphs, over RESP.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fondaco_model::StoreName;
use redis::Value;
use serde_json::{Map, json};

use super::WrongUsage;
use crate::control_port::ControlPort;
use crate::output::{Output, table};

/// `fondaco graph`.
#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Answer a query in openCypher
    Query(QueryOptions),
    /// Show the steps of a query, without carrying it out
    Explain(StepsOptions),
    /// Carry a query out, and show its steps with the time that each took
    Profile(StepsOptions),
    /// List the graphs
    List(ListOptions),
    /// Complete edges of a versioned graph that a crash has left half written or half removed
    Repair(RepairOptions),
}

/// `fondaco graph query`.
#[derive(Debug, Args)]
#[command(after_help = "\
docs/graph.md has a table of what is accepted.

Example:
  fondaco graph query social 'MATCH (a {name: $name})-[:KNOWS]-(b) RETURN b.name LIMIT 10' --parameter name='\"ann\"'")]
pub struct QueryOptions {
    #[command(flatten)]
    query: QueryText,

    /// How long it may take
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,

    /// If it ends at a limit, print the rows so far
    #[arg(long)]
    partial: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco graph explain` and `profile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco graph explain social 'MATCH (a {name: \"ann\"})-[:KNOWS*1..2]-(b) RETURN count(DISTINCT b)'")]
pub struct StepsOptions {
    #[command(flatten)]
    query: QueryText,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco graph list`.
#[derive(Debug, Args)]
pub struct ListOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco graph repair`.
#[derive(Debug, Args)]
#[command(after_help = "\
An edge is two records, one at each end. A process that is killed between them leaves one; so does a change without a
quorum. The change made again completes it, or this command, which goes through all vertices while the graph is in use.

Example:
  fondaco graph repair social")]
pub struct RepairOptions {
    /// The graph
    graph: StoreName,

    #[command(flatten)]
    node: ControlPort,
}

/// A query, with its graph and parameters.
#[derive(Debug, Args)]
struct QueryText {
    /// The graph
    graph: StoreName,

    /// The query
    query: String,

    /// A parameter of the query: name=value, the value as JSON
    #[arg(long = "parameter", value_name = "NAME=JSON")]
    parameters: Vec<String>,
}

impl QueryText {
    /// The query with its parameters in front.
    fn text(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        for parameter in &self.parameters {
            let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let Some((name, value)) = parameter.split_once('=').filter(|(name, _)| is_name(name)) else {
                bail!(WrongUsage(format!(
                    "invalid parameter {parameter:?}: write name=value, the name in letters, digits and underscores, the value as JSON"
                )));
            };
            let json: serde_json::Value = serde_json::from_str(value)
                .map_err(|error| WrongUsage(format!("the value of parameter {name:?} is no JSON: {error}")))?;
            let start = if text.is_empty() { "CYPHER " } else { "" };
            text.push_str(&format!("{start}`{name}`={} ", constant(&json)));
        }
        Ok(text + &self.query)
    }
}

/// Runs `fondaco graph`.
pub fn run(command: GraphCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        GraphCommand::Query(options) => query(&options, output),
        GraphCommand::Explain(options) => steps("GRAPH.EXPLAIN", &options, output),
        GraphCommand::Profile(options) => steps("GRAPH.PROFILE", &options, output),
        GraphCommand::List(options) => {
            let names: Vec<String> = ask(&options.node, &mut redis::cmd("GRAPH.LIST"))?;
            output.result(&names, |names| names.iter().map(|name| format!("{name}\n")).collect())
        }
        GraphCommand::Repair(options) => repair(&options, output),
    }
}

fn repair(options: &RepairOptions, output: &Output) -> anyhow::Result<()> {
    let mut connection = options.node.connect()?;
    let (mut cursor, mut repaired) = ("0".to_owned(), 0);
    loop {
        let mut command = redis::cmd("FONDACO.EDGE");
        command.arg("REPAIR").arg(options.graph.as_str()).arg(&cursor);
        let (next, number): (String, u64) = command.query(&mut *connection).map_err(fondaco_admin::refused)?;
        repaired += number;
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    output.result(&json!({ "repaired": repaired }), |_| {
        format!("{repaired} edges were half there, and are repaired\n")
    })
}

fn query(options: &QueryOptions, output: &Output) -> anyhow::Result<()> {
    let mut command = redis::cmd("GRAPH.RO_QUERY");
    command.arg(options.query.graph.as_str()).arg(options.query.text()?);
    if let Some(timeout) = options.timeout {
        command.arg("timeout").arg(timeout.as_millis() as u64);
    }
    if options.partial {
        command.arg("PARTIAL");
    }
    let (columns, rows, notes): (Vec<String>, Vec<Vec<Value>>, Vec<String>) = ask(&options.node, &mut command)?;
    for note in notes.iter().filter(|note| note.starts_with("Partial")) {
        output.note(note);
    }
    let rows: Vec<Vec<serde_json::Value>> = rows.iter().map(|row| row.iter().map(of_reply).collect()).collect();
    output.result(&json!({ "columns": columns, "rows": rows, "notes": notes }), |_| {
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(text).collect()).collect();
        let header: Vec<&str> = columns.iter().map(String::as_str).collect();
        table(&header, &rows, &vec![false; columns.len()])
    })
}

fn steps(name: &str, options: &StepsOptions, output: &Output) -> anyhow::Result<()> {
    let mut command = redis::cmd(name);
    command.arg(options.query.graph.as_str()).arg(options.query.text()?);
    let lines: Vec<String> = ask(&options.node, &mut command)?;
    output.result(&lines, |lines| lines.iter().map(|line| format!("{line}\n")).collect())
}

fn ask<T: redis::FromRedisValue>(node: &ControlPort, command: &mut redis::Cmd) -> anyhow::Result<T> {
    let mut connection = node.connect()?;
    let reply: Value = command.query(&mut *connection).map_err(fondaco_admin::refused)?;
    redis::from_redis_value(reply).context("the answer is not what this release expects: use a matching one")
}

/// A value as the query language writes it.
fn constant(json: &serde_json::Value) -> String {
    match json {
        serde_json::Value::Array(values) => {
            let values: Vec<String> = values.iter().map(constant).collect();
            format!("[{}]", values.join(","))
        }
        serde_json::Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("`{name}`:{}", constant(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        other => other.to_string(),
    }
}

/// A value of a reply; vertices and edges are lists of names and values there.
fn of_reply(value: &Value) -> serde_json::Value {
    match value {
        Value::Int(int) => (*int).into(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into(),
        Value::SimpleString(text) => text.as_str().into(),
        Value::Array(values) => {
            let entries = values.iter().map(|value| match value {
                Value::Array(pair) => match &pair[..] {
                    [Value::BulkString(name), value] => {
                        Some((String::from_utf8_lossy(name).into_owned(), of_reply(value)))
                    }
                    _ => None,
                },
                _ => None,
            });
            match entries.collect::<Option<Map<String, serde_json::Value>>>() {
                Some(map) if !map.is_empty() => map.into(),
                _ => values.iter().map(of_reply).collect(),
            }
        }
        _ => serde_json::Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_in_front_of_the_query() {
        let text = |parameters: &[&str]| {
            let query = QueryText {
                graph: "social".parse().unwrap(),
                query: "RETURN $a".into(),
                parameters: parameters.iter().map(|&parameter| parameter.to_owned()).collect(),
            };
            query.text()
        };
        let both = text(&["a=\"x\"", "b=[1,{\"k\":null}]"]).unwrap();
        assert_eq!(both, "CYPHER `a`=\"x\" `b`=[1,{`k`:null}] RETURN $a");
        assert_eq!(text(&[]).unwrap(), "RETURN $a");
        assert!(text(&["a"]).unwrap_err().is::<WrongUsage>());
        assert!(text(&["a=x"]).unwrap_err().to_string().contains("JSON"));
    }

    #[test]
    fn vertices_of_a_reply_are_maps() {
        let text = |text: &str| Value::BulkString(text.into());
        let pair = |name: &str, value| Value::Array(vec![text(name), value]);
        let vertex = Value::Array(vec![
            pair("id", Value::Int(3)),
            pair("labels", Value::Array(vec![text("Person")])),
        ]);
        assert_eq!(of_reply(&vertex), json!({"id": 3, "labels": ["Person"]}));
        assert_eq!(of_reply(&Value::Nil), json!(null));
    }
}
