//! How fast a backup is read or restored: no faster than was said, and no longer than is wanted.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::interrupt::Interrupt;

/// How often a command that holds itself back looks whether it should stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A limit in bytes a second, and what was done under it.
pub struct Pace {
    started: Instant,
    bytes: u64,
    bytes_per_second: Option<u64>,
    interrupt: Interrupt,
}

impl Pace {
    /// Begins now; without a limit, as fast as it goes.
    pub fn new(bytes_per_second: Option<u64>) -> anyhow::Result<Self> {
        Ok(Self {
            started: Instant::now(),
            bytes: 0,
            bytes_per_second,
            interrupt: Interrupt::listen()?,
        })
    }

    /// So many bytes more were moved: returns when the next ones may be.
    ///
    /// # Errors
    /// Somebody asked the program to stop.
    pub fn moved(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.bytes += bytes;
        loop {
            if self.interrupt.is_asked() {
                bail!("interrupted");
            }
            let due = self
                .bytes_per_second
                .map_or(0.0, |limit| self.bytes as f64 / limit as f64);
            let early = due - self.started.elapsed().as_secs_f64();
            if early <= 0.0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs_f64(early.min(LOOK_INTERVAL.as_secs_f64())));
        }
    }
}
