//! Records whose bytes have changed on the disk: they are never returned, and are repaired from other replicas.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{CacheBudget, Engine, LogEngine, LogOptions, MemoryEngine, WriteBatch};
use fondaco_model::versioned::{EngineKind, Record};
use fondaco_protocol::replica::{Held, RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply};
use fondaco_replica::{ReplicaCounter, ReplicaOptions, note_losses_of};
use fondaco_testing::until;

use crate::cluster::{Cluster, STORE_ID, ask, merging, node, put, putting, quiet, value};

/// A cluster of two nodes, and the engine of node 1, to be tampered with.
fn cluster(options: &ReplicaOptions) -> (Cluster, Arc<MemoryEngine>) {
    let engine = Arc::new(MemoryEngine::new());
    let of_first = Arc::clone(&engine);
    let cluster = Cluster::of(2, 1, options, |dir| match dir.ends_with("1") {
        true => Arc::clone(&of_first) as Arc<dyn Engine>,
        false => Arc::new(MemoryEngine::new()),
    });
    (cluster, engine)
}

/// Flips a bit of every record of an engine.
fn rot(engine: &MemoryEngine) {
    let mut batch = WriteBatch::new();
    for name in engine.tables().unwrap() {
        let table = engine.open_table(&name).unwrap();
        for entry in table.scan(&[], None).unwrap() {
            let (key, record) = entry.unwrap();
            let mut rotten = record.to_vec();
            *rotten.last_mut().unwrap() ^= 1;
            batch.put(&*table, key, rotten.into());
        }
    }
    assert!(!batch.is_empty());
    engine.write(batch).unwrap();
}

fn read(cluster: &Cluster, part: RecordPart) -> Result<Held, ReplicaErrorCode> {
    let operation = ReplicaOperation::Get {
        part,
        keys: vec!["k".into()],
    };
    match ask(cluster.node(1), operation) {
        ReplicaReply::Records(mut found) => found.pop().unwrap().map_err(|error| error.code),
        other => panic!("{other:?}"),
    }
}

/// The reply to a coordinator that counts on node 1.
fn counted(cluster: &Cluster) -> Result<Held, ReplicaErrorCode> {
    crate::losses::counted(cluster, 1)
}

#[test]
fn a_corrupt_record_is_an_error_until_a_merge() {
    let (cluster, engine) = cluster(&quiet());
    cluster.network.cut(crate::cluster::node(2));
    let record = put(cluster.node(1), "k", value("a"));
    rot(&engine);
    assert_eq!(read(&cluster, RecordPart::Full), Err(ReplicaErrorCode::Corrupt));
    assert_eq!(read(&cluster, RecordPart::Context), Err(ReplicaErrorCode::Corrupt));
    match ask(cluster.node(1), putting("k", value("b"))) {
        ReplicaReply::Error(error) => assert_eq!(error.code, ReplicaErrorCode::Corrupt),
        other => panic!("{other:?}"),
    }
    assert!(cluster.node(1).counter(ReplicaCounter::Corruptions) >= 3);
    assert_eq!(ask(cluster.node(1), merging("k", record)), ReplicaReply::Done);
    assert_eq!(cluster.values(1, "k"), ["a"]);
}

#[test]
fn writes_after_a_repair_with_old_data_hide_nothing() {
    let (cluster, engine) = cluster(&quiet());
    cluster.network.cut(crate::cluster::node(2));
    let older = put(cluster.node(1), "k", value("a"));
    let newer = Record::decode(put(cluster.node(1), "k", value("b"))).unwrap();
    rot(&engine);
    // A replica that missed the last write is the first to repair it.
    assert_eq!(ask(cluster.node(1), merging("k", older)), ReplicaReply::Done);
    let after = Record::decode(put(cluster.node(1), "k", value("c"))).unwrap();
    assert!(!after.context().covers(newer.siblings()[0].dot));
    let values: Vec<_> = after
        .merge(&newer)
        .siblings()
        .iter()
        .filter_map(|sibling| sibling.value.clone())
        .collect();
    assert!(
        values.len() == 2 && values.contains(&"b".into()) && values.contains(&"c".into()),
        "{values:?}"
    );
}

#[test]
fn a_repaired_record_is_compared_before_reads_count_on_it() {
    let (cluster, engine) = cluster(&quiet());
    let older = put(cluster.node(1), "k", value("a"));
    // Acknowledged by both.
    let newer = put(cluster.node(1), "k", value("b"));
    assert_eq!(ask(cluster.node(2), merging("k", newer)), ReplicaReply::Done);
    until("a comparison", || counted(&cluster).is_ok());
    cluster.network.cut(node(2));
    rot(&engine);
    assert_eq!(counted(&cluster), Err(ReplicaErrorCode::Corrupt));
    // An old copy.
    assert_eq!(ask(cluster.node(1), merging("k", older)), ReplicaReply::Done);
    assert_eq!(cluster.values(1, "k"), ["a"]);
    assert_eq!(counted(&cluster), Err(ReplicaErrorCode::Behind));
    assert_eq!(cluster.node(1).partitions_behind(), 1);
    cluster.network.mend(node(2));
    until("the record of node 2", || counted(&cluster).is_ok());
    assert_eq!(cluster.values(1, "k"), ["b"]);
}

#[test]
fn an_incarnation_ends_only_if_its_dots_may_be_lost() {
    let (cluster, engine) = cluster(&quiet());
    cluster.network.cut(crate::cluster::node(2));
    let write = |key: &str| {
        let record = put(cluster.node(1), key, value("v"));
        let incarnation = Record::decode(record.clone()).unwrap().siblings()[0]
            .dot
            .replica
            .incarnation;
        (record, incarnation)
    };
    let heal =
        |key: &str, record: &Bytes| assert_eq!(ask(cluster.node(1), merging(key, record.clone())), ReplicaReply::Done);
    let [(a, first), (b, _), (c, _)] = ["a", "b", "c"].map(write);
    rot(&engine);
    heal("a", &a);
    let (a, second) = write("a");
    assert_ne!(first, second);
    // Earlier dots of the other keys have another incarnation anyway.
    heal("b", &b);
    heal("c", &c);
    assert_eq!(write("b").1, second);
    rot(&engine);
    heal("c", &c);
    assert_eq!(write("c").1, second);
    heal("a", &a);
    assert_ne!(write("a").1, second);
}

#[test]
fn a_damaged_log_is_counted_and_begins_a_new_incarnation() {
    let engine = |dir: &std::path::Path| -> Arc<dyn Engine> {
        let options = LogOptions {
            on_loss: note_losses_of(EngineKind::Disk, dir),
            ..LogOptions::default()
        };
        Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap())
    };
    let mut cluster = Cluster::of(1, 1, &quiet(), engine);
    let write = |cluster: &Cluster| Record::decode(put(cluster.node(1), "k", value("a"))).unwrap();
    let incarnation = |record: &Record| record.siblings()[0].dot.replica.incarnation;
    let first = incarnation(&write(&cluster));
    let mut again = |rots: bool| {
        cluster.stop(node(1));
        if rots {
            let files = std::fs::read_dir(cluster.home.join("1/engine")).unwrap();
            let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            let of_kind = |kind: &'static str| {
                let is_it = move |path: &&PathBuf| path.extension().is_some_and(|is| is == kind);
                files.iter().filter(is_it).cloned()
            };
            // As a killed process leaves it: the log is read from its segments.
            of_kind("keys").for_each(|path| std::fs::remove_file(path).unwrap());
            let path = of_kind("segment").max().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes[last - 10] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        cluster.start(node(1), &quiet(), engine);
        let logs = cluster.node(1).counter(ReplicaCounter::DamagedLogs);
        let incarnation = incarnation(&write(&cluster));
        for loss in cluster.node(1).losses() {
            assert!(cluster.node(1).accept_loss(&loss.id).unwrap().is_some());
        }
        (logs, incarnation)
    };
    assert_eq!(again(false), (0, first), "it had shut down cleanly");
    let (logs, second) = again(true);
    assert!(logs == 1 && second != first);
    assert_eq!(again(false), (0, second));
}

#[test]
fn repeated_reads_of_a_corrupt_record_rebuild_one_tree() {
    let (cluster, engine) = cluster(&quiet());
    cluster.network.cut(crate::cluster::node(2));
    put(cluster.node(1), "k", value("a"));
    rot(&engine);
    let is_made = || cluster.node(1).status(1).unwrap().trees_missing == 0;
    assert_eq!(read(&cluster, RecordPart::Full), Err(ReplicaErrorCode::Corrupt));
    until("the tree", is_made);
    for _ in 0..100 {
        assert_eq!(read(&cluster, RecordPart::Full), Err(ReplicaErrorCode::Corrupt));
        assert!(is_made());
    }
}

#[test]
fn corrupt_records_in_a_scan_are_repaired_and_never_sent() {
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let (cluster, engine) = cluster(&options);
    for number in 0..50 {
        let key = format!("k{number}");
        let record = put(cluster.node(2), &key, value("a"));
        ask(cluster.node(1), merging(&key, record));
    }
    put(cluster.node(2), "k", value("a"));
    until("the copy", || cluster.record(1, "k") == cluster.record(2, "k"));
    rot(&engine);
    // Reading a damaged record reveals that the tree does not match the table.
    assert_eq!(read(&cluster, RecordPart::Full), Err(ReplicaErrorCode::Corrupt));
    until("healing", || {
        let keys = (0..50).map(|number| format!("k{number}")).chain(["k".to_owned()]);
        keys.into_iter().all(|key| {
            let operation = ReplicaOperation::Get {
                part: RecordPart::Full,
                keys: vec![key.clone().into()],
            };
            let ReplicaReply::Records(found) = ask(cluster.node(1), operation) else {
                panic!()
            };
            matches!(&found[..], [Ok(Held::Record(_))]) && cluster.values(2, &key) == ["a"]
        })
    });
    assert_eq!(cluster.values(1, "k49"), ["a"]);
}

#[test]
fn corruption_on_the_disk_is_repaired_and_blocks_nothing_else() {
    let busy = ReplicaOptions {
        exchange_period: Duration::from_millis(50),
        ..quiet()
    };
    let engine = |dir: &std::path::Path| -> Arc<dyn Engine> {
        let options = LogOptions {
            cache: CacheBudget::new(0),
            segment_bytes: 16 << 10,
            ..LogOptions::default()
        };
        Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap())
    };
    let mut cluster = Cluster::of(2, 1, &busy, engine);
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    for key in &keys {
        let record = put(cluster.node(2), key, value(&"v".repeat(500)));
        ask(cluster.node(1), merging(key, record));
    }
    // The first segments are full, and only their keys are read when they are opened.
    let files = cluster.home.join("1/engine");
    until("the keys of segments", || files.join("0000000002.keys").exists());
    let rot = |number: u32| {
        let path = files.join(format!("{number:010}.segment"));
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let middle = file.metadata().unwrap().len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).unwrap();
        file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    };
    cluster.stop(node(1));
    rot(1);
    rot(2);
    cluster.start(node(1), &busy, engine);
    until("the hash tree", || {
        cluster.node(1).status(STORE_ID).unwrap().trees_missing == 0
    });
    assert!(cluster.node(1).counter(ReplicaCounter::Corruptions) >= 2);
    let is_whole = |key: &String| {
        let operation = ReplicaOperation::Get {
            part: RecordPart::Full,
            keys: vec![key.clone().into()],
        };
        matches!(ask(cluster.node(1), operation), ReplicaReply::Records(found) if matches!(found[..], [Ok(Held::Record(_))]))
    };
    until("healing", || keys.iter().all(is_whole));
    // The same while it runs, once the record is read.
    rot(3);
    assert!(!keys.iter().all(is_whole));
    until("healing", || keys.iter().all(is_whole));
    assert!(keys.iter().all(|key| cluster.record(1, key) == cluster.record(2, key)));
}
