//! The commands of versioned stores, and the order of their replies.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fondaco_model::versioned::Resolution;
use fondaco_node::PeerAccess;
use fondaco_testing::until;
use redis::{ConnectionLike, Value};

use super::harness::{Shape, spread, three, users};
use crate::harness::{Cluster, Connection, PATIENCE, bulk};

#[test]
fn a_pipeline_is_answered_and_executed_per_key_in_order() {
    for shape in [Shape::default(), three()] {
        let cluster = Cluster::versioned(shape);
        let mut pipeline = redis::pipe();
        let mut expected = Vec::new();
        for round in 0..1_500_i64 {
            let key = format!("s:{}", round % 7);
            match round % 3 {
                0 => {
                    pipeline.cmd("SET").arg(&key).arg(round);
                    expected.push(Value::Okay);
                }
                1 => {
                    pipeline.cmd("ECHO").arg(round);
                    expected.push(bulk(&round.to_string()));
                }
                _ => {
                    pipeline.cmd("INCR").arg("s:counter");
                    expected.push(Value::Int(round / 3 + 1));
                }
            }
            if round % 5 == 0 {
                pipeline.cmd("MSET").arg(&key).arg(round).arg("s:other").arg(round);
                pipeline
                    .cmd("GET")
                    .arg("s:other")
                    .cmd("MGET")
                    .arg("s:other")
                    .arg("s:none");
                let text = bulk(&round.to_string());
                expected.extend([Value::Okay, text.clone(), Value::Array(vec![text, Value::Nil])]);
            }
        }
        let answers: Vec<Value> = pipeline.query(&mut cluster.nodes[0].connect().0).unwrap();
        assert_eq!(answers, expected);
    }
}

#[test]
fn a_sole_owner_writes_directly_and_once_during_changes() {
    const WRITERS: usize = 4;
    const INCREMENTS: i64 = 50;
    const COORDINATED_MIN: u64 = 20;
    let cluster = Cluster::versioned(Shape::default());
    let node = &cluster.nodes[0];
    node.connect().send("SET s:k v").unwrap();
    assert_eq!(node.coordinated(), 0);
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |writer: usize| {
            let (mut connection, key) = (node.connect(), format!("s:{writer}"));
            let mut counted = 0;
            while !is_enough.load(Relaxed) {
                let mut pipeline = redis::pipe();
                for _ in 0..INCREMENTS {
                    pipeline.cmd("INCR").arg(&key);
                }
                let answers: Vec<i64> = pipeline.query(&mut connection.0).unwrap();
                assert!(answers.into_iter().eq(counted + 1..=counted + INCREMENTS));
                counted += INCREMENTS;
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let mut topology = cluster.topology.clone();
        // Writes that arrived before a change and start after it go through the coordinator.
        until("the coordinator made some of the writes", || {
            let is_over = writers.iter().any(|writer| writer.is_finished());
            topology
                .stores
                .values_mut()
                .for_each(|store| store.replicas = 3 - store.replicas);
            node.publish(&topology);
            is_over || node.coordinated() > COORDINATED_MIN
        });
        is_enough.store(true, Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

#[test]
fn half_closed_clients_get_replies_and_muted_ones_do_not() {
    let cluster = Cluster::versioned(Shape::default());
    let exchange = |requests: &str| {
        let mut socket = TcpStream::connect(cluster.nodes[0].address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(requests.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        socket.read_to_string(&mut answers).unwrap();
        answers
    };
    assert_eq!(
        exchange("SET s:1 x\r\nINCR s:2\r\nINCR s:2\r\nGET s:1\r\n"),
        "+OK\r\n:1\r\n:2\r\n$1\r\nx\r\n"
    );
    assert_eq!(exchange("CLIENT REPLY SKIP\r\nINCR s:3\r\nINCR s:3\r\n"), ":2\r\n");
    assert_eq!(
        exchange("CLIENT REPLY OFF\r\nINCR s:3\r\nSET s:1 y\r\nCLIENT REPLY ON\r\nINCR s:3\r\n"),
        "+OK\r\n:4\r\n"
    );
    // Bytes that are no request end the connection, after all requests before them are answered.
    let answers = exchange("SET s:1 z\r\n*1\r\n$x\r\n");
    assert!(answers.starts_with("+OK\r\n-ERR Protocol error"), "{answers}");
}

#[test]
fn every_process_takes_writes_for_every_key() {
    let cluster = Cluster::versioned(Shape {
        nodes: 4,
        replicas: 2,
        partitions: 8,
        ..Shape::default()
    });
    let router = cluster.router();
    let mut connections: Vec<Connection> = cluster
        .nodes
        .iter()
        .chain([&router])
        .map(|node| node.connect())
        .collect();
    for key in 0..40_usize {
        let writer = key % connections.len();
        let set = connections[writer].send(&format!("SET s:{key} {key}"));
        assert_eq!(set, Ok(Value::Okay));
        // R + W > N: every process sees the write at once.
        for connection in &mut connections {
            assert_eq!(connection.send(&format!("GET s:{key}")), Ok(bulk(&key.to_string())));
        }
    }
    let keys: Vec<String> = (0..40).map(|key| format!("s:{key}")).collect();
    let mget = [vec!["MGET".to_owned()], keys].concat();
    let values: Vec<Value> = (0..40).map(|key| bulk(&key.to_string())).collect();
    for connection in &mut connections {
        assert_eq!(connection.ask(&mget), Ok(Value::Array(values.clone())));
    }
    let last = connections.len() - 1;
    assert_eq!(connections[last].send("DEL s:1 s:2 s:2 s:100"), Ok(Value::Int(2)));
    for connection in &mut connections {
        assert_eq!(connection.send("EXISTS s:1 s:2 s:3"), Ok(Value::Int(1)));
    }
}

#[test]
fn a_scan_lists_each_key_once_and_no_deleted_ones() {
    let cluster = Cluster::versioned(spread());
    let router = cluster.router();
    let mut connection = router.connect();
    for key in 0..300 {
        connection.send(&format!("SET s:{key} x")).unwrap();
    }
    for key in (0..300).step_by(3) {
        connection.send(&format!("DEL s:{key}")).unwrap();
    }
    let expected: BTreeSet<String> = (0..300)
        .filter(|key| key % 3 > 0)
        .map(|key| format!("s:{key}"))
        .collect();
    for node in cluster.nodes.iter().chain([&router]) {
        // The second replica of a key may receive it shortly after the client's reply.
        until("all is listed", || {
            let mut listed = Vec::new();
            let mut cursor = 0;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg("s:*").arg("COUNT").arg(17);
                let (next, keys): (u64, Vec<String>) = scan.query(&mut node.connect().0).unwrap();
                listed.extend(keys);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            let distinct: BTreeSet<String> = listed.iter().cloned().collect();
            assert_eq!(distinct.len(), listed.len(), "a key is listed once");
            distinct == expected
        });
    }
}

#[test]
fn a_write_with_a_context_replaces_only_the_values_read() {
    let cluster = Cluster::versioned(three().with(|settings| settings.resolution = Some(Resolution::All)));
    let mut redis = cluster.nodes[0].connect();
    let read = |redis: &mut Connection| -> (Vec<u8>, Vec<String>) {
        let (context, mut values): (Vec<u8>, Vec<String>) =
            redis::cmd("FONDACO.GET").arg("s:1").query(&mut redis.0).unwrap();
        values.sort_unstable();
        (context, values)
    };
    let put = |redis: &mut Connection, context: &[u8], value: &str| -> Vec<u8> {
        let mut command = redis::cmd("FONDACO.PUT");
        command.arg("s:1").arg(context).arg(value).query(&mut redis.0).unwrap()
    };
    let (none, values) = read(&mut redis);
    assert_eq!(values, [""; 0]);
    // Two clients that have read nothing both write: neither write replaces the other.
    let first = put(&mut redis, &none, "one");
    put(&mut cluster.nodes[1].connect(), b"", "two");
    assert_eq!(read(&mut redis).1, ["one", "two"]);
    assert_eq!(redis.code("GET s:1"), "CONFLICT");
    assert_eq!(redis.code("APPEND s:1 x"), "CONFLICT");
    // A client that has seen one of them replaces that one.
    put(&mut redis, &first, "three");
    let (all, values) = read(&mut redis);
    assert_eq!(values, ["three", "two"]);
    put(&mut redis, &all, "both");
    assert_eq!(redis.send("GET s:1"), Ok(bulk("both")));
    // A deletion with an old context deletes no newer value.
    assert!(redis.ask(&[&b"FONDACO.DEL"[..], b"s:1", &all]).is_ok());
    assert_eq!(redis.send("GET s:1"), Ok(bulk("both")));
    let (all, _) = read(&mut redis);
    assert!(redis.ask(&[&b"FONDACO.DEL"[..], b"s:1", &all]).is_ok());
    assert_eq!(redis.send("GET s:1"), Ok(Value::Nil));
    assert_eq!(redis.code("FONDACO.PUT s:1 no-context x"), "ERR");
}

#[test]
fn counters_lose_no_increment_on_any_node() {
    let cluster = Cluster::versioned(three().with(|settings| settings.resolution = Some(Resolution::Counter)));
    std::thread::scope(|scope| {
        for node in &cluster.nodes {
            scope.spawn(move || {
                let mut connection = node.connect();
                (0..100).for_each(|_| drop(connection.send("INCR s:1").unwrap()));
            });
        }
    });
    let mut connection = cluster.nodes[0].connect();
    assert_eq!(connection.send("GET s:1"), Ok(bulk("300")));
    assert_eq!(connection.send("SET s:1 5"), Ok(Value::Okay));
    assert_eq!(connection.send("DECRBY s:1 2"), Ok(Value::Int(3)));
    assert_eq!(connection.send("SET s:1 x"), Ok(Value::Okay));
    assert_eq!(connection.code("INCR s:1"), "ERR");
    assert_eq!(connection.send("DEL s:1"), Ok(Value::Int(1)));
    assert_eq!(connection.send("INCR s:1"), Ok(Value::Int(1)));
    // A context says nothing about how far the sums had come.
    for command in ["FONDACO.PUT", "FONDACO.DEL"] {
        let (context, _): (Vec<u8>, Vec<String>) =
            redis::cmd("FONDACO.GET").arg("s:1").query(&mut connection.0).unwrap();
        let mut words = vec![command.as_bytes(), b"s:1", &context];
        words.extend((command == "FONDACO.PUT").then_some(&b"0"[..]));
        let refused = connection.ask(&words).unwrap_err();
        assert!(refused.contains("takes no context"), "{refused}");
    }
    assert_eq!(connection.send("GET s:1"), Ok(bulk("1")));
}

#[test]
fn one_of_several_conditional_writes_of_a_counter_succeeds() {
    let cluster = Cluster::versioned(three().with(|settings| settings.resolution = Some(Resolution::Counter)));
    let mut connection = cluster.nodes[0].connect();
    let of_all = |command: &str| -> Vec<Value> {
        std::thread::scope(|scope| {
            let ask = |node: usize| {
                let mut connection = cluster.nodes[node].connect();
                scope.spawn(move || connection.send(command).unwrap())
            };
            let asking: Vec<_> = (0..12).map(|number| ask(number % 3)).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        })
    };
    for round in 0..20 {
        let first = |answers: Vec<Value>, first: &Value| answers.iter().filter(|answer| *answer == first).count();
        assert_eq!(first(of_all(&format!("SETNX s:{round} 5")), &Value::Int(1)), 1);
        assert_eq!(first(of_all(&format!("GETDEL s:{round}")), &bulk("5")), 1);
    }
    assert_eq!(connection.send("EXISTS s:0"), Ok(Value::Int(0)));
}

#[test]
fn mixed_reads_are_answered_alike_behind_a_write() {
    let cluster = Cluster::versioned(Shape::default());
    let mut connection = cluster.nodes[0].connect();
    connection.send("SET s:1 x").unwrap();
    let alone = connection.send("EXISTS s:1 b:1");
    for _ in 0..20 {
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("s:1").arg("x");
        pipeline.cmd("EXISTS").arg("s:1").arg("b:1");
        let answers = connection.0.req_packed_commands(&pipeline.get_packed_pipeline(), 0, 2);
        let behind = answers.unwrap().pop().unwrap().extract_error();
        let behind = behind.map_err(|error| format!("{} {}", error.code().unwrap(), error.detail().unwrap()));
        assert_eq!(behind, alone);
    }
}

#[test]
fn an_increment_is_applied_once_on_any_node() {
    let cluster = Cluster::versioned(three());
    std::thread::scope(|scope| {
        for node in &cluster.nodes {
            scope.spawn(move || {
                let mut connection = node.connect();
                let mut done = 0;
                while done < 50 {
                    match connection.send("INCR s:1") {
                        Ok(_) => done += 1,
                        Err(error) => assert!(error.starts_with("CONFLICT"), "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(cluster.nodes[0].connect().send("GET s:1"), Ok(bulk("150")));
}

#[test]
fn multi_key_writes_and_unsupported_commands_are_refused() {
    let cluster = Cluster::versioned(Shape::default());
    let mut connection = cluster.nodes[0].connect();
    for command in ["RENAME s:1 s:2", "COPY s:1 s:2", "MSETNX s:1 x s:2 y"] {
        let error = connection.send(command).unwrap_err();
        assert!(error.ends_with("write the keys one by one"), "{command}: {error}");
    }
    for command in ["INCRBYFLOAT s:1 0.5", "MOVE s:1 1", "RESTORE s:1 0 x"] {
        let error = connection.send(command).unwrap_err();
        assert!(error.starts_with("ERR versioned stores have no"), "{command}: {error}");
    }
    assert!(connection.send("FLUSHALL").unwrap_err().contains("fondaco store drop"));
    assert_eq!(connection.code("SET none:1 x"), "NOSTORE");
    assert_eq!(connection.code("SET s: x"), "BADKEY");
}

#[test]
fn a_cluster_client_is_redirected_to_a_replica() {
    let cluster = Cluster::versioned(spread());
    let mut connection = cluster.nodes[0].connect();
    let (held, other) = (cluster.key(0, true), cluster.key(0, false));
    connection.send("CLUSTER SLOTS").unwrap();
    for command in ["SET s:K x", "GET s:K", "INCRBY s:K 1", "FONDACO.GET s:K", "TTL s:K"] {
        let error = connection.send(&command.replace('K', &other.to_string())).unwrap_err();
        let owner = cluster.owners_of(other)[0];
        assert!(error.starts_with("MOVED"), "{command}: {error}");
        assert!(
            error.ends_with(&cluster.nodes[owner].address().to_string()),
            "{command}: {error}"
        );
    }
    assert_eq!(connection.send(&format!("SET s:{held} x")), Ok(Value::Okay));
    assert_eq!(connection.send(&format!("GET s:{held}")), Ok(bulk("x")));
}

/// Until the coordination service reports a node as gone, the others find out by asking it.
#[test]
fn a_cluster_client_is_not_redirected_to_a_hanging_node() {
    let mut cluster = Cluster::versioned(spread());
    let mut keys = (0..10_000).map(|key| key.to_string());
    let key = keys.find(|key| cluster.owners_of(key) == [1, 2]).unwrap();
    let mut connection = cluster.nodes[0].connect();
    assert_eq!(connection.send(&format!("SET s:{key} x")), Ok(Value::Okay));
    cluster.kill(1);
    let second = cluster.nodes[2].address().to_string();
    until("the client is sent to the other replica", || {
        // Some fail, until the node is suspended.
        let _ = connection.send(&format!("GET s:{key}"));
        connection.send("CLUSTER SLOTS").unwrap();
        let moved = connection.send(&format!("GET s:{key}")).unwrap_err();
        connection.send("RESET").unwrap();
        assert!(moved.starts_with("MOVED"), "{moved}");
        moved.ends_with(&second)
    });
}

#[test]
fn no_command_writes_without_the_right_to_write() {
    let cluster = Cluster::versioned(Shape {
        access: users(),
        peers: PeerAccess {
            user: Some("node".into()),
            password: Some("node".into()),
            ..PeerAccess::default()
        },
        ..three()
    });
    let mut connection = cluster.nodes[0].connect();
    let writes = [
        "SET s:1 x",
        "DEL s:1",
        "GETEX s:1 PERSIST",
        "FONDACO.PUT s:1 c x",
        "FONDACO.RMERGE v1;timeout=9 1 s 1 x",
    ];
    let reads = [
        "GET s:1",
        "TTL s:1",
        "FONDACO.GET s:1",
        "FONDACO.RGET v1;timeout=1000 1 FULL s 1",
    ];
    for command in writes.iter().chain(&reads) {
        assert_eq!(connection.code(command), "NOAUTH", "{command}");
    }
    connection.send("AUTH stranger stranger").unwrap();
    for command in writes.iter().chain(&reads) {
        assert_eq!(connection.code(command), "NOPERM", "{command}");
    }
    connection.send("AUTH reader reader").unwrap();
    for command in writes {
        assert_eq!(connection.code(command), "NOPERM", "{command}");
    }
    for command in reads {
        assert!(connection.send(command).is_ok(), "{command}");
    }
    connection.send("AUTH node node").unwrap();
    assert_eq!(connection.send("SET s:1 x"), Ok(Value::Okay));
}

#[test]
fn a_quoted_inline_request_works_like_others() {
    let cluster = Cluster::versioned(three());
    let mut typed = TcpStream::connect(cluster.nodes[0].address()).unwrap();
    typed.set_read_timeout(Some(PATIENCE)).unwrap();
    let requests = b"SET s:1 \"a b\"\r\nGET 's:1'\r\nFONDACO.RGET v1 \"1\" FULL s never\r\n";
    typed.write_all(requests).unwrap();
    let mut replies = [0; 18];
    typed.read_exact(&mut replies).unwrap();
    assert_eq!(&replies, b"+OK\r\n$3\r\na b\r\n*1\r\n");
}

#[test]
fn a_split_request_does_not_delay_those_behind_it() {
    let cluster = Cluster::versioned(Shape::default());
    for others in ["GET b:1", "MGET s:1 s:2", "PING"] {
        let mut socket = TcpStream::connect(cluster.nodes[0].address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let long = "x".repeat(20_000);
        let first = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{long}\r\n");
        let (one, two) = first.split_at(5_000);
        socket.write_all(one.as_bytes()).unwrap();
        // So that it arrives in a read of its own.
        std::thread::sleep(std::time::Duration::from_millis(50));
        socket
            .write_all(format!("{two}{others}\r\nSET s:1 y\r\n").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"+OK\r\n") {
            let mut buffer = [0; 4096];
            let count = socket.read(&mut buffer).unwrap();
            assert!(count > 0, "{others}: the connection ended");
            answer.extend_from_slice(&buffer[..count]);
        }
    }
}
