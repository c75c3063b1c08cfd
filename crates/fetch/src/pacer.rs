//! Chooses the rate of a running fetch, or of similar work. It pauses the work for a moment again and again, and
//! compares the latency of reads in the pauses with their latency while it runs.
//!
//! All fetches of a process pause at the same moments, so that none measures the quiet of another. Without reads, no
//! fetch pauses.

use std::time::Duration;

use fondaco_model::{AdaptiveRate, ReadLatencies};

use crate::FetchTuning;
use crate::pace::FetchControl;
use fondaco_model::HistogramSnapshot;

/// How often a fetch pauses.
const PERIOD: Duration = Duration::from_millis(600);

/// How long it runs in each period.
const RUN: Duration = Duration::from_millis(450);

/// How long work that was begun before may still have an effect: reads in this time are not counted.
const SETTLING: Duration = Duration::from_millis(40);

/// The smallest number of reads for a meaningful percentile.
const READS_MIN: u64 = 100;

/// With fewer reads than this while it runs, it does not pause.
const READS_FEW: u64 = 10;

/// The weight of a new period in the remembered speed.
const SPEED_SHARE: f64 = 0.1;

/// The present step. Each ends at a moment of the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    SettlingToRun,
    Running,
    SettlingToPause,
    Pausing,
}

/// Chooses the rate of work that reports what it does by [`FetchControl::passed`], as its thread has it
/// [turn](Self::turn). Dropping it ends a pause.
pub struct Pacer<'a> {
    control: &'a FetchControl,
    tuning: &'a dyn FetchTuning,
    adaptive: AdaptiveRate,
    step: Step,
    ends: Duration,
    /// All reads, and the bytes fetched, when the step began.
    reads_before: HistogramSnapshot,
    bytes_before: u64,
    began: Duration,
    /// Reads while it ran, and while it paused, since the last comparison.
    with: HistogramSnapshot,
    without: HistogramSnapshot,
    /// Its rate when it last ran.
    fetched_bytes_per_second: u64,
    speed: Speed,
}

/// The overall rate, pauses included.
struct Speed {
    bytes: u64,
    at: Duration,
    bytes_per_second: Option<f64>,
}

impl<'a> Pacer<'a> {
    /// Begins at full speed.
    pub fn new(control: &'a FetchControl, tuning: &'a dyn FetchTuning) -> Self {
        let (limit, floor) = bounds(tuning);
        let adaptive = AdaptiveRate::new(limit, floor);
        control.set_rate_limit(adaptive.rate_bytes_per_second());
        let (now, bytes) = (control.now(), control.progress().bytes_done);
        Self {
            control,
            tuning,
            adaptive,
            step: Step::SettlingToRun,
            ends: now + SETTLING,
            reads_before: HistogramSnapshot::default(),
            bytes_before: bytes,
            began: now,
            with: HistogramSnapshot::default(),
            without: HistogramSnapshot::default(),
            fetched_bytes_per_second: 0,
            speed: Speed {
                bytes,
                at: now,
                bytes_per_second: None,
            },
        }
    }

    /// The time until the next decision.
    pub fn until_next_turn(&self) -> Duration {
        self.ends.saturating_sub(self.control.now())
    }

    /// Makes the decision that is due now.
    pub fn turn(&mut self) {
        let now = self.control.now();
        if now < self.ends {
            return;
        }
        let reads = self.tuning.reads();
        let bytes = self.control.progress().bytes_done;
        match self.step {
            Step::SettlingToRun => {
                let into = phase_of(now);
                // A fetch that begins in the pause of the others runs until the next pause.
                let left = if into < RUN { RUN - into } else { PERIOD - into + RUN };
                self.begin(Step::Running, now + left.max(SETTLING));
            }
            Step::Running => {
                self.measure(bytes, now);
                let own = reads.since(&self.reads_before);
                if own.count() < READS_FEW {
                    self.adaptive.observe_no_reads(self.fetched_bytes_per_second);
                    self.begin(Step::Running, now + PERIOD);
                } else {
                    self.with.add(&own);
                    self.control.pause(true);
                    self.begin(Step::SettlingToPause, now + SETTLING);
                }
                self.control.set_rate_limit(self.adaptive.rate_bytes_per_second());
            }
            Step::SettlingToPause => {
                let left = PERIOD.saturating_sub(phase_of(now));
                self.begin(Step::Pausing, now + left.clamp(SETTLING, PERIOD - RUN));
            }
            Step::Pausing => {
                self.without.add(&reads.since(&self.reads_before));
                self.control.pause(false);
                self.compare();
                self.control.set_rate_limit(self.adaptive.rate_bytes_per_second());
                self.begin(Step::SettlingToRun, now + SETTLING);
            }
        }
        self.reads_before = reads;
        self.bytes_before = bytes;
        self.began = now;
    }

    fn begin(&mut self, step: Step, ends: Duration) {
        self.step = step;
        self.ends = ends;
    }

    /// Records the rate while it ran, and reads the operator's present limits.
    fn measure(&mut self, bytes: u64, now: Duration) {
        let rate = |bytes: u64, time: Duration| bytes as f64 / time.as_secs_f64().max(1e-9);
        let fetched = rate(bytes.saturating_sub(self.bytes_before), now.saturating_sub(self.began));
        self.fetched_bytes_per_second = fetched as u64;
        let overall = rate(
            bytes.saturating_sub(self.speed.bytes),
            now.saturating_sub(self.speed.at),
        );
        let before = self.speed.bytes_per_second.unwrap_or(overall);
        let smooth = before + (overall - before) * SPEED_SHARE;
        self.speed = Speed {
            bytes,
            at: now,
            bytes_per_second: Some(smooth),
        };
        self.control.report_rate(overall as u64, smooth as u64);
        let (limit, floor) = bounds(self.tuning);
        self.adaptive.set_bounds(limit, floor);
    }

    /// Compares the latencies of reads, once there are enough of them.
    fn compare(&mut self) {
        if self.with.count().min(self.without.count()) < READS_MIN {
            return;
        }
        if let (Some(with), Some(without)) = (self.with.quantile(0.99), self.without.quantile(0.99)) {
            let latencies = ReadLatencies { with, without };
            let before = self.adaptive.rate_bytes_per_second();
            let rate = self.adaptive.observe(latencies, self.fetched_bytes_per_second);
            if rate != before {
                tracing::debug!(?latencies, bytes_per_second = ?rate, "the rate of a fetch changes");
            }
        }
        self.with = HistogramSnapshot::default();
        self.without = HistogramSnapshot::default();
    }
}

impl Drop for Pacer<'_> {
    fn drop(&mut self) {
        self.control.pause(false);
    }
}

fn bounds(tuning: &dyn FetchTuning) -> (Option<u64>, u64) {
    (
        tuning.rate_limit_bytes_per_second(),
        tuning.rate_floor_bytes_per_second(),
    )
}

/// The position of a moment in its period.
fn phase_of(now: Duration) -> Duration {
    Duration::from_nanos((now.as_nanos() % PERIOD.as_nanos()) as u64)
}
