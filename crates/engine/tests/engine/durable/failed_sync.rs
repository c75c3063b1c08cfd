//! Failed syncs. The kernel may have dropped the data that it could not write, and does not report that on the next
//! sync: so the engine promises nothing any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, WriteBatch};
use fondaco_testing::fail_syncs_of_this_thread;

use super::engines::{Kind, Options};
use super::rot::remove_keys;

fn put(engine: &dyn Engine, value: &'static str) -> Result<(), EngineError> {
    let table = engine.open_table("t")?;
    let mut batch = WriteBatch::new();
    batch.put(&*table, Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()));
    engine.write(batch)
}

pub fn after_a_failed_sync_writes_and_syncs_fail_until_reopened(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap();
    let engine = open();
    put(&*engine, "before").unwrap();
    engine.sync().unwrap();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fail_syncs_of_this_thread();
            // The background thread of a log may be the first to sync a write.
            loop {
                put(&*engine, "not on the disk").unwrap();
                if let Err(error) = engine.sync() {
                    return error;
                }
            }
        });
        let error = failing.join().unwrap();
        assert!(matches!(error, EngineError::SyncFailed { .. }), "{error}");
        assert!(error.to_string().contains("os error 5"), "{error}");
    });
    // From here on syncs would succeed again.
    for _ in 0..2 {
        assert!(matches!(engine.sync(), Err(EngineError::SyncFailed { .. })));
        assert!(matches!(put(&*engine, "after"), Err(EngineError::SyncFailed { .. })));
    }
    let table = engine.open_table("t").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"not on the disk"[..]));
    drop((table, engine));
    let engine = open();
    put(&*engine, "after").unwrap();
    engine.sync().unwrap();
}

pub fn the_first_sync_covers_writes_of_an_earlier_process(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap();
    let engine = open();
    put(&*engine, "perhaps only in the page cache").unwrap();
    drop(engine);
    // Leaves the directory as after a kill.
    remove_keys(dir.path());
    // A tree cannot be opened without a sync. A log can, and its background thread must not be the first to sync.
    let opened = (kind == Kind::Tree).then(open);
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fail_syncs_of_this_thread();
            opened.unwrap_or_else(open).sync()
        });
        let synced = failing.join().unwrap();
        assert!(matches!(synced, Err(EngineError::SyncFailed { .. })), "{synced:?}");
    });
    open().sync().unwrap();
}

pub fn background_failures_stop_all_writes_unless_the_disk_is_full(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap();
    let engine = match kind {
        Kind::Tree => open(),
        // Its background thread fails to sync.
        Kind::Log => std::thread::scope(|scope| {
            let failing = scope.spawn(|| {
                put(&*open(), "before").unwrap();
                remove_keys(dir.path());
                fail_syncs_of_this_thread();
                open()
            });
            failing.join().unwrap()
        }),
    };
    put(&*engine, "before").unwrap();
    // Its background threads fail to flush.
    let tables = (kind == Kind::Tree).then(|| Away::take(last_tables(dir.path())));
    let deadline = Instant::now() + Duration::from_secs(30);
    let error = loop {
        assert!(Instant::now() < deadline, "no write fails");
        let table = engine.open_table("t").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&*table, Bytes::from_static(b"long"), vec![1; 10_000].into());
        if let Err(error) = engine.write(batch) {
            break error;
        }
    };
    drop(tables);
    assert!(matches!(error, EngineError::SyncFailed { .. }), "{error}");
    for _ in 0..2 {
        assert!(matches!(put(&*engine, "after"), Err(EngineError::SyncFailed { .. })));
        assert!(matches!(engine.sync(), Err(EngineError::SyncFailed { .. })));
    }
    assert_eq!(
        engine.open_table("t").unwrap().get(b"k").unwrap().as_deref(),
        Some(&b"before"[..])
    );
    drop(engine);
    let engine = open();
    put(&*engine, "after").unwrap();
    engine.sync().unwrap();
}

/// The directory of the files of the newest table.
fn last_tables(dir: &Path) -> PathBuf {
    let tables = fs::read_dir(dir.join("fjall/keyspaces")).unwrap();
    let tables = tables.map(|entry| entry.unwrap().path().join("tables"));
    tables.max().unwrap()
}

/// A directory that is renamed for a while.
struct Away {
    path: PathBuf,
    away: PathBuf,
}

impl Away {
    fn take(path: PathBuf) -> Self {
        let away = path.with_extension("away");
        fs::rename(&path, &away).unwrap();
        Self { path, away }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let renamed = fs::rename(&self.away, &self.path);
        assert!(renamed.is_ok() || std::thread::panicking(), "{renamed:?}");
    }
}
