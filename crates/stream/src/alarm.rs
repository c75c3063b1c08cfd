//! The alarm that wakes the threads of the ingest when a source has new records, or when there is another overlay to
//! feed.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// See the [module](self). Sources ring it on threads of their own, with locks of their own held: so it holds its lock
/// for a moment only, and nothing else.
#[derive(Default)]
pub struct Alarm {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    /// The readers and partitions with new records.
    records: Vec<(u64, u32)>,
    /// How often something else has changed.
    changes: u64,
}

impl Alarm {
    /// A reader's partition has new records.
    pub fn ring(&self, reader: u64, partition: u32) {
        self.state.lock().records.push((reader, partition));
        self.rung.notify_one();
    }

    /// All threads must look again.
    pub(crate) fn ring_all(&self) {
        self.state.lock().changes += 1;
        self.rung.notify_all();
    }

    /// The readers and partitions with new records since the last call, and how often something else has changed.
    pub(crate) fn take(&self) -> (Vec<(u64, u32)>, u64) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.records), state.changes)
    }

    /// Waits until it is rung, or something has changed since it was taken, or for so long.
    pub(crate) fn wait(&self, changes: u64, time: Option<Duration>) {
        let mut state = self.state.lock();
        if !state.records.is_empty() || state.changes != changes {
            return;
        }
        match time {
            Some(time) => _ = self.rung.wait_for(&mut state, time),
            None => self.rung.wait(&mut state),
        }
    }
}
