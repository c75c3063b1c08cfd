//! Users of the cluster: roles at the control port, sessions of browsers, passwords over RESP, and what is written down.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fondaco_roles::UserConfig;
use serde_json::{Value, json};

use crate::harness::{Client, TestNode, config, eventually, until};

const TOKEN: &str = "a token of some length";
const PASSWORD: &str = "correct horse";

/// A node with a token, and a client that has it.
fn guarded() -> TestNode {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.token = Some(TOKEN.to_owned());
    let mut node = TestNode::start_with(dir, config);
    node.client.token = Some(TOKEN.to_owned());
    node
}

fn put(node: &TestNode, name: &str, user: Value) {
    let answer = node.client.done("PUT", &format!("/v1/users/{name}"), user, 200);
    assert!(
        !answer.to_string().contains("argon2"),
        "the hash is not shown: {answer}"
    );
}

/// A client of a user with a password.
fn as_user(node: &TestNode, name: &str, password: &str) -> Client {
    let mut client = Client::new(node.client.addr);
    client.headers.push(("authorization".to_owned(), basic(name, password)));
    client
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

#[test]
fn a_viewer_may_change_nothing() {
    let node = guarded();
    put(
        &node,
        "ann",
        json!({"password": PASSWORD, "role": "viewer", "stores": ["pymk"]}),
    );
    let viewer = as_user(&node, "ann", PASSWORD);
    let document = node.client.get("/openapi.json");
    // They change nothing, or only the caller's own session.
    let harmless = ["/v1/session", "/v1/lookup", "/v1/graphs/{store}/query"];
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|method| *method != "get") {
            if harmless.contains(&path.as_str()) {
                continue;
            }
            let parts = path
                .split('/')
                .map(|part| if part.starts_with('{') { "1" } else { part });
            let path = parts.collect::<Vec<_>>().join("/");
            viewer.refused(&method.to_uppercase(), &path, json!({}), 403, "forbidden");
            refused += 1;
        }
    }
    assert!(refused > 25, "{refused}");
    for path in ["/v1/nodes", "/v1/stores", "/v1/users", "/v1/audit", "/v1/load"] {
        viewer.get(path);
    }
}

/// If the connection were closed before the body is there, the client might never see the answer.
#[test]
fn a_client_whose_body_comes_late_sees_that_it_is_refused_and_keeps_its_connection() {
    let node = guarded();
    put(
        &node,
        "ann",
        json!({"password": PASSWORD, "role": "viewer", "stores": ["*"]}),
    );
    let mut stream = TcpStream::connect(node.client.addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let authorization = basic("ann", PASSWORD);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..2 {
        let head = format!(
            "POST /v1/stores HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\ncontent-length: 2\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"{}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 403"), "{line:?}");
        let mut length = 0;
        while line.trim_end() != "" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            length = line
                .strip_prefix("content-length: ")
                .map_or(length, |text| text.trim_end().parse().unwrap());
        }
        std::io::copy(&mut answers.by_ref().take(length), &mut std::io::sink()).unwrap();
    }
}

#[test]
fn rights_on_stores_hold_at_the_control_port_too() {
    let node = guarded();
    node.client
        .call("POST", "/v1/stores", json!({"name": "carts", "kind": "versioned"}));
    put(
        &node,
        "ann",
        json!({"password": PASSWORD, "role": "operator", "stores": ["pymk"]}),
    );
    let operator = as_user(&node, "ann", PASSWORD);
    let keys = "/v1/stores/carts/keys/1";
    operator.refused("GET", keys, Value::Null, 403, "forbidden");
    let of_version = "/v1/stores/carts/versions/1/keys/1";
    operator.refused("GET", of_version, Value::Null, 403, "forbidden");
    operator.refused("GET", "/v1/stores/pymk/keys/1", Value::Null, 404, "store_not_found");
    operator.refused("POST", "/v1/lookup", json!({"keys": ["carts:1"]}), 403, "forbidden");
    let records = "/v1/stores/carts/partitions/0/records";
    operator.refused("GET", records, Value::Null, 403, "forbidden");
    operator.refused("PUT", "/v1/users/eve", json!({"password": PASSWORD}), 403, "forbidden");
    operator.refused("PATCH", "/v1/settings", json!({}), 403, "forbidden");
    operator.done("POST", "/v1/stores", json!({"name": "more"}), 201);
    put(&node, "ann", json!({"role": "viewer", "stores": ["*"]}));
    let (status, _) = operator.call("POST", "/v1/lookup", json!({"keys": ["carts:1"]}));
    assert_eq!(status, 200, "a new right holds at once, and the password stays");
    operator.refused("POST", "/v1/stores", json!({"name": "third"}), 403, "forbidden");
}

#[test]
fn wrong_passwords_and_users_without_role_are_refused() {
    let node = guarded();
    put(&node, "ann", json!({"password": PASSWORD, "role": "viewer"}));
    put(&node, "bob", json!({"password": PASSWORD, "stores": ["*"]}));
    for (name, password) in [("ann", "wrong"), ("bob", PASSWORD), ("eve", PASSWORD), ("", "")] {
        let stranger = as_user(&node, name, password);
        stranger.refused("GET", "/v1/nodes", Value::Null, 401, "unauthorized");
    }
    for wrong in [
        json!({"password": "short"}),
        json!({"role": "viewer"}),
        json!({"password": PASSWORD, "role": "king"}),
        json!({"password": PASSWORD, "rights": []}),
    ] {
        node.client
            .refused("PUT", "/v1/users/new", wrong.clone(), 400, "invalid_request");
    }
    let body = json!({"password": PASSWORD});
    node.client
        .refused("PUT", "/v1/users/a:b", body, 400, "invalid_request");
    node.client
        .refused("DELETE", "/v1/users/eve", Value::Null, 404, "user_not_found");
}

/// A request with a cookie; returns status, cookie that is set, and body.
fn with_cookie(node: &TestNode, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(node.client.addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    while reader.read_line(&mut answer).unwrap_or(0) > 0 {}
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.map_or("", |cookie| cookie.trim()).to_owned();
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    (status, cookie, body)
}

#[test]
fn a_session_needs_its_cookie_and_what_only_its_page_knows() {
    let node = guarded();
    put(
        &node,
        "ann",
        json!({"password": PASSWORD, "role": "operator", "stores": ["*"]}),
    );
    let sign_in = json!({"user": "ann", "password": PASSWORD}).to_string();
    let (status, set, body) = with_cookie(&node, "POST", "/v1/session", "", &sign_in);
    assert_eq!(status, 200, "{body}");
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let session: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&session["user"], &session["role"]),
        (&json!("ann"), &json!("operator"))
    );
    let cookie = format!("cookie: {}\r\n", set.split(';').next().unwrap());
    let csrf = format!("fondaco-csrf: {}\r\n", session["csrf"].as_str().unwrap());

    assert_eq!(with_cookie(&node, "GET", "/v1/nodes", &cookie, "").0, 200);
    let create = |headers: &str, name: &str| {
        let body = json!({ "name": name }).to_string();
        with_cookie(&node, "POST", "/v1/stores", headers, &body).0
    };
    assert_eq!(
        create(&cookie, "one"),
        403,
        "another page sends the cookie, too, and knows nothing else"
    );
    assert_eq!(create(&format!("{cookie}fondaco-csrf: 0\r\n"), "one"), 403);
    assert_eq!(create(&csrf, "one"), 401);
    assert_eq!(create(&format!("{cookie}{csrf}"), "one"), 201);
    let forged = cookie.replace(".", "A.");
    assert_eq!(with_cookie(&node, "GET", "/v1/nodes", &forged, "").0, 401);

    // The change is recorded, with its user.
    eventually("the change is written down", || {
        let audit = node.client.get("/v1/audit");
        let entries = audit["entries"].as_array().unwrap();
        let is_it = |entry: &&Value| entry["path"] == "/v1/stores" && entry["user"] == "ann" && entry["status"] == 201;
        entries.iter().find(is_it).map(|_| ())
    });
    // Another password ends the session.
    put(
        &node,
        "ann",
        json!({"password": "another one", "role": "operator", "stores": ["*"]}),
    );
    assert_eq!(with_cookie(&node, "GET", "/v1/nodes", &cookie, "").0, 401);
    let (status, set, _) = with_cookie(&node, "DELETE", "/v1/session", &cookie, "");
    assert!(status == 204 && set.contains("Max-Age=0"), "{status} {set}");
    let wrong = json!({"user": "ann", "password": PASSWORD}).to_string();
    assert_eq!(with_cookie(&node, "POST", "/v1/session", "", &wrong).0, 401);
    let token = json!({"token": TOKEN}).to_string();
    assert_eq!(with_cookie(&node, "POST", "/v1/session", "", &token).0, 200);
}

#[test]
fn users_of_the_cluster_come_and_go_over_resp() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.token = Some(TOKEN.to_owned());
    config.users.push(UserConfig {
        name: "node".to_owned(),
        // Of "secret".
        password_sha256: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b".to_owned(),
        stores: Vec::new(),
        writes: vec!["*".to_owned()],
        admin: true,
    });
    let mut node = TestNode::start_with(dir, config);
    node.client.token = Some(TOKEN.to_owned());
    node.client
        .call("POST", "/v1/stores", json!({"name": "carts", "kind": "versioned"}));
    let mut resp = node.resp();
    assert!(resp.ask("AUTH ann one-password").contains("WRONGPASS"));
    put(&node, "ann", json!({"password": "one-password", "stores": ["carts"]}));
    until("the user is let in", || resp.ask("AUTH ann one-password") == "+OK");
    assert_eq!(resp.ask("GET carts:1"), "$-1");
    assert!(resp.ask("SET carts:1 x").contains("NOPERM"));
    put(&node, "ann", json!({"stores": ["carts"], "writes": ["carts"]}));
    until("the new right holds on the same connection", || {
        resp.ask("SET carts:1 x") == "+OK"
    });
    // Many connections do not hash the password each time.
    let began = std::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(node.resp().ask("AUTH ann one-password"), "+OK");
    }
    println!("200 connections of one user: {:?}", began.elapsed());
    node.client.call("DELETE", "/v1/users/ann", Value::Null);
    until("the connection ends", || {
        resp.bytes("GET carts:1").unwrap_or_default().is_empty()
    });
    assert!(node.resp().ask("AUTH ann one-password").contains("WRONGPASS"));
}
