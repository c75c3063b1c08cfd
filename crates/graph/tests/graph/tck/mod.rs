//! The scenarios of openCypher's TCK, fetched by Maven, for the clauses and expressions that queries have.
//!
//! A scenario passes if the answer is the expected one, or an error where one is due. It is refused if the error says what is not
//! supported. Everything else is wrong.

mod feature;
mod graph;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::memory::limits;
use feature::{Scenario, Step, scenarios};
use fondaco_graph::query::{Prepared, Value, split_parameters};
use graph::Graph;

/// Folders of features about what queries do not have: changes, and values of time.
const LEFT_OUT: [&str; 7] = [
    "clauses/create",
    "clauses/delete",
    "clauses/merge",
    "clauses/remove",
    "clauses/set",
    "clauses/union",
    "expressions/temporal",
];

#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    Refused(String),
    Wrong(String),
}

#[test]
fn scenarios_of_the_tck_pass_or_are_refused_by_name() {
    let unpacked = fondaco_testing::opencypher_tck();
    let root = unpacked.path();
    let mut files = Vec::new();
    features(&root.join("features"), &mut files);
    files.sort();
    let (mut passed, mut refused, mut wrong) = (0, BTreeMap::<String, usize>::new(), Vec::new());
    for file in &files {
        let name = file.strip_prefix(root.join("features")).unwrap().display().to_string();
        if LEFT_OUT.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        for scenario in scenarios(&without_names(&fs::read_to_string(file).unwrap())) {
            match outcome(&scenario, root) {
                Outcome::Passed => passed += 1,
                Outcome::Refused(why) => *refused.entry(why).or_default() += 1,
                Outcome::Wrong(why) => wrong.push(format!("{name}: {}: {why}", scenario.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let mut table = format!("| passed | {passed} |\n| wrong | 0 |\n");
    table += &format!("| refused | {} |\n", refused.values().sum::<usize>());
    let mut refused: Vec<_> = refused.into_iter().collect();
    refused.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    for (why, times) in refused {
        table += &format!("| … {why} | {times} |\n");
    }
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/graph.md")).unwrap();
    assert!(docs.contains(&table), "docs/graph.md has to have the table:\n{table}");
}

fn features(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => features(&path, files),
            false => files.push(path),
        }
    }
}

/// The property `name` identifies a vertex here, and several vertices of the TCK have one name: it is another property.
fn without_names(text: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("name") {
        let (before, after) = (&rest[..at], &rest[at + 4..]);
        out.push_str(before);
        let is_word = !is_part(out.chars().last()) && !is_part(after.chars().next());
        out.push_str(if is_word { "nom" } else { "name" });
        rest = after;
    }
    // One scenario puts the word together.
    (out + rest).replace("'nam' + 'e'", "'no' + 'm'")
}

fn outcome(scenario: &Scenario, root: &Path) -> Outcome {
    let mut graph = Graph::default();
    let mut no_graph = None;
    let mut parameters = BTreeMap::new();
    let mut query = String::new();
    for step in &scenario.steps {
        let mut make = |text: &str| {
            if let Err(why) = graph.execute(text) {
                no_graph.get_or_insert(format!("the graph of the scenario: {}", before_place(&why)));
            }
        };
        if step.says.starts_with("having executed") {
            make(&step.text);
        } else if let Some(name) = step
            .says
            .strip_prefix("the ")
            .and_then(|says| says.strip_suffix(" graph"))
        {
            let graph = fs::read_to_string(root.join(format!("graphs/{name}/{name}.cypher"))).unwrap();
            make(&without_names(&graph));
        } else if step.says.starts_with("parameters are") {
            for row in &step.table {
                let text = format!("CYPHER {}={} RETURN 1", row[0], row[1]);
                parameters.extend(split_parameters(&text).unwrap().0);
            }
        } else if step.says.starts_with("there exists a procedure") {
            return Outcome::Refused("procedures of the scenario".into());
        } else if step.says.starts_with("executing query") {
            query.clone_from(&step.text);
        } else if step.says.starts_with("the result should be") || step.says.contains("should be raised") {
            return compared(step, &query, &graph, no_graph, &parameters);
        }
    }
    Outcome::Wrong("the scenario has no result".into())
}

fn compared(
    step: &Step,
    query: &str,
    graph: &Graph,
    no_graph: Option<String>,
    parameters: &BTreeMap<String, Value>,
) -> Outcome {
    let is_error = step.says.contains("should be raised");
    let answer = match (Prepared::new(query), no_graph) {
        (Ok(_), Some(why)) => return Outcome::Refused(why),
        (Err(error), _) => Err(error),
        (Ok(_), None) => graph.memory().ask_with(query, parameters, &limits()),
    };
    let answer = match answer {
        Err(error) if error.contains("not supported") => return Outcome::Refused(before_place(&error)),
        Err(error) if error.starts_with("LIMIT") => return Outcome::Refused(error),
        Err(_) if is_error => return Outcome::Passed,
        Err(error) => return Outcome::Wrong(format!("{query}\n    {error}")),
        Ok(_) if is_error => return Outcome::Wrong(format!("{query}\n    is answered, and {}", step.says)),
        Ok(answer) => answer,
    };
    let any_order = step.says.contains("ignoring element order");
    let mut found: Vec<Vec<String>> = Vec::new();
    for row in &answer.rows {
        found.push(
            row.iter()
                .map(|value| values::found(value, &answer, any_order))
                .collect(),
        );
    }
    let mut rows = step.table.iter();
    let columns = rows.next().cloned().unwrap_or_else(|| answer.columns.clone());
    let mut expected: Vec<Vec<String>> = Vec::new();
    for row in rows {
        expected.push(row.iter().map(|cell| values::expected(cell, any_order)).collect());
    }
    if !step.says.contains("in order") {
        found.sort();
        expected.sort();
    }
    match answer.columns == columns && found == expected {
        true => Outcome::Passed,
        false => Outcome::Wrong(format!(
            "{query}\n    has {:?} {found:?}\n    and not {columns:?} {expected:?}",
            answer.columns
        )),
    }
}

/// The part of an error that names what is not supported, without the place in the query.
fn before_place(error: &str) -> String {
    let error = error.split(", at ").next().unwrap_or(error);
    let error = error.strip_prefix("ERR ").unwrap_or(error);
    error.strip_suffix(" is not supported").unwrap_or(error).to_owned()
}
