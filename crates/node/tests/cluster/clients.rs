//! What clients of Redis Cluster are told, and how they are led.

use std::collections::BTreeMap;

use fondaco_node::Counter;
use redis::Value;

use crate::harness::{Cluster, Connection, elements, text, value, wire_key};

/// The ranges of `CLUSTER SLOTS`: first, last, ports of the nodes.
fn slots(connection: &mut Connection) -> Vec<(i64, i64, Vec<i64>)> {
    let int = |value: &Value| match value {
        Value::Int(number) => *number,
        other => panic!("no number: {other:?}"),
    };
    let ranges = elements(connection.send("CLUSTER SLOTS").unwrap());
    let range = |range| {
        let parts = elements(range);
        let nodes = parts[2..].iter().cloned().map(elements);
        let ports = nodes.map(|node| int(&node[1])).collect();
        (int(&parts[0]), int(&parts[1]), ports)
    };
    ranges.into_iter().map(range).collect()
}

#[test]
fn slots_are_listed_with_all_nodes_that_have_them_in_order() {
    let mut cluster = Cluster::start(3, 2, 8, 10);
    let ports: Vec<i64> = cluster.nodes.iter().map(|node| node.address().port().into()).collect();
    let ranges = slots(&mut cluster.nodes[2].connect());
    assert_eq!(ranges.len(), 8);
    assert_eq!(ranges[0], (0, 2047, vec![ports[0], ports[1]]));
    assert_eq!(ranges[7], (14336, 16383, vec![ports[1], ports[2]]));
    cluster.mark_gone(0);
    cluster.publish();
    let ranges = slots(&mut cluster.nodes[2].connect());
    assert_eq!(
        ranges[0],
        (0, 2047, vec![ports[1]]),
        "a node that is gone is not led to"
    );
    let lines = cluster.nodes[2].connect().text("CLUSTER NODES").unwrap();
    let gone = lines
        .lines()
        .find(|line| line.starts_with(&format!("{:040x} ", 1)))
        .unwrap();
    assert!(
        gone.contains(" master,fail ") && gone.ends_with(" disconnected"),
        "{gone}"
    );
    let info = cluster.nodes[2].connect().text("CLUSTER INFO").unwrap();
    assert!(
        info.contains("cluster_state:ok\r\n") && info.contains("cluster_size:2\r\n"),
        "{info}"
    );
    cluster.mark_gone(1);
    cluster.publish();
    let info = cluster.nodes[2].connect().text("CLUSTER INFO").unwrap();
    assert!(info.contains("cluster_state:fail\r\n"), "{info}");
}

#[test]
fn a_router_shows_itself_as_the_owner_of_all_slots() {
    let cluster = Cluster::start(3, 2, 8, 10);
    let router = cluster.router();
    let mut connection = router.connect();
    assert_eq!(
        slots(&mut connection),
        [(0, 16383, vec![router.address().port().into()])]
    );
    let key = wire_key(3);
    assert_eq!(
        connection.text(&format!("GET {key}")),
        Some(value(1, 3)),
        "it does not send away"
    );
    let me = connection.text("CLUSTER MYID").unwrap();
    let lines = connection.text("CLUSTER NODES").unwrap();
    assert_eq!(me.len(), 40);
    assert!(lines.starts_with(&me) && lines.ends_with(" 0-16383\n"), "{lines}");
}

#[test]
fn who_knows_of_slots_is_sent_to_a_node_that_has_the_key() {
    let cluster = Cluster::start(3, 1, 8, 100);
    let addresses: BTreeMap<String, usize> = (0..3).map(|at| (cluster.nodes[at].address().to_string(), at)).collect();
    let mut connection = cluster.nodes[0].connect();
    connection.send("READONLY").unwrap();
    let mut moved = 0;
    for key in 0..100 {
        let answer = connection.send(&format!("GET {}", wire_key(key)));
        if cluster.owners_of(key) == [0] {
            assert_eq!(answer.map(text), Ok(Some(value(1, key))));
            continue;
        }
        moved += 1;
        let error = answer.unwrap_err();
        let words: Vec<&str> = error.split(' ').collect();
        let slot = connection.send(&format!("CLUSTER KEYSLOT {}", wire_key(key))).unwrap();
        assert_eq!((words[0], Value::Int(words[1].parse().unwrap())), ("MOVED", slot));
        assert_eq!(cluster.owners_of(key), [addresses[words[2]]]);
    }
    assert_eq!(cluster.nodes[0].count(Counter::Moved), moved);
    assert_eq!(cluster.nodes[0].count(Counter::ForwardedLookups), 0);
}

#[test]
fn who_asks_is_answered_once_and_an_mget_over_slots_always() {
    let cluster = Cluster::start(3, 1, 8, 100);
    let key = cluster.key_not_on(0);
    let get = format!("GET {}", wire_key(key));
    let mut connection = cluster.nodes[0].connect();
    connection.send("CLUSTER SHARDS").unwrap();
    assert!(connection.send(&get).unwrap_err().starts_with("MOVED"));
    connection.send("ASKING").unwrap();
    assert_eq!(connection.text(&get), Some(value(1, key)));
    assert!(connection.send(&get).unwrap_err().starts_with("MOVED"));
    let values = connection.mget(0..100);
    assert!(values.into_iter().eq((0..100).map(|key| Some(value(1, key)))));
    let same = connection.send(&format!("MGET {0} {0}", wire_key(key)));
    assert!(same.unwrap_err().starts_with("MOVED"), "keys of one slot are all there");
}

#[test]
fn a_slot_without_a_node_is_down() {
    let mut cluster = Cluster::start(2, 1, 2, 50);
    let key = cluster.key_not_on(0);
    cluster.mark_gone(1);
    cluster.publish();
    let mut connection = cluster.nodes[0].connect();
    connection.send("READONLY").unwrap();
    let error = connection.send(&format!("GET {}", wire_key(key))).unwrap_err();
    assert!(error.starts_with("CLUSTERDOWN"), "{error}");
}

#[test]
fn a_node_without_a_cluster_owns_all_slots() {
    let cluster = Cluster::start(1, 1, 4, 10);
    let mut connection = cluster.nodes[0].connect();
    let port = cluster.nodes[0].address().port().into();
    assert_eq!(slots(&mut connection), [(0, 16383, vec![port])]);
    assert_eq!(connection.text(&format!("GET {}", wire_key(5))), Some(value(1, 5)));
    assert!(
        connection
            .text("INFO cluster")
            .unwrap()
            .contains("cluster_enabled:1\r\n")
    );
    let refused = connection.send("CLUSTER COUNTKEYSINSLOT 5").unwrap_err();
    assert!(refused.contains("DBSIZE"), "{refused}");
    let refused = connection.send("CLUSTER COUNTKEYSINSLOT 16384").unwrap_err();
    assert!(refused.contains("Invalid slot"), "{refused}");
    assert!(
        connection
            .send("CLUSTER REPLICAS x")
            .unwrap_err()
            .contains("Unknown node x")
    );
}
