//! A node whose database fails over to a replica that lagged: it continues by itself, under a new incarnation, and
//! reads count on it once its data is restored from other nodes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fondaco_engine::{CacheBudget, DiskEngine, DiskOptions, Engine, MySqlEngine, MySqlOptions};
use fondaco_model::versioned::{EngineKind, Record};
use fondaco_protocol::replica::{Held, ReplicaErrorCode, ReplicaReply};
use fondaco_replica::{ReplicaOptions, note_losses_of};
use fondaco_testing::{MariaDb, until};
use tempfile::TempDir;

use crate::cluster::{Cluster, ask, merging, node, put, putting, quiet, value};
use crate::losses::counted;

/// Node 1 uses a database, the others use trees.
fn engine(url: &str) -> impl Fn(&Path) -> Arc<dyn Engine> {
    move |dir: &Path| {
        if dir.ends_with("1") {
            let options = MySqlOptions {
                url: url.to_owned(),
                dir: dir.join("mysql"),
                on_loss: note_losses_of(EngineKind::Disk, dir),
                // Otherwise reads would come from memory.
                cache: CacheBudget::new(0),
            };
            return Arc::new(MySqlEngine::open(&options).unwrap());
        }
        let options = DiskOptions {
            disk_reserve_bytes: 0,
            ..DiskOptions::default()
        };
        Arc::new(DiskEngine::open(&dir.join("engine"), options).unwrap())
    }
}

fn incarnation(record: &bytes::Bytes) -> u32 {
    let record = Record::decode(record.clone()).unwrap();
    record.siblings().last().unwrap().dot.replica.incarnation
}

#[test]
fn a_failover_is_repaired_before_reads_count_on_it() {
    let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut server = MariaDb::start(&[]);
    // The database server stays up.
    let url = server.url("mysql");
    let options = ReplicaOptions {
        exchange_period: Duration::from_millis(100),
        ..quiet()
    };
    let cluster = Cluster::in_dir(dir.path(), 2, 1, &options, engine(&url));
    let write = |key: &str, text: &str| {
        let record = put(cluster.node(1), key, value(text));
        ask(cluster.node(2), merging(key, record.clone()));
        record
    };
    let keys: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
    keys.iter().for_each(|key| drop(write(key, "a")));
    write("k", "a");
    server.copy_data(copy.path());
    let mut before = 0;
    // Some are overwritten, some are new.
    for key in &keys[25..] {
        before = incarnation(&write(key, "b"));
    }
    let newer: Vec<String> = (50..80).map(|number| format!("k{number}")).collect();
    newer.iter().for_each(|key| drop(write(key, "b")));
    write("k", "b");
    cluster.network.cut(node(2));
    server.fail_over_to(copy.path());
    until("the loss to be noticed", || {
        counted(&cluster, 1) == Err(ReplicaErrorCode::Behind)
    });
    until("the loss to be listed", || {
        let losses = cluster.node(1).losses();
        losses
            .iter()
            .any(|loss| loss.lost.contains("went back to an older state"))
    });
    // It accepts writes, under a new incarnation.
    let mut after = before;
    until("a write", || match ask(cluster.node(1), putting("other", value("c"))) {
        ReplicaReply::Written(record) => {
            after = incarnation(&record);
            true
        }
        _ => false,
    });
    assert_ne!(after, before);
    cluster.network.mend(node(2));
    until("the record of node 2", || {
        matches!(counted(&cluster, 1), Ok(Held::Record(_)))
    });
    for key in keys[25..].iter().chain(&newer).map(String::as_str).chain(["k"]) {
        assert_eq!(cluster.values(1, key), ["b"], "{key}");
    }
    for key in &keys[..25] {
        assert_eq!(cluster.values(1, key), ["a"], "{key}");
    }
    assert_eq!(cluster.values(1, "other"), ["c"]);
    until("the loss to be over", || cluster.node(1).losses().is_empty());
}
