//! Whether a partition is followed, and its log then.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::log::{ChangeLog, LoggedChange};

/// The log of a partition, if there is one. It begins between two groups of writes of the partition's shard, and ends when this node can
/// no longer tell the changes, or it has no reader any more.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Writers look at this only.
    is_followed: AtomicBool,
    log: Mutex<Option<ChangeLog>>,
    completing: Mutex<()>,
}

impl Followed {
    /// Whether there is a log. Its beginning is seen by all groups of writes after it.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Relaxed)
    }

    /// Begins a log, unless there is one, or `may` says no. Only in the turn of the partition's shard.
    pub(crate) fn begin(&self, new: ChangeLog, may: impl FnOnce() -> bool) {
        let mut log = self.log.lock();
        // If the answer of `may` changes later, the change ends the log.
        if log.is_none() && may() {
            *log = Some(new);
            self.is_followed.store(true, Relaxed);
        }
    }

    /// Ends the log, and wakes the followers that wait for changes.
    pub(crate) fn end(&self) {
        let mut log = self.log.lock();
        self.is_followed.store(false, Relaxed);
        *log = None;
    }

    /// Adds changes that were committed.
    pub(crate) fn add(&self, changes: impl Iterator<Item = LoggedChange>, now_unix_ms: u64) {
        if let Some(log) = &mut *self.log.lock() {
            log.add(changes, now_unix_ms);
        }
    }

    /// Uses the log; `None` if the partition is not followed.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut ChangeLog) -> T) -> Option<T> {
        self.log.lock().as_mut().map(ask)
    }

    /// Held by the reader that scans the table for a new log; `None` if another one does.
    pub(crate) fn completing(&self) -> Option<MutexGuard<'_, ()>> {
        self.completing.try_lock()
    }
}
