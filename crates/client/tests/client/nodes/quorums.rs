//! Versioned stores over sockets: written, read and changed while nodes are killed and return.

use std::sync::Arc;
use std::time::Duration;

use fondaco_client::{Client, ClientError, PutOptions, ReadOptions};
use fondaco_model::cluster::TopologyStore;
use fondaco_model::versioned::{Resolution, VersionedSettings};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest};
use parking_lot::Mutex;

use super::harness::{Cluster, id, keys, name, until, value_of};
use super::replica::{Held, Within};
use super::server::Behaviour;

/// Adds a versioned store to the topology.
fn create(cluster: &Cluster, store: &str, settings: VersionedSettings) {
    cluster.change(|topology| {
        let store_id = topology.stores.len() as u16 + 1;
        let entry = TopologyStore {
            id: store_id,
            ..TopologyStore::versioned(3, settings)
        };
        topology.stores.insert(name(store), entry);
    });
}

/// Three nodes with all partitions, a batch store `s` and a versioned store `v`, and a client.
async fn three(settings: VersionedSettings) -> (Cluster, Client) {
    let cluster = Cluster::start(3, 3).await;
    create(&cluster, "v", settings);
    let client = cluster.client().await;
    (cluster, client)
}

fn holding(cluster: &Cluster, key: &[u8]) -> usize {
    let has = |node: &&super::server::Node| node.state(|state| state.held.records.contains_key(key));
    cluster.nodes.iter().filter(has).count()
}

#[tokio::test]
async fn a_value_is_read_until_it_is_deleted() {
    let (cluster, client) = three(VersionedSettings::of(3)).await;
    let (store, options) = (name("v"), PutOptions::default());
    assert_eq!(client.get(&store, b"k").await.unwrap(), None);
    client.put(&store, b"k", "one", &options).await.unwrap();
    client.put(&store, b"k", "two", &options).await.unwrap();
    assert_eq!(client.get(&store, b"k").await.unwrap().unwrap(), "two");
    until("all replicas have it", || holding(&cluster, b"k") == 3).await;
    client.delete(&store, b"k", &options).await.unwrap();
    assert_eq!(client.get(&store, b"k").await.unwrap(), None);
    let counts = client.stats().quorums;
    assert_eq!((counts.reads, counts.writes, counts.no_quorum), (3, 3, 0));
}

#[tokio::test]
async fn a_value_expires_after_its_time_to_live() {
    let (_cluster, client) = three(VersionedSettings::of(3)).await;
    let options = PutOptions {
        ttl: Some(Duration::from_millis(300)),
        ..PutOptions::default()
    };
    client.put(&name("v"), b"k", "brief", &options).await.unwrap();
    let deadline = tokio::time::Instant::now() + super::harness::PATIENCE;
    while client.get(&name("v"), b"k").await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "it stays");
    }
}

#[tokio::test]
async fn writes_with_the_same_context_are_siblings() {
    let (_cluster, client) = three(VersionedSettings::of(3)).await;
    let store = name("v");
    let with = |context| PutOptions {
        context: Some(context),
        ..PutOptions::default()
    };
    let first = client.put(&store, b"k", "old", &PutOptions::default()).await.unwrap();
    client.put(&store, b"k", "one", &with(first.clone())).await.unwrap();
    client.put(&store, b"k", "two", &with(first)).await.unwrap();
    let siblings = client.get_siblings(&store, b"k").await.unwrap();
    assert_eq!(siblings.values, ["two", "one"], "the latest first");
    client.put(&store, b"k", "both", &with(siblings.context)).await.unwrap();
    assert_eq!(client.get_siblings(&store, b"k").await.unwrap().values, ["both"]);
}

#[tokio::test]
async fn no_client_notices_that_a_node_dies_and_returns() {
    let (mut cluster, client) = three(VersionedSettings::of(3)).await;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let worker = |worker: usize| {
        let (client, done, store) = (client.clone(), Arc::clone(&done), name("v"));
        tokio::spawn(async move {
            let mut count = 0u32;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let (key, value) = (format!("{worker}-{}", count % 7), count.to_string());
                client
                    .put(&store, key.as_bytes(), value.clone(), &PutOptions::default())
                    .await
                    .unwrap();
                let read = client.get(&store, key.as_bytes()).await.unwrap().unwrap();
                assert_eq!(read, value, "{key} is read as it was written");
                count += 1;
            }
            count
        })
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    let written = |client: &Client| client.stats().quorums.writes;
    until("some are written", || written(&client) > 200).await;
    cluster.nodes[1].kill().await;
    let then = written(&client);
    until("more are written", || written(&client) > then + 200).await;
    cluster.nodes[1].restart().await;
    let then = written(&client);
    until("more are written", || written(&client) > then + 200).await;
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for worker in workers {
        assert!(worker.await.unwrap() > 0);
    }
    let counts = client.stats().quorums;
    assert_eq!(counts.no_quorum, 0);
    assert!(counts.hints > 0, "hints are kept for the absent node");
}

#[tokio::test]
async fn a_mixed_read_asks_each_node_once() {
    let (cluster, client) = three(VersionedSettings::of(3)).await;
    let mut wanted = Vec::new();
    for (place, (store, key)) in keys(30).into_iter().enumerate() {
        let store = match place % 2 {
            0 => store,
            _ => {
                client
                    .put(&name("v"), key.as_bytes(), key.clone(), &PutOptions::default())
                    .await
                    .unwrap();
                name("v")
            }
        };
        wanted.push((store, key));
    }
    let asked = |cluster: &Cluster| -> usize {
        let of = |node: &super::server::Node| node.state(|state| state.held.count(ReplicaCommand::Get));
        cluster.nodes.iter().map(of).sum()
    };
    until("all replicas have all", || {
        let held = |node: &super::server::Node| node.state(|state| state.held.records.len());
        cluster.nodes.iter().all(|node| held(node) == 15)
    })
    .await;
    let before = asked(&cluster);
    let options = ReadOptions {
        hedge: false,
        ..ReadOptions::default()
    };
    let reply = client.get_many(&wanted, &options).await.unwrap();
    for ((store, key), value) in wanted.iter().zip(&reply.values) {
        let expected = match store.as_str() {
            "v" => key.clone().into(),
            _ => value_of(1, key),
        };
        assert_eq!(value.as_ref().unwrap().as_ref(), Some(&expected));
    }
    assert_eq!(asked(&cluster) - before, 3);
    assert_eq!(reply.stores.len(), 1, "only versions are pinned");
}

#[tokio::test]
async fn concurrent_changes_of_one_key_lose_no_change() {
    let (_cluster, client) = three(VersionedSettings::of(3)).await;
    let worker = |_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut made = 0;
            for _ in 0..20 {
                let change = |value: Option<&[u8]>| {
                    let number: u32 = value.map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap());
                    Some((number + 1).to_string().into_bytes())
                };
                match client.update(&name("v"), b"n", change).await {
                    Ok(_) => made += 1,
                    Err(ClientError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        })
    };
    let workers: Vec<_> = (0..4).map(worker).collect();
    let mut made = 0;
    for worker in workers {
        made += worker.await.unwrap();
    }
    let value = client.get(&name("v"), b"n").await.unwrap().unwrap();
    assert_eq!(value, made.to_string());
}

#[tokio::test]
async fn the_local_replica_is_asked_without_a_connection() {
    let (cluster, _) = three(VersionedSettings::of(3)).await;
    let held = Arc::new(Mutex::new(Held::default()));
    let within = Within {
        node: id(2),
        held: Arc::clone(&held),
    };
    let client = cluster.connected(cluster.builder().replica(Arc::new(within))).await;
    client.put(&name("v"), b"k", "v", &PutOptions::default()).await.unwrap();
    assert_eq!(client.get(&name("v"), b"k").await.unwrap().unwrap(), "v");
    let asked = held.lock().asked.clone();
    let expected = [ReplicaCommand::Get, ReplicaCommand::Put, ReplicaCommand::Get];
    assert_eq!(asked, expected);
    assert_eq!(cluster.nodes[1].state(|state| state.held.asked.len()), 0);
    assert_eq!(
        not_told(&cluster),
        1,
        "another replica has the same record, and need not send it"
    );
}

#[tokio::test]
async fn only_one_replica_sends_a_value_that_all_have() {
    let (cluster, client) = three(VersionedSettings {
        writes: 3,
        ..VersionedSettings::of(3)
    })
    .await;
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        let options = PutOptions::default();
        client.put(&name("v"), key.as_bytes(), key, &options).await.unwrap();
    }
    assert_eq!(not_told(&cluster), 0);
    for (place, key) in keys.into_iter().enumerate() {
        assert_eq!(client.get(&name("v"), key.as_bytes()).await.unwrap().unwrap(), key);
        assert_eq!(not_told(&cluster), place + 1, "two are asked");
    }
    let all = keys.map(|key| (name("v"), key));
    let reply = client.get_many(&all, &ReadOptions::default()).await.unwrap();
    let values = reply.values.into_iter().map(|value| value.unwrap().unwrap());
    assert!(values.eq(keys), "the requested values");
    assert_eq!(not_told(&cluster), 2 * keys.len());
}

/// How many records were not sent because the requester had them from another replica.
fn not_told(cluster: &Cluster) -> usize {
    let of = cluster.nodes.iter().map(|node| node.state(|state| state.held.not_told));
    of.sum()
}

#[tokio::test]
async fn a_failed_quorum_names_the_missing_replicas() {
    let (mut cluster, client) = three(VersionedSettings::of(3)).await;
    cluster.nodes[0].kill().await;
    cluster.nodes[2].state(|state| state.held.refuses.insert("FONDACO.RGET", ReplicaErrorCode::Overloaded));
    let refused = client.get(&name("v"), b"k").await.unwrap_err();
    assert_eq!(refused.code(), "NOQUORUM");
    let text = refused.to_string();
    assert!(text.starts_with("1 of 2 reads: "), "{text}");
    assert!(
        text.contains(&format!("node 1 ({})", cluster.nodes[0].address)),
        "{text}"
    );
    assert!(text.contains("OVERLOADED as the test says"), "{text}");
}

#[tokio::test]
async fn a_silent_replica_delays_no_write_and_gets_a_hint() {
    let (cluster, client) = three(VersionedSettings::of(3)).await;
    cluster.nodes[2].behave(Behaviour::Silent);
    client.put(&name("v"), b"k", "v", &PutOptions::default()).await.unwrap();
    until("a hint is kept", || client.stats().quorums.hints == 1).await;
    let hints = |node: &super::server::Node| node.state(|state| state.held.hints.keys().cloned().collect::<Vec<_>>());
    let hints: Vec<_> = cluster.nodes.iter().flat_map(hints).collect();
    assert_eq!(hints, [(id(3), "k".into())]);
}

#[tokio::test]
async fn batch_stores_refuse_writes_and_counters_refuse_contexts_and_text() {
    let settings = VersionedSettings {
        resolution: Resolution::Counter,
        ..VersionedSettings::of(3)
    };
    let (_cluster, client) = three(settings).await;
    let refused = client.put(&name("s"), b"k", "v", &PutOptions::default()).await;
    assert!(matches!(refused, Err(ClientError::NotVersioned { .. })), "{refused:?}");
    client
        .put(&name("v"), b"n", "41", &PutOptions::default())
        .await
        .unwrap();
    assert_eq!(client.get(&name("v"), b"n").await.unwrap().unwrap(), "41");
    let options = PutOptions {
        context: Some(client.get_siblings(&name("v"), b"n").await.unwrap().context),
        ..PutOptions::default()
    };
    let refused = client.put(&name("v"), b"n", "0", &options).await;
    assert!(
        matches!(refused, Err(ClientError::ContextOfCounter { .. })),
        "{refused:?}"
    );
    let refused = client.delete(&name("v"), b"n", &options).await;
    assert!(
        matches!(refused, Err(ClientError::ContextOfCounter { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_changed_value_keeps_its_expiry() {
    let (_cluster, client) = three(VersionedSettings::of(3)).await;
    let store = name("v");
    let ttl = Some(Duration::from_secs(3600));
    let options = PutOptions {
        ttl,
        ..PutOptions::default()
    };
    let end = async || {
        let keys = vec![fondaco_protocol::WireKey::new(&store, b"k").unwrap()];
        let (mut records, _) = client.get_records(keys, &ReadOptions::default()).await.unwrap();
        records.pop().unwrap().unwrap().next_expiry_unix_ms()
    };
    client.put(&store, b"k", "one", &options).await.unwrap();
    let before = end().await;
    assert!(before.is_some());
    client.update(&store, b"k", |_| Some(b"two".to_vec())).await.unwrap();
    assert_eq!(client.get(&store, b"k").await.unwrap().unwrap(), "two");
    assert_eq!(end().await, before);
    // A value without expiry stays without one.
    client.put(&store, b"k", "three", &PutOptions::default()).await.unwrap();
    client.update(&store, b"k", |_| Some(b"four".to_vec())).await.unwrap();
    assert_eq!(end().await, None);
}

#[tokio::test]
async fn a_single_replica_gets_a_single_request() {
    let (_cluster, client) = three(VersionedSettings::of(3)).await;
    let request = ReplicaRequest {
        epoch: None,
        store_id: 2,
        store: name("v"),
        timeout_ms: 1000,
        operation: ReplicaOperation::OldestHint,
    };
    let reply = client.ask_replica(id(1), request.clone(), Duration::from_secs(1)).await;
    let none = ReplicaReply::OldestHint {
        now_unix_ms: 1,
        oldest_unix_ms: None,
    };
    assert_eq!(reply, Ok(none));
    let unknown = client.ask_replica(id(9), request, Duration::from_secs(1)).await;
    assert!(matches!(unknown, Err(ClientError::Unavailable { .. })), "{unknown:?}");
}
