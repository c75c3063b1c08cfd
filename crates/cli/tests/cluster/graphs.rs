//! Graphs: pushed to a cluster of two groups, and asked at nodes and at the router.

use std::path::Path;

use serde_json::json;

use super::node::{Node, until};
use super::sets::{addresses, ask, connect, several};

const KNOWS: &str = "from,to,since\nann,bob,2001\nbob,cid,2010\ncid,dan,2011\nann,eve,2005\n";
const WORKS_AT: &str = "from,to\nann,acme\nbob,acme\ncid,corp\n";
const PEOPLE: &str = "name,age\nann,30\nbob,40\ncid,50\ndan,20\neve,35\n";
const COMPANIES: &str = "name\nacme\ncorp\n";

fn cluster() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let groups = ["--nodes", "4", "--groups", "2", "--loops", "1"];
    let dev = several(&dir.path().join("data"), &groups);
    push(&dev, dir.path(), KNOWS, &["--create"]);
    (dir, dev)
}

/// Pushes the graph with these edges between people.
fn push(dev: &Node, dir: &Path, knows: &str, more: &[&str]) -> String {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let knows = format!("KNOWS={}", file("knows.csv", knows));
    let works_at = format!("WORKS_AT={}", file("works-at.csv", WORKS_AT));
    let people = format!("Person={}", file("people.csv", PEOPLE));
    let companies = format!("Company={}", file("companies.csv", COMPANIES));
    let mut arguments = vec![
        "push",
        "social",
        &knows,
        &works_at,
        "--edges",
        "from,to",
        "--symmetric=KNOWS",
    ];
    arguments.extend(["--index=KNOWS", "--vertices", &people, "--vertices", &companies]);
    arguments.extend(more);
    dev.done(&arguments)
}

fn query(redis: &mut redis::Connection, text: &str) -> Vec<Vec<String>> {
    let (_, rows, _): (Vec<String>, Vec<Vec<String>>, Vec<String>) =
        ask(redis, "GRAPH.RO_QUERY social", &[text.into()]);
    rows
}

fn refused(redis: &mut redis::Connection, words: &[&str], part: &str) {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word));
    let error = command.query::<redis::Value>(redis).unwrap_err().to_string();
    assert!(error.contains(part), "{words:?}: {error}");
}

#[test]
fn graphs_answer_alike_at_router_and_nodes() {
    let (_dir, dev) = cluster();
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    assert_eq!(all.len(), 5);
    for (name, address) in all {
        let redis = &mut connect(&address);
        assert_eq!(ask::<Vec<String>>(redis, "GRAPH.LIST", &[]), ["social"], "{name}");
        let own = |operation: &str| format!("FONDACO.GRAPH {operation} social KNOWS");
        let distances: Vec<Option<u64>> = ask(redis, &format!("{} ann bob cid dan zoe ann", own("DISTANCES")), &[]);
        assert_eq!(distances, [Some(1), Some(2), Some(3), None, Some(0)], "{name}");
        let network: Vec<Vec<String>> = ask(redis, &format!("{} ann", own("NETWORK")), &[]);
        assert_eq!(network.concat().len(), 3, "{name}: {network:?}");
        let path: Vec<String> = ask(redis, &format!("{} ann dan", own("PATH")), &[]);
        assert_eq!(path, ["ann", "bob", "cid", "dan"], "{name}");
        assert_eq!(
            ask::<Vec<String>>(redis, &format!("{} ann cid", own("COMMON")), &[]),
            ["bob"],
            "{name}"
        );
        assert!(
            ask::<bool>(redis, &format!("{} ann cid", own("HASCOMMON")), &[]),
            "{name}"
        );
        let older =
            "MATCH (a {name: 'ann'})-[:KNOWS*1..2]-(b:Person) WHERE b.age > 36 RETURN b.name ORDER BY b.age DESC";
        assert_eq!(query(redis, older), [["cid"], ["bob"]], "{name}");
        let colleagues = "MATCH (a:Person)-[:WORKS_AT]->(c)<-[:WORKS_AT]-(b) RETURN a.name, c.name ORDER BY a.name";
        assert_eq!(query(redis, colleagues), [["ann", "acme"], ["bob", "acme"]], "{name}");
        let count = "MATCH (a {name: 'ann'})-[:KNOWS*1..3]-(b) RETURN count(DISTINCT b)";
        assert_eq!(query(redis, count), [["4"]], "{name}");
    }
}

#[test]
fn every_operation_explains_how_it_found_its_answer() {
    let (dir, dev) = cluster();
    let redis = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let explained = |redis: &mut redis::Connection, asked: &str| -> String {
        let (operation, vertices) = asked.split_once(' ').unwrap();
        let command = format!("FONDACO.GRAPH {operation} EXPLAIN social KNOWS {vertices}");
        ask::<Vec<String>>(redis, &command, &[]).join("\n")
    };
    for (asked, part) in [
        ("NEIGHBOURS ann", "one list of 2 vertices"),
        ("NETWORK ann", "network of the first vertex"),
        ("SIZE ann", "network of the first vertex"),
        ("DISTANCES ann dan", "lists of vertices further than 2 away"),
        ("PATH ann dan", "lists of the vertices before the last"),
        (
            "COMMON ann cid",
            "both lists, intersected where they are: they have only 4 edges",
        ),
        (
            "HASCOMMON ann cid",
            "both lists, intersected where they are: they have only 4 edges",
        ),
    ] {
        let lines = explained(redis, asked);
        assert!(
            lines.contains(part) && lines.contains("requests to nodes"),
            "{asked}: {lines}"
        );
    }
    let misplaced = ["FONDACO.GRAPH", "HASCOMMON", "social", "KNOWS", "ann", "cid", "EXPLAIN"];
    refused(redis, &misplaced, "EXPLAIN come before the graph");

    // Two vertices with long lists in common.
    let hubs = ["ann", "bob"].map(|hub| (0..5000).map(|other| format!("{hub},v{other}\n")).collect::<String>());
    let knows = format!("from,to\n{}", hubs.concat());
    push(&dev, dir.path(), &knows, &["--unknown-vertices", "add"]);
    until("the new version answers", || {
        explained(redis, "COMMON ann bob").contains("10000 edges")
    });
    let all = explained(redis, "COMMON ann bob");
    let first = explained(redis, "HASCOMMON ann bob");
    let partitions = |lines: &str| -> u64 {
        let (_, rest) = lines.split_once("the index of ").unwrap_or_else(|| panic!("{lines}"));
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(partitions(&first) * 8, partitions(&all), "{first}\n{all}");
    assert!(ask::<bool>(redis, "FONDACO.GRAPH HASCOMMON social KNOWS ann bob", &[]));
}

#[test]
fn common_vertices_by_ids_are_those_of_the_lists() {
    let (dir, dev) = cluster();
    // Two vertices with long lists, the odd numbers of which are in both.
    let edges: String = (0..6000)
        .map(|other| match other % 2 {
            0 => format!("ann,v{other}\n"),
            _ => format!("ann,v{other}\nbob,v{other}\n"),
        })
        .collect();
    let file = dir.path().join("pairs.csv");
    std::fs::write(&file, format!("from,to\n{edges}cid,v1\n")).unwrap();
    let arguments = [
        "push",
        "pairs",
        file.to_str().unwrap(),
        "--edges",
        "from,to",
        "--type",
        "E",
        "--symmetric",
    ];
    dev.done(&[&arguments[..], &["--create"]].concat());
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    for (name, address) in all {
        let redis = &mut connect(&address);
        let ids: Vec<String> = ask(
            redis,
            "MGET pairs:id:ann pairs:id:bob pairs:id:cid pairs:id:v1 pairs:id:v2",
            &[],
        );
        let [ann, bob, cid, one, two] = &ids[..] else {
            panic!("{ids:?}")
        };
        // The first question reads the description, and the others are answered at once.
        for _ in 0..3 {
            for (a, b) in [(ann, bob), (ann, cid), (cid, bob), (one, two), (cid, two)] {
                let lists = [format!("pairs:out:E{{{a}}}"), format!("pairs:out:E{{{b}}}")];
                let expected: Vec<String> = ask(redis, "SINTER", &lists);
                let both = [a.clone(), b.clone()];
                let common: Vec<String> = ask(redis, "FONDACO.GRAPH COMMON IDS pairs E", &both);
                assert_eq!(common, expected, "{name}: {a} and {b}");
                let has_common: bool = ask(redis, "FONDACO.GRAPH HASCOMMON IDS pairs E", &both);
                assert_eq!(has_common, !expected.is_empty(), "{name}: {a} and {b}");
            }
            let nothing: Vec<String> = ask(
                redis,
                "FONDACO.GRAPH COMMON IDS pairs E",
                &[ann.clone(), "999999".into()],
            );
            assert!(nothing.is_empty(), "{name}: {nothing:?}");
            for limited in ["LIMIT 2999", "LIMIT 0"] {
                let words = format!("FONDACO.GRAPH COMMON IDS {limited} pairs E {ann} {bob}");
                refused(redis, &words.split(' ').collect::<Vec<_>>(), "LIMIT");
            }
            refused(
                redis,
                &["FONDACO.GRAPH", "COMMON", "IDS", "pairs", "E", "ann", "bob"],
                "is not an id",
            );
        }
        assert_eq!(
            ask::<Vec<String>>(
                redis,
                "FONDACO.GRAPH COMMON IDS LIMIT 3000 pairs E",
                &[ann.clone(), bob.clone()]
            )
            .len(),
            3000
        );
        // Two edges, and not back to the vertex itself: the lists of all 6000 neighbours are united where they are.
        let count = "MATCH (a {name: 'ann'})-[:E*1..2]-(b) RETURN count(DISTINCT b)";
        let (_, rows, _): (Vec<String>, Vec<Vec<String>>, Vec<String>) =
            ask(redis, "GRAPH.RO_QUERY pairs", &[count.into()]);
        assert_eq!(rows, [["6002"]], "{name}");
        let network: Vec<Vec<u64>> = ask(redis, "FONDACO.GRAPH NETWORK IDS pairs E", std::slice::from_ref(bob));
        assert_eq!((network[0].len(), network[1].len()), (3000, 2), "{name}");
        let network: Vec<Vec<u64>> = ask(redis, "FONDACO.GRAPH NETWORK IDS pairs E", std::slice::from_ref(one));
        assert_eq!((network[0].len(), network[1].len()), (3, 5999), "{name}");
    }
}

#[test]
fn dense_parts_of_unions_are_merged_at_router_and_nodes() {
    const HUBS: u64 = 20;
    const LEAVES: u64 = 2000;
    let (dir, dev) = cluster();
    // Each hub has nearly all leaves, so that the lists of any two of them are sent as bits. One leaf has one hub only.
    let mut edges = String::from("from,to\nh0,only\n");
    for hub in 0..HUBS {
        edges.push_str(&format!("root,h{hub}\n"));
        let leaves = (0..LEAVES).filter(|leaf| leaf % HUBS != hub);
        edges.extend(leaves.map(|leaf| format!("h{hub},leaf{leaf}\n")));
    }
    let file = dir.path().join("fan.csv");
    std::fs::write(&file, edges).unwrap();
    let file = file.to_str().unwrap();
    dev.done(&[
        "push",
        "fan",
        file,
        "--edges",
        "from,to",
        "--type",
        "E",
        "--symmetric",
        "--create",
    ]);
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    for (name, address) in all {
        let redis = &mut connect(&address);
        let id = |name: String| format!("fan:id:{name}");
        let hubs: Vec<String> = ask(
            redis,
            "MGET",
            &(0..HUBS).map(|hub| id(format!("h{hub}"))).collect::<Vec<_>>(),
        );
        let lists: Vec<String> = hubs.iter().map(|id| format!("fan:out:E{{{id}}}")).collect();
        let leaves = (0..LEAVES).map(|leaf| id(format!("leaf{leaf}")));
        let mut expected: Vec<u64> = ask(
            redis,
            "MGET",
            &leaves.chain([id("root".into()), id("only".into())]).collect::<Vec<_>>(),
        );
        let only = expected[expected.len() - 1];
        expected.sort_unstable();
        assert_eq!(ask::<Vec<u64>>(redis, "FONDACO.IDS UNION", &lists), expected, "{name}");
        assert_eq!(ask::<Vec<u64>>(redis, "SDIFF", &lists), [only], "{name}");
        let count = "MATCH (a {name: 'root'})-[:E*1..2]-(b) RETURN count(DISTINCT b)";
        let (_, rows, _): (Vec<String>, Vec<Vec<String>>, Vec<String>) =
            ask(redis, "GRAPH.RO_QUERY fan", &[count.into()]);
        assert_eq!(rows, [[(HUBS + LEAVES + 1).to_string()]], "{name}");
    }
}

#[test]
fn queries_over_http_have_objects_for_vertices_and_edges() {
    let (_dir, dev) = cluster();
    let query = json!({
        "query": "MATCH p = (a {name: $name})-[r:KNOWS]-(b) RETURN a.name, b, r, p, [b] ORDER BY b.name LIMIT 1",
        "parameters": {"name": "ann"},
    });
    let answer = dev.http_post("/v1/graphs/social/query", query);
    assert_eq!(answer["columns"][0], "a.name");
    let [row] = &answer["rows"].as_array().unwrap()[..] else {
        panic!("{answer}")
    };
    let bob = &row[1];
    assert_eq!((&row[0], &bob["labels"]), (&json!("ann"), &json!(["Person"])));
    assert_eq!(bob["properties"], json!({"name": "bob", "age": 40}));
    assert_eq!((&row[2]["type"], &row[2]["to"]), (&json!("KNOWS"), &bob["id"]));
    assert_eq!(row[3]["vertices"][1], *bob);
    assert_eq!(row[4], json!([bob]));
    for (query, code) in [
        (json!({"query": "MATCH (a) RETRUN a"}), "invalid_request"),
        (
            json!({"query": "MATCH (a)-[*1..3]-(b) RETURN a", "timeout_ms": 0}),
            "query_timeout",
        ),
    ] {
        assert_eq!(dev.http_refused("/v1/graphs/social/query", query), code);
    }
}

#[test]
fn answers_of_graphs_are_whole_while_a_node_is_stopped() {
    let (_dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    ask::<String>(router, "CONFIG SET graph-cache-bytes 0", &[]);
    dev.http_post("/v1/dev/members/node-2/stop", serde_json::json!({}));
    let all = "MATCH (a:Person)-[:KNOWS]-(b) RETURN count(*)";
    until("queries are whole without a node", || {
        let mut command = redis::cmd("GRAPH.QUERY");
        command.arg("social").arg(all);
        command.query::<redis::Value>(router).is_ok()
    });
    for _ in 0..20 {
        assert_eq!(query(router, all), [["8"]]);
        let path: Vec<String> = ask(router, "FONDACO.GRAPH PATH social KNOWS ann dan", &[]);
        assert_eq!(path.len(), 4);
    }
}

#[test]
fn a_push_swaps_a_graph_in_one_step_and_keeps_ids() {
    let (dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let ids = |router: &mut redis::Connection| -> Vec<String> { ask(router, "MGET social:id:ann social:id:dan", &[]) };
    let before = ids(router);
    // Two ways to count the same edges: a mixture of versions would differ.
    let both =
        "MATCH (a:Person)-[r:KNOWS]-(b) WITH count(r) AS one MATCH (c {name: 'ann'})-[:KNOWS]-(d) RETURN one, count(d)";
    assert_eq!(query(router, both), [["8", "2"]]);
    let address = addresses(&dev, "router").values().next().unwrap().clone();
    let asking = std::thread::spawn(move || {
        let router = &mut connect(&address);
        loop {
            let answer = query(router, both);
            match &answer[..] {
                [row] if row == &["8", "2"] => {}
                [row] if row == &["10", "3"] => return,
                other => panic!("a mixture of versions: {other:?}"),
            }
        }
    });
    push(&dev, dir.path(), &format!("{KNOWS}ann,dan,2020\n"), &[]);
    asking.join().unwrap();
    assert_eq!(ids(router), before, "names keep their ids");
    let distances = "FONDACO.GRAPH DISTANCES social KNOWS ann dan";
    until("the router sees the version", || {
        ask::<Vec<u64>>(router, distances, &[]) == [1]
    });
    dev.done(&["rollback", "social"]);
    until("the router sees the rollback", || {
        ask::<Vec<u64>>(router, distances, &[]) == [3]
    });
    assert_eq!(query(router, both), [["8", "2"]]);
}

#[test]
fn questions_that_have_no_answer_are_refused_by_name() {
    let (dir, dev) = cluster();
    dev.done(&["store", "create", "plain"]);
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let distances = ["FONDACO.GRAPH", "DISTANCES"];
    let own = |graph, edge_type, vertex| [&distances[..], &[graph, edge_type, vertex, "bob"]].concat();
    refused(router, &own("nothing", "KNOWS", "ann"), "NOSTORE");
    refused(router, &own("plain", "KNOWS", "ann"), "WRONGTYPE");
    refused(router, &own("social", "LIKES", "ann"), "NOTYPE");
    refused(router, &own("social", "KNOWS", "zoe"), "NOVERTEX");
    refused(
        router,
        &["FONDACO.GRAPH", "GUESS", "social", "KNOWS", "ann"],
        "\"GUESS\"",
    );
    refused(router, &["GRAPH.QUERY", "social", "MATCH (a) RETRUN a"], "1:11");
    refused(
        router,
        &["GRAPH.QUERY", "social", "CREATE (a)"],
        "CREATE is not supported",
    );
    refused(router, &["GRAPH.QUERY", "social", "RETURN $x"], "$x");
    refused(router, &["GRAPH.QUERY", "social", "RETURN 1", "--fast"], "--fast");
    refused(router, &["SMEMBERS", "social:vertex{0}"], "ERR");
    ask::<String>(router, "CONFIG SET graph-rows-max 3", &[]);
    let all = "MATCH (a)-[]-(b) RETURN a.name, b.name";
    refused(router, &["GRAPH.QUERY", "social", all], "LIMIT");
    let words = ["social".to_owned(), all.to_owned(), "PARTIAL".to_owned()];
    let (_, rows, notes): (Vec<String>, Vec<Vec<String>>, Vec<String>) = ask(router, "GRAPH.QUERY", &words);
    assert!(rows.len() <= 3, "{rows:?}");
    assert!(notes.iter().any(|note| note.contains("Partial answer")), "{notes:?}");

    let unknown = dir.path().join("unknown.csv");
    std::fs::write(&unknown, "from,to\nann,zoe\n").unwrap();
    let people = format!("Person={}", dir.path().join("people.csv").to_str().unwrap());
    let mut arguments = vec!["push", "social", unknown.to_str().unwrap(), "--edges", "from,to"];
    arguments.extend(["--vertices", &people]);
    let error = dev.refused(1, &arguments);
    assert!(error.contains("zoe") && error.contains("--unknown-vertices"), "{error}");
    arguments.extend(["--unknown-vertices", "add"]);
    dev.done(&arguments);
}
