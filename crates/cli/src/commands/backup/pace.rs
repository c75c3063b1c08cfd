//! How fast a backup is read or restored: no faster than was said, and no longer than is wanted.

use std::time::{Duration, Instant};

use anyhow::bail;
use fondaco_model::TokenBucket;

use crate::interrupt::Interrupt;

/// The limit unless said, as it is written: that of everything else that replicas do in the background.
pub const BYTES_PER_SECOND_DEFAULT: &str = "32MiB";

/// How often a command that holds itself back looks whether it should stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A limit in bytes a second, and what was done under it.
pub struct Pace {
    started: Instant,
    bucket: TokenBucket,
    interrupt: Interrupt,
}

impl Pace {
    /// Begins now; 0 is as fast as it goes.
    pub fn new(bytes_per_second: u64) -> anyhow::Result<Self> {
        let limit = Some(bytes_per_second).filter(|limit| *limit > 0);
        Ok(Self {
            started: Instant::now(),
            bucket: TokenBucket::new(limit, Duration::ZERO),
            interrupt: Interrupt::listen()?,
        })
    }

    /// So many bytes more were moved: returns when the next ones may be.
    ///
    /// # Errors
    /// Somebody asked the program to stop.
    pub fn moved(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.bucket.take(bytes, self.started.elapsed());
        let delay = self.bucket.delay(self.started.elapsed());
        self.pause(delay)
    }

    /// Waits.
    ///
    /// # Errors
    /// Somebody asked the program to stop.
    pub fn pause(&self, time: Duration) -> anyhow::Result<()> {
        let ends = Instant::now() + time;
        loop {
            if self.interrupt.is_asked() {
                bail!("interrupted");
            }
            match ends.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK_INTERVAL)),
                _ => return Ok(()),
            }
        }
    }
}
