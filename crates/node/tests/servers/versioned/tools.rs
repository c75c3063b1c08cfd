//! Commands that monitors, exporters and graphical tools send.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_node::{Password, PasswordDigest, SharedAccess, User};
use fondaco_testing::until;
use redis::Value;

use super::harness::{Shape, three};
use crate::harness::{Cluster, Connection, bulk};

fn texts(value: Value) -> Vec<String> {
    let Value::Array(values) = value else {
        panic!("no array: {value:?}");
    };
    let text = |value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        Value::SimpleString(text) => text,
        other => panic!("no text: {other:?}"),
    };
    values.into_iter().map(text).collect()
}

fn integer(connection: &mut Connection, command: &str) -> i64 {
    match connection.send(command) {
        Ok(Value::Int(number)) => number,
        other => panic!("{command}: {other:?}"),
    }
}

fn unix_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn expiry_times_are_reported_and_keys_are_counted() {
    for shape in [Shape::default(), three()] {
        let cluster = Cluster::versioned(shape);
        let mut connection = cluster.nodes[0].connect();
        connection.send("SET s:k 12").unwrap();
        assert_eq!(integer(&mut connection, "EXPIRETIME s:k"), -1);
        assert_eq!(integer(&mut connection, "PEXPIRETIME s:none"), -2);
        let end = unix_seconds() + 1000;
        assert_eq!(integer(&mut connection, &format!("EXPIREAT s:k {end}")), 1);
        assert_eq!(integer(&mut connection, "EXPIRETIME s:k"), end);
        assert_eq!(integer(&mut connection, "PEXPIRETIME s:k"), end * 1000);
        assert_eq!(integer(&mut connection, "TOUCH s:k s:none s:k"), 2);
        assert_eq!(integer(&mut connection, "TOUCH s:k"), 1);
        assert_eq!(connection.code("EXPIRETIME none:k"), "NOSTORE");
    }
}

#[test]
fn values_are_described_as_redis_describes_strings() {
    let cluster = Cluster::versioned(three());
    let mut connection = cluster.nodes[0].connect();
    for (value, encoding) in [
        ("12", "int"),
        ("x", "embstr"),
        (&"x".repeat(44), "embstr"),
        (&"x".repeat(45), "raw"),
    ] {
        connection.send(&format!("SET s:k {value}")).unwrap();
        assert_eq!(connection.send("OBJECT ENCODING s:k"), Ok(bulk(encoding)));
        let bytes = ("s:k".len() + value.len()) as i64;
        assert_eq!(connection.send("MEMORY USAGE s:k"), Ok(Value::Int(bytes)));
        assert_eq!(connection.send("MEMORY USAGE s:k SAMPLES 5"), Ok(Value::Int(bytes)));
    }
    assert_eq!(connection.send("OBJECT REFCOUNT s:k"), Ok(Value::Int(1)));
    for command in [
        "OBJECT ENCODING s:none",
        "OBJECT REFCOUNT s:none",
        "MEMORY USAGE s:none",
    ] {
        assert_eq!(connection.send(command), Ok(Value::Nil), "{command}");
    }
    for (command, said) in [
        ("OBJECT FREQ s:k", "not counted"),
        ("OBJECT IDLETIME s:k", "not noted"),
        ("MEMORY USAGE s:k SAMPLE 5", "syntax"),
        ("MEMORY USAGE s:k SAMPLES x", "not an integer"),
        ("OBJECT NOSUCH s:k", "unknown subcommand"),
    ] {
        let error = connection.send(command).unwrap_err();
        assert!(error.contains(said), "{command}: {error}");
    }
    assert!(texts(connection.send("OBJECT HELP").unwrap()).len() > 4);
}

#[test]
fn time_role_and_wait_report_the_server_and_its_replicas() {
    let cluster = Cluster::versioned(three());
    let mut connection = cluster.nodes[0].connect();
    let before = unix_seconds();
    let time = texts(connection.send("TIME").unwrap());
    let seconds: i64 = time[0].parse().unwrap();
    assert!((before..=unix_seconds()).contains(&seconds) && time[1].parse::<u32>().unwrap() < 1_000_000);
    let role = Value::Array(vec![bulk("master"), Value::Int(0), Value::Array(vec![])]);
    assert_eq!(connection.send("ROLE"), Ok(role));
    // A majority of three has each acknowledged write: one replica besides the first.
    assert_eq!(integer(&mut connection, "WAIT 1 0"), 1);
    assert_eq!(integer(&mut connection, "WAIT 2 1000"), 1);
    assert_eq!(connection.code("WAIT 1 -1"), "ERR");
    let alone = Cluster::versioned(Shape::default());
    assert_eq!(integer(&mut alone.nodes[0].connect(), "WAIT 1 0"), 0);
    assert_eq!(connection.send("MODULE LIST"), Ok(Value::Array(vec![])));
    let Ok(Value::BulkString(info)) = connection.send("INFO replication") else {
        panic!("no text");
    };
    assert!(
        String::from_utf8(info)
            .unwrap()
            .contains("role:master\r\nconnected_slaves:0\r\n")
    );
}

#[test]
fn randomkey_finds_keys_and_slots_list_theirs() {
    let cluster = Cluster::versioned(Shape {
        partitions: 64,
        ..Shape::default()
    });
    let mut connection = cluster.nodes[0].connect();
    assert_eq!(connection.send("RANDOMKEY"), Ok(Value::Nil));
    let mut keys = BTreeSet::new();
    for number in 0..30 {
        let key = format!("s:{{tag}}{number}");
        connection.send(&format!("SET {key} x")).unwrap();
        keys.insert(key);
    }
    connection.send("SET s:elsewhere x").unwrap();
    let slot = integer(&mut connection, "CLUSTER KEYSLOT {tag}");
    assert_eq!(integer(&mut connection, &format!("CLUSTER COUNTKEYSINSLOT {slot}")), 30);
    let listed = texts(connection.send(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).unwrap());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), keys);
    let some = texts(connection.send(&format!("CLUSTER GETKEYSINSLOT {slot} 4")).unwrap());
    assert_eq!(some.len(), 4);
    assert_eq!(
        integer(
            &mut connection,
            &format!("CLUSTER COUNTKEYSINSLOT {}", (slot + 1) % 16384)
        ),
        0
    );
    assert!(
        connection
            .send("CLUSTER COUNTKEYSINSLOT 16384")
            .unwrap_err()
            .contains("Invalid slot")
    );
    keys.insert("s:elsewhere".into());
    let mut found = BTreeSet::new();
    until("both partitions with keys are hit", || {
        match connection.send("RANDOMKEY") {
            Ok(Value::BulkString(key)) => {
                let key = String::from_utf8(key).unwrap();
                assert!(keys.contains(&key), "{key}");
                found.insert(key);
            }
            // Too far from the next key.
            Ok(Value::Nil) => {}
            other => panic!("{other:?}"),
        }
        found.contains("s:elsewhere") && found.len() > 1
    });
}

#[test]
fn a_router_counts_the_keys_that_nodes_hold() {
    let cluster = Cluster::versioned(three());
    let router = cluster.router();
    let mut connection = router.connect();
    for number in 0..200 {
        connection.send(&format!("SET s:{number} x")).unwrap();
    }
    // Estimated from the partitions of each node; each node holds all keys here, except those still in flight.
    until("the router counts about as many keys as there are", || {
        (190..=210).contains(&integer(&mut connection, "DBSIZE"))
    });
    let Ok(Value::BulkString(info)) = connection.send("INFO keyspace") else {
        panic!("no text");
    };
    let info = String::from_utf8(info).unwrap();
    assert!(
        info.contains("store_s:kind=versioned,keys=") && !info.contains("db0:keys=0"),
        "{info}"
    );
}

#[test]
fn slow_requests_are_logged_and_counted() {
    let cluster = Cluster::versioned(Shape::default());
    let mut connection = cluster.nodes[0].connect();
    assert_eq!(integer(&mut connection, "SLOWLOG LEN"), 0);
    connection.send("CLIENT SETNAME me").unwrap();
    connection.send("CONFIG SET slowlog-log-slower-than 0").unwrap();
    connection.send("GETRANGE s:k 0 5").unwrap();
    connection.send("SET s:k a-value").unwrap();
    connection
        .send("CONFIG SET slowlog-log-slower-than 1000000000")
        .unwrap();
    let Ok(Value::Array(entries)) = connection.send("SLOWLOG GET") else {
        panic!("no entries");
    };
    let kept: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let Value::Array(fields) = entry else {
                panic!("{entry:?}");
            };
            assert_eq!(fields.len(), 6, "{fields:?}");
            assert_eq!(fields[5], bulk("me"));
            assert!(matches!(fields[2], Value::Int(0..)), "{fields:?}");
            texts(fields[3].clone())
        })
        .collect();
    assert!(
        kept.contains(&vec!["GETRANGE".into(), "s:k".into(), "0".into(), "5".into()]),
        "{kept:?}"
    );
    assert!(kept.iter().any(|words| words[0] == "SET"), "{kept:?}");
    assert_eq!(integer(&mut connection, "SLOWLOG LEN"), kept.len() as i64);
    connection.send("SLOWLOG RESET").unwrap();
    assert_eq!(integer(&mut connection, "SLOWLOG LEN"), 0);
    let Ok(Value::Array(spikes)) = connection.send("LATENCY LATEST") else {
        panic!("no spikes");
    };
    assert!(!spikes.is_empty());
    let Ok(Value::Array(histograms)) = connection.send("LATENCY HISTOGRAM getrange nosuch") else {
        panic!("no histograms");
    };
    assert_eq!(histograms[0], bulk("getrange"));
    let Value::Array(facts) = &histograms[1] else {
        panic!("{histograms:?}");
    };
    assert_eq!(facts[..2], [bulk("calls"), Value::Int(1)]);
}

#[test]
fn only_operators_see_rights_and_everyone_its_own_name() {
    let user = |name: &str, admin: bool| User {
        name: name.into(),
        password: Password::Digest(PasswordDigest::of(name.as_bytes())),
        stores: vec!["s".into()],
        writes: vec!["cart-*".into()],
        admin,
    };
    let cluster = Cluster::versioned(Shape {
        access: Arc::new(SharedAccess::new(vec![user("app", false), user("operator", true)])),
        ..Shape::default()
    });
    let mut connection = cluster.nodes[0].connect();
    connection.send("AUTH app app").unwrap();
    assert_eq!(connection.send("ACL WHOAMI"), Ok(bulk("app")));
    for command in ["ACL LIST", "SLOWLOG GET", "LATENCY LATEST", "LATENCY HISTOGRAM"] {
        assert_eq!(connection.code(command), "NOPERM", "{command}");
    }
    assert!(texts(connection.send("ACL CAT").unwrap()).contains(&"read".to_owned()));
    assert!(texts(connection.send("ACL CAT read").unwrap()).contains(&"get".to_owned()));
    assert!(
        connection
            .send("ACL CAT nosuch")
            .unwrap_err()
            .contains("Unknown category")
    );
    connection.send("AUTH operator operator").unwrap();
    let users = texts(connection.send("ACL LIST").unwrap());
    assert_eq!(users[0], "user app on %R~s:* %RW~cart-*:* +@all -@admin");
    assert_eq!(users.len(), 2);
}
