//! Nodes that start without writes that they had acknowledged: no read counts on them before these are restored.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fondaco_engine::{DiskEngine, DiskOptions, Engine, LogEngine, LogOptions, MemoryEngine};
use fondaco_model::versioned::{EngineKind, Record};
use fondaco_protocol::replica::{Held, RecordPart, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{Recalled, ReplicaCounter, ReplicaOptions, note_losses_of};
use fondaco_testing::until;

use crate::cluster::{Cluster, PATIENCE, STORE_ID, ask, merging, node, put, quiet, request, settings_of, value};

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

/// The reply to a coordinator that counts on it.
pub fn counted(cluster: &Cluster, number: u32) -> Result<Held, ReplicaErrorCode> {
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

/// Writes to node 1, and merges the record into these nodes, too.
pub fn written_by(cluster: &Cluster, others: &[u32]) -> Record {
    let record = put(cluster.node(1), "k", value("a"));
    for &number in others {
        assert_eq!(
            ask(cluster.node(number), merging("k", record.clone())),
            ReplicaReply::Done
        );
    }
    Record::decode(record).unwrap()
}

/// The value that memory has for the key; `None` if the node may not answer.
fn recalled(cluster: &Cluster, number: u32) -> Option<Option<Vec<u8>>> {
    let epoch = cluster.table.epoch();
    let slot = fondaco_model::slot_of_key(&crate::cluster::store(), b"k");
    let mut recalled = None;
    let keys = std::iter::once((slot, &b"k"[..]));
    cluster.node(number).recall(STORE_ID, keys, epoch, |_, state| {
        recalled = match state {
            Recalled::Plain(value) => Some(Some(value.to_vec())),
            Recalled::Record(record) => panic!("not a plain record: {record:?}"),
            Recalled::Absent => Some(None),
            Recalled::Unknown => None,
        };
        true
    });
    recalled
}

#[test]
fn memory_is_restored_from_others_before_reads_count_on_it() {
    let mut cluster = Cluster::of(3, 1, &quiet(), in_memory);
    // Acknowledged by 1 and 2: a read of 1 and 3 must see it.
    cluster.network.cut(node(3));
    let record = written_by(&cluster, &[2]);
    assert!(matches!(counted(&cluster, 1), Ok(Held::Record(_))));
    cluster.stop(node(1));
    cluster.set_live(node(1), false);
    cluster.network.cut(node(2));
    cluster.network.mend(node(3));
    cluster.live.insert(node(1));
    cluster.start(node(1), &quiet(), in_memory);
    cluster.tell();
    until("a comparison with 3", || {
        counted(&cluster, 1) == Err(ReplicaErrorCode::Behind) && cluster.node(1).counter(ReplicaCounter::Exchanges) > 0
    });
    assert_eq!(recalled(&cluster, 1), None, "its own coordinator gets no value either");
    // Comparisons, repairs and merges are not counted.
    assert!(cluster.record(1, "k").is_none());
    cluster.network.mend(node(2));
    until("the record of node 2", || {
        matches!(counted(&cluster, 1), Ok(Held::Record(_)))
    });
    assert_eq!(cluster.record(1, "k"), Some(record));
    assert_eq!(recalled(&cluster, 1), Some(Some(b"a".to_vec())));
}

#[test]
fn a_lost_disk_stays_lost_over_restarts_until_restored() {
    let mut cluster = Cluster::of(2, 1, &quiet(), on_disk);
    written_by(&cluster, &[2]);
    until("a file that says that nothing is lost", || {
        let path = cluster.home.join("1/incarnation.json");
        std::fs::read_to_string(path).unwrap().contains(r#""behind":false"#)
    });
    let restart = |cluster: &mut Cluster| {
        cluster.stop(node(1));
        cluster.start(node(1), &quiet(), on_disk);
        cluster.tell();
    };
    restart(&mut cluster);
    assert!(matches!(counted(&cluster, 1), Ok(Held::Record(_))), "nothing is lost");
    cluster.network.cut(node(2));
    cluster.stop(node(1));
    std::fs::remove_dir_all(cluster.home.join("1")).unwrap();
    cluster.start(node(1), &quiet(), on_disk);
    cluster.tell();
    for _ in 0..2 {
        assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
        // Writes are accepted all the while.
        put(cluster.node(1), "other", value("b"));
        restart(&mut cluster);
    }
    cluster.network.mend(node(2));
    until("the record of node 2", || {
        matches!(counted(&cluster, 1), Ok(Held::Record(_)))
    });
    assert_eq!(cluster.values(1, "k"), ["a"]);
    assert_eq!(cluster.values(1, "other"), ["b"]);
}

#[test]
fn single_replicas_and_weak_quorums_wait_for_no_absent_node() {
    let mut cluster = Cluster::of(1, 1, &quiet(), in_memory);
    cluster.stop(node(1));
    cluster.start(node(1), &quiet(), in_memory);
    assert_eq!(counted(&cluster, 1), Ok(Held::Nothing));

    let mut cluster = Cluster::of(2, 1, &quiet(), in_memory);
    (cluster.settings.reads, cluster.settings.writes) = (1, 1);
    cluster.stop(node(2));
    cluster.set_live(node(2), false);
    cluster.stop(node(1));
    cluster.start(node(1), &quiet(), in_memory);
    cluster.tell();
    until("an answer", || counted(&cluster, 1) == Ok(Held::Nothing));
}

#[test]
fn two_nodes_that_lose_everything_recover() {
    let mut cluster = Cluster::of(2, 1, &often(), in_memory);
    for id in [node(1), node(2)] {
        cluster.stop(id);
        cluster.start(id, &often(), in_memory);
    }
    cluster.tell();
    until("answers", || {
        (1..=2).all(|number| counted(&cluster, number) == Ok(Held::Nothing))
    });
}

/// Nodes that compare often; the first `owners` of them own one partition.
fn of_owners(nodes: u32, owners: u32) -> Cluster {
    let mut cluster = Cluster::of(nodes, 1, &often(), in_memory);
    (cluster.replicas, cluster.settings) = (owners as usize, settings_of(owners));
    cluster.tell();
    cluster
}

fn often() -> ReplicaOptions {
    ReplicaOptions {
        exchange_period: Duration::from_millis(30),
        ..quiet()
    }
}

/// Kills a node, with all data that it had in memory.
fn kill(cluster: &mut Cluster, number: u32) {
    cluster.stop(node(number));
    cluster.set_live(node(number), false);
}

fn start_again(cluster: &mut Cluster, number: u32) {
    cluster.start(node(number), &often(), in_memory);
    cluster.set_live(node(number), true);
}

fn plan(cluster: &mut Cluster, next: &[u32]) {
    let next = next.iter().map(|&number| node(number)).collect();
    cluster.table = Arc::new(cluster.table.with_plan(vec![next]).unwrap());
    cluster.tell();
}

fn is_synchronised(cluster: &Cluster, number: u32) -> bool {
    cluster.node(number).status(STORE_ID).unwrap().synchronised.len() == 1
}

/// Waits until a node has made this many more exchanges.
fn wait_for_exchanges(cluster: &Cluster, number: u32, count: u64) {
    let exchanges = || cluster.node(number).counter(ReplicaCounter::Exchanges);
    let before = exchanges();
    until("comparisons", || exchanges() >= before + count);
}

#[test]
fn nodes_with_losses_cannot_restore_each_other() {
    let mut cluster = of_owners(5, 5);
    // Acknowledged by three of five.
    written_by(&cluster, &[2, 4]);
    for number in [4, 1, 2] {
        kill(&mut cluster, number);
    }
    for number in [1, 2] {
        start_again(&mut cluster, number);
    }
    // A third node without losses would be needed.
    wait_for_exchanges(&cluster, 1, 6);
    for number in [1, 2] {
        assert_eq!(counted(&cluster, number), Err(ReplicaErrorCode::Behind));
    }
    // It has lost everything, too: no other node can have more.
    start_again(&mut cluster, 4);
    until("an answer", || counted(&cluster, 1).is_ok());
}

#[test]
fn a_plan_waits_for_absent_owners_until_given_up() {
    let mut cluster = of_owners(4, 3);
    // Acknowledged by 1 and 2: node 1 loses it, and node 2 is away.
    written_by(&cluster, &[2]);
    kill(&mut cluster, 2);
    kill(&mut cluster, 1);
    start_again(&mut cluster, 1);
    plan(&mut cluster, &[1, 4, 3, 2]);
    wait_for_exchanges(&cluster, 4, 6);
    assert!(!is_synchronised(&cluster, 4), "it was compared with 1 and 3 only");
    assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
    // An operator knows that it will not come back.
    cluster.table = Arc::new(cluster.table.cancelled());
    plan(&mut cluster, &[1, 4, 3]);
    until("the comparisons", || is_synchronised(&cluster, 4));
    until("an answer", || counted(&cluster, 1).is_ok());
}

#[test]
fn a_next_owner_that_loses_data_is_compared_first() {
    let mut cluster = of_owners(4, 3);
    let record = written_by(&cluster, &[2]);
    plan(&mut cluster, &[1, 4, 3, 2]);
    until("synchronisation", || is_synchronised(&cluster, 4));
    let begun = Arc::clone(&cluster.table);
    let switched = Arc::new(begun.switched());
    // Coordinators may get the switched table first.
    cluster.table = Arc::clone(&switched);
    assert!(matches!(counted(&cluster, 4), Ok(Held::Record(_))));
    // The controller continues with the earlier table.
    cluster.table = begun;
    kill(&mut cluster, 4);
    cluster.network.cut(node(4));
    start_again(&mut cluster, 4);
    assert!(!is_synchronised(&cluster, 4));
    cluster.table = switched;
    assert_eq!(
        counted(&cluster, 4),
        Err(ReplicaErrorCode::Behind),
        "coordinators have the switched table, and the node does not"
    );
    cluster.tell();
    assert_eq!(counted(&cluster, 4), Err(ReplicaErrorCode::Behind));
    cluster.network.mend(node(4));
    until("the record of the others", || {
        matches!(counted(&cluster, 4), Ok(Held::Record(_)))
    });
    assert_eq!(cluster.record(4, "k"), Some(record));
}

#[test]
fn a_new_owner_remembers_a_missing_comparison_over_restarts() {
    let mut cluster = Cluster::of(3, 1, &quiet(), on_disk);
    cluster.replicas = 2;
    cluster.settings = settings_of(2);
    cluster.tell();
    put(cluster.node(1), "k", value("a"));
    until("a file that says that nothing is lost", || {
        let path = cluster.home.join("3/incarnation.json");
        std::fs::read_to_string(path).unwrap().contains(r#""behind":false"#)
    });
    cluster.network.cut(node(3));
    plan(&mut cluster, &[1, 3]);
    cluster.table = Arc::new(cluster.table.finished());
    cluster.tell();
    for _ in 0..2 {
        assert_eq!(counted(&cluster, 3), Err(ReplicaErrorCode::Behind));
        cluster.stop(node(3));
        cluster.start(node(3), &quiet(), on_disk);
        cluster.tell();
    }
    cluster.network.mend(node(3));
    until("the record of node 1", || {
        matches!(counted(&cluster, 3), Ok(Held::Record(_)))
    });
}

pub fn in_a_log(dir: &Path) -> Arc<dyn Engine> {
    let options = LogOptions {
        disk_reserve_bytes: 0,
        on_loss: note_losses_of(EngineKind::Disk, dir),
        ..LogOptions::default()
    };
    Arc::new(LogEngine::open(&dir.join("engine"), options).unwrap())
}

/// Empties the log of a stopped node.
fn empty_log(dir: &Path) {
    for entry in std::fs::read_dir(dir.join("1/engine")).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("segment") => std::fs::write(path, b"").unwrap(),
            Some("keys") => std::fs::remove_file(path).unwrap(),
            _ => {}
        }
    }
}

fn restart(cluster: &mut Cluster) {
    cluster.stop(node(1));
    cluster.start(node(1), &quiet(), in_a_log);
    cluster.tell();
}

#[test]
fn an_unrecoverable_loss_blocks_reads_until_accepted() {
    let mut cluster = Cluster::of(1, 1, &quiet(), in_a_log);
    put(cluster.node(1), "k", value("a"));
    restart(&mut cluster);
    assert!(
        matches!(counted(&cluster, 1), Ok(Held::Record(_))),
        "a clean shutdown loses nothing"
    );
    assert_eq!(cluster.node(1).losses(), []);

    cluster.stop(node(1));
    empty_log(&cluster.home);
    cluster.start(node(1), &quiet(), in_a_log);
    cluster.tell();
    let mut id = String::new();
    for _ in 0..2 {
        assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
        assert_eq!(recalled(&cluster, 1), None);
        let losses = cluster.node(1).losses();
        let [loss] = &losses[..] else { panic!("{losses:?}") };
        assert_eq!((loss.partitions_behind, loss.partitions_alone), (1, 1));
        assert!(
            loss.lost.contains(".segment") || loss.lost.contains("segment 1"),
            "{loss:?}"
        );
        id.clone_from(&loss.id);
        // No other node has it: neither a comparison nor a restart changes that.
        restart(&mut cluster);
    }
    assert_eq!(cluster.node(1).accept_loss("log-00000000").unwrap(), None);
    assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
    assert_eq!(cluster.node(1).accept_loss(&id).unwrap().map(|loss| loss.id), Some(id));
    for _ in 0..2 {
        assert_eq!(counted(&cluster, 1), Ok(Held::Nothing));
        assert_eq!(cluster.node(1).losses(), []);
        restart(&mut cluster);
    }
}

#[test]
fn a_replaced_engine_directory_is_detected() {
    let mut cluster = Cluster::of(2, 1, &quiet(), in_a_log);
    written_by(&cluster, &[2]);
    cluster.stop(node(1));
    std::fs::remove_dir_all(cluster.home.join("1/engine")).unwrap();
    cluster.network.cut(node(2));
    cluster.start(node(1), &quiet(), in_a_log);
    cluster.tell();
    assert_eq!(counted(&cluster, 1), Err(ReplicaErrorCode::Behind));
    assert_eq!(cluster.node(1).losses().len(), 1);
    cluster.network.mend(node(2));
    until("the record of node 2", || {
        matches!(counted(&cluster, 1), Ok(Held::Record(_)))
    });
    until("nothing is lost any more", || cluster.node(1).losses().is_empty());
    restart(&mut cluster);
    assert!(matches!(counted(&cluster, 1), Ok(Held::Record(_))));
}
