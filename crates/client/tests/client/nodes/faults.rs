//! Nodes that die, hang up, do not answer, or send malformed answers.

use std::time::Duration;

use fondaco_client::read::SteeringPolicy;
use fondaco_client::{Client, ClientError, Partial, ReadOptions};
use tokio::time::Instant;

use super::harness::{Cluster, id, keys, name, until, value_of, within};
use super::server::Behaviour;

fn suspended(client: &Client) -> Vec<u32> {
    let nodes = client.stats().nodes.into_iter();
    nodes.filter(|node| node.suspended).map(|node| node.id.get()).collect()
}

#[tokio::test]
async fn a_dead_node_fails_no_request_and_comes_back() {
    let mut cluster = Cluster::start(3, 2).await;
    let client = cluster.client().await;
    let keys = keys(60);
    cluster.nodes[1].kill().await;
    until("the dead node is suspended", || suspended(&client) == [2]).await;
    for _ in 0..20 {
        let reply = client.get_many(&keys, &ReadOptions::default()).await.unwrap();
        assert_eq!((reply.retried, reply.hedged), (0, 0), "no request goes to it");
    }
    cluster.nodes[1].restart().await;
    until("the node is no longer suspended", || suspended(&client).is_empty()).await;
    let before = cluster.nodes[1].reads();
    client.get_many(&keys, &ReadOptions::default()).await.unwrap();
    assert_eq!(cluster.nodes[1].reads(), before + 1);
}

#[tokio::test]
async fn other_nodes_answer_requests_of_a_dying_node() {
    let mut cluster = Cluster::start(3, 2).await;
    let client = cluster.client().await;
    cluster.nodes[0].behave(Behaviour::Slow(Duration::from_secs(60)));
    let under_way: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            let no_hedge = ReadOptions {
                hedge: false,
                ..within(5_000)
            };
            tokio::spawn(async move { client.get_many(&keys(30), &no_hedge).await })
        })
        .collect();
    until("all have asked it", || {
        client
            .stats()
            .nodes
            .iter()
            .any(|node| node.id == id(1) && node.in_flight == 50)
    })
    .await;
    cluster.nodes[0].kill().await;
    for read in under_way {
        let reply = read.await.unwrap().unwrap();
        assert!(reply.values.iter().all(Result::is_ok));
    }
    assert_eq!(client.stats().reads.keys_failed, 0);
}

#[tokio::test]
async fn a_node_that_hangs_up_on_reads_gets_fewer_requests() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    cluster.nodes[0].behave(Behaviour::HangUp);
    for (store, key) in keys(200) {
        let value = client.get(&store, key.as_bytes()).await;
        assert_eq!(value, Ok(Some(value_of(1, &key))));
    }
    assert_eq!(client.stats().reads.keys_failed, 0);
}

#[tokio::test]
async fn a_silent_node_times_out_and_is_probed_and_suspended() {
    let cluster = Cluster::start(2, 2).await;
    let silence = Duration::from_millis(500);
    let builder = cluster.builder().silence(silence).connect_timeout(silence);
    let client = cluster.connected(builder).await;
    cluster.nodes[0].behave(Behaviour::Silent);
    let began = Instant::now();
    while suspended(&client) != [1] {
        let reply = client.get_many(&keys(20), &within(10_000)).await.unwrap();
        assert!(reply.values.iter().all(Result::is_ok));
        assert!(began.elapsed() < super::harness::PATIENCE, "never suspended");
    }
    let began = Instant::now();
    client.get_many(&keys(20), &within(20_000)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(9), "no request waits for it");
    cluster.nodes[0].behave(Behaviour::Answer);
    until("it is asked again", || suspended(&client).is_empty()).await;
}

#[tokio::test]
async fn a_slow_node_that_answers_probes_keeps_its_connection() {
    let cluster = Cluster::start(1, 1).await;
    let silence = Duration::from_millis(20);
    let client = cluster.connected(cluster.builder().silence(silence)).await;
    cluster.nodes[0].behave(Behaviour::Slow(Duration::from_millis(200)));
    assert_eq!(client.get(&name("s"), b"k").await, Ok(Some(value_of(1, "k"))));
    assert!(suspended(&client).is_empty());
    let connections = cluster.nodes[0].state(|state| state.connections);
    assert!(connections > 1, "it was probed");
    assert_eq!(cluster.reads(), 1, "and not asked twice");
}

#[tokio::test]
async fn a_deadline_ends_unanswered_requests() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    cluster.nodes.iter().for_each(|node| node.behave(Behaviour::Silent));
    let began = Instant::now();
    let error = client.get_many(&keys(5), &within(120)).await;
    assert_eq!(error, Err(ClientError::Timeout { deadline_ms: 120 }));
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(120) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_malformed_answer_closes_the_connection_and_others_answer() {
    let nonsense = [
        "+OK\r\n",
        "*1\r\n:5\r\n",
        "GET\r\n",
        "*1\r\n*1\r\n$1\r\nx\r\n",
        "*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    ];
    for bytes in nonsense {
        let cluster = Cluster::start(2, 2).await;
        let client = cluster.client().await;
        cluster.nodes[0].behave(Behaviour::Say(bytes));
        for (store, key) in keys(10) {
            let value = client.get(&store, key.as_bytes()).await;
            assert_eq!(value, Ok(Some(value_of(1, &key))), "{bytes:?}");
        }
    }
}

#[tokio::test]
async fn unknown_errors_are_retried_elsewhere_but_refusals_are_not() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    cluster.nodes[0].behave(Behaviour::Say("-ERR out of sorts\r\n"));
    let reply = client.get_many(&keys(20), &ReadOptions::default()).await.unwrap();
    assert_eq!(reply.retried, 1);
    cluster.nodes[0].behave(Behaviour::Say("-NOPERM this user may not read store \"s\"\r\n"));
    let error = client.get_many(&keys(20), &ReadOptions::default()).await;
    let Err(ClientError::Refused { node, message }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(node, id(1));
    assert!(message.starts_with("NOPERM"));
}

#[tokio::test]
async fn a_corrupt_record_is_read_elsewhere_without_blaming_the_node() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    cluster.nodes[0].behave(Behaviour::ErrorFor(
        "key-1",
        "CORRUPT a record does not have its checksum",
    ));
    for _ in 0..20 {
        let reply = client.get_many(&keys(20), &ReadOptions::default()).await.unwrap();
        assert!(reply.values.iter().all(Result::is_ok));
    }
    assert!(suspended(&client).is_empty());
}

#[tokio::test]
async fn when_all_replicas_fail_the_error_has_the_last_message() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    for node in &cluster.nodes {
        node.behave(Behaviour::Say("-ERR out of sorts\r\n"));
    }
    let per_key = ReadOptions {
        partial: Partial::PerKey,
        ..ReadOptions::default()
    };
    let reply = client.get_many(&keys(3), &per_key).await.unwrap();
    for value in reply.values {
        let Err(error @ ClientError::Unavailable { .. }) = value else {
            panic!("{value:?}")
        };
        assert!(error.to_string().contains("out of sorts"), "{error}");
        assert_eq!(error.code(), "UNAVAILABLE");
    }
}

#[tokio::test]
async fn retries_stay_within_the_budget() {
    let cluster = Cluster::start(2, 2).await;
    let policy = SteeringPolicy {
        retry_share: 0.1,
        retry_stock_max: 10,
        ..SteeringPolicy::default()
    };
    let client = cluster.connected(cluster.builder().steering(policy)).await;
    for node in &cluster.nodes {
        node.behave(Behaviour::Say("-ERR out of sorts\r\n"));
    }
    let no_hedge = ReadOptions {
        hedge: false,
        ..within(10_000)
    };
    for key in keys(200) {
        let error = client.get_many(&[key], &no_hedge).await.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable { .. }), "{error:?}");
    }
    let counts = client.stats().reads;
    assert!(
        (20..=10 + 200 / 10).contains(&counts.retries),
        "the saved budget, and a tenth of the requests: {counts:?}"
    );
    assert_eq!(counts.retries_denied, 200 - counts.retries);
}
