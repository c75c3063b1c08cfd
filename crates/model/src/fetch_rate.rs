//! How fast a fetch may go: a bucket of tokens that keeps a rate, and the decision which rate.
//!
//! Live traffic comes first: when reads become slower than they are in quiet times, the fetch backs
//! off by halves, and comes back in small steps, as TCP does (additive increase, multiplicative
//! decrease). Time is passed in, as the time since some fixed moment. Invariant: the rate never
//! passes the operator's limit, and never falls below [`RATE_MIN_BYTES_PER_SECOND`] or that limit.

use std::time::Duration;

/// The slowest that a fetch makes itself, in bytes a second: it must end one day.
pub const RATE_MIN_BYTES_PER_SECOND: u64 = 1 << 20;

/// How much slower than in quiet times reads may be before a fetch backs off.
const SLOWDOWN_MAX: f64 = 1.5;

/// A difference in latency that is noise, whatever the ratio.
const NOISE: Duration = Duration::from_micros(50);

/// How much of the rate one quiet window adds.
const INCREASE: f64 = 0.1;

/// How fast the memory of the quietest window fades, so that a load that changed for good becomes
/// the new quiet: a rise by half takes some 80 windows.
const BASELINE_RISE: f64 = 1.005;

/// Lets bytes through at a rate, which may change at any time.
///
/// It may be overdrawn by one take: then nothing passes until the debt is paid off.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// `None`: no limit.
    rate_bytes_per_second: Option<u64>,
    tokens: f64,
    filled_at: Duration,
}

impl TokenBucket {
    /// How much of a second's bytes may pass at once after a pause.
    const BURST_SECONDS: f64 = 0.1;

    /// A bucket with nothing in it yet; `None` is no limit.
    pub fn new(rate_bytes_per_second: Option<u64>, now: Duration) -> Self {
        Self {
            rate_bytes_per_second,
            tokens: 0.0,
            filled_at: now,
        }
    }

    /// The rate in bytes a second, `None` for no limit.
    pub fn rate_bytes_per_second(&self) -> Option<u64> {
        self.rate_bytes_per_second
    }

    /// Changes the rate, from now on.
    pub fn set_rate(&mut self, rate_bytes_per_second: Option<u64>, now: Duration) {
        self.fill(now);
        self.rate_bytes_per_second = rate_bytes_per_second;
        if rate_bytes_per_second.is_none() {
            self.tokens = 0.0;
        }
    }

    /// Takes the tokens for this many bytes, into debt if it must be.
    pub fn take(&mut self, bytes: u64, now: Duration) {
        self.fill(now);
        if self.rate_bytes_per_second.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    /// How long until the debt is paid off at the present rate; zero if there is none.
    pub fn delay(&mut self, now: Duration) -> Duration {
        self.fill(now);
        match self.rate_bytes_per_second {
            Some(rate) if self.tokens < 0.0 => {
                Duration::from_secs_f64((-self.tokens / rate.max(1) as f64).min(86_400.0))
            }
            _ => Duration::ZERO,
        }
    }

    fn fill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        if let Some(rate) = self.rate_bytes_per_second {
            let rate = rate as f64;
            let tokens = self.tokens + rate * elapsed.as_secs_f64();
            self.tokens = tokens.min(rate * Self::BURST_SECONDS);
        }
    }
}

/// What was seen in one window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchWindow {
    /// The 99th percentile of the latency of reads; `None` if nobody read.
    pub read_p99: Option<Duration>,
    /// How fast the fetch went.
    pub fetched_bytes_per_second: u64,
}

/// Decides, window by window, how fast a fetch may go.
#[derive(Debug, Clone)]
pub struct AdaptiveRate {
    /// The operator's limit in bytes a second, `None` for none.
    limit: Option<u64>,
    /// The rate of its own, `None` when it holds nothing back.
    rate: Option<u64>,
    /// The quietest 99th percentile remembered, in seconds.
    baseline: Option<f64>,
}

impl AdaptiveRate {
    /// Begins at full speed. `quiet_p99` is what reads took before the fetch, if anybody read.
    pub fn new(limit_bytes_per_second: Option<u64>, quiet_p99: Option<Duration>) -> Self {
        Self {
            limit: limit_bytes_per_second,
            rate: None,
            baseline: quiet_p99.map(|p99| p99.as_secs_f64()),
        }
    }

    /// Changes the operator's limit; `None` is none.
    pub fn set_limit(&mut self, limit_bytes_per_second: Option<u64>) {
        self.limit = limit_bytes_per_second;
    }

    /// The rate to keep, in bytes a second; `None` is as fast as it goes.
    pub fn rate_bytes_per_second(&self) -> Option<u64> {
        match (self.rate, self.limit) {
            (Some(rate), Some(limit)) => Some(rate.min(limit)),
            (rate, limit) => rate.or(limit),
        }
    }

    /// Takes what the last window showed, and returns the rate for the next one.
    pub fn observe(&mut self, window: FetchWindow) -> Option<u64> {
        let slow = window.read_p99.is_some_and(|p99| self.is_slow(p99));
        let fetched = window.fetched_bytes_per_second;
        if slow {
            let from = self.rate.map_or(fetched, |rate| rate.min(fetched));
            self.rate = Some((from / 2).max(RATE_MIN_BYTES_PER_SECOND));
        } else if let Some(rate) = self.rate {
            let step = (rate as f64 * INCREASE) as u64;
            let next = rate.saturating_add(step.max(RATE_MIN_BYTES_PER_SECOND));
            // Twice what the disks gave holds nothing back any more.
            let holds_back = self.limit.is_none_or(|limit| next < limit) && next / 2 <= fetched;
            self.rate = holds_back.then_some(next);
        }
        self.rate_bytes_per_second()
    }

    /// Compares with the quietest window remembered, and remembers this one.
    fn is_slow(&mut self, p99: Duration) -> bool {
        let seconds = p99.as_secs_f64();
        let baseline = match self.baseline {
            Some(baseline) => baseline.min(seconds),
            None => seconds,
        };
        self.baseline = Some(baseline * BASELINE_RISE);
        seconds > baseline * SLOWDOWN_MAX && seconds > baseline + NOISE.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn window(p99_us: u64, fetched: u64) -> FetchWindow {
        FetchWindow {
            read_p99: Some(Duration::from_micros(p99_us)),
            fetched_bytes_per_second: fetched,
        }
    }

    #[test]
    fn slow_reads_halve_the_rate_and_quiet_ones_restore_it() {
        let mut rate = AdaptiveRate::new(None, Some(Duration::from_micros(200)));
        assert_eq!(rate.observe(window(210, 800 * MIB)), None);
        assert_eq!(rate.observe(window(900, 800 * MIB)), Some(400 * MIB));
        assert_eq!(rate.observe(window(900, 400 * MIB)), Some(200 * MIB));
        let mut windows = 0;
        while rate.observe(window(210, rate.rate.unwrap().min(800 * MIB))).is_some() {
            windows += 1;
            assert!(windows < 100, "the rate never recovers");
        }
        assert!(windows > 5, "the rate jumps back");
    }

    #[test]
    fn noise_on_short_latencies_does_not_slow_a_fetch() {
        let mut rate = AdaptiveRate::new(None, Some(Duration::from_micros(20)));
        assert_eq!(rate.observe(window(60, 800 * MIB)), None);
    }

    #[test]
    fn without_a_quiet_sample_the_quietest_window_becomes_the_baseline() {
        let mut rate = AdaptiveRate::new(None, None);
        assert_eq!(rate.observe(window(1000, 800 * MIB)), None);
        assert_eq!(rate.observe(window(300, 800 * MIB)), None);
        assert_eq!(rate.observe(window(1000, 800 * MIB)), Some(400 * MIB));
    }

    #[test]
    fn a_load_that_changed_for_good_becomes_the_new_quiet() {
        let mut rate = AdaptiveRate::new(None, Some(Duration::from_micros(200)));
        for _ in 0..400 {
            rate.observe(window(600, rate.rate.unwrap_or(800 * MIB)));
        }
        assert!(rate.rate.unwrap_or(u64::MAX) > 100 * MIB, "{rate:?}");
    }

    #[test]
    fn a_raised_limit_lets_waiting_bytes_through_at_once() {
        let mut bucket = TokenBucket::new(Some(1), Duration::ZERO);
        bucket.take(MIB, Duration::ZERO);
        assert!(bucket.delay(Duration::ZERO) > Duration::from_secs(3600));
        bucket.set_rate(None, Duration::ZERO);
        assert_eq!(bucket.delay(Duration::ZERO), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn the_bucket_never_lets_more_through_than_its_rate(
            rate in 1..10 * MIB,
            takes in prop::collection::vec((0..MIB, 0..2000u64), 1..100),
        ) {
            let mut now = Duration::ZERO;
            let mut bucket = TokenBucket::new(Some(rate), now);
            let mut passed = 0u64;
            for (bytes, idle_ms) in takes {
                now += Duration::from_millis(idle_ms);
                now += bucket.delay(now) + Duration::from_nanos(1);
                bucket.take(bytes, now);
                let allowed = rate as f64 * (now.as_secs_f64() + TokenBucket::BURST_SECONDS);
                prop_assert!(passed as f64 <= allowed + 1.0);
                passed += bytes;
            }
        }

        #[test]
        fn the_rate_stays_between_its_floor_and_the_limit(
            limit in prop::option::of(1..1000 * MIB),
            windows in prop::collection::vec((prop::option::of(1..100_000u64), 0..1000 * MIB), 0..200),
        ) {
            let mut rate = AdaptiveRate::new(limit, None);
            for (p99_us, fetched_bytes_per_second) in windows {
                let read_p99 = p99_us.map(Duration::from_micros);
                let next = rate.observe(FetchWindow { read_p99, fetched_bytes_per_second });
                if let Some(next) = next {
                    prop_assert!(next >= RATE_MIN_BYTES_PER_SECOND.min(limit.unwrap_or(u64::MAX)));
                    prop_assert!(next <= limit.unwrap_or(u64::MAX));
                } else {
                    prop_assert!(limit.is_none());
                }
            }
        }
    }
}
