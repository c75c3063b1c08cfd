//! The values that a running fetch is tuned by: the operator's limits, and the latency of reads.

use fondaco_catalog::{Setting, Settings};
use fondaco_fetch::FetchTuning;
use fondaco_metrics::NodeMetrics;
use fondaco_model::HistogramSnapshot;

/// The settings and the metrics of the node, as one fetch sees them.
pub(crate) struct Tuning<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) metrics: &'a NodeMetrics,
    /// How many fetches run on the node: they share the limits evenly.
    pub(crate) running: &'a (dyn Fn() -> usize + Sync),
    /// For a fetch of partitions that move to the node: how many such fetches run.
    pub(crate) moving: Option<&'a (dyn Fn() -> usize + Sync)>,
}

impl Tuning<'_> {
    fn share(&self, bytes_per_second: u64) -> u64 {
        share(bytes_per_second, (self.running)())
    }

    /// A fetch's share of the operator's limit, in bytes a second; `None` without a limit.
    fn limit(&self, setting: Setting, fetches: usize) -> Option<u64> {
        let rate = self.settings.get(setting);
        (rate > 0).then(|| share(rate, fetches))
    }
}

fn share(bytes_per_second: u64, fetches: usize) -> u64 {
    (bytes_per_second / fetches.max(1) as u64).max(1)
}

impl FetchTuning for Tuning<'_> {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        let of_all = self.limit(Setting::FetchRateBytesPerSecond, (self.running)());
        let moving = self.moving.map(|moving| moving());
        let of_moves = moving.and_then(|moving| self.limit(Setting::MoveRateBytesPerSecond, moving));
        of_all.into_iter().chain(of_moves).min()
    }

    fn rate_floor_bytes_per_second(&self) -> u64 {
        self.share(self.settings.get(Setting::FetchRateFloorBytesPerSecond))
    }

    fn reads(&self) -> HistogramSnapshot {
        self.metrics.latency_of_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_fetches_share_the_limits() {
        let (settings, metrics) = (Settings::default(), NodeMetrics::new(1));
        let share = |fetches: usize| {
            let running = move || fetches;
            let tuning = Tuning {
                settings: &settings,
                metrics: &metrics,
                running: &running,
                moving: None,
            };
            (
                tuning.rate_limit_bytes_per_second(),
                tuning.rate_floor_bytes_per_second(),
            )
        };
        assert_eq!(share(4), (None, 4 << 20));
        settings.set(Setting::FetchRateBytesPerSecond, 3_000_000).unwrap();
        settings.set(Setting::FetchRateFloorBytesPerSecond, 300).unwrap();
        assert_eq!(
            [share(0), share(1), share(3)],
            [(Some(3_000_000), 300), (Some(3_000_000), 300), (Some(1_000_000), 100)]
        );
    }

    #[test]
    fn moves_have_the_lower_of_both_limits() {
        let (settings, metrics) = (Settings::default(), NodeMetrics::new(1));
        let limit = |moving: Option<usize>| {
            let count = move || moving.unwrap_or(0);
            let tuning = Tuning {
                settings: &settings,
                metrics: &metrics,
                running: &|| 4,
                moving: moving.is_some().then_some(&count),
            };
            tuning.rate_limit_bytes_per_second()
        };
        settings.set(Setting::MoveRateBytesPerSecond, 1_000_000).unwrap();
        assert_eq!(
            [limit(None), limit(Some(1)), limit(Some(2))],
            [None, Some(1_000_000), Some(500_000)]
        );
        settings.set(Setting::FetchRateBytesPerSecond, 3_000_000).unwrap();
        assert_eq!(
            [limit(None), limit(Some(1)), limit(Some(2))],
            [Some(750_000), Some(750_000), Some(500_000)]
        );
    }
}
