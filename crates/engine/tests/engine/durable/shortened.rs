//! Logs that are shorter than before, or missing: a loss, although all remaining data is intact.

use std::fs;
use std::path::Path;

use fondaco_engine::EngineError;

use super::engines::{Kind, Options};
use super::rot::{content, copy_without_keys, files, is_log, last_log, open_noting, read, written};

/// Damages a copy of a database. The engine must refuse to open it, or report a loss.
fn is_noticed(kind: Kind, source: &Path, what: &str, damage: impl Fn(&Path)) {
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source, copy.path());
    damage(copy.path());
    let refused = kind.open(copy.path(), Options::default()).err();
    assert!(
        matches!(refused, Some(EngineError::Corrupt { .. })),
        "{what}: {refused:?}"
    );
    let opened = open_noting(kind, copy.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(opened.lost_writes.is_some(), "{what}");
    drop(opened);
    // It is reported once.
    let again = kind.open(copy.path(), Options::default()).err();
    assert!(again.is_none(), "{what}: {again:?}");
}

pub fn a_log_shorter_than_before_is_a_loss(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    written(kind, source.path());
    let log = last_log(source.path());
    let in_copy = |copy: &Path| copy.join(log.strip_prefix(source.path()).unwrap());
    let whole = content(&log);
    for length in [0, 100, whole.len() / 2, whole.len() - 1] {
        is_noticed(kind, source.path(), &format!("cut to {length}"), |copy| {
            fs::write(in_copy(copy), &whole[..length]).unwrap();
        });
        is_noticed(kind, source.path(), &format!("zeros from {length} on"), |copy| {
            let mut zeroed = whole[..length].to_vec();
            zeroed.resize(whole.len(), 0);
            fs::write(in_copy(copy), zeroed).unwrap();
        });
    }
    if kind == Kind::Log {
        let logs: Vec<_> = files(source.path()).into_iter().filter(|path| is_log(path)).collect();
        for log in &logs {
            let whole = content(log);
            // A file without any batch.
            if whole.len() < 1000 {
                continue;
            }
            is_noticed(
                kind,
                source.path(),
                &format!("the last byte of {log:?} is missing"),
                |copy| {
                    fs::write(
                        copy.join(log.strip_prefix(source.path()).unwrap()),
                        &whole[..whole.len() - 1],
                    )
                    .unwrap();
                },
            );
        }
    }
}

pub fn a_missing_log_is_a_loss(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    written(kind, source.path());
    let logs = files(source.path())
        .into_iter()
        .filter(|path| is_log(path) && content(path).len() > 1000);
    // After a kill, older files of a tree's log may be missing because fjall deleted them.
    for log in logs {
        is_noticed(kind, source.path(), &format!("{log:?} is missing"), |copy| {
            fs::remove_file(copy.join(log.strip_prefix(source.path()).unwrap())).unwrap();
        });
    }
    is_noticed(kind, source.path(), "the whole log is missing", |copy| {
        let logs = files(copy).into_iter().filter(|path| is_log(path));
        logs.for_each(|log| fs::remove_file(log).unwrap());
    });
    is_noticed(kind, source.path(), "the high-water file is missing", |copy| {
        fs::remove_file(copy.join("high-water")).unwrap();
    });
}

pub fn a_directory_whose_making_was_interrupted_has_lost_nothing(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    written(kind, source.path());
    // How much of the file is on the disk after a loss of power.
    for length in [0, 24, 1000] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("high-water"), vec![0; length]).unwrap();
        let engine = kind.open(dir.path(), Options::default()).unwrap();
        drop(engine);
        drop(kind.open(dir.path(), Options::default()).unwrap());
    }
    // Beside data it is damage.
    is_noticed(kind, source.path(), "the high-water file is empty", |copy| {
        fs::write(copy.join("high-water"), b"").unwrap();
    });
}

pub fn neither_a_clean_stop_nor_a_kill_is_a_loss(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    for _ in 0..3 {
        let engine = kind.open(source.path(), Options::default()).unwrap();
        assert_eq!(read(&*engine, &records), 0);
        assert_eq!(engine.damage(), None);
    }
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source.path(), copy.path());
    let engine = kind.open(copy.path(), Options::default()).unwrap();
    assert_eq!(read(&*engine, &records), 0);
}
