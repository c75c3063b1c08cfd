//! Versioned graphs: edges added and removed one by one, at nodes and routers, while nodes are away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fondaco_client::{Client, PutOptions};
use fondaco_model::StoreName;

use super::node::{Node, until};
use super::sets::{addresses, ask, connect, several};

fn cluster() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let dev = several(
        &dir.path().join("data"),
        &["--nodes", "3", "--replicas", "3", "--loops", "1"],
    );
    let mut create = vec![
        "store",
        "create",
        "social",
        "--kind",
        "versioned",
        "--value-type",
        "graph",
    ];
    create.extend(["--replicas", "3", "--reads", "2", "--writes", "2"]);
    dev.done(&create);
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    until("the store is there", || {
        let mut declare = redis::cmd("FONDACO.EDGE");
        declare.arg("DECLARE").arg("social").arg("FOLLOWS");
        declare.query::<String>(router).is_ok()
    });
    change(router, "FONDACO.EDGE DECLARE social KNOWS SYMMETRIC");
    (dir, dev)
}

fn change(redis: &mut redis::Connection, command: &str) {
    assert_eq!(ask::<String>(redis, command, &[]), "OK", "{command}");
}

/// A change beside others. It is made again until it is acknowledged: then it has the same effect as once.
fn change_among_others(redis: &mut redis::Connection, command: &str) {
    let mut asked = redis::Cmd::new();
    command.split(' ').for_each(|word| _ = asked.arg(word));
    until("the change is acknowledged", || match asked.query::<String>(redis) {
        Ok(answer) => answer == "OK",
        Err(error) if matches!(error.code(), Some("CONFLICT" | "NOQUORUM" | "TIMEOUT")) => false,
        Err(error) => panic!("{command}: {error}"),
    });
}

fn neighbours(redis: &mut redis::Connection, question: &str) -> BTreeSet<String> {
    let found: Vec<String> = ask(redis, &format!("FONDACO.GRAPH NEIGHBOURS {question}"), &[]);
    let names: BTreeSet<String> = found.iter().cloned().collect();
    assert_eq!(names.len(), found.len(), "{found:?}");
    names
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn rows(redis: &mut redis::Connection, text: &str) -> Vec<Vec<String>> {
    let (_, rows, _): (Vec<String>, Vec<Vec<String>>, Vec<String>) =
        ask(redis, "GRAPH.RO_QUERY social", &[text.into()]);
    rows
}

fn refused(redis: &mut redis::Connection, words: &str, part: &str) {
    let mut command = redis::Cmd::new();
    words.split(' ').for_each(|word| _ = command.arg(word));
    let error = command.query::<redis::Value>(redis).unwrap_err().to_string();
    assert!(error.contains(part), "{words}: {error}");
}

#[test]
fn changed_graphs_answer_alike_at_router_and_nodes() {
    let (_dir, dev) = cluster();
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    let mut all: Vec<redis::Connection> = all.values().map(|address| connect(address)).collect();
    change(
        &mut all[0],
        "FONDACO.EDGE ADD social KNOWS ann bob bob cid cid dan ann eve",
    );
    change(&mut all[1], "FONDACO.EDGE ADD social FOLLOWS ann cid dan cid");
    change(
        &mut all[2],
        r#"FONDACO.EDGE ADD PROPERTIES {"since":2001} social KNOWS ann dan"#,
    );
    change(
        &mut all[3],
        r#"FONDACO.VERTEX PUT LABEL Person PROPERTIES {"age":40} social bob cid"#,
    );
    for redis in &mut all {
        let distances: Vec<Option<u64>> = ask(
            redis,
            "FONDACO.GRAPH DISTANCES social KNOWS bob cid eve dan ann zoe",
            &[],
        );
        assert_eq!(distances, [Some(1), Some(2), Some(2), Some(1), None]);
        assert_eq!(neighbours(redis, "social FOLLOWS ann"), names(&["cid"]));
        assert_eq!(neighbours(redis, "IN social FOLLOWS cid"), names(&["ann", "dan"]));
        let since = "MATCH (a {name: 'dan'})-[r:KNOWS]-(b) RETURN b.name, coalesce(r.since, '') ORDER BY b.name";
        assert_eq!(rows(redis, since), [["ann", "2001"], ["cid", ""]]);
        let old = "MATCH (a:Person)-[:KNOWS]-(b) WHERE a.age = 40 RETURN count(DISTINCT b)";
        assert_eq!(rows(redis, old), [["4"]]);
        assert_eq!(rows(redis, "MATCH (a) RETURN count(a)"), [["5"]]);
        assert_eq!(ask::<Vec<String>>(redis, "GRAPH.LIST", &[]), ["social"]);
        let members: Vec<u64> = ask(redis, "SMEMBERS social:label:Person{0}", &[]);
        assert!(members.len() <= 2);
    }
    change(&mut all[1], "FONDACO.EDGE REMOVE social KNOWS ann bob dan ann");
    change(&mut all[2], "FONDACO.EDGE ADD social KNOWS dan ann");
    for redis in &mut all[..3] {
        assert_eq!(neighbours(redis, "social KNOWS ann"), names(&["dan", "eve"]));
        let since = "MATCH ({name: 'dan'})-[r:KNOWS]-({name: 'ann'}) RETURN coalesce(r.since, '')";
        assert_eq!(
            rows(redis, since),
            [[""]],
            "an edge that comes back has no former properties"
        );
    }
    assert_eq!(ask::<u64>(&mut all[0], "FONDACO.VERTEX REMOVE social cid zoe", &[]), 1);
    for redis in &mut all[..3] {
        assert_eq!(neighbours(redis, "social KNOWS dan"), names(&["ann"]));
        assert_eq!(neighbours(redis, "social FOLLOWS ann"), names(&[]));
        assert_eq!(rows(redis, "MATCH (a:Person) RETURN a.name"), [["bob"]]);
        refused(redis, "FONDACO.GRAPH NEIGHBOURS social KNOWS cid", "NOVERTEX");
    }
    let shown = dev.done(&[
        "graph",
        "query",
        "social",
        "MATCH ({name: 'ann'})-[:KNOWS]-(b) RETURN b.name ORDER BY b.name",
    ]);
    assert!(
        shown.contains("dan") && shown.contains("eve") && !shown.contains("bob"),
        "{shown}"
    );
    assert!(dev.done(&["graph", "list"]).contains("social"));
    let steps = dev.done(&[
        "graph",
        "explain",
        "social",
        "MATCH ({name: 'ann'})-[:KNOWS]-(b) RETURN b",
    ]);
    assert!(steps.contains("KNOWS"), "{steps}");
}

#[test]
fn a_change_is_seen_in_cached_networks_at_once() {
    let (_dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    change(router, "FONDACO.EDGE ADD social KNOWS ann bob bob cid cid dan");
    change(router, "FONDACO.EDGE ADD social FOLLOWS ann bob bob cid");
    let distance = |router: &mut redis::Connection, question: &str| -> Vec<Option<u64>> {
        ask(router, &format!("FONDACO.GRAPH DISTANCES {question}"), &[])
    };
    let ann = "social KNOWS ann dan eve";
    assert_eq!(distance(router, ann), [Some(3), None]);
    assert_eq!(distance(router, "IN social FOLLOWS cid ann"), [Some(2)]);
    // Each change is of a vertex one edge away from the one whose network is kept.
    change(router, "FONDACO.EDGE ADD social KNOWS bob eve");
    assert_eq!(distance(router, ann), [Some(3), Some(2)]);
    change(router, "FONDACO.EDGE REMOVE social KNOWS eve bob");
    assert_eq!(distance(router, ann), [Some(3), None]);
    change(router, "FONDACO.EDGE REMOVE social FOLLOWS ann bob");
    assert_eq!(distance(router, "IN social FOLLOWS cid ann"), [None]);
    assert_eq!(ask::<u64>(router, "FONDACO.VERTEX REMOVE social bob", &[]), 1);
    assert_eq!(distance(router, ann), [None, None]);
}

/// Random edges are added and removed at all nodes while one after the other is away.
#[test]
fn acknowledged_changes_stay_while_nodes_come_and_go() {
    let (_dir, dev) = cluster();
    let mut random = fastrand::Rng::with_seed(7);
    let mut edges: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    let router = addresses(&dev, "router").values().next().unwrap().clone();
    let router = &mut connect(&router);
    for round in 0..4 {
        let away = format!("node-{}", round % 3 + 1);
        if round > 0 {
            dev.http_post(&format!("/v1/dev/members/{away}/stop"), serde_json::json!({}));
        }
        for _ in 0..40 {
            let (from, to) = (random.u32(..8), random.u32(..8));
            let is_added = random.u8(..3) > 0;
            let operation = if is_added { "ADD" } else { "REMOVE" };
            let mut command = redis::cmd("FONDACO.EDGE");
            command
                .arg(operation)
                .arg("social")
                .arg("FOLLOWS")
                .arg(format!("v{from}"))
                .arg(format!("v{to}"));
            // The router finds out that a node is away; a change that is not acknowledged is made again.
            until("the change is acknowledged", || command.query::<String>(router).is_ok());
            edges.insert((from, to), is_added);
        }
        check(router, &edges);
        if round > 0 {
            dev.http_post(&format!("/v1/dev/members/{away}/start"), serde_json::json!({}));
        }
        check(router, &edges);
    }
    until("all nodes answer alike", || {
        let mut alike = true;
        for address in addresses(&dev, "node").values() {
            let node = &mut connect(address);
            alike &= rows(node, "MATCH (a)-[:FOLLOWS]->(b) RETURN count(*)")
                == [[edges.values().filter(|is| **is).count().to_string()]];
        }
        alike
    });
    assert!(dev.done(&["graph", "repair", "social"]).starts_with("0 edges"));
}

/// More edges than one part, each of them twice, also while a node is away.
#[test]
fn many_edges_are_changed_at_once() {
    let (_dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let edges = |operation: &str, numbers: std::ops::Range<u32>| {
        let pairs = numbers.map(|number| format!(" hub v{number} v{number} hub v{number} w{}", number % 7));
        format!("FONDACO.EDGE {operation} social KNOWS{}", pairs.collect::<String>())
    };
    change_among_others(router, &edges("ADD", 0..400));
    assert_eq!(neighbours(router, "social KNOWS hub").len(), 400);
    assert_eq!(neighbours(router, "social KNOWS w0").len(), 58);
    assert_eq!(neighbours(router, "social KNOWS v7"), names(&["hub", "w0"]));
    dev.http_post("/v1/dev/members/node-2/stop", serde_json::json!({}));
    change_among_others(router, &edges("REMOVE", 0..300));
    change_among_others(router, &edges("ADD", 400..700));
    assert_eq!(neighbours(router, "social KNOWS hub").len(), 400);
    dev.http_post("/v1/dev/members/node-2/start", serde_json::json!({}));
    until("all nodes answer alike", || {
        addresses(&dev, "node").values().all(|address| {
            let node = &mut connect(address);
            rows(node, "MATCH ({name: 'hub'})-[:KNOWS]-(b) RETURN count(b)") == [["400"]]
        })
    });
    assert!(dev.done(&["graph", "repair", "social"]).starts_with("0 edges"));
}

fn check(redis: &mut redis::Connection, edges: &BTreeMap<(u32, u32), bool>) {
    for vertex in 0..8 {
        let there = |(from, to): (u32, u32)| edges.get(&(from, to)) == Some(&true);
        let known = rows(redis, &format!("MATCH (a {{name: 'v{vertex}'}}) RETURN a.name"));
        if known.is_empty() {
            continue;
        }
        let expected = |out: bool| -> BTreeSet<String> {
            let ends = |other| if out { (vertex, other) } else { (other, vertex) };
            (0..8)
                .filter(|&other| there(ends(other)))
                .map(|other| format!("v{other}"))
                .collect()
        };
        assert_eq!(neighbours(redis, &format!("social FOLLOWS v{vertex}")), expected(true));
        assert_eq!(
            neighbours(redis, &format!("IN social FOLLOWS v{vertex}")),
            expected(false)
        );
    }
}

#[test]
fn concurrent_changes_of_one_vertex_merge_per_edge() {
    let (_dir, dev) = cluster();
    let all: Vec<String> = addresses(&dev, "node").into_values().collect();
    std::thread::scope(|scope| {
        for (number, address) in all.iter().enumerate() {
            scope.spawn(move || {
                let node = &mut connect(address);
                for other in 0..30 {
                    change_among_others(node, &format!("FONDACO.EDGE ADD social KNOWS hub n{number}-{other}"));
                    if other % 3 == 0 {
                        change_among_others(node, &format!("FONDACO.EDGE REMOVE social KNOWS n{number}-{other} hub"));
                    }
                }
            });
        }
    });
    for address in &all {
        let found = neighbours(&mut connect(address), "social KNOWS hub");
        assert_eq!(found.len(), 3 * 20, "{found:?}");
    }
}

#[test]
fn concurrent_changes_of_one_edge_leave_both_ends_alike() {
    let (_dir, dev) = cluster();
    let all: Vec<String> = addresses(&dev, "node").into_values().collect();
    for round in 0..30 {
        std::thread::scope(|scope| {
            for (number, address) in all.iter().enumerate() {
                scope.spawn(move || {
                    let node = &mut connect(address);
                    for step in 0..4 {
                        let operation = ["ADD", "REMOVE"][(number + step) % 2];
                        change_among_others(node, &format!("FONDACO.EDGE {operation} social FOLLOWS za zb"));
                        change_among_others(node, &format!("FONDACO.EDGE {operation} social KNOWS za zb"));
                    }
                });
            }
        });
        let node = &mut connect(&all[0]);
        let ends = [
            "social FOLLOWS za",
            "IN social FOLLOWS zb",
            "social KNOWS za",
            "social KNOWS zb",
        ];
        let [out, back, one, other] = ends.map(|question| neighbours(node, question).len());
        assert_eq!((out, one), (back, other), "round {round}");
    }
    assert!(dev.done(&["graph", "repair", "social"]).starts_with("0 edges"));
}

#[test]
fn a_vertex_removed_while_it_changes_is_whole_or_gone() {
    let (_dir, dev) = cluster();
    let all: Vec<String> = addresses(&dev, "node").into_values().collect();
    let put = r#"FONDACO.VERTEX PUT LABEL Ghost PROPERTIES {"p":1} social yy"#;
    for round in 0..40 {
        change(&mut connect(&all[0]), "FONDACO.VERTEX PUT social yy");
        std::thread::scope(|scope| {
            scope.spawn(|| change(&mut connect(&all[1]), put));
            scope.spawn(|| ask::<u64>(&mut connect(&all[2]), "FONDACO.VERTEX REMOVE social yy", &[]));
        });
        let node = &mut connect(&all[0]);
        let labelled = rows(node, "MATCH (a:Ghost) RETURN a.name");
        assert!(
            labelled.is_empty() || labelled == [["yy"]],
            "round {round}: {labelled:?}"
        );
        // Another removal removes the rest of it.
        ask::<u64>(node, "FONDACO.VERTEX REMOVE social yy", &[]);
        change(node, "FONDACO.VERTEX PUT social yy");
        let found = rows(node, "MATCH (a {name: 'yy'}) RETURN size(labels(a)), coalesce(a.p, 0)");
        assert_eq!(found, [["0", "0"]], "round {round}");
        assert_eq!(
            rows(node, "MATCH (a:Ghost) RETURN a.name"),
            Vec::<Vec<String>>::new(),
            "round {round}"
        );
    }
}

/// Work through the client library, which writes records of the graph one by one.
fn with_client(dev: &Node, work: impl AsyncFnOnce(&Client, &StoreName, &PutOptions)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let seeds = addresses(dev, "node").into_values();
        let client = Client::builder().seeds(seeds).connect().await.unwrap();
        let options = PutOptions {
            deadline: Duration::from_secs(10),
            ..PutOptions::default()
        };
        work(&client, &"social".parse().unwrap(), &options).await;
    });
}

/// The repair completes an edge if a kill has left only one of its two records.
#[test]
fn edges_that_are_half_there_are_repaired() {
    let (_dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    change(router, "FONDACO.EDGE ADD social FOLLOWS ann bob cid bob");
    change(router, "FONDACO.EDGE ADD social KNOWS ann bob cid bob");
    let id = |router: &mut redis::Connection, name: &str| ask::<u64>(router, &format!("GET social:id:{name}"), &[]);
    let (ann, bob, cid) = (id(router, "ann"), id(router, "bob"), id(router, "cid"));
    with_client(&dev, async |client, store, options| {
        let put = async |key: String| _ = client.put(store, key.as_bytes(), "1", options).await.unwrap();
        let delete = async |key: String| _ = client.delete(store, key.as_bytes(), options).await.unwrap();
        // Half added, half removed; and the same of symmetric edges, whose record at the smaller id decides.
        put(format!("out:FOLLOWS{{{ann}}}{cid}")).await;
        delete(format!("out:FOLLOWS{{{ann}}}{bob}")).await;
        put(format!("out:KNOWS{{{}}}{}", ann.min(cid), ann.max(cid))).await;
        delete(format!("out:KNOWS{{{}}}{}", ann.min(bob), ann.max(bob))).await;
    });
    assert_eq!(neighbours(router, "IN social FOLLOWS bob"), names(&["ann", "cid"]));
    let repaired = dev.done(&["graph", "repair", "social"]);
    assert!(repaired.starts_with("4 edges"), "{repaired}");
    assert_eq!(neighbours(router, "IN social FOLLOWS bob"), names(&["cid"]));
    assert_eq!(neighbours(router, "IN social FOLLOWS cid"), names(&["ann"]));
    assert_eq!(neighbours(router, "social KNOWS ann"), names(&["cid"]));
    assert_eq!(neighbours(router, "social KNOWS bob"), names(&["cid"]));
    assert_eq!(neighbours(router, "social KNOWS cid"), names(&["ann", "bob"]));
    assert!(dev.done(&["graph", "repair", "social"]).starts_with("0 edges"));
}

/// A backup brings the description of a cluster with another number of partitions.
#[test]
fn labels_have_the_partitions_of_the_description() {
    let (_dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let description: String = ask(router, "GET social:graph", &[]);
    let mut description: serde_json::Value = serde_json::from_str(&description).unwrap();
    let partitions = if description["partitions"] == 4 { 8 } else { 4 };
    description["partitions"] = partitions.into();
    with_client(&dev, async |client, store, options| {
        let value = description.to_string();
        client.put(store, b"graph", value, options).await.unwrap();
    });
    let names: Vec<String> = (0..40).map(|number| format!("new{number}")).collect();
    change_among_others(
        router,
        &format!("FONDACO.VERTEX PUT LABEL New social {}", names.join(" ")),
    );
    assert_eq!(rows(router, "MATCH (a:New) RETURN count(a)"), [["40"]]);
    assert_eq!(rows(router, "MATCH (a) RETURN count(a)"), [["40"]]);
    for names in names.chunks(8) {
        assert_eq!(ask::<u64>(router, "FONDACO.VERTEX REMOVE social", names), 8);
    }
    assert_eq!(rows(router, "MATCH (a) RETURN count(a)"), [["0"]]);
}

#[test]
fn changes_that_cannot_be_are_refused_by_name() {
    let (dir, dev) = cluster();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    refused(router, "FONDACO.EDGE ADD social LIKES ann bob", "FONDACO.EDGE DECLARE");
    refused(router, "FONDACO.EDGE DECLARE social KNOWS", "symmetric already");
    refused(router, "FONDACO.EDGE DECLARE social A-B", "A-B");
    refused(router, "FONDACO.EDGE ADD nothing KNOWS ann bob", "NOSTORE");
    refused(router, "FONDACO.EDGE ADD social KNOWS ann", "no pairs");
    refused(
        router,
        r#"FONDACO.VERTEX PUT PROPERTIES {"name":1} social ann"#,
        "never changes",
    );
    let deep = |depth: usize| format!(r#"{{"d":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    refused(
        router,
        &format!("FONDACO.VERTEX PUT PROPERTIES {} social deep", deep(101)),
        "100 deep",
    );
    refused(
        router,
        &format!("FONDACO.EDGE ADD PROPERTIES {} social KNOWS deep bob", deep(101)),
        "100 deep",
    );
    change(
        router,
        &format!("FONDACO.VERTEX PUT PROPERTIES {} social deep", deep(100)),
    );
    assert_eq!(rows(router, "MATCH (a) RETURN count(a.d)"), [["1"]]);
    refused(router, "SET social:id:ann 7", "FONDACO.EDGE");
    refused(router, "DEL social:graph", "FONDACO.EDGE");
    let mut empty = redis::cmd("FONDACO.EDGE");
    empty.arg("ADD").arg("social").arg("KNOWS").arg("").arg("bob");
    assert!(
        empty
            .query::<redis::Value>(router)
            .unwrap_err()
            .to_string()
            .contains("names no vertex")
    );
    change(router, "FONDACO.EDGE REMOVE social KNOWS zoe max");
    for option in ["--ttl=1h", "--engine=cache"] {
        let create = [
            "store",
            "create",
            "short",
            "--kind",
            "versioned",
            "--value-type",
            "graph",
            option,
        ];
        let error = dev.refused(1, &create);
        assert!(error.contains("belong together"), "{error}");
    }
    let csv = dir.path().join("edges.csv");
    std::fs::write(&csv, "from,to\nann,bob\n").unwrap();
    let error = dev.refused(1, &["push", "social", csv.to_str().unwrap(), "--edges", "from,to"]);
    assert!(error.contains("versioned"), "{error}");
    dev.done(&[
        "push",
        "pushed",
        csv.to_str().unwrap(),
        "--edges",
        "from,to",
        "--create",
    ]);
    refused(router, "FONDACO.EDGE ADD pushed EDGE ann bob", "is a batch graph");
}
