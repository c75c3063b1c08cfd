//! Tracks which writes are on the disk.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::EngineError;

/// The number of writes, and how many of them the last sync covers.
#[derive(Debug)]
pub(crate) struct Synced {
    /// The number of batches written, and how many of them the last sync covers. All data that existed at the start
    /// counts as one batch.
    written: AtomicU64,
    synced: Mutex<u64>,
    /// The error of the first sync that failed.
    failure: OnceLock<String>,
}

impl Synced {
    /// The state of an engine that is being opened: some of its data may be only in the page cache, which survives the
    /// process that wrote it. So the first sync has something to do.
    pub(crate) fn at_start() -> Self {
        Self {
            written: AtomicU64::new(1),
            synced: Mutex::new(0),
            failure: OnceLock::new(),
        }
    }

    /// Records that a batch was written.
    pub(crate) fn wrote(&self) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Waits until all previous writes are on the disk. Of concurrent callers, one syncs for all.
    pub(crate) fn sync(&self, dir: &Path, sync: impl FnOnce() -> Result<(), EngineError>) -> Result<(), EngineError> {
        let needed = self.written.load(Ordering::Acquire);
        let mut synced = self.synced.lock();
        self.check(dir)?;
        if *synced < needed {
            let covered = self.written.load(Ordering::Acquire);
            sync()?;
            // Another caller may have received the error.
            self.check(dir)?;
            *synced = covered;
        }
        Ok(())
    }

    /// Syncs a part of the writes, while no other thread syncs. If several threads share an open file, the kernel
    /// reports a write error to only one of them, and the next sync would wrongly succeed.
    pub(crate) fn sync_part(&self, dir: &Path, sync: impl FnOnce() -> io::Result<()>) -> Result<(), EngineError> {
        let _synced = self.synced.lock();
        self.check(dir)?;
        sync().map_err(|error| self.failed(dir, &error))
    }

    /// Records that a sync failed.
    pub(crate) fn failed(&self, dir: &Path, error: &io::Error) -> EngineError {
        let reason = self.failure.get_or_init(|| error.to_string());
        sync_failed(dir, reason)
    }

    /// Fails if a sync has ever failed. The kernel may have dropped the data that it could not write, without
    /// remembering that: a later sync would make a false promise. So no more writes are accepted.
    pub(crate) fn check(&self, dir: &Path) -> Result<(), EngineError> {
        self.failure
            .get()
            .map_or(Ok(()), |reason| Err(sync_failed(dir, reason)))
    }
}

fn sync_failed(dir: &Path, reason: &str) -> EngineError {
    EngineError::SyncFailed {
        dir: dir.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sync_covers_everything_later_ones_only_new_writes() {
        let (synced, dir) = (Synced::at_start(), Path::new("d"));
        let mut syncs = 0;
        for is_written in [false, false, true, false] {
            if is_written {
                synced.wrote();
            }
            let count = || {
                syncs += 1;
                Ok(())
            };
            synced.sync(dir, count).unwrap();
        }
        assert_eq!(syncs, 2);
    }

    #[test]
    fn after_any_failed_sync_nothing_is_promised() {
        let (synced, dir) = (Synced::at_start(), Path::new("d"));
        let meanwhile = || {
            synced.failed(dir, &io::Error::other("reported to another caller"));
            Ok(())
        };
        assert!(synced.sync(dir, meanwhile).is_err());
        let mut is_synced = false;
        let part = synced.sync_part(dir, || {
            is_synced = true;
            Ok(())
        });
        assert!(matches!(part, Err(EngineError::SyncFailed { .. })) && !is_synced);

        let synced = Synced::at_start();
        assert!(synced.sync_part(dir, || Err(io::Error::other("of a part"))).is_err());
        let error = synced.sync(dir, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("of a part"), "{error}");
    }
}
