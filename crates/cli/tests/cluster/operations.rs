//! Every operation of the control port at a node, a router and a controller: the same answer, or a refusal that names the
//! address of a node.

use std::collections::BTreeSet;

use fondaco_testing::Kafka;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{Node, until};

/// Operations whose answers are about the answering process, or whose numbers change all the time.
const OWN: &[&str] = &[
    "get /",
    "get /healthz",
    "get /readyz",
    "get /metrics",
    "get /v1/status",
    "get /v1/settings",
    "patch /v1/settings",
    "get /v1/session",
    "post /v1/session",
    "delete /v1/session",
    "get /v1/load",
    "get /v1/load/history",
    "get /v1/decisions",
];

/// Operations that are not asked: a stream without an end, a report that only nodes send, and the one that changes what
/// others answer.
const UNASKED: &[&str] = &["get /v1/events", "post /v1/load", "post /v1/routing/split"];

/// Members that processes know differently, as the document says, or that change all the time.
const VOLATILE: &[&str] = &[
    "space_used_bytes",
    "keys",
    "lag_ms",
    "files_total",
    "files_done",
    "rate_limit_bytes_per_second",
    "uptime_ms",
    "filter_bytes",
    "directory",
];

/// The path of an operation with values, and its body.
fn concrete(operation: &str) -> (String, Value) {
    let (_, path) = operation.split_once(' ').unwrap();
    let body = match operation {
        "post /v1/stores" => json!({"name": "s"}),
        "post /v1/stores/{store}/swap" => json!({"version": 99}),
        "post /v1/stores/{store}/rollback" => json!({"to": 99}),
        "post /v1/stores/{store}/push/confirmation" => json!({"version": 99}),
        "post /v1/stores/{store}/canary" => json!({"action": "pause"}),
        "post /v1/stores/{store}/pushes" => json!({"source": "file:///absent"}),
        "post /v1/stores/{store}/events" => json!({"events": []}),
        "post /v1/stores/{store}/schemas" => json!({"schema": {"type": "long"}}),
        "post /v1/lookup" => json!({"keys": ["s:1", "s:absent"]}),
        "post /v1/graphs/{store}/query" => json!({"query": "MATCH (a) RETURN a"}),
        "post /v1/plans" => json!({"add": [99], "dry_run": true}),
        "post /v1/cluster/adopt" => json!({"present": true}),
        "post /v1/nodes/{node}/mark" => json!({"mark": "leaving"}),
        "put /v1/users/{user}" => json!({"password": "short"}),
        _ => Value::Null,
    };
    // Changes are asked of what does not exist.
    let store = match operation {
        "patch /v1/stores/{store}" | "delete /v1/stores/{store}" | "post /v1/stores/{store}/restore" => "absent",
        _ if path.contains("/stream") || path.contains("/events") => "h",
        _ if path.contains("/records") || path.contains("/hints") => "v",
        _ => "s",
    };
    let mut path = path.replace("{store}", store);
    for (parameter, value) in [
        ("{partition}", "0"),
        ("{version}", "1"),
        ("{file}", "manifest.json"),
        ("{upload}", "absent"),
        ("{key}", "1"),
        ("{node}", "99"),
        ("{user}", "absent"),
        ("{plan}", "99"),
        ("{decision}", "999999"),
        ("{loss}", "absent"),
        ("{member}", "absent"),
        ("{id}", "1"),
        ("{other}", "2"),
    ] {
        path = path.replace(parameter, value);
    }
    assert!(!path.contains('{'), "{path}");
    path += match operation {
        "get /v1/where" => "?key=s:1",
        "get /v1/stores/{store}/stream/changes/{partition}" => "?version=1&until_unix_ms=1",
        "put /v1/stores/{store}/uploads/{upload}/files/{file}" => "?offset=0",
        _ => "",
    };
    (path, body)
}

/// Asks a process. Returns the status, and the body without what is volatile.
fn ask(process: &Node, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = match body {
        Value::Null => Vec::new(),
        body => serde_json::to_vec(body).unwrap(),
    };
    let request = ureq::http::Request::builder()
        .method(method.to_uppercase().as_str())
        .uri(format!("http://{}{path}", process.http));
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let mut answer = config.new_agent().run(request.body(body).unwrap()).unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.body_mut().read_to_vec().unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut body = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
    settle(&mut body);
    (status, body)
}

fn settle(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            members.values_mut().for_each(settle);
        }
        Value::Array(elements) => {
            elements.iter_mut().for_each(settle);
            // Nodes answer for themselves first.
            if elements.iter().all(|element| element["node"].is_u64()) {
                elements.sort_by_key(|element| (element["version"].as_u64(), element["node"].as_u64()));
            }
        }
        _ => {}
    }
}

#[test]
fn nodes_routers_and_controllers_answer_the_same_or_name_a_node() {
    let kafka = Kafka::shared();
    let topic = kafka.make_topic("counts-of-operations", 2);
    let cluster = Cluster::serving(Shape::steady());
    let any = cluster.any();
    any.done(&["store", "create", "v", "--kind", "versioned"]);
    let stream = format!("kafka://{}/counts-of-operations", kafka.address());
    any.done(&["store", "create", "h", "--kind", "hybrid", "--stream", &stream]);
    topic.send(0, Some("k"), Some("value"), []);
    topic.send(1, None, Some("a record without a key"), []);
    topic.flush();
    let csv = cluster.dir.path().join("h.csv");
    super::node::write_csv(&csv, [("1".to_owned(), "x".to_owned())]);
    any.done(&["push", "h", csv.to_str().unwrap(), "--key", "key", "--value", "value"]);

    let node_addresses: Vec<&str> = ["node-1", "node-2", "node-3"].map(|name| cluster.http_of(name)).into();
    let names_a_node = |answer: &(u16, Value)| {
        let message = answer.1["error"]["message"].as_str().unwrap_or_default();
        answer.0 >= 400 && node_addresses.iter().any(|address| message.contains(address))
    };
    let [node, router, controller] = ["node-1", "router-1", "controller-1"].map(|name| cluster.get(name));
    let document = node.http_get("/openapi.json");
    let mut left = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        left.extend(
            methods
                .as_object()
                .unwrap()
                .keys()
                .map(|method| format!("{method} {path}")),
        );
    }
    let known = |operation: &&&str| !left.contains(**operation);
    let unknown: Vec<_> = OWN.iter().chain(UNASKED).filter(known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    left.retain(|operation| !UNASKED.contains(&&**operation));
    let mut wrong = Vec::new();
    until(
        "every operation is answered the same, or with the address of a node",
        || {
            wrong.clear();
            left.retain(|operation| {
                let (path, body) = concrete(operation);
                let method = operation.split(' ').next().unwrap();
                let [at_node, others @ ..] =
                    [node, router, controller].map(|process| ask(process, method, &path, &body));
                let is_right = |answer: &(u16, Value)| match OWN.contains(&&**operation) {
                    true => answer.0 == at_node.0,
                    false => *answer == at_node || names_a_node(answer),
                };
                if others.iter().all(is_right) {
                    return false;
                }
                wrong.push(format!("{operation}: {at_node:?} {others:?}"));
                true
            });
            if !left.is_empty() {
                eprintln!("{}", wrong.join("\n"));
            }
            left.is_empty()
        },
    );

    // The answers of nodes are there, and not just equally empty.
    for process in [node, router, controller] {
        until("the record without a key is known everywhere", || {
            let poison = process.http_get("/v1/stores/h/stream/poison");
            poison["records"].as_array().is_some_and(|records| records.len() == 1)
        });
        assert!(process.done(&["store", "poison", "h"]).contains("PARTITION"));
        let status = process.json(&["status"]);
        let versions = status["streams"]["h"]["versions"].as_array().unwrap();
        let nodes: BTreeSet<_> = versions.iter().map(|version| version["node"].as_u64()).collect();
        assert_eq!(nodes, BTreeSet::from([Some(1), Some(2), Some(3)]));
        assert!(process.done(&["store", "show", "h"]).contains("on node 2:"));
    }
}
