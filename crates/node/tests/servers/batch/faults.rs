//! Dead nodes, outdated topologies, and slow peers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use fondaco_model::NodeId;
use fondaco_node::{Counter, Setting};
use fondaco_testing::until;

use super::harness::{value, wire_key};
use crate::harness::Cluster;

#[test]
fn replicas_answer_for_a_dead_node() {
    let mut cluster = Cluster::batch(3, 2, 8, 200);
    let router = cluster.router();
    let mut connections = [router.connect(), cluster.nodes[1].connect()];
    for connection in &mut connections {
        assert!(connection.mget(0..200).into_iter().all(|value| value.is_some()));
    }
    cluster.kill(0);
    // The failure may be detected late, but once detected it stays detected.
    let mut failed_after_detection = 0;
    for connection in &mut connections {
        until("all keys are answered by the replicas", || {
            let values = connection.mget(0..200);
            values.into_iter().eq((0..200).map(|key| Some(value(1, key))))
        });
        for key in (0..200).cycle().take(1000) {
            let answer = connection.send(&format!("GET {}", wire_key(key)));
            failed_after_detection += usize::from(answer.is_err());
        }
    }
    assert_eq!(failed_after_detection, 0);
}

#[test]
fn only_a_partition_without_any_live_node_is_down() {
    let mut cluster = Cluster::batch(2, 1, 4, 100);
    let router = cluster.router();
    router.settings.set(Setting::ForwardTimeoutMs, 5000).unwrap();
    cluster.kill(0);
    cluster.mark_gone(0);
    router.publish(&cluster.topology);
    let values = router.connect().mget(0..100);
    for (key, found) in values.into_iter().enumerate() {
        let found = found.unwrap();
        match cluster.owners_of(key)[..] {
            [0] => assert!(
                ["CLUSTERDOWN", "UNAVAILABLE", "TIMEOUT"]
                    .iter()
                    .any(|code| found.starts_with(code)),
                "{found}"
            ),
            _ => assert_eq!(found, value(1, key)),
        }
    }
    assert!(router.count(Counter::ForwardFailures) > 0);
}

#[test]
fn a_router_with_an_outdated_table_still_finds_the_keys() {
    let mut cluster = Cluster::batch(3, 1, 8, 120);
    let router = cluster.router();
    let right = cluster.topology.owners.clone();
    // The router's table has each partition at the node before its owner.
    for owners in &mut cluster.topology.owners {
        let before = owners[0].get() % 3 + 1;
        *owners = vec![NodeId::new(before).unwrap()];
    }
    router.publish(&cluster.topology);
    cluster.topology.owners = right;
    cluster.topology.epoch += 1;
    let mut connection = router.connect();
    let asking = std::thread::spawn(move || connection.mget(0..120));
    until("nodes are asked for keys that they do not hold", || {
        router.count(Counter::ForwardedLookups) > 0
    });
    router.publish(&cluster.topology);
    let values = asking.join().unwrap();
    assert!(values.into_iter().eq((0..120).map(|key| Some(value(1, key)))));
}

#[test]
fn a_late_node_is_not_asked() {
    let mut cluster = Cluster::batch(2, 2, 4, 100);
    cluster.add_version(2);
    cluster.nodes[0].close(2);
    cluster.set_current(2);
    cluster.store().late = BTreeSet::from([NodeId::new(1).unwrap()]);
    cluster.publish();
    let router = cluster.router();
    for server in [&router, &cluster.nodes[0], &cluster.nodes[1]] {
        let values = server.connect().mget(0..100);
        assert!(values.into_iter().eq((0..100).map(|key| Some(value(2, key)))));
    }
    assert_eq!(router.count(Counter::ForwardRetries), 0);
    let mut connection = cluster.nodes[0].connect();
    connection.send("READONLY").unwrap();
    let led = connection.send(&format!("GET {}", wire_key(1))).unwrap_err();
    assert!(led.ends_with(&cluster.nodes[1].address().to_string()), "{led}");
}

#[test]
fn a_node_that_hangs_delays_only_requests_for_its_keys() {
    let mut cluster = Cluster::batch(2, 1, 4, 100);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = NodeId::new(2).unwrap();
    cluster.topology.nodes.get_mut(&id).unwrap().resp = silent.local_addr().unwrap().to_string();
    let router = cluster.router();
    router.settings.set(Setting::ForwardTimeoutMs, 2000).unwrap();
    let stuck_key = wire_key(cluster.key(0, false));
    let fine_key = cluster.key(0, true);
    let mut fine = router.connect();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let (mut connection, get) = (router.connect(), format!("GET {stuck_key}"));
            std::thread::spawn(move || connection.send(&get))
        })
        .collect();
    until("its keys are waited for", || router.metrics.forwards() > 0);
    let started = Instant::now();
    let mut answered = 0;
    while router.metrics.forwards() > 0 && started.elapsed() < Duration::from_secs(1) {
        assert_eq!(
            fine.text(&format!("GET {}", wire_key(fine_key))),
            Some(value(1, fine_key))
        );
        answered += usize::from(router.metrics.forwards() > 0);
    }
    assert!(answered > 0);
    for waiting in waiting {
        let error = waiting.join().unwrap().unwrap_err();
        assert!(
            error.starts_with("TIMEOUT") || error.starts_with("UNAVAILABLE"),
            "{error}"
        );
    }
    assert_eq!(router.metrics.forwards(), 0);
}
