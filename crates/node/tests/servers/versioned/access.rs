//! Errors for users without the right to read or write a store, and for wrong passwords.

use std::time::{Duration, Instant};

use fondaco_node::Counter;
use fondaco_protocol::proof::{End, Introduction, ProofKey};
use redis::Value;

use super::harness::{Shape, users};
use crate::harness::{Cluster, Connection, bulk};

/// A node with users whose passwords are their names.
fn guarded() -> Cluster {
    Cluster::versioned(Shape {
        access: users(),
        ..Shape::default()
    })
}

#[test]
fn a_user_cannot_see_stores_that_it_may_not_read() {
    let cluster = guarded();
    let mut connection = cluster.nodes[0].connect();
    connection.send("AUTH stranger stranger").unwrap();
    // `s` is a versioned store, `b` a batch store, and there is no `n`.
    let mut told = |command: &str, store: &str| {
        let command = command.replace('@', store);
        let error = connection.send(&command).unwrap_err();
        assert!(error.starts_with("NOPERM"), "{command}: {error}");
        error.replace(&format!("{store:?}"), "@")
    };
    for command in [
        "GET @:1",
        "MGET @:1 @:2",
        "EXISTS @:1",
        "STRLEN @:1",
        "GETRANGE @:1 0 1",
        "TYPE @:1",
        "TTL @:1",
        "SET @:1 x",
        "MSET @:1 x",
        "DEL @:1",
        "INCR @:1",
        "EXPIRE @:1 5",
        "INCRBYFLOAT @:1 1",
        "RENAME @:1 @:2",
        "SCAN 0 MATCH @:*",
        "FONDACO.GET @:1",
        "FONDACO.PUT @:1 c x",
        "FONDACO.SCAN @ 1 0 0 10",
        "FONDACO.READ v1 0 0 @ 1",
        "FONDACO.RGET v1 1 FULL @ 1",
        "FONDACO.RTREE v1 1 @ 1 0 1 0",
    ] {
        let missing = told(command, "n");
        assert_eq!(told(command, "s"), missing, "{command}");
        assert_eq!(told(command, "b"), missing, "{command}");
    }
    let Ok(Value::Array(told)) = connection.send("FONDACO.TOPOLOGY") else {
        panic!("no topology");
    };
    let [_, Value::BulkString(json)] = &told[..] else {
        panic!("{told:?}");
    };
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    assert_eq!(json["stores"], serde_json::json!({}));
    assert_eq!(
        connection.send("SCAN 0"),
        Ok(Value::Array(vec![bulk("0"), Value::Array(vec![])]))
    );
    // It does see its own stores.
    assert_eq!(connection.code("GET x:1"), "NOSTORE");
    connection.send("AUTH reader reader").unwrap();
    assert_eq!(connection.send("GET s:1"), Ok(Value::Nil));
}

#[test]
fn wrong_passwords_are_slowed_down_and_end_the_connection() {
    let cluster = guarded();
    let node = &cluster.nodes[0];
    let mut connection = node.connect();
    let began = Instant::now();
    for command in ["AUTH reader 1", "HELLO 3 AUTH reader 2", "AUTH 3", "AUTH nobody 4"] {
        let error = connection.send(command).unwrap_err();
        assert!(error.starts_with("WRONGPASS"), "{command}: {error}");
        connection.send("RESET").unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(1500));
    let error = connection.send("AUTH reader 5").unwrap_err();
    assert!(error.starts_with("WRONGPASS") && error.contains("closed"), "{error}");
    assert!(connection.send("AUTH reader reader").is_err());
    assert_eq!(node.count(Counter::AuthenticationFailures), 5);
    // Other clients are accepted meanwhile, and a client that errs once may continue.
    let mut other = node.connect();
    other.send("AUTH reader 1").unwrap_err();
    other.send("AUTH reader reader").unwrap();
    assert_eq!(other.send("GET s:1"), Ok(Value::Nil));
}

#[test]
fn a_proof_of_the_password_is_accepted_once() {
    let cluster = guarded();
    let node = &cluster.nodes[0];
    let mut connection = node.connect();
    let challenge = |connection: &mut Connection| {
        let Ok(Value::Array(told)) = connection.send("FONDACO.NONCE") else {
            panic!("no challenge");
        };
        let [Value::BulkString(nonce), Value::BulkString(address)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(*address, node.address().to_string().into_bytes());
        nonce.clone()
    };
    let client_nonce = "0123456789abcdef0123456789abcdef";
    let address = node.address().to_string();
    let introduction = |server_nonce| Introduction {
        server_nonce,
        client_nonce: client_nonce.as_bytes(),
        address: address.as_bytes(),
        user: b"reader",
    };
    assert_eq!(connection.code("FONDACO.PROVE reader 1 2"), "ERR");
    let nonce = challenge(&mut connection);
    assert_eq!(connection.code("FONDACO.PROVE reader 1 2"), "ERR");
    assert_eq!(connection.code("GET s:1"), "NOAUTH");
    let first = challenge(&mut connection);
    assert_ne!(first, nonce);
    let key = ProofKey::of_password(b"reader");
    let proof = key.prove(End::Client, &introduction(&first));
    let prove = format!("FONDACO.PROVE reader {client_nonce} {proof}");
    let Ok(Value::BulkString(own)) = connection.send(&prove) else {
        panic!("a good proof is refused");
    };
    assert!(key.verifies(End::Server, &introduction(&first), &own));
    assert_eq!(connection.send("GET s:1"), Ok(Value::Nil));
    assert_eq!(connection.code("GET x:1"), "NOPERM");
    // A captured proof cannot be replayed.
    assert_eq!(connection.code(&prove), "ERR");
    let mut other = node.connect();
    challenge(&mut other);
    assert_eq!(other.code(&prove), "WRONGPASS");
    assert_eq!(other.code("GET s:1"), "NOAUTH");
    assert_eq!(node.count(Counter::AuthenticationFailures), 1);
}
