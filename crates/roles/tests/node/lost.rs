//! Records, files and whole directories that are lost: no data is deleted because of that, the node reports what is
//! missing, and an operator restores it.

use std::fs;

use fondaco_coordination::EmbeddedCoordination;
use fondaco_testing::copy_dir;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Builds, Client, TestNode, eventually, names, until};

/// A node with a batch store and a versioned one, both with data.
fn node_with_data() -> TestNode {
    let node = TestNode::keeping(TempDir::new().unwrap());
    let client = &node.client;
    client.create(1);
    client.push(&Builds::beside().build(1));
    create_carts(client);
    assert_eq!(ask(&node, "SET carts:k v"), "+OK");
    // The node writes its remembered view a moment later.
    eventually("the view to be remembered", || {
        let view = fs::read_to_string(node.dir.path().join("view.json")).ok()?;
        (view.contains("\"current\":1") && view.contains("carts")).then_some(())
    });
    node
}

/// Deletes the records of both stores, which no request does.
fn lose_records(dir: &TempDir) {
    let tree = EmbeddedCoordination::open(dir.path().join("metadata"))
        .unwrap()
        .session();
    for store in ["stores/pymk", "stores/carts"] {
        let path = store.parse().unwrap();
        let entry = tree.read(&path).unwrap().unwrap();
        tree.delete(&path, entry.revision).unwrap();
    }
}

fn create_carts(client: &Client) {
    let carts = json!({"name": "carts", "kind": "versioned"});
    client.done("POST", "/v1/stores", carts, 201);
}

pub fn ask(node: &TestNode, command: &str) -> String {
    node.resp().ask(command)
}

fn serves_all(node: &TestNode) {
    assert_eq!(node.client.served_build(50), 1);
    assert_eq!(ask(node, "GET carts:k"), "v");
}

fn adopt(node: &TestNode, body: Value) {
    node.client.done("POST", "/v1/cluster/adopt", body, 200);
}

#[test]
fn a_store_with_a_lost_record_is_served_until_adopted() {
    let dir = node_with_data().end();
    lose_records(&dir);
    let node = TestNode::keeping(dir);
    node.wait_not_ready("was not dropped");
    serves_all(&node);
    adopt(&node, json!({}));
    node.wait_ready();
    serves_all(&node);
    let node = TestNode::keeping(node.end());
    node.wait_ready();
    serves_all(&node);
}

#[test]
fn a_store_with_a_lost_record_can_be_given_up() {
    let dir = node_with_data().end();
    lose_records(&dir);
    let node = TestNode::keeping(dir);
    node.wait_not_ready("was not dropped");
    adopt(&node, json!({"present": true}));
    node.wait_not_ready("no record of the cluster names it");
    assert_eq!(node.client.get("/v1/stores")["stores"], json!([]));
    assert_eq!(names(&node.dir.path().join("stores/pymk")), ["version-1"]);
}

#[test]
fn without_record_and_memory_data_is_kept_and_reported() {
    let dir = node_with_data().end();
    lose_records(&dir);
    fs::remove_file(dir.path().join("view.json")).unwrap();
    for leak in ["stores/pymk/version-7", "stores/gone/fetching-8", "stores/not a name"] {
        fs::create_dir_all(dir.path().join(leak)).unwrap();
        fs::write(dir.path().join(leak).join("data"), "kept").unwrap();
    }
    let node = TestNode::keeping(dir);
    for says in ["version 1 of store \"pymk\"", "version 7 of store", "table \"store-"] {
        node.wait_not_ready(says);
    }
    // A new store of the same name does not take the data either.
    node.client.create(1);
    create_carts(&node.client);
    let node = TestNode::keeping(node.end());
    node.wait_not_ready("version 7 of store");
    assert_eq!(names(&node.dir.path().join("stores/pymk")), ["version-1", "version-7"]);
    assert!(node.dir.path().join("stores/gone/fetching-8/data").exists());
    assert!(node.dir.path().join("stores/not a name/data").exists());
}

#[test]
fn a_node_with_emptied_metadata_serves_its_remembered_view() {
    let dir = node_with_data().end();
    fs::remove_dir_all(dir.path().join("metadata")).unwrap();
    let node = TestNode::keeping(dir);
    node.wait_not_ready("fondaco cluster adopt");
    serves_all(&node);
    node.client
        .refused("POST", "/v1/stores", json!({"name": "s"}), 503, "entries_lost");
    adopt(&node, json!({}));
    node.wait_ready();
    serves_all(&node);
    assert_eq!(node.client.push(&Builds::beside().build(2)), 2);
    assert_eq!(ask(&node, "SET carts:k w"), "+OK");
}

#[test]
fn a_node_with_older_metadata_keeps_its_data() {
    let dir = TestNode::keeping(TempDir::new().unwrap()).end();
    let copy = TempDir::new().unwrap();
    copy_dir(&dir.path().join("metadata"), copy.path());
    let node = TestNode::keeping(dir);
    node.client.create(1);
    node.client.push(&Builds::beside().build(1));
    create_carts(&node.client);
    assert_eq!(ask(&node, "SET carts:k v"), "+OK");
    let dir = node.end();
    fs::remove_dir_all(dir.path().join("metadata")).unwrap();
    copy_dir(copy.path(), &dir.path().join("metadata"));
    let node = TestNode::keeping(dir);
    node.wait_not_ready("put back to an older copy");
    serves_all(&node);
    adopt(&node, json!({}));
    node.wait_ready();
    serves_all(&node);
}

#[test]
fn a_node_without_identity_does_not_start_over_its_data() {
    let dir = node_with_data().end();
    let copy = fs::read(dir.path().join("node.json")).unwrap();
    fs::remove_file(dir.path().join("node.json")).unwrap();
    let error = fondaco_roles::Fondaco::start(crate::harness::config(dir.path()));
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("node.json") && error.contains("restore the file"),
        "{error}"
    );
    fs::write(dir.path().join("node.json"), copy).unwrap();
    let node = TestNode::keeping(dir);
    node.wait_ready();
    serves_all(&node);
}

fn drop_both(node: &TestNode) {
    for store in ["pymk", "carts"] {
        let path = format!("/v1/stores/{store}");
        assert_eq!(node.client.call("DELETE", &path, Value::Null).0, 204);
    }
    until("the version to be in the trash", || {
        node.client.get("/v1/status")["versions_in_trash"] == json!(1)
    });
    assert_eq!(ask(node, "GET carts:k").split(' ').next(), Some("-NOSTORE"));
}

fn restore_both(node: &TestNode) {
    for store in ["pymk", "carts"] {
        let path = format!("/v1/stores/{store}/restore");
        node.client.done("POST", &path, Value::Null, 200);
        node.client.refused("POST", &path, Value::Null, 409, "store_exists");
    }
    node.wait_ready();
    serves_all(node);
}

#[test]
fn a_dropped_store_is_restored_with_its_data() {
    let node = node_with_data();
    drop_both(&node);
    restore_both(&node);
    drop_both(&node);
    let node = TestNode::keeping(node.end());
    restore_both(&node);
}

#[test]
fn a_dropped_store_can_be_deleted_at_once() {
    let node = node_with_data();
    for (store, path) in [("pymk", "/v1/stores/pymk"), ("pymk", "/v1/stores/pymk?now=true")] {
        assert_eq!(node.client.call("DELETE", path, Value::Null).0, 204, "{store}");
    }
    assert_eq!(
        node.client.call("DELETE", "/v1/stores/carts?now=true", Value::Null).0,
        204
    );
    node.wait_for_dirs(&[]);
    for store in ["pymk", "carts"] {
        let path = format!("/v1/stores/{store}/restore");
        node.client.refused("POST", &path, Value::Null, 409, "not_restorable");
    }
    node.wait_ready();
}

#[test]
fn versions_do_not_accumulate_when_pushes_follow_each_other() {
    let node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(0);
    let sources = [builds.build(1), builds.build(2)];
    for push in 0..20 {
        node.client.push(&sources[push % 2]);
    }
    node.wait_for_dirs(&["version-20"]);
    // The leftovers of a process that ended while versions were being given up do not accumulate either.
    node.client.push(&sources[0]);
    let node = node.restart();
    node.wait_for_dirs(&["version-21"]);
}
