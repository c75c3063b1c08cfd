//! Caching, single-flight, quotas and admission control of routers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use fondaco_model::NodeId;
use fondaco_node::{Counter, Setting};
use fondaco_testing::{eventually, until};

use super::harness::{value, wire_key};
use crate::harness::Cluster;

/// Without a pause, so many requests use up a quota.
const REQUESTS_MAX: usize = 10_000;

#[test]
fn a_router_caches_hot_keys_of_the_current_version_only() {
    let mut cluster = Cluster::batch(2, 1, 4, 50);
    cluster.add_version(2);
    let router = cluster.router();
    let mut connection = router.connect();
    for _ in 0..3 {
        let values = connection.mget(0..60);
        let expected = (0..60).map(|key| (key < 50).then(|| value(1, key)));
        assert!(values.into_iter().eq(expected));
    }
    assert_eq!(router.count(Counter::CacheMisses), 60);
    assert_eq!(router.count(Counter::CacheHits), 120, "absent keys are cached too");
    assert!(router.metrics.cache_bytes() > 0);
    let asked = router.count(Counter::ForwardRequests);
    cluster.set_current(2);
    cluster.publish();
    router.publish(&cluster.topology);
    // The client library of the router hears of the topology a moment later.
    until("the next version is read", || {
        let values = connection.mget(0..50);
        let is_of = |version| values.iter().cloned().eq((0..50).map(|key| Some(value(version, key))));
        assert!(is_of(1) || is_of(2), "one version of all keys");
        is_of(2)
    });
    assert!(router.count(Counter::ForwardRequests) > asked);
}

#[test]
fn a_router_without_a_cache_asks_each_time() {
    let cluster = Cluster::batch(2, 1, 4, 50);
    let router = cluster.router();
    router.settings.set(Setting::RouterCacheBytes, 0).unwrap();
    let mut connection = router.connect();
    (0..3).for_each(|_| _ = connection.mget(0..50));
    assert_eq!(router.count(Counter::ForwardedLookups), 150);
    assert_eq!(router.metrics.cache_bytes(), 0);
}

#[test]
fn nodes_do_not_cache_keys_of_other_nodes() {
    let cluster = Cluster::batch(2, 1, 4, 50);
    let key = wire_key(cluster.key(0, false));
    let mut connection = cluster.nodes[0].connect();
    (0..5).for_each(|_| _ = connection.text(&format!("GET {key}")));
    assert_eq!(cluster.nodes[0].count(Counter::ForwardedLookups), 5);
}

#[test]
fn a_quota_is_divided_over_routers_and_refuses_by_name() {
    let mut cluster = Cluster::batch(2, 1, 4, 50);
    cluster.store().read_keys_per_second = Some(200);
    cluster.topology.routers = vec!["127.0.0.1:6400".into(), "127.0.0.1:6401".into()];
    cluster.publish();
    let router = cluster.router();
    let mut connection = router.connect();
    let mut read = 0;
    let refusal = (0..REQUESTS_MAX).find_map(|_| {
        let asked = connection.send(&format!("MGET {} {}", wire_key(1), wire_key(2)));
        read += 2 * usize::from(asked.is_ok());
        asked.err()
    });
    let refusal = refusal.expect("the quota is used up");
    assert!(
        refusal.starts_with("QUOTA") && refusal.contains("200 keys a second"),
        "{refusal}"
    );
    assert!(read >= 100, "its share of a second: {read}");
    assert_eq!(router.count(Counter::QuotaRefusals), 1);
    // It recovers by itself.
    eventually("there is quota again", || {
        connection.send(&format!("GET {}", wire_key(1))).ok()
    });
}

#[test]
fn each_node_enforces_its_share_of_the_read_quota() {
    let mut cluster = Cluster::batch(2, 2, 4, 50);
    cluster.store().read_keys_per_second = Some(200);
    cluster.publish();
    for node in &cluster.nodes {
        let mut connection = node.connect();
        let mut read = 0;
        let refusal = (0..REQUESTS_MAX).find_map(|_| {
            let asked = connection.send(&format!("MGET {} {}", wire_key(1), wire_key(2)));
            read += 2 * usize::from(asked.is_ok());
            asked.err()
        });
        let refusal = refusal.expect("the quota is used up");
        assert!(
            refusal.contains("200 keys a second, 100 through this process"),
            "{refusal}"
        );
        assert!(read >= 100, "its share of a second: {read}");
        assert_eq!(node.count(Counter::QuotaRefusals), 1);
    }
}

/// A cluster whose second node accepts connections and never answers, as long as the listener lives.
fn with_a_silent_node() -> (Cluster, TcpListener) {
    let mut cluster = Cluster::batch(2, 1, 4, 100);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = cluster.topology.nodes.get_mut(&NodeId::new(2).unwrap()).unwrap();
    node.resp = silent.local_addr().unwrap().to_string();
    (cluster, silent)
}

#[test]
fn requests_beyond_the_limit_are_refused_at_once() {
    let (cluster, _silent) = with_a_silent_node();
    let router = cluster.router();
    router.settings.set(Setting::ForwardKeysMax, 4).unwrap();
    router.settings.set(Setting::RouterCacheBytes, 0).unwrap();
    let key = wire_key(cluster.key(0, false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (mut connection, get) = (router.connect(), format!("GET {key}"));
            std::thread::spawn(move || connection.send(&get).unwrap_err())
        })
        .collect();
    let errors: Vec<String> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let refused = errors.iter().filter(|error| error.starts_with("OVERLOADED")).count();
    assert_eq!(refused, 4, "each of two loops takes two: {errors:?}");
    assert_eq!(router.count(Counter::Overloads), 4);
    // One request may be larger than the whole limit, if nothing else is in flight.
    let held: Vec<usize> = (0..100).filter(|&key| cluster.owners_of(key) == [0]).collect();
    let values = router.connect().mget(held.iter().copied());
    assert!(values.into_iter().eq(held.iter().map(|&key| Some(value(1, key)))));
}

#[test]
fn values_that_wait_to_be_sent_are_bounded_in_bytes() {
    let cluster = Cluster::batch(2, 1, 4, 100);
    let router = cluster.router();
    router.settings.set(Setting::RouterCacheBytes, 0).unwrap();
    let bytes_max = 200;
    router.settings.set(Setting::ForwardBytesMax, bytes_max).unwrap();
    let mut connection = router.connect();
    for _ in 0..3 {
        let values = connection.mget(0..100).into_iter().enumerate();
        let (read, refused): (Vec<_>, Vec<_>) = values
            .map(|(key, found)| (key, found.unwrap()))
            .partition(|(key, found)| *found == value(1, *key));
        let bytes: usize = read.iter().map(|(_, value)| value.len()).sum();
        assert!(bytes as u64 <= bytes_max / 2, "each of two loops has half: {bytes}");
        assert!(bytes as u64 + 16 > bytes_max / 2, "it is used: {bytes}");
        assert!(
            refused.iter().all(|(_, error)| error.starts_with("OVERLOADED")),
            "{refused:?}"
        );
    }
    // Values that were sent wait no more.
    assert_eq!(connection.mget([1]), [Some(value(1, 1))]);
}

#[test]
fn many_clients_that_want_one_key_make_one_request() {
    let (cluster, _silent) = with_a_silent_node();
    let router = cluster.router();
    let key = wire_key(cluster.key(0, false));
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let (mut connection, get) = (router.connect(), format!("GET {key}"));
            std::thread::spawn(move || connection.send(&get))
        })
        .collect();
    until("all but the first of each loop wait for it", || {
        router.count(Counter::SharedLookups) == 8
    });
    assert!(clients.into_iter().all(|client| client.join().unwrap().is_err()));
    assert_eq!(router.count(Counter::CacheMisses), 2);
}

#[test]
fn requests_of_a_disconnected_client_are_abandoned() {
    let (cluster, _silent) = with_a_silent_node();
    let router = cluster.router();
    router.settings.set(Setting::ForwardTimeoutMs, 60_000).unwrap();
    let (mut waiting, mut other) = (router.connect(), router.connect());
    let number = waiting.send("CLIENT ID").unwrap();
    let redis::Value::Int(number) = number else {
        panic!("{number:?}")
    };
    let get = format!("GET {}", wire_key(cluster.key(0, false)));
    let waiting = std::thread::spawn({
        let get = get.clone();
        move || waiting.send(&get)
    });
    until("it waits", || router.metrics.forwards() == 1);
    other.send(&format!("CLIENT KILL ID {number}")).unwrap();
    assert!(waiting.join().unwrap().is_err());
    let idle = || (router.metrics.forwards() == 0).then_some(());
    eventually("nothing is under way", idle);
    // The same holds for a client that closes the connection itself, with more requests sent.
    let mut leaving = TcpStream::connect(router.address()).unwrap();
    leaving.write_all(format!("{get}\r\n").as_bytes()).unwrap();
    until("it waits", || router.metrics.forwards() == 1);
    leaving.write_all(b"PING\r\n").unwrap();
    drop(leaving);
    eventually("nothing is under way", idle);
}

#[test]
fn a_client_that_half_closes_still_gets_its_replies() {
    let cluster = Cluster::batch(2, 1, 4, 100);
    let key = cluster.key(0, false);
    // The connections between the nodes are established first.
    cluster.nodes[0].connect().mget(0..100);
    let mut stream = TcpStream::connect(cluster.nodes[0].address()).unwrap();
    stream
        .write_all(format!("GET {}\r\n", wire_key(key)).as_bytes())
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(&value(1, key)), "{answer:?}");
}
