//! The data of dropped stores.

use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{DiskEngine, DiskOptions, Engine, LogEngine, LogOptions};
use fondaco_testing::until;

use crate::cluster::{Cluster, dropped, node, put, quiet, value};

fn disk(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(DiskEngine::open(&dir.join("engine"), DiskOptions::default()).unwrap())
}

fn log(dir: &Path) -> Arc<dyn Engine> {
    Arc::new(LogEngine::open(&dir.join("engine"), LogOptions::default()).unwrap())
}

#[test]
fn a_dropped_store_is_kept_for_a_while_then_deleted() {
    for engine in [disk, log] {
        let mut cluster = Cluster::of(1, 1, &quiet(), engine);
        put(cluster.node(1), "k", value("a"));
        let view = cluster.view(node(1));
        for (is_kept, is_found) in [(true, true), (false, false)] {
            let mut without = view.clone();
            without.stores.clear();
            without.dropped.push(dropped(&view, is_kept));
            cluster.node(1).set_view(&without).unwrap();
            cluster.stop(node(1));
            cluster.start(node(1), &quiet(), engine);
            let found = || cluster.record(1, "k").is_some();
            match is_found {
                true => assert!(found(), "the table is kept"),
                false => {
                    cluster.node(1).set_view(&without).unwrap();
                    until("the deletion", || {
                        let opened = cluster.node(1).set_view(&view);
                        let is_gone = opened.is_ok() && !found();
                        cluster.node(1).set_view(&without).unwrap();
                        is_gone
                    });
                }
            }
        }
    }
}

#[test]
fn a_dropped_store_in_memory_is_not_kept() {
    let cluster = Cluster::in_memory(1, 1, &quiet());
    put(cluster.node(1), "k", value("a"));
    let view = cluster.view(node(1));
    let mut without = view.clone();
    without.stores.clear();
    without.dropped.push(dropped(&view, true));
    until("the deletion", || {
        cluster.node(1).set_view(&without).unwrap();
        cluster.node(1).set_view(&view).is_ok() && cluster.record(1, "k").is_none()
    });
}

#[test]
fn a_table_whose_store_is_unknown_is_kept() {
    let cluster = Cluster::of(1, 1, &quiet(), disk);
    put(cluster.node(1), "k", value("a"));
    let mut view = cluster.view(node(1));
    view.stores.clear();
    cluster.node(1).set_view(&view).unwrap();
    until("the table is reported", || {
        cluster.node(1).unexplained_tables().len() == 1
    });
    cluster.tell();
    until("the table is no longer reported", || {
        cluster.node(1).unexplained_tables().is_empty()
    });
    assert!(cluster.record(1, "k").is_some());
}

#[test]
fn a_store_that_follows_a_dropped_one_has_nothing_of_it_and_nothing_is_left_behind() {
    for engine in [disk, log] {
        let mut cluster = Cluster::of(1, 1, &quiet(), engine);
        let mut view = cluster.view(node(1));
        for _ in 0..20 {
            cluster.node(1).set_view(&view).unwrap();
            assert!(cluster.record(1, "k").is_none());
            put(cluster.node(1), "k", value("a"));
            let mut without = view.clone();
            without.stores.clear();
            without.dropped.push(dropped(&view, false));
            cluster.node(1).set_view(&without).unwrap();
            // The same name and number, at another time.
            view.dropped = without.dropped;
            view.stores[0].created_unix_ms += 1;
            assert_eq!(cluster.node(1).unexplained_tables(), Vec::<String>::new());
        }
        cluster.node(1).set_view(&view).unwrap();
        let home = cluster.home.join("1");
        let tables = || {
            let mut tables = engine(&home).tables().unwrap();
            tables.retain(|table| table.starts_with("store-"));
            tables
        };
        cluster.stop(node(1));
        (cluster.created_unix_ms, cluster.dropped) = (view.stores[0].created_unix_ms, view.dropped);
        until("the tables of dropped stores to be deleted", || {
            cluster.start(node(1), &quiet(), engine);
            assert_eq!(cluster.node(1).unexplained_tables(), Vec::<String>::new());
            cluster.stop(node(1));
            tables().len() == 1
        });
    }
}
