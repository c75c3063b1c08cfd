//! `SCAN` and `DBSIZE`, which cover all keys.

use std::collections::BTreeSet;

use redis::Value;

use super::harness::wire_key;
use crate::harness::{Cluster, Connection, elements, text};

/// All keys that a scan yields.
fn scan(connection: &mut Connection, options: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let answer = elements(connection.send(&format!("SCAN {cursor}{options}")).unwrap());
        let [next, found]: [Value; 2] = answer.try_into().unwrap();
        keys.extend(elements(found).into_iter().map(|key| text(key).unwrap()));
        cursor = text(next).unwrap();
        if cursor == "0" {
            return keys;
        }
    }
}

fn all_keys(count: usize) -> BTreeSet<String> {
    (0..count).map(wire_key).collect()
}

#[test]
fn a_scan_at_any_process_yields_every_key_once() {
    let cluster = Cluster::batch(3, 1, 32, 700);
    let router = cluster.router();
    for server in [&cluster.nodes[0], &cluster.nodes[2], &router] {
        for options in ["", " COUNT 100", " MATCH pymk:* COUNT 1000"] {
            let keys = scan(&mut server.connect(), options);
            assert_eq!(keys.len(), 700, "{options:?}");
            assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), all_keys(700));
        }
    }
}

#[test]
fn a_scan_can_continue_at_another_node() {
    let cluster = Cluster::batch(3, 2, 16, 300);
    let mut connections: Vec<Connection> = cluster.nodes.iter().map(|node| node.connect()).collect();
    let mut keys = BTreeSet::new();
    let mut cursor = "0".to_owned();
    for turn in 0.. {
        let answer = elements(connections[turn % 3].send(&format!("SCAN {cursor} COUNT 7")).unwrap());
        let [next, found]: [Value; 2] = answer.try_into().unwrap();
        keys.extend(elements(found).into_iter().map(|key| text(key).unwrap()));
        cursor = text(next).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(keys, all_keys(300));
}

#[test]
fn a_cluster_client_scans_and_counts_each_key_once() {
    let cluster = Cluster::batch(3, 2, 16, 300);
    let (mut keys, mut counted) = (Vec::new(), 0);
    for node in &cluster.nodes {
        let mut connection = node.connect();
        connection.send("READONLY").unwrap();
        keys.extend(scan(&mut connection, ""));
        let Ok(Value::Int(count)) = connection.send("DBSIZE") else {
            panic!("no count")
        };
        counted += count;
        assert_eq!(
            node.connect().send("DBSIZE"),
            Ok(Value::Int(300)),
            "other clients get all keys from one node"
        );
    }
    assert_eq!((keys.len(), counted), (300, 300));
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), all_keys(300));
    assert_eq!(cluster.router().connect().send("DBSIZE"), Ok(Value::Int(300)));
}

#[test]
fn a_scan_names_the_nodes_that_are_missing() {
    let mut cluster = Cluster::batch(2, 1, 4, 100);
    let router = cluster.router();
    cluster.kill(1);
    cluster.mark_gone(1);
    router.publish(&cluster.topology);
    let mut connection = router.connect();
    let mut cursor = "0".to_owned();
    let error = loop {
        match connection.send(&format!("SCAN {cursor} COUNT 1000")) {
            Ok(answer) => cursor = text(elements(answer)[0].clone()).unwrap(),
            Err(error) => break error,
        }
        assert_ne!(cursor, "0", "half of the keys are gone");
    };
    assert!(
        error.starts_with("CLUSTERDOWN") || error.starts_with("UNAVAILABLE"),
        "{error}"
    );
}
