//! A thread that does one kind of work until its process stops it.
//!
//! It sleeps on a signal, so that a change and a stop both wake it at once. Dropping its handle stops it and waits for
//! it: no work outlives its data.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use crate::change_signal::ChangeSignal;
use crate::error::ClusterError;

/// The handle on the thread.
pub struct Worker {
    name: &'static str,
    change_signal: Arc<ChangeSignal>,
    ending: Ending,
    thread: Option<JoinHandle<()>>,
}

/// Tells the thread whether it should end.
#[derive(Clone, Default)]
pub struct Ending(Arc<AtomicBool>);

impl Worker {
    /// Starts the work on a thread called `name`. It checks the ending whenever `change_signal` is raised.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        name: &'static str,
        change_signal: Arc<ChangeSignal>,
        work: impl FnOnce(&Ending) + Send + 'static,
    ) -> Result<Self, ClusterError> {
        let ending = Ending::default();
        let theirs = ending.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&theirs))
            .map_err(ClusterError::io("start", format!("{name} thread")))?;
        Ok(Self {
            name,
            change_signal,
            ending,
            thread: Some(thread),
        })
    }

    /// Ends the work, and waits until it has ended.
    pub fn end(&mut self) {
        self.ending.0.store(true, Relaxed);
        self.change_signal.raise();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(thread = self.name, "a thread ended by a panic");
        }
    }
}

impl Ending {
    /// Whether the work should end.
    pub fn has_come(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_sleeping_worker_ends_at_once_when_dropped() {
        let change_signal = Arc::new(ChangeSignal::default());
        let sleeping = Arc::clone(&change_signal);
        let worker = Worker::start("test", change_signal, move |ending| {
            loop {
                let seen = sleeping.count();
                if ending.has_come() {
                    return;
                }
                sleeping.wait(seen, Duration::from_secs(60));
            }
        });
        let begun = Instant::now();
        drop(worker.unwrap());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
