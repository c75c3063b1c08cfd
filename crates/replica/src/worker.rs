//! A thread in the background of the replicas: it sleeps until it is woken, its time has come or it is to
//! end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::ReplicasError;

/// What wakes a thread, and what it asks whether it is to go on.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    has_ended: bool,
}

impl Signal {
    /// Wakes the thread, or keeps it from sleeping next.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Whether the thread is to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Sleeps until it is woken or ended, for so long at most. Whether the thread is to go on.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let still = |state: &mut State| !state.is_woken && !state.has_ended;
        let waited = self.changed.wait_timeout_while(self.lock(), time, still);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_woken = false;
        !state.has_ended
    }

    /// Sleeps until it is ended, for so long at most. Whether the thread is to go on.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let still = |state: &mut State| !state.has_ended;
        let waited = self.changed.wait_timeout_while(self.lock(), time, still);
        !waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Two flags: whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. Dropping this ends it, and waits for it.
#[derive(Debug)]
pub(crate) struct Worker {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that does `work` until its signal says that it is to end.
    pub(crate) fn start(
        name: &'static str,
        signal: Arc<Signal>,
        work: impl FnOnce(&Signal) + Send + 'static,
    ) -> Result<Self, ReplicasError> {
        let theirs = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&theirs))
            .map_err(ReplicasError::io("start the thread", name.as_ref()))?;
        Ok(Self {
            signal,
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the replicas ended by a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_woke_it_before_it_slept_is_not_missed_and_the_end_is_final() {
        let signal = Signal::default();
        signal.wake();
        assert!(signal.sleep(Duration::from_secs(60)));
        signal.end();
        assert!(!signal.sleep(Duration::from_secs(60)));
        assert!(!signal.pause(Duration::from_secs(60)));
        assert!(signal.has_ended());
    }

    #[test]
    fn a_thread_that_sleeps_ends_when_its_handle_is_dropped() {
        let worker = Worker::start(
            "test",
            Arc::default(),
            |signal| while signal.sleep(Duration::from_secs(60)) {},
        );
        drop(worker.unwrap());
    }
}
