//! Creating, altering and dropping stores; versions kept, swapped and rolled back.

use serde_json::{Value, json};

use crate::harness::{Builds, Client, TestNode, key, names, until};

fn versions(client: &Client) -> Vec<u64> {
    let answer = client.get("/v1/stores/pymk/versions");
    let versions = answer["versions"].as_array().unwrap().iter();
    versions.map(|version| version["version"].as_u64().unwrap()).collect()
}

#[test]
fn a_store_lives_from_its_creation_to_its_end() {
    let node = TestNode::start();
    let client = &node.client;
    client.create(1);
    client.refused("POST", "/v1/stores", json!({"name": "pymk"}), 409, "store_exists");
    client.refused("POST", "/v1/stores", json!({"name": "a:b"}), 400, "invalid_request");
    let hybrid = json!({"name": "h", "kind": "hybrid"});
    client.refused("POST", "/v1/stores", hybrid, 400, "invalid_request");
    let many = json!({"name": "m", "backups": 101});
    client.refused("POST", "/v1/stores", many, 400, "invalid_request");
    let store = client.get("/v1/stores/pymk");
    assert_eq!((&store["kind"], &store["backups"]), (&json!("batch"), &json!(1)));
    assert_eq!(store["current_version"], Value::Null);
    let key = "/v1/stores/pymk/keys/member-1";
    client.refused("GET", key, Value::Null, 409, "nothing_served");

    let builds = Builds::beside();
    client.push(&builds.build(1));
    assert_eq!(client.served_build(50), 1);
    assert_eq!(client.call("DELETE", "/v1/stores/pymk", Value::Null).0, 204);
    client.refused("GET", key, Value::Null, 404, "store_not_found");
    node.wait_for_dirs(&[]);

    // A store of the same name is another store.
    client.create(1);
    assert_eq!(client.push(&builds.build(2)), 1);
    assert_eq!(client.served_build(50), 2);
}

#[test]
fn a_versioned_store_has_settings_and_no_versions() {
    let node = TestNode::start();
    let client = &node.client;
    let versioned = json!({"name": "carts", "kind": "versioned", "versioned": {"ttl_ms": 5000}});
    let store = client.done("POST", "/v1/stores", versioned, 201);
    let settings = &store["versioned"];
    assert_eq!((&settings["reads"], &settings["writes"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&settings["ttl_ms"], &settings["handoff"]),
        (&json!(5000), &json!("consistent"))
    );
    let too_many = json!({"name": "c", "kind": "versioned", "versioned": {"reads": 2}});
    client.refused("POST", "/v1/stores", too_many, 400, "invalid_request");
    let of_batch = json!({"name": "c", "versioned": {"reads": 1}});
    client.refused("POST", "/v1/stores", of_batch, 409, "other_kind");

    let path = "/v1/stores/carts";
    let store = client.done(
        "PATCH",
        path,
        json!({"versioned": {"ttl_ms": 0, "resolution": "set"}}),
        200,
    );
    assert_eq!(store["versioned"]["ttl_ms"], Value::Null);
    assert_eq!(store["versioned"]["resolution"], "set");
    let engine = json!({"versioned": {"engine": "memory"}});
    client.refused("PATCH", path, engine, 409, "unchangeable");
    let too_many = json!({"replicas": 2});
    client.refused("PATCH", path, too_many, 400, "invalid_request");
    for (path, body) in [("swap", json!({"version": 1})), ("rollback", json!({}))] {
        let path = format!("/v1/stores/carts/{path}");
        client.refused("POST", &path, body, 409, "versioned_store");
    }
    let source = json!({"source": Builds::beside().build(1)});
    client.refused("POST", "/v1/stores/carts/pushes", source, 409, "versioned_store");
}

#[test]
fn old_versions_beyond_the_configured_backups_are_deleted() {
    let node = TestNode::start();
    let client = &node.client;
    let builds = Builds::beside();
    client.create(2);
    for build in 1..=4 {
        client.push(&builds.build(build));
    }
    assert_eq!(versions(client), [4, 3, 2]);
    node.wait_for_dirs(&["version-2", "version-3", "version-4"]);
    let (status, _) = client.call("PATCH", "/v1/stores/pymk", json!({"backups": 0}));
    assert_eq!(status, 200);
    assert_eq!(versions(client), [4]);
    node.wait_for_dirs(&["version-4"]);
    assert_eq!(client.served_build(50), 4);
}

#[test]
fn a_rolled_back_version_serves_at_once_and_after_restart() {
    let node = TestNode::start();
    let client = &node.client;
    let builds = Builds::beside();
    client.create(1);
    let path = "/v1/stores/pymk/rollback";
    client.refused("POST", path, Value::Null, 409, "no_rollback");
    client.push(&builds.build(1));
    client.push(&builds.build(2));
    let (status, store) = client.call("POST", path, Value::Null);
    assert_eq!((status, &store["current_version"]), (200, &json!(1)));
    assert_eq!(client.served_build(50), 1);

    // A second rollback does not go forward again, to the version that was rolled back from.
    client.refused("POST", path, Value::Null, 409, "no_rollback");
    assert_eq!(client.served_build(50), 1);

    let node = node.restart();
    let client = &node.client;
    assert_eq!(client.served_build(50), 1);
    let (status, store) = client.call("POST", path, json!({"to": 2}));
    assert_eq!((status, &store["current_version"]), (200, &json!(2)));
    assert_eq!(client.served_build(50), 2);
    let swap = "/v1/stores/pymk/swap";
    client.refused("POST", swap, json!({"version": 9}), 404, "version_not_found");
    client.refused("POST", swap, json!({"version": 0}), 400, "invalid_request");
    assert_eq!(client.call("POST", swap, json!({"version": 1})).0, 200);
    assert_eq!(client.served_build(50), 1);
}

#[test]
fn an_unrecoverable_current_version_is_reported_and_others_are_served() {
    let mut node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    node.client.push(&builds.build(1));
    let source = builds.build(2);
    node.client.push(&source);
    node.stop();
    let version = node.dir.path().join("stores/pymk/version-2");
    let files = names(&version);
    std::fs::write(version.join("manifest.json"), "{}").unwrap();
    std::fs::remove_dir_all(source).unwrap();

    let node = node.restart();
    let client = &node.client;
    until("the version to be given up", || {
        let answer = client.get("/v1/stores/pymk/versions");
        answer["versions"][0]["state"] == "failed"
    });
    let (status, readiness) = client.call("GET", "/readyz", Value::Null);
    assert_eq!((status, &readiness["ready"]), (503, &json!(false)));
    assert!(
        readiness["reasons"][0].as_str().unwrap().contains("pymk"),
        "{readiness}"
    );
    let key = "/v1/stores/pymk/keys/member-1";
    client.refused("GET", key, Value::Null, 409, "version_failed");
    assert_eq!(names(&version), files, "there may be no other copy");

    let (status, _) = client.call("POST", "/v1/stores/pymk/rollback", Value::Null);
    assert_eq!(status, 200);
    assert_eq!(client.served_build(50), 1);
    assert_eq!(client.call("GET", "/readyz", Value::Null).0, 200);
    client.refused(
        "POST",
        "/v1/stores/pymk/swap",
        json!({"version": 2}),
        409,
        "version_failed",
    );
}

#[test]
fn a_damaged_manifest_is_fetched_again_and_nothing_else() {
    let mut node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    let source = builds.build(1);
    node.client.push(&source);
    let version = node.dir.path().join("stores/pymk/version-1");
    let files = names(&version);
    for file in names(&source).iter().filter(|name| *name != "manifest.json") {
        std::fs::remove_file(source.join(file)).unwrap();
    }
    for damage in [Some("{}"), None] {
        node.stop();
        let manifest = version.join("manifest.json");
        std::fs::remove_file(&manifest).unwrap();
        if let Some(damaged) = damage {
            std::fs::write(&manifest, damaged).unwrap();
        }
        node = node.restart();
        node.wait_ready();
        // On a busy machine, the node may be ready before it has opened the version again.
        let path = format!("/v1/stores/pymk/keys/{}", key(0));
        until("the version to be served", || {
            node.client.raw("GET", &path, b"").unwrap().0 == 200
        });
        assert_eq!(node.client.served_build(50), 1);
        // It is served before it is verified.
        until("the fetch to end", || names(&version) == files);
    }
}

#[test]
fn a_damaged_file_does_not_affect_other_files() {
    let mut node = TestNode::start();
    let builds = Builds::beside();
    node.client.create(1);
    let source = builds.build(1);
    node.client.push(&source);
    node.stop();
    let version = node.dir.path().join("stores/pymk/version-1");
    let files = names(&version);
    let damaged = files.iter().find(|name| name.ends_with(".data")).unwrap();
    let mut bytes = std::fs::read(version.join(damaged)).unwrap();
    bytes[20] ^= 1;
    // It may be linked to the source.
    std::fs::remove_file(version.join(damaged)).unwrap();
    std::fs::write(version.join(damaged), bytes).unwrap();
    let away = source.with_extension("away");
    std::fs::rename(&source, &away).unwrap();

    let node = node.restart();
    until("the version to be given up", || {
        let answer = node.client.get("/v1/stores/pymk/versions");
        answer["versions"][0]["state"] == "failed"
    });
    let left = names(&version);
    assert!(
        files.iter().all(|name| name == damaged || left.contains(name)),
        "{left:?}"
    );
    // Intact files are not fetched again.
    let manifest = std::fs::read(away.join("manifest.json")).unwrap();
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("manifest.json"), manifest).unwrap();
    std::fs::copy(away.join(damaged), source.join(damaged)).unwrap();
    let node = node.restart();
    node.wait_ready();
    // It is ready before, too: a version that was given up holds up no other.
    let one = json!({"keys": [format!("pymk:{}", key(0))]});
    until("the damaged file to be fetched", || {
        node.client.call("POST", "/v1/lookup", one.clone()).0 == 200
    });
    assert_eq!(node.client.served_build(50), 1);
    until("the fetch to end", || names(&version) == files);
}

#[test]
fn settings_survive_a_restart_and_change_all_or_none() {
    let node = TestNode::start();
    node.client.set_rate(12345);
    let mixed = json!({"clients-max": 7, "no-such-setting": 1});
    node.client
        .refused("PATCH", "/v1/settings", mixed, 400, "invalid_request");
    let node = node.restart();
    let settings = node.client.get("/v1/settings");
    let value = |name: &str| {
        let mut settings = settings["settings"].as_array().unwrap().iter();
        settings.find(|setting| setting["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(value("fetch-rate-bytes-per-second"), json!(12345));
    assert_eq!(value("clients-max"), json!(10000));
}

#[test]
fn the_number_of_partitions_never_changes() {
    let mut node = TestNode::start();
    node.stop();
    let mut config = crate::harness::config(node.dir.path());
    config.partitions = 8.try_into().unwrap();
    let error = fondaco_roles::Fondaco::start(config).err().unwrap().to_string();
    assert!(error.contains("made for 4 partitions"), "{error}");
}
