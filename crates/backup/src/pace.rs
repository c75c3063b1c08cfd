//! The rate of a backup or restore: one limit shared by all threads of a job, and the check whether to stop.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::bail;
use fondaco_model::TokenBucket;
use parking_lot::Mutex;

/// How often a job that waits checks whether it should stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A limit in bytes a second, and the bytes moved under it.
pub struct Pace<'a> {
    started: Instant,
    bucket: Mutex<TokenBucket>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
    has_failed: AtomicBool,
}

impl<'a> Pace<'a> {
    /// Starts the clock; 0 is no limit.
    pub fn new(bytes_per_second: u64, is_stopped: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let limit = Some(bytes_per_second).filter(|limit| *limit > 0);
        Self {
            started: Instant::now(),
            bucket: Mutex::new(TokenBucket::new(limit, Duration::ZERO)),
            is_stopped,
            has_failed: AtomicBool::new(false),
        }
    }

    /// Tells the other threads that share it to stop, since one has failed.
    pub fn give_up(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// Counts these bytes, and returns when the next ones may be moved.
    ///
    /// # Errors
    /// The job is to stop, or another thread has failed.
    pub fn moved(&self, bytes: u64) -> anyhow::Result<()> {
        let delay = {
            let mut bucket = self.bucket.lock();
            bucket.take(bytes, self.started.elapsed());
            bucket.delay(self.started.elapsed())
        };
        self.pause(delay)
    }

    /// Waits for this time.
    ///
    /// # Errors
    /// The job is to stop, or another thread has failed.
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
