//! Reads and writes on the number of replicas that the store asks for: with nodes away, too few nodes, and beyond
//! quotas.

use std::sync::Arc;

use fondaco_client::{Client, PutOptions};
use fondaco_node::{Counter, Setting};
use fondaco_testing::until;
use redis::{ConnectionLike, Value};
use tokio::sync::watch;

use super::harness::{Shape, three};
use crate::harness::{Cluster, Connection, bulk};

#[test]
fn three_replicas_tolerate_one_absent_node_but_not_two() {
    let mut cluster = Cluster::versioned(three());
    let mut connection = cluster.nodes[0].connect();
    connection.send("SET s:1 before").unwrap();
    cluster.kill(2);
    for round in 0..20 {
        assert_eq!(connection.send(&format!("SET s:{round} {round}")), Ok(Value::Okay));
        assert_eq!(connection.send(&format!("GET s:{round}")), Ok(bulk(&round.to_string())));
        assert_eq!(connection.send("INCR s:n"), Ok(Value::Int(round + 1)));
    }
    cluster.kill(1);
    let error = connection.send("SET s:1 x").unwrap_err();
    assert!(error.starts_with("NOQUORUM") && error.contains("node 2"), "{error}");
    assert_eq!(connection.code("GET s:1"), "NOQUORUM");
    assert_eq!(connection.code("INCR s:n"), "NOQUORUM");
    // One of several keys: its error takes the place of its value.
    let values = connection.send("EXISTS s:1").unwrap_err();
    assert!(values.starts_with("NOQUORUM"), "{values}");
}

#[test]
fn with_a_read_quorum_of_one_the_node_answers_alone() {
    let mut cluster =
        Cluster::versioned(three().with(|settings| (settings.reads, settings.writes) = (Some(1), Some(3))));
    let mut connection = cluster.nodes[0].connect();
    connection.send("SET s:1 x").unwrap();
    let hot = cluster.nodes[0].count(Counter::HotLookups);
    cluster.kill(1);
    cluster.kill(2);
    assert_eq!(connection.send("GET s:1"), Ok(bulk("x")));
    assert_eq!(
        connection.send("MGET s:1 s:2"),
        Ok(Value::Array(vec![bulk("x"), Value::Nil]))
    );
    assert_eq!(connection.send("STRLEN s:1"), Ok(Value::Int(1)));
    // Requests are counted when they are answered.
    until("all are counted", || {
        cluster.nodes[0].count(Counter::HotLookups) - hot == 4
    });
    assert_eq!(connection.code("SET s:1 y"), "NOQUORUM");
}

#[test]
fn writes_beyond_the_quota_are_refused_and_reads_are_not() {
    let cluster = Cluster::versioned(Shape::default().with(|settings| settings.write_keys_per_second = Some(Some(10))));
    let mut connection = cluster.nodes[0].connect();
    let answers: Vec<_> = (0..200).map(|_| connection.send("SET s:1 x")).collect();
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert!(refused > 100, "{refused}");
    let error = answers.into_iter().find_map(Result::err).unwrap();
    assert!(
        error.starts_with("QUOTA") && error.contains("10 keys a second"),
        "{error}"
    );
    assert_eq!(cluster.nodes[0].count(Counter::QuotaRefusals), refused as u64);
    for _ in 0..50 {
        assert_eq!(connection.send("GET s:1"), Ok(bulk("x")));
    }
}

#[test]
fn clients_that_write_to_replicas_directly_obey_the_quota() {
    let cluster = Cluster::versioned(Shape::of(2).with(|settings| settings.write_keys_per_second = Some(Some(20))));
    let (_, topology) = watch::channel(Some(Arc::new(cluster.topology.clone())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let refused = runtime.unwrap().block_on(async {
        let client = Client::builder().topology(topology).connect().await.unwrap();
        let (store, key) = ("s".parse().unwrap(), cluster.key(1, true).to_string());
        let mut refused = Vec::new();
        for _ in 0..200 {
            let put = client.put(&store, key.as_bytes(), "x", &PutOptions::default()).await;
            refused.extend(put.err());
        }
        assert_eq!(client.get(&store, key.as_bytes()).await.unwrap().unwrap(), "x");
        refused
    });
    assert!(refused.len() > 100, "{}", refused.len());
    let error = refused[0].to_string();
    assert!(error.contains("20 keys a second, 10 through this process"), "{error}");
    assert_eq!(cluster.nodes[1].count(Counter::QuotaRefusals), refused.len() as u64);
}

#[test]
fn a_write_is_charged_once_for_all_nodes() {
    let cluster = Cluster::versioned(Shape::of(3).with(|settings| settings.write_keys_per_second = Some(Some(300))));
    // The quota of each node allows a hundred: two nodes take sixty each, all for the third.
    let key = cluster.key(2, true);
    for node in [0, 1] {
        let mut connection = cluster.nodes[node].connect();
        for _ in 0..60 {
            assert_eq!(connection.send(&format!("SET s:{key} x")), Ok(Value::Okay));
        }
    }
    let mut connection = cluster.nodes[2].connect();
    for _ in 0..60 {
        assert_eq!(connection.send(&format!("SET s:{key} x")), Ok(Value::Okay));
    }
}

#[test]
fn the_read_quota_holds_in_every_pipeline() {
    let mut cluster = Cluster::versioned(Shape::default());
    cluster.topology.stores.get_mut("s").unwrap().read_keys_per_second = Some(10);
    cluster.publish();
    let router = cluster.router();
    for (node, commands) in [&router, &cluster.nodes[0]]
        .into_iter()
        .flat_map(|node| [["GET s:1", "TTL s:1"], ["SET s:1 x", "GET s:1"]].map(|commands| (node, commands)))
    {
        let mut connection = node.connect();
        let mut refused = 0;
        for _ in 0..100 {
            let mut pipeline = redis::pipe();
            for command in commands {
                let mut words = command.split(' ');
                pipeline.cmd(words.next().unwrap());
                words.for_each(|word| {
                    pipeline.arg(word);
                });
            }
            let packed = pipeline.get_packed_pipeline();
            let answers = connection.0.req_packed_commands(&packed, 0, 2).unwrap();
            refused += answers
                .iter()
                .filter(|answer| matches!(answer, Value::ServerError(_)))
                .count();
        }
        assert!(refused > 50, "{commands:?}: {refused}");
    }
}

#[test]
fn a_deletion_covers_writes_that_its_coordinator_missed() {
    let cluster = Cluster::versioned(three().with(|settings| (settings.reads, settings.writes) = (Some(1), Some(1))));
    for key in 0..50 {
        // Written through one node, and deleted at once through another, which may not have received the write.
        cluster.nodes[key % 3]
            .connect()
            .send(&format!("SET s:{key} x"))
            .unwrap();
        cluster.nodes[(key + 1) % 3]
            .connect()
            .send(&format!("DEL s:{key}"))
            .unwrap();
    }
    for node in &cluster.nodes {
        until("nothing is left", || {
            let mut connection = node.connect();
            (0..50).all(|key| connection.send(&format!("GET s:{key}")) == Ok(Value::Nil))
        });
    }
}

const LARGE_BYTES: usize = 256 << 10;

/// Keys of one node, with large values.
fn large(cluster: &Cluster, node: usize, count: usize) -> Vec<String> {
    let keys = (0..10_000).map(|key| key.to_string());
    let keys: Vec<String> = keys
        .filter(|key| cluster.owners_of(key) == [node])
        .take(count)
        .collect();
    let mut connection = cluster.nodes[node].connect();
    for key in &keys {
        let set = connection.ask(&[&b"SET"[..], format!("s:{key}").as_bytes(), &vec![b'v'; LARGE_BYTES]]);
        assert_eq!(set, Ok(Value::Okay));
    }
    keys
}

/// The elements of an array reply, including errors.
fn raw(connection: &mut Connection, words: &[String]) -> Vec<Value> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    match connection.0.req_packed_command(&command.get_packed_command()) {
        Ok(Value::Array(values)) => values,
        answer => panic!("{answer:?}"),
    }
}

fn mget(connection: &mut Connection, keys: &[String]) -> Vec<Value> {
    let keys = keys.iter().map(|key| format!("s:{key}"));
    let words: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
    raw(connection, &words)
}

#[test]
fn large_replica_replies_are_split_and_the_rest_requested() {
    let cluster = Cluster::versioned(Shape::of(2));
    let keys = large(&cluster, 1, 40);
    for node in &cluster.nodes {
        let values = mget(&mut node.connect(), &keys);
        assert!(
            values
                .iter()
                .all(|value| *value == Value::BulkString(vec![b'v'; LARGE_BYTES]))
        );
    }
    // A client that asks repeatedly for one key gets no more of it.
    let words = ["FONDACO.RGET", "v1;timeout=0", "1", "FULL", "s"]
        .map(str::to_owned)
        .into_iter();
    let words: Vec<String> = words.chain(std::iter::repeat_n(keys[0].clone(), 50_000)).collect();
    let answers = raw(&mut cluster.nodes[1].connect(), &words);
    let is_record = |answer: &&Value| matches!(answer, Value::BulkString(_));
    assert_eq!(answers.iter().filter(is_record).count(), 16);
    let rest = answers.into_iter().skip(16).map(Value::extract_error);
    assert!(
        rest.into_iter()
            .all(|answer| answer.unwrap_err().code() == Some("MORE"))
    );
}

#[test]
fn values_that_wait_to_be_sent_are_bounded_in_bytes() {
    let mut cluster = Cluster::versioned(Shape::of(2));
    let keys = large(&cluster, 1, 20);
    cluster.nodes.push(cluster.router());
    for asked in [0, 2] {
        let node = &cluster.nodes[asked];
        node.settings.set(Setting::ForwardBytesMax, 5 << 20).unwrap();
        let mut connection = node.connect();
        for _ in 0..3 {
            let (read, refused): (Vec<Value>, Vec<Value>) = mget(&mut connection, &keys)
                .into_iter()
                .partition(|value| matches!(value, Value::BulkString(_)));
            assert_eq!(
                read.len(),
                9,
                "each of two loops has half, and records are a little longer than values"
            );
            let overloaded = |value: Value| value.extract_error().unwrap_err().code() == Some("OVERLOADED");
            assert!(refused.into_iter().all(overloaded));
        }
        // Values that were sent wait no more.
        let values = mget(&mut connection, &keys[..2]);
        assert!(values.iter().all(|value| matches!(value, Value::BulkString(_))));
        // One key alone may take all that it needs.
        node.settings.set(Setting::ForwardBytesMax, 1000).unwrap();
        let get = connection.send(&format!("GET s:{}", keys[0])).unwrap();
        assert!(matches!(get, Value::BulkString(_)), "{get:?}");
        let append = connection.send(&format!("APPEND s:{} x", keys[0])).unwrap();
        assert!(matches!(append, Value::Int(_)), "{append:?}");
    }
}
