//! Sets of ids and graphs that events change: a development cluster, whose log is the topic.

use std::collections::BTreeSet;

use redis::Commands as _;
use serde_json::{Value, json};

use super::node::{Node, until};
use super::sets::{addresses, ask, connect, several};

/// A cluster of two nodes, each with half of the keys.
fn cluster() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let dev = several(
        &dir.path().join("data"),
        &["--nodes", "2", "--replicas", "1", "--loops", "1"],
    );
    (dir, dev)
}

fn all(dev: &Node) -> Vec<redis::Connection> {
    let members = addresses(dev, "node")
        .into_values()
        .chain(addresses(dev, "router").into_values());
    members.map(|address| connect(&address)).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn update(redis: &mut redis::Connection, key: &str, change: &Value) {
    let arguments = [key.to_owned(), change.to_string()];
    assert_eq!(ask::<String>(redis, "FONDACO.UPDATE", &arguments), "OK");
}

/// Puts the events into new versions, until so few keys have events on top.
fn compact(dev: &Node, store: &str, keys_max: u64) {
    let redis = &mut dev.redis();
    until("the events are in a version", || {
        // The watermark follows the newest events.
        let tick = match store {
            "sets" => ask::<String>(redis, "FONDACO.UPDATE sets:tick", &[json!({"add": [1]}).to_string()]),
            _ => ask::<String>(redis, "FONDACO.VERTEX PUT social tick", &[]),
        };
        assert_eq!(tick, "OK");
        std::thread::sleep(std::time::Duration::from_secs(1));
        let compacted = dev.run(&["store", "compact", store, "--quiet", "--json"]);
        let compacted: Value = serde_json::from_slice(&compacted.stdout).unwrap_or_default();
        let version = compacted["push"]["version"].as_u64();
        let stream = dev.http_get(&format!("/v1/stores/{store}/stream"));
        let mut versions = stream["versions"].as_array().unwrap().iter();
        version.is_some()
            && versions.all(|on| on["version"].as_u64() != version || on["keys"].as_u64() <= Some(keys_max))
    });
}

#[test]
fn events_add_and_remove_members_of_pushed_sets() {
    let (dir, dev) = cluster();
    let csv = dir.path().join("sets.csv");
    std::fs::write(&csv, "key,ids\na,\"1,2,3\"\nb,\"3,4\"\nc,7\n").unwrap();
    dev.done(
        &words("store create sets --kind hybrid --value-type ids --stream log:3 --acknowledge applied --grace 1s")
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    dev.done(&[
        "push",
        "sets",
        csv.to_str().unwrap(),
        "--key",
        "key",
        "--value",
        "ids",
        "--quiet",
    ]);
    let mut processes = all(&dev);
    assert_eq!(processes.len(), 3);
    let check = |processes: &mut Vec<redis::Connection>| {
        for redis in processes {
            assert_eq!(ask::<Vec<u64>>(redis, "SMEMBERS sets:a", &[]), [1, 3, 9]);
            assert_eq!(ask::<Vec<u64>>(redis, "SMEMBERS sets:b", &[]), [3, 4, 5]);
            assert_eq!(ask::<u64>(redis, "SCARD sets:new", &[]), 2);
            assert!(!ask::<bool>(redis, "EXISTS sets:c", &[]));
            let union: BTreeSet<u64> = ask(redis, "SUNION sets:a sets:b sets:c sets:new", &[]);
            assert_eq!(union, [1, 3, 4, 5, 9, u64::MAX >> 1].into());
            assert_eq!(
                ask::<Vec<u64>>(redis, "FONDACO.IDS INTERSECTION sets:a sets:b", &[]),
                [3]
            );
            assert_eq!(ask::<Vec<u64>>(redis, "FONDACO.IDS COUNTS sets:a sets:c", &[]), [3, 0]);
        }
    };
    update(&mut processes[0], "sets:a", &json!({"add": [9, 1], "remove": [2, 100]}));
    update(&mut processes[1], "sets:b", &json!({"add": [5]}));
    update(&mut processes[2], "sets:c", &json!({"remove": [7]}));
    // A set as text, and the same member twice.
    ask::<String>(&mut processes[2], "SET sets:new", &["1 3".to_owned()]);
    update(
        &mut processes[2],
        "sets:new",
        &json!({"remove": [3, 1], "add": [9, 9, u64::MAX >> 1]}),
    );
    check(&mut processes);
    for (key, change) in [
        ("sets:a", r#"{"add": [-1]}"#),
        ("sets:a", r#"{"add": [9223372036854775808]}"#),
        ("sets:a", r#"{"add": ["1"]}"#),
        ("sets:a", r#"{"add": {"x": [1]}}"#),
        ("sets:a", r#"{"increment": 1}"#),
    ] {
        let refused: redis::RedisResult<()> = redis::cmd("FONDACO.UPDATE")
            .arg(key)
            .arg(change)
            .query(&mut processes[2]);
        assert!(refused.is_err(), "{change}");
    }
    let refused: redis::RedisResult<()> = processes[2].set("sets:a", b"\x01\xff\xff\xff\xff".as_slice());
    assert!(refused.unwrap_err().to_string().contains("WRONGTYPE"));
    check(&mut processes);
    compact(&dev, "sets", 1);
    check(&mut processes);
}

#[test]
fn events_change_a_pushed_graph_and_second_degrees_follow() {
    let (dir, dev) = cluster();
    let csv = dir.path().join("knows.csv");
    std::fs::write(&csv, "from,to\nann,bob\nbob,cid\n").unwrap();
    dev.done(
        &words("store create social --kind hybrid --value-type graph --stream log:3 --acknowledge applied --grace 1s")
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    let csv = csv.to_str().unwrap();
    let push = [
        "push",
        "social",
        csv,
        "--edges",
        "from,to",
        "--type",
        "KNOWS",
        "--symmetric",
        "--quiet",
    ];
    dev.done(&push);
    let mut processes = all(&dev);
    let size = |redis: &mut redis::Connection, name: &str| -> Vec<u64> {
        ask(redis, &format!("FONDACO.GRAPH SIZE social KNOWS {name}"), &[])
    };
    let change = |redis: &mut redis::Connection, text: &str| assert_eq!(ask::<String>(redis, text, &[]), "OK");
    assert_eq!(size(&mut processes[2], "ann"), [1, 1]);
    // A new vertex, with an edge to an old one: two edges away from ann.
    change(&mut processes[2], "FONDACO.EDGE ADD social KNOWS bob dan");
    change(&mut processes[0], "FONDACO.EDGE ADD social KNOWS dan eva");
    change(&mut processes[1], "FONDACO.EDGE REMOVE social KNOWS bob cid");
    change(
        &mut processes[1],
        r#"FONDACO.VERTEX PUT LABEL Person PROPERTIES {"age":30} social dan"#,
    );
    change(&mut processes[0], "FONDACO.EDGE DECLARE social LIKES");
    change(
        &mut processes[0],
        r#"FONDACO.EDGE ADD PROPERTIES {"since":2001} social LIKES ann dan"#,
    );
    let check = |processes: &mut Vec<redis::Connection>| {
        for redis in processes {
            assert_eq!(size(redis, "ann"), [1, 1]);
            assert_eq!(size(redis, "bob"), [2, 1]);
            assert_eq!(size(redis, "cid"), [0, 0]);
            let far: Vec<Option<u64>> = ask(redis, "FONDACO.GRAPH DISTANCES social KNOWS ann dan eva cid", &[]);
            assert_eq!(far, [Some(2), Some(3), None]);
            assert_eq!(
                ask::<Vec<String>>(redis, "FONDACO.GRAPH NEIGHBOURS IN social LIKES dan", &[]),
                ["ann"]
            );
            let query = "MATCH (a:Person)<-[r:LIKES]-(b) WHERE a.age = 30 RETURN b.name, r.since";
            type Rows = (Vec<String>, Vec<Vec<String>>, Vec<String>);
            let (_, rows, _): Rows = ask(redis, "GRAPH.RO_QUERY social", &[query.to_owned()]);
            assert_eq!(rows, [["ann", "2001"]]);
        }
    };
    check(&mut processes);
    for (text, part) in [
        ("FONDACO.EDGE ADD social HATES ann bob", "NOTYPE"),
        ("FONDACO.EDGE DECLARE social LIKES SYMMETRIC", "declared already"),
        ("FONDACO.EDGE REPAIR social 0", "versioned"),
        ("FONDACO.VERTEX PUT LABEL 7x social ann", "name of a label"),
        ("SET social:graph x", "FONDACO.EDGE"),
        ("FONDACO.UPDATE social:graph {\"add\":[1]}", "FONDACO.EDGE"),
    ] {
        let mut command = redis::Cmd::new();
        words(text).iter().for_each(|word| _ = command.arg(word));
        let error = command.query::<()>(&mut processes[2]).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    // Those of the vertex that is put again and again.
    compact(&dev, "social", 3);
    check(&mut processes);
    // A push keeps the ids of vertices that events have made.
    std::fs::write(csv, "from,to\nann,bob\nbob,dan\nfay,dan\n").unwrap();
    dev.done(&push);
    assert_eq!(size(&mut processes[2], "fay"), [1, 2]);
    assert_eq!(
        ask::<u64>(&mut processes[2], "FONDACO.VERTEX REMOVE social dan nobody", &[]),
        1
    );
    assert_eq!(size(&mut processes[1], "fay"), [0, 0]);
    assert_eq!(size(&mut processes[0], "bob"), [1, 0]);
}
