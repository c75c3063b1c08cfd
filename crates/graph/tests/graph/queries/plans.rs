//! The same answer whichever way a query is carried out, and limits.

use std::collections::BTreeSet;

use fondaco_graph::query::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use crate::memory::{Memory, Parts, limits};

const VERTICES: u64 = 7;

fn graph() -> impl Strategy<Value = Memory> {
    let edges = || vec((0..VERTICES, 0..VERTICES), 0..14);
    (edges(), edges()).prop_map(|(symmetric, directed)| {
        let told = |edges: Vec<(u64, u64)>| edges.into_iter().map(|(from, to)| (from, to, None)).collect();
        Memory::new(&Parts {
            vertices: (0..VERTICES)
                .map(|id| (vec!["V"], json!({"name": format!("v{id}")})))
                .collect(),
            types: vec![("S", true, told(symmetric)), ("D", false, told(directed))],
        })
    })
}

fn hop() -> impl Strategy<Value = String> {
    let length = prop_oneof![
        Just("*1..2"),
        Just("*1..3"),
        Just("*2"),
        Just("*0..2"),
        Just("*0..3"),
        Just("")
    ];
    let types = prop_oneof![Just(":S"), Just(":D"), Just(":S|D"), Just("")];
    let arrows = prop_oneof![Just(("-", "->")), Just(("<-", "-")), Just(("-", "-"))];
    (length, types, arrows).prop_map(|(length, types, (left, right))| format!("{left}[{types}{length}]{right}"))
}

fn ids(rows: &[Vec<Value>]) -> BTreeSet<i64> {
    let id = |row: &Vec<Value>| match row[0] {
        Value::Int(id) => id,
        ref other => panic!("{other:?} is no id"),
    };
    rows.iter().map(id).collect()
}

proptest! {
    #[test]
    fn sets_and_paths_lead_to_the_same_vertices(
        graph in graph(),
        hop in hop(),
        second in proptest::option::of(prop_oneof![Just("-[:S]-()"), Just("-[:D]->()"), Just("-[]-()")]),
        backwards in any::<bool>(),
    ) {
        let pattern = match (&second, backwards) {
            (Some(second), false) if !hop.contains('*') => format!("(a {{name: 'v1'}}){}(b)", [&second[..], &hop].concat()),
            (_, false) => format!("(a {{name: 'v1'}}){hop}(b)"),
            (_, true) => format!("(b){hop}(a {{name: 'v1'}})"),
        };
        // A path with a name is followed edge by edge.
        let sets = graph.ask(&format!("MATCH {pattern} RETURN DISTINCT id(b)")).unwrap();
        let paths = graph.ask(&format!("MATCH p = {pattern} RETURN DISTINCT id(b)")).unwrap();
        prop_assert_eq!(ids(&sets.rows), ids(&paths.rows), "{}", pattern);
        let count = graph.ask(&format!("MATCH {pattern} RETURN count(DISTINCT b)")).unwrap();
        prop_assert_eq!(&count.rows[0][0], &Value::Int(paths.rows.len() as i64), "{}", pattern);
    }

    #[test]
    fn a_shortest_path_is_as_short_as_any(graph in graph(), from in 0..VERTICES, to in 0..VERTICES) {
        prop_assume!(from != to);
        for hop in ["-[:S*1..4]-", "-[:D*1..4]->", "-[*1..4]-"] {
            let ends = format!("(a {{name: 'v{from}'}}){hop}(b {{name: 'v{to}'}})");
            let all = graph.ask(&format!("MATCH p = {ends} RETURN min(length(p))")).unwrap();
            let shortest = format!(
                "MATCH (a {{name: 'v{from}'}}), (b {{name: 'v{to}'}}) RETURN length(shortestPath((a){hop}(b)))"
            );
            let shortest = graph.ask(&shortest).unwrap();
            prop_assert_eq!(&shortest.rows, &all.rows, "{}", ends);
        }
    }
}

/// A complete graph.
fn hub(others: u64) -> Memory {
    let edges = (0..=others).flat_map(|one| (one + 1..=others).map(move |other| (one, other, None)));
    Memory::new(&Parts {
        vertices: (0..=others)
            .map(|id| (vec!["V"], json!({"name": format!("v{id}")})))
            .collect(),
        types: vec![("S", true, edges.collect())],
    })
}

#[test]
fn all_paths_of_a_hub_end_at_a_limit() {
    let graph = hub(60);
    let query = "MATCH p = (a {name: 'v0'})-[:S*1..6]-(b) RETURN p";
    let error = graph.ask(query).unwrap_err();
    assert!(
        error.starts_with("LIMIT") && error.contains("graph-rows-max"),
        "{error}"
    );
    let few = fondaco_graph::query::Limits {
        expanded_max: 1000,
        ..limits()
    };
    let error = graph.ask_with(query, &Default::default(), &few).unwrap_err();
    assert!(
        error.starts_with("LIMIT") && error.contains("graph-expanded-max"),
        "{error}"
    );
    let late = fondaco_graph::query::Limits {
        may_go_on: Box::new(|| false),
        ..limits()
    };
    let error = graph.ask_with(query, &Default::default(), &late).unwrap_err();
    assert!(error.starts_with("TIMEOUT"), "{error}");
}

#[test]
fn a_partial_answer_is_marked() {
    let graph = hub(60);
    let partial = fondaco_graph::query::Limits {
        rows_max: 100,
        partial: true,
        ..limits()
    };
    let query = "MATCH (a)-[:S]-(b) RETURN id(a), id(b)";
    let answer = graph.ask_with(query, &Default::default(), &partial).unwrap();
    assert!(answer.incomplete.is_some() && answer.rows.len() <= 100);
}

#[test]
fn a_limit_ends_a_query_early() {
    let graph = hub(200);
    let answer = graph.ask("MATCH (a)-[:S]-(b) RETURN id(b) LIMIT 3").unwrap();
    assert_eq!(answer.rows.len(), 3);
    assert!(answer.expanded < 20_000, "{}", answer.expanded);
}
