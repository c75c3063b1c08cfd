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
    /// How many fetches run on the node: they share the limit evenly.
    running: &'a (dyn Fn() -> usize + Sync),
    before: Mutex<HistogramSnapshot>,
}

impl<'a> Tuning<'a> {
    /// The first window is all that was read before: the quiet that later ones are compared with.
    pub(crate) fn new(
        settings: &'a Settings,
        metrics: &'a NodeMetrics,
        running: &'a (dyn Fn() -> usize + Sync),
    ) -> Self {
        Self {
            settings,
            metrics,
            running,
            before: Mutex::default(),
        }
    }
}

impl FetchTuning for Tuning<'_> {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        match self.settings.get(Setting::FetchRateBytesPerSecond) {
            0 => None,
            rate => Some((rate / (self.running)().max(1) as u64).max(1)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_that_run_at_the_same_time_share_the_limit() {
        let (settings, metrics) = (Settings::default(), NodeMetrics::new(1));
        let share = |fetches: usize| {
            let running = move || fetches;
            Tuning::new(&settings, &metrics, &running).rate_limit_bytes_per_second()
        };
        assert_eq!(share(3), None);
        settings.set(Setting::FetchRateBytesPerSecond, 3_000_000).unwrap();
        assert_eq!(
            [share(0), share(1), share(3)],
            [Some(3_000_000), Some(3_000_000), Some(1_000_000)]
        );
    }
}
