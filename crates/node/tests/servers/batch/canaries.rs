//! Canaries: the first key of a request decides for all its keys, and no reply mixes versions while nodes learn of a canary at different
//! times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use fondaco_model::{CanaryReads, ReadCanary, VersionNumber, is_in_share};

use super::harness::value;
use crate::harness::{Cluster, connect};

const KEYS: usize = 64;

fn canary(version: u64, reads: &str) -> Option<Box<ReadCanary>> {
    Some(Box::new(ReadCanary {
        version: VersionNumber::new(version).unwrap(),
        reads: reads.parse().unwrap(),
    }))
}

/// The version of all values of the reply for these keys.
///
/// Panics if there are several.
fn version_of(keys: &[usize], values: &[Option<String>]) -> u64 {
    let versions: Vec<u64> = keys
        .iter()
        .zip(values)
        .map(|(&key, found)| one_version(key, found))
        .collect();
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    versions[0]
}

fn one_version(key: usize, found: &Option<String>) -> u64 {
    let found = found.as_deref().unwrap_or("nothing");
    let version = (1..=2).find(|&version| found == value(version, key));
    version.unwrap_or_else(|| panic!("key {key}: {found}"))
}

/// All keys, beginning with this one.
fn from(first: usize) -> Vec<usize> {
    (first..KEYS).chain(0..first).collect()
}

#[test]
fn the_first_key_decides_on_nodes_and_through_a_router() {
    let mut cluster = Cluster::batch(3, 2, 8, KEYS);
    cluster.add_version(2);
    cluster.store().canary = canary(2, "30%");
    let router = cluster.router();
    cluster.publish();
    let CanaryReads::Share(share) = "30%".parse().unwrap() else {
        unreachable!()
    };
    let expected = |key: usize| 1 + u64::from(is_in_share(share, key.to_string().as_bytes()));
    assert!((0..KEYS).any(|key| expected(key) == 2) && (0..KEYS).any(|key| expected(key) == 1));
    for node in cluster.nodes.iter().chain([&router]) {
        let mut connection = node.connect();
        for first in 0..KEYS {
            assert_eq!(version_of(&[first], &connection.mget([first])), expected(first));
            let keys = from(first);
            assert_eq!(
                version_of(&keys, &connection.mget(keys.iter().copied())),
                expected(first)
            );
        }
        let mut pipeline = redis::pipe();
        (0..KEYS).for_each(|key| _ = pipeline.get(format!("pymk:{key}")));
        let found: Vec<Option<String>> = pipeline.query(&mut connection.0).unwrap();
        let versions: Vec<u64> = found
            .iter()
            .enumerate()
            .map(|(key, found)| one_version(key, found))
            .collect();
        assert_eq!(
            versions,
            (0..KEYS).map(expected).collect::<Vec<_>>(),
            "each request for itself"
        );
    }
}

#[test]
fn no_reply_mixes_versions_while_canaries_come_and_go() {
    const CHANGES: u64 = 200;
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
                    let (mut connection, mut first) = (connect(address), 0);
                    while !stop.load(Relaxed) {
                        first = (first + 7) % KEYS;
                        let keys = from(first);
                        let version = version_of(&keys, &connection.mget(keys.iter().copied()));
                        seen[version as usize].fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for change in 0..CHANGES {
            // A canary begins, is promoted; or begins, and is rolled back.
            let (current, of_canary) =
                [(1, Some(2)), (2, None), (2, Some(1)), (2, None), (1, None)][change as usize % 5];
            cluster.set_current(current);
            cluster.store().canary = of_canary.and_then(|version| canary(version, "50%"));
            let before = seen[1].load(Relaxed) + seen[2].load(Relaxed);
            for at in 0..4 {
                match (at + change as usize) % 4 {
                    3 => router.publish(&cluster.topology),
                    node => cluster.nodes[node].publish(&cluster.topology),
                }
                fondaco_testing::eventually("answers are given between two changes", || {
                    let given = seen[1].load(Relaxed) + seen[2].load(Relaxed);
                    (given >= before + at as u64 || stop.load(Relaxed)).then_some(())
                });
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(
        seen[1].load(Relaxed) > CHANGES / 4 && seen[2].load(Relaxed) > CHANGES / 4,
        "{seen:?}"
    );
}

#[test]
fn a_read_of_a_deleted_canary_gets_the_current_version() {
    let mut cluster = Cluster::batch(2, 1, 4, KEYS);
    cluster.add_version(2);
    cluster.store().canary = canary(2, "100%");
    let router = cluster.router();
    cluster.publish();
    let keys = from(0);
    // Not through the router: it would have the values in its cache.
    assert_eq!(version_of(&keys, &cluster.nodes[0].connect().mget(0..KEYS)), 2);
    // Nodes have deleted the version, and neither they nor the router know that the canary has ended.
    for at in 0..2 {
        cluster.nodes[at].close(2);
        cluster.publish();
        for node in cluster.nodes.iter().chain([&router]) {
            assert_eq!(
                version_of(&keys, &node.connect().mget(0..KEYS)),
                1,
                "node {at} lacks it"
            );
        }
    }
}

#[test]
fn nodes_take_part_by_their_number_and_zone() {
    let mut cluster = Cluster::batch(3, 2, 8, KEYS);
    cluster.add_version(2);
    let second = cluster.topology.nodes.values_mut().nth(1).unwrap();
    second.zone = "moon".to_owned();
    for reads in ["node:2", "zone:moon"] {
        cluster.store().canary = canary(2, reads);
        cluster.publish();
        for (at, node) in cluster.nodes.iter().enumerate() {
            let expected = if at == 1 { 2 } else { 1 };
            let keys = from(0);
            assert_eq!(
                version_of(&keys, &node.connect().mget(0..KEYS)),
                expected,
                "{reads}, node {}",
                at + 1
            );
        }
    }
}

#[test]
fn what_the_new_version_answers_is_compared_with_the_current_one() {
    let mut cluster = Cluster::batch(1, 1, 4, KEYS);
    cluster.keys = KEYS / 2;
    cluster.add_version(2);
    cluster.store().canary = canary(2, "100%");
    cluster.publish();
    let mut connection = cluster.nodes[0].connect();
    for key in 0..KEYS {
        connection.mget([key]);
    }
    let counts = fondaco_testing::eventually("all keys are compared", || {
        let counts = cluster.nodes[0].canary_counts();
        (counts.compared == KEYS as u64).then_some(counts)
    });
    let half = KEYS as u64 / 2;
    assert_eq!((counts.reads, counts.current_reads), (2 * half, 0));
    assert_eq!(
        (counts.missing, counts.changed, counts.added, counts.errors),
        (half, half, 0, 0)
    );
    assert_eq!(counts.timed, 2 * half);
    // A new catalog continues the counts; another canary begins with none.
    cluster.publish();
    assert_eq!(cluster.nodes[0].canary_counts(), counts);
    cluster.set_current(2);
    cluster.store().canary = canary(1, "100%");
    cluster.publish();
    assert_eq!(cluster.nodes[0].canary_counts().compared, 0);
}
