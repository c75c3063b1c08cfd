//! How fast a backup is read or restored: no faster than was said, by all who do so side by side, and no longer than is
//! wanted.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::bail;
use fondaco_model::TokenBucket;
use parking_lot::Mutex;

/// How often a job that holds itself back looks whether it should stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A limit in bytes a second, and what was done under it.
pub struct Pace<'a> {
    started: Instant,
    bucket: Mutex<TokenBucket>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
    has_failed: AtomicBool,
}

impl<'a> Pace<'a> {
    /// Begins now; 0 is as fast as it goes.
    pub fn new(bytes_per_second: u64, is_stopped: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let limit = Some(bytes_per_second).filter(|limit| *limit > 0);
        Self {
            started: Instant::now(),
            bucket: Mutex::new(TokenBucket::new(limit, Duration::ZERO)),
            is_stopped,
            has_failed: AtomicBool::new(false),
        }
    }

    /// One of the threads that share it has failed: the others need not go on.
    pub fn give_up(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// So many bytes more were moved: returns when the next ones may be.
    ///
    /// # Errors
    /// The job is to stop, or another one has failed.
    pub fn moved(&self, bytes: u64) -> anyhow::Result<()> {
        let delay = {
            let mut bucket = self.bucket.lock();
            bucket.take(bytes, self.started.elapsed());
            bucket.delay(self.started.elapsed())
        };
        self.pause(delay)
    }

    /// Waits.
    ///
    /// # Errors
    /// The job is to stop, or another one has failed.
    pub fn pause(&self, time: Duration) -> anyhow::Result<()> {
        let ends = Instant::now() + time;
        loop {
            if (self.is_stopped)() {
                bail!("interrupted");
            }
            if self.has_failed.load(Relaxed) {
                bail!("given up: another partition could not be read");
            }
            match ends.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK_INTERVAL)),
                _ => return Ok(()),
            }
        }
    }
}
