//! Logs that are shorter than they were, or gone: a loss, although all that is there is whole.

use std::fs;
use std::path::Path;

use fondaco_engine::EngineError;

use crate::engines::{Kind, Opened, Options};
use crate::rot::{GOING_ON, content, copy_without_keys, files, is_log, last_log, read, written};

/// Damages a copy of a database: it is refused, or says that it has lost something.
fn is_noticed(kind: Kind, source: &Path, what: &str, damage: impl Fn(&Path)) {
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source, copy.path());
    damage(copy.path());
    let refused = kind.open(copy.path(), Options::default()).err();
    assert!(
        matches!(refused, Some(EngineError::Corrupt { .. })),
        "{what}: {refused:?}"
    );
    let opened = kind
        .open(copy.path(), GOING_ON)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(opened.lost_writes.is_some(), "{what}");
    opened.engine.forget_loss().unwrap();
    drop(opened);
    let opened = kind.open(copy.path(), Options::default()).unwrap();
    assert_eq!(opened.lost_writes, None, "{what}");
}

pub fn a_log_that_is_shorter_than_it_was_has_lost_something(kind: Kind) {
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
            // One that nothing was written to yet.
            if whole.len() < 1000 {
                continue;
            }
            is_noticed(
                kind,
                source.path(),
                &format!("the last byte of {log:?} is gone"),
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

pub fn a_log_that_is_gone_has_lost_something(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    written(kind, source.path());
    let logs = files(source.path())
        .into_iter()
        .filter(|path| is_log(path) && content(path).len() > 1000);
    // What is gone of a tree's log that is older may have been deleted with cause, as far as can be seen after a kill.
    for log in logs {
        is_noticed(kind, source.path(), &format!("{log:?} is gone"), |copy| {
            fs::remove_file(copy.join(log.strip_prefix(source.path()).unwrap())).unwrap();
        });
    }
    is_noticed(kind, source.path(), "all of the log is gone", |copy| {
        let logs = files(copy).into_iter().filter(|path| is_log(path));
        logs.for_each(|log| fs::remove_file(log).unwrap());
    });
    is_noticed(kind, source.path(), "what says how long it was is gone", |copy| {
        fs::remove_file(copy.join("high-water")).unwrap();
    });
}

pub fn an_orderly_stop_leaves_nothing_to_be_missed(kind: Kind) {
    let source = tempfile::tempdir().unwrap();
    let records = written(kind, source.path());
    for _ in 0..3 {
        let Opened { engine, lost_writes } = kind.open(source.path(), Options::default()).unwrap();
        assert_eq!(lost_writes, None);
        assert_eq!(read(&*engine, &records), 0);
        assert_eq!(engine.damage(), None);
    }
    let copy = tempfile::tempdir().unwrap();
    copy_without_keys(source.path(), copy.path());
    let Opened { engine, lost_writes } = kind.open(copy.path(), Options::default()).unwrap();
    assert_eq!(lost_writes, None);
    assert_eq!(read(&*engine, &records), 0);
}
