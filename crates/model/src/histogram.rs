//! A histogram of durations: four buckets for each power of two, from nanoseconds to minutes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BUCKETS_PER_DOUBLING: usize = 4;
const DOUBLINGS: usize = 40;
const BUCKETS: usize = BUCKETS_PER_DOUBLING * DOUBLINGS;

/// Counts of durations, each in a bucket no wider than a quarter of its value.
///
/// Written by one thread, read by any: there is no atomic increment, only a load and a store.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The contents of a [`Histogram`] at one moment, or a sum or difference of such contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts `count` events that took `duration` each. Only the thread that owns the histogram.
    #[inline]
    pub fn record(&self, duration: Duration, count: u64) {
        let ns = duration.as_nanos() as u64;
        add(&self.counts[bucket_of(ns)], count);
        add(&self.sum_ns, ns.saturating_mul(count));
    }

    /// The contents now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: std::array::from_fn(|at| self.counts[at].load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(BUCKETS_PER_DOUBLING as u64);
    let doubling = ns.ilog2() as usize;
    let quarter = (ns >> (doubling - 2)) as usize & (BUCKETS_PER_DOUBLING - 1);
    ((doubling - 2) * BUCKETS_PER_DOUBLING + quarter).min(BUCKETS - 1)
}

/// The smallest duration beyond a bucket, in nanoseconds.
fn bucket_end_ns(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let (doubling, quarter) = (next / BUCKETS_PER_DOUBLING as u64, next % BUCKETS_PER_DOUBLING as u64);
    (BUCKETS_PER_DOUBLING as u64 + quarter) << doubling
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum_ns: 0,
        }
    }
}

impl HistogramSnapshot {
    /// How many events.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all events took together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// An upper bound, at most a quarter too high, of the duration that this share of events (0 to 1) did not exceed;
    /// `None` without events.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(bucket, &events)| {
            seen += events;
            (seen >= rank && events > 0).then(|| Duration::from_nanos(bucket_end_ns(bucket)))
        })
    }

    /// For each power of two of nanoseconds: the duration, and how many events took less. For Prometheus.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut seen = 0;
        self.counts
            .chunks(BUCKETS_PER_DOUBLING)
            .enumerate()
            .map(move |(doubling, counts)| {
                seen += counts.iter().sum::<u64>();
                let last = doubling * BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING - 1;
                (Duration::from_nanos(bucket_end_ns(last)), seen)
            })
    }

    /// Adds the events of another snapshot.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in self.counts.iter_mut().zip(other.counts) {
            *own = own.wrapping_add(others);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// The events since an earlier snapshot of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            counts: std::array::from_fn(|at| self.counts[at].wrapping_sub(earlier.counts[at])),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_lies_within_its_bucket(ns in 8..1u64 << 40) {
            let bucket = bucket_of(ns);
            prop_assert!(ns < bucket_end_ns(bucket));
            prop_assert!(ns >= bucket_end_ns(bucket - 1));
            prop_assert!(bucket_end_ns(bucket) as f64 <= ns as f64 * 1.26 + 1.0);
        }

        #[test]
        fn quantiles_bound_the_recorded_durations(mut durations in prop::collection::vec(10..1_000_000_000u64, 1..200), share in 0.0..1.0f64) {
            let histogram = Histogram::default();
            durations.iter().for_each(|&ns| histogram.record(Duration::from_nanos(ns), 1));
            durations.sort();
            let rank = (durations.len() as f64 * share).ceil() as usize;
            let exact = durations[rank.max(1) - 1];
            let bound = histogram.snapshot().quantile(share).unwrap().as_nanos() as u64;
            prop_assert!(bound > exact && bound as f64 <= exact as f64 * 1.26 + 1.0);
        }
    }

    #[test]
    fn the_difference_of_snapshots_has_the_events_between_them() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(5), 3);
        let earlier = histogram.snapshot();
        histogram.record(Duration::from_millis(5), 2);
        let between = histogram.snapshot().since(&earlier);
        assert_eq!(between.count(), 2);
        assert_eq!(between.sum(), Duration::from_millis(10));
        assert_eq!(HistogramSnapshot::default().quantile(0.5), None);
    }
}
