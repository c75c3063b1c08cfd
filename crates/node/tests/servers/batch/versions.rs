//! Each reply is of one version, while nodes learn of swaps at different times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use fondaco_node::Counter;

use super::harness::value;
use crate::harness::{Cluster, connect};

/// The version of all values of a reply.
///
/// Panics if there are several, or a key has another key's value.
fn only_version(values: &[Option<String>]) -> u64 {
    let first = values[0].as_deref().unwrap_or("nothing");
    let version = first
        .strip_prefix('v')
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    let version = version.unwrap_or_else(|| panic!("{first}"));
    for (key, found) in values.iter().enumerate() {
        assert_eq!(
            found.as_deref(),
            Some(&*value(version, key)),
            "beside version {version}"
        );
    }
    version
}

#[test]
fn no_reply_mixes_versions_during_a_rolling_swap() {
    const SWAPS: u64 = 300;
    const KEYS: usize = 64;
    let mut cluster = Cluster::batch(3, 2, 8, KEYS);
    cluster.add_version(2);
    let router = cluster.router();
    let addresses: Vec<_> = cluster
        .nodes
        .iter()
        .chain([&router])
        .map(|node| node.address())
        .collect();
    let (stop, seen) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        for address in addresses {
            scope.spawn({
                let (stop, seen) = (&stop, &seen);
                move || {
                    let mut connection = connect(address);
                    while !stop.load(Relaxed) {
                        let version = only_version(&connection.mget(0..KEYS));
                        seen[version as usize].fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for swap in 0..SWAPS {
            cluster.set_current(2 - swap % 2);
            // In a different order each time, with replies in between.
            let before = seen[1].load(Relaxed) + seen[2].load(Relaxed);
            for at in 0..4 {
                match (at + swap as usize) % 4 {
                    3 => router.publish(&cluster.topology),
                    node => cluster.nodes[node].publish(&cluster.topology),
                }
                fondaco_testing::eventually("answers are given between two swaps", || {
                    let given = seen[1].load(Relaxed) + seen[2].load(Relaxed);
                    (given >= before + at as u64 || stop.load(Relaxed)).then_some(())
                });
            }
        }
        stop.store(true, Relaxed);
    });
    let seen = [seen[1].load(Relaxed), seen[2].load(Relaxed)];
    assert!(
        seen[0] > SWAPS / 4 && seen[1] > SWAPS / 4,
        "both versions were served: {seen:?}"
    );
}

#[test]
fn a_request_moves_on_when_its_version_is_gone() {
    let mut cluster = Cluster::batch(2, 1, 4, 40);
    cluster.add_version(2);
    let router = cluster.router();
    assert_eq!(only_version(&router.connect().mget(0..40)), 1);
    // The nodes have swapped and dropped version 1; the router does not know yet.
    cluster.set_current(2);
    for node in &mut cluster.nodes {
        node.close(1);
        assert!(node.has_open(2));
    }
    cluster.publish();
    let address = router.address();
    let asking = std::thread::spawn(move || connect(address).mget(40..80).len() + connect(address).mget(0..40).len());
    router.publish(&cluster.topology);
    assert_eq!(asking.join().unwrap(), 80);
    assert_eq!(only_version(&router.connect().mget(0..40)), 2);
}

#[test]
fn a_node_that_lags_asks_again_instead_of_mixing_versions() {
    let mut cluster = Cluster::batch(2, 1, 4, 40);
    cluster.add_version(2);
    cluster.set_current(2);
    // The second node has swapped and dropped the old version; the first learns of it while its request is in flight.
    cluster.nodes[1].close(1);
    cluster.nodes[1].publish(&cluster.topology);
    let address = cluster.nodes[0].address();
    let asking = std::thread::spawn(move || only_version(&connect(address).mget(0..40)));
    fondaco_testing::eventually("the second node is asked", || {
        (cluster.nodes[0].count(Counter::ForwardedLookups) > 0 || asking.is_finished()).then_some(())
    });
    cluster.nodes[0].publish(&cluster.topology);
    assert_eq!(asking.join().unwrap(), 2);
    assert!(cluster.nodes[0].count(Counter::ForwardRepeats) > 0);
}

#[test]
fn requests_for_a_dropped_store_read_nothing_of_its_successor() {
    let mut cluster = Cluster::batch(2, 1, 4, 40);
    let router = cluster.router();
    // The nodes already have another store of this name: its version 1 is open, and not current yet.
    cluster.store().id = 2;
    cluster.store().current = None;
    cluster.publish();
    let address = router.address();
    let asking = std::thread::spawn(move || connect(address).send("GET pymk:1"));
    fondaco_testing::eventually("the nodes are asked", || {
        (router.count(Counter::ForwardedLookups) > 0 || asking.is_finished()).then_some(())
    });
    router.publish(&cluster.topology);
    let error = asking.join().unwrap().unwrap_err();
    assert!(error.starts_with("NOVERSION"), "{error}");
    // Cached values of the former store are not used for the new one, once that is current.
    cluster.store().current = fondaco_model::VersionNumber::new(1);
    cluster.publish();
    router.publish(&cluster.topology);
    assert_eq!(only_version(&router.connect().mget(0..40)), 1);
}
