//! How fast the background goes: what was done is paid for by a pause, so that requests come first.

use std::time::{Duration, Instant};

use fondaco_model::TokenBucket;

use crate::worker::Signal;

/// The longest pause at a time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pace of one thread.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    bucket: TokenBucket,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            began: Instant::now(),
            bucket: TokenBucket::new(bytes_per_second, Duration::ZERO),
        }
    }

    /// So many bytes were read or sent: pauses as long as that takes. Whether the thread is to go on.
    pub(crate) fn spend(&mut self, bytes: u64, signal: &Signal) -> bool {
        self.bucket.take(bytes, self.began.elapsed());
        loop {
            let delay = self.bucket.delay(self.began.elapsed());
            if delay.is_zero() {
                return !signal.has_ended();
            }
            if !signal.pause(delay.min(PAUSE_MAX)) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_nothing_waits_and_with_one_it_takes_its_time() {
        let signal = Signal::default();
        let began = Instant::now();
        assert!(Pace::new(None).spend(u64::MAX / 2, &signal));
        let mut pace = Pace::new(Some(1_000_000));
        assert!(pace.spend(20_000, &signal));
        assert!(began.elapsed() >= Duration::from_millis(19), "{:?}", began.elapsed());
    }
}
