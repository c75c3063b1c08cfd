//! Readers hammer a store while it is swapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use fondaco_control::{DataDir, EmbeddedCoordination, Stores, StoresParts};
use fondaco_model::{StoreDefinition, StoreName};
use fondaco_node::{LocationSource, NodeMetrics, Serving, Settings, SharedCatalog, SystemClock};

use crate::harness::{Builds, KEYS, PARTITIONS, key, value, wait_for};

#[test]
fn readers_never_see_a_wrong_or_failed_answer_through_a_hundred_swaps() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Arc::new(SharedCatalog::new());
    let data_dir = DataDir::open(dir.path()).unwrap();
    let stores = Stores::open(StoresParts {
        coordination: Arc::new(EmbeddedCoordination::open(data_dir.metadata()).unwrap()),
        catalog: Arc::clone(&catalog),
        data_dir,
        partitions: PARTITIONS.try_into().unwrap(),
        settings: Arc::new(Settings::default()),
        metrics: Arc::new(NodeMetrics::new(1)),
        reserve_bytes: 0,
        memory_bytes: 1 << 30,
        now_unix_ms: || 0,
        clock: Arc::new(SystemClock::default()),
        sources: |location| Box::new(LocationSource::new(location)),
    })
    .unwrap();
    let name: StoreName = "pymk".parse().unwrap();
    let definition = StoreDefinition::batch(name.clone());
    stores.create(definition).unwrap();
    let builds = Builds::beside();
    let push = |build| {
        stores.push(&name, builds.build(build).to_str().unwrap()).unwrap();
        wait_for("the push to end", || {
            let ended = stores.push_status(&name).unwrap().record.ended_unix_ms;
            ended.map(|_| ())
        });
    };
    push(1);

    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (catalog, stop, reads, name) = (&catalog, &stop, &reads, &name);
            scope.spawn(move || {
                let mut newest = 0;
                for number in (reader..).map(|number| number % KEYS) {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let catalog = catalog.load();
                    let store = catalog.store(name).unwrap();
                    let Serving::Version(version, open) = &store.serving else {
                        panic!("nothing is served");
                    };
                    let found = open.get(key(number).as_bytes()).unwrap().unwrap();
                    assert_eq!(&*found, value(version.get(), number, 50).as_bytes());
                    newest = newest.max(version.get());
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        for build in 2..=51 {
            push(build);
            let before = reads.load(Relaxed);
            wait_for("readers to read on", || {
                (reads.load(Relaxed) > before + 10).then_some(())
            });
            // Back and forth: each push is followed by a rollback or by both.
            stores.roll_back(&name, None).unwrap();
            if build % 2 == 0 {
                stores.roll_back(&name, None).unwrap();
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(stores.swaps() > 100, "{} swaps", stores.swaps());
    // What is given up is freed and deleted, whoever read it.
    let left = || crate::harness::names(&dir.path().join("stores/pymk"));
    wait_for("old versions to be deleted", || (left().len() == 2).then_some(()));
}
