//! What a fetch is told while it runs: the operator's limit, and how reads are doing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fondaco_node::{FetchTuning, HistogramSnapshot, NodeMetrics, Setting, Settings};

/// The least number of reads in a window from which a percentile means something.
const READS_MIN: u64 = 100;

/// The settings and the metrics of the node, as one fetch sees them.
pub(crate) struct Tuning<'a> {
    settings: &'a Settings,
    metrics: &'a NodeMetrics,
    before: Mutex<HistogramSnapshot>,
}

impl<'a> Tuning<'a> {
    /// The first window is all that was read before: the quiet that later ones are compared with.
    pub(crate) fn new(settings: &'a Settings, metrics: &'a NodeMetrics) -> Self {
        Self {
            settings,
            metrics,
            before: Mutex::default(),
        }
    }
}

impl FetchTuning for Tuning<'_> {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        match self.settings.get(Setting::FetchRateBytesPerSecond) {
            0 => None,
            rate => Some(rate),
        }
    }

    fn read_p99(&self) -> Option<Duration> {
        let now = self.metrics.latency_of_all();
        // A snapshot is replaced whole: a poisoned one is as good as any.
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let window = now.since(&before);
        if window.count() < READS_MIN {
            // Too few to judge by: they count in the next window.
            return None;
        }
        *before = now;
        window.quantile(0.99)
    }
}
