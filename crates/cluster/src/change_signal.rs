//! A signal that wakes threads to read a state again whenever it may have changed.
//!
//! It says that something happened, not what. A thread that reads the count before it reads the state misses no event
//! meanwhile.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The signal: a count of changes, and the threads that wait for the next one.
#[derive(Debug, Default)]
pub struct ChangeSignal {
    raised: Mutex<u64>,
    woken: Condvar,
}

impl ChangeSignal {
    /// Wakes all waiting threads.
    pub fn raise(&self) {
        *self.raised.lock() += 1;
        self.woken.notify_all();
    }

    /// How often it was raised.
    pub fn count(&self) -> u64 {
        *self.raised.lock()
    }

    /// Waits until it was raised more often than `seen`, or for `time`. Returns how often it was raised.
    pub fn wait(&self, seen: u64, time: Duration) -> u64 {
        let silent = |raised: &mut u64| *raised == seen;
        let mut raised = self.raised.lock();
        self.woken.wait_while_for(&mut raised, silent, time);
        *raised
    }
}

/// Counts the passes of a thread over a state, so that others can wait for one that begins from now on.
#[derive(Debug, Default)]
pub struct ChangeWatcher {
    begun: AtomicU64,
    done: AtomicU64,
    ended: ChangeSignal,
}

impl ChangeWatcher {
    /// Marks the begin of a pass. Returns its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// Marks the end of a pass, after its actions.
    pub fn end(&self, pass: u64) {
        self.done.store(pass, SeqCst);
        self.ended.raise();
    }

    /// The number of passes.
    pub fn count(&self) -> u64 {
        self.done.load(SeqCst)
    }

    /// Raises the signal, and waits until a pass that begins from now on is done, at most for `timeout`.
    pub fn wait(&self, change_signal: &ChangeSignal, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let wanted = self.begun.load(SeqCst) + 1;
        change_signal.raise();
        loop {
            let seen = self.ended.count();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.count() >= wanted || left.is_zero() {
                return;
            }
            self.ended.wait(seen, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_before_the_wait_is_not_missed() {
        let change_signal = ChangeSignal::default();
        let seen = change_signal.count();
        change_signal.raise();
        assert_eq!(change_signal.wait(seen, Duration::from_secs(60)), seen + 1);
        assert_eq!(
            change_signal.wait(seen + 1, Duration::ZERO),
            seen + 1,
            "nothing happened since"
        );
    }

    #[test]
    fn all_waiting_threads_are_woken() {
        let change_signal = ChangeSignal::default();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| change_signal.wait(0, Duration::from_secs(60))))
                .collect();
            change_signal.raise();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), 1);
            }
        });
    }
}
