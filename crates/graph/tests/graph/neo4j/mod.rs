//! Random queries over random graphs have the same answers as in Neo4j.

mod answers;
mod graphs;
mod queries;

use std::time::{Duration, Instant};

use answers::{comparable, told};
use serde_json::Value as Json;

const GRAPHS: usize = 40;
const QUERIES_PER_GRAPH: usize = 30;

/// On a slow machine the test stops after this time.
const TIME_MAX: Duration = Duration::from_secs(25);

/// The test stops after this number of differences.
const DIFFERENCES_MAX: usize = 10;

#[test]
fn random_queries_have_the_answers_of_neo4j() {
    let mut rng = fondaco_testing::random_or("queries beside Neo4j", 1);
    let mut neo4j = fondaco_testing::Neo4j::start();
    let began = Instant::now();
    let (mut asked, mut with_rows, mut errors) = (0, 0, 0);
    let mut differences = Vec::new();
    for _ in 0..GRAPHS {
        let graph = graphs::graph(&mut rng);
        for text in ["MATCH (n) DETACH DELETE n", &graph.create] {
            neo4j.ask(text).unwrap();
        }
        for _ in 0..QUERIES_PER_GRAPH {
            let query = queries::query(&mut rng, graph.vertices);
            let ours = graph.memory.ask(&query.ours());
            let theirs = neo4j.ask(&query.of_neo4j());
            asked += 1;
            let ours = ours.map(|answer| {
                let rows = answer.rows.iter();
                let rows = rows.map(|row| row.iter().map(told).collect::<Json>());
                comparable(&rows.collect(), &query)
            });
            let theirs = theirs.map(|rows| comparable(&serde_json::from_str(&rows).unwrap(), &query));
            match (&ours, &theirs) {
                (Ok(ours), Ok(theirs)) if ours == theirs => with_rows += usize::from(!ours.is_empty()),
                (Err(ours), Err(_)) if !ours.contains("not supported") => errors += 1,
                _ => differences.push(format!(
                    "{}\n{}\n    here: {ours:?}\n    Neo4j: {theirs:?}",
                    graph.create,
                    query.ours()
                )),
            }
        }
        if differences.len() >= DIFFERENCES_MAX || began.elapsed() > TIME_MAX {
            break;
        }
    }
    println!("{asked} queries, {with_rows} with rows, {errors} with errors in both");
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
    assert!(asked >= 5 * QUERIES_PER_GRAPH, "only {asked} queries");
    assert!(with_rows > asked / 5 && errors < asked / 20, "the queries say little");
}
