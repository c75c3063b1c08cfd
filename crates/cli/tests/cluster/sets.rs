//! Sets of ids: built, pushed to a cluster of two groups, and computed over where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use fondaco_client::Client;
use serde_json::Value;

use super::node::{Node, until};

const KEYS: u64 = 1000;

/// The ids of a key: its number, its multiples, and one that all keys have.
fn ids(key: u64) -> BTreeSet<u64> {
    let multiples = (1..=key % 50 + 1).map(|factor| key * factor);
    multiples.chain([u64::from(u32::MAX)]).collect()
}

fn graph() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let groups = ["--nodes", "4", "--groups", "2", "--loops", "1"];
    let dev = several(&dir.path().join("data"), &groups);
    let mut csv = String::from("member,connections\n");
    for key in 0..KEYS {
        let ids: Vec<String> = ids(key).iter().rev().map(u64::to_string).collect();
        writeln!(csv, "{key},\"[{}]\"", ids.join(", ")).unwrap();
    }
    let input = dir.path().join("connections.csv");
    std::fs::write(&input, csv).unwrap();
    dev.done(&["store", "create", "graph", "--value-type", "ids"]);
    let shown = dev.done(&["store", "show", "graph"]);
    assert!(shown.contains("values are of type ids"), "{shown}");
    let input = input.to_str().unwrap();
    dev.done(&["push", "graph", input, "--key", "member", "--value", "connections"]);
    (dir, dev)
}

pub(crate) fn addresses(dev: &Node, role: &str) -> BTreeMap<String, String> {
    let members = dev.http_get("/v1/dev/members");
    let members = members["members"].as_array().unwrap().iter();
    let members = members.filter(|member| member["role"] == role);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    members
        .filter(|member| member["resp"].is_string())
        .map(|member| (text(&member["name"]), text(&member["resp"])))
        .collect()
}

/// `fondaco dev` of several nodes, with these arguments. A request may take long on a busy machine.
pub(crate) fn several(data: &Path, more: &[&str]) -> Node {
    let dev = Node::dev_with(data, more);
    dev.done(&["config", "set", "forward-timeout-ms=20000"]);
    dev
}

pub(crate) fn connect(address: &str) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    client.get_connection().unwrap()
}

pub(crate) fn ask<T: redis::FromRedisValue>(redis: &mut redis::Connection, command: &str, arguments: &[String]) -> T {
    let mut asked = redis::Cmd::new();
    for word in command.split(' ') {
        asked.arg(word);
    }
    arguments.iter().for_each(|argument| _ = asked.arg(argument));
    asked.query(redis).unwrap_or_else(|error| panic!("{command}: {error}"))
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("graph:{number}")).collect()
}

/// How often the nodes were asked by others, as they count it.
pub(crate) fn requests(nodes: &BTreeMap<String, String>, command: &str) -> u64 {
    let calls = |address: &String| {
        let text: String = ask(&mut connect(address), "INFO commandstats", &[]);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    nodes.values().map(calls).sum()
}

#[test]
fn set_commands_answer_alike_at_router_and_nodes() {
    let (_dir, dev) = graph();
    let mut all = addresses(&dev, "node");
    all.extend(addresses(&dev, "router"));
    let some = [3, 40, 41, 700, 999];
    let sets: Vec<BTreeSet<u64>> = some.iter().map(|&key| ids(key)).collect();
    let union: BTreeSet<u64> = sets.iter().flatten().copied().collect();
    let common: BTreeSet<u64> = union
        .iter()
        .copied()
        .filter(|id| sets.iter().all(|set| set.contains(id)))
        .collect();
    let others: BTreeSet<u64> = sets[1..].iter().flatten().copied().collect();
    let difference: Vec<u64> = sets[0].difference(&others).copied().collect();
    assert_eq!(all.len(), 5);
    for (name, address) in all {
        let redis = &mut connect(&address);
        let own: Vec<u64> = ask(redis, "SMEMBERS", &keys([40]));
        assert_eq!(own, ids(40).into_iter().collect::<Vec<_>>(), "{name}");
        assert_eq!(ask::<BTreeSet<u64>>(redis, "SUNION", &keys(some)), union, "{name}");
        assert_eq!(ask::<BTreeSet<u64>>(redis, "SINTER", &keys(some)), common, "{name}");
        assert_eq!(ask::<Vec<u64>>(redis, "SDIFF", &keys(some)), difference, "{name}");
        assert_eq!(
            ask::<u64>(redis, "SCARD", &keys([999])),
            ids(999).len() as u64,
            "{name}"
        );
        assert!(ask::<bool>(redis, "SISMEMBER graph:7 14", &[]), "{name}");
        let members: Vec<bool> = ask(redis, "SMISMEMBER graph:7 7 8 21", &[]);
        assert_eq!(members, [true, false, true], "{name}");
        let counts: Vec<u64> = ask(redis, "FONDACO.IDS COUNTS", &keys([1, 5000, 2]));
        assert_eq!(counts, [3, 0, 4], "{name}: no such key, no ids");
        let top: Vec<u64> = ask(redis, "FONDACO.IDS TOP 1", &keys(some));
        assert_eq!(top, [u64::from(u32::MAX), 5], "{name}");
        assert!(ask::<bool>(redis, "FONDACO.IDS INTERSECTS", &keys([1, 2])), "{name}");
        assert!(
            !ask::<bool>(redis, "FONDACO.IDS INTERSECTS", &keys([1, 5000])),
            "{name}"
        );
        let contains: Vec<Vec<bool>> = ask(redis, "FONDACO.IDS CONTAINS 4,2,9,4", &keys([2, 3]));
        assert_eq!(
            contains,
            [[true, true, false, true], [false, false, true, false]],
            "{name}"
        );
    }
}

#[test]
fn a_query_asks_as_few_nodes_as_its_fan_out_allows() {
    let (_dir, dev) = graph();
    let nodes = addresses(&dev, "node");
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    ask::<String>(router, "CONFIG SET router-cache-bytes 0", &[]);
    let all = keys(0..KEYS);
    let mut asked = |command: &str, counted: &str| {
        let before = requests(&nodes, counted);
        let found: Vec<redis::Value> = ask(router, command, &all);
        assert!(!found.is_empty());
        requests(&nodes, counted) - before
    };
    let narrow = asked("FONDACO.MGET FANOUT 1 STRATEGY cluster", "fondaco.read");
    assert!(narrow <= 2, "{narrow} requests for one group of two nodes");
    let wide = asked("FONDACO.MGET FANOUT 2 STRATEGY cluster", "fondaco.read");
    assert!(wide > narrow, "{wide} requests for two groups, {narrow} for one");
    let narrow = asked("FONDACO.IDS UNION FANOUT 1", "fondaco.compute");
    assert!(narrow <= 2, "{narrow} requests for one group of two nodes");
    assert!(asked("FONDACO.IDS UNION FANOUT 2", "fondaco.compute") > narrow);
    assert!(asked("FONDACO.MGET STRATEGY set-cover", "fondaco.read") <= 2);
    // A default of the store holds for requests that say nothing, and for no others.
    assert!(asked("MGET", "fondaco.read") > 2);
    let shown = dev.done(&["store", "alter", "graph", "--fan-out", "cluster:1"]);
    assert!(shown.contains("cluster:1"), "{shown}");
    until("the router knows the default", || asked("MGET", "fondaco.read") <= 2);
    assert!(asked("FONDACO.MGET FANOUT 2 STRATEGY cluster", "fondaco.read") > 2);
    dev.done(&["store", "alter", "graph", "--fan-out", "default"]);
    until("the router knows that there is none", || {
        asked("MGET", "fondaco.read") > 2
    });
    let error = dev.refused(2, &["store", "alter", "graph", "--fan-out", "best"]);
    assert!(error.contains("best") && error.contains("set-cover"), "{error}");
}

#[test]
fn nodes_tell_the_rate_of_all_clients_in_their_replies() {
    let (_dir, dev) = graph();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let seeds: Vec<String> = addresses(&dev, "node").into_values().collect();
        let connect = || Client::builder().seeds(seeds.clone()).connect();
        let (busy, idle) = (connect().await.unwrap(), connect().await.unwrap());
        let store = "graph".parse().unwrap();
        let reported = |client: &Client| client.stats().nodes.iter().map(|node| node.reported_rate).sum::<u32>();
        // One client learns from replies what the other one does.
        let began = std::time::Instant::now();
        while reported(&idle) < 20 {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", reported(&idle));
            for key in 0..50 {
                busy.get(&store, format!("{key}").as_bytes()).await.unwrap();
            }
            for key in 0..10 {
                idle.get(&store, format!("{key}").as_bytes()).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn queries_are_whole_while_a_node_is_stopped() {
    let (_dir, dev) = graph();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let expected: BTreeSet<u64> = (0..KEYS).flat_map(ids).collect();
    assert_eq!(ask::<BTreeSet<u64>>(router, "SUNION", &keys(0..KEYS)), expected);
    dev.http_post("/v1/dev/members/node-2/stop", serde_json::json!({}));
    until("queries are whole without a node", || {
        let mut command = redis::cmd("FONDACO.IDS");
        command.arg(&["UNION", "FANOUT", "1"]).arg(keys(0..KEYS));
        command
            .query::<BTreeSet<u64>>(router)
            .is_ok_and(|found| found == expected)
    });
    for _ in 0..20 {
        assert_eq!(
            ask::<BTreeSet<u64>>(router, "FONDACO.IDS UNION FANOUT 1", &keys(0..KEYS)),
            expected
        );
    }
}

#[test]
fn sets_are_refused_by_stores_without_sets() {
    let (dir, dev) = graph();
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let refused = |router: &mut redis::Connection, words: &str, part: &str| {
        let mut command = redis::Cmd::new();
        words.split(' ').for_each(|word| _ = command.arg(word));
        let error = command.query::<redis::Value>(router).unwrap_err().to_string();
        assert!(error.contains(part), "{words}: {error}");
    };
    dev.done(&["store", "create", "plain"]);
    refused(router, "SMEMBERS plain:1", "WRONGTYPE");
    refused(router, "SUNION graph:1 plain:1", "of one store");
    refused(router, "SUNION graph:1 nothing", "BADKEY");
    // As in Redis, text that is no id is in no set.
    assert!(
        !redis::cmd("SISMEMBER")
            .arg("graph:1")
            .arg("-4")
            .query::<bool>(router)
            .unwrap()
    );
    refused(router, "FONDACO.IDS UNION LIMIT 5 graph:40", "over the limit of 5");
    refused(router, "FONDACO.MGET FANOUT 0 graph:40", "groups");
    ask::<String>(router, "CONFIG SET compute-ids-max 3", &[]);
    refused(
        router,
        "FONDACO.IDS CONTAINS 1,2 graph:1 graph:2",
        "2 ids for each of 2 keys",
    );
    for _ in 0..20 {
        refused(router, "SUNION graph:40 graph:41", "LIMIT");
    }
    // No node is suspended for what was asked of it.
    ask::<String>(router, "CONFIG SET router-cache-bytes 0", &[]);
    assert_eq!(
        ask::<Vec<Option<redis::Value>>>(router, "MGET", &keys(0..50))
            .into_iter()
            .flatten()
            .count(),
        50
    );
    refused(router, "FONDACO.MGET STRATEGY best graph:40", "round-robin");

    let bad = dir.path().join("bad.csv");
    std::fs::write(&bad, "member,connections\n1,\"1, 2\"\n2,\"1, x\"\n").unwrap();
    let bad = bad.to_str().unwrap();
    let error = dev.refused(1, &["push", "graph", bad, "--key", "member", "--value", "connections"]);
    assert!(error.contains("\"x\" at byte 3 is not an id"), "{error}");
    let error = dev.refused(1, &["push", "graph", bad, "--key", "member"]);
    assert!(error.contains("--value COLUMN"), "{error}");
    let other = ["push", "graph", bad, "--key", "member", "--value-type", "bytes"];
    let error = dev.refused(1, &other);
    assert!(error.contains("are of type ids, not bytes"), "{error}");
    let plain = dir.path().join("plain");
    let plain = plain.to_str().unwrap();
    dev.done(&["build", "graph", bad, "--key", "member", "--output", plain]);
    let error = dev.refused(1, &["deploy", "graph", plain]);
    assert!(
        error.contains("values of type bytes") && error.contains("--value-type ids"),
        "{error}"
    );
}

#[test]
fn a_versioned_store_takes_sets_as_text_and_computes_over_them() {
    let dir = tempfile::tempdir().unwrap();
    let dev = several(&dir.path().join("data"), &["--nodes", "3", "--loops", "1"]);
    dev.done(&["store", "create", "live", "--kind", "versioned", "--value-type", "ids"]);
    let router = &mut connect(addresses(&dev, "router").values().next().unwrap());
    let set = |router: &mut redis::Connection, key: &str, value: &str| {
        redis::cmd("SET").arg(key).arg(value).query::<String>(router)
    };
    until("the store is known", || set(router, "live:1", "9 5,1").is_ok());
    set(router, "live:2", "5 6").unwrap();
    let union: Vec<u64> = ask(router, "SUNION live:1 live:2 live:3", &[]);
    assert_eq!(union, [1, 5, 6, 9]);
    assert_eq!(ask::<Vec<u64>>(router, "SINTER live:1 live:2", &[]), [5]);
    assert_eq!(ask::<u64>(router, "SCARD live:1", &[]), 3);
    let error = set(router, "live:1", "5 x").unwrap_err().to_string();
    assert!(error.contains("\"x\" at byte 2 is not an id"), "{error}");
    let error = redis::cmd("APPEND")
        .arg("live:1")
        .arg(" 7")
        .query::<u64>(router)
        .unwrap_err()
        .to_string();
    assert!(error.contains("sets of ids"), "{error}");
    assert_eq!(
        ask::<u64>(router, "SCARD live:1", &[]),
        3,
        "what was refused changed nothing"
    );
}
