//! A process is killed while it writes: what it acknowledged is there, and no dot is ever given twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fondaco_model::versioned::{Dot, Record};
use fondaco_protocol::replica::ReplicaReply;
use fondaco_replica::ChangesFrom;

use crate::changes::{Follower, records};
use crate::cluster::{Cluster, ask, node, put, putting, quiet, value};
use crate::one_node::{on_disk, open_on};

fn open(dir: &Path, durability: &str) -> Cluster {
    open_on(dir, durability, "disk")
}

/// Lets a child write for a while, kills it, and returns what it said: the last value and dot of each key.
fn write_and_kill(dir: &Path, durability: &str, engine: &str, round: u64) -> BTreeMap<String, (u64, u32, u64)> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fondaco-replica-writer"))
        .arg(dir)
        .args([durability, engine])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut said = BTreeMap::new();
        for line in lines.map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            // A line that was cut short was not said.
            let [key, write, incarnation, counter] = words[..] else {
                continue;
            };
            let (Ok(write), Ok(incarnation), Ok(counter)) = (write.parse(), incarnation.parse(), counter.parse())
            else {
                continue;
            };
            said.insert(key.to_owned(), (write, incarnation, counter));
            // Only the first ones are received.
            let _ = sender.send(());
        }
        said
    });
    // At another moment of its work in each round.
    for _ in 0..50 + 97 * round {
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap()
}

fn nothing_acknowledged_is_lost(durability: &str, engine: &str) {
    const ROUNDS: u64 = 6;
    let dir = tempfile::tempdir().unwrap();
    let mut incarnations = Vec::new();
    for round in 0..ROUNDS {
        let said = write_and_kill(dir.path(), durability, engine, round);
        assert!(!said.is_empty());
        let cluster = open_on(dir.path(), durability, engine);
        for (key, (write, incarnation, counter)) in said {
            let record = cluster.record(1, &key).unwrap();
            let dot = Dot {
                replica: fondaco_model::versioned::ReplicaId {
                    node: node(1),
                    incarnation,
                },
                counter,
            };
            assert!(
                record.context().covers(dot),
                "{key}: write {write} in round {round} was lost"
            );
            if !incarnations.contains(&incarnation) {
                incarnations.push(incarnation);
            }
        }
        // A write now has a dot that was never given.
        let record = Record::decode(put(cluster.node(1), "after", value(&round.to_string()))).unwrap();
        assert_eq!(record.siblings().len(), 1);
        drop(cluster);
    }
    assert_eq!(
        incarnations.len() as u64,
        ROUNDS,
        "each life that was cut short had its own incarnation"
    );
}

#[test]
fn nothing_is_lost_that_was_acknowledged_by_the_log() {
    nothing_acknowledged_is_lost("log", "disk");
    nothing_acknowledged_is_lost("log", "log");
}

#[test]
fn nothing_is_lost_that_was_acknowledged_by_the_disk() {
    nothing_acknowledged_is_lost("fsync", "disk");
    nothing_acknowledged_is_lost("fsync", "log");
}

#[test]
fn what_a_follower_gets_after_a_kill_is_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let mut follower = Follower::new(&open_on(dir.path(), "log", "log"), &ChangesFrom::Start);
    let mut before = BTreeMap::new();
    for round in 0..4 {
        let mut said = write_and_kill(dir.path(), "log", "log", round);
        let cluster = open_on(dir.path(), "log", "log");
        follower.all.clear();
        follower.read_all(&cluster, 1);
        let now = records(&cluster, 1);
        let changed = now.iter().filter(|(key, record)| before.get(*key) != Some(*record));
        let changed: Vec<_> = changed.map(|(key, record)| (key.clone(), record.clone())).collect();
        let mut returned: Vec<_> = follower
            .all
            .iter()
            .map(|(_, key, record)| (key.clone(), record.clone()))
            .collect();
        returned.sort_by(|(one, _), (other, _)| one.cmp(other));
        assert_eq!(returned, changed, "in round {round}");
        said.retain(|key, _| !follower.last.contains_key(key.as_bytes()));
        assert!(said.is_empty(), "acknowledged, and not returned: {said:?}");
        before = now;
    }
}

#[test]
fn writes_that_wait_together_share_the_wait_for_the_disk() {
    const WRITES: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    let cluster = open(dir.path(), "fsync");
    let (sender, receiver) = mpsc::channel();
    for number in 0..WRITES {
        let sender = sender.clone();
        let request = crate::cluster::request(putting(&format!("k{number}"), value("a")));
        cluster
            .node(1)
            .request(request, move |reply| sender.send(reply).unwrap());
    }
    drop(sender);
    assert_eq!(
        receiver
            .iter()
            .filter(|reply| matches!(reply, ReplicaReply::Written(_)))
            .count(),
        WRITES
    );
    let syncs = cluster.node(1).counter(fondaco_replica::ReplicaCounter::Syncs);
    assert!(
        syncs > 0 && syncs < WRITES as u64 / 10,
        "{syncs} waits for {WRITES} writes"
    );
}

#[test]
fn after_an_orderly_end_the_incarnation_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dot = |cluster: &Cluster| {
        let record = Record::decode(put(cluster.node(1), "k", value("a"))).unwrap();
        record.siblings()[0].dot
    };
    let mut cluster = open(dir.path(), "log");
    let first = dot(&cluster);
    cluster.stop(node(1));
    let cluster = open(dir.path(), "log");
    let second = dot(&cluster);
    assert_eq!(second.replica, first.replica);
    assert!(second.counter > first.counter);
}

#[test]
fn below_the_reserve_writes_are_refused_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = open(dir.path(), "log");
    put(cluster.node(1), "k", value("a"));
    drop(cluster);
    let options = fondaco_replica::ReplicaOptions {
        reserve_bytes: u64::MAX,
        ..quiet()
    };
    let cluster = Cluster::in_dir(dir.path(), 1, 2, &options, on_disk);
    match ask(cluster.node(1), putting("k", value("b"))) {
        ReplicaReply::Error(error) => assert_eq!(error.code, fondaco_protocol::replica::ReplicaErrorCode::DiskFull),
        other => panic!("{other:?}"),
    }
    assert_eq!(cluster.values(1, "k"), ["a"]);
}
