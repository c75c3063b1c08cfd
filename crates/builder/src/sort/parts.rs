//! Hands the buckets of a sort to several threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use parking_lot::Mutex;

use super::bucket::Part;
use crate::error::BuildError;
use crate::input::or_panic;

/// The buckets that no thread has taken yet.
pub(crate) struct Parts {
    left: Mutex<std::iter::Enumerate<std::vec::IntoIter<Part>>>,
    stopped: AtomicBool,
}

impl Parts {
    /// The next bucket and its number; `None` at the end, and after an error in another thread.
    pub(crate) fn next(&self) -> Option<(usize, Part)> {
        match self.stopped.load(Ordering::Relaxed) {
            true => None,
            false => self.left.lock().next(),
        }
    }
}

/// Runs `work` in some threads. Each of them takes bucket after bucket.
pub(crate) fn in_threads<T: Send>(
    threads: usize,
    parts: Vec<Part>,
    work: impl Fn(&Parts) -> Result<T, BuildError> + Sync,
) -> Result<Vec<T>, BuildError> {
    let parts = Parts {
        left: Mutex::new(parts.into_iter().enumerate()),
        stopped: AtomicBool::new(false),
    };
    let run = || {
        let result = work(&parts);
        if result.is_err() {
            parts.stopped.store(true, Ordering::Relaxed);
        }
        result
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(ScopedJoinHandle::join).map(or_panic).collect()
    });
    results.into_iter().collect()
}
