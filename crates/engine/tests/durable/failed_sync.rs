//! A disk that did not take what was to be on it. The kernel may have dropped what it could not write, and says
//! nothing of that when it is asked again: so nothing is promised any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_engine::{Engine, EngineError, WriteBatch};
use fondaco_testing::fail_syncs_of_this_thread;

use crate::engines::{Kind, Options};
use crate::rot::remove_keys;

fn put(engine: &dyn Engine, value: &'static str) -> Result<(), EngineError> {
    let table = engine.open_table("t")?;
    let mut batch = WriteBatch::new();
    batch.put(&*table, Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()));
    engine.write(batch)
}

pub fn after_a_sync_that_failed_nothing_is_written_or_promised_until_it_is_opened_again(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap().engine;
    let engine = open();
    put(&*engine, "before").unwrap();
    engine.sync().unwrap();
    put(&*engine, "not on the disk").unwrap();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fail_syncs_of_this_thread();
            engine.sync().unwrap_err()
        });
        let error = failing.join().unwrap();
        assert!(matches!(error, EngineError::SyncFailed { .. }), "{error}");
        assert!(error.to_string().contains("os error 5"), "{error}");
    });
    // From here on the disk would take everything again.
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

pub fn the_first_sync_covers_what_an_earlier_process_wrote(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap().engine;
    let engine = open();
    put(&*engine, "perhaps in the memory of the operating system only").unwrap();
    drop(engine);
    // As a process that is killed leaves it.
    remove_keys(dir.path());
    // A tree cannot be opened without a sync. A log can, and its own thread must not be the first to sync.
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

pub fn what_fails_behind_the_writer_is_the_end_of_writing_unless_the_disk_is_full(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default()).unwrap().engine;
    let engine = match kind {
        Kind::Tree => open(),
        // Its thread fails to sync.
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
    // Its threads fail to write out.
    let tables = (kind == Kind::Tree).then(|| Away::take(last_tables(dir.path())));
    let deadline = Instant::now() + Duration::from_secs(30);
    let error = loop {
        assert!(Instant::now() < deadline, "nothing fails");
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

/// The directory of the files of the table that was made last.
fn last_tables(dir: &Path) -> PathBuf {
    let tables = fs::read_dir(dir.join("fjall/keyspaces")).unwrap();
    let tables = tables.map(|entry| entry.unwrap().path().join("tables"));
    tables.max().unwrap()
}

/// A directory that has another name for a while.
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
