//! Queries, and the answers that they have.

use std::collections::BTreeMap;

use fondaco_graph::query::{QueryResult, Value};

use crate::memory::{limits, people};

/// The rows of an answer as text, sorted unless their order is given.
fn told(result: &QueryResult, sorted: bool) -> String {
    let name = |id: &u64| result.vertices[id].properties["name"].as_str().unwrap().to_owned();
    let value = |value: &Value| match value {
        Value::Vertex(id) => name(id),
        Value::Path(path) => path.vertices.iter().map(name).collect::<Vec<_>>().join("-"),
        Value::Edge(edge) => format!("[{}]", edge.name),
        other => match other.to_json() {
            Some(serde_json::Value::String(text)) => text,
            Some(json) => json.to_string(),
            None => format!("{other:?}"),
        },
    };
    let row = |row: &Vec<Value>| row.iter().map(value).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = result.rows.iter().map(row).collect();
    if !sorted {
        rows.sort();
    }
    rows.join("; ")
}

/// Queries without an order, and their [`cases`].
const TABLE: &str = r#"
MATCH (a {name: 'ann'})-[:KNOWS]-(b) RETURN b
    bob; eve
MATCH (a {name: 'ann'})-[:KNOWS]->(b)-[:KNOWS]->(c) RETURN c.name
    cid; eve
MATCH (a {name: 'ann'})-[:KNOWS*1..2]-(b) RETURN DISTINCT b.name
    bob; cid; eve
MATCH (a {name: 'ann'})-[:KNOWS*1..3]-(b) RETURN count(DISTINCT b)
    4
MATCH (a {name: 'ann'})-[:KNOWS]-(b) RETURN count(b)
    2
MATCH (a {name: 'ann'})-[:FOLLOWS*2]->(b) RETURN DISTINCT b.name
    ann; cid
MATCH (a)-[:WORKS_AT]->(c {name: 'acme'}) WHERE a.age > 30 RETURN a.name
    bob
MATCH (a:Person) RETURN count(*), avg(a.age), min(a.age), max(a.age), sum(a.age)
    5 35.0 20 50 175
MATCH (c:Company)<-[:WORKS_AT]-(p) RETURN c.name, collect(p.name)
    acme ["ann","bob"]; corp ["cid"]
MATCH (a:Person)-[:WORKS_AT]->()<-[:WORKS_AT]-(b) RETURN a.name, b.name
    ann bob; bob ann
MATCH (a {name: 'ann'})-[:KNOWS]-(x)-[:KNOWS]-(b {name: 'cid'}) RETURN x.name
    bob
MATCH (a {name:'ann'}), (d {name:'dan'}), p = shortestPath((a)-[:KNOWS*..5]-(d)) RETURN p, length(p)
    ann-bob-cid-dan 3
MATCH (a {name:'ann'}), (d {name:'dan'}) RETURN length(shortestPath((a)-[:KNOWS*..2]-(d)))
    null
MATCH (a {name:'dan'}), (d {name:'bob'}) RETURN shortestPath((a)-[:FOLLOWS*..4]->(d))
    dan-ann-bob
MATCH (a {name: 'ann'})-[r:KNOWS]-(b) WHERE r.since < 2005 RETURN b.name, r.since, type(r)
    bob 2001 KNOWS
MATCH (a {name: 'ann'})-[:KNOWS {since: 2001}]-(b) RETURN b.name
    bob
MATCH p = (a {name: 'ann'})-[:KNOWS*2]-(b) RETURN p
    ann-bob-cid; ann-eve-eve
MATCH (a {name: 'eve'})-[:KNOWS]-(b) RETURN b.name
    ann; eve
MATCH (a {name: 'dan'})-[:FOLLOWS]-(b) RETURN b.name
    ann; dan
MATCH (a:Person) OPTIONAL MATCH (a)-[:WORKS_AT]->(c) RETURN a.name, c.name
    ann acme; bob acme; cid corp; dan null; eve null
MATCH (a:Person)-[r]->(b:Company) RETURN a.name, type(r), labels(b)
    ann WORKS_AT ["Company"]; bob WORKS_AT ["Company"]; cid WORKS_AT ["Company","Old"]
MATCH (a:Person:Company) RETURN a
    (none)
MATCH (a:Company:Old) RETURN a.name
    corp
MATCH (a:Nothing) RETURN a
    (none)
MATCH (a {name: 'ann'}) MATCH (b {name: 'bob'}) WHERE a:Company RETURN b.name
    (none)
MATCH (a {name: 'ann'}) OPTIONAL MATCH (b {name: 'bob'}) WHERE a:Company RETURN a.name, b.name
    ann null
MATCH (a)-[:NOTHING]->(b) RETURN a
    (none)
MATCH (a {name: 'nobody'})-[:KNOWS]-(b) RETURN count(b)
    0
MATCH (a) WHERE id(a) = 3 RETURN a.name
    dan
MATCH (a) WHERE id(a) = 300 RETURN a.name
    (none)
MATCH (a) WHERE a.name IN ['ann', 'zoe', 'dan'] RETURN a.age
    20; 30
MATCH (a:Person) WHERE a.name STARTS WITH 'a' OR a.age >= 50 RETURN a.name
    ann; cid
MATCH (a:Person) WHERE NOT a.age > 30 AND a.name <> 'ann' RETURN a.name
    dan
MATCH (a:Person) WHERE a.size IS NULL AND 25 < a.age < 36 RETURN a.name
    ann; eve
UNWIND ['ann', 'dan'] AS n MATCH (a {name: n}) RETURN n, a.age
    ann 30; dan 20
MATCH (a {name: 'ann'})-[:KNOWS]-(b) WITH b, b.age * 2 AS double WHERE double > 70 RETURN b.name, double
    bob 80
UNWIND range(1, 5) AS x RETURN sum(x), [y IN collect(x) WHERE y % 2 = 1 | y * 10]
    15 [10,30,50]
RETURN 1 + 2 * 3, 7 / 2, 7.0 / 2, 'a' + 'b', 2 ^ 3, -3 % 2
    7 3 3.5 ab 8.0 -1
RETURN null = null, null IS NULL, 1 = 1.0, [1, null] = [1, 2], 3 IN [1, null]
    null true true null null
RETURN CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END, CASE 3 WHEN 3 THEN 'x' END, coalesce(null, 4)
    b x 4
RETURN all(x IN [1, 2] WHERE x > 0), any(x IN [] WHERE x > 0), none(x IN [1] WHERE x > 1), single(x IN [1, 1] WHERE x = 1)
    true false true false
MATCH p = (a {name: 'ann'})-[:KNOWS*1..2]-(b {name: 'cid'}) RETURN [n IN nodes(p) | n.name], size(relationships(p))
    ["ann","bob","cid"] 2
MATCH (a {name:'ann'})-[:FOLLOWS]->(b)-[:FOLLOWS]->(a) RETURN b.name
    bob
CALL db.labels()
    Company; Old; Person
CALL db.relationshipTypes() YIELD relationshipType RETURN relationshipType
    FOLLOWS; KNOWS; WORKS_AT
MATCH (a:Person) WITH count(a) AS n MATCH (c:Company) RETURN n, c.name
    5 acme; 5 corp
MATCH (a {name: 'ann'})-[:KNOWS*0..1]-(b) RETURN DISTINCT b.name
    ann; bob; eve
MATCH (a {name: 'ann'})-[:KNOWS]-(b)-[:WORKS_AT]->(c) RETURN count(DISTINCT c)
    1
MATCH (a {name: 'ann'})-[:KNOWS*1..2]-(b:Person) WHERE b.age > 36 RETURN count(DISTINCT b)
    2
# Null in a pattern matches nothing.
MATCH (a:Company) OPTIONAL MATCH (a)-[:NONE]->(b) OPTIONAL MATCH (b), (c) RETURN count(*)
    2
WITH null AS b MATCH (b) RETURN count(*)
    0
OPTIONAL MATCH (a:Nothing) MATCH p = (a) RETURN count(*)
    0
OPTIONAL MATCH (b:Nothing) MATCH (a:Person)-[:KNOWS]-(b) RETURN count(*)
    0
# `WHERE` and `ORDER BY` see the variables before a `WITH` that does not group.
MATCH (a) WITH a.name AS x WHERE a.age = 30 RETURN x
    ann
MATCH (a:Person) WITH a.name AS x, a.age AS a WHERE a > 40 RETURN x, a
    cid 50
UNWIND [1, 2] AS x WITH x, CASE x WHEN 3 THEN 4 END AS y, null AS z RETURN Collect (x) AS c, count (x), COUNT(*)
    [1,2] 2 2
# A variable that has an edge stands for it.
MATCH (a {name: 'ann'})-[r:KNOWS]-(b) MATCH (b)-[r]-(c) RETURN b.name, c.name
    bob ann; eve ann
MATCH (a {name: 'ann'})-[r:FOLLOWS]->(b) OPTIONAL MATCH (b)-[r]->(c) RETURN b.name, c.name
    bob null
MATCH (a {name: 'ann'})-[rs:KNOWS*2]-(b) MATCH (c {name: 'cid'})-[rs*2]-(d) RETURN b.name
    (none)
# Numbers.
WITH 0.0 / 0.0 AS n RETURN n < 1, 1 > n, n <= n, n = n, n <> n, n IN [n], n < null
    false false false false true false null
UNWIND [0.0 / 0.0, 0.0 / 0.0, 1] AS x RETURN count(DISTINCT x)
    2
RETURN range(0, 1, -123), range(3, 1, -1), range(1, 0), range(0, -5, -2), range(5, 5, -1)
    [] [3,2,1] [] [0,-2,-4] [5]
MATCH (a) WHERE id(a) = 3.0 RETURN a.name
    dan
MATCH (a) WHERE id(a) = 3.5 RETURN a.name
    (none)
RETURN (-9223372036854775807 - 1) % -1, -9223372036854775808
    0 -9223372036854775808
UNWIND [9223372036854775807, 9223372036854775807] AS x RETURN avg(x) > 9.2e18
    true
RETURN 9007199254740993 = 9007199254740992.0, 9007199254740993 > 9007199254740992.0,
9007199254740992 = 9007199254740992.0, 9223372036854775807 < 9223372036854775808.0, 1 < 1.5, -1 > -1.5, 1 IN [1.0]
    false true true true true true true
UNWIND [9007199254740993, 9007199254740992.0, 9007199254740992] AS x RETURN count(DISTINCT x)
    2
"#;

/// Queries with an order, and their [`cases`].
const ORDERED: &str = r#"
MATCH (a:Person) RETURN a.name ORDER BY a.age DESC
    cid; bob; eve; ann; dan
MATCH (a:Person) RETURN a.name AS n ORDER BY n SKIP 1 LIMIT 2
    bob; cid
MATCH (a:Person)-[:KNOWS]-(b) RETURN a.name, count(*) AS c ORDER BY c DESC, a.name LIMIT 2
    ann 2; bob 2
MATCH (a:Person)-[:KNOWS]-(b) WITH a.name AS n, count(*) AS c RETURN n ORDER BY c DESC, n DESC LIMIT 1
    eve
MATCH (a:Person)-[:KNOWS]-(b) RETURN a.name, count(*) ORDER BY count(*) DESC, a.name DESC LIMIT 1
    eve 2
UNWIND [3, null, 1, 2.5] AS x RETURN x ORDER BY x
    1; 2.5; 3; null
# A column hides a variable of its name.
UNWIND [[1, 2], [2, 1]] AS x RETURN x[0] AS y, x[1] AS x ORDER BY x
    2 1; 1 2
UNWIND [1, 2] AS x RETURN x AS y, -x AS x ORDER BY x
    2 -2; 1 -1
UNWIND [3, 1, 3, 2] AS x RETURN DISTINCT x ORDER BY x DESC LIMIT 2
    3; 2
UNWIND [3, 1, 3, 2] AS x WITH x ORDER BY x LIMIT 3 RETURN collect(x)
    [1,2,3]
"#;

/// The queries of a text, each with the indented line below it: its rows, separated by semicolons. Lines with `#` are comments.
fn cases(text: &str) -> Vec<(String, &str)> {
    let mut cases = Vec::new();
    let mut query = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            None => query.push(line),
            Some(rows) => cases.push((
                std::mem::take(&mut query).join(" "),
                if rows == "(none)" { "" } else { rows },
            )),
        }
    }
    assert!(query.is_empty() && !cases.is_empty(), "each query has its rows");
    cases
}

#[test]
fn queries_have_the_answers_of_the_table() {
    let graph = people();
    for (query, expected) in cases(TABLE) {
        let answer = graph.ask(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(told(&answer, false), expected, "{query}");
    }
}

#[test]
fn order_skip_and_limit_are_kept() {
    let graph = people();
    for (query, expected) in cases(ORDERED) {
        let answer = graph.ask(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(told(&answer, true), expected, "{query}");
    }
}

#[test]
fn parameters_stand_for_values() {
    let graph = people();
    let parameters = BTreeMap::from([
        ("name".to_owned(), Value::Text("ann".into())),
        ("least".to_owned(), Value::Int(36)),
    ]);
    let query = "MATCH (a {name: $name})-[:KNOWS]-(b) WHERE b.age >= $least RETURN b.name";
    let answer = graph.ask_with(query, &parameters, &limits()).unwrap();
    assert_eq!(told(&answer, false), "bob");
    let error = graph.ask(query).unwrap_err();
    assert!(error.contains("$name"), "{error}");
}
