//! Reads of the storage that are under way, so that many who ask for one key at once share one of them, and none puts back
//! what a write has replaced meanwhile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::shard::Sought;

/// One of them, for who waits.
#[derive(Debug)]
pub(super) struct Reading {
    table: u64,
    key: Box<[u8]>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Those of a shard.
#[derive(Debug, Default)]
pub(super) struct Readings(Vec<Arc<Reading>>);

impl Reading {
    fn is_of(&self, sought: &Sought<'_>) -> bool {
        self.table == sought.table && *self.key == *sought.key
    }

    /// Waits until it has ended.
    pub(super) fn wait(&self) {
        let ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(ended, |has_ended| !*has_ended));
    }

    /// Ends it: who waits looks again.
    pub(super) fn end(&self) {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

impl Readings {
    /// The one of a key that is under way, or a new one: for the caller to carry out, and to end.
    pub(super) fn join(&mut self, sought: &Sought<'_>) -> Joined {
        if let Some(reading) = self.0.iter().find(|reading| reading.is_of(sought)) {
            return Joined::Others(reading.clone());
        }
        let reading = Arc::new(Reading {
            table: sought.table,
            key: sought.key.into(),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        self.0.push(reading.clone());
        Joined::Own(reading)
    }

    /// Takes one away. Whether it was there: then nobody has written its key since it began.
    pub(super) fn remove(&mut self, reading: &Arc<Reading>) -> bool {
        let at = self.0.iter().position(|other| Arc::ptr_eq(other, reading));
        at.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// How many wait for those that are under way.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        // Beside those, the list and who carries it out have it.
        self.0.iter().map(|reading| Arc::strong_count(reading) - 2).sum()
    }

    /// What is being read of a key is not to be kept: it was written.
    pub(super) fn forget(&mut self, sought: &Sought<'_>) {
        self.0.retain(|reading| !reading.is_of(sought));
    }

    /// The same of all keys.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whose reading it is.
pub(super) enum Joined {
    Own(Arc<Reading>),
    Others(Arc<Reading>),
}
