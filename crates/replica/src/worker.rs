//! Chores: the background work of replicas. A chore is a future that waits for replies, for shards and for time. In a
//! node, a thread of its own polls it; a simulation polls it itself ([`DrivenChore`]).
//!
//! A chore sleeps until it is woken, a time comes or it is ended. On a thread it is restarted after a panic.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::ReplicasError;
use crate::host::Host;

/// How soon it is restarted after a panic.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Wakes a chore, and says whether it should go on.
#[derive(Debug)]
pub(crate) struct Signal {
    host: Arc<dyn Host>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    has_ended: bool,
    /// Whether the chore should be polled.
    is_ready: bool,
    /// The time at which it is polled at the latest.
    wakes_at: Option<Instant>,
}

impl Signal {
    /// A signal with the clock of a host.
    pub(crate) fn new(host: &Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            host: Arc::clone(host),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Wakes the chore; if it is not asleep, its next sleep ends at once.
    pub(crate) fn wake(&self) {
        self.change(|state| state.is_woken = true);
    }

    fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.is_ready = true;
        self.changed.notify_all();
    }

    /// Whether the chore should end.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Sleeps until it is woken or ended, at most for this time. Returns whether the chore should go on.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        let until = self.host.now() + time;
        poll_fn(|_| {
            let is_over = self.poll_until(until).is_ready();
            let mut state = self.lock();
            if !is_over && !state.is_woken && !state.has_ended {
                return Poll::Pending;
            }
            state.is_woken = false;
            Poll::Ready(!state.has_ended)
        })
        .await
    }

    /// Sleeps until it is ended, at most for this time. Returns whether the chore should go on.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        let until = self.host.now() + time;
        poll_fn(|_| match self.poll_until(until).is_ready() || self.has_ended() {
            true => Poll::Ready(!self.has_ended()),
            false => Poll::Pending,
        })
        .await
    }

    /// Whether this time has come. If not, the chore is polled then.
    pub(crate) fn poll_until(&self, until: Instant) -> Poll<()> {
        if self.host.now() >= until {
            return Poll::Ready(());
        }
        let mut state = self.lock();
        state.wakes_at = Some(state.wakes_at.map_or(until, |at| at.min(until)));
        Poll::Pending
    }

    /// Polls the chore.
    fn poll(self: &Arc<Self>, work: Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> Poll<()> {
        {
            let mut state = self.lock();
            (state.is_ready, state.wakes_at) = (false, None);
        }
        work.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    /// Waits until the chore should be polled.
    fn wait(&self) {
        let mut state = self.lock();
        while !state.is_ready {
            let left = state.wakes_at.map(|at| at.saturating_duration_since(self.host.now()));
            match left {
                None => self.changed.wait(&mut state),
                Some(Duration::ZERO) => return,
                Some(left) => _ = self.changed.wait_for(&mut state, left),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is flags and a time: consistent even if a thread panicked.
        self.state.lock()
    }
}

// The trait is not imported, because its `wake` would be confused with that of the signal.
impl std::task::Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.change(|_| ());
    }
}

/// The thread of a chore. Dropping this ends it, and waits for it.
#[derive(Debug)]
pub(crate) struct Worker {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that runs `work` until its signal ends it; `panicked` is called after each panic.
    pub(crate) fn start<W: Future<Output = ()>>(
        name: &'static str,
        signal: Arc<Signal>,
        work: impl Fn() -> W + Send + 'static,
        panicked: impl Fn() + Send + 'static,
    ) -> Result<Self, ReplicasError> {
        let theirs = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // It is restarted with new state.
                while catch_unwind(AssertUnwindSafe(|| block_on(&theirs, work()))).is_err() {
                    tracing::error!(name, "a thread of the replicas panicked, and is restarted");
                    panicked();
                    block_on(&theirs, async { _ = theirs.pause(RETRY_DELAY).await });
                    if theirs.has_ended() {
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

/// Polls a chore until it ends, whenever its signal is ready.
fn block_on(signal: &Arc<Signal>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    while signal.poll(work.as_mut()).is_pending() {
        signal.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the replicas panicked");
        }
    }
}

/// A chore without a thread.
pub(crate) struct DrivenChore {
    pub(crate) name: &'static str,
    signal: Arc<Signal>,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

impl DrivenChore {
    /// A chore that is ready at once.
    pub(crate) fn new(name: &'static str, signal: Arc<Signal>, work: Pin<Box<dyn Future<Output = ()>>>) -> Self {
        signal.change(|_| ());
        Self { name, signal, work }
    }

    /// Polls it if it is ready. Returns whether it was.
    pub(crate) fn poll(&mut self) -> bool {
        let is_due = self.wakes_at().is_some_and(|at| at <= self.signal.host.now());
        if is_due {
            // It is dropped before it is ended.
            let _ = self.signal.poll(self.work.as_mut());
        }
        is_due
    }

    /// When it is to be polled next; `None` if it does not wait for a time.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        let state = self.signal.lock();
        match state.is_ready {
            true => Some(self.signal.host.now()),
            false => state.wakes_at,
        }
    }
}

impl fmt::Debug for DrivenChore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DrivenChore({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;

    use super::*;
    use crate::host::tests::any;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_early_wake_is_kept_and_the_end_is_final() {
        let signal = Signal::new(&any());
        let goes_on = |is_paused: bool| {
            let mut goes_on = false;
            block_on(&signal, async {
                goes_on = match is_paused {
                    true => signal.pause(LONG).await,
                    false => signal.sleep(LONG).await,
                };
            });
            goes_on
        };
        signal.wake();
        assert!(goes_on(false));
        signal.end();
        assert!(!goes_on(false));
        assert!(!goes_on(true));
        assert!(signal.has_ended());
    }

    #[test]
    fn a_sleeping_thread_ends_when_its_handle_is_dropped() {
        let signal = Signal::new(&any());
        let theirs = Arc::clone(&signal);
        let work = move || {
            let signal = Arc::clone(&theirs);
            async move { while signal.sleep(LONG).await {} }
        };
        drop(Worker::start("test", signal, work, || {}).unwrap());
    }

    #[test]
    fn a_thread_that_panics_is_restarted() {
        let (sender, begun) = mpsc::channel();
        let times = Arc::new(AtomicUsize::new(0));
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&panics);
        let signal = Signal::new(&any());
        let theirs = Arc::clone(&signal);
        let work = move || {
            let (sender, times, signal) = (sender.clone(), Arc::clone(&times), Arc::clone(&theirs));
            async move {
                sender.send(()).unwrap();
                assert!(times.fetch_add(1, Relaxed) > 0, "the first run panics");
                while signal.sleep(LONG).await {}
            }
        };
        let counting = move || {
            counted.fetch_add(1, Relaxed);
        };
        let worker = Worker::start("test", signal, work, counting).unwrap();
        for _ in 0..2 {
            begun.recv_timeout(LONG).unwrap();
        }
        drop(worker);
        assert_eq!(panics.load(Relaxed), 1);
    }

    #[test]
    fn a_driven_chore_is_polled_when_it_is_woken() {
        let signal = Signal::new(&any());
        let (times, theirs) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&signal));
        let counted = Arc::clone(&times);
        let work = async move {
            while theirs.sleep(LONG).await {
                counted.fetch_add(1, Relaxed);
            }
        };
        let mut chore = DrivenChore::new("test", Arc::clone(&signal), Box::pin(work));
        assert!(chore.poll(), "it begins");
        assert!(!chore.poll(), "it sleeps");
        signal.wake();
        assert!(chore.poll());
        assert!(!chore.poll());
        assert_eq!(times.load(Relaxed), 1);
    }
}
