//! The rate limit of background work: a pause follows the work, so that requests come first.

use std::time::{Duration, Instant};

use fondaco_model::TokenBucket;

/// The longest pause at a time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The rate limit of one chore.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    bucket: TokenBucket,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<u64>, now: Instant) -> Self {
        Self {
            began: now,
            bucket: TokenBucket::new(bytes_per_second, Duration::ZERO),
        }
    }

    /// Changes the rate, from now on.
    pub(crate) fn limit(&mut self, bytes_per_second: Option<u64>, now: Instant) {
        self.bucket.set_rate(bytes_per_second, now - self.began);
    }

    /// Accounts for bytes that were read or sent.
    pub(crate) fn take(&mut self, bytes: u64, now: Instant) {
        self.bucket.take(bytes, now - self.began);
    }

    /// How long to pause for those bytes: zero once the pause is over.
    pub(crate) fn pause(&mut self, now: Instant) -> Duration {
        self.bucket.delay(now - self.began).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_pauses_only_if_there_is_a_rate_limit() {
        let began = Instant::now();
        let mut pace = Pace::new(None, began);
        pace.take(u64::MAX / 2, began);
        assert_eq!(pace.pause(began), Duration::ZERO);
        let mut pace = Pace::new(Some(1_000_000), began);
        pace.take(20_000, began);
        assert!(pace.pause(began) >= Duration::from_millis(19));
        assert_eq!(pace.pause(began + Duration::from_millis(21)), Duration::ZERO);
        pace.take(10_000_000, began);
        assert_eq!(pace.pause(began), PAUSE_MAX);
    }
}
