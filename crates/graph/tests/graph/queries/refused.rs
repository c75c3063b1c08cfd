//! Queries that are refused, by name and place.

use fondaco_graph::query::Prepared;

use crate::memory::people;

#[test]
fn unsupported_syntax_is_refused_by_name_and_position() {
    for (query, what, place) in [
        ("MATCH (a) SET a.x = 1", "SET", "1:11"),
        ("CREATE (a)", "CREATE", "1:1"),
        ("MATCH (a)\nMERGE (b)", "MERGE", "2:1"),
        ("MATCH (a) DETACH DELETE a", "DELETE", "1:11"),
        ("MATCH (a)-[:T*]->(b) RETURN b", "without a bound", "1:14"),
        ("MATCH (a)-[:T*1..11]->(b) RETURN b", "more than 10", "1:14"),
        ("MATCH (a)-[:T*3..2]->(b) RETURN b", "at least 3 and at most 2", "1:14"),
        ("MATCH (a:A|B) RETURN a", "labels", "1:10"),
        ("MATCH (a) RETURN f(a)", "function", "1:18"),
        ("MATCH (a) RETURN b", "no value here", "1:18"),
        ("MATCH (a) WHERE (a)-->() RETURN a", "pattern as a condition", "1:17"),
        ("MATCH (a) WHERE count(a) > 1 RETURN a", "aggregate", "1:17"),
        ("MATCH (a) RETURN a UNION MATCH (b) RETURN b", "UNION", "1:20"),
        (
            "MATCH p = allShortestPaths((a)-[*..3]-(b)) RETURN p",
            "allShortestPaths",
            "1:11",
        ),
        ("CALL apoc.help()", "procedure", "1:6"),
        ("MATCH (a) RETRUN a", "", "1:11"),
        ("EXPLAIN MATCH (a) RETURN a", "EXPLAIN", "1:1"),
        ("RETURN 99999999999999999999", "64 bits", "1:8"),
        ("RETURN 1e400", "too large", "1:8"),
        (
            "MATCH ()-[r]-() MATCH (r) RETURN r",
            "vertex does not take an edge",
            "1:24",
        ),
        (
            "MATCH p = (a) MATCH (p) RETURN p",
            "vertex does not take a path",
            "1:22",
        ),
        (
            "MATCH (a)-[r]-(b) MATCH ()-[a]-() RETURN a",
            "edge does not take a vertex",
            "1:29",
        ),
        ("MATCH (a)-[r]-(b)-[r]-(c) RETURN r", "stands once", "1:20"),
        ("MATCH (a) WHERE a RETURN a", "condition does not take a vertex", "1:17"),
        ("RETURN NOT 1", "condition does not take a number", "1:12"),
        ("MATCH (a) RETURN a.x + count(*)", "beside an aggregate", "1:18"),
        ("MATCH (a) RETURN a.x ORDER BY count(*)", "in a column", "1:31"),
        (
            "MATCH (a) RETURN a.x, count(*) ORDER BY sum(a.y)",
            "in a column",
            "1:41",
        ),
        ("MATCH (a) RETURN DISTINCT a.x ORDER BY a.y", "another variable", "1:40"),
    ] {
        let error = Prepared::new(query).unwrap_err();
        assert!(
            error.starts_with("ERR ") && error.contains(what) && error.contains(place),
            "{query}: {error}"
        );
    }
    let error = Prepared::new("MATCH (a)").unwrap_err();
    assert!(error.contains("RETURN"), "{error}");
}

#[test]
fn values_of_wrong_types_are_refused() {
    let graph = people();
    for query in [
        "RETURN 1 + true",
        "RETURN 1 / 0",
        "RETURN 9223372036854775807 + 1",
        "RETURN toLower(3)",
        "MATCH (a) WHERE a.age RETURN a",
        "MATCH (a:Person) RETURN sum(a.name)",
        "MATCH (a) RETURN a LIMIT -1",
        "RETURN [1, 2]['a']",
        "RETURN size(5)",
        "UNWIND [1] AS x MATCH (x) RETURN x",
        "UNWIND [1] AS x MATCH (x)-[:KNOWS]-(y) RETURN x",
        "UNWIND [1e308, 1e308] AS x RETURN avg(x)",
    ] {
        let error = graph.ask(query).unwrap_err();
        assert!(error.starts_with("ERR "), "{query}: {error}");
    }
}

#[test]
fn hostile_nesting_is_refused_before_it_takes_the_stack() {
    let many = 10_000;
    for query in [
        format!("RETURN {}1{}", "(".repeat(many), ")".repeat(many)),
        format!("RETURN {}1{}", "[".repeat(many), "]".repeat(many)),
        format!("RETURN {}true", "NOT ".repeat(many)),
        format!("RETURN 1{}", "+1".repeat(many)),
        format!("RETURN {}1", "-".repeat(many)),
        format!("MATCH (a){} RETURN a", "-[]-()".repeat(many)),
        "x".repeat(100_000),
    ] {
        let error = Prepared::new(&query).unwrap_err();
        assert!(error.starts_with("LIMIT"), "{error}");
    }
    let deep = |levels| format!("RETURN {}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Prepared::new(&deep(700)).unwrap_err().starts_with("LIMIT"));
    people().ask(&deep(190)).unwrap();
}
