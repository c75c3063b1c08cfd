//! The handle of a running fetch: its progress, its rate, and whether it should stop.
//!
//! The threads of a fetch report here, and check here before each piece. Any thread may read it, change the rate, or
//! stop the fetch, at any time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_model::TokenBucket;
use fondaco_os::priority::give_way;
use parking_lot::Mutex;

use crate::error::FetchError;

/// The longest sleep of a fetch before it checks whether the rate changed, a pause ended, or it should stop.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// The clock of a fetch.
pub trait Clock: Send + Sync {
    /// The time since some fixed moment.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn sleep(&self, time: Duration) {
        (**self).sleep(time);
    }
}

/// The clock of the operating system, relative to one moment of this process.
#[derive(Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGAN.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The progress of a fetch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchProgress {
    /// The bytes of all files.
    pub bytes_total: u64,
    /// The bytes that are here and verified, those of an earlier attempt included.
    pub bytes_done: u64,
    /// The number of all files.
    pub files_total: u64,
    /// The number of complete files.
    pub files_done: u64,
    /// The rate of the last moments, in bytes a second.
    pub rate_bytes_per_second: u64,
    /// The present limit of the rate, in bytes a second; 0 is no limit.
    pub rate_limit_bytes_per_second: u64,
    /// In how many seconds it will be done at the present rate; `None` if unknown.
    pub seconds_left: Option<u64>,
}

const RUN: u8 = 0;
const CANCEL: u8 = 1;
const INTERRUPT: u8 = 2;

/// The handle of a fetch.
pub struct FetchControl {
    clock: Box<dyn Clock>,
    bucket: Mutex<TokenBucket>,
    stop: AtomicU8,
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    files_total: AtomicU64,
    files_done: AtomicU64,
    rate: AtomicU64,
    /// The smoothed rate.
    smooth_rate: AtomicU64,
    paused: AtomicBool,
}

impl FetchControl {
    /// A handle for a new fetch.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self {
            bucket: Mutex::new(TokenBucket::new(None, clock.now())),
            clock: Box::new(clock),
            stop: AtomicU8::new(RUN),
            bytes_total: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            files_total: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            smooth_rate: AtomicU64::new(0),
            paused: AtomicBool::new(false),
        }
    }

    /// Makes the fetch end with [`FetchError::Cancelled`], soon.
    pub fn cancel(&self) {
        self.stop.store(CANCEL, Relaxed);
    }

    /// Makes the fetch end with [`FetchError::Interrupted`], soon, unless it was cancelled.
    pub fn interrupt(&self) {
        // A cancelled fetch stays cancelled: it must not resume.
        let _ = self.stop.compare_exchange(RUN, INTERRUPT, Relaxed, Relaxed);
    }

    /// Its progress.
    pub fn progress(&self) -> FetchProgress {
        let (bytes_total, bytes_done) = (self.bytes_total.load(Relaxed), self.bytes_done.load(Relaxed));
        let left = bytes_total.saturating_sub(bytes_done);
        FetchProgress {
            bytes_total,
            bytes_done,
            seconds_left: match self.smooth_rate.load(Relaxed) {
                0 => None,
                rate => Some(left.div_ceil(rate)),
            },
            files_total: self.files_total.load(Relaxed),
            files_done: self.files_done.load(Relaxed),
            rate_bytes_per_second: self.rate.load(Relaxed),
            rate_limit_bytes_per_second: self.bucket.lock().rate_bytes_per_second().unwrap_or(0),
        }
    }

    /// Returns an error if the fetch should stop.
    ///
    /// # Errors
    /// [`FetchError::Cancelled`] or [`FetchError::Interrupted`].
    pub fn check(&self) -> Result<(), FetchError> {
        match self.stop.load(Relaxed) {
            CANCEL => Err(FetchError::Cancelled),
            INTERRUPT => Err(FetchError::Interrupted),
            _ => Ok(()),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn begin(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Relaxed);
        self.bytes_total.store(bytes, Relaxed);
    }

    /// Sets the limit of the rate, in bytes a second; `None` is no limit.
    pub fn set_rate_limit(&self, rate: Option<u64>) {
        let now = self.clock.now();
        self.bucket.lock().set_rate(rate, now);
    }

    pub(crate) fn report_rate(&self, bytes_per_second: u64, smooth_bytes_per_second: u64) {
        self.rate.store(bytes_per_second, Relaxed);
        self.smooth_rate.store(smooth_bytes_per_second, Relaxed);
    }

    /// Pauses or resumes the fetch.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether the fetch is pausing for a moment, to measure reads without it.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    pub(crate) fn file_done(&self) {
        self.files_done.fetch_add(1, Relaxed);
    }

    /// Subtracts bytes that were counted and turned out to be useless.
    pub(crate) fn forget(&self, bytes: u64) {
        self.bytes_done.fetch_sub(bytes, Relaxed);
    }

    /// Counts bytes, and waits until the rate allows more.
    ///
    /// # Errors
    /// [`FetchError::Cancelled`] or [`FetchError::Interrupted`].
    pub fn passed(&self, bytes: u64) -> Result<(), FetchError> {
        self.bytes_done.fetch_add(bytes, Relaxed);
        let now = self.clock.now();
        self.bucket.lock().take(bytes, now);
        loop {
            self.check()?;
            let now = self.clock.now();
            let delay = match self.is_paused() {
                true => SLEEP_MAX,
                false => self.bucket.lock().delay(now),
            };
            if delay.is_zero() {
                give_way();
                return Ok(());
            }
            self.clock.sleep(delay.min(SLEEP_MAX));
        }
    }

    /// Waits, but not longer than until the fetch should stop.
    pub(crate) fn back_off(&self, time: Duration) -> Result<(), FetchError> {
        let end = self.clock.now() + time;
        loop {
            self.check()?;
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.clock.sleep(left.min(SLEEP_MAX));
        }
    }
}
