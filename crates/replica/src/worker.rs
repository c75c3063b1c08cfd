//! A thread in the background of the replicas: it sleeps until it is woken, its time has come or it is to
//! end. What it does is begun again after a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::ReplicasError;

/// How soon it begins again after a panic.
const AGAIN: Duration = Duration::from_secs(1);

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
    /// Starts a thread that does `work` until its signal says that it is to end; `panicked` hears of each panic.
    pub(crate) fn start(
        name: &'static str,
        signal: Arc<Signal>,
        work: impl Fn(&Signal) + Send + 'static,
        panicked: impl Fn() + Send + 'static,
    ) -> Result<Self, ReplicasError> {
        let theirs = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // It begins with nothing of what it had.
                while catch_unwind(AssertUnwindSafe(|| work(&theirs))).is_err() {
                    tracing::error!(name, "a thread of the replicas panicked, and begins again");
                    panicked();
                    if !theirs.pause(AGAIN) {
                        return;
                    }
                }
            })
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
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;

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
            || {},
        );
        drop(worker.unwrap());
    }

    #[test]
    fn a_thread_that_panics_begins_again() {
        let (sender, begun) = mpsc::channel();
        let times = AtomicUsize::new(0);
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&panics);
        let work = move |signal: &Signal| {
            sender.send(()).unwrap();
            assert!(times.fetch_add(1, Relaxed) > 0, "the first time it does not go well");
            while signal.sleep(Duration::from_secs(60)) {}
        };
        let counting = move || {
            counted.fetch_add(1, Relaxed);
        };
        let worker = Worker::start("test", Arc::default(), work, counting).unwrap();
        for _ in 0..2 {
            begun.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        drop(worker);
        assert_eq!(panics.load(Relaxed), 1);
    }
}
