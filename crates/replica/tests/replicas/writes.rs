//! The replies of one replica to requests.

use std::sync::{Arc, mpsc};

use bytes::Bytes;
use fondaco_engine::{Engine, MemoryEngine};
use fondaco_model::versioned::{Record, Resolution, SIBLINGS_MAX, Update, VectorClock};
use fondaco_protocol::replica::{
    Held, Known, KnownKey, PutOver, RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest,
};
use fondaco_replica::{REPLICA_KEY_BYTES_MAX, ReplicaCounter, ReplicaOptions};
use fondaco_testing::until;

use crate::cluster::{
    Cluster, STORE_ID, ask, dropped, merging, node, now_unix_ms, put, putting, quiet, request, value,
};

fn code(reply: ReplicaReply) -> ReplicaErrorCode {
    match reply {
        ReplicaReply::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

/// A write that has seen no value, and so replaces none.
fn putting_unseen(key: &str, text: &str) -> ReplicaOperation {
    ReplicaOperation::Put {
        over: PutOver::Context,
        key: Bytes::copy_from_slice(key.as_bytes()),
        context: VectorClock::new(),
        update: value(text),
        is_charged: false,
    }
}

#[test]
fn a_written_record_is_read_and_merged_identically() {
    let cluster = Cluster::in_memory(2, 4, &quiet());
    assert_eq!(cluster.record(1, "k"), None);
    put(cluster.node(1), "k", value("a"));
    let record = put(cluster.node(1), "k", value("b"));
    assert_eq!(cluster.values(1, "k"), ["b"]);
    assert_eq!(ask(cluster.node(2), merging("k", record)), ReplicaReply::Done);
    assert_eq!(cluster.record(2, "k"), cluster.record(1, "k"));
}

#[test]
fn concurrent_values_are_kept_until_one_write_has_seen_them() {
    const WRITERS: usize = 8;
    const WRITES: usize = 200;
    let mut cluster = Cluster::in_memory(1, 4, &quiet());
    cluster.settings.resolution = Resolution::All;
    cluster.tell();
    let replicas = cluster.node(1);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for write in 0..WRITES {
                    let key = format!("k{}", write % 4);
                    // The limit on siblings refuses further ones with an error.
                    match ask(replicas, putting_unseen(&key, &format!("{writer}"))) {
                        ReplicaReply::Written(_) => {}
                        other => assert_eq!(code(other), ReplicaErrorCode::Overloaded),
                    }
                }
            });
        }
    });
    for key in ["k0", "k1", "k2", "k3"] {
        let record = cluster.record(1, key).unwrap();
        assert_eq!(record.siblings().len(), SIBLINGS_MAX);
        put(replicas, key, value("all"));
        assert_eq!(cluster.values(1, key), ["all"]);
    }
}

#[test]
fn with_last_write_wins_concurrent_writers_never_hit_the_limit() {
    const WRITES: usize = 3 * SIBLINGS_MAX;
    let cluster = Cluster::in_memory(2, 1, &quiet());
    let mut before = Vec::new();
    for write in 0..WRITES {
        match ask(cluster.node(1), putting_unseen("k", &write.to_string())) {
            ReplicaReply::Written(record) => before.push(Record::decode(record).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    let record = cluster.record(1, "k").unwrap();
    assert!(record.siblings().len() <= SIBLINGS_MAX);
    let last = (WRITES - 1).to_string();
    assert!(cluster.values(1, "k").iter().any(|value| *value == last));
    // A replica that still has them drops them, too.
    let full = before
        .iter()
        .find(|record| record.siblings().len() == SIBLINGS_MAX)
        .unwrap();
    ask(cluster.node(2), merging("k", full.to_bytes().into()));
    ask(cluster.node(2), merging("k", record.to_bytes().into()));
    assert_eq!(cluster.record(2, "k"), Some(record));
}

#[test]
fn a_conditional_write_detects_a_write_in_between() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let replicas = cluster.node(1);
    let read = Record::decode(put(replicas, "k", value("a"))).unwrap();
    let unchanged = |text: &str| ReplicaOperation::Put {
        over: PutOver::Unchanged,
        key: "k".into(),
        context: read.context().clone(),
        update: value(text),
        is_charged: false,
    };
    assert!(matches!(ask(replicas, unchanged("b")), ReplicaReply::Written(_)));
    assert_eq!(code(ask(replicas, unchanged("c"))), ReplicaErrorCode::Conflict);
    assert_eq!(cluster.values(1, "k"), ["b"]);
}

#[test]
fn concurrent_increments_lose_nothing() {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 250;
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let replicas = cluster.node(1);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..WRITES {
                    put(replicas, "count", Update::add(1, now_unix_ms(), None));
                }
            });
        }
    });
    assert_eq!(cluster.values(1, "count"), [(WRITERS * WRITES).to_string()]);
    assert_eq!(replicas.counter(ReplicaCounter::Puts), WRITERS * WRITES);
}

#[test]
fn unknown_stores_and_partitions_are_refused_with_their_codes() {
    let mut cluster = Cluster::in_memory(2, 2, &quiet());
    let replicas = cluster.node(1).clone();
    let ask_of = |store: &str, store_id: u16| {
        let (sender, receiver) = mpsc::channel();
        let request = ReplicaRequest {
            store: store.parse().unwrap(),
            store_id,
            ..request(putting("k", value("a")))
        };
        replicas.request(request, move |reply| sender.send(reply).unwrap());
        code(receiver.recv().unwrap())
    };
    assert_eq!(ask_of("other", 1), ReplicaErrorCode::NoStore);
    assert_eq!(ask_of("s", 2), ReplicaErrorCode::NoStore);
    let long = "x".repeat(REPLICA_KEY_BYTES_MAX + 1);
    assert_eq!(
        code(ask(&replicas, putting(&long, value("a")))),
        ReplicaErrorCode::BadKey
    );
    let longest = "x".repeat(REPLICA_KEY_BYTES_MAX);
    put(&replicas, &longest, value("a"));
    assert_eq!(cluster.values(1, &longest), ["a"]);
    // With one replica each partition is owned by one node.
    cluster.replicas = 1;
    cluster.table = alternating(&cluster);
    cluster.tell();
    let refused = (0..20).map(|number| ask(&replicas, putting(&format!("k{number}"), value("a"))));
    let codes: Vec<_> = refused
        .filter(|reply| matches!(reply, ReplicaReply::Error(_)))
        .map(code)
        .collect();
    assert!(!codes.is_empty() && codes.len() < 20);
    assert!(codes.iter().all(|code| *code == ReplicaErrorCode::NotHere), "{codes:?}");
}

fn alternating(cluster: &Cluster) -> std::sync::Arc<fondaco_model::RoutingTable> {
    let table = cluster.table.with_plan(vec![vec![node(1)], vec![node(2)]]).unwrap();
    std::sync::Arc::new(table.finished())
}

#[test]
fn an_invalid_record_rejects_the_whole_merge() {
    let cluster = Cluster::in_memory(2, 1, &quiet());
    // A comparison would bring it.
    cluster.network.cut(node(2));
    let good = put(cluster.node(1), "good", value("a"));
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    let operation = ReplicaOperation::Merge {
        records: vec![
            crate::cluster::pair("good", good),
            crate::cluster::pair("bad", Bytes::from(bad)),
        ],
    };
    assert_eq!(code(ask(cluster.node(2), operation)), ReplicaErrorCode::Other);
    assert_eq!(cluster.record(2, "good"), None);
}

#[test]
fn late_and_excess_requests_are_refused() {
    let options = ReplicaOptions {
        queue_items_max: 4,
        shards: 1,
        ..quiet()
    };
    let cluster = Cluster::in_memory(1, 1, &options);
    let replicas = cluster.node(1);
    // The action that builds the hash tree uses the same queue.
    until("the tree is made", || {
        replicas.status(STORE_ID).unwrap().trees_missing == 0
    });
    let (sender, receiver) = mpsc::channel();
    let late = ReplicaRequest {
        timeout_ms: 0,
        ..request(putting("late", value("a")))
    };
    replicas.request(late, move |reply| sender.send(reply).unwrap());
    assert_eq!(code(receiver.recv().unwrap()), ReplicaErrorCode::Timeout);
    assert_eq!(cluster.record(1, "late"), None);
    // The answer to the first request keeps the only shard busy.
    let (sender, receiver) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let (holds, held) = mpsc::channel();
    replicas.request(request(putting("k", value("a"))), move |_| {
        holds.send(()).unwrap();
        // It returns when the sender is dropped.
        let _ = waits.recv();
    });
    held.recv().unwrap();
    for number in 0..6 {
        let sender = sender.clone();
        let operation = putting(&format!("k{number}"), value("a"));
        replicas.request(request(operation), move |reply| sender.send(reply).unwrap());
    }
    drop((sender, go_on));
    let replies: Vec<ReplicaReply> = receiver.iter().collect();
    let (written, refused): (Vec<_>, Vec<_>) = replies
        .into_iter()
        .partition(|reply| matches!(reply, ReplicaReply::Written(_)));
    assert_eq!((written.len(), refused.len()), (4, 2));
    assert!(
        refused
            .into_iter()
            .all(|reply| code(reply) == ReplicaErrorCode::Overloaded)
    );
    assert_eq!(replicas.counter(ReplicaCounter::Overloads), 2);
}

#[test]
fn a_context_is_returned_without_the_values() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let record = Record::decode(put(cluster.node(1), "k", value("a"))).unwrap();
    let operation = ReplicaOperation::Get {
        part: RecordPart::Context,
        keys: vec!["k".into(), "absent".into()],
    };
    let ReplicaReply::Records(found) = ask(cluster.node(1), operation) else {
        panic!()
    };
    let [Ok(Held::Record(context)), Ok(Held::Nothing)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(&VectorClock::decode(context).unwrap(), record.context());
}

#[test]
fn records_that_the_caller_knows_are_not_sent() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    let record = put(cluster.node(1), "k", value("a"));
    let digest = Record::stated_digest(&record);
    let known = |key: &'static str, known| KnownKey { key: key.into(), known };
    let operation = ReplicaOperation::GetOther {
        keys: vec![
            known("k", Known::Digest(digest)),
            known("k", Known::Digest(digest ^ 1)),
            known("k", Known::Nothing),
            known("k", Known::Awaited),
            known("absent", Known::Digest(digest)),
            known("absent", Known::Nothing),
            known("absent", Known::Awaited),
        ],
    };
    let held = || Ok(Held::Record(record.clone()));
    let stated = Bytes::copy_from_slice(&digest.to_be_bytes());
    assert_eq!(
        ask(cluster.node(1), operation),
        ReplicaReply::Records(vec![
            Ok(Held::Same),
            held(),
            held(),
            Ok(Held::Record(stated)),
            Ok(Held::Nothing),
            Ok(Held::Nothing),
            Ok(Held::Nothing)
        ])
    );
}

#[test]
fn a_recreated_store_has_no_data_of_the_former_one() {
    let engine = Arc::new(MemoryEngine::new());
    let cluster = Cluster::of(1, 1, &quiet(), |_| Arc::clone(&engine) as Arc<dyn Engine>);
    put(cluster.node(1), "k", value("a"));
    let mut view = cluster.view(node(1));
    view.dropped.push(dropped(&view, false));
    view.stores[0].created_unix_ms += 1;
    cluster.node(1).set_view(&view).unwrap();
    assert_eq!(cluster.record(1, "k"), None);
    // Nor anything of the store in between, once its table is deleted.
    until("the deletion", || {
        engine
            .tables()
            .unwrap()
            .iter()
            .filter(|table| table.starts_with("store-"))
            .count()
            == 1
    });
    cluster.tell();
    assert_eq!(cluster.record(1, "k"), None);
}
