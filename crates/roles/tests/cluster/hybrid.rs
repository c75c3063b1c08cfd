//! Hybrid stores: versions with the events of a log on top, in a cluster within one process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fondaco_model::{PartitionCount, slot_of_key};
use fondaco_testing::Kafka;
use serde_json::{Value, json};

use crate::harness::TestCluster;
use crate::resp::Resp;
use crate::single::{Builds, KEYS, eventually, key, until, value};

const PADDING: usize = 50;

pub fn create(cluster: &TestCluster, stream: Value) {
    let store = json!({"name": "pymk", "kind": "hybrid", "stream": stream});
    cluster.client.done("POST", "/v1/stores", store, 201);
}

fn log(cluster: &TestCluster, events: &Value) {
    let answer = cluster
        .client
        .call("POST", "/v1/stores/pymk/events", json!({"events": events}));
    assert_eq!(answer, (200, json!({"logged": events.as_array().unwrap().len()})));
}

fn event(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value})
}

pub fn push(cluster: &TestCluster, request: Value) -> u64 {
    cluster.client.done("POST", "/v1/stores/pymk/pushes", request, 202);
    let push = cluster.client.ended_push();
    assert_eq!(push["state"], "swapped", "{push}");
    push["version"].as_u64().unwrap()
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Waits until all members answer so.
fn all_answer(cluster: &TestCluster, expected: &[(&str, &str)]) {
    for member in cluster.nodes().into_iter().chain(["router-1".to_owned()]) {
        let mut client = cluster.resp_of(&member);
        for (key, value) in expected {
            until(&format!("{member} to answer {value} for {key}"), || {
                client.ask(&format!("GET pymk:{key}")) == *value
            });
        }
    }
}

/// All keys of the store, by a scan.
fn scanned(cluster: &TestCluster, member: &str) -> Vec<String> {
    let mut client = cluster.resp_of(member);
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let mut answer = client.ask_long(&["SCAN", &cursor, "COUNT", "70"]);
        cursor = answer.remove(0);
        keys.append(&mut answer);
        if cursor == "0" {
            break;
        }
    }
    keys.sort_unstable();
    keys
}

#[test]
fn events_are_served_on_top_of_the_version() {
    let cluster = TestCluster::start();
    create(&cluster, json!({"source": "log:3", "engine": "disk"}));
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    let [base, other] = [1, 2].map(|number| value(1, number, PADDING));
    all_answer(&cluster, &[("member-1", &base), ("member-2", &other), ("fresh", "$-1")]);
    log(
        &cluster,
        &json!([event("member-1", "later"), {"key": "member-3", "value": null}, event("fresh", "new")]),
    );
    all_answer(
        &cluster,
        &[
            ("member-1", "later"),
            ("member-2", &other),
            ("member-3", "$-1"),
            ("fresh", "new"),
        ],
    );
    // Routers keep no answers of hybrid stores.
    log(&cluster, &json!([event("member-1", "latest")]));
    all_answer(&cluster, &[("member-1", "latest")]);
    let (status, answer) = cluster
        .client
        .call("POST", "/v1/lookup", json!({"keys": ["pymk:fresh", "pymk:member-3"]}));
    assert_eq!((status, &answer["values"][0]["utf8"]), (200, &json!("new")), "{answer}");

    let mut expected: Vec<String> = (0..KEYS)
        .filter(|number| *number != 3)
        .map(|number| format!("pymk:{}", key(number)))
        .collect();
    expected.push("pymk:fresh".to_owned());
    expected.sort_unstable();
    for member in ["node-1", "router-1"] {
        assert_eq!(scanned(&cluster, member), expected, "{member}");
    }
    // Many keys that are not in the version, and many of it that are deleted.
    let new = |number: usize| format!("new-{number}");
    let deleted = (100..300).map(|number| json!({"key": key(number), "value": null}));
    let events: Vec<Value> = deleted.chain((0..600).map(|number| event(&new(number), "x"))).collect();
    log(&cluster, &json!(events));
    all_answer(&cluster, &[(&new(599), "x"), (&key(299), "$-1"), (&key(100), "$-1")]);
    expected.retain(|wire_key| (100..300).all(|number| *wire_key != format!("pymk:{}", key(number))));
    expected.extend((0..600).map(|number| format!("pymk:{}", new(number))));
    expected.sort_unstable();
    for member in ["node-1", "router-1"] {
        let mut found = eventually("all events to be read", || {
            let found = scanned(&cluster, member);
            (found.len() >= expected.len()).then_some(found)
        });
        found.dedup();
        assert_eq!(found, expected, "{member}");
    }
    // A node that was away reads on.
    cluster.stop("node-2");
    log(&cluster, &json!([event("member-1", "while it was away")]));
    cluster.start_again("node-2");
    cluster.wait_ready();
    all_answer(&cluster, &[("member-1", "while it was away"), ("member-3", "$-1")]);
    for node in cluster.nodes() {
        let stream = cluster.member(&node).get("/v1/stores/pymk/stream");
        let version = &stream["versions"][0];
        assert_eq!(
            (&version["version"], &version["error"]),
            (&json!(1), &Value::Null),
            "{stream}"
        );
        assert_eq!(version["partitions"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_push_rewinds_the_stream_and_a_rollback_loses_nothing() {
    let cluster = TestCluster::start();
    create(&cluster, json!({"source": "log", "engine": "log"}));
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    log(
        &cluster,
        &json!([event("member-1", "before"), event("member-2", "before")]),
    );
    std::thread::sleep(Duration::from_millis(5));
    let as_of = now_ms();
    std::thread::sleep(Duration::from_millis(5));
    log(
        &cluster,
        &json!([event("member-2", "after"), {"key": "member-3", "value": "of old", "time_unix_ms": as_of - 1}]),
    );
    all_answer(
        &cluster,
        &[("member-1", "before"), ("member-2", "after"), ("member-3", "of old")],
    );
    cluster.client.refused(
        "POST",
        "/v1/stores/pymk/pushes",
        json!({"source": builds.build(7), "as_of_unix_ms": as_of + 3_600_000}),
        400,
        "invalid_request",
    );

    push(&cluster, json!({"source": builds.build(2), "as_of_unix_ms": as_of}));
    let of_base = |number| value(2, number, PADDING);
    all_answer(
        &cluster,
        &[
            ("member-1", &of_base(1)),
            ("member-2", "after"),
            ("member-3", &of_base(3)),
        ],
    );
    // Both versions continue to read.
    log(&cluster, &json!([event("member-4", "both")]));
    all_answer(&cluster, &[("member-4", "both")]);
    cluster.client.done("POST", "/v1/stores/pymk/rollback", json!({}), 200);
    all_answer(
        &cluster,
        &[
            ("member-1", "before"),
            ("member-2", "after"),
            ("member-3", "of old"),
            ("member-4", "both"),
        ],
    );
}

#[test]
fn partitions_that_move_read_the_stream_before_they_answer() {
    let cluster = TestCluster::start_with(|config| {
        config.cluster.nodes_initial = 2;
        config.cluster.replicas = 1;
    });
    create(&cluster, json!({"source": "log:2"}));
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    let events: Vec<Value> = (0..KEYS / 2)
        .map(|number| event(&key(number), &format!("event-{number}")))
        .collect();
    log(&cluster, &json!(events));
    let check = |client: &mut Resp| {
        for number in 0..KEYS {
            let answer = client.ask(&format!("GET pymk:{}", key(number)));
            let expected = match number < KEYS / 2 {
                true => format!("event-{number}"),
                false => value(1, number, PADDING),
            };
            assert_eq!(answer, expected, "{number}");
        }
    };
    eventually("all events to be served", || {
        let mut client = cluster.resp();
        let last = format!("event-{}", KEYS / 2 - 1);
        (0..KEYS / 2)
            .all(|number| client.ask(&format!("GET pymk:{}", key(number))).starts_with("event-"))
            .then_some(())?;
        (client.ask(&format!("GET pymk:{}", key(KEYS / 2 - 1))) == last).then_some(())
    });
    let large: Vec<Value> = (0..64)
        .map(|number| event(&format!("large-{number}"), &"x".repeat(64 << 10)))
        .collect();
    large.chunks(8).for_each(|events| log(&cluster, &json!(events)));
    let plan = |more: &str| {
        let plan = json!({"add": [3], "remove": [1, 2], more: true});
        cluster.client.call("POST", "/v1/plans", plan)
    };
    let bytes = eventually("plans to count the bytes of events", || {
        let (status, answer) = plan("dry_run");
        assert_eq!(status, 200, "{answer}");
        answer["bytes"].as_u64().filter(|bytes| *bytes > 4 << 20)
    });
    assert!(bytes < 6 << 20, "space that was only reserved does not count: {bytes}");
    let (status, answer) = plan("run");
    assert_eq!(status, 202, "{answer}");
    let path = format!("/v1/plans/{}", answer["number"]);
    // While they move, no answer is without its events.
    let mut clients: Vec<Resp> = ["router-1", "node-1", "node-3"]
        .map(|member| cluster.resp_of(member))
        .into();
    until("the plan to be done", || {
        clients.iter_mut().for_each(check);
        let plan = cluster.client.get(&path);
        plan["state"] == json!("done")
    });
    cluster.stop("node-1");
    cluster.stop("node-2");
    let mut client = cluster.resp();
    until("the router to know", || client.ask("GET pymk:member-0") == "event-0");
    check(&mut client);
}

#[test]
fn a_hybrid_store_gets_and_gives_up_replicas_under_reads() {
    let cluster = TestCluster::start_with(|config| config.cluster.replicas = 1);
    create(&cluster, json!({"source": "log:2"}));
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    let events: Vec<Value> = (0..KEYS / 2)
        .map(|number| event(&key(number), &format!("event-{number}")))
        .collect();
    log(&cluster, &json!(events));
    let is_whole = |client: &mut Resp| {
        (0..KEYS).all(|number| {
            let answer = client.ask(&format!("GET pymk:{}", key(number)));
            match number < KEYS / 2 {
                true => answer == format!("event-{number}"),
                false => answer == value(1, number, PADDING),
            }
        })
    };
    let mut clients: Vec<Resp> = ["router-1", "node-1", "node-3"]
        .map(|member| cluster.resp_of(member))
        .into();
    until("all events to be served", || clients.iter_mut().all(is_whole));
    for replicas in [3, 1, 3] {
        until("the number to be changed", || {
            let change = json!({"replicas": replicas});
            let (status, _) = cluster.client.call("PATCH", "/v1/stores/pymk", change);
            assert!(clients.iter_mut().all(is_whole));
            status == 200
        });
        // While nodes fetch the version and read the stream, no answer is without its events.
        eventually("the nodes to have their partitions", || {
            assert!(clients.iter_mut().all(is_whole));
            let owners = cluster.client.get("/v1/where?key=pymk:member-0")["owners"].clone();
            let store = cluster.client.get("/v1/stores/pymk");
            (owners.as_array()?.len() == replicas && store["late"] == json!([])).then_some(())
        });
        cluster.wait_ready();
    }
    cluster.stop("node-1");
    cluster.stop("node-2");
    let mut last = cluster.resp_of("node-3");
    until("the node that is left to have everything", || is_whole(&mut last));
}

#[test]
fn streams_of_other_stores_are_refused() {
    let cluster = TestCluster::start();
    cluster.create(json!({}));
    let client = &cluster.client;
    let builds = Builds::beside();
    for (method, path, body) in [
        ("POST", "events", json!({"events": []})),
        ("GET", "stream", Value::Null),
        ("POST", "pushes", json!({"source": builds.build(1), "as_of_unix_ms": 1})),
    ] {
        client.refused(method, &format!("/v1/stores/pymk/{path}"), body, 409, "not_hybrid");
    }
    for store in [
        json!({"name": "a", "kind": "hybrid"}),
        json!({"name": "a", "kind": "hybrid", "stream": {"source": "logs"}}),
        json!({"name": "a", "kind": "hybrid", "stream": {"source": "log", "engine": "memory"}}),
        json!({"name": "a", "kind": "hybrid", "value_type": "graph", "stream": {"source": "log", "ttl_ms": 5}}),
    ] {
        client.refused("POST", "/v1/stores", store, 400, "invalid_request");
    }
    let store = json!({"name": "a", "kind": "batch", "stream": {"source": "log"}});
    client.refused("POST", "/v1/stores", store, 409, "other_kind");
}

#[test]
fn events_of_a_topic_of_kafka_are_served_within_a_second() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("views", 3);
    let cluster = TestCluster::start();
    create(
        &cluster,
        json!({"source": format!("kafka://{}/views", kafka.address())}),
    );
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    let of_base = value(1, 2, PADDING);
    let mut number = 0;
    let mut is_slow = || {
        number += 1;
        let text = format!("view-{number}");
        topic.send(number % 3, Some("member-1"), Some(&text), None);
        topic.flush();
        let sent = Instant::now();
        let mut client = cluster.resp();
        until("the event", || client.ask("GET pymk:member-1") == text);
        sent.elapsed() >= Duration::from_secs(1)
    };
    // The first ones wait until consumers have found their broker.
    (0..6).for_each(|_| _ = is_slow());
    // The machine may stall now and then.
    let mut is_quick_round = || (0..14).filter(|_| is_slow()).count() <= 2;
    assert!((0..5).any(|_| is_quick_round()));
    let last = format!("view-{number}");
    all_answer(&cluster, &[("member-1", &last), ("member-2", &of_base)]);
    // A new version reads the topic, too, before it is swapped in.
    push(&cluster, json!({"source": builds.build(2)}));
    let of_base = value(2, 2, PADDING);
    all_answer(&cluster, &[("member-1", &last), ("member-2", &of_base)]);
    let answer = cluster
        .client
        .call("POST", "/v1/stores/pymk/events", json!({"events": []}));
    assert_eq!((answer.0, &answer.1["error"]["code"]), (409, &json!("no_log")));
}

/// The warnings of a member's readiness.
fn warnings(cluster: &TestCluster, member: &str) -> String {
    let (_, readiness) = cluster.member(member).call("GET", "/readyz", Value::Null);
    readiness["warnings"].to_string()
}

#[test]
fn a_source_that_fails_is_told_with_its_cause() {
    let mut kafka = Kafka::start();
    let cluster = TestCluster::start();
    let source = format!("kafka://{}/views", kafka.address());
    let store = json!({"name": "pymk", "kind": "hybrid", "stream": {"source": source}});
    let (status, answer) = cluster.client.call("POST", "/v1/stores", store);
    let missing = "there is no topic \"views\": create it";
    let problem = answer["stream_problem"].as_str().unwrap_or_default();
    assert!(status == 201 && problem.starts_with(missing), "{answer}");
    let builds = Builds::beside();
    let request = json!({"source": builds.build(1)});
    assert_eq!(cluster.client.call("POST", "/v1/stores/pymk/pushes", request).0, 202);
    // All nodes have the files, and wait for the topic.
    let waits = |push: &Value| {
        let nodes = push["nodes"]
            .as_array()
            .filter(|nodes| nodes.len() == cluster.nodes().len());
        nodes.is_some_and(|nodes| {
            let is_told = |node: &Value| node["error"].as_str().unwrap_or_default().starts_with(missing);
            nodes.iter().all(|node| node["reads_stream"] == true && is_told(node))
        })
    };
    let begun = Instant::now();
    until("the push to say what it waits for", || {
        waits(&cluster.client.get("/v1/stores/pymk/push"))
    });
    for member in cluster.nodes() {
        until("the node to warn", || {
            warnings(&cluster, &member).contains("there is no topic")
        });
    }
    eprintln!("told after {:?}", begun.elapsed());
    assert!(waits(&cluster.client.get("/v1/stores/pymk/versions")["push"]));
    assert!(waits(&cluster.client.get("/v1/stores/pymk")["push"]));

    let topic = kafka.make_topic("views", 2);
    topic.send(0, Some("member-1"), Some("view"), None);
    topic.flush();
    let push = cluster.client.ended_push();
    assert_eq!(push["state"], "swapped", "{push}");
    assert_eq!(cluster.client.get("/v1/stores/pymk/versions")["push"], Value::Null);
    all_answer(&cluster, &[("member-1", "view")]);

    // The store answers on, and a broker that is away for long is told.
    let errors = || {
        let store = cluster.client.get("/v1/stores/pymk");
        let nodes = store["versions"][0]["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| !node["error"].is_null()).count()
    };
    let first = &cluster.nodes()[0];
    until("all to be well", || errors() == 0);
    kafka.kill();
    let killed = Instant::now();
    until("all nodes to report it", || errors() == cluster.nodes().len());
    until("a node to warn", || {
        warnings(&cluster, first).contains("of store \\\"pymk\\\"")
    });
    eprintln!("told after {:?}", killed.elapsed());
    assert_eq!(cluster.member(first).call("GET", "/readyz", Value::Null).0, 200);
    all_answer(&cluster, &[("member-1", "view")]);
    kafka.restart();
    until("all to be well again", || {
        errors() == 0 && warnings(&cluster, first) == "[]"
    });
}

#[test]
fn nodes_read_their_partitions_of_a_topic_alone() {
    let kafka = Kafka::shared();
    let topic_partitions = PartitionCount::try_from(64).unwrap();
    let topic = kafka.make_topic("views-by-store", 64);
    let cluster = TestCluster::start();
    create(
        &cluster,
        json!({"source": format!("kafka://{}/views-by-store", kafka.address()), "partitioner": "store"}),
    );
    let send = |text: &str| {
        for number in 0..KEYS {
            let slot = slot_of_key(&"pymk".parse().unwrap(), key(number).as_bytes());
            let partition = topic_partitions.partition_of(slot).get() as i32;
            topic.send(partition, Some(&key(number)), Some(text), None);
        }
        topic.flush();
    };
    send("first");
    let builds = Builds::beside();
    push(&cluster, json!({"source": builds.build(1)}));
    let last = key(KEYS - 1);
    all_answer(&cluster, &[("member-1", "first"), (&last, "first")]);
    // A node that was away continues.
    cluster.stop("node-2");
    send("second");
    cluster.start_again("node-2");
    cluster.wait_ready();
    all_answer(&cluster, &[("member-1", "second"), (&last, "second")]);
    for node in cluster.nodes() {
        let stream = cluster.member(&node).get("/v1/stores/pymk/stream");
        let version = &stream["versions"][0];
        let counts = ["elsewhere", "poison"].map(|count| &version[count]);
        assert_eq!(counts, [&json!(0), &json!(0)], "{stream}");
        assert!(version["partitions"].as_array().unwrap().len() < 64, "{stream}");
    }
    let of_log = json!({"source": "log", "partitioner": "store"});
    let store = json!({"name": "logged", "kind": "hybrid", "stream": of_log});
    assert_eq!(cluster.client.call("POST", "/v1/stores", store).0, 400);
}
