//! The OpenAPI document against a running node: every operation answers as documented.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Builds, TestNode, until};
use crate::version_files::file_name;

/// The document, made strict: an undocumented member of an answer is an error.
fn strict_document(document: &Value) -> Value {
    let mut document = document.clone();
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    // The parts of a composed schema allow each other's members.
    let parts = schemas.values().filter_map(|schema| schema["allOf"].as_array());
    let parts: BTreeSet<String> = parts
        .flatten()
        .filter_map(|part| Some(part["$ref"].as_str()?.rsplit_once('/')?.1.to_owned()))
        .collect();
    for (name, schema) in schemas {
        if schema["allOf"].is_array() {
            schema["unevaluatedProperties"] = json!(false);
        } else if schema["properties"].is_object()
            && schema.get("additionalProperties").is_none()
            && !parts.contains(name)
        {
            schema["additionalProperties"] = json!(false);
        }
    }
    document
}

const STORE: &str = "/v1/stores/{store}";
const SWAP: &str = "/v1/stores/{store}/swap";

struct Walk {
    node: TestNode,
    document: Value,
    seen: BTreeSet<(String, String)>,
}

impl Walk {
    /// Opens a stream of events, and reads the first.
    fn first_event(&mut self) {
        let mut stream = TcpStream::connect(self.node.client.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
            .write_all(b"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        let mut reader = BufReader::new(stream);
        while !answer.contains("event: hello") {
            assert!(reader.read_line(&mut answer).unwrap() > 0, "{answer}");
        }
        assert!(answer.contains("text/event-stream"), "{answer}");
        self.seen.insert(("/v1/events".to_owned(), "get".to_owned()));
    }

    /// Makes a request, and validates its answer against the documented operation.
    fn step(&mut self, method: &str, path: &str, concrete: &str, body: Value, expected: u16) {
        let operation = self.document["paths"][path][method.to_lowercase()].clone();
        assert!(operation.is_object(), "{method} {path} is not documented");
        let bytes = match &body {
            Value::Null => Vec::new(),
            body => {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                self.validate(schema, body, &format!("{method} {concrete}, its request"));
                serde_json::to_vec(body).unwrap()
            }
        };
        let (status, content_type, answer) = self.node.client.raw(method, concrete, &bytes).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status, expected, "{method} {concrete}: {text}");
        let responses = &operation["responses"];
        let response = responses.get(status.to_string()).unwrap_or(&responses["default"]);
        assert!(
            response.is_object(),
            "{method} {path}: status {status} is not documented"
        );
        match response["content"].as_object() {
            None => assert!(answer.is_empty(), "{method} {path}: a body is not documented"),
            Some(contents) => {
                let media_type = content_type.split(';').next().unwrap();
                let content = contents.get(media_type);
                let content = content.unwrap_or_else(|| panic!("{method} {path}: {media_type} is not documented"));
                if media_type == "application/json" {
                    let answer = serde_json::from_slice(&answer).unwrap();
                    self.validate(&content["schema"], &answer, &format!("{method} {concrete}"));
                }
            }
        }
        self.seen.insert((path.to_owned(), method.to_lowercase()));
    }

    fn get(&mut self, path: &str, concrete: &str, expected: u16) {
        self.step("GET", path, concrete, Value::Null, expected);
    }

    fn post(&mut self, path: &str, concrete: &str, body: Value, expected: u16) {
        self.step("POST", path, concrete, body, expected);
    }

    fn put(&mut self, path: &str, concrete: &str, body: Value, expected: u16) {
        self.step("PUT", path, concrete, body, expected);
    }

    fn patch(&mut self, path: &str, concrete: &str, body: Value, expected: u16) {
        self.step("PATCH", path, concrete, body, expected);
    }

    fn delete(&mut self, path: &str, concrete: &str, expected: u16) {
        self.step("DELETE", path, concrete, Value::Null, expected);
    }

    fn validate(&self, schema: &Value, instance: &Value, what: &str) {
        let mut schema = schema.clone();
        assert!(schema.is_object(), "{what}: it has no schema");
        schema["components"] = self.document["components"].clone();
        let mut compiler = boon::Compiler::new();
        compiler.set_default_draft(boon::Draft::V2020_12);
        let url = "http://fondaco/schema.json";
        compiler.add_resource(url, schema).unwrap();
        let mut schemas = boon::Schemas::new();
        let compiled = compiler.compile(url, &mut schemas).unwrap();
        if let Err(error) = schemas.validate(instance, compiled) {
            panic!("{what}: {error} in {instance}");
        }
    }
}

#[test]
fn every_documented_operation_answers_as_documented() {
    let node = TestNode::start();
    let document = strict_document(&node.client.get("/openapi.json"));
    let mut walk = Walk {
        node,
        document,
        seen: BTreeSet::new(),
    };
    let builds = Builds::beside();
    probes(&mut walk);
    batch_stores(&mut walk, &builds);
    nodes_and_plans(&mut walk);
    users_and_places(&mut walk);
    load_and_decisions(&mut walk);
    members_and_settings(&mut walk);
    walk.patch(STORE, "/v1/stores/pymk", json!({"backups": 0}), 200);
    schemas(&mut walk);
    streams(&mut walk);
    versioned_stores(&mut walk);
    uploads(&mut walk, &builds);
    ends_of_stores(&mut walk);

    let mut documented = BTreeSet::new();
    for (path, item) in walk.document["paths"].as_object().unwrap() {
        documented.extend(
            item.as_object()
                .unwrap()
                .keys()
                .map(|method| (path.clone(), method.clone())),
        );
    }
    assert_eq!(walk.seen, documented);
}

fn probes(walk: &mut Walk) {
    walk.get("/healthz", "/healthz", 200);
    walk.get("/readyz", "/readyz", 200);
    walk.get("/openapi.json", "/openapi.json", 200);
}

fn batch_stores(walk: &mut Walk, builds: &Builds) {
    walk.post(
        "/v1/stores",
        "/v1/stores",
        json!({"name": "pymk", "kind": "batch", "backups": 1}),
        201,
    );
    walk.post("/v1/stores", "/v1/stores", json!({"name": "pymk"}), 409);
    walk.get(STORE, "/v1/stores/pymk", 200);
    walk.get(STORE, "/v1/stores/none", 404);
    let (push, pushes) = ("/v1/stores/{store}/push", "/v1/stores/{store}/pushes");
    walk.get(push, "/v1/stores/pymk/push", 404);
    for build in [1, 2] {
        let source = builds.build(build);
        let dry_run = json!({"source": source, "dry_run": true});
        walk.post(pushes, "/v1/stores/pymk/pushes", dry_run, 200);
        walk.post(pushes, "/v1/stores/pymk/pushes", json!({"source": source}), 202);
        walk.get(push, "/v1/stores/pymk/push", 200);
        walk.node.client.ended_push();
        walk.get(push, "/v1/stores/pymk/push", 200);
    }
    let changes = "/v1/stores/{store}/changes";
    walk.get(changes, "/v1/stores/pymk/changes?from=beginning&limit=10", 200);
    walk.get(changes, "/v1/stores/pymk/changes?from=nonsense", 400);
    let part = "/v1/stores/pymk/changes/part?kind=comparison&position=nonsense&epoch=1";
    walk.get("/v1/stores/{store}/changes/part", part, 400);
    let canary = "/v1/stores/{store}/canary";
    let steer = |walk: &mut Walk, action: &str, status| {
        walk.post(canary, "/v1/stores/pymk/canary", json!({"action": action}), status);
    };
    steer(walk, "pause", 409);
    let terms = json!({"source": builds.build(8), "canary": {"reads": "5%"}});
    walk.post(pushes, "/v1/stores/pymk/pushes", terms, 202);
    until("the canary to begin", || {
        walk.node.client.get("/v1/stores/pymk/push")["canary"]["state"] == "running"
    });
    walk.get(push, "/v1/stores/pymk/push", 200);
    steer(walk, "pause", 200);
    steer(walk, "abort", 200);
    walk.delete(push, "/v1/stores/pymk/push", 409);
    walk.get("/v1/stores/{store}/versions", "/v1/stores/pymk/versions", 200);
    let confirmation = "/v1/stores/{store}/push/confirmation";
    let confirm = |walk: &mut Walk, body: Value, status| {
        walk.post(confirmation, "/v1/stores/pymk/push/confirmation", body, status);
    };
    let awaits = json!({"source": builds.build(9), "gates": "confirm"});
    walk.post(pushes, "/v1/stores/pymk/pushes", awaits, 202);
    until("the version awaits its confirmation", || {
        walk.node.client.get("/v1/stores/pymk/push")["awaits_confirmation"] == true
    });
    let pushed = walk.node.client.get("/v1/stores/pymk/push")["version"].clone();
    walk.get(push, "/v1/stores/pymk/push", 200);
    let key = "/v1/stores/{store}/versions/{version}/keys/{key}";
    let held = format!("/v1/stores/pymk/versions/{pushed}/keys");
    walk.get(key, &format!("{held}/member-1"), 200);
    walk.get(key, &format!("{held}/absent%2Fkey"), 200);
    walk.get(key, "/v1/stores/pymk/versions/99/keys/member-1", 404);
    confirm(walk, json!({"version": 99}), 409);
    confirm(walk, json!({"version": pushed, "refused": "no"}), 200);
    confirm(walk, json!({"version": pushed}), 409);
    walk.delete(push, "/v1/stores/pymk/push", 200);
    let diff = "/v1/stores/{store}/diff";
    walk.get(diff, "/v1/stores/pymk/diff?from=1&to=2", 200);
    walk.get(diff, "/v1/stores/pymk/diff?from=1&to=99", 404);
    walk.get(diff, "/v1/stores/pymk/diff?from=1", 400);
    walk.get(diff, "/v1/stores/pymk/diff?from=1&to=2&seconds=0", 400);
    walk.get(diff, "/v1/stores/pymk/diff?from=1&to=2&epoch=999", 409);
    for (request, status) in [(json!({"if_current": 99}), 409), (json!({"if_current": 2}), 200)] {
        walk.post(
            "/v1/stores/{store}/rollback",
            "/v1/stores/pymk/rollback",
            request,
            status,
        );
    }
    walk.post(SWAP, "/v1/stores/pymk/swap", json!({"version": 2}), 200);
    walk.post(SWAP, "/v1/stores/pymk/swap", json!({"version": 99}), 404);
    let key = "/v1/stores/{store}/keys/{key}";
    walk.get(key, "/v1/stores/pymk/keys/member-1", 200);
    walk.get(key, "/v1/stores/pymk/keys/%ff%2Fno", 404);
    walk.post(
        "/v1/lookup",
        "/v1/lookup",
        json!({"keys": ["pymk:member-1", "pymk:absent"]}),
        200,
    );
    walk.post("/v1/lookup", "/v1/lookup", json!({"keys": ["no colon"]}), 400);
    let query = "/v1/graphs/{store}/query";
    let all = json!({"query": "MATCH (a) RETURN a"});
    walk.post(query, "/v1/graphs/absent/query", all.clone(), 404);
    walk.post(query, "/v1/graphs/pymk/query", all, 409);
    walk.get("/v1/stores", "/v1/stores", 200);
    let file = "/v1/stores/{store}/versions/{version}/files/{file}";
    walk.get(file, "/v1/stores/pymk/versions/2/files/manifest.json", 200);
    walk.get(file, "/v1/stores/pymk/versions/2/files/lock", 404);
}

fn schemas(walk: &mut Walk) {
    let (list, one) = ("/v1/stores/{store}/schemas", "/v1/stores/{store}/schemas/{id}");
    let diff = "/v1/stores/{store}/schemas/{id}/diff/{other}";
    let typed = json!({"name": "typed", "kind": "versioned", "value_type": "avro", "key_type": "integer"});
    walk.post("/v1/stores", "/v1/stores", typed, 201);
    let record = |fields: Value| json!({"schema": {"type": "record", "name": "R", "fields": fields}});
    let field = |name: &str, default: Value| json!({"name": name, "type": "string", "default": default});
    let path = "/v1/stores/typed/schemas";
    walk.post(list, path, record(json!([])), 201);
    walk.post(list, path, record(json!([])), 200);
    walk.post(list, path, record(json!([field("a", "x".into())])), 201);
    walk.post(list, path, record(json!([{"name": "b", "type": "string"}])), 409);
    walk.post(list, path, json!({"schema": "{"}), 400);
    walk.post(list, "/v1/stores/pymk/schemas", record(json!([])), 400);
    walk.get(list, path, 200);
    walk.get(one, "/v1/stores/typed/schemas/2", 200);
    walk.get(one, "/v1/stores/typed/schemas/9", 404);
    walk.get(one, "/v1/stores/typed/schemas/x", 400);
    walk.get(diff, "/v1/stores/typed/schemas/1/diff/2", 200);
    walk.get(diff, "/v1/stores/typed/schemas/1/diff/9", 404);
    let records = "/v1/stores/{store}/schemas/records";
    walk.get(records, "/v1/stores/typed/schemas/records", 200);
    walk.get(records, "/v1/stores/typed/schemas/records?seconds=0", 400);
    walk.get(records, "/v1/stores/typed/schemas/records?epoch=999", 409);
    walk.get(records, "/v1/stores/pymk/schemas/records", 400);
    walk.get(records, "/v1/stores/none/schemas/records", 404);
}

fn nodes_and_plans(walk: &mut Walk) {
    walk.get("/", "/", 200);
    walk.get("/v1/cluster", "/v1/cluster", 200);
    walk.get("/v1/nodes", "/v1/nodes", 200);
    walk.get("/v1/routing", "/v1/routing", 200);
    let plans = "/v1/plans";
    walk.post(plans, plans, json!({"add": [1], "dry_run": true}), 409);
    walk.post(plans, plans, json!({"add": [7]}), 404);
    walk.get(plans, plans, 200);
    walk.get("/v1/plans/{plan}", "/v1/plans/7", 404);
    walk.delete("/v1/plans/{plan}", "/v1/plans/7", 404);
    for what in ["run", "pause", "resume"] {
        let route = format!("/v1/plans/{{plan}}/{what}");
        walk.post(&route, &format!("/v1/plans/7/{what}"), Value::Null, 404);
    }
    let mark = "/v1/nodes/{node}/mark";
    walk.post(mark, "/v1/nodes/1/mark", json!({"mark": "maintenance"}), 200);
    walk.post(mark, "/v1/nodes/1/mark", json!({"mark": null}), 200);
    walk.post(mark, "/v1/nodes/7/mark", json!({"mark": "leaving"}), 404);
    walk.delete("/v1/nodes/{node}", "/v1/nodes/1", 409);
    walk.delete("/v1/nodes/{node}", "/v1/nodes/7", 404);
}

fn users_and_places(walk: &mut Walk) {
    walk.get("/v1/session", "/v1/session", 200);
    walk.post("/v1/session", "/v1/session", json!({}), 200);
    walk.delete("/v1/session", "/v1/session", 204);
    walk.get("/v1/users", "/v1/users", 200);
    let user = "/v1/users/{user}";
    walk.put(
        user,
        "/v1/users/ann",
        json!({"password": "a long password", "role": "viewer"}),
        200,
    );
    walk.put(user, "/v1/users/ann", json!({"password": "short"}), 400);
    walk.delete(user, "/v1/users/ann", 204);
    walk.delete(user, "/v1/users/ann", 404);
    walk.get("/v1/audit", "/v1/audit", 200);
    walk.get("/v1/where", "/v1/where?key=pymk:1", 200);
    walk.get("/v1/where", "/v1/where?key=1", 400);
    walk.first_event();
}

fn load_and_decisions(walk: &mut Walk) {
    let load = "/v1/load";
    walk.get(load, load, 200);
    walk.get("/v1/load/history", "/v1/load/history?since=5", 200);
    walk.get("/v1/load/history", "/v1/load/history?since=x", 400);
    walk.post(load, load, load_report(), 204);
    walk.post(load, load, json!({"node": 1}), 400);
    let split = "/v1/routing/split";
    walk.post(split, split, Value::Null, 200);
    walk.get("/v1/decisions", "/v1/decisions?count=3", 200);
    walk.get("/v1/decisions", "/v1/decisions?count=0", 400);
    walk.get("/v1/decisions/{decision}", "/v1/decisions/999999", 404);
}

fn members_and_settings(walk: &mut Walk) {
    walk.get("/v1/dev/members", "/v1/dev/members", 200);
    let member = "/v1/dev/members/{member}/stop";
    walk.post(member, "/v1/dev/members/node-1/stop", Value::Null, 404);
    let member = "/v1/dev/members/{member}/start";
    walk.post(member, "/v1/dev/members/node-1/start", Value::Null, 404);
    walk.get("/v1/losses", "/v1/losses", 200);
    let loss = "/v1/losses/{loss}/accept";
    walk.post(loss, "/v1/losses/log-00000000/accept", Value::Null, 404);
    walk.get("/v1/status", "/v1/status", 200);
    walk.get("/v1/settings", "/v1/settings", 200);
    walk.patch("/v1/settings", "/v1/settings", json!({"clients-max": 100}), 200);
    walk.get("/metrics", "/metrics", 200);
}

fn versioned_stores(walk: &mut Walk) {
    let settings = json!({"resolution": "counter", "ttl_ms": 60_000, "durability": "fsync", "handoff": "any"});
    let versioned = json!({"name": "carts", "kind": "versioned", "versioned": settings});
    walk.post("/v1/stores", "/v1/stores", versioned, 201);
    walk.get(STORE, "/v1/stores/carts", 200);
    walk.patch(STORE, "/v1/stores/carts", json!({"versioned": {"ttl_ms": 0}}), 200);
    walk.patch(STORE, "/v1/stores/carts", json!({"versioned": {"reads": 9}}), 400);
    walk.patch(
        STORE,
        "/v1/stores/carts",
        json!({"versioned": {"engine": "memory"}}),
        409,
    );
    walk.patch(STORE, "/v1/stores/pymk", json!({"versioned": {"reads": 1}}), 409);
    walk.post(SWAP, "/v1/stores/carts/swap", json!({"version": 1}), 409);
    let page = "/v1/stores/{store}/partitions/{partition}/records";
    walk.get(page, "/v1/stores/carts/partitions/0/records?partitions=8", 200);
    walk.get(page, "/v1/stores/carts/partitions/0/records", 400);
    walk.get(page, "/v1/stores/pymk/partitions/0/records?partitions=8", 409);
    // Of an earlier store with its name.
    let other = "/v1/stores/carts/partitions/0/records?partitions=8&created_unix_ms=1";
    walk.get(page, other, 404);
}

fn uploads(walk: &mut Walk, builds: &Builds) {
    let uploads = "/v1/stores/{store}/uploads";
    let (upload, uploaded) = (
        format!("{uploads}/{{upload}}"),
        format!("{uploads}/{{upload}}/files/{{file}}"),
    );
    // Not a manifest.
    walk.post(uploads, "/v1/stores/pymk/uploads", Value::Null, 422);
    walk.post(uploads, "/v1/stores/carts/uploads", Value::Null, 409);
    let build = builds.build(3);
    let manifest = std::fs::read(build.join("manifest.json")).unwrap();
    let (status, _, begun) = walk
        .node
        .client
        .raw("POST", "/v1/stores/pymk/uploads", &manifest)
        .unwrap();
    assert_eq!(status, 200);
    let begun: Value = serde_json::from_slice(&begun).unwrap();
    let here = format!("/v1/stores/pymk/uploads/{}", begun["id"].as_str().unwrap());
    let file_here = format!("{here}/files/{}", file_name(&build, "p00000-c0000", "data"));
    walk.get(&upload, &here, 200);
    walk.put(&uploaded, &format!("{file_here}?offset=0"), Value::Null, 200);
    walk.put(&uploaded, &format!("{file_here}?offset=7"), Value::Null, 409);
    walk.get(&uploaded, &file_here, 404);
    walk.delete(&upload, &here, 204);
    walk.get(&upload, &here, 404);
}

fn ends_of_stores(walk: &mut Walk) {
    let hints = "/v1/stores/{store}/hints";
    walk.get(hints, "/v1/stores/carts/hints", 200);
    walk.get(hints, "/v1/stores/carts/hints?after=!", 400);
    let records = "/v1/stores/{store}/records";
    // With records: see the tests of backups.
    walk.post(records, "/v1/stores/carts/records", Value::Null, 400);
    walk.delete(STORE, "/v1/stores/pymk", 204);
    let restore = "/v1/stores/{store}/restore";
    walk.post(restore, "/v1/stores/carts/restore", Value::Null, 409);
    walk.post(restore, "/v1/stores/none/restore", Value::Null, 409);
    walk.delete(STORE, "/v1/stores/carts", 204);
    let adopt = "/v1/cluster/adopt";
    walk.post(adopt, adopt, json!({"present": true}), 200);
}

fn streams(walk: &mut Walk) {
    let hybrid = json!({"name": "counts", "kind": "hybrid", "stream": {"source": "log:2"}});
    walk.post("/v1/stores", "/v1/stores", hybrid, 201);
    walk.get(STORE, "/v1/stores/counts", 200);
    let (events, stream) = ("/v1/stores/{store}/events", "/v1/stores/{store}/stream");
    let new = json!({"events": [{"key": "k", "value": "v"}, {"key": "k", "value": null, "time_unix_ms": 1}]});
    walk.post(events, "/v1/stores/counts/events", new, 200);
    let wrong = json!({"events": [{"key": "", "value": "v"}]});
    walk.post(events, "/v1/stores/counts/events", wrong, 400);
    walk.post(events, "/v1/stores/pymk/events", json!({"events": []}), 409);
    walk.get(stream, "/v1/stores/counts/stream", 200);
    walk.get(stream, "/v1/stores/pymk/stream", 409);
    let poison = "/v1/stores/{store}/stream/poison";
    walk.get(poison, "/v1/stores/counts/stream/poison", 200);
    walk.get(poison, "/v1/stores/pymk/stream/poison", 409);
    let changes = "/v1/stores/{store}/stream/changes/{partition}";
    let of = |store: &str, query: &str| format!("/v1/stores/{store}/stream/changes/0?{query}");
    let query = "version=1&until_unix_ms=1";
    walk.get(changes, &of("counts", query), 503);
    walk.get(changes, &of("counts", "version=1"), 400);
    walk.get(changes, &of("pymk", query), 409);
    walk.delete(STORE, "/v1/stores/counts", 204);
}

/// A report of a node that does nothing.
fn load_report() -> Value {
    let resources = json!({
        "cpu": 0.1, "cpu_max": 2.0, "memory": 1, "memory_max": 2, "disk": 1, "disk_max": 2, "disk_read": 0.0,
        "disk_written": 0.0, "network_in": 0.0, "network_out": 0.0, "requests": 0.0, "p99_us": 0,
    });
    json!({
        "node": 9, "started_unix_ms": 1, "number": 1, "divided": 4, "interval_ms": 5000, "resources": resources, "partitions": [],
        "sizes": [], "stores": [], "hot_keys": [],
    })
}

#[test]
fn metrics_show_served_versions_and_reads() {
    let node = TestNode::start();
    node.client.create(1);
    node.client.push(&Builds::beside().build(1));
    let (_, _, text) = node.client.raw("GET", "/metrics", b"").unwrap();
    let text = String::from_utf8(text).unwrap();
    for line in [
        "fondaco_store_current_version{store=\"pymk\"} 1",
        "fondaco_store_records{store=\"pymk\"} 500",
        "fondaco_swaps_total 1",
        "fondaco_hot_lookups_total 0",
        "fondaco_push_in_progress{store=\"pymk\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}

/// The metrics and their content type for a scraper with this `Accept` header.
fn metrics(node: &TestNode, accept: Option<&str>) -> (String, String) {
    let mut request = ureq::get(format!("http://{}/metrics", node.client.addr));
    if let Some(accept) = accept {
        request = request.header("Accept", accept);
    }
    let mut answer = request.call().unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (kind, answer.body_mut().read_to_string().unwrap())
}

#[test]
fn metrics_come_in_the_accepted_format_and_pass_promtool() {
    let node = TestNode::start();
    node.client.create(1);
    node.client.push(&Builds::beside().build(1));
    let (kind, text) = metrics(
        &node,
        Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
    );
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(text.ends_with("# EOF\n"), "{text}");

    let (kind, text) = metrics(&node, None);
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    for line in [
        "# TYPE fondaco_swaps_total counter",
        "fondaco_build_info{version=",
        "process_start_time_seconds ",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) => {
            eprintln!("skipped: promtool cannot be run ({error}); tests/set-up installs it");
            return;
        }
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

#[test]
fn operation_ids_are_unique_and_the_token_is_optional() {
    let document = serde_json::to_value(fondaco_http::document()).unwrap();
    let mut ids = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(ids.insert(id.clone()), "{id} twice");
        }
    }
    assert!(ids.contains("get_stores_store_push") && ids.contains("get"), "{ids:?}");
    assert_eq!(document["security"], json!([{"token": []}, {}]));
}
