//! Nodes that start without what they had acknowledged: they are counted on by no read before they have it again.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fondaco_client::quorum::{Held, RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use fondaco_model::versioned::Record;
use fondaco_model::{NodeId, PartitionId};
use fondaco_replica::{ReplicaCounter, ReplicaOptions};

use crate::cluster::{Cluster, PATIENCE, STORE_ID, ask, merging, node, put, quiet, request, until, value};

fn in_memory(_: &Path) -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

fn on_disk(dir: &Path) -> Arc<dyn Engine> {
    let options = DiskOptions {
        disk_reserve_bytes: 0,
        ..DiskOptions::default()
    };
    Arc::new(DiskEngine::open(&dir.join("engine"), options).unwrap())
}

/// What a coordinator is told that counts on it.
fn counted(cluster: &Cluster, number: u32) -> Result<Held, ReplicaErrorCode> {
    let operation = ReplicaOperation::Get {
        part: RecordPart::Full,
        keys: vec!["k".into()],
    };
    let asked = ReplicaRequest {
        epoch: NonZeroU64::new(cluster.table.epoch()),
        ..request(operation)
    };
    let (sender, receiver) = mpsc::channel();
    cluster
        .node(number)
        .request(asked, move |reply| drop(sender.send(reply)));
    match receiver.recv_timeout(PATIENCE).unwrap() {
        ReplicaReply::Records(mut found) => found.pop().unwrap().map_err(|error| error.code),
        other => panic!("{other:?}"),
    }
}

fn written_everywhere(cluster: &Cluster, but: NodeId) -> Record {
    let record = put(cluster.node(1), "k", value("a"));
    for &id in cluster.nodes.keys().filter(|&&id| id != node(1) && id != but) {
        assert_eq!(
            ask(cluster.node(id.get()), merging("k", record.clone())),
            ReplicaReply::Done
        );
    }
    Record::decode(record).unwrap()
}

fn recalled(cluster: &Cluster, number: u32) -> Option<Option<Record>> {
    let epoch = cluster.table.epoch();
    cluster.node(number).recall(STORE_ID, PartitionId::new(0), b"k", epoch)
}

#[test]
fn what_was_in_memory_is_had_from_others_before_reads_count_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of(dir.path(), 3, 1, &quiet(), in_memory);
    // Acknowledged by 1 and 2: a read of 1 and 3 is to see it.
    let record = written_everywhere(&cluster, node(3));
    assert!(matches!(counted(&cluster, 1), Ok(Held::Record(_))));
    cluster.stop(node(1));
    cluster.set_live(node(1), false);
    cluster.network.cut(node(2));
    cluster.live.insert(node(1));
    cluster.start(dir.path(), node(1), &quiet(), in_memory);
    cluster.tell();
    until("a comparison with 3", || {
        counted(&cluster, 1) == Err(ReplicaErrorCode::Behind) && cluster.node(1).counter(ReplicaCounter::Exchanges) > 0
    });
    assert_eq!(recalled(&cluster, 1), None, "neither does it tell its own coordinator");
    // What is compared, repaired and merged counts on nobody.
    assert!(cluster.record(1, "k").is_none());
    cluster.network.mend(node(2));
    until("what 2 has", || matches!(counted(&cluster, 1), Ok(Held::Record(_))));
    assert_eq!(cluster.record(1, "k"), Some(record.clone()));
    assert_eq!(recalled(&cluster, 1), Some(Some(record)));
}

#[test]
fn a_lost_disk_is_lost_until_all_is_there_again_however_often_the_node_starts_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of(dir.path(), 2, 1, &quiet(), on_disk);
    written_everywhere(&cluster, node(9));
    until("a file that says that nothing is lost", || {
        let path = dir.path().join("1/incarnation.json");
        std::fs::read_to_string(path).unwrap().contains(r#""behind":false"#)
    });
    let restart = |cluster: &mut Cluster| {
        cluster.stop(node(1));
        cluster.start(dir.path(), node(1), &quiet(), on_disk);
        cluster.tell();
    };
    restart(&mut cluster);
    assert!(matches!(counted(&cluster, 1), Ok(Held::Record(_))), "nothing is lost");
    cluster.network.cut(node(2));
    cluster.stop(node(1));
    std::fs::remove_dir_all(dir.path().join("1")).unwrap();
    cluster.start(dir.path(), node(1), &quiet(), on_disk);
    cluster.tell();
    for _ in 0..2 {
        assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
        // Writes are taken all the while.
        put(cluster.node(1), "other", value("b"));
        restart(&mut cluster);
    }
    cluster.network.mend(node(2));
    until("what 2 has", || matches!(counted(&cluster, 1), Ok(Held::Record(_))));
    assert_eq!(cluster.values(1, "k"), ["a"]);
    assert_eq!(cluster.values(1, "other"), ["b"]);
}

#[test]
fn who_is_alone_or_promises_nothing_waits_for_nobody_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of(dir.path(), 1, 1, &quiet(), in_memory);
    cluster.stop(node(1));
    cluster.start(dir.path(), node(1), &quiet(), in_memory);
    assert_eq!(counted(&cluster, 1), Ok(Held::Nothing));

    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of(dir.path(), 2, 1, &quiet(), in_memory);
    (cluster.settings.reads, cluster.settings.writes) = (1, 1);
    cluster.stop(node(2));
    cluster.set_live(node(2), false);
    cluster.stop(node(1));
    cluster.start(dir.path(), node(1), &quiet(), in_memory);
    cluster.tell();
    until("an answer", || counted(&cluster, 1) == Ok(Held::Nothing));
}

#[test]
fn two_that_have_lost_all_at_once_wait_for_neither_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(30),
        ..quiet()
    };
    let mut cluster = Cluster::of(dir.path(), 2, 1, &options, in_memory);
    for id in [node(1), node(2)] {
        cluster.stop(id);
        cluster.start(dir.path(), id, &options, in_memory);
    }
    cluster.tell();
    until("answers", || {
        (1..=2).all(|number| counted(&cluster, number) == Ok(Held::Nothing))
    });
}
