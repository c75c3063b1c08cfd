//! Slows the streams of a node down while they slow reads down, as fetches are: by the same comparison.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use fondaco_catalog::{Setting, Settings};
use fondaco_fetch::{FetchControl, FetchTuning, Pacer, SystemClock};
use fondaco_metrics::NodeMetrics;
use fondaco_model::HistogramSnapshot;
use parking_lot::Mutex;

use crate::error::AgentError;

/// How often the thread checks whether much is read.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Fewer bytes than this in that time need no pauses, which would delay events.
const BUSY_BYTES: u64 = 1 << 20;

/// The pace of the threads that read streams, and the thread that chooses it.
pub(super) struct IngestPace {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    control: FetchControl,
    /// Whether the thread waits for more to be read.
    is_idle: AtomicBool,
}

/// The node's settings and reads.
struct Tuning {
    settings: Arc<Settings>,
    metrics: Arc<NodeMetrics>,
}

impl FetchTuning for Tuning {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        None
    }

    fn rate_floor_bytes_per_second(&self) -> u64 {
        self.settings.get(Setting::FetchRateFloorBytesPerSecond)
    }

    fn reads(&self) -> HistogramSnapshot {
        self.metrics.latency_of_all()
    }
}

impl IngestPace {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(settings: Arc<Settings>, metrics: Arc<NodeMetrics>) -> Result<Self, AgentError> {
        Self::start_with(Tuning { settings, metrics })
    }

    fn start_with(tuning: impl FetchTuning + Send + 'static) -> Result<Self, AgentError> {
        let shared = Arc::new(Shared {
            control: FetchControl::new(SystemClock),
            is_idle: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ingest pace".to_owned());
        let spawned = thread.spawn(move || own.run(&tuning));
        let thread = spawned.map_err(AgentError::io("start", "thread of the pace of streams"))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { shared, thread })
    }

    /// Counts bytes that were read from streams, and waits until more may be.
    pub(super) fn passes(&self) -> impl Fn(u64) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        let thread: Option<Thread> = self.thread.lock().as_ref().map(|thread| thread.thread().clone());
        move |bytes| {
            // At the end nothing is waited for.
            let _ = shared.control.passed(bytes);
            if shared.is_idle.load(Relaxed)
                && let Some(thread) = &thread
            {
                thread.unpark();
            }
        }
    }

    /// The rate that streams are slowed down to, in bytes a second; 0 if they are not.
    pub(super) fn limit_bytes_per_second(&self) -> u64 {
        self.shared.control.progress().rate_limit_bytes_per_second
    }

    /// Ends the thread; nothing waits any more.
    pub(super) fn close(&self) {
        self.shared.control.interrupt();
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            // It has panicked, and said so.
            let _ = thread.join();
        }
    }
}

impl Drop for IngestPace {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self, tuning: &dyn FetchTuning) {
        while self.is_running() {
            let before = self.bytes();
            self.is_idle.store(true, Relaxed);
            if self.bytes() == before {
                std::thread::park();
            }
            self.is_idle.store(false, Relaxed);
            self.wait(CHECK_INTERVAL);
            if is_busy(self.bytes() - before, tuning) {
                self.pace(tuning);
            }
        }
    }

    /// Chooses the rate as long as much is read.
    fn pace(&self, tuning: &dyn FetchTuning) {
        let mut pacer = Pacer::new(&self.control, tuning);
        let (mut checked, mut before) = (Instant::now(), self.bytes());
        while self.is_running() {
            self.wait(pacer.until_next_turn());
            pacer.turn();
            if checked.elapsed() >= CHECK_INTERVAL {
                if !is_busy(self.bytes() - before, tuning) {
                    break;
                }
                (checked, before) = (Instant::now(), self.bytes());
            }
        }
        drop(pacer);
        self.control.set_rate_limit(None);
    }

    fn bytes(&self) -> u64 {
        self.control.progress().bytes_done
    }

    fn is_running(&self) -> bool {
        self.control.check().is_ok()
    }

    /// Waits for this time, but not beyond the end.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.is_running() && Instant::now() < until {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Whether this number of bytes between two checks counts as much. A stream that is slowed down to the floor is busy, too.
fn is_busy(bytes: u64, tuning: &dyn FetchTuning) -> bool {
    bytes >= BUSY_BYTES.min(tuning.rate_floor_bytes_per_second() / 2)
}

#[cfg(test)]
mod tests {
    use fondaco_model::Histogram;
    use fondaco_testing::eventually;

    use super::*;

    /// Reads that are slow while streams are read, and no floor to speak of.
    struct SlowedReads(Arc<Histogram>);

    impl FetchTuning for SlowedReads {
        fn rate_limit_bytes_per_second(&self) -> Option<u64> {
            None
        }

        fn rate_floor_bytes_per_second(&self) -> u64 {
            1 << 20
        }

        fn reads(&self) -> HistogramSnapshot {
            self.0.snapshot()
        }
    }

    #[test]
    fn streams_make_way_for_reads_that_they_slow_down() {
        let reads = Arc::new(Histogram::default());
        let pace = IngestPace::start_with(SlowedReads(Arc::clone(&reads))).unwrap();
        let is_over = AtomicBool::new(false);
        let with_us = std::sync::atomic::AtomicU64::new(5000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let us = match pace.shared.control.is_paused() {
                        true => 500,
                        false => with_us.load(Relaxed),
                    };
                    reads.record(Duration::from_micros(us), 10);
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                let passes = pace.passes();
                while !is_over.load(Relaxed) {
                    passes(64 << 10);
                }
            });
            // A failed wait must not leave the threads running.
            let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                eventually("streams to be slowed down", || {
                    (pace.limit_bytes_per_second() > 0).then_some(())
                });
                with_us.store(500, Relaxed);
                eventually("streams to be fast again", || {
                    (pace.limit_bytes_per_second() == 0).then_some(())
                });
            }));
            is_over.store(true, Relaxed);
            pace.close();
            assert!(waited.is_ok());
        });
    }
}
