//! Replies to a plain client, wherever the keys are.

use fondaco_node::{Counter, Password, PasswordDigest, PeerAccess, SharedAccess, User};
use redis::Value;
use std::sync::Arc;

use super::harness::{value, wire_key};
use crate::harness::{Cluster, elements, text};

#[test]
fn any_node_and_any_router_answer_for_every_key() {
    let cluster = Cluster::batch(3, 1, 8, 200);
    let router = cluster.router();
    for server in cluster.nodes.iter().chain([&router]) {
        let mut connection = server.connect();
        for key in 0..cluster.keys {
            assert_eq!(connection.text(&format!("GET {}", wire_key(key))), Some(value(1, key)));
        }
        assert_eq!(connection.text("GET pymk:nosuch"), None);
    }
    let forwarded = cluster.nodes[0].count(Counter::ForwardedLookups);
    assert!(
        (100..=201).contains(&forwarded),
        "two thirds of the keys are elsewhere: {forwarded}"
    );
    assert!(router.count(Counter::ForwardedLookups) >= 200);
}

#[test]
fn an_mget_over_all_nodes_is_answered_in_order() {
    let cluster = Cluster::batch(3, 1, 8, 2000);
    let router = cluster.router();
    for server in [&cluster.nodes[1], &router] {
        let mut connection = server.connect();
        let values = connection.mget((0..2000).rev().chain([999_999]));
        let expected = (0..2000).rev().map(|key| Some(value(1, key))).chain([None]);
        assert!(values.into_iter().eq(expected));
    }
}

#[test]
fn all_kinds_of_look_ups_are_forwarded() {
    let cluster = Cluster::batch(2, 1, 4, 50);
    let key = cluster.key(0, false);
    let there = wire_key(key);
    let mut connection = cluster.nodes[0].connect();
    let length = value(1, key).len() as i64;
    assert_eq!(connection.send(&format!("STRLEN {there}")), Ok(Value::Int(length)));
    assert_eq!(
        connection.send(&format!("EXISTS {there} pymk:nosuch {there}")),
        Ok(Value::Int(2))
    );
    assert_eq!(connection.text(&format!("GETRANGE {there} 0 1")), Some("v1".into()));
    assert_eq!(connection.text(&format!("TYPE {there}")), Some("string".into()));
    assert_eq!(connection.send(&format!("TTL {there}")), Ok(Value::Int(-1)));
    assert_eq!(connection.send("PTTL pymk:nosuch"), Ok(Value::Int(-2)));
}

#[test]
fn pipelines_of_local_and_remote_keys_are_answered_in_order() {
    let cluster = Cluster::batch(3, 1, 8, 500);
    let client = redis::Client::open(format!("redis://{}", cluster.nodes[0].address())).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut pipeline = redis::pipe();
    for key in 0..500 {
        pipeline.cmd("GET").arg(wire_key(key));
    }
    let values: Vec<String> = pipeline.query(&mut connection).unwrap();
    assert!(values.into_iter().eq((0..500).map(|key| value(1, key))));
}

#[test]
fn a_store_that_the_node_does_not_hold_is_known() {
    let cluster = Cluster::batch(2, 1, 2, 10);
    let mut connection = cluster.nodes[0].connect();
    let error = connection.send("GET other:1").unwrap_err();
    assert!(error.starts_with("NOSTORE"), "{error}");
    let router = cluster.router();
    assert_eq!(router.connect().text("GET pymk:3"), Some(value(1, 3)));
    let error = router.connect().send("GET other:1").unwrap_err();
    assert!(error.starts_with("NOSTORE"), "{error}");
    let mut before_the_first_push = Cluster::batch(2, 1, 2, 10);
    before_the_first_push.store().current = None;
    before_the_first_push.publish();
    let error = before_the_first_push.nodes[0].connect().send("GET pymk:1").unwrap_err();
    assert!(error.starts_with("NOVERSION"), "{error}");
}

#[test]
fn a_node_answers_peers_only_for_keys_that_it_holds() {
    let mut cluster = Cluster::batch(2, 1, 4, 50);
    cluster.add_version(2);
    cluster.publish();
    let (here, there) = (cluster.key(0, true), cluster.key(0, false));
    let mut connection = cluster.nodes[0].connect();
    let mut read =
        |version: u64, keys: &str| connection.send(&format!("FONDACO.READ v1;timeout=1000 1 {version} pymk {keys}"));
    for (asked, version) in [(0, 1), (1, 1), (2, 2)] {
        let answer = elements(read(asked, &format!("{here} nosuch {there}")).unwrap());
        let [found, absent, elsewhere]: [Value; 3] = answer.try_into().unwrap();
        assert_eq!(text(found), Some(value(version, here)));
        // The node can tell that this key is absent only if it owns the key's partition.
        let absent = text(absent);
        assert!(
            absent.as_ref().is_none_or(|error| error.starts_with("NOTHERE")),
            "{absent:?}"
        );
        let elsewhere = text(elsewhere).unwrap();
        assert!(elsewhere.starts_with("NOTHERE"), "{elsewhere}");
    }
    let gone = read(3, "1").unwrap_err();
    assert!(
        gone.starts_with("VERSIONGONE") && gone.contains("version 1 is current"),
        "{gone}"
    );
    assert!(read(0, "").unwrap_err().starts_with("BADKEY"));
    for no_number in ["x 0", "1 x", "-1 0"] {
        let error = connection
            .send(&format!("FONDACO.READ v1 {no_number} pymk 1"))
            .unwrap_err();
        assert!(error.starts_with("ERR value is not an integer"), "{error}");
    }
    // Envelopes that an older or a later release would send.
    for no_envelope in ["1000", "v99;timeout=1000", "v1;!fan-out=2", "v1;timeout=x"] {
        let error = connection
            .send(&format!("FONDACO.READ {no_envelope} 1 0 pymk 1"))
            .unwrap_err();
        assert!(error.starts_with("ERR invalid envelope"), "{error}");
    }
    assert!(
        connection
            .send("FONDACO.READ v1 1 0 other 1")
            .unwrap_err()
            .starts_with("NOSTORE")
    );
    let forwarded = cluster.nodes[0].count(Counter::ForwardedLookups);
    assert_eq!(forwarded, 0, "a read of a peer is never forwarded");
}

#[test]
fn a_node_rejects_reads_of_another_store_of_that_name() {
    let mut cluster = Cluster::batch(2, 1, 4, 50);
    // The store was dropped, and created again: both have a version 1.
    cluster.store().id = 2;
    cluster.publish();
    let key = cluster.key(0, true);
    let mut connection = cluster.nodes[0].connect();
    let mut read = |store: u64, version: u64| connection.send(&format!("FONDACO.READ v1 {store} {version} pymk {key}"));
    for (other, version) in [(1, 1), (1, 0), (3, 1), (65_538, 1)] {
        let error = read(other, version).unwrap_err();
        assert!(
            error.starts_with("VERSIONGONE") && error.contains(&format!("has the number 2 here, not {other}")),
            "{error}"
        );
    }
    for either in [2, 0] {
        let [answer] = elements(read(either, 1).unwrap()).try_into().unwrap();
        assert_eq!(text(answer), Some(value(1, key)));
    }
}

#[test]
fn the_topology_is_sent_once_per_change() {
    let mut cluster = Cluster::batch(2, 1, 4, 10);
    let mut connection = cluster.nodes[0].connect();
    let told = elements(connection.send("FONDACO.TOPOLOGY").unwrap());
    let [tag, json]: [Option<String>; 2] = told.into_iter().map(text).collect::<Vec<_>>().try_into().unwrap();
    let topology = serde_json::from_str(&json.unwrap()).unwrap();
    assert_eq!(cluster.topology, topology);
    let tag = tag.unwrap();
    assert_eq!(connection.send(&format!("FONDACO.TOPOLOGY {tag}")), Ok(Value::Nil));
    cluster.topology.epoch += 1;
    cluster.publish();
    assert_ne!(connection.send(&format!("FONDACO.TOPOLOGY {tag}")), Ok(Value::Nil));
}

#[test]
fn rights_are_checked_at_the_node_of_the_client() {
    let user = |name: &str, stores: &str| User {
        name: name.into(),
        password: Password::Digest(PasswordDigest::of(name.as_bytes())),
        stores: vec![stores.into()],
        writes: Vec::new(),
        admin: false,
    };
    let access = Arc::new(SharedAccess::new(vec![
        user("node", "*"),
        user("reader", "pymk"),
        user("stranger", "x"),
    ]));
    let peers = PeerAccess {
        user: Some("node".into()),
        password: Some("node".into()),
        ..PeerAccess::default()
    };
    let cluster = Cluster::guarded(2, 1, 4, 50, access, peers);
    let key = cluster.key(0, false);
    let mut connection = cluster.nodes[0].connect();
    assert!(
        connection
            .send(&format!("GET {}", wire_key(key)))
            .unwrap_err()
            .starts_with("NOAUTH")
    );
    connection.send("AUTH stranger stranger").unwrap();
    assert!(
        connection
            .send(&format!("GET {}", wire_key(key)))
            .unwrap_err()
            .starts_with("NOPERM")
    );
    assert!(
        connection
            .send("FONDACO.READ v1 1 0 pymk 1")
            .unwrap_err()
            .starts_with("NOPERM")
    );
    connection.send("AUTH reader reader").unwrap();
    assert_eq!(connection.text(&format!("GET {}", wire_key(key))), Some(value(1, key)));
}
