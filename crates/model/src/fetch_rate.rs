//! How fast a fetch may go: a token bucket that keeps a rate, and the choice of the rate.
//!
//! Live traffic comes first, but only where the fetch is what slows it down. The latency of reads varies by itself,
//! above all that of cold reads, so comparing it with earlier times is useless. Instead, the fetch pauses for a moment
//! again and again, and the latency of reads while it runs is compared with their latency while it pauses. If several
//! comparisons agree, within their own scatter, that the fetch slows reads down, it halves its rate; if they agree that
//! it does not, it goes faster again.
//!
//! Time is passed in, as the time since some fixed moment. Invariant: the rate never exceeds the operator's limit, and
//! never falls below the lower of floor and limit.

use std::collections::VecDeque;
use std::time::Duration;

/// How much slower reads may be with a fetch than without: smaller differences cannot be told from chance.
const SLOWDOWN_MAX: f64 = 1.2;

/// A difference in latency that counts as noise, whatever the ratio.
const NOISE: Duration = Duration::from_micros(50);

/// How many comparisons a decision needs at least.
const COMPARISONS_MIN: usize = 3;

/// How many comparisons are kept.
const COMPARISONS_MAX: usize = 8;

/// How many standard errors the mean must be away from the limit.
const CERTAINTY: f64 = 2.0;

/// The assumed deviation of the logarithms of comparisons before it is measured, and how many comparisons that
/// assumption counts for.
const ASSUMED_DEVIATION: f64 = 0.5;
const ASSUMED_WEIGHT: f64 = 3.0;

/// The factor by which a fetch becomes faster at a time.
const INCREASE: f64 = 1.5;

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
    /// How many seconds' worth of bytes may pass at once after a pause.
    const BURST_SECONDS: f64 = 0.1;

    /// An empty bucket; `None` is no limit.
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

    /// Takes the tokens for this many bytes, going into debt if necessary.
    pub fn take(&mut self, bytes: u64, now: Duration) {
        self.fill(now);
        if self.rate_bytes_per_second.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    /// How long until the debt is paid off at the present rate; zero without a debt.
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

/// The 99th percentile of read latencies, while a fetch ran and while it paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLatencies {
    /// While it ran.
    pub with: Duration,
    /// While it paused, right before or after.
    pub without: Duration,
}

/// Decides, comparison by comparison, how fast a fetch may go.
#[derive(Debug, Clone)]
pub struct AdaptiveRate {
    /// The operator's limit in bytes a second, `None` for none.
    limit: Option<u64>,
    /// The lowest rate that it chooses by itself.
    floor: u64,
    /// Its own rate; `None` when it does not throttle.
    rate: Option<u64>,
    /// The logarithms of how much slower reads were with the fetch, since the last change of the rate.
    slowdowns: VecDeque<f64>,
}

impl AdaptiveRate {
    /// Begins at full speed.
    pub fn new(limit_bytes_per_second: Option<u64>, floor_bytes_per_second: u64) -> Self {
        Self {
            limit: limit_bytes_per_second,
            floor: floor_bytes_per_second.max(1),
            rate: None,
            slowdowns: VecDeque::new(),
        }
    }

    /// Changes the operator's limit, `None` for none, and floor.
    pub fn set_bounds(&mut self, limit_bytes_per_second: Option<u64>, floor_bytes_per_second: u64) {
        self.limit = limit_bytes_per_second;
        self.floor = floor_bytes_per_second.max(1);
        self.rate = self.rate.map(|rate| rate.max(self.floor));
    }

    /// The rate to keep, in bytes a second; `None` is as fast as it goes.
    pub fn rate_bytes_per_second(&self) -> Option<u64> {
        match (self.rate, self.limit) {
            (Some(rate), Some(limit)) => Some(rate.min(limit)),
            (rate, limit) => rate.or(limit),
        }
    }

    /// Reports the fetch's rate while no client read: it need not slow down.
    pub fn observe_no_reads(&mut self, fetched_bytes_per_second: u64) -> Option<u64> {
        self.slowdowns.clear();
        self.speed_up(fetched_bytes_per_second);
        self.rate_bytes_per_second()
    }

    /// Reports a comparison, and the fetch's rate while it ran. Returns the rate from now on.
    pub fn observe(&mut self, reads: ReadLatencies, fetched_bytes_per_second: u64) -> Option<u64> {
        let is_noise = reads.with <= reads.without + NOISE;
        let ratio = reads.with.as_secs_f64() / reads.without.as_secs_f64().max(1e-9);
        let slowdown = if is_noise { ratio.min(1.0) } else { ratio };
        self.slowdowns.push_back(slowdown.clamp(0.05, 20.0).ln());
        if self.slowdowns.len() > COMPARISONS_MAX {
            self.slowdowns.pop_front();
        }
        if self.slowdowns.len() >= COMPARISONS_MIN {
            let (mean, error) = self.mean_and_error();
            if mean - CERTAINTY * error > SLOWDOWN_MAX.ln() {
                let from = self
                    .rate
                    .map_or(fetched_bytes_per_second, |rate| rate.min(fetched_bytes_per_second));
                self.rate = Some((from / 2).max(self.floor));
                self.slowdowns.clear();
            } else if mean < SLOWDOWN_MAX.ln() && self.rate.is_some() {
                self.speed_up(fetched_bytes_per_second);
                self.slowdowns.clear();
            }
        }
        self.rate_bytes_per_second()
    }

    fn speed_up(&mut self, fetched: u64) {
        let Some(rate) = self.rate else { return };
        let next = (rate as f64 * INCREASE) as u64 + 1;
        // A rate of twice the disks' throughput does not throttle any more.
        let holds_back = self.limit.is_none_or(|limit| next < limit) && next / 2 <= fetched;
        self.rate = holds_back.then_some(next);
    }

    /// The mean of the comparisons, and its standard error, which begins with an assumed deviation.
    fn mean_and_error(&self) -> (f64, f64) {
        let count = self.slowdowns.len() as f64;
        let mean = self.slowdowns.iter().sum::<f64>() / count;
        let squares: f64 = self.slowdowns.iter().map(|slowdown| (slowdown - mean).powi(2)).sum();
        let variance = (ASSUMED_WEIGHT * ASSUMED_DEVIATION.powi(2) + squares) / (ASSUMED_WEIGHT + count - 1.0);
        (mean, (variance / count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    const FLOOR: u64 = 16 * MIB;
    /// The throughput of the simulated reader's disk.
    const DISK: u64 = 800 * MIB;

    fn reads(with_us: u64, without_us: u64) -> ReadLatencies {
        ReadLatencies {
            with: Duration::from_micros(with_us),
            without: Duration::from_micros(without_us),
        }
    }

    /// A reader whose latency varies by itself, from one moment to the next and over time, and grows with the fetch's
    /// share of the disk.
    struct Reader {
        seed: u64,
        /// The deviation of the logarithm of the latency.
        scatter: f64,
        drift: f64,
        level: f64,
        /// How many times slower reads are beside a fetch at full speed, less one.
        harm: f64,
    }

    impl Reader {
        fn new(seed: u64, scatter: f64, drift: f64, harm: f64) -> Self {
            Self {
                seed,
                scatter,
                drift,
                level: 0.0,
                harm,
            }
        }

        /// The sum of twelve uniform numbers is nearly normal.
        fn normal(&mut self) -> f64 {
            let uniform = (0..12).map(|_| {
                self.seed = self
                    .seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (self.seed >> 33) as f64 / f64::from(1u32 << 31)
            });
            uniform.sum::<f64>() - 6.0
        }

        fn compare(&mut self, fetched: u64) -> ReadLatencies {
            self.level = (self.level + self.drift * self.normal()) * 0.95;
            let slower = 1.0 + self.harm * fetched as f64 / DISK as f64;
            let latency = |reader: &mut Self, factor: f64| {
                let log = reader.level + reader.scatter * reader.normal();
                Duration::from_secs_f64(0.002 * log.exp() * factor)
            };
            ReadLatencies {
                with: latency(self, slower),
                without: latency(self, 1.0),
            }
        }

        /// The mean rate of a fetch beside it, after it has had time to settle, as a share of the disk's.
        fn share_of_a_fetch(&mut self) -> f64 {
            let mut rate = AdaptiveRate::new(None, MIB);
            let mut sum = 0.0;
            for turn in 0..600 {
                let fetched = rate.rate_bytes_per_second().map_or(DISK, |rate| rate.min(DISK));
                rate.observe(self.compare(fetched), fetched);
                if turn >= 150 {
                    sum += fetched as f64 / DISK as f64;
                }
            }
            sum / 450.0
        }
    }

    #[test]
    fn slowed_reads_halve_the_rate_and_it_recovers_after_them() {
        let mut rate = AdaptiveRate::new(None, FLOOR);
        assert_eq!(
            rate.observe(reads(900, 210), DISK),
            None,
            "one comparison may be chance"
        );
        assert_eq!(rate.observe(reads(900, 210), DISK), None);
        assert_eq!(rate.observe(reads(900, 210), DISK), Some(DISK / 2));
        for _ in 0..100 {
            rate.observe(reads(900, 210), rate.rate_bytes_per_second().unwrap());
        }
        assert_eq!(rate.rate_bytes_per_second(), Some(FLOOR));
        let mut windows = 0;
        while let Some(limit) = rate.rate_bytes_per_second() {
            rate.observe_no_reads(limit.min(DISK));
            windows += 1;
            assert!(windows < 20, "the rate never recovers");
        }
        assert!(windows > 5, "the rate jumps back");
    }

    #[test]
    fn reads_that_are_slow_anyway_do_not_slow_the_fetch() {
        let mut rate = AdaptiveRate::new(None, FLOOR);
        for ms in [1, 40, 2, 90, 90, 3, 500, 1, 1] {
            assert_eq!(rate.observe(reads(ms * 1000, ms * 1000), DISK), None);
        }
    }

    #[test]
    fn noise_on_short_latencies_does_not_slow_a_fetch() {
        let mut rate = AdaptiveRate::new(None, FLOOR);
        for _ in 0..20 {
            assert_eq!(rate.observe(reads(60, 20), DISK), None);
        }
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
        fn a_reader_with_varying_latency_does_not_slow_a_fetch(
            seed in any::<u64>(), scatter in 0.0..0.7f64, drift in 0.0..0.3f64,
        ) {
            let share = Reader::new(seed, scatter, drift, 0.0).share_of_a_fetch();
            prop_assert!(share > 0.75, "{share}");
        }

        #[test]
        fn a_fetch_yields_to_a_reader_that_it_slows_down(
            seed in any::<u64>(), scatter in 0.0..0.7f64, drift in 0.0..0.3f64, harm in 1.0..20.0f64,
        ) {
            let share = Reader::new(seed, scatter, drift, harm).share_of_a_fetch();
            let slowdown = 1.0 + harm * share;
            prop_assert!(slowdown < 1.9, "reads are {slowdown} times slower");
            prop_assert!(slowdown > 1.1, "the fetch could go faster: reads are {slowdown} times slower");
        }

        #[test]
        fn the_rate_stays_between_its_floor_and_the_limit(
            limit in prop::option::of(1..1000 * MIB),
            floor in 1..100 * MIB,
            windows in prop::collection::vec((prop::option::of((1..100_000u64, 1..100_000u64)), 0..1000 * MIB), 0..200),
        ) {
            let mut rate = AdaptiveRate::new(limit, floor);
            for (compared, fetched) in windows {
                let next = match compared {
                    Some((with, without)) => rate.observe(reads(with, without), fetched),
                    None => rate.observe_no_reads(fetched),
                };
                if let Some(next) = next {
                    prop_assert!(next >= floor.min(limit.unwrap_or(u64::MAX)));
                    prop_assert!(next <= limit.unwrap_or(u64::MAX));
                } else {
                    prop_assert!(limit.is_none());
                }
            }
        }
    }
}
