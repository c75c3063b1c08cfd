//! A single node whose machine loses power, or whose database goes back to an older state: writes that may be lost are
//! not read until an operator decides.

use std::fs;
use std::path::Path;

use fondaco_testing::MariaDb;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Client, NodeProcess, TestNode, config, until};
use crate::lost::ask;
use crate::resp::Resp;

fn create(client: &Client, name: &str, settings: Value) {
    let store = json!({"name": name, "kind": "versioned", "versioned": settings});
    client.done("POST", "/v1/stores", store, 201);
}

/// A node started in a given boot of the machine.
fn start_in(dir: TempDir, boot_id: &str) -> TestNode {
    let file = dir.path().join("boot-id");
    fs::write(&file, boot_id).unwrap();
    let mut config = config(dir.path());
    config.boot_id_file = file;
    TestNode::start_with(dir, config)
}

/// Accepts the only loss.
fn accept_loss(node: &TestNode, engine: &str) {
    let losses = node.client.get("/v1/losses");
    let losses = losses["losses"].as_array().unwrap();
    let own = losses.iter().find(|loss| loss["engine"] == engine).unwrap();
    let path = format!("/v1/losses/{}/accept", own["id"].as_str().unwrap());
    node.client.done("POST", &path, Value::Null, 200);
}

/// The directory of a node that was killed after it had acknowledged writes.
fn killed() -> TempDir {
    let dir = TempDir::new().unwrap();
    let node = NodeProcess::start(dir.path());
    create(&node.client, "carts", json!({}));
    create(&node.client, "bills", json!({"durability": "fsync"}));
    for store in ["carts", "bills"] {
        until("the write", || {
            Resp::at(node.resp).ask(&format!("SET {store}:k v")) == "+OK"
        });
    }
    // Until no loss is recorded: the directory was new.
    until("a whole directory", || is_whole(dir.path()));
    node.kill();
    dir
}

fn is_whole(dir: &Path) -> bool {
    let text = fs::read_to_string(dir.join("versioned/incarnation.json")).unwrap();
    text.contains(r#""behind":false"#)
}

#[test]
fn a_killed_node_loses_nothing_while_the_machine_runs() {
    let dir = killed();
    let node = NodeProcess::start(dir.path());
    for store in ["carts", "bills"] {
        assert_eq!(Resp::at(node.resp).ask(&format!("GET {store}:k")), "v");
    }
    assert_eq!(node.client.get("/v1/losses")["losses"], json!([]));
}

#[test]
fn after_a_power_failure_unsynced_stores_refuse_reads_until_accepted() {
    let node = start_in(killed(), "another");
    node.wait_not_ready("its boot was");
    assert!(ask(&node, "GET carts:k").contains("fondaco repair losses"));
    assert_eq!(ask(&node, "GET bills:k"), "v", "it was on the disk");
    assert_eq!(ask(&node, "SET carts:l w"), "+OK");
    let node = start_in(node.end(), "another");
    node.wait_not_ready("fondaco repair accept-loss log-");
    accept_loss(&node, "log");
    node.wait_ready();
    assert_eq!(ask(&node, "GET carts:k"), "v");
    // From now on it ends in an orderly way.
    let node = start_in(node.end(), "a third");
    assert_eq!(ask(&node, "GET carts:l"), "w");
    node.wait_ready();
}

#[test]
fn a_lagging_database_is_not_read_until_loss_is_accepted() {
    let copy = TempDir::new().unwrap();
    let mut server = MariaDb::start(&[]);
    let url = server.url("mysql");
    let start = |dir: TempDir| {
        let mut config = config(dir.path());
        config.versioned.mysql = Some(url.clone());
        TestNode::start_with(dir, config)
    };
    let set = |node: &TestNode, value: &str| {
        until("the write", || ask(node, &format!("SET carts:k {value}")) == "+OK");
    };
    let mut node = start(TempDir::new().unwrap());
    create(&node.client, "carts", json!({"engine": "mysql"}));
    set(&node, "a");
    server.copy_data(copy.path());
    // While the node runs, and while it does not.
    for is_down in [false, true] {
        set(&node, "b");
        node.wait_ready();
        if is_down {
            let dir = node.end();
            server.fail_over_to(copy.path());
            node = start(dir);
        } else {
            server.fail_over_to(copy.path());
            // The request that finds it may be refused, or not be in memory.
            ask(&node, "SET carts:other x");
        }
        node.wait_not_ready("went back to an older state");
        until("reads to be refused", || {
            ask(&node, "GET carts:k").contains("fondaco repair losses")
        });
        accept_loss(&node, "mysql");
        node.wait_ready();
        assert_eq!(ask(&node, "GET carts:k"), "a");
    }
}
