//! The answers of a healthy cluster, and how requests are divided over nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fondaco_client::read::{NearestFirst, RoundRobin, SUB_REQUEST_KEYS_MAX};
use fondaco_client::{Client, ClientError, Partial, ReadOptions, WireKey};
use fondaco_model::StoreName;

use super::harness::{Cluster, id, keys, name, value_of, within};
use super::server::Behaviour;

#[tokio::test]
async fn values_have_the_order_of_keys_and_their_version() {
    let cluster = Cluster::start(3, 2).await;
    cluster.open("other", 7);
    cluster.swap("other", 7);
    let client = cluster.client().await;
    let mut keys = keys(100);
    keys[10].1 = "absent".into();
    keys[20].0 = name("other");
    let reply = client.get_many(&keys, &ReadOptions::default()).await.unwrap();
    for (place, (value, (_, key))) in reply.values.into_iter().zip(&keys).enumerate() {
        let expected = match place {
            10 => None,
            20 => Some(format!("other/7/{key}").into()),
            _ => Some(value_of(1, key)),
        };
        assert_eq!(value, Ok(expected), "{key}");
    }
    let mut versions: Vec<(String, u64)> = reply
        .stores
        .iter()
        .map(|store| (store.name.to_string(), store.version.get()))
        .collect();
    versions.sort();
    assert_eq!(versions, [("other".to_owned(), 7), ("s".to_owned(), 1)]);
    assert!(
        reply.sub_requests <= 4,
        "one for each node, one for the other store: {}",
        reply.sub_requests
    );
    assert_eq!((reply.retried, reply.hedged), (0, 0));
}

#[tokio::test]
async fn a_single_key_is_one_request_to_one_node() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    assert_eq!(client.get(&name("s"), b"k").await, Ok(Some(value_of(1, "k"))));
    assert_eq!(client.get(&name("s"), b"absent").await, Ok(None));
    assert_eq!(cluster.reads(), 2);
}

#[tokio::test]
async fn the_same_key_goes_to_the_same_replica() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    // On a busy machine any node may be slow, which would cause a hedge.
    let no_hedge = ReadOptions {
        hedge: false,
        ..within(10_000)
    };
    for key in keys(60) {
        let before: Vec<usize> = cluster.nodes.iter().map(|node| node.reads()).collect();
        for _ in 0..2 {
            client.get_many(std::slice::from_ref(&key), &no_hedge).await.unwrap();
        }
        let asked = cluster
            .nodes
            .iter()
            .zip(before)
            .filter(|(node, before)| node.reads() > *before);
        assert_eq!(asked.count(), 1, "{key:?}");
    }
    assert!(cluster.nodes.iter().all(|node| node.reads() > 10));
}

#[tokio::test]
async fn the_strategy_of_the_request_decides() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.connected(cluster.builder().zone("zone-2")).await;
    let nearest = ReadOptions {
        strategy: Some(Arc::new(NearestFirst)),
        ..ReadOptions::default()
    };
    client.get_many(&keys(100), &nearest).await.unwrap();
    let reads: Vec<usize> = cluster.nodes.iter().map(|node| node.reads()).collect();
    assert_eq!(reads, [0, 1, 0]);
    let in_turn = ReadOptions {
        strategy: Some(Arc::new(RoundRobin)),
        ..ReadOptions::default()
    };
    for _ in 0..30 {
        client.get_many(&keys(1), &in_turn).await.unwrap();
    }
    let reads: Vec<usize> = cluster.nodes.iter().map(|node| node.reads()).collect();
    assert_eq!(reads, [10, 11, 10]);
}

#[tokio::test]
async fn a_large_request_is_split() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    let count = SUB_REQUEST_KEYS_MAX * 3 + 1;
    let reply = client.get_many(&keys(count), &within(5_000)).await.unwrap();
    assert_eq!(reply.values.len(), count);
    assert!(reply.values.iter().all(Result::is_ok));
    assert_eq!(reply.sub_requests, 4);
}

#[tokio::test]
async fn a_request_without_keys_has_no_values() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    let reply = client.get_many(&keys(0), &ReadOptions::default()).await.unwrap();
    assert!(reply.values.is_empty());
    assert_eq!(cluster.reads(), 0);
}

#[tokio::test]
async fn the_remaining_time_is_passed_to_the_nodes() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    client.get_many(&keys(1), &within(30_000)).await.unwrap();
    let timeout_ms = cluster.nodes[0].state(|state| state.reads[0].timeout_ms);
    assert!((1..=30_000).contains(&timeout_ms), "{timeout_ms}");
    assert!(timeout_ms > 10_000, "{timeout_ms}");
}

#[tokio::test]
async fn unknown_and_empty_stores_fail_without_a_request() {
    let cluster = Cluster::start(1, 1).await;
    cluster.swap("empty", 0);
    let client = cluster.client().await;
    let unknown = client.get(&name("unknown"), b"k").await;
    assert_eq!(
        unknown,
        Err(ClientError::UnknownStore {
            store: "unknown".into()
        })
    );
    let empty = client.get(&name("empty"), b"k").await;
    assert_eq!(empty, Err(ClientError::NoVersion { store: name("empty") }));
    assert_eq!(cluster.reads(), 0);
}

#[tokio::test]
async fn keys_fail_alone_or_fail_the_request() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    let mut keys = keys(20);
    keys[3].0 = name("unknown");
    let per_key = ReadOptions {
        partial: Partial::PerKey,
        ..ReadOptions::default()
    };
    let reply = client.get_many(&keys, &per_key).await.unwrap();
    for (place, value) in reply.values.iter().enumerate() {
        assert_eq!(value.is_err(), place == 3, "{value:?}");
    }
    let all = client.get_many(&keys, &ReadOptions::default()).await;
    assert_eq!(
        all,
        Err(ClientError::UnknownStore {
            store: "unknown".into()
        })
    );
}

#[tokio::test]
async fn a_partition_with_only_late_nodes_is_an_error() {
    let cluster = Cluster::start(2, 2).await;
    cluster.change(|topology| {
        topology.stores.get_mut(&name("s")).unwrap().late.insert(id(1));
    });
    let client = cluster.client().await;
    client.get_many(&keys(50), &ReadOptions::default()).await.unwrap();
    assert_eq!((cluster.nodes[0].reads(), cluster.nodes[1].reads()), (0, 1));
    cluster.change(|topology| {
        topology.stores.get_mut(&name("s")).unwrap().late.insert(id(2));
    });
    let late = || {
        let topology = client.topology().unwrap();
        topology.stores[&name("s")].late.len() == 2
    };
    super::harness::until("the client knows", late).await;
    let error = client.get(&name("s"), b"k").await;
    assert!(matches!(error, Err(ClientError::NoReplica { .. })), "{error:?}");
}

#[tokio::test]
async fn requests_over_the_limit_are_refused_at_once() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.connected(cluster.builder().in_flight_max(2)).await;
    cluster.nodes[0].behave(super::server::Behaviour::Slow(Duration::from_millis(50)));
    let (store, key) = (name("s"), b"k");
    let (a, b, c) = tokio::join!(
        client.get(&store, key),
        client.get(&store, key),
        client.get(&store, key)
    );
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
    assert_eq!(
        c,
        Err(ClientError::Overloaded {
            node: id(1),
            in_flight: 2
        })
    );
}

/// The places of keys by whether the first node of a cluster without replicas has them.
fn of_first_node(client: &Client, keys: &[(StoreName, String)]) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let topology = client.topology().unwrap();
    (0..keys.len()).partition(|&at| {
        let key = WireKey::new(&keys[at].0, keys[at].1.as_bytes()).unwrap();
        let partition = topology.partitions.partition_of(key.slot());
        topology.owners[partition.get() as usize] == [id(1)]
    })
}

#[tokio::test]
async fn streamed_values_come_before_those_of_a_node_that_has_not_answered_yet() {
    let cluster = Cluster::start(4, 1).await;
    let client = cluster.client().await;
    let keys = keys(3 * SUB_REQUEST_KEYS_MAX);
    let (held, others) = of_first_node(&client, &keys);
    cluster.nodes[0].behave(Behaviour::Hold);
    let mut values = client.stream(&keys, &within(60_000)).await.unwrap();
    let mut came = BTreeMap::new();
    while came.len() < others.len() {
        let chunk = values.next().await.unwrap().expect("more values");
        assert!(!chunk.answers.is_empty());
        came.extend(chunk.answers);
    }
    assert!(came.keys().eq(&others));
    assert!(!values.is_over());
    cluster.nodes[0].behave(Behaviour::Answer);
    while let Some(chunk) = values.next().await.unwrap() {
        came.extend(chunk.answers);
    }
    assert_eq!(came.len(), others.len() + held.len());
    for (at, value) in came {
        assert_eq!(value, Ok(Some(value_of(1, &keys[at].1))), "{}", keys[at].1);
    }
}

#[tokio::test]
async fn a_request_with_a_deadline_has_the_values_that_came_and_tells_the_others_from_absent_ones() {
    let cluster = Cluster::start(4, 1).await;
    let client = cluster.client().await;
    let mut keys = keys(100);
    keys[10].1 = "absent".into();
    let (held, others) = of_first_node(&client, &keys);
    cluster.nodes[0].behave(Behaviour::Hold);
    let options = ReadOptions::default().within(Duration::from_secs(2));
    let reply = client.get_many(&keys, &options).await.unwrap();
    assert!(reply.late().eq(held.iter().copied()));
    for at in others {
        let expected = (at != 10).then(|| value_of(1, &keys[at].1));
        assert_eq!(reply.values[at], Ok(expected));
    }
}
