//! A request sees one version of each store, whatever nodes and topologies do meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fondaco_client::{CanaryChoice, ClientError, Partial, ReadOptions};
use fondaco_model::{ReadCanary, Share, VersionNumber, is_in_share};

use super::harness::{Cluster, id, keys, name, until, value_of, within};

#[tokio::test]
async fn a_request_for_a_deleted_version_uses_the_current_one() {
    let cluster = Cluster::start(3, 2).await;
    let client = cluster.client().await;
    // The first two nodes have closed version 1, the third still has it: its values must not be used.
    cluster.open("s", 2);
    for node in &cluster.nodes[..2] {
        node.state(|state| state.open.get_mut("s").unwrap().remove(&1));
    }
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get_many(&keys(60), &within(5_000)).await }
    });
    until("it was refused", || cluster.reads() >= 3).await;
    cluster.swap("s", 2);
    let reply = read.await.unwrap().unwrap();
    assert_eq!(reply.stores[0].version.get(), 2);
    for (value, (_, key)) in reply.values.into_iter().zip(keys(60)) {
        assert_eq!(value, Ok(Some(value_of(2, &key))));
    }
    assert_eq!(client.stats().reads.repins, 1);
}

#[tokio::test]
async fn the_first_key_decides_on_a_canary_and_a_deleted_version_is_left() {
    let cluster = Cluster::start(3, 2).await;
    let client = cluster.client().await;
    cluster.open("s", 2);
    let canary = ReadCanary {
        version: VersionNumber::new(2).unwrap(),
        reads: "50%".parse().unwrap(),
    };
    cluster.change(|topology| topology.stores.get_mut("s").unwrap().canary = Some(Box::new(canary)));
    let read = async |first: usize, canary: CanaryChoice| {
        let mut all = keys(20);
        all.rotate_left(first);
        let options = ReadOptions {
            canary,
            ..within(5_000)
        };
        let reply = client.get_many(&all, &options).await.unwrap();
        let version = reply.stores[0].version.get();
        for (value, (_, key)) in reply.values.into_iter().zip(&all) {
            assert_eq!(value, Ok(Some(value_of(version, key))));
        }
        (version, is_in_share(Share::percent(50), all[0].1.as_bytes()))
    };
    for first in 0..20 {
        let (version, is_taken) = read(first, CanaryChoice::ByFirstKey).await;
        assert_eq!(version, 1 + u64::from(is_taken));
        assert_eq!(read(first, CanaryChoice::Current).await.0, 1);
        assert_eq!(read(first, CanaryChoice::Canary).await.0, 2);
    }
    // One node has deleted it, and the client does not know that the canary has ended.
    cluster.nodes[0].state(|state| state.open.get_mut("s").unwrap().remove(&2));
    for first in 0..20 {
        assert_eq!(read(first, CanaryChoice::Canary).await.0, 1);
    }
}

#[tokio::test]
async fn a_node_that_is_behind_is_skipped() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    cluster.nodes[0].state(|state| state.open.clear());
    let reply = client.get_many(&keys(60), &within(5_000)).await.unwrap();
    assert!(reply.values.iter().all(Result::is_ok));
    assert_eq!(reply.retried, 1);
    assert_eq!(client.stats().reads.retries, 0, "a redirect costs no budget");
}

#[tokio::test]
async fn moved_keys_are_found_by_the_newer_topology() {
    let cluster = Cluster::start(2, 1).await;
    let client = cluster.client().await;
    // All partitions have moved to the second node, and the client does not know.
    cluster.nodes[0].behave(super::server::Behaviour::Say(
        "-NOTHERE partition 0 is not held here\r\n",
    ));
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get_many(&keys(60), &within(5_000)).await }
    });
    until("it was refused", || cluster.nodes[0].reads() > 0).await;
    cluster.change(|topology| {
        topology.epoch += 1;
        topology.owners.iter_mut().for_each(|owners| *owners = vec![id(2)]);
    });
    let reply = read.await.unwrap().unwrap();
    assert!(reply.values.iter().all(Result::is_ok));
}

#[tokio::test]
async fn keys_on_no_node_fail_at_the_deadline_alone() {
    let cluster = Cluster::start(2, 1).await;
    let client = cluster.client().await;
    cluster.nodes[0].state(|state| state.open.clear());
    let options = ReadOptions {
        partial: Partial::PerKey,
        ..within(2_000)
    };
    let reply = client.get_many(&keys(60), &options).await.unwrap();
    let (found, missing): (Vec<_>, Vec<_>) = reply.values.into_iter().partition(Result::is_ok);
    assert!(!found.is_empty() && !missing.is_empty());
    for value in missing {
        assert!(matches!(value, Err(ClientError::NoReplica { .. })), "{value:?}");
    }
}

#[tokio::test]
async fn a_store_recreated_meanwhile_is_read_as_the_new_one() {
    let cluster = Cluster::start(2, 1).await;
    let client = cluster.client().await;
    assert_eq!(client.get_many(&keys(1), &within(5_000)).await.unwrap().stores[0].id, 1);
    for node in &cluster.nodes {
        node.state(|state| state.numbers.insert("s".into(), 9));
    }
    let before = cluster.reads();
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get_many(&keys(60), &within(5_000)).await }
    });
    until("it was refused", || cluster.reads() >= before + 2).await;
    // Its version is 1 again.
    cluster.change(|topology| topology.stores.get_mut("s").unwrap().id = 9);
    let reply = read.await.unwrap().unwrap();
    assert_eq!((reply.stores[0].id, reply.stores[0].version.get()), (9, 1));
    for (value, (_, key)) in reply.values.into_iter().zip(keys(60)) {
        assert_eq!(value, Ok(Some(value_of(1, &key))));
    }
}

#[tokio::test]
async fn a_store_dropped_meanwhile_is_unknown() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client().await;
    cluster.nodes[0].state(|state| state.open.clear());
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get(&name("s"), b"k").await }
    });
    until("it was refused", || cluster.reads() > 0).await;
    cluster.change(|topology| topology.stores.clear());
    assert_eq!(
        read.await.unwrap(),
        Err(ClientError::UnknownStore { store: "s".into() })
    );
}

/// Nodes open and close versions at different times, the topology changes at another time, versions go forward and
/// back: no answer may contain values of two versions, or of a version that it does not name.
#[tokio::test]
async fn no_answer_mixes_versions_through_hundreds_of_swaps_and_rollbacks() {
    const SWAPS: u64 = 300;
    const READERS: usize = 8;
    let cluster = Arc::new(Cluster::start(3, 2).await);
    let client = cluster.client().await;
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (client, over) = (client.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let (keys, mut answers, mut versions) = (keys(60), 0u64, std::collections::BTreeSet::new());
                while !over.load(Relaxed) {
                    let reply = client.get_many(&keys, &within(10_000)).await.unwrap();
                    let version = reply.stores[0].version.get();
                    for (value, (_, key)) in reply.values.into_iter().zip(&keys) {
                        assert_eq!(value, Ok(Some(value_of(version, key))));
                    }
                    versions.insert(version);
                    answers += 1;
                }
                (answers, versions.len())
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut current = 1;
    for swap in 0..SWAPS {
        // Every third one goes back.
        let next = if swap % 3 == 2 && current > 1 {
            current - 1
        } else {
            current + 1
        };
        let mut order: Vec<usize> = (0..cluster.nodes.len()).collect();
        let set = |node: &usize, open: &[u64]| {
            let open = open.iter().copied().collect();
            cluster.nodes[*node].state(|state| state.open.insert("s".into(), open));
        };
        for node in &order {
            set(node, &[current, next]);
        }
        random.shuffle(&mut order);
        let told_after = random.usize(0..=order.len());
        let seen = cluster.reads();
        for (place, node) in order.iter().enumerate() {
            if place == told_after {
                cluster.swap("s", next);
            }
            // It keeps no old version for late readers.
            set(node, &[next]);
            until("reads continue", || cluster.reads() > seen + place).await;
        }
        cluster.swap("s", next);
        current = next;
    }
    over.store(true, Relaxed);
    for reader in readers {
        let (answers, versions) = reader.await.unwrap();
        assert!(answers > SWAPS / 10, "{answers} answers");
        assert!(versions > 10, "{versions} versions were seen");
    }
    assert!(
        client.stats().reads.repins > 0,
        "no request met a swap: the test proves nothing"
    );
}
